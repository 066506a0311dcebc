"""Translation of Polars expressions.

Polars has no API to inspect an expression, but it serialises one as JSON. A node is an object whose only key is the
kind of the node. Any other layout is an error; nothing is guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tamis import types
from tamis.errors import ExpressionError, to_one_line
from tamis.expr.interop.translate_tree import Parts, is_divisor_other_than_zero, is_number_by_form, translate_tree
from tamis.expr.literals import literal
from tamis.expr.nodes import FALSE, Call, Column, Expr, Literal, and_, not_, or_

_ADVICE = "write the filter as SQL text"
_NAN = Literal(float("nan"), types.DOUBLE)
_INFINITIES = tuple(Literal(sign * float("inf"), types.DOUBLE) for sign in (-1, 1))
_UNITS = {"Milliseconds": "ms", "Microseconds": "us", "Nanoseconds": "ns"}
_REGULAR_EXPRESSION = re.compile(r"[\\.+*?()|\[\]{}^$]")


def is_polars_expression(value: object) -> bool:
    """Return whether it is a Polars expression, by the class name, so that Polars need not be installed."""
    return any(kind.__name__ == "Expr" and kind.__module__.startswith("polars.") for kind in type(value).__mro__)


def from_polars(expression: Any) -> Expr:
    """Translate a `polars.Expr`; a node without a counterpart is an error that names it.

    The translation is TRUE, FALSE and NULL where the expression is in Polars. NaN equals itself and is larger than
    every number in both. There are two exceptions, in which the semantics of Tamis apply:

    - integers are computed in 64 bits and do not wrap around, floats in double precision;
    - integers are compared with floats exactly.

    Not translated, because the meaning would differ: casts and sums of columns, whose types are unknown here; a
    division by anything but a number other than zero, which is infinite in Polars and NULL here; `//` and `%`, which
    round down in Polars.
    """
    from polars.exceptions import PolarsError

    try:
        text = expression.meta.serialize(format="json")
    except PolarsError as error:
        raise ExpressionError(
            f"a Polars expression could not be serialised ({to_one_line(error)}): {_ADVICE}"
        ) from error
    return translate_tree(parse_json(text), _translate)


def _translate(node: Any) -> Expr | Parts:
    match node:
        case {"Column": str() as name}:
            return Column((name,), exact=True)
        case {"Literal": value}:
            return _translate_literal(value)
        case {"Alias": [inner, _]}:
            return Parts([inner], lambda args: args[0])
        case {"BinaryExpr": {"left": left, "op": str() as operator, "right": right}}:
            if operator not in _OPERATORS:
                raise _make_unsupported_error(f"operator {operator!r}")
            return Parts([left, right], _OPERATORS[operator])
        case {"Ternary": {"predicate": condition, "truthy": value, "falsy": otherwise}}:
            return Parts([condition, value, otherwise], lambda args: Call("case", args))
        case {"Function": {"input": list() as inputs, "function": function}}:
            return _translate_function(inputs, function)
        case {"Selector": _}:
            raise ExpressionError(
                f"a Polars expression selects columns by a pattern or a position: name one column, or {_ADVICE}"
            )
        case {**parts} if len(parts) == 1:
            raise _make_unsupported_error(f"node {next(iter(parts))!r}")
        case _:
            raise _make_unsupported_error(f"node {str(node)[:50]!r}")


def _make_unsupported_error(what: str) -> ExpressionError:
    return ExpressionError(f"the Polars {what} has no counterpart here: {_ADVICE}")


# --- Operators and functions ------------------------------------------------------------------------------------------

_Build = Callable[[tuple[Expr, ...]], Expr]


def _rename(function: str) -> _Build:
    return lambda args: Call(function, args)


def _build_arithmetic(function: str) -> _Build:
    def build(args: tuple[Expr, ...]) -> Expr:
        if not any(map(is_number_by_form, args)):
            raise ExpressionError(
                f"a Polars expression has {function} of two columns, which may be texts or dates: {_ADVICE}"
            )
        return Call(function, args)

    return build


def _build_division(args: tuple[Expr, ...]) -> Expr:
    if not is_divisor_other_than_zero(args[1]):
        raise ExpressionError(
            "a Polars expression divides by something that may be zero, which is infinite in Polars and NULL here: "
            f"divide by a number, or {_ADVICE}"
        )
    return Call("/", args)


_OPERATORS: dict[str, _Build] = {
    "Eq": _rename("="),
    "NotEq": _rename("<>"),
    "Lt": _rename("<"),
    "LtEq": _rename("<="),
    "Gt": _rename(">"),
    "GtEq": _rename(">="),
    "EqValidity": _rename("<=>"),
    "NotEqValidity": lambda args: not_(Call("<=>", args)),
    "And": _rename("and"),
    "LogicalAnd": _rename("and"),
    "Or": _rename("or"),
    "LogicalOr": _rename("or"),
    "Plus": _build_arithmetic("+"),
    "Minus": _build_arithmetic("-"),
    "Multiply": _build_arithmetic("*"),
    "TrueDivide": _build_division,
}

_FUNCTIONS: dict[str, _Build] = {
    "Boolean.Not": _rename("not"),
    "Boolean.IsNull": _rename("is_null"),
    "Boolean.IsNotNull": _rename("is_not_null"),
    "Boolean.IsNan": lambda args: Call("=", (args[0], _NAN)),
    "Boolean.IsNotNan": lambda args: Call("<>", (args[0], _NAN)),
    "Boolean.IsInfinite": lambda args: Call("in", (args[0], *_INFINITIES)),
    "Boolean.IsFinite": lambda args: not_(Call("in", (args[0], *_INFINITIES, _NAN))),
    "Boolean.AllHorizontal": lambda args: and_(*args),
    "Boolean.AnyHorizontal": lambda args: or_(*args),
    "StringExpr.StartsWith": _rename("startswith"),
    "StringExpr.EndsWith": _rename("endswith"),
    "StringExpr.Lowercase": _rename("lower"),
    "StringExpr.Uppercase": _rename("upper"),
    "StringExpr.LenChars": _rename("length"),
    "Negate": _rename("negate"),
    "Abs": _rename("abs"),
    "FillNull": _rename("coalesce"),
    "Coalesce": _rename("coalesce"),
}


def _translate_function(inputs: list[Any], function: Any) -> Expr | Parts:
    name, options = _read_function(function)
    match name, options:
        case "Boolean.IsIn", {"nulls_equal": bool() as nulls_equal} if len(inputs) == 2:
            items = _read_items(inputs[1])
            return Parts(inputs[:1], lambda args: _build_membership(args[0], items, nulls_equal))
        case "Boolean.IsBetween", {"closed": str() as closed} if closed in _BETWEEN:
            return Parts(inputs, lambda args: _build_between(args, closed))
        case "StringExpr.Contains", {"literal": bool() as is_literal}:
            return Parts(inputs, lambda args: _build_contains(args, is_literal))
        case "StructExpr.FieldByName", str() as field:
            return Parts(inputs, lambda args: _build_field(args[0], field))
        case _ if name in _FUNCTIONS and options is None:
            return Parts(inputs, _FUNCTIONS[name])
        case _:
            raise _make_unsupported_error(f"function {name!r}")


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
            raise ExpressionError(f"the items of a Polars is_in are not a list of values: {_ADVICE}")
    try:
        column = pa.ipc.open_stream(bytes(content)).read_all().column(0)
    except (pa.ArrowException, ValueError) as error:
        raise ExpressionError(
            f"the items of a Polars is_in cannot be read ({to_one_line(error)}): {_ADVICE}"
        ) from error
    items = column.combine_chunks()
    if pa.types.is_dictionary(items.type):
        items = items.dictionary_decode()
    return items.cast(types.replace_view_types(items.type))


def _build_membership(value: Expr, items: pa.Array, nulls_equal: bool) -> Expr:
    """Build `is_in`. NULL in the list equals NULL with `nulls_equal`, and is ignored without it."""
    members = [literal(item) for item in items.drop_null()]
    is_member = Call("in", (value, *members)) if members else None
    if not nulls_equal:
        # `x <> x` is FALSE, and NULL for NULL.
        return Call("<>", (value, value)) if is_member is None else is_member
    if items.null_count:
        is_null = Call("is_null", (value,))
        return is_null if is_member is None else or_(is_null, is_member)
    return FALSE if is_member is None else and_(Call("is_not_null", (value,)), is_member)


_BETWEEN = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}


def _build_between(args: tuple[Expr, ...], closed: str) -> Expr:
    value, low, high = args
    lower, upper = _BETWEEN[closed]
    return and_(Call(lower, (value, low)), Call(upper, (value, high)))


def _build_contains(args: tuple[Expr, ...], is_literal: bool) -> Expr:
    match args[1]:
        case Literal(value=str() as pattern) if not _REGULAR_EXPRESSION.search(pattern):
            is_literal = True
        case _:
            pass
    if not is_literal:
        raise ExpressionError(
            f"a Polars expression searches for a regular expression: pass literal=True for plain text, or {_ADVICE}"
        )
    return Call("contains", args)


def _build_field(value: Expr, name: str) -> Expr:
    if not isinstance(value, Column):
        raise _make_unsupported_error(f"field {name!r} of a computed struct")
    return Column((*value.path, name), exact=True)


# --- Literals ---------------------------------------------------------------------------------------------------------


def _translate_literal(value: Any) -> Literal:
    match value:
        case {"Dyn": {"Int": int() as number}}:
            return literal(number)
        case {"Dyn": {"Float": number}}:
            return _translate_float("Float64", number)
        case {"Dyn": {"Str": str() as text}}:
            return literal(text)
        case {"Scalar": {**scalar}} if len(scalar) == 1:
            ((kind, content),) = scalar.items()
            return _translate_scalar(kind, content)
        case _:
            raise _make_unsupported_error(f"literal {str(value)[:50]!r}")


def _translate_scalar(kind: object, content: Any) -> Literal:
    match kind, content:
        case "Null", _:
            return Literal(None)
        case "Float32" | "Float64", _:
            return _translate_float(str(kind), content)
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
        case str(), int() if re.fullmatch(r"U?Int\d+", kind):
            return literal(content)
        case _:
            raise _make_unsupported_error(f"literal of type {kind!r}")


def _translate_float(kind: str, number: object) -> Literal:
    if not isinstance(number, int | float):
        # JSON has neither NaN nor infinities; Polars writes null for all three.
        raise ExpressionError(
            "a Polars expression has the number NaN or infinity, which its JSON does not keep: use is_nan() or "
            f"is_infinite(), or {_ADVICE}"
        )
    if kind == "Float32":
        return Literal(float(np.float32(number)), pa.float32())
    return literal(float(number))


# --- JSON of any depth ------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r'\s*(?:([{}\[\],:])|("(?:[^"\\]|\\.)*"|[^\s{}\[\],:"]+))')
_NUMBERS = re.compile(r"\s*\[[\d,\s]*\]")


def parse_json(text: str) -> Any:
    """Parse JSON of any depth: the parser of Python recurses, and fails at some hundred conditions joined with `&`.

    >>> parse_json('{"a": [1, {"b": null}], "c": "x"}')
    {'a': [1, {'b': None}], 'c': 'x'}
    """
    root: list[Any] = []
    stack: list[Any] = [root]
    keys: list[Any] = []
    position, end = 0, len(text.rstrip())

    def add(value: Any) -> None:
        if isinstance(stack[-1], dict):
            stack[-1][keys.pop()] = value
        else:
            stack[-1].append(value)

    while position < end:
        numbers = _NUMBERS.match(text, position)
        token = numbers or _TOKEN.match(text, position)
        if token is None:
            raise ExpressionError(f"Polars serialised an expression as invalid JSON at character {position}: {_ADVICE}")
        position = token.end()
        sign = None if numbers else token[1]
        if numbers:
            # Arrow data is a list of bytes, which takes long to read one by one.
            add(json.loads(numbers[0]))
        elif sign is None:
            value = json.loads(token[2])
            after = _TOKEN.match(text, position)
            if isinstance(stack[-1], dict) and after is not None and after[1] == ":":
                keys.append(value)
                position = after.end()
            else:
                add(value)
        elif sign in "{[":
            opened: Any = {} if sign == "{" else []
            add(opened)
            stack.append(opened)
        elif sign in "}]":
            stack.pop()
    return root[0]
