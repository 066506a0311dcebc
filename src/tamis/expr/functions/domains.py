"""Where Arrow's kernels compute what Spark computes, and where they fail: the domains of the rows of the table."""

from __future__ import annotations

import pyarrow as pa

from tamis import types
from tamis.expr.functions import kernels
from tamis.expr.functions.kernels import DATE_TRUNC_UNITS, TRUNC_UNITS, find_evaluation_type
from tamis.expr.functions.table import may_fail, type_of
from tamis.expr.nodes import Call, Expr, Literal
from tamis.types import get_integer_range, is_bytes, is_number, is_ordered, is_text


def have_same_ordered_type(call: Call) -> bool:
    left, right = (get_evaluation_type(arg) for arg in call.args)
    if left is None or right is None:
        return False
    return pa.types.is_null(left) or pa.types.is_null(right) or (is_ordered(left) and left == right)


def get_evaluation_type(expr: Expr) -> pa.DataType | None:
    data_type = type_of(expr)
    return None if data_type is None else find_evaluation_type(data_type)


def has_literal_list(call: Call) -> bool:
    data_type = get_evaluation_type(call.args[0])
    return (
        data_type is not None
        and (is_ordered(data_type) or pa.types.is_null(data_type))
        and _are_literals_of(data_type, call.args[1:])
    )


def _are_literals_of(data_type: pa.DataType, items: tuple[Expr, ...]) -> bool:
    checked: pa.DataType | None = None
    for item in items:
        if not isinstance(item, Literal):
            return False
        if item.is_null or item.type is checked:
            continue  # a hundred thousand items usually share one type object
        if find_evaluation_type(item.type) != data_type:
            return False
        checked = item.type
    return True


def has_text_and_constants(call: Call) -> bool:
    data_type = get_evaluation_type(call.args[0])
    if data_type is None:
        return False
    value = str if is_text(data_type) else bytes if is_bytes(data_type) and call.function != "like" else None
    return value is not None and all(
        isinstance(item, Literal) and isinstance(item.value, value) for item in call.args[1:]
    )


def is_plain_substring(call: Call) -> bool:
    data_type = get_evaluation_type(call.args[0])
    return (
        data_type is not None
        and is_text(data_type)
        and all(isinstance(item, Literal) and isinstance(item.value, int) for item in call.args[1:])
        # A negative position counts from the end; the embedded engine evaluates it.
        and isinstance(call.args[1], Literal)
        and call.args[1].value >= 0
    )


def may_overflow(call: Call) -> bool:
    # Floats overflow to infinity, and the result type of a sum or a product of decimals holds every result.
    target = type_of(call)
    return target is None or not (pa.types.is_floating(target) or pa.types.is_decimal(target))


def may_cast_fail(call: Call) -> bool:
    source, target = get_evaluation_type(call.args[0]), type_of(call)
    return source is None or target is None or not _always_fits(source, target)


def _always_fits(source: pa.DataType, target: pa.DataType) -> bool:
    if source == find_evaluation_type(target) or is_text(target):
        return True
    if pa.types.is_boolean(source):
        return is_number(target)
    if pa.types.is_floating(target):
        return is_number(source)
    if pa.types.is_integer(source) and pa.types.is_integer(target):
        smallest, largest = get_integer_range(source)
        lowest, highest = get_integer_range(target)
        return lowest <= smallest and largest <= highest
    return False


def can_compute_all_branches(call: Call) -> bool:
    """Return whether a CASE can compute all branches for all rows: no branch may fail on a row of another branch.

    The embedded engine evaluates the others.
    """
    return have_one_type((*call.args[1:-1:2], call.args[-1])) and not any(may_fail(arg) for arg in call.args[1:])


def have_one_type(args: tuple[Expr, ...]) -> bool:
    """Return whether all values have the same known type: Arrow would cast different types by its own rules."""
    known = {type_of(arg) for arg in args} - {types.NULL}
    return None not in known and len(known) <= 1


def has_text(call: Call) -> bool:
    data_type = get_evaluation_type(call.args[0])
    return data_type is not None and is_text(data_type)


def is_supported_arithmetic(call: Call) -> bool:
    if type_of(call) in (None, types.NULL):
        return False
    intervals = [arg for arg in call.args if (get_evaluation_type(arg) or types.NULL) == types.INTERVAL]
    if not intervals:
        return True
    interval = intervals[0]
    if not isinstance(interval, Literal) or interval.is_null:
        return False
    if call.function == "-" and call.args[1] is not interval:
        return False
    return not pa.types.is_date(type_of(call)) or interval.value[2] == 0


def has_number(call: Call) -> bool:
    data_type = get_evaluation_type(call.args[0])
    return data_type is not None and is_number(data_type) and not pa.types.is_uint64(data_type)


def has_date_or_timestamp(call: Call) -> bool:
    return _is_date_or_timestamp(call.args[0])


def _is_date_or_timestamp(expr: Expr) -> bool:
    data_type = get_evaluation_type(expr)
    return data_type is not None and (pa.types.is_date(data_type) or pa.types.is_timestamp(data_type))


def has_timestamp(call: Call) -> bool:
    return bool(pa.types.is_timestamp(get_evaluation_type(call.args[0]) or types.NULL))


def can_date_trunc(call: Call) -> bool:
    unit, value = call.args
    return isinstance(unit, Literal) and unit.value in DATE_TRUNC_UNITS and _is_date_or_timestamp(value)


def can_trunc(call: Call) -> bool:
    return has_date_or_timestamp(call) and isinstance(call.args[1], Literal) and call.args[1].value in TRUNC_UNITS


def has_text_key(call: Call) -> bool:
    source = type_of(call.args[0])
    return (
        source is not None
        and bool(pa.types.is_map(source) and is_text(source.key_type))
        and isinstance(call.args[1], Literal)
        and isinstance(call.args[1].value, str)
    )


def can_cast(call: Call) -> bool:
    source, target = type_of(call.args[0]), type_of(call)
    return source is not None and target is not None and kernels.can_cast(source, target)


def can_try_cast(call: Call) -> bool:
    source, target = type_of(call.args[0]), type_of(call)
    return source is not None and target is not None and kernels.can_try_cast(source, target)
