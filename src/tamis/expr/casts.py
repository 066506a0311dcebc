"""Casts, as Spark's ANSI mode has them: a value that does not fit is an error, and `try_cast` makes it NULL."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.kernels import Value, evaluation_type
from tamis.expr.nodes import Call
from tamis.types import integer_range, is_number, is_text, type_from_name

_WHOLE_NUMBER = r"^[+-]?[0-9]{1,38}$"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_TIMESTAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?)?$"


def can_cast(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether the cast has one meaning here; the embedded engine takes the others."""
    source = evaluation_type(source)
    if source == evaluation_type(target):
        return True
    if pa.types.is_integer(source) or pa.types.is_boolean(source):
        return bool(is_number(target) or (is_text(target) and pa.types.is_integer(source)))
    if pa.types.is_floating(source):
        return bool(pa.types.is_integer(target) or pa.types.is_floating(target))
    if pa.types.is_decimal(source):
        return bool(pa.types.is_floating(target) or (pa.types.is_decimal(target) and target.scale >= source.scale))
    if pa.types.is_date(source) or pa.types.is_timestamp(source):
        return bool(pa.types.is_date32(target) or pa.types.is_timestamp(target))
    return is_text(source) and can_try_cast(source, target)


def can_try_cast(source: pa.DataType, target: pa.DataType) -> bool:
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
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        return pc.cast(_floor_to(value, target.unit), target)
    if is_text(source) and not is_text(target):
        parsed = _parse(value, target)
        unparsed = pc.and_(pc.is_valid(value), pc.is_null(parsed))
        if pc.any(unparsed).as_py() if isinstance(value, pa.Array) else unparsed.as_py():
            bad = value.filter(unparsed)[0] if isinstance(value, pa.Array) else value
            raise pa.ArrowInvalid(f"{bad.as_py()!r} is not a {types.type_name(target)}; try_cast makes it NULL")
        return parsed
    loses_digits = pa.types.is_floating(target)
    return pc.cast(value, target, safe=not loses_digits)


def _floor_to(value: Value, unit: str) -> Value:
    """Arrow cuts towards zero, and so would move times before 1970 forwards."""
    names = {"s": "second", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond"}
    return pc.floor_temporal(value, unit=names[unit])


def try_cast(call: Call, args: list[Value]) -> Value:
    target = evaluation_type(type_from_name(args[1].as_py()))
    return args[0] if is_text(target) else _parse(args[0], target)


def _parse(text: Value, target: pa.DataType) -> Value:
    """Text as another type; NULL where it is none."""
    text = pc.utf8_trim_whitespace(text)
    if pa.types.is_integer(target):
        smallest, largest = integer_range(target)
        number = pc.cast(_only(text, _WHOLE_NUMBER, sign=True), pa.decimal128(38, 0))
        wide = pa.decimal128(38, 0)
        fits = pc.and_(
            pc.greater_equal(number, pa.scalar(smallest).cast(wide) if smallest >= -(2**63) else number),
            pc.less_equal(number, pa.array([largest], pa.uint64()).cast(pa.decimal128(20, 0)).cast(wide)[0]),
        )
        return pc.cast(pc.if_else(fits, number, pa.scalar(None, wide)), target)
    if target == types.DOUBLE:
        return pc.cast(_only(text, _NUMBER, sign=True), target)
    pattern = _DATE if pa.types.is_date(target) else _TIMESTAMP
    return pc.cast(_only(text, pattern), target)


def _only(text: Value, pattern: str, sign: bool = False) -> Value:
    kept = pc.if_else(pc.match_substring_regex(text, pattern), text, pa.scalar(None, text.type))
    # Arrow does not take a leading plus.
    return pc.utf8_ltrim(kept, characters="+") if sign else kept


def partition_value(call: Call, args: list[Value]) -> Value:
    """A partition value from its text: the empty text is NULL for every type, other text is parsed as the type."""
    target = evaluation_type(type_from_name(args[1].as_py()))
    text = pc.if_else(pc.equal(args[0], ""), pa.scalar(None, args[0].type), args[0])
    return pc.cast(text, target)
