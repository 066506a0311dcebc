"""Calls of other libraries: binding gives them the meaning that they have in their library.

What a call means in a library may depend on the types of its arguments, which a translation does not know: in Arrow
`x > 5` is FALSE for NaN, and in Polars `x = 0.1` compares 32-bit floats where x is one. So a translation marks the
call, as in `as_arrow(x > 5)`, and binding replaces the mark by calls that say in SQL what the library computes:

| marked                 | x is     | bound                       | because                                      |
|------------------------|----------|-----------------------------|----------------------------------------------|
| `as_arrow(x > 5)`      | a double | `x > 5 AND x <= Infinity`   | a comparison with NaN is FALSE               |
| `as_arrow(x IN (0.1))` | a float  | `x IN (0.1F)`               | the list is cast to the type of the value    |
| `as_arrow(x * 0.5)`    | a float  | `CAST(x * 0.5 AS float)`    | floats are computed in single precision      |
| `as_polars(x = 0.1)`   | a float  | `x = 0.1F`                  | an untyped number gets the column's type     |
| `as_polars(x / 3)`     | a double | `x * 0.3333333333333333`    | Polars multiplies by the reciprocal          |
| `as_polars(x % 3)`     | a bigint | `(x % 3 + 3) % 3`           | Polars rounds quotients down                 |
| `as_polars(year(x))`   | a date   | `year(x)`                   | an instant with a zone has local parts there |
| `as_iceberg(x = 0.1)`  | a float  | `x = 0.1F`                  | a literal gets the column's type             |
| `as_iceberg(x < 1e10)` | an int   | `TRUE`                      | no int is larger, and NULL is not considered |

The result of `+ - * /` of two single-precision numbers, rounded once from double to single precision, is the result in
single precision, because a double has more than twice as many digits.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from tamis import types
from tamis.errors import ExpressionError
from tamis.expr.functions.table import FUNCTIONS, Precedence, find_spark_function, is_comparison, type_of
from tamis.expr.literals import MAX_DIGITS, literal, parse_number
from tamis.expr.nodes import (
    FALSE,
    NULL,
    TRUE,
    AnyExpr,
    Call,
    Expr,
    L,
    Leaf,
    Literal,
    Tree,
    Unbound,
    and_,
    get_operands,
    not_,
    or_,
    replace_args,
)
from tamis.types import get_integer_range, is_number, is_text, type_from_name, type_name_with_article

AS_ARROW = "as_arrow"
AS_DATAFUSION = "as_datafusion"
AS_ICEBERG = "as_iceberg"
AS_POLARS = "as_polars"
_MARKS = frozenset((AS_ARROW, AS_DATAFUSION, AS_ICEBERG, AS_POLARS))

_TYPED = frozenset(("bround", "cast", "div", "round", "try_cast", "xor"))
"""Functions whose meaning in a library depends on the types of the arguments."""

_FLOAT = pa.float32()
_SMALL_INTEGERS = (pa.int8(), pa.int16(), pa.uint8(), pa.uint16())
_T = TypeVar("_T")


def mark(library: str, expr: Unbound) -> Unbound:
    """Mark a call, or an untyped number, of another library if what it means depends on the types of columns."""
    match expr:
        case Literal():
            return Call(library, (expr,))
        case Call(function, args) if is_comparison(expr):
            return Call(library, (expr,)) if all(map(_may_be_number, args)) else expr
        case Call(function) if function == "in" or has_common_type(function) or is_arithmetic(function):
            return Call(library, (expr,))
        case Call(function) if function in _TYPED or is_calendar_part(function):
            return Call(library, (expr,))
        case _:
            return expr


def has_common_type(function: str) -> bool:
    row = FUNCTIONS.get(function)
    return row is not None and row.alike is not None


def is_calendar_part(function: str) -> bool:
    row = find_spark_function(function)
    return row is not None and row.larger_parts is not None


def is_arithmetic(function: str) -> bool:
    """Return whether a function computes a number from one or two numbers; `+` and `-` also do other things."""
    row = FUNCTIONS.get(function)
    is_operator = row is not None and row.operator in (Precedence.SUM, Precedence.PRODUCT)
    return is_operator or (row is not None and row.arguments == ("number",))


def _may_be_number(expr: Unbound) -> bool:
    match expr:
        case Literal(type=data_type):
            return bool(is_number(data_type) or pa.types.is_null(data_type))
        case Call(function) if function in FUNCTIONS:
            return bool(FUNCTIONS[function].returns != types.BOOLEAN)
        case _:
            return True


def is_marked(node: AnyExpr) -> bool:
    return isinstance(node, Call) and node.function in _MARKS


def remove_mark(node: Tree[L]) -> Tree[L]:
    """Return what is inside of a mark; any other expression as it is."""
    return node.args[0] if isinstance(node, Call) and node.function in _MARKS else node


def get_foreign_operands(node: Tree[L]) -> tuple[Tree[L], ...]:
    """Return the operands of a node; those of a marked call are the operands of the call."""
    return get_operands(remove_mark(node))


def bind_foreign_call(marked: Call[Leaf], args: tuple[Expr, ...], bind_call: Callable[[Call], Expr]) -> Expr:
    """Return the meaning of a marked call, given its bound operands; a marked literal waits for the call around it.

    `bind_call` binds a call as SQL does.
    """
    inner = marked.args[0]
    if not isinstance(inner, Call):
        return replace_args(marked, ())
    call = replace_args(inner, args)
    if is_calendar_part(call.function):
        return _bind_calendar_part(call, bind_call)
    match marked.function:
        case "as_arrow":
            return _bind_arrow_call(call, bind_call)
        case "as_iceberg":
            return _bind_iceberg_call(call, bind_call)
        case "as_datafusion":
            return _round_to_float(call, bind_call, is_single=_is_single_in_arrow)
        case _:
            return _bind_polars_call(call, bind_call)


# --- What libraries share ---------------------------------------------------------------------------------------------


def _bind_calendar_part(call: Call, bind_call: Callable[[Call], Expr]) -> Expr:
    """Bind a part of a date or timestamp: other libraries know no hour of a date, and have local parts of instants."""
    data_type = type_of(call.args[0])
    row = find_spark_function(call.function)
    assert row is not None
    is_of_date = data_type is not None and pa.types.is_date(data_type) and "day" not in (row.larger_parts or ())
    # Engines round nanoseconds to microseconds; the kernels of the language do not.
    is_rounded = call.function not in FUNCTIONS and _has_nanoseconds(data_type)
    if not is_of_date and (is_rounded or not _is_timestamp_in_utc(data_type)):
        raise _make_type_error(call)
    bound = bind_call(call)
    return bound if type_of(bound) is not None else Call("cast", (bound, _BIGINT))


def _is_timestamp_in_utc(data_type: pa.DataType | None) -> bool:
    """Return whether a type has timestamps without a zone, or in UTC."""
    if data_type is None or not pa.types.is_timestamp(data_type):
        return False
    return data_type.tz in (None, "UTC", "Etc/UTC", "+00:00")


def _has_nanoseconds(data_type: pa.DataType | None) -> bool:
    return data_type is not None and bool(pa.types.is_timestamp(data_type)) and data_type.unit == "ns"


_BIGINT = Literal("bigint", types.STRING)


def _make_type_error(call: Call) -> ExpressionError:
    data_type = type_of(call.args[0])
    shown = "an unknown type" if data_type is None else type_name_with_article(data_type)
    target = next((f" to {arg.value}" for arg in call.args[1:] if isinstance(arg, Literal)), "")
    return ExpressionError(
        f"an expression has {call.function} of {shown}{target}, which SQL computes otherwise: "
        "write the filter as SQL text"
    )


def _round_to_float(
    call: Call, bind_call: Callable[[Call], Expr], is_single: Callable[[Sequence[pa.DataType | None]], bool]
) -> Expr:
    """Bind a call; arithmetic has single precision if its operands have."""
    bound = bind_call(call)
    if not is_arithmetic(call.function) or not is_single([type_of(arg) for arg in call.args]):
        return bound
    return Call("cast", (bound, Literal("float", types.STRING)))


def _to_float(number: Literal) -> Literal:
    """Return a number as the nearest 32-bit float."""
    return Literal(_find_nearest_float(number.value), _FLOAT)


def _find_nearest_float(number: float | Decimal) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(_find_nearest_double(number)))


def _find_nearest_double(number: float | Decimal) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.copysign(math.inf, number)


def _bind_comparison_without_nan(call: Call, bind_call: Callable[[Call], Expr]) -> Expr:
    """Bind a comparison that is FALSE where a side is NaN; `<>` is TRUE there. It stays NULL where a side is NULL."""
    match call.function:
        case "<>":
            return not_(_bind_comparison_without_nan(Call("=", call.args), bind_call))
        case "<" | "<=":
            greater, other = call.args[::-1]
        case ">" | ">=" | "=":
            greater, other = call.args
            if call.function == "=" and isinstance(other, Literal):
                greater, other = other, greater
        case _:
            return bind_call(call)
    # NaN is larger than every number, so a comparison is TRUE only where the smaller side is a number, or both are NaN.
    compared = bind_call(call)
    if isinstance(greater, Literal) and isinstance(greater.value, float) and greater.value != greater.value:
        return and_(Call("is_null", (other,)), NULL)
    data_type = type_of(greater)
    if isinstance(greater, Literal) or (data_type is not None and not pa.types.is_floating(data_type)):
        return compared
    is_a_number = bind_call(Call("<=", (greater, Literal(math.inf, types.DOUBLE))))
    if not isinstance(other, Literal):
        # `y <> y` is FALSE, and NULL for NULL: a comparison of NaN with NULL is NULL.
        is_a_number = or_(is_a_number, bind_call(Call("<>", (other, other))))
    return and_(compared, is_a_number)


# --- Arrow ------------------------------------------------------------------------------------------------------------


def _bind_arrow_call(call: Call, bind_call: Callable[[Call], Expr]) -> Expr:
    if is_comparison(call):
        return _bind_comparison_without_nan(call, bind_call)
    if call.function == "in":
        return bind_call(_cast_items(call))
    narrowed = replace_args(call, tuple(map(_narrow, call.args)))
    return _round_to_float(narrowed, bind_call, _is_single_in_arrow)


def _narrow(arg: Expr) -> Expr:
    """Return a literal with the smallest type that holds it, as Arrow does."""
    match arg:
        case Literal(value=float() as value, type=data_type) if data_type == types.DOUBLE:
            return Literal(value, _FLOAT) if value != value or _find_nearest_float(value) == value else arg
        case _:
            return arg


def _is_single_in_arrow(data_types: Sequence[pa.DataType | None]) -> bool:
    known = [each for each in data_types if each is not None]
    is_float = _FLOAT in known or pa.float16() in known
    is_wider = any(each == types.DOUBLE or pa.types.is_decimal(each) for each in known)
    return is_float and len(known) == len(data_types) and not is_wider


def _cast_items(call: Call) -> Call:
    """Cast the items of a list to the type of the value, which rounds them, if Arrow can."""
    value, *items = call.args
    target = type_of(value)
    literals = [item for item in items if isinstance(item, Literal)]
    if target is None or len({item.type for item in literals}) != 1:
        return call
    rounds = target == _FLOAT or pa.types.is_decimal(target) or pa.types.is_date(target)
    if not rounds or is_text(literals[0].type):
        return call
    try:
        cast = pa.array([item.value for item in literals], literals[0].type).cast(target)
    except pa.ArrowException:
        return call
    return Call("in", (value, *map(literal, cast)))


# --- Polars -----------------------------------------------------------------------------------------------------------


def _bind_polars_call(call: Call, bind_call: Callable[[Call], Expr]) -> Expr:
    is_untyped = [is_marked(arg) for arg in call.args]
    plain = tuple(map(remove_mark, call.args))
    if call.function == "%" or call.function in _TYPED:
        return _bind_typed_polars_call(replace_args(call, plain), bind_call, are_untyped=all(is_untyped))
    if all(is_untyped) and is_arithmetic(call.function):
        # A sum of untyped numbers is an untyped number, a quotient is a double.
        values = [arg.value for arg in plain if isinstance(arg, Literal)]
        bound = literal(_OPERATIONS[call.function](*values))
        return bound if call.function == "/" else Call(AS_POLARS, (bound,))
    arguments = _get_values(call.function, plain)
    known = [
        type_of(arg)
        for arg, skipped in zip(arguments, _get_values(call.function, is_untyped), strict=True)
        if not skipped
    ]
    if _is_single_in_polars(known):
        plain = tuple(
            _to_float(arg) if skipped and isinstance(arg, Literal) else arg
            for arg, skipped in zip(plain, is_untyped, strict=True)
        )
    if call.function == "/":
        return _bind_polars_division(plain[0], plain[1], bind_call)
    return _round_to_float(replace_args(call, plain), bind_call, _is_single_in_polars)


def _get_values(function: str, args: Sequence[_T]) -> Sequence[_T]:
    """Return the arguments that get a common type: in a CASE those that are not conditions."""
    return (*args[1:-1:2], args[-1]) if function == "case" else args


def _is_single_in_polars(data_types: Sequence[pa.DataType | None]) -> bool:
    return _FLOAT in data_types and all(each in (_FLOAT, types.NULL, *_SMALL_INTEGERS) for each in data_types)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    **{"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv},
    **{"negate": operator.neg, "abs": operator.abs},
}
"""The arithmetic of untyped numbers."""


def _bind_polars_division(dividend: Expr, divisor: Expr, bind_call: Callable[[Call], Expr]) -> Expr:
    """Return a division by a constant, which Polars computes as a product with its reciprocal."""
    assert isinstance(divisor, Literal)
    data_type = type_of(dividend)
    if data_type is None:
        return bind_call(Call("/", (dividend, divisor)))
    if pa.types.is_decimal(data_type) and not pa.types.is_floating(divisor.type):
        raise ExpressionError(
            "a Polars expression divides a decimal, which Polars rounds to its digits: divide by a float such as "
            "2.0, or write the filter as SQL text"
        )
    if _is_single_in_polars([data_type, divisor.type]):
        reciprocal = Literal(float(np.float32(1) / np.float32(divisor.value)), _FLOAT)
    else:
        reciprocal = literal(1 / float(divisor.value))
    return _round_to_float(Call("*", (dividend, reciprocal)), bind_call, _is_single_in_polars)


def _bind_typed_polars_call(call: Call, bind_call: Callable[[Call], Expr], *, are_untyped: bool) -> Expr:
    """Bind a call that has a counterpart only for some types; raise for the others.

    Polars rounds quotients of integers down: `-7 // 3` is -3 and `-7 % 3` is 2, where SQL has -2 and -1. It casts a
    float to a text, or a text to a number, by its own rules.
    """
    source = type_of(call.args[0])
    match call.function, call.args:
        case "%" | "div", (Literal(int() as dividend), Literal(int() as divisor)) if are_untyped and divisor:
            return Call(AS_POLARS, (literal(dividend % divisor if call.function == "%" else dividend // divisor),))
        case "%" | "div", (dividend, Literal(value=int() as divisor) as by) if _has_integer(source, divisor):
            remainder = Call("%", (dividend, by))
            if call.function == "%":
                return bind_call(Call("%", (Call("+", (remainder, by)), by)))
            has_other_sign = bind_call(Call("<" if divisor > 0 else ">", (remainder, Literal(0, types.LONG))))
            correction = Call("case", (has_other_sign, Literal(1, types.LONG), Literal(0, types.LONG)))
            return bind_call(Call("-", (Call("cast", (Call("div", call.args), _BIGINT)), correction)))
        case "cast" | "try_cast", (_, Literal(value=str() as name)) if _is_cast_alike(source, type_from_name(name)):
            # A double beyond the largest float is infinite, also where a cast may give NULL.
            return bind_call(Call("cast", call.args) if name == "float" else call)
        case "xor", _ if {type_of(arg) for arg in call.args} <= {types.BOOLEAN, types.NULL}:
            return bind_call(Call("<>", call.args))
        case "round" | "bround", (value,) if source is not None and pa.types.is_integer(source):
            return value
        case "round" | "bround", _ if source in (types.DOUBLE, _FLOAT):
            name = "float" if source == _FLOAT else "double"
            return Call("cast", (bind_call(call), Literal(name, types.STRING)))
        case _:
            raise _make_type_error(call)


def _has_integer(dividend: pa.DataType | None, divisor: int) -> bool:
    """Return whether the quotient is one of integers, and the divisor so small that no remainder overflows."""
    is_integer = dividend is not None and pa.types.is_integer(dividend) and not pa.types.is_uint64(dividend)
    return is_integer and 0 < abs(divisor) < 2**62 and not isinstance(divisor, bool)


def _is_cast_alike(source: pa.DataType | None, target: pa.DataType) -> bool:
    """Return whether Polars casts all values of a type to those to which SQL casts them."""
    if source is None:
        return False
    if pa.types.is_date(target) or pa.types.is_timestamp(target):
        is_cut = _has_nanoseconds(source) and source != target
        return bool(pa.types.is_date(source)) or (_is_timestamp_in_utc(source) and not is_cut)
    is_whole = pa.types.is_integer(source) or pa.types.is_boolean(source)
    if pa.types.is_integer(target) or pa.types.is_floating(target):
        return bool(is_whole or pa.types.is_floating(source))
    return bool(source == target or (is_whole and (is_text(target) or pa.types.is_boolean(target))))


# --- Iceberg ----------------------------------------------------------------------------------------------------------

_BEYOND = {
    "=": (FALSE, FALSE), "<>": (TRUE, TRUE),
    "<": (FALSE, TRUE), "<=": (FALSE, TRUE), ">": (TRUE, FALSE), ">=": (TRUE, FALSE),
}  # fmt: skip
"""What pyiceberg makes of a comparison with a number below all values of a type, and with one above them."""


def _bind_iceberg_call(call: Call, bind_call: Callable[[Call], Expr]) -> Expr:
    column, *items = call.args
    target = type_of(column)
    converted = [
        _to_iceberg_type(item, target) if isinstance(item, Literal) and target is not None else item for item in items
    ]
    if call.function == "in" and len(set(converted)) > 1:
        kept = [item for item in converted if not isinstance(item, bool)]
        return and_(Call("is_not_null", (column,)), bind_call(Call("in", (column, *kept))))
    # A list of one item is a comparison.
    function, item = "=" if call.function == "in" else call.function, converted[0]
    if isinstance(item, bool):
        return _BEYOND[function][item] if function == call.function else and_(Call("is_null", (column,)), NULL)
    if isinstance(item, Literal) and item.value != item.value:
        # The only NaN is that of IsNaN and NotNaN.
        may_be_nan = target is None or pa.types.is_floating(target)
        return bind_call(Call(function, (column, item))) if may_be_nan else _BEYOND[function][True]
    return _bind_comparison_without_nan(Call(function, (column, item)), bind_call)


def _to_iceberg_type(item: Literal, target: pa.DataType) -> Literal | bool:
    """Return a literal as pyiceberg converts it to the type of a column.

    A number that the type does not hold is False if it is below all values of the type, and True if it is above them.
    """
    value = item.value
    if pa.types.is_date(target) and pa.types.is_timestamp(item.type):
        ticks = types.UNITS_PER_SECOND[item.type.unit] * 86_400
        return Literal(value // ticks, types.DATE)
    if pa.types.is_date(target) and isinstance(value, int) and pa.types.is_integer(item.type):
        smallest, largest = get_integer_range(pa.int32())
        return Literal(value, types.DATE) if smallest <= value <= largest else value > 0
    if is_text(item.type) and is_number(target):
        value = parse_number(value)
    elif not is_number(item.type):
        return item
    if value is None or value != value:
        return item
    if pa.types.is_floating(target):
        if target == _FLOAT and abs(value) > float(np.finfo(np.float32).max):
            return bool(value > 0)
        return Literal(_find_nearest_float(value) if target == _FLOAT else _find_nearest_double(value), target)
    if pa.types.is_integer(target) and isinstance(value, int | Decimal):
        whole = int(value if isinstance(value, int) else value.to_integral_value())
        smallest, largest = get_integer_range(target)
        return literal(whole) if smallest <= whole <= largest else whole > 0
    if pa.types.is_decimal(target) and isinstance(value, float) and math.isfinite(value):
        step = Decimal((0, (1,), -target.scale))
        return literal(Decimal(value).quantize(step, ROUND_HALF_UP, Context(prec=MAX_DIGITS)))
    return literal(value) if pa.types.is_decimal(target) else item
