"""The table of supported functions: arguments, result type, null behaviour, monotonicity.

A function that is not in the table still parses, prints and runs (the embedded engine evaluates it row by row),
but it cannot skip data, and its type is unknown.

A *monotone* function keeps or reverses the order of one argument while the others are constants.
Then the bounds of a column give bounds of the function: if `lo <= x <= hi`, then `year(lo) <= year(x) <= year(hi)`,
and for a reversing one `-hi <= -x <= -lo`. This holds for rounded arithmetic too, because rounding keeps order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from tamis import types
from tamis.expr.nodes import Call, Column, Expr, Literal, fold, get_operands
from tamis.types import can_hold_numbers, decimal_digits, is_number, is_text, type_from_name

UNBOUNDED = 1_000_000_000
"""The maximum of a function with any number of arguments."""


class Nulls(Enum):
    """How a function treats NULL arguments."""

    PROPAGATES = "the result is NULL exactly when an argument is"
    OWN = "the function has its own rules"


@dataclass(frozen=True, slots=True)
class Monotone:
    """The argument in which a call is monotone, and whether the call keeps or reverses its order."""

    argument: int
    keeps_order: bool


ArgTypes = tuple[pa.DataType | None, ...]


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    arguments: tuple[str, ...]
    """The kind of each argument: any, boolean, number, text, time, map, literal; the last one repeats up to `most`."""
    returns: Callable[[tuple[Expr, ...], ArgTypes], pa.DataType | None]
    fewest: int
    most: int
    nulls: Nulls = Nulls.PROPAGATES
    monotone: Callable[[tuple[Expr, ...]], Monotone | None] | None = None


def _make_constant_type(data_type: pa.DataType) -> Callable[[tuple[Expr, ...], ArgTypes], pa.DataType | None]:
    return lambda args, arg_types: data_type


def _get_text_type(args: tuple[Expr, ...], arg_types: ArgTypes) -> pa.DataType | None:
    return types.STRING if arg_types[0] is not None and is_text(arg_types[0]) else None


def _cast_type(args: tuple[Expr, ...], arg_types: ArgTypes) -> pa.DataType | None:
    match args[1]:
        case Literal(str() as name):
            return type_from_name(name)
        case _:
            return None


def _case_type(args: tuple[Expr, ...], arg_types: ArgTypes) -> pa.DataType | None:
    """Return the common type of the non-NULL values of `case(condition, value, condition, value, …, otherwise)`."""
    values = [*args[1:-1:2], args[-1]]
    return _find_common_type(values, (*arg_types[1:-1:2], arg_types[-1]))


def _coalesce_type(args: tuple[Expr, ...], arg_types: ArgTypes) -> pa.DataType | None:
    return _find_common_type(args, arg_types)


def _map_value_type(args: tuple[Expr, ...], arg_types: ArgTypes) -> pa.DataType | None:
    return arg_types[0].item_type if arg_types[0] is not None and pa.types.is_map(arg_types[0]) else None


def _find_common_type(args: Sequence[Expr], arg_types: ArgTypes) -> pa.DataType | None:
    known = {data_type for data_type in arg_types if data_type != types.NULL}
    if len(known) == 1:
        return known.pop()
    if not known or None in known:
        return None if known else types.NULL
    typed = [_spark_type(arg, each) for arg, each in zip(args, arg_types, strict=True) if each != types.NULL]
    return _find_common_number_type(typed) if all(map(is_number, typed)) else None


def _spark_type(arg: Expr, data_type: pa.DataType) -> pa.DataType:
    """Return the type of a number in Spark, where a literal is an int unless it needs more bits."""
    is_int = isinstance(arg, Literal) and data_type == types.LONG and abs(arg.value) < 2**31
    return pa.int32() if is_int else data_type


def _find_common_number_type(numbers: Sequence[pa.DataType]) -> pa.DataType | None:
    """Return the type that holds numbers of several types: double for any float, decimal for any decimal, else None."""
    if any(map(pa.types.is_floating, numbers)):
        return types.DOUBLE
    if not any(map(pa.types.is_decimal, numbers)):
        return None
    digits = [decimal_digits(each) for each in numbers]
    scale = max(scale for _, scale in digits)
    precision = max(precision - its_scale for precision, its_scale in digits) + scale
    return pa.decimal128(precision, scale) if precision <= 38 else None


def _arithmetic_result(operator: str) -> Callable[[tuple[Expr, ...], ArgTypes], pa.DataType | None]:
    """Return the result type: bigint for integers, so that small types do not overflow, and double for any float."""

    def returns(args: tuple[Expr, ...], arg_types: ArgTypes) -> pa.DataType | None:
        left, right = arg_types[0], arg_types[-1]
        if left is None or right is None:
            return None
        if pa.types.is_null(left) or pa.types.is_null(right):
            return types.NULL
        if is_number(left) and is_number(right):
            return arithmetic_type(operator, left, right)
        return _time_arithmetic_type(operator, left, right)

    return returns


def _time_arithmetic_type(operator: str, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if operator not in ("+", "-"):
        return None
    if operator == "+" and pa.types.is_interval(left):
        left, right = right, left
    if pa.types.is_timestamp(left) and pa.types.is_interval(right):
        return left
    if pa.types.is_date(left):
        if pa.types.is_integer(right):
            return left
        if pa.types.is_interval(right):
            return left
    return None


def arithmetic_type(operator: str, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type of `left operator right` for two numbers, or None if no type holds every result."""
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        return types.DOUBLE
    if pa.types.is_integer(left) and pa.types.is_integer(right):
        if operator == "/":
            return types.DOUBLE
        if pa.types.is_uint64(left) or pa.types.is_uint64(right):
            return None
        return types.LONG
    if operator not in ("+", "-", "*"):
        return None
    p1, s1 = decimal_digits(left)
    p2, s2 = decimal_digits(right)
    if operator == "*":
        precision, scale = p1 + p2 + 1, s1 + s2
    else:
        scale = max(s1, s2)
        precision = max(p1 - s1, p2 - s2) + scale + 1
    return pa.decimal128(precision, scale) if precision <= 38 else None


# --- Monotonicity ---------------------------------------------------------------------------------------------------


def _monotone_sum(args: tuple[Expr, ...]) -> Monotone | None:
    match args:
        case (Literal(), Literal()):
            return None
        case (other, Literal() as constant) if _keeps_order_of(other, constant):
            return Monotone(0, keeps_order=True)
        case (Literal() as constant, other) if _keeps_order_of(other, constant):
            return Monotone(1, keeps_order=True)
        case _:
            return None


def _keeps_order_of(other: Expr, constant: Literal) -> bool:
    """Return whether adding the constant keeps the order of the other side.

    Months do not keep the order of timestamps: 30 January 23:00 and 31 January 01:00 plus a month are 29 February 23:00
    and 29 February 01:00. Dates become equal there, which keeps their order.
    """
    if isinstance(constant.value, tuple):
        other_type = type_of(other)
        return constant.value[0] == 0 or (other_type is not None and pa.types.is_date(other_type))
    return _is_finite(constant)


def _monotone_difference(args: tuple[Expr, ...]) -> Monotone | None:
    match args:
        case (Literal(), Literal()):
            return None
        case (other, Literal() as constant) if _keeps_order_of(other, constant):
            return Monotone(0, keeps_order=True)
        case (Literal() as constant, _) if _is_finite(constant):
            return Monotone(1, keeps_order=False)
        case _:
            return None


def _monotone_product(args: tuple[Expr, ...]) -> Monotone | None:
    for argument, constant in ((0, args[1]), (1, args[0])):
        # Zero times infinity is NaN, so a zero constant keeps no order.
        # A multiple of an interval has no order here.
        is_number = isinstance(constant, Literal) and not isinstance(constant.value, tuple)
        if isinstance(constant, Literal) and is_number and _is_finite(constant) and constant.value != 0:
            return Monotone(argument, keeps_order=constant.value > 0)
    return None


def _is_finite(literal: Literal) -> bool:
    value = literal.value
    return value is not None and not (isinstance(value, float) and (value != value or value in _INFINITIES))


_INFINITIES = (float("inf"), float("-inf"))


def _monotone_negation(args: tuple[Expr, ...]) -> Monotone | None:
    return Monotone(0, keeps_order=False)


def _monotone_first(args: tuple[Expr, ...]) -> Monotone | None:
    return Monotone(0, keeps_order=True)


def _monotone_date_trunc(args: tuple[Expr, ...]) -> Monotone | None:
    return Monotone(1, keeps_order=True)


def _monotone_substring(args: tuple[Expr, ...]) -> Monotone | None:
    """Return the monotonicity of `substring`: only a prefix of constant length keeps the order of texts."""
    match args:
        case (_, Literal(value=0 | 1), Literal(value=int() as length)) if length >= 0:
            return Monotone(0, keeps_order=True)
        case _:
            return None


def _monotone_cast(args: tuple[Expr, ...]) -> Monotone | None:
    source = type_of(args[0])
    target = _cast_type(args, ())
    if source is None or target is None or not cast_keeps_order(source, target):
        return None
    return Monotone(0, keeps_order=True)


def cast_keeps_order(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether `a <= b` implies `cast(a) <= cast(b)` (rounding allowed) for all values that can be cast."""
    if source == target:
        return True
    if is_number(source) and is_number(target):
        # Arrow may round twice when it converts a decimal to a float, so the order is not guaranteed.
        return not (pa.types.is_decimal(source) and pa.types.is_floating(target))
    if pa.types.is_temporal(source) and pa.types.is_temporal(target):
        both = (source, target)
        return all(pa.types.is_date(t) or pa.types.is_timestamp(t) for t in both)
    return is_text(source) and is_text(target)


# --- The table ------------------------------------------------------------------------------------------------------


def _comparison(name: str, nulls: Nulls = Nulls.PROPAGATES) -> Function:
    return Function(name, ("any", "any"), _make_constant_type(types.BOOLEAN), 2, 2, nulls)


def _boolean(name: str, fewest: int, most: int) -> Function:
    return Function(name, ("boolean",), _make_constant_type(types.BOOLEAN), fewest, most, Nulls.OWN)


def _null_test(name: str) -> Function:
    return Function(name, ("any",), _make_constant_type(types.BOOLEAN), 1, 1, Nulls.OWN)


def _text_test(name: str, most: int = 2) -> Function:
    return Function(name, ("text", "text"), _make_constant_type(types.BOOLEAN), 2, most)


def _calendar(name: str, monotone: bool = False) -> Function:
    return Function(
        name, ("time",), _make_constant_type(types.LONG), 1, 1, monotone=_monotone_first if monotone else None
    )


_ALL = (
    *(_comparison(name) for name in ("=", "<>", "<", "<=", ">", ">=")),
    _comparison("<=>", Nulls.OWN),
    _boolean("and", 2, UNBOUNDED),
    _boolean("or", 2, UNBOUNDED),
    Function("not", ("boolean",), _make_constant_type(types.BOOLEAN), 1, 1),
    _null_test("is_null"),
    _null_test("is_not_null"),
    Function("in", ("any", "any"), _make_constant_type(types.BOOLEAN), 2, UNBOUNDED, Nulls.OWN),
    _text_test("like", most=3),
    _text_test("startswith"),
    _text_test("endswith"),
    _text_test("contains"),
    Function("+", ("any", "any"), _arithmetic_result("+"), 2, 2, monotone=_monotone_sum),
    Function("-", ("any", "any"), _arithmetic_result("-"), 2, 2, monotone=_monotone_difference),
    Function("*", ("number", "number"), _arithmetic_result("*"), 2, 2, monotone=_monotone_product),
    Function("/", ("number", "number"), _arithmetic_result("/"), 2, 2, Nulls.OWN),
    Function("%", ("number", "number"), _arithmetic_result("%"), 2, 2, Nulls.OWN),
    Function("negate", ("number",), _arithmetic_result("-"), 1, 1, monotone=_monotone_negation),
    Function("abs", ("number",), _arithmetic_result("-"), 1, 1),
    Function("cast", ("any", "literal"), _cast_type, 2, 2, monotone=_monotone_cast),
    Function("try_cast", ("any", "literal"), _cast_type, 2, 2, Nulls.OWN),
    Function("case", ("any",), _case_type, 3, UNBOUNDED, Nulls.OWN),
    Function("coalesce", ("any",), _coalesce_type, 1, UNBOUNDED, Nulls.OWN),
    _calendar("year", monotone=True),
    _calendar("month"),
    _calendar("day"),
    _calendar("hour"),
    _calendar("minute"),
    Function("date_trunc", ("literal", "time"), lambda args, arg_types: _date_trunc_type(arg_types[1]), 2, 2,
             monotone=_monotone_date_trunc),
    Function("trunc", ("time", "literal"), _make_constant_type(types.DATE), 2, 2, monotone=_monotone_first),
    Function("substring", ("text", "number", "number"), _get_text_type, 2, 3, monotone=_monotone_substring),
    Function("upper", ("text",), _get_text_type, 1, 1),
    Function("lower", ("text",), _get_text_type, 1, 1),
    Function("length", ("text",), _make_constant_type(types.LONG), 1, 1),
    Function("element_at", ("map", "literal"), _map_value_type, 2, 2, Nulls.OWN),
    Function("partition_value", ("text", "literal"), _cast_type, 2, 2, Nulls.OWN),
)  # fmt: skip


def _date_trunc_type(argument: pa.DataType | None) -> pa.DataType | None:
    """Return the type of `date_trunc`: a timestamp, with the unit and time zone of a timestamp argument."""
    if argument is None or pa.types.is_timestamp(argument):
        return argument
    return types.TIMESTAMP if pa.types.is_date(argument) else None


NOT_DETERMINISTIC = frozenset({
    "gen_random_uuid", "monotonically_increasing_id", "rand", "randn", "random", "shuffle", "uniform", "uuid", "uuidv4",
    "uuidv7",
})  # fmt: skip
"""Functions that return another value for each call. The current time is not among them: it is fixed per query."""

FUNCTIONS: dict[str, Function] = {function.name: function for function in _ALL}

NEGATIONS = {
    "=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">",
    "is_null": "is_not_null", "is_not_null": "is_null",
}  # fmt: skip
"""`NOT (a < b)` is `a >= b`: exact for TRUE, FALSE and NULL, because NaN is part of the order."""

MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}
"""`5 < a` is `a > 5`."""

COMPARISONS = frozenset(MIRRORED)


def type_of(expr: Expr) -> pa.DataType | None:
    """Return the type of a bound expression, or None if a function is not supported."""
    if not isinstance(expr, Call):
        return expr.type
    if expr._type is None:
        fold(expr, _compute_type, lambda node: () if _is_typed(node) else get_operands(node))
    return expr._type[0] if expr._type is not None else None


def _is_typed(node: Expr) -> bool:
    return isinstance(node, Call) and node._type is not None


def _compute_type(node: Expr, arg_types: ArgTypes) -> pa.DataType | None:
    match node:
        case Column(type=data_type) | Literal(type=data_type):
            return data_type
        case Call(function, args):
            if node._type is None:
                known = FUNCTIONS.get(function)
                has_arity = known is not None and known.fewest <= len(args) <= known.most
                found = known.returns(args, arg_types) if known is not None and has_arity else None
                object.__setattr__(node, "_type", (found,))
            return node._type[0] if node._type is not None else None


def strip_widening_casts(value: Expr) -> Expr:
    """Return the value inside of casts to wider numbers: `CAST(i AS BIGINT)` compares with numbers as `i` does.

    Such a cast never fails, makes only NULL a NULL, and keeps values distinct and ordered. So `CAST(i AS BIGINT) < 5`
    is TRUE, FALSE and NULL for the same rows as `i < 5`, and the metadata of the column `i` (bounds, Bloom filter,
    partition values) can decide it.
    """
    while True:
        match value:
            case Call("cast" | "try_cast", (inner, Literal(value=str() as name))):
                source, target = type_of(inner), type_from_name(name)
                if source is None or not (is_number(source) and is_number(target) and can_hold_numbers(target, source)):
                    return value
                value = inner
            case _:
                return value


def find_monotone_argument(call: Call) -> Monotone | None:
    """Return the argument in which a call is monotone, or None.

    >>> from tamis.expr.nodes import Column, Literal, Call
    >>> from tamis import types
    >>> find_monotone_argument(Call("-", (Literal(10, types.LONG), Column(("a",), type=types.LONG))))
    Monotone(argument=1, keeps_order=False)
    """
    known = FUNCTIONS.get(call.function)
    return known.monotone(call.args) if known is not None and known.monotone is not None else None
