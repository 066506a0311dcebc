"""Expressions that Tamis evaluates exactly as Spark does: only those may be pushed from Spark into a scan.

| Spark                                                        | Tamis                                               |
|--------------------------------------------------------------|-----------------------------------------------------|
| `upper('ß')` is 'SS'                                         | Arrow's is 'ẞ'                                      |
| `CAST(s AS DATE)` takes '2020-1-1', and `CAST(s AS INT)` ' 5'| strings are parsed more strictly                    |
| `l = 9007199254740993D` compares doubles                     | the column is compared with the exact number        |
| `c = 0.1D` casts a decimal column to a double                | the same: no decimal equals the double 0.1          |
| float + float is a float, int + int an int                   | they are doubles and longs                          |

A sum of ints that overflows is an error in Spark and a long here, which is acceptable: the query only gains a result.
Without `spark.sql.ansi.enabled` Spark returns a wrapped number, so expressions that may overflow stay with Spark.

The list is closed: a function, a type or a pair of types that is not known to be equivalent stays with Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa

from tamis import types
from tamis.expr.datetime_text import parse_date, parse_timestamp
from tamis.expr.functions.domains import get_evaluation_type
from tamis.expr.functions.table import FUNCTIONS, call_depends_on_zone, is_comparison, type_of
from tamis.expr.nodes import AnyExpr, Call, Column, Expr, Leaf, Literal, replace_columns, walk
from tamis.types import count_decimal_digits, get_integer_range, is_bytes, is_number, is_ordered, is_text

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_EXACT_IN_FLOATS = 2**24


def is_equivalent_on_spark(expr: Expr, *, ansi: bool) -> bool:
    """Return whether Tamis evaluates an expression, whose columns are typed, as Spark does."""
    return all(_is_equivalent(node, ansi) for node in walk(expr))


def has_spark_comparisons(expr: AnyExpr, columns: Mapping[str, pa.DataType | None], *, is_utc: bool) -> bool:
    """Return whether the comparisons of an unbound expression compare the values that Spark compares.

    Binding casts literals to the types of columns, and then the original types are lost.
    """

    typed = replace_columns(expr, lambda leaf: Column(leaf.path, find_column_type(leaf, columns)))
    tests = [node for node in walk(typed) if isinstance(node, Call)]
    tests = [call for call in tests if is_comparison(call) or call.function == "in"]
    if not is_utc and any(map(call_depends_on_zone, tests)):
        return False
    return all(not _may_change_when_bound(call) or _is_equivalent_list(call) for call in tests)


def _may_change_when_bound(call: Call) -> bool:
    """Return whether binding may change the value or the type of a side."""
    known = [get_evaluation_type(side) for side in call.args[:2]]
    return all(each is not None and is_ordered(each) for each in known)


def find_column_type(column: Leaf, columns: Mapping[str, pa.DataType | None]) -> pa.DataType | None:
    """Return the type of an unbound column, or of a field inside of it."""
    return types.find_field_type(columns.get(column.path[0]), column.path[1:])


def _is_equivalent(node: Expr, ansi: bool) -> bool:
    if not isinstance(node, Call):
        return True
    known = FUNCTIONS.get(node.function)
    if known is None or not known.accepts(len(node.args)):
        return False
    if known.spark.is_same is True:
        return known.supports is None or known.supports(node)
    return known.spark.is_same is not False and known.spark.is_same(node, ansi)


# --- Comparisons ------------------------------------------------------------------------------------------------------


def is_equivalent_comparison(call: Call, ansi: bool) -> bool:
    return _are_values_compared_equally(*call.args)


def _are_values_compared_equally(left: Expr, right: Expr) -> bool:
    if isinstance(left, Literal):
        left, right = right, left
    one, other = get_evaluation_type(left), get_evaluation_type(right)
    if one is None or other is None:
        return False
    if pa.types.is_null(one) or pa.types.is_null(other):
        return True
    if not is_ordered(one) or not is_ordered(other):
        return False
    if one == other:
        return True
    if isinstance(left, Literal):
        return False  # not pushed down anyway
    return _is_equivalent_literal(right, other, one) if isinstance(right, Literal) else _have_same_order(one, other)


def _is_equivalent_literal(literal: Literal, source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether a literal whose type differs from the column's is compared as in Spark."""
    value = literal.value
    if is_text(source):
        return _is_parsed_equally(value, target)
    if is_number(source) and is_number(target):
        return _is_equivalent_number(literal, source, target)
    return _have_same_order(source, target)


def _is_parsed_equally(text: str, target: pa.DataType) -> bool:
    """Return whether Spark parses a string as Tamis does, with and without ANSI mode."""
    if pa.types.is_integer(target):
        smallest, largest = get_integer_range(target)
        return _INTEGER.fullmatch(text) is not None and smallest <= int(text) <= largest
    if target == types.DOUBLE:
        return _INTEGER.fullmatch(text) is not None
    if pa.types.is_date(target):
        return _DATE.fullmatch(text) is not None and parse_date(text) is not None
    # The session time zone is in the literal by now, or it is UTC.
    return bool(pa.types.is_timestamp(target)) and _DATE.match(text) is not None and parse_timestamp(text) is not None


def _is_equivalent_number(literal: Literal, source: pa.DataType, target: pa.DataType) -> bool:
    value = literal.value
    if pa.types.is_floating(target):
        # Spark does not cast a double. It casts an integer to float, which is exact only for small ones.
        return target == types.DOUBLE or not pa.types.is_integer(source) or abs(value) <= _EXACT_IN_FLOATS
    if not pa.types.is_floating(source):
        return _have_common_decimal(count_decimal_digits(source), count_decimal_digits(target))
    # Both Spark and Tamis compare doubles.
    return bool(source == types.DOUBLE)


def _have_same_order(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether values of two types are compared as in Spark."""
    if is_number(one) and is_number(other):
        both = (one, other)
        if any(map(pa.types.is_floating, both)):
            # A float and an integer are compared as floats or as doubles, depending on ANSI mode.
            return types.DOUBLE in both and not any(map(pa.types.is_decimal, both))
        return _have_common_decimal(count_decimal_digits(one), count_decimal_digits(other))
    if is_bytes(one) and is_bytes(other):
        return True
    return _is_temporal(one) and _is_temporal(other)


def _have_common_decimal(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Return whether one Spark decimal type holds the values of two decimal types exactly."""
    scale = max(one[1], other[1])
    return max(one[0] - one[1], other[0] - other[1]) + scale <= 38


def is_equivalent_in(call: Call, ansi: bool) -> bool:
    return all(isinstance(item, Literal) for item in call.args[1:]) and _is_equivalent_list(call)


def _is_equivalent_list(call: Call) -> bool:
    """Return whether a value is compared with each item of a list as in Spark, which uses one common type for all
    items."""
    value, *items = call.args
    own = get_evaluation_type(value)
    checked: set[int] = set()
    texts: set[bool] = set()
    for item in items:
        kind = type_of(item)
        if id(kind) in checked or kind is None:
            continue
        if not _are_values_compared_equally(value, item):
            return False
        if not pa.types.is_null(kind):
            texts.add(is_text(kind))
        if kind == own or not (is_text(kind) or pa.types.is_floating(kind) or own == pa.float32()):
            # A hundred thousand items share one type object, so checking it once is mostly enough.
            checked.add(id(kind))
    # Without ANSI mode Spark compares the value cast to a string, which may be spelled differently.
    is_text_found = call.function != "in" or (own != types.DOUBLE and not pa.types.is_timestamp(own or types.NULL))
    return len(texts) < 2 and (is_text_found or True not in texts)


# --- Arithmetic -------------------------------------------------------------------------------------------------------


def is_equivalent_arithmetic(call: Call, ansi: bool) -> bool:
    given = [get_evaluation_type(arg) for arg in call.args]
    if any(each is None or pa.types.is_null(each) for each in given):
        return False
    numbers = [each for each in given if each is not None and is_number(each)]
    if len(numbers) < len(given):
        return _is_equivalent_shift(call)
    if all(map(pa.types.is_integer, numbers)):
        return ansi
    if any(map(pa.types.is_floating, numbers)):
        return types.DOUBLE in numbers and not any(map(pa.types.is_decimal, numbers))
    return type_of(call) is not None


def _is_equivalent_shift(call: Call) -> bool:
    """Return whether the call adds an interval or days to a date or timestamp."""
    match call.args:
        case (moved, Literal(value=by, type=kind)) if _is_temporal(get_evaluation_type(moved)):
            return bool(pa.types.is_interval(kind) or (pa.types.is_integer(kind) and abs(by) < 2**31))
        case _:
            return False


# --- Casts ------------------------------------------------------------------------------------------------------------


def is_equivalent_cast(call: Call, ansi: bool) -> bool:
    source, target = get_evaluation_type(call.args[0]), get_evaluation_type(call)
    if source is None or target is None:
        return False
    if source == target or (_is_temporal(source) and _is_temporal(target)):
        return True
    if pa.types.is_boolean(source):
        return bool(pa.types.is_integer(target) or target == types.DOUBLE)
    if not is_number(source):
        return False
    if pa.types.is_integer(source) and (is_text(target) or target == types.DOUBLE):
        return True
    if pa.types.is_floating(source):
        is_same = target == types.DOUBLE or (pa.types.is_integer(target) and target.bit_width <= 32)
        return is_same if ansi or pa.types.is_floating(target) else False
    if not (pa.types.is_integer(target) or pa.types.is_decimal(target)):
        return False
    (digits, scale), (room, own) = count_decimal_digits(source), count_decimal_digits(target)
    if pa.types.is_integer(target) and pa.types.is_integer(source):
        return bool(ansi or source.bit_width <= target.bit_width)
    return own >= scale and (ansi or room - own >= digits - scale)


# --- Functions --------------------------------------------------------------------------------------------------------


def has_known_type(call: Call, ansi: bool) -> bool:
    return type_of(call) is not None


def _is_temporal(data_type: pa.DataType | None) -> bool:
    return data_type is not None and bool(pa.types.is_date(data_type) or pa.types.is_timestamp(data_type))
