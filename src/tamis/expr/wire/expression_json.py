"""Expressions as JSON, exact to the last bit, so that they mean the same in another process.

SQL text is for people, and rounds a few literals to the nearest form. Here an expression is a list of steps, leaves
before the calls that use them, so that nothing recurses at any depth:

    {"types": "…", "steps": [["column:", ["a"], null, false, 0], ["literal:", 5, 0], ["<", 0, 1]]}

A call that was written as another function ends with how: `["coalesce", 0, 1, {"nvl": null}]`.
A `column:` is bound and has a type, or null where it is unknown; a `name:` is not bound.

`types` holds the Arrow types, in Arrow's own format; steps refer to them by index.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa

from tamis.errors import InvalidArgument
from tamis.expr.nodes import AnyExpr, Column, Expr, Leaf, Literal, Name, Spelling, from_steps, to_steps

_NAME, _COLUMN, _LITERAL = "name:", "column:", "literal:"
"""The names of the leaf steps, which no function has."""


def expression_to_json(expr: AnyExpr) -> dict[str, Any]:
    """Return an expression as values that `json` can encode."""
    numbers = _TypeNumbers()
    steps: list[list[Any]] = []
    for step in to_steps(expr):
        match step:
            case Name():
                steps.append([_NAME, *_place(step)])
            case Column():
                steps.append([_COLUMN, *_place(step), None if step.type is None else numbers.of(step.type)])
            case Literal():
                steps.append([_LITERAL, _value_to_json(step.value), numbers.of(step.type)])
            case (function, args, spelling):
                written = () if spelling is None else ({spelling.function: spelling.args},)
                steps.append([function, *args, *written])
    return {"types": types_to_text(numbers.found), "steps": steps}


def expression_from_json(given: Mapping[str, Any]) -> AnyExpr:
    """Return the expression that `expression_to_json` encoded.

    >>> from tamis.expr.sql.parse import parse_sql
    >>> expression_from_json(expression_to_json(parse_sql("a > 1.5 OR b IN (X'00FF', NULL)")))
    Call<a > 1.5 OR b IN (X'00FF', NULL)>
    """
    data_types = types_from_text(given["types"])
    steps: list[Any] = []
    for kind, *rest in given["steps"]:
        if kind == _NAME:
            path, position, exact = rest
            steps.append(Name(tuple(path), position, exact))
        elif kind == _COLUMN:
            path, position, exact, number = rest
            steps.append(Column(tuple(path), None if number is None else data_types[number], position, exact))
        elif kind == _LITERAL:
            value, number = rest
            steps.append(Literal(_value_from_json(value), data_types[number]))
        elif rest and isinstance(rest[-1], Mapping):
            ((name, args),) = rest.pop().items()
            steps.append((kind, tuple(rest), Spelling(name, None if args is None else tuple(args))))
        else:
            steps.append((kind, tuple(rest), None))
    return from_steps(tuple(steps))


def bound_from_json(given: Mapping[str, Any]) -> Expr:
    for kind, *rest in given["steps"]:
        if kind == _NAME:
            raise InvalidArgument(f"expected a bound expression as JSON, found the unbound name {'.'.join(rest[0])!r}")
    return cast(Expr, expression_from_json(given))


def _place(leaf: Leaf) -> tuple[list[str], int | None, bool]:
    return list(leaf.path), None if leaf.position is None else int(leaf.position), leaf.exact


class _TypeNumbers:
    """Assigns numbers to types. Lookup by id first, because long lists share one type object and hashing it is slow."""

    def __init__(self) -> None:
        self.found: list[pa.DataType] = []
        self._by_type: dict[pa.DataType, int] = {}
        self._by_id: dict[int, int] = {}

    def of(self, data_type: pa.DataType) -> int:
        number = self._by_id.get(id(data_type))
        if number is None:
            number = self._by_id[id(data_type)] = self._by_type.setdefault(data_type, len(self.found))
            if number == len(self.found):
                self.found.append(data_type)
        return number


def schema_to_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def schema_from_text(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def types_to_text(data_types: Sequence[pa.DataType | None]) -> str:
    return schema_to_text(pa.schema([(str(number), data_type) for number, data_type in enumerate(data_types)]))


def types_from_text(text: str) -> list[pa.DataType]:
    return list(schema_from_text(text).types)


def _value_to_json(value: object) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value  # Python writes the shortest digits that round-trip
        case float():
            return {"float": repr(value)}
        case Decimal():
            return {"decimal": str(value)}
        case bytes():
            return {"bytes": base64.b64encode(value).decode()}
        case tuple():
            return {"tuple": [_value_to_json(part) for part in value]}
        case _:
            raise InvalidArgument(f"a literal of {type(value).__name__} cannot be sent to another process: {value!r}")


def _value_from_json(given: Any) -> Any:
    match given:
        case {"float": str() as text}:
            return float(text)
        case {"decimal": str() as text}:
            return Decimal(text)
        case {"bytes": str() as text}:
            return base64.b64decode(text)
        case {"tuple": list() as parts}:
            return tuple(_value_from_json(part) for part in parts)
        case _:
            return given
