"""Binding: names become columns of a schema, operands get a common type, literals are coerced exactly.

`tamis.expr.names` resolves names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from tamis import types
from tamis.errors import ExpressionError, TypeMismatch, format_position
from tamis.expr.datetime_text import parse_time
from tamis.expr.foreign import bind_foreign_call, get_foreign_operands, is_marked, remove_mark
from tamis.expr.functions.table import FUNCTIONS, is_comparison, mirror, strip_widening_casts, type_of
from tamis.expr.literals import cast_literal, parse_number, parse_special_float, parse_timestamp
from tamis.expr.names import refuse_quoted_names, resolve
from tamis.expr.nodes import (
    FALSE,
    IMPLICIT,
    NULL,
    TRUE,
    AnyExpr,
    Call,
    Column,
    Expr,
    Literal,
    Name,
    Spelling,
    and_,
    find_columns,
    fold,
    or_,
    replace_args,
    walk,
)
from tamis.expr.sql.printer import to_display_sql, to_sql
from tamis.types import (
    UNITS_PER_SECOND,
    find_common_number_type,
    get_integer_range,
    is_bytes,
    is_number,
    is_ordered,
    is_text,
    type_name,
    type_name_with_article,
)


def bind(
    expr: AnyExpr,
    schema: pa.Schema,
    table: str = "the table",
    where: str = "where",
    *,
    typed: Collection[str] | None = None,
    get_text: Callable[[str], Expr] | None = None,
) -> Expr:
    """Resolve the names of an expression against a schema and give its operands exact common types.

    The columns of a bound expression count as their names.
    With `typed`, only these columns get a type: the types in the schema of the other columns are not relied on.
    `get_text` returns the text of a partition value, `partition_text('name')`; None where there are no partitions.
    """

    def check_quoted(literal: Any) -> Literal:
        refuse_quoted_names(literal.quoted, schema.names, where)
        return Literal(literal.value, literal.type)

    def combine(node: AnyExpr, args: tuple[Expr, ...]) -> Expr:
        match node:
            case Name() | Column():
                column = resolve(node, schema, table, where, context=expr)
                is_typed = typed is None or column.path[0] in typed
                return column if is_typed else replace(column, type=None)
            case Literal():
                return check_quoted(node) if node.quoted else node
            case Call() if is_marked(node):
                return bind_foreign_call(node, args, _bind_call)
            case Call():
                own = tuple(map(remove_mark, args))
                items = node.args[len(own) :]
                if any(isinstance(item, Literal) and item.quoted for item in items):
                    node = Call(node.function, (*own, *map(check_quoted, items)), node.position)
                bound = replace_args(node, own)
                if bound.function == "partition_text":
                    return _bind_partition_text(bound, get_text, table)
                if bound.function == ARROW_CAST:
                    bound = _bind_arrow_cast(bound)
                return _bind_call(bound)

    return remove_mark(fold(expr, combine, get_foreign_operands))


def _bind_partition_text(call: Call, get_text: Callable[[str], Expr] | None, table: str) -> Expr:
    match call.args:
        case (Literal(value=str() as name),) if name:
            pass
        case _:
            raise ExpressionError(
                f"{to_display_sql(call)} needs the name of a partition column as a text, as in partition_text('year')"
                f"{format_expression_position(call)}"
            )
    if get_text is None:
        raise ExpressionError(f"{to_display_sql(call)} reads a partition value, and {table} has no partitions here")
    return get_text(name)


ARROW_CAST = "arrow_cast"
"""A cast of pyarrow, which is bound to a cast of SQL if the type of its argument is one that both cast alike."""


def _bind_arrow_cast(call: Call) -> Call:
    value, target = call.args
    assert isinstance(target, Literal)
    source, wanted = type_of(value), types.type_from_name(target.value)
    if source is not None and _differs_in_arrow(source, wanted):
        shown = type_name_with_article(source)
        raise ExpressionError(
            f"pyarrow's cast of {to_display_sql(value)}, {shown}, to {type_name(wanted)} has another result than SQL's "
            f"CAST: compare {to_display_sql(value)} with {shown}, or write the filter as SQL text"
        )
    return Call("cast", call.args)


def _differs_in_arrow(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether pyarrow casts to other values: it counts ticks of a timestamp's unit, and SQL counts seconds."""
    if pa.types.is_temporal(source) != pa.types.is_temporal(target):
        return not is_text(source) and not (pa.types.is_date(source) and is_text(target))
    # 1e10 is '1.0E10' in SQL.
    return pa.types.is_floating(source) and is_text(target)


# --- Types ----------------------------------------------------------------------------------------------------------


def _bind_call(call: Call) -> Expr:
    if is_comparison(call):
        return _bind_comparison(call.function, call.args[0], call.args[1], call)
    known = FUNCTIONS.get(call.function)
    match call.function, call.args:
        case "in", (value, *items):
            return _bind_in(value, tuple(items), call)
        case (("and" | "or" | "not"), args):
            return _bind_logic(call, args)
        case _, (value, *_) if known is not None and known.pattern is not None:
            return _bind_text_test(call, value)
        case "isnan", (value,):
            return _bind_isnan(call, value)
        case _:
            return call


def _bind_isnan(call: Call, value: Expr) -> Expr:
    """Rewrite `isnan(x)` to `x <=> NaN`: TRUE for NaN and FALSE for everything else, NULL included."""
    data_type = type_of(value)
    if data_type is None or not is_number(data_type):
        return call
    if not pa.types.is_floating(data_type):
        return FALSE
    return Call("<=>", (value, Literal(float("nan"), data_type)), spelling=Spelling("isnan", (0,)))


def _bind_logic(call: Call, args: tuple[Expr, ...]) -> Expr:
    for arg in args:
        data_type = type_of(arg)
        if data_type is not None and not pa.types.is_boolean(data_type) and not pa.types.is_null(data_type):
            raise TypeMismatch(
                f"{call.function.upper()} takes predicates, but {to_display_sql(arg)} is "
                f"{type_name_with_article(data_type)}{format_expression_position(arg)}. "
                f"Compare it with something, as in {to_display_sql(arg)} = …"
            )
    return call


def _bind_text_test(call: Call, value: Expr) -> Expr:
    data_type = type_of(value)
    if data_type is None or is_text(data_type) or not (is_ordered(data_type) or pa.types.is_nested(data_type)):
        return call
    if is_bytes(data_type) and call.function != "like":
        return call
    name = "LIKE" if call.function == "like" else call.function
    is_nested = pa.types.is_nested(data_type)
    cast = f"Cast it, as in CAST({to_display_sql(value)} AS STRING)"
    advice = _suggest_nested_access(value, data_type, call) if is_nested else cast
    raise TypeMismatch(
        f"{name} takes a text, but {to_display_sql(value)} is "
        f"{type_name_with_article(data_type)}{format_expression_position(call)}. {advice}"
    )


def _bind_comparison(function: str, left: Expr, right: Expr, call: Call) -> Expr:
    if isinstance(left, Literal) and not isinstance(right, Literal):
        return _bind_comparison(mirror(Call(function, (left, right))).function, right, left, call)
    left_type, right_type = type_of(left), type_of(right)
    for nested, other in ((left, right_type), (right, left_type)):
        _refuse_nested(nested, other, call)
    if left_type is None or right_type is None or pa.types.is_null(left_type) or pa.types.is_null(right_type):
        return Call(function, (left, right))
    if isinstance(right, Literal) and not right.is_null:
        if is_number(left_type) and is_number(right_type):
            left = strip_widening_casts(left)
            left_type = type_of(left) or left_type
        if is_text(left_type) and is_number(right_type):
            return _bind_comparison(function, _cast_text_to_number(left, right_type), right, call)
        if is_ordered(left_type):
            neighbours = find_neighbours(right, left_type)
            if neighbours is None:
                raise _make_mismatch_error(call, left_type, right_type, right)
            return compare_with_neighbours(function, left, neighbours, left_type)
    if left_type == right_type:
        return Call(function, (left, right))
    common = find_common_type(left_type, right_type)
    if common is None:
        if is_ordered(left_type) and is_ordered(right_type):
            raise _make_mismatch_error(call, left_type, right_type, right)
        return Call(function, (left, right))
    return Call(function, (_cast_to(left, left_type, common), _cast_to(right, right_type, common)))


def _refuse_nested(value: Expr, other: pa.DataType | None, call: Call) -> None:
    """Raise where a struct, a list or a map is compared with a scalar value."""
    data_type = type_of(value)
    if data_type is None or other is None or not pa.types.is_nested(data_type) or not is_ordered(other):
        return
    raise TypeMismatch(
        f"cannot compare {type_name_with_article(data_type)} with {type_name_with_article(other)} in "
        f"{to_display_sql(call)}{format_expression_position(call)}. "
        f"{_suggest_nested_access(value, data_type, call)}"
    )


def _suggest_nested_access(value: Expr, data_type: pa.DataType, call: Call) -> str:
    constant = next((to_display_sql(arg) for arg in call.args if isinstance(arg, Literal)), "…")
    if pa.types.is_struct(data_type) and data_type.num_fields:
        return f"Name one of its fields, as in {to_display_sql(value)}.{data_type.field(0).name}"
    if pa.types.is_map(data_type):
        return f"Compare the value of a key, as in element_at({to_display_sql(value)}, 'key')"
    return f"Test its elements, as in array_contains({to_display_sql(value)}, {constant})"


_EXAMPLES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_date, "DATE '2024-01-31'"),
    (pa.types.is_timestamp, "TIMESTAMP '2024-01-31 10:30:00'"),
    (pa.types.is_time, "TIME '10:30:00'"),
    (pa.types.is_boolean, "TRUE or FALSE"),
)


def _make_mismatch_error(call: Call, left: pa.DataType, right: pa.DataType, value: Expr) -> TypeMismatch:
    example = next((text for is_kind, text in _EXAMPLES if is_kind(left)), None)
    if isinstance(value, Literal) and is_text(right):
        error = TypeMismatch(
            f"cannot compare in {to_display_sql(call)}{format_expression_position(call)}: {to_display_sql(value)} is "
            f"not a valid {type_name(left)}. "
            + (f"Write a value such as {example}" if example else "Correct the value, or cast one side")
        )
        # Spark compares a decimal with a text as doubles.
        compared = types.DOUBLE if pa.types.is_decimal(left) else left
        error.failing_cast = f"CAST({to_sql(value)} AS {type_name(compared)})"
        return error
    # A date without quotes is a subtraction: a constant, but not a literal.
    is_constant = not find_columns(value) and example is not None
    return TypeMismatch(
        f"cannot compare {type_name(left)} with {type_name(right)} in "
        f"{to_display_sql(call)}{format_expression_position(call)}. "
        + (f"Compare it with {example}" if is_constant else "Cast one side, as in CAST(… AS …)")
    )


def format_expression_position(expr: AnyExpr) -> str:
    """Return the position of an expression in the SQL text, for a message; empty if it was not parsed from text.

    It is the position of its first column or unsupported function.
    """
    positions = (node.position for node in walk(expr) if not isinstance(node, Literal) and node.position is not None)
    first = next(positions, None)
    return "" if first is None else f" (at: where, {format_position(first)})"


def _cast_text_to_number(text: Expr, number_type: pa.DataType) -> Expr:
    """Cast a text that is compared with a number: text that is not a number becomes NULL."""
    target = "bigint" if pa.types.is_integer(number_type) else "double"
    return Call("try_cast", (text, Literal(target, types.STRING)), spelling=IMPLICIT)


def compare_with_neighbours(function: str, value: Expr, neighbours: Neighbours, data_type: pa.DataType) -> Expr:
    """Return `value function literal`, given the neighbours of the literal among the values of the type."""
    if neighbours.is_exact:
        return Call(function, (value, Literal(neighbours.below, data_type)))
    if neighbours.is_range:
        first, last = Literal(neighbours.above, data_type), Literal(neighbours.below, data_type)
        return _compare_range(function, value, first, last)
    match function:
        case "=":
            return _make_false_or_null(value)
        case "<>":
            return _make_true_or_null(value)
        case "<=>":
            return FALSE
        case "<" | "<=":
            if neighbours.below is None:
                return _make_false_or_null(value)
            # NaN is above every number: it is not below the literal, even if no number is above the literal.
            if neighbours.above is None and not pa.types.is_floating(data_type):
                return _make_true_or_null(value)
            return Call("<=", (value, Literal(neighbours.below, data_type)))
        case _:
            if neighbours.above is None:
                return _make_false_or_null(value)
            if neighbours.below is None:
                return _make_true_or_null(value)
            return Call(">=", (value, Literal(neighbours.above, data_type)))


def _compare_range(function: str, value: Expr, first: Literal, last: Literal) -> Expr:
    """Return `value function literal`, where the literal equals all values from the first to the last."""
    match function:
        case "=":
            return and_(Call(">=", (value, first)), Call("<=", (value, last)))
        case "<>":
            return or_(Call("<", (value, first)), Call(">", (value, last)))
        case "<=>":
            return Call("<=>", (and_(Call(">=", (value, first)), Call("<=", (value, last))), TRUE))
        case "<" | ">=":
            return Call(function, (value, first))
        case _:
            return Call(function, (value, last))


def _make_false_or_null(value: Expr) -> Expr:
    return and_(Call("is_null", (value,)), NULL)


def _make_true_or_null(value: Expr) -> Expr:
    return or_(Call("is_not_null", (value,)), NULL)


def _bind_in(value: Expr, items: tuple[Expr, ...], call: Call) -> Expr:
    """Bind IN: drop the literals that are not values of the type, and keep a NULL among the items."""
    if not items:
        return FALSE
    if not all(isinstance(item, Literal) for item in items):
        return or_(*(_bind_comparison("=", value, item, Call("=", (value, item))) for item in items))
    value_type = type_of(value)
    if value_type is not None and pa.types.is_nested(value_type):
        for item in items:
            _refuse_nested(value, type_of(item), call)
    if value_type is None or not is_ordered(value_type):
        return call
    literals = [item for item in items if isinstance(item, Literal) and not item.is_null]
    if is_text(value_type) and literals and all(is_number(item.type) for item in literals):
        are_integers = all(pa.types.is_integer(item.type) for item in literals)
        return _bind_in(_cast_text_to_number(value, types.LONG if are_integers else types.DOUBLE), items, call)
    if is_number(value_type) and all(is_number(item.type) for item in literals):
        value = strip_widening_casts(value)
        value_type = type_of(value) or value_type
        if any(pa.types.is_floating(item.type) for item in literals):
            # One double among the items turns all of them into doubles.
            literals = [cast_literal(item, types.DOUBLE) or item for item in literals]
    kept: list[Expr] = []
    ranges: list[Expr] = []
    for item in literals:
        neighbours = find_neighbours(item, value_type)
        if neighbours is None:
            raise _make_mismatch_error(Call("in", (value, item)), value_type, item.type, item)
        if neighbours.is_exact:
            kept.append(Literal(neighbours.below, value_type))
        elif neighbours.is_range:
            ranges.append(compare_with_neighbours("=", value, neighbours, value_type))
    if len(literals) < len(items):
        kept.append(Literal(None, value_type))
    in_list = Call("in", (value, *kept)) if kept else _make_false_or_null(value)
    return or_(in_list, *ranges) if ranges else in_list


def find_common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type in which two types compare without loss of order, or None."""
    if left == right:
        return left
    if is_number(left) and is_number(right):
        return find_common_number_type((left, right))
    if pa.types.is_date(left) and pa.types.is_date(right):
        return types.DATE
    if all(pa.types.is_date(each) or pa.types.is_timestamp(each) for each in (left, right)):
        units = [each.unit for each in (left, right) if pa.types.is_timestamp(each)]
        return pa.timestamp(max(units, key=types.UNITS_PER_SECOND.__getitem__))
    if pa.types.is_time(left) and pa.types.is_time(right):
        return max(left, right, key=lambda each: types.UNITS_PER_SECOND[each.unit])
    for text, other in ((left, right), (right, left)):
        if is_text(text) and not is_bytes(other):
            return types.STRING if is_text(other) else _find_common_type_with_text(other)
    return types.BINARY if is_bytes(left) and is_bytes(right) else None


def _find_common_type_with_text(other: pa.DataType) -> pa.DataType | None:
    if is_number(other):
        return types.LONG if pa.types.is_integer(other) else types.DOUBLE
    if pa.types.is_date(other):
        return types.DATE
    return pa.timestamp("us") if pa.types.is_timestamp(other) else None


def _cast_to(expr: Expr, source: pa.DataType, target: pa.DataType) -> Expr:
    if source == target:
        return expr
    function = "try_cast" if is_text(source) and not is_text(target) else "cast"
    return Call(function, (expr, Literal(type_name(target), types.STRING)), spelling=IMPLICIT)


# --- Exact coercion of literals to the type of the column they are compared with --------------------------------------
#
# A literal may not exist in the column's type: no integer is 5.5, no tinyint is 300, no date is noon. Then it is
# *between* two neighbours of that type, or beyond its last value, and every comparison still has an exact meaning:
#
#     c =  5.5   never TRUE            c <  5.5   c <= 5           c <  300 (tinyint)   TRUE unless NULL
#     c <> 5.5   TRUE unless NULL      c >  5.5   c >= 6           c >  300 (tinyint)   never TRUE
#
# Binary floats are the exception, because users write `x = 0.1` and mean the nearest double: numbers are rounded to
# the nearest double first, as in Spark and DuckDB. The neighbours of a 32-bit float are those of that double.
#
# Conversely, a decimal or an integer is compared with a double as the double that is nearest to it. So `price = 0.1D`
# is TRUE for the decimal 0.10, which no double equals, and a double beyond 2^53 equals *several* bigints.

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NANOSECONDS_PER_DAY = 86_400 * 10**9


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The neighbours of a literal among the values of a type.

    `below` is the largest value that is not greater than the literal, `above` the smallest that is not less. They are
    the same value if the literal is a value of the type, and the last and the first if it equals several values. None
    means that the type has no value on that side.
    """

    below: Any
    above: Any

    @property
    def is_exact(self) -> bool:
        return self.below is not None and (self.below == self.above or self.below != self.below)

    @property
    def is_range(self) -> bool:
        """Return whether the literal equals several values, from `above` to `below`."""
        return self.below is not None and self.above is not None and bool(self.above < self.below)


def find_neighbours(literal: Literal, target: pa.DataType) -> Neighbours | None:
    """Return the neighbours of a non-NULL literal among the values of a type; None if the two cannot be compared."""
    value, source = literal.value, literal.type
    if pa.types.is_dictionary(target):
        return find_neighbours(literal, target.value_type)
    if is_number(target):
        number = _to_number(value, source)
        if number is None:
            return None
        is_double = pa.types.is_floating(source) or (is_text(source) and pa.types.is_decimal(target))
        return _find_neighbours_of_double(number, target) if is_double else _find_neighbours_of_number(number, target)
    if pa.types.is_date(target) or pa.types.is_timestamp(target):
        nanoseconds = _to_nanoseconds(value, source)
        return None if nanoseconds is None else _find_neighbours_of_time(nanoseconds, target)
    if pa.types.is_time(target):
        nanoseconds = _to_nanoseconds_of_day(value, source)
        return None if nanoseconds is None else _find_neighbours_of_time(nanoseconds, target)
    if pa.types.is_boolean(target):
        return _find_neighbours_of_boolean(value)
    if is_text(target):
        return _make_exact(value) if isinstance(value, str) else None
    if is_bytes(target):
        return _make_exact(_to_bytes(value, target)) if isinstance(value, str | bytes) else None
    return _make_exact(value) if source == target else None


def _to_bytes(value: str | bytes, target: pa.DataType) -> bytes:
    """Return the bytes of a text, or of a UUID.

    A text in UUID format is a UUID if the type has 16 bytes: as a text it has 36, and so equals no value of the type.
    """
    if isinstance(value, bytes):
        return value
    is_uuid = pa.types.is_fixed_size_binary(target) and target.byte_width == 16 and _UUID.fullmatch(value)
    return UUID(value).bytes if is_uuid else value.encode()


def _make_exact(value: Any) -> Neighbours:
    return Neighbours(value, value)


def _find_neighbours_of_boolean(value: Any) -> Neighbours | None:
    if isinstance(value, bool):
        return _make_exact(value)
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return _make_exact(value.strip().lower() == "true")
    return None


def _to_number(value: Any, source: pa.DataType) -> int | float | Fraction | None:
    """Return a literal as an exact number; only infinities and NaN stay floats."""
    if isinstance(value, bool) or not (is_number(source) or is_text(source)):
        return None
    if isinstance(value, str):
        special = parse_special_float(value)
        if special is not None:
            return special
        value = parse_number(value)
        if value is None:
            return None
        if abs(value.adjusted()) > 400:
            # Out of the range of every number type. The exact fraction would have as many digits as the exponent says.
            return math.copysign(math.inf, value) if value.adjusted() > 0 and value else 0
    if isinstance(value, float) and not math.isfinite(value):
        return value
    return value if isinstance(value, int) else Fraction(value)


def _find_neighbours_of_number(number: int | float | Fraction, target: pa.DataType) -> Neighbours:
    if pa.types.is_floating(target):
        return _find_neighbours_of_float(number, target)
    if number != number:
        number = math.inf  # NaN is larger than every number
    if pa.types.is_decimal(target):
        largest = 10**target.precision - 1
        found = _find_neighbours_of_integer(number * 10**target.scale, -largest, largest)
        return Neighbours(*(_to_decimal(unscaled, target.scale) for unscaled in (found.below, found.above)))
    return _find_neighbours_of_integer(number, *get_integer_range(target))


def _find_neighbours_of_double(number: int | float | Fraction, target: pa.DataType) -> Neighbours:
    """Return the neighbours of a double among numbers, which are compared as their nearest doubles."""
    if pa.types.is_floating(target) or isinstance(number, float):
        return _find_neighbours_of_number(number, target)  # which handles infinities and NaN
    try:
        nearest = float(number)
    except OverflowError:
        return _find_neighbours_of_number(number, target)
    is_decimal = pa.types.is_decimal(target)
    scale = target.scale if is_decimal else 0
    largest = 10**target.precision - 1 if is_decimal else get_integer_range(target)[1]
    smallest = -largest if is_decimal else get_integer_range(target)[0]
    last, first = _find_last_not_greater(nearest, scale), -_find_last_not_greater(-nearest, scale)
    below = None if last < smallest else min(last, largest)
    above = None if first > largest else max(first, smallest)
    if is_decimal:
        return Neighbours(*(_to_decimal(unscaled, scale) for unscaled in (below, above)))
    return Neighbours(below, above)


def _find_last_not_greater(double: float, scale: int) -> int:
    """Return the largest unscaled value with `scale` digits whose nearest double is not greater than a double."""
    # Rounding keeps order, and a value halfway between two doubles is rounded to the even one.
    following = math.nextafter(double, math.inf)
    halfway = Fraction(double) if math.isinf(following) else (Fraction(double) + Fraction(following)) / 2
    last: int = math.floor(halfway * 10**scale)
    return last if Fraction(last, 10**scale) < halfway or float(halfway) <= double else last - 1


def _to_decimal(unscaled: int | None, scale: int) -> Decimal | None:
    # Arithmetic would round to the precision of the decimal context, so the value is built from its digits.
    return None if unscaled is None else Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _find_neighbours_of_integer(number: int | float | Fraction, smallest: int, largest: int) -> Neighbours:
    if number > largest:
        return Neighbours(largest, None)
    if number < smallest:
        return Neighbours(None, smallest)
    below, above = math.floor(number), math.ceil(number)
    return Neighbours(below, above)


def _find_neighbours_of_float(number: int | float | Fraction, target: pa.DataType) -> Neighbours:
    try:
        nearest = float(number)
    except OverflowError:
        nearest = math.inf if number > 0 else -math.inf
    if pa.types.is_float64(target) or not math.isfinite(nearest):
        return _make_exact(nearest)
    # The largest 32-bit float and infinity are neighbours, and numpy warns on the step between them.
    with np.errstate(over="ignore"):
        single = np.float32(nearest)
        if float(single) == nearest:
            return _make_exact(nearest)
        if float(single) < nearest:
            return Neighbours(float(single), float(np.nextafter(single, np.float32(np.inf))))
        return Neighbours(float(np.nextafter(single, np.float32(-np.inf))), float(single))


def _to_nanoseconds(value: Any, source: pa.DataType) -> int | None:
    """Return a date, a timestamp or a text as nanoseconds since the epoch; without a time zone it is in UTC."""
    if is_text(source):
        parsed = parse_timestamp(value)
        return None if parsed is None else parsed[0]
    if pa.types.is_date(source):
        return int(value) * _NANOSECONDS_PER_DAY
    if pa.types.is_timestamp(source):
        return int(value) * (10**9 // UNITS_PER_SECOND[source.unit])
    return None


def _to_nanoseconds_of_day(value: Any, source: pa.DataType) -> int | None:
    if is_text(source):
        return parse_time(value)
    return int(value) * (10**9 // UNITS_PER_SECOND[source.unit]) if pa.types.is_time(source) else None


def _find_neighbours_of_time(nanoseconds: int, target: pa.DataType) -> Neighbours:
    step = _NANOSECONDS_PER_DAY if pa.types.is_date(target) else 10**9 // UNITS_PER_SECOND[target.unit]
    limits = get_integer_range(pa.int32() if pa.types.is_date(target) or pa.types.is_time32(target) else types.LONG)
    return _find_neighbours_of_integer(Fraction(nanoseconds, step), *limits)
