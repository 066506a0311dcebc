"""Translation of Polars expressions.

Polars has no API to inspect an expression, but it serialises one as JSON. A node is an object whose only key is the
kind of the node. Any other layout is an error; nothing is guessed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from tamis import types
from tamis.errors import ExpressionError, to_one_line
from tamis.expr.foreign import AS_POLARS, mark
from tamis.expr.interop.translate_tree import (
    ADVICE,
    NAN,
    Build,
    Library,
    Parts,
    build_field,
    build_membership,
    find_cast_target,
    is_divisor_other_than_zero,
    translate_tree,
)
from tamis.expr.literals import literal
from tamis.expr.nodes import Call, Literal, Name, Unbound, and_, not_, or_

_INFINITIES = tuple(Literal(sign * float("inf"), types.DOUBLE) for sign in (-1, 1))
_UNITS = {"Milliseconds": "ms", "Microseconds": "us", "Nanoseconds": "ns"}
_REGULAR_EXPRESSION = re.compile(r"[\\.+*?()|\[\]{}^$]")


def from_polars(expression: Any) -> Unbound:
    """Translate a `polars.Expr`; a node without a counterpart is an error that names it.

    The translation is TRUE, FALSE and NULL where the expression is in Polars. NaN equals itself and is larger than
    every number in both. There are exceptions, in which the semantics of Tamis apply:

    - integers are computed in 64 bits and do not wrap around;
    - integers are compared with floats exactly;
    - dates before the year -262143 or after 262142 have calendar parts.

    Not translated, because the meaning would differ: sums of columns, whose types are unknown here; a division by
    anything but a number other than zero, which is infinite in Polars and NULL here; `//` and `%` of floats, and casts
    of or to texts, decimals and instants, which Polars computes by its own rules.
    """
    from polars.exceptions import PolarsError

    try:
        text = expression.meta.serialize(format="json")
    except PolarsError as error:
        raise ExpressionError(
            f"a Polars expression could not be serialised ({to_one_line(error)}): {ADVICE}"
        ) from error
    if not _NOT_FINITE.search(text):
        return translate_tree(_parse_json(text), _translate)
    # JSON has neither NaN nor infinities; Polars writes null for all three.
    values = {str(value): value for value in _find_numbers_that_are_not_finite(expression)}
    if len(values) != 1:
        raise ExpressionError(
            "a Polars expression has several of NaN, infinity and -infinity, which its JSON does not tell apart: use "
            f"is_nan() or is_infinite(), or {ADVICE}"
        )
    (value,) = values.values()
    return translate_tree(_parse_json(text), partial(_translate, not_finite=value))


_NOT_FINITE = re.compile(r'"Float(?:32|64)?":null')


def _find_numbers_that_are_not_finite(expression: Any) -> Iterator[float]:
    import polars

    opened = [expression]
    while opened:
        node = opened.pop()
        inner = node.meta.pop()
        opened.extend(inner)
        if not inner and node.meta.is_literal():
            values = polars.select(node).to_series()
            value = values.item() if values.dtype.is_float() and len(values) == 1 else None
            if value is not None and not math.isfinite(value):
                yield value


def _parse_json(text: str) -> Any:
    """Parse JSON of any depth: Python's parser recurses, and fails at some hundred conditions joined with `&`."""
    try:
        return json.loads(text)
    except RecursionError:
        # The import loads sqlglot, which few expressions need.
        from tamis.expr.sql.syntax import retry_with_large_stack

        return retry_with_large_stack(lambda: json.loads(text))


def _translate(node: Any, not_finite: float | None = None) -> Unbound | Parts:
    match node:
        case {"Column": str() as name}:
            return Name((name,), exact=True)
        case {"Literal": value}:
            return _translate_literal(value, not_finite)
        case {"Alias": [inner, _]}:
            return Parts([inner], lambda args: args[0])
        case {"BinaryExpr": {"left": left, "op": str() as operator, "right": right}}:
            return Parts([left, right], _POLARS.get_translation("operator", operator))
        case {"Ternary": {"predicate": condition, "truthy": value, "falsy": otherwise}}:
            return Parts([condition, value, otherwise], lambda args: mark(AS_POLARS, Call("case", args)))
        case {"Function": {"input": list() as inputs, "function": function}}:
            return _translate_function(inputs, function)
        case {"Cast": {"expr": inner, "dtype": {"Literal": dtype}, "options": "Strict" | "NonStrict" as options}}:
            return Parts([inner], _get_cast("cast" if options == "Strict" else "try_cast", dtype))
        case {"Selector": _}:
            raise ExpressionError(
                f"a Polars expression selects columns by a pattern or a position: name one column, or {ADVICE}"
            )
        case {**parts} if len(parts) == 1:
            raise _POLARS.make_unsupported_error(f"node {next(iter(parts))!r}")
        case _:
            raise _POLARS.make_unsupported_error(f"node {str(node)[:50]!r}")


# --- Operators and functions ------------------------------------------------------------------------------------------


def _build_division(args: tuple[Unbound, ...]) -> Unbound:
    if not is_divisor_other_than_zero(args[1]):
        raise ExpressionError(
            "a Polars expression divides by something that may be zero, which is infinite in Polars and NULL here: "
            f"divide by a number, or {ADVICE}"
        )
    return mark(AS_POLARS, Call("/", args))


def _get_cast(function: str, dtype: object) -> Build:
    match dtype:
        case str() if re.fullmatch(r"Boolean|String|U?Int(?:8|16|32|64)|Float(?:32|64)", dtype):
            target = find_cast_target(getattr(pa, {"Boolean": "bool_"}.get(dtype, dtype.lower()))())
        case "Date":
            target = find_cast_target(types.DATE)
        case {"Datetime": [str() as unit, None]} if unit in _UNITS:
            target = find_cast_target(pa.timestamp(_UNITS[unit]))
        case _:
            target = None
    if target is None:
        raise _POLARS.make_unsupported_error(f"cast to {dtype}")
    name = target
    return lambda args: mark(AS_POLARS, Call(function, (*args, name)))


_POLARS = Library("Polars", AS_POLARS, lambda row: row.polars, {
    "NotEqValidity": lambda args: not_(mark(AS_POLARS, Call("<=>", args))),
    "TrueDivide": _build_division,
    "Xor": lambda args: mark(AS_POLARS, Call("xor", args)),
    "TemporalExpr.Date": _get_cast("cast", "Date"),
    "Boolean.IsNan": lambda args: Call("=", (args[0], NAN)),
    "Boolean.IsNotNan": lambda args: Call("<>", (args[0], NAN)),
    "Boolean.IsInfinite": lambda args: Call("in", (args[0], *_INFINITIES)),
    "Boolean.IsFinite": lambda args: not_(Call("in", (args[0], *_INFINITIES, NAN))),
    "Boolean.AllHorizontal": lambda args: and_(*args),
    "Boolean.AnyHorizontal": lambda args: or_(*args),
})  # fmt: skip


def _translate_function(inputs: list[Any], function: Any) -> Unbound | Parts:
    name, options = _read_function(function)
    match name, options:
        case "Boolean.IsIn", {"nulls_equal": bool() as nulls_equal} if len(inputs) == 2:
            items = _read_items(inputs[1])
            return Parts(inputs[:1], lambda args: build_membership(AS_POLARS, args[0], items, nulls_equal=nulls_equal))
        case "Boolean.IsBetween", {"closed": str() as closed} if closed in _BETWEEN:
            return Parts(inputs, lambda args: _build_between(args, closed))
        case "StringExpr.Contains", {"literal": bool() as is_literal}:
            return Parts(inputs, lambda args: _build_contains(args, is_literal))
        case "Round", {"decimals": 0, "mode": str() as mode} if mode in _ROUNDINGS:
            return Parts(inputs, lambda args: mark(AS_POLARS, Call(_ROUNDINGS[mode], args)))
        case "StructExpr.FieldByName", str() as field:
            return Parts(inputs, lambda args: build_field(args[0], field, "Polars"))
        case _, None:
            return Parts(inputs, _POLARS.get_translation("function", name))
        case _:
            raise _POLARS.make_unsupported_error(f"function {name!r}")


def _read_function(function: Any) -> tuple[str, Any]:
    """Return the name of a function, with its family, and its options.

    >>> _read_function({"Boolean": {"IsBetween": {"closed": "Both"}}}), _read_function("Abs")
    (('Boolean.IsBetween', {'closed': 'Both'}), ('Abs', None))
    """
    path: list[str] = []
    while isinstance(function, Mapping) and len(function) == 1 and len(path) < 2:
        ((name, function),) = function.items()
        path.append(name)
    if isinstance(function, str) and len(path) < 2:
        path.append(function)
        function = None
    return ".".join(path), function


def _read_items(node: Any) -> pa.Array:
    """Return the list of an `is_in`, which is serialised as an Arrow stream."""
    match node:
        case {"Literal": {"Scalar": {"List": list() as content}} | {"Series": list() as content}}:
            pass
        case _:
            raise ExpressionError(f"the items of a Polars is_in are not a list of values: {ADVICE}")
    try:
        column = pa.ipc.open_stream(bytes(content)).read_all().column(0)
    except (pa.ArrowException, ValueError) as error:
        raise ExpressionError(f"the items of a Polars is_in cannot be read ({to_one_line(error)}): {ADVICE}") from error
    items = column.combine_chunks()
    if pa.types.is_large_list(items.type) and len(items) == 1:
        items = items.flatten()  # a Series that was imploded
    if pa.types.is_dictionary(items.type):
        items = items.dictionary_decode()
    return items.cast(types.replace_view_types(items.type))


_BETWEEN = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}


_ROUNDINGS = {"HalfToEven": "bround", "HalfAwayFromZero": "round"}


def _build_between(args: tuple[Unbound, ...], closed: str) -> Unbound:
    value, low, high = args
    lower, upper = _BETWEEN[closed]
    return and_(*(mark(AS_POLARS, Call(sign, (value, bound))) for sign, bound in ((lower, low), (upper, high))))


def _build_contains(args: tuple[Unbound, ...], is_literal: bool) -> Unbound:
    match args[1]:
        case Literal(value=str() as pattern) if not _REGULAR_EXPRESSION.search(pattern):
            is_literal = True
        case _:
            pass
    if not is_literal:
        raise ExpressionError(
            f"a Polars expression searches for a regular expression: pass literal=True for plain text, or {ADVICE}"
        )
    return Call("contains", args)


# --- Literals ---------------------------------------------------------------------------------------------------------


def _translate_literal(value: Any, not_finite: float | None) -> Unbound:
    match value:
        case {"Dyn": {"Int": int() as number}}:
            return mark(AS_POLARS, literal(number))
        case {"Dyn": {"Float": number}}:
            return mark(AS_POLARS, _translate_float("Float64", number, not_finite))
        case {"Dyn": {"Str": str() as text}}:
            return literal(text)
        case {"Scalar": {**scalar}} if len(scalar) == 1:
            ((kind, content),) = scalar.items()
            return _translate_scalar(kind, content, not_finite)
        case _:
            raise _POLARS.make_unsupported_error(f"literal {str(value)[:50]!r}")


def _translate_scalar(kind: object, content: Any, not_finite: float | None) -> Literal:
    match kind, content:
        case "Null", _:
            return Literal(None)
        case "Float32" | "Float64", _:
            return _translate_float(str(kind), content, not_finite)
        case "Boolean" | "String", bool() | str():
            return literal(content)
        case "Date", int():
            return Literal(content, types.DATE)
        case "Datetime", [int() as ticks, str() as unit, zone] if unit in _UNITS:
            name = zone["inner"] if isinstance(zone, Mapping) else zone
            return literal(pa.scalar(ticks, pa.int64()).cast(pa.timestamp(_UNITS[unit], name)))
        case "Time", int():
            return literal(pa.scalar(content, pa.int64()).cast(pa.time64("ns")))
        case "Duration", [int() as ticks, str() as unit] if unit in _UNITS:
            return literal(pa.scalar(ticks, pa.int64()).cast(pa.duration(_UNITS[unit])))
        case "Decimal", [int() as unscaled, int(), int() as scale]:
            digits = tuple(map(int, str(abs(unscaled))))
            return literal(Decimal((int(unscaled < 0), digits, -scale)))
        case "Binary", list():
            return literal(bytes(content))
        case str(), int() if re.fullmatch(r"U?Int(?:8|16|32|64)", kind):
            return literal(pa.scalar(content, getattr(pa, kind.lower())()))
        case "Int128" | "UInt128", int():
            return literal(content)
        case _:
            raise _POLARS.make_unsupported_error(f"literal of type {kind!r}")


def _translate_float(kind: str, number: object, not_finite: float | None) -> Literal:
    value = not_finite if number is None else number
    if not isinstance(value, int | float):
        raise _POLARS.make_unsupported_error(f"literal {value!r} of type {kind!r}")
    if kind == "Float32":
        return Literal(float(np.float32(value)), pa.float32())
    return literal(float(value))
