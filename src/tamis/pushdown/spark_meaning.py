"""What Spark computes as tables do here: only that may be tested by a scan in Spark's place.

| Spark                                                        | here                                                |
|--------------------------------------------------------------|-----------------------------------------------------|
| `upper('ß')` is 'SS'                                         | Arrow's is 'ẞ'                                      |
| `CAST(s AS DATE)` takes '2020-1-1', and `CAST(s AS INT)` ' 5'| texts are read more strictly                        |
| `l = 9007199254740993D` compares doubles                     | a column is compared with the number as it is       |
| `c = 0.1D` makes a double of a decimal, for any column       | the same: 0.1 is no double, so no decimal is it     |
| a sum of two floats is a float, one of two ints an int       | they are doubles and longs                          |

A sum of ints that does not fit is an error in Spark and a long here: nobody misses that error. Without
`spark.sql.ansi.enabled` Spark has another number there, so that what may overflow is its own.

The list is closed: a function, a type or a pair of types that is not known to mean the same stays with Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import pyarrow as pa

from tamis import types
from tamis.expr.functions import COMPARISONS, FUNCTIONS, type_of
from tamis.expr.kernels import DATE_TRUNC_UNITS, TRUNC_UNITS, evaluation_type
from tamis.expr.nodes import Call, Column, Expr, Literal, transform, walk
from tamis.expr.temporal import parse_date, parse_timestamp
from tamis.pushdown.zones import call_depends_on_zone, column_type
from tamis.types import decimal_digits, integer_range, is_bytes, is_number, is_ordered, is_text

_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_EXACT_IN_FLOATS = 2**24


def is_as_on_spark(expr: Expr, *, ansi: bool) -> bool:
    """Whether a table makes of an expression, whose columns have types, what Spark makes of it."""
    return all(_is_alike(node, ansi) for node in walk(expr))


def compares_as_spark(expr: Expr, columns: Mapping[str, pa.DataType | None], *, is_utc: bool) -> bool:
    """Whether the comparisons of an expression are about the values that Spark compares. Columns are not bound yet.

    To bind them gives constants the types of columns, and then nobody knows what was asked for.
    """

    def typed(node: Expr) -> Expr:
        if not isinstance(node, Column) or node.type is not None:
            return node
        return Column(node.path, node.position, column_type(node, columns), node.exact)

    tests = [node for node in walk(transform(expr, typed)) if isinstance(node, Call)]
    tests = [call for call in tests if call.function in COMPARISONS or call.function == "in"]
    if not is_utc and any(map(call_depends_on_zone, tests)):
        return False
    return all(not _are_bound(call) or _lists_alike(call) for call in tests)


def _are_bound(call: Call) -> bool:
    """Whether binding may put another value, or another type, in the place of a side."""
    known = [_type(side) for side in call.args[:2]]
    return all(each is not None and is_ordered(each) for each in known)


def _is_alike(node: Expr, ansi: bool) -> bool:
    if not isinstance(node, Call):
        return True
    known = FUNCTIONS.get(node.function)
    if known is None or not known.fewest <= len(node.args) <= known.most:
        return False
    if node.function in COMPARISONS:
        return _compares_alike(*node.args)
    check = _CHECKS.get(node.function)
    return check is not None and check(node, ansi)


# --- Comparisons ------------------------------------------------------------------------------------------------------


def _compares_alike(left: Expr, right: Expr) -> bool:
    if isinstance(left, Literal):
        left, right = right, left
    one, other = _type(left), _type(right)
    if one is None or other is None:
        return False
    if pa.types.is_null(one) or pa.types.is_null(other):
        return True
    if not is_ordered(one) or not is_ordered(other):
        return False
    if one == other:
        return True
    if isinstance(left, Literal):
        return False  # which no table is asked for
    return _is_placed_alike(right, other, one) if isinstance(right, Literal) else _are_alike(one, other)


def _is_placed_alike(literal: Literal, source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a constant of another type than the value's is compared with it as Spark does."""
    value = literal.value
    if is_text(source):
        return _is_text_of(value, target)
    if is_number(source) and is_number(target):
        return _is_number_alike(literal, source, target)
    return _are_alike(source, target)


def _is_text_of(text: str, target: pa.DataType) -> bool:
    """Whether Spark reads a text as tables do, in whichever mode."""
    if pa.types.is_integer(target):
        smallest, largest = integer_range(target)
        return _WHOLE_NUMBER.fullmatch(text) is not None and smallest <= int(text) <= largest
    if target == types.DOUBLE:
        return _WHOLE_NUMBER.fullmatch(text) is not None
    if pa.types.is_date(target):
        return _DAY.fullmatch(text) is not None and parse_date(text) is not None
    # The zone of the session is named by then, or it is UTC.
    return bool(pa.types.is_timestamp(target)) and _DAY.match(text) is not None and parse_timestamp(text) is not None


def _is_number_alike(literal: Literal, source: pa.DataType, target: pa.DataType) -> bool:
    value = literal.value
    if pa.types.is_floating(target):
        # Of a double Spark makes no other number; a float is one for it where the constant is whole.
        return target == types.DOUBLE or not pa.types.is_integer(source) or abs(value) <= _EXACT_IN_FLOATS
    if not pa.types.is_floating(source):
        return _fit_together(decimal_digits(source), decimal_digits(target))
    # Both sides are doubles, here and there.
    return bool(source == types.DOUBLE)


def _are_alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether values of two types are compared as what Spark makes of them."""
    if is_number(one) and is_number(other):
        both = (one, other)
        if any(map(pa.types.is_floating, both)):
            # A float and a whole number are compared as floats or as doubles, as the mode is.
            return types.DOUBLE in both and not any(map(pa.types.is_decimal, both))
        return _fit_together(decimal_digits(one), decimal_digits(other))
    if is_bytes(one) and is_bytes(other):
        return True
    return _is_day_or_time(one) and _is_day_or_time(other)


def _fit_together(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether a decimal of Spark holds the values of two kinds of decimals as they are."""
    scale = max(one[1], other[1])
    return max(one[0] - one[1], other[0] - other[1]) + scale <= 38


def _is_listed_alike(call: Call, ansi: bool) -> bool:
    return all(isinstance(item, Literal) for item in call.args[1:]) and _lists_alike(call)


def _lists_alike(call: Call) -> bool:
    """The same of a value and each item of a list, for which Spark finds one type."""
    value, *items = call.args
    own = _type(value)
    told: set[int] = set()
    texts: set[bool] = set()
    for item in items:
        kind = type_of(item)
        if id(kind) in told or kind is None:
            continue
        if not _compares_alike(value, item):
            return False
        if not pa.types.is_null(kind):
            texts.add(is_text(kind))
        if kind == own or not (is_text(kind) or pa.types.is_floating(kind) or own == pa.float32()):
            # A hundred thousand items share one object as their type, which mostly tells enough.
            told.add(id(kind))
    # In one mode Spark looks for the text of the value, which may be another one than was written.
    is_text_found = call.function != "in" or (own != types.DOUBLE and not pa.types.is_timestamp(own or types.NULL))
    return len(texts) < 2 and (is_text_found or True not in texts)


# --- Arithmetic -------------------------------------------------------------------------------------------------------


def _is_computed_alike(call: Call, ansi: bool) -> bool:
    given = [_type(arg) for arg in call.args]
    if any(each is None or pa.types.is_null(each) for each in given):
        return False
    numbers = [each for each in given if each is not None and is_number(each)]
    if len(numbers) < len(given):
        return _is_moved_alike(call)
    if all(map(pa.types.is_integer, numbers)):
        return ansi
    if any(map(pa.types.is_floating, numbers)):
        return types.DOUBLE in numbers and not any(map(pa.types.is_decimal, numbers))
    return type_of(call) is not None


def _is_moved_alike(call: Call) -> bool:
    """A day or a time, so much later or earlier."""
    match call.args:
        case (moved, Literal(value=by, type=kind)) if _is_day_or_time(_type(moved)):
            return bool(pa.types.is_interval(kind) or (pa.types.is_integer(kind) and abs(by) < 2**31))
        case _:
            return False


# --- Casts ------------------------------------------------------------------------------------------------------------


def _is_cast_alike(call: Call, ansi: bool) -> bool:
    source, target = _type(call.args[0]), _type(call)
    if source is None or target is None:
        return False
    if source == target or (_is_day_or_time(source) and _is_day_or_time(target)):
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
    (digits, scale), (room, own) = decimal_digits(source), decimal_digits(target)
    if pa.types.is_integer(target) and pa.types.is_integer(source):
        return bool(ansi or source.bit_width <= target.bit_width)
    return own >= scale and (ansi or room - own >= digits - scale)


# --- Functions --------------------------------------------------------------------------------------------------------


def _always(call: Call, ansi: bool) -> bool:
    return True


def _has_one_type(call: Call, ansi: bool) -> bool:
    return type_of(call) is not None


def _tests_text(call: Call, ansi: bool) -> bool:
    return _is_text(call.args[0]) and all(
        isinstance(item, Literal) and isinstance(item.value, str) for item in call.args[1:]
    )


def _cuts_text(call: Call, ansi: bool) -> bool:
    # Arrow does not count from the end.
    return _is_text(call.args[0]) and all(
        isinstance(each, Literal) and isinstance(each.value, int) and each.value >= 0 for each in call.args[1:]
    )


def _takes_text(call: Call, ansi: bool) -> bool:
    return _is_text(call.args[0])


def _takes_day_or_time(call: Call, ansi: bool) -> bool:
    return _is_day_or_time(_type(call.args[0]))


def _truncates(call: Call, ansi: bool) -> bool:
    match call.args:
        case (Literal(value=str() as unit), value):
            return unit in DATE_TRUNC_UNITS and _is_day_or_time(_type(value))
        case (value, Literal(value=str() as unit)):
            return unit in TRUNC_UNITS and _is_day_or_time(_type(value))
        case _:
            return False


def _looks_up(call: Call, ansi: bool) -> bool:
    return isinstance(call.args[0], Column) and isinstance(call.args[1], Literal)


_CHECKS: dict[str, Callable[[Call, bool], bool]] = {
    **dict.fromkeys(("and", "or", "not", "is_null", "is_not_null"), _always),
    "in": _is_listed_alike,
    **dict.fromkeys(("like", "startswith", "endswith", "contains"), _tests_text),
    **dict.fromkeys(("+", "-", "*", "negate", "abs"), _is_computed_alike),
    **dict.fromkeys(("cast", "try_cast"), _is_cast_alike),
    **dict.fromkeys(("case", "coalesce"), _has_one_type),
    **dict.fromkeys(("year", "month", "day", "hour", "minute"), _takes_day_or_time),
    **dict.fromkeys(("date_trunc", "trunc"), _truncates),
    "substring": _cuts_text,
    "length": _takes_text,
    "element_at": _looks_up,
}


def _type(expr: Expr) -> pa.DataType | None:
    found = type_of(expr)
    return None if found is None else evaluation_type(found)


def _is_text(expr: Expr) -> bool:
    found = _type(expr)
    return found is not None and is_text(found)


def _is_day_or_time(data_type: pa.DataType | None) -> bool:
    return data_type is not None and bool(pa.types.is_date(data_type) or pa.types.is_timestamp(data_type))
