"""Casts, as in Spark's ANSI mode: `cast` raises for a value out of range, and `try_cast` returns NULL."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.calendar import cast_to_date, cast_to_unit
from tamis.expr.kernels import Value, evaluation_type
from tamis.expr.nodes import Call
from tamis.types import decimal_digits, integer_range, is_number, is_text, type_from_name

_INTEGER = r"^[+-]?[0-9]{1,38}$"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
# Only dates and times that exist, because Arrow's parser raises for others: 29 February exists in leap years only.
_LEAP_YEAR = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DAY = (
    r"(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
    rf"02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_DATE = rf"^{_DAY}$"
_TIMESTAMP = rf"^{_DAY}(?:[ T]{_TIME})?$"


def can_cast(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether Arrow casts as Spark does; the embedded engine runs other casts."""
    source = evaluation_type(source)
    if source == evaluation_type(target):
        return True
    if pa.types.is_boolean(source):
        return bool(pa.types.is_integer(target) or pa.types.is_floating(target))
    if pa.types.is_integer(source):
        return bool(is_number(target) or is_text(target))
    if pa.types.is_floating(source):
        return bool(pa.types.is_integer(target) or pa.types.is_floating(target))
    if pa.types.is_decimal(source) and pa.types.is_integer(target):
        return True
    if pa.types.is_decimal(source):
        return bool(pa.types.is_floating(target) or (pa.types.is_decimal(target) and target.scale >= source.scale))
    if pa.types.is_date(source) or pa.types.is_timestamp(source):
        return bool(pa.types.is_date32(target) or pa.types.is_timestamp(target))
    if pa.types.is_time(source) and pa.types.is_time(target):
        return types.UNITS_PER_SECOND[source.unit] <= types.UNITS_PER_SECOND[target.unit]
    return is_text(source) and can_try_cast(source, target)


def can_try_cast(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_floating(source) and pa.types.is_integer(target):
        return not pa.types.is_uint64(target)
    return bool(
        is_text(evaluation_type(source))
        and (
            is_text(target)
            or pa.types.is_integer(target)
            or target == types.DOUBLE
            or pa.types.is_date32(target)
            or (pa.types.is_timestamp(target) and target.unit == "us")
        )
    )


def cast(call: Call, args: list[Value]) -> Value:
    return cast_value(args[0], evaluation_type(type_from_name(args[1].as_py())))


def cast_value(value: Value, target: pa.DataType) -> Value:
    source = value.type
    if pa.types.is_floating(source) and pa.types.is_integer(target):
        return pc.cast(pc.trunc(value), target)
    if pa.types.is_decimal(source) and pa.types.is_integer(target):
        return pc.cast(pc.trunc(value), target, safe=True)
    if pa.types.is_timestamp(source):
        return cast_to_date(value) if pa.types.is_date(target) else cast_to_unit(value, target.unit)
    if pa.types.is_integer(source) and pa.types.is_decimal(target):
        return _to_decimal(value, target)
    if is_text(source) and not is_text(target):
        parsed = _parse(value, target)
        unparsed = pc.and_(pc.is_valid(value), pc.is_null(parsed))
        if pc.any(unparsed).as_py() if isinstance(value, pa.Array) else unparsed.as_py():
            bad = value.filter(unparsed)[0] if isinstance(value, pa.Array) else value
            raise pa.ArrowInvalid(f"{bad.as_py()!r} is not a valid {types.type_name(target)}; use try_cast to get NULL")
        return parsed
    loses_digits = pa.types.is_floating(target)
    return pc.cast(value, target, safe=not loses_digits)


def _to_decimal(value: Value, target: pa.DataType) -> Value:
    """Cast integers to a decimal type that holds these values; Arrow wants one that holds all values of their type."""
    wide = pa.decimal256(decimal_digits(value.type)[0] + target.scale, target.scale)
    return pc.cast(pc.cast(value, wide), target)


def try_cast(call: Call, args: list[Value]) -> Value:
    target = evaluation_type(type_from_name(args[1].as_py()))
    if pa.types.is_floating(args[0].type):
        return _to_integer_or_null(args[0], target)
    return args[0] if is_text(target) else _parse(args[0], target)


def _to_integer_or_null(number: Value, target: pa.DataType) -> Value:
    """Truncate floats to integers; NULL for NaN and values out of range."""
    smallest, largest = integer_range(target)
    whole = pc.trunc(pc.cast(number, types.DOUBLE))
    # No double equals the largest 64-bit integer, but one equals its successor.
    fits = pc.and_(pc.greater_equal(whole, float(smallest)), pc.less(whole, float(largest + 1)))
    return pc.cast(pc.if_else(fits, whole, pa.scalar(None, types.DOUBLE)), target)


def _parse(text: Value, target: pa.DataType) -> Value:
    """Parse text into another type; NULL where the text is invalid."""
    text = pc.utf8_trim_whitespace(text)
    if pa.types.is_integer(target):
        smallest, largest = integer_range(target)
        number = pc.cast(_keep_matching(text, _INTEGER, sign=True), pa.decimal128(38, 0))
        wide = pa.decimal128(38, 0)
        fits = pc.and_(
            pc.greater_equal(number, pa.scalar(smallest).cast(wide) if smallest >= -(2**63) else number),
            pc.less_equal(number, pa.array([largest], pa.uint64()).cast(pa.decimal128(20, 0)).cast(wide)[0]),
        )
        return pc.cast(pc.if_else(fits, number, pa.scalar(None, wide)), target)
    if target == types.DOUBLE:
        return pc.cast(_keep_matching(text, _NUMBER, sign=True), target)
    pattern = _DATE if pa.types.is_date(target) else _TIMESTAMP
    return pc.cast(_keep_matching(text, pattern), target)


def _keep_matching(text: Value, pattern: str, sign: bool = False) -> Value:
    kept = pc.if_else(pc.match_substring_regex(text, pattern), text, pa.scalar(None, text.type))
    # Arrow does not accept a leading plus.
    return pc.utf8_ltrim(kept, characters="+") if sign else kept
