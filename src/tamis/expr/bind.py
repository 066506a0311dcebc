"""Binding: names become columns of a schema, operands get one type, literals are coerced exactly.

`tamis.expr.names` says what a name means.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import pyarrow as pa

from tamis import types
from tamis.errors import ExpressionError, TypeMismatch, place_in_text
from tamis.expr.coerce import Placed, place
from tamis.expr.functions import COMPARISONS, MIRRORED, type_of, without_widening
from tamis.expr.literals import cast_literal
from tamis.expr.names import resolve
from tamis.expr.nodes import (
    FALSE,
    NULL,
    TRUE,
    Call,
    Column,
    Expr,
    Literal,
    and_,
    columns_of,
    fold,
    or_,
    walk,
    with_args,
)
from tamis.expr.printer import shown
from tamis.types import a_type, decimal_digits, is_bytes, is_number, is_ordered, is_text, type_name


def bind(
    expr: Expr,
    schema: pa.Schema,
    table: str = "the table",
    where: str = "where",
    *,
    typed: Collection[str] | None = None,
) -> Expr:
    """Resolve the names of an expression against a schema and give its operands exact common types.

    With `typed`, only the types of these columns are relied on: nothing is concluded from those of the others.
    """

    def combine(node: Expr, args: tuple[Expr, ...]) -> Expr:
        match node:
            case Column():
                column = resolve(node, schema, table, where, context=expr)
                is_typed = typed is None or column.path[0] in typed
                return column if is_typed else Column(column.path, column.position, exact=column.exact)
            case Literal():
                return node
            case Call():
                bound = with_args(node, args)
                assert isinstance(bound, Call)
                _refuse_quoted_name(bound, schema)
                return _bind_call(bound)

    return fold(expr, combine)


# --- Types ----------------------------------------------------------------------------------------------------------


def _bind_call(call: Call) -> Expr:
    if call.function in COMPARISONS:
        return _bind_comparison(call.function, call.args[0], call.args[1], call)
    match call.function, call.args:
        case "in", (value, *items):
            return _bind_in(value, tuple(items), call)
        case (("and" | "or" | "not"), args):
            return _bind_logic(call, args)
        case (("like" | "startswith" | "endswith" | "contains"), (value, *_)):
            return _bind_text_test(call, value)
        case "isnan", (value,):
            return _bind_isnan(call, value)
        case _:
            return call


def _bind_isnan(call: Call, value: Expr) -> Expr:
    """`isnan(x)` is TRUE for NaN and FALSE for everything else, NULL included, as `x <=> NaN` is."""
    data_type = type_of(value)
    if data_type is None or not is_number(data_type):
        return call
    if not pa.types.is_floating(data_type):
        return FALSE
    return Call("<=>", (value, Literal(float("nan"), data_type)))


_ABOUT_VALUES = COMPARISONS | {"in", "like", "startswith", "endswith", "contains", "is_null", "is_not_null"}


def _refuse_quoted_name(call: Call, schema: pa.Schema) -> None:
    """Raise for `"region" = 'eu'`, which compares two texts: nobody means that where there is such a column."""
    if call.function not in _ABOUT_VALUES or not all(isinstance(arg, Literal) for arg in call.args):
        return
    texts = {arg.value.casefold() for arg in call.args[:2] if isinstance(arg, Literal) and isinstance(arg.value, str)}
    for field in schema:
        if field.name.casefold() in texts:
            raise ExpressionError(
                f"{shown(call)} is about the text {field.name!r}, not about the column of that name: in Spark's SQL "
                f"double quotes make a text. Write the name as `{field.name}`, and in Python as col({field.name!r})"
            )


def _bind_logic(call: Call, args: tuple[Expr, ...]) -> Expr:
    for arg in args:
        data_type = type_of(arg)
        if data_type is not None and not pa.types.is_boolean(data_type) and not pa.types.is_null(data_type):
            raise TypeMismatch(
                f"{call.function.upper()} takes predicates, but {shown(arg)} is {a_type(data_type)}{place_of(arg)}. "
                f"Compare it with something, as in {shown(arg)} = …"
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
    way_out = _way_inside(value, data_type, call) if is_nested else f"Cast it, as in CAST({shown(value)} AS STRING)"
    raise TypeMismatch(f"{name} takes a text, but {shown(value)} is {a_type(data_type)}{place_of(call)}. {way_out}")


def _bind_comparison(function: str, left: Expr, right: Expr, call: Call) -> Expr:
    if isinstance(left, Literal) and not isinstance(right, Literal):
        return _bind_comparison(MIRRORED[function], right, left, call)
    left_type, right_type = type_of(left), type_of(right)
    for nested, other in ((left, right_type), (right, left_type)):
        _refuse_nested(nested, other, call)
    if left_type is None or right_type is None or pa.types.is_null(left_type) or pa.types.is_null(right_type):
        return Call(function, (left, right))
    if isinstance(right, Literal) and not right.is_null:
        if is_number(left_type) and is_number(right_type):
            left = without_widening(left)
            left_type = type_of(left) or left_type
        if is_text(left_type) and is_number(right_type):
            return _bind_comparison(function, _number_in(left, right_type), right, call)
        if is_ordered(left_type):
            placed = place(right, left_type)
            if placed is None:
                raise _mismatch(call, left_type, right_type, right)
            return compare_placed(function, left, placed, left_type)
    if left_type == right_type:
        return Call(function, (left, right))
    common = common_type(left_type, right_type)
    if common is None:
        if is_ordered(left_type) and is_ordered(right_type):
            raise _mismatch(call, left_type, right_type, right)
        return Call(function, (left, right))
    return Call(function, (_as_type(left, left_type, common), _as_type(right, right_type, common)))


def _refuse_nested(value: Expr, other: pa.DataType | None, call: Call) -> None:
    """Raise where a struct, a list or a map is compared with a value that is none."""
    data_type = type_of(value)
    if data_type is None or other is None or not pa.types.is_nested(data_type) or not is_ordered(other):
        return
    raise TypeMismatch(
        f"cannot compare {a_type(data_type)} with {a_type(other)} in {shown(call)}{place_of(call)}. "
        f"{_way_inside(value, data_type, call)}"
    )


def _way_inside(value: Expr, data_type: pa.DataType, call: Call) -> str:
    constant = next((shown(arg) for arg in call.args if isinstance(arg, Literal)), "…")
    if pa.types.is_struct(data_type) and data_type.num_fields:
        return f"Name one of its fields, as in {shown(value)}.{data_type.field(0).name}"
    if pa.types.is_map(data_type):
        return f"Ask for the value of a key, as in element_at({shown(value)}, 'key')"
    return f"Ask for its elements, as in array_contains({shown(value)}, {constant})"


_EXAMPLES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_date, "DATE '2024-01-31'"),
    (pa.types.is_timestamp, "TIMESTAMP '2024-01-31 10:30:00'"),
    (pa.types.is_time, "TIME '10:30:00'"),
    (pa.types.is_boolean, "TRUE or FALSE"),
)


def _mismatch(call: Call, left: pa.DataType, right: pa.DataType, value: Expr) -> TypeMismatch:
    example = next((text for is_kind, text in _EXAMPLES if is_kind(left)), None)
    if isinstance(value, Literal) and is_text(right):
        return TypeMismatch(
            f"cannot compare in {shown(call)}{place_of(call)}: {shown(value)} is no {type_name(left)}. "
            + (f"Write a value such as {example}" if example else "Correct the value, or cast one side")
        )
    # Without quotes a date is a subtraction.
    is_constant = not columns_of(value) and example is not None
    return TypeMismatch(
        f"cannot compare {type_name(left)} with {type_name(right)} in {shown(call)}{place_of(call)}. "
        + (f"Compare it with {example}" if is_constant else "Cast one side, as in CAST(… AS …)")
    )


def place_of(expr: Expr) -> str:
    """Where an expression stood in the text, if it came from one: its first column, or a function of which nothing is
    known but the place."""
    positions = (node.position for node in walk(expr) if not isinstance(node, Literal) and node.position is not None)
    first = next(positions, None)
    return "" if first is None else f" (at: where, {place_in_text(first)})"


def _number_in(text: Expr, number_type: pa.DataType) -> Expr:
    """Text that is compared with a number is read as one; text that is no number is NULL."""
    target = "bigint" if pa.types.is_integer(number_type) else "double"
    return Call("try_cast", (text, Literal(target, types.STRING)))


def compare_placed(function: str, value: Expr, placed: Placed, data_type: pa.DataType) -> Expr:
    """`value function literal`, where the literal was placed among the values of the value's type."""
    if placed.is_exact:
        return Call(function, (value, Literal(placed.below, data_type)))
    if placed.is_range:
        return _compare_range(function, value, Literal(placed.above, data_type), Literal(placed.below, data_type))
    match function:
        case "=":
            return _never(value)
        case "<>":
            return _unless_null(value)
        case "<=>":
            return FALSE
        case "<" | "<=":
            if placed.below is None:
                return _never(value)
            # Floats have values above every number: NaN is not below the literal even if no number is above it.
            if placed.above is None and not pa.types.is_floating(data_type):
                return _unless_null(value)
            return Call("<=", (value, Literal(placed.below, data_type)))
        case _:
            if placed.above is None:
                return _never(value)
            if placed.below is None:
                return _unless_null(value)
            return Call(">=", (value, Literal(placed.above, data_type)))


def _compare_range(function: str, value: Expr, first: Literal, last: Literal) -> Expr:
    """`value function literal`, where the literal equals all values from the first to the last."""
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


def _never(value: Expr) -> Expr:
    """FALSE, and NULL where the value is NULL."""
    return and_(Call("is_null", (value,)), NULL)


def _unless_null(value: Expr) -> Expr:
    """TRUE, and NULL where the value is NULL."""
    return or_(Call("is_not_null", (value,)), NULL)


def _bind_in(value: Expr, items: tuple[Expr, ...], call: Call) -> Expr:
    """Literals that the type does not have are never found; a NULL among the items stays."""
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
        whole = all(pa.types.is_integer(item.type) for item in literals)
        return _bind_in(_number_in(value, types.LONG if whole else types.DOUBLE), items, call)
    if is_number(value_type) and all(is_number(item.type) for item in literals):
        value = without_widening(value)
        value_type = type_of(value) or value_type
        if any(pa.types.is_floating(item.type) for item in literals):
            # One double makes doubles of all.
            literals = [cast_literal(item, types.DOUBLE) or item for item in literals]
    kept: list[Expr] = []
    ranges: list[Expr] = []
    for item in literals:
        placed = place(item, value_type)
        if placed is None:
            raise _mismatch(Call("in", (value, item)), value_type, item.type, item)
        if placed.is_exact:
            kept.append(Literal(placed.below, value_type))
        elif placed.is_range:
            ranges.append(compare_placed("=", value, placed, value_type))
    if len(literals) < len(items):
        kept.append(Literal(None, value_type))
    listed = Call("in", (value, *kept)) if kept else _never(value)
    return or_(listed, *ranges) if ranges else listed


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type in which values of two types are compared without loss of order, or None."""
    if left == right:
        return left
    if is_number(left) and is_number(right):
        return _common_number(left, right)
    if pa.types.is_date(left) and pa.types.is_date(right):
        return types.DATE
    if all(pa.types.is_date(each) or pa.types.is_timestamp(each) for each in (left, right)):
        units = [each.unit for each in (left, right) if pa.types.is_timestamp(each)]
        return pa.timestamp(max(units, key=types.UNITS_PER_SECOND.__getitem__))
    if pa.types.is_time(left) and pa.types.is_time(right):
        return max(left, right, key=lambda each: types.UNITS_PER_SECOND[each.unit])
    for text, other in ((left, right), (right, left)):
        if is_text(text) and not is_bytes(other):
            return types.STRING if is_text(other) else _common_with_text(other)
    return types.BINARY if is_bytes(left) and is_bytes(right) else None


def _common_number(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        return types.DOUBLE
    if pa.types.is_integer(left) and pa.types.is_integer(right):
        return pa.decimal128(20, 0) if pa.types.is_uint64(left) or pa.types.is_uint64(right) else types.LONG
    digits = [decimal_digits(each) for each in (left, right)]
    scale = max(scale for _, scale in digits)
    precision = max(precision - own for precision, own in digits) + scale
    return pa.decimal128(precision, scale) if precision <= 38 else None


def _common_with_text(other: pa.DataType) -> pa.DataType | None:
    if is_number(other):
        return types.LONG if pa.types.is_integer(other) else types.DOUBLE
    if pa.types.is_date(other):
        return types.DATE
    return pa.timestamp("us") if pa.types.is_timestamp(other) else None


def _as_type(expr: Expr, source: pa.DataType, target: pa.DataType) -> Expr:
    if source == target:
        return expr
    function = "try_cast" if is_text(source) and not is_text(target) else "cast"
    return Call(function, (expr, Literal(type_name(target), types.STRING)))
