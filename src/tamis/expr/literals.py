"""Literals from Python, numpy and pyarrow values, and lossless casts between literal types."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from tamis import types
from tamis.errors import TypeMismatch, add_article, find_lone_surrogate
from tamis.expr.datetime_text import (
    INTERVAL_UNITS,
    NANOSECONDS,
    SECONDS_PER_DAY,
    format_date,
    format_timestamp,
    has_nanosecond_digits,
    parse_date,
    parse_time,
    parse_timestamp,
)
from tamis.expr.nodes import NULL, Literal
from tamis.types import UNITS_PER_SECOND, get_integer_range, is_bytes, is_text

__all__ = ["literal", "cast_literal", "parse_date", "parse_timestamp", "format_date", "format_timestamp"]

MAX_DIGITS = 76
"""The precision of Arrow's widest decimal."""

_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1)
_EPOCH_IN_UTC = datetime(1970, 1, 1, tzinfo=UTC)

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPECIAL_FLOATS = {
    "nan": math.nan,
    "inf": math.inf,
    "+inf": math.inf,
    "-inf": -math.inf,
    "infinity": math.inf,
    "+infinity": math.inf,
    "-infinity": -math.inf,
}


def literal(value: Any, type: pa.DataType | str | None = None) -> Literal:
    """Return a value as a literal; with a type, as that type, which must hold the value exactly.

    Equivalent types become one: `large_string` is `string`, and a timestamp with a time zone is an instant in UTC.

    >>> literal(5), literal(Decimal("1.50"), "decimal(10,2)").type
    (Literal(value=5, type=DataType(int64)), Decimal128Type(decimal128(10, 2)))
    """
    found = _infer_literal(value)
    if type is None:
        return found
    target = types.type_from_name(type) if isinstance(type, str) else type
    converted = cast_literal(found, target)
    if converted is None:
        raise TypeMismatch(f"{value!r} cannot be converted to {types.type_name(target)} without loss")
    return converted


def _infer_literal(value: Any) -> Literal:
    match value:
        case None:
            return NULL
        case bool():
            return Literal(value, types.BOOLEAN)
        case int():
            return _from_integer(int(value))
        case float():
            return Literal(float(value), types.DOUBLE)
        case str():
            if find_lone_surrogate(value) is not None:
                raise TypeMismatch(f"{_shorten(value)} has a lone surrogate, which is not valid Unicode")
            return Literal(str(value), types.STRING)
        case bytes() | bytearray() | memoryview():
            return Literal(bytes(value), types.BINARY)
        case Decimal():
            return _from_decimal(value)
        case datetime():
            return _from_datetime(value)
        case date():
            return Literal(value.toordinal() - _EPOCH.toordinal(), types.DATE)
        case time():
            return _from_time(value)
        case timedelta():
            return _from_timedelta(value)
        case pa.Scalar():
            return _from_scalar(value)
        case np.generic():
            return _from_numpy(value)
        case Literal():
            return value
        case _:
            raise TypeMismatch(
                f"{add_article(value.__class__.__name__)} cannot be a literal: {_shorten(value)}. "
                "Give a number, text, bytes, a bool, a date, a time, None, or a numpy or pyarrow scalar"
            )


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _from_integer(value: int) -> Literal:
    smallest, largest = get_integer_range(types.LONG)
    if smallest <= value <= largest:
        return Literal(value, types.LONG)
    if abs(value) >= 10**MAX_DIGITS:
        raise TypeMismatch(f"an integer of more than {MAX_DIGITS} digits exceeds the largest decimal type")
    return _from_decimal(Decimal(value))


def _from_decimal(value: Decimal) -> Literal:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise TypeMismatch(f"the decimal {value} is not a number: use float('{str(value).lower()}')")
    if exponent > 0:
        digits, exponent = digits + (0,) * min(exponent, MAX_DIGITS + 1), 0
    precision, scale = max(len(digits), -exponent, 1), -exponent
    if precision > MAX_DIGITS:
        raise TypeMismatch(f"a decimal of more than {MAX_DIGITS} digits exceeds the largest decimal type: {value}")
    # Arithmetic would round to the precision of the thread's decimal context, so the value is built from its digits.
    return Literal(Decimal((sign, digits, exponent)), _choose_decimal_type(precision, scale))


def _choose_decimal_type(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def _from_datetime(value: datetime) -> Literal:
    if hasattr(value, "to_datetime64"):
        # A pandas Timestamp has nanoseconds, which its base class datetime would lose.
        found = _from_numpy(value.to_datetime64())
        is_aware = value.tzinfo is not None
        return Literal(found.value, pa.timestamp(found.type.unit, tz="UTC")) if is_aware else found
    if value.utcoffset() is None:
        return Literal((value.replace(tzinfo=None) - _EPOCH) // _MICROSECOND, types.TIMESTAMP_NTZ)
    return Literal((value - _EPOCH_IN_UTC) // _MICROSECOND, types.TIMESTAMP)


def _from_time(value: time) -> Literal:
    if value.tzinfo is not None:
        raise TypeMismatch(f"a time of day with a zone cannot be a literal: {value}. Leave the zone out")
    seconds = value.hour * 3600 + value.minute * 60 + value.second
    return Literal(seconds * 1_000_000 + value.microsecond, pa.time64("us"))


def _from_timedelta(value: timedelta) -> Literal:
    # A pandas Timedelta has nanoseconds besides the microseconds of its base class timedelta.
    nanoseconds = value.seconds * NANOSECONDS + value.microseconds * 1000 + int(getattr(value, "nanoseconds", 0))
    return Literal((0, value.days, nanoseconds), types.INTERVAL)


def _from_numpy(value: np.generic) -> Literal:
    # np.timedelta64 is a subclass of np.signedinteger, so it is tested first.
    if isinstance(value, np.timedelta64):
        return _from_timedelta64(value)
    if isinstance(value, np.datetime64):
        return _from_datetime64(value)
    if isinstance(value, np.bool_):
        return Literal(bool(value), types.BOOLEAN)
    if isinstance(value, np.integer):
        return Literal(int(value), pa.from_numpy_dtype(value.dtype))
    if isinstance(value, np.float16 | np.float32):
        return Literal(float(value), pa.float32())
    raise TypeMismatch(f"a numpy {value.dtype} cannot be a literal: {_shorten(value)}")


_DATETIME64_UNITS = {"Y": "D", "M": "D", "W": "D", "D": "D", "h": "s", "m": "s"} | {u: u for u in UNITS_PER_SECOND}


def _from_datetime64(value: np.datetime64) -> Literal:
    unit = _DATETIME64_UNITS.get(np.datetime_data(value.dtype)[0])
    if unit is None:
        raise TypeMismatch(f"a numpy {value.dtype} cannot be a literal: {value}. Give it a unit from years to 'ns'")
    data_type = types.DATE if unit == "D" else pa.timestamp(unit)
    if np.isnat(value):
        return Literal(None, data_type)
    converted = value.astype(f"datetime64[{unit}]")
    # numpy overflows silently.
    if converted.astype(value.dtype) != value:
        raise TypeMismatch(f"the numpy date {value} is out of range")
    return Literal(int(converted.astype(np.int64)), data_type)


_TIMEDELTA64_UNITS = {
    "Y": "year", "M": "month", "W": "week", "D": "day", "h": "hour", "m": "minute", "s": "second", "ms": "millisecond",
    "us": "microsecond", "ns": "nanosecond",
}  # fmt: skip


def _from_timedelta64(value: np.timedelta64) -> Literal:
    unit, step = np.datetime_data(value.dtype)
    if unit not in _TIMEDELTA64_UNITS:
        raise TypeMismatch(f"a numpy {value.dtype} cannot be a literal: {value}. Give it a unit from years to 'ns'")
    if np.isnat(value):
        return Literal(None, types.INTERVAL)
    count = int(value.astype(np.int64)) * step
    return Literal(tuple(count * size for size in INTERVAL_UNITS[_TIMEDELTA64_UNITS[unit]]), types.INTERVAL)


def _from_scalar(value: pa.Scalar) -> Literal:
    while isinstance(value, pa.ExtensionScalar | pa.DictionaryScalar):
        is_extension = isinstance(value, pa.ExtensionScalar)
        inner_type = value.type.storage_type if is_extension else value.type.value_type
        value = value.value if value.is_valid else pa.scalar(None, inner_type)
    data_type = _get_plain_type(value.type)
    if not value.is_valid:
        return Literal(None, data_type)
    if pa.types.is_date64(value.type):
        days, rest = divmod(int(value.value), SECONDS_PER_DAY * 1000)
        if rest:
            raise TypeMismatch(f"the date64 {value} is not a whole day")
        return Literal(days, data_type)
    if pa.types.is_interval(data_type):
        return Literal(tuple(value.as_py()), data_type)
    if pa.types.is_temporal(data_type):
        return Literal(int(value.value), data_type)
    if pa.types.is_floating(data_type):
        return Literal(float(value.as_py()), data_type)
    return Literal(value.as_py(), data_type)


def _get_plain_type(data_type: pa.DataType) -> pa.DataType:
    """Return the canonical type among those with the same values; raise for types without literals."""
    if is_text(data_type):
        return types.STRING
    if is_bytes(data_type):
        return types.BINARY
    if pa.types.is_decimal(data_type):
        return _choose_decimal_type(data_type.precision, data_type.scale)
    if pa.types.is_date(data_type):
        return types.DATE
    if pa.types.is_timestamp(data_type) and data_type.tz is not None:
        return pa.timestamp(data_type.unit, tz="UTC")
    if pa.types.is_float16(data_type):
        return pa.float32()
    if pa.types.is_nested(data_type) or (not pa.types.is_primitive(data_type) and data_type != types.NULL):
        raise TypeMismatch(f"a pyarrow scalar of type {data_type} cannot be a literal: give a number, text, or a time")
    return data_type


# --- Casts ----------------------------------------------------------------------------------------------------------


def cast_literal(value: Literal, target: pa.DataType) -> Literal | None:
    """Return the literal as another type if that is the same value, or the nearest float; otherwise None.

    It never replaces a cast that could fail or truncate, so that `CAST(300 AS TINYINT)` stays a cast.
    A text with a time zone becomes a timestamp with a time zone even if the target has none, because SQL has no name
    for such a type in units other than microseconds.
    """
    if value.is_null:
        return Literal(None, target)
    if value.type == target:
        return value
    for covers, convert in _CASTS:
        if covers(target):
            return convert(value.value, value.type, target)
    return None


def _to_integer(value: Any, source: pa.DataType, target: pa.DataType) -> Literal | None:
    if not types.is_number(source) or (isinstance(value, float) and not math.isfinite(value)) or value != int(value):
        return None
    smallest, largest = get_integer_range(target)
    return Literal(int(value), target) if smallest <= value <= largest else None


def _to_float(value: Any, source: pa.DataType, target: pa.DataType) -> Literal | None:
    if isinstance(value, str):
        special = parse_special_float(value)
        return None if special is None else Literal(special, target)
    if not types.is_number(source):
        return None
    try:
        nearest = float(value)
    except OverflowError:
        return None
    if pa.types.is_float32(target):
        with np.errstate(over="ignore"):
            nearest = float(np.float32(nearest))
    overflowed = math.isinf(nearest) and not (isinstance(value, float) and math.isinf(value))
    return None if overflowed or pa.types.is_float16(target) else Literal(nearest, target)


def _to_decimal(value: Any, source: pa.DataType, target: pa.DataType) -> Literal | None:
    if isinstance(value, str):
        value = parse_decimal(value)
    if not isinstance(value, int | Decimal) or isinstance(value, bool):
        return None
    sign, digits, exponent = Decimal(value).as_tuple()
    assert isinstance(exponent, int)
    shift = exponent + target.scale
    if not any(digits):
        return Literal(Decimal((0, (0,), -target.scale)), target)
    if shift > MAX_DIGITS or any(digits[shift:] if shift < 0 else ()):
        return None
    kept = digits + (0,) * shift if shift >= 0 else digits[:shift]
    while kept and kept[0] == 0:
        kept = kept[1:]
    return Literal(Decimal((sign, kept, -target.scale)), target) if len(kept) <= target.precision else None


def parse_special_float(text: str) -> float | None:
    """Return the NaN or infinity that a text names, or None for any other text."""
    return _SPECIAL_FLOATS.get(text.strip().lower())


def parse_number(text: str) -> Decimal | None:
    """Parse a number such as `-1.50` or `1e3`, however large; return None for text that is not a number.

    Python's own parser accepts more than SQL: `1_000`, `sNaN`, and the digits of every script.
    """
    if _NUMBER.fullmatch(text.strip()) is None:
        return None
    try:
        return Decimal(text.strip())
    except InvalidOperation:
        return None  # the exponent has too many digits for Python


def parse_decimal(text: str) -> Decimal | None:
    """Parse a number; return None if no decimal type could hold it."""
    number = parse_number(text)
    return number if number is not None and abs(number.adjusted()) <= MAX_DIGITS else None


def _to_date(value: Any, source: pa.DataType, target: pa.DataType) -> Literal | None:
    days = parse_date(value, allow_time=True) if isinstance(value, str) else None
    smallest, largest = get_integer_range(pa.int32())
    return Literal(days, target) if days is not None and smallest <= days <= largest else None


def _to_timestamp(value: Any, source: pa.DataType, target: pa.DataType) -> Literal | None:
    if isinstance(value, str):
        return _text_to_timestamp(value, target)
    if pa.types.is_date32(source):
        nanoseconds = value * SECONDS_PER_DAY * NANOSECONDS
    elif pa.types.is_timestamp(source) and (source.tz is None) == (target.tz is None):
        nanoseconds = value * (NANOSECONDS // UNITS_PER_SECOND[source.unit])
    else:
        return None
    return _from_nanoseconds(nanoseconds, target)


def _text_to_timestamp(text: str, target: pa.DataType) -> Literal | None:
    parsed = parse_timestamp(text)
    if parsed is None:
        return None
    nanoseconds, has_zone = parsed
    if target in (types.TIMESTAMP, types.TIMESTAMP_NTZ):
        if has_zone and target == types.TIMESTAMP_NTZ:
            return None
        unit = "ns" if has_nanosecond_digits(text) else "us"
        return _from_nanoseconds(nanoseconds, pa.timestamp(unit, tz=target.tz))
    return _from_nanoseconds(nanoseconds, pa.timestamp(target.unit, tz="UTC" if has_zone else target.tz))


def _to_time(value: Any, source: pa.DataType, target: pa.DataType) -> Literal | None:
    if isinstance(value, str):
        nanoseconds = parse_time(value)
        if target == types.TIME and has_nanosecond_digits(value):
            target = pa.time64("ns")
    else:
        nanoseconds = value * (NANOSECONDS // UNITS_PER_SECOND[source.unit]) if pa.types.is_time(source) else None
    return None if nanoseconds is None else _from_nanoseconds(nanoseconds, target)


def _from_nanoseconds(nanoseconds: int, target: pa.DataType) -> Literal | None:
    count, rest = divmod(nanoseconds, NANOSECONDS // UNITS_PER_SECOND[target.unit])
    smallest, largest = get_integer_range(types.LONG)
    # A far year overflows int64 nanoseconds. Such a literal is kept, because it still compares with other timestamps.
    return None if rest or (target.unit != "ns" and not smallest <= count <= largest) else Literal(count, target)


_CASTS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType, pa.DataType], Literal | None]], ...] = (
    (pa.types.is_integer, _to_integer),
    (pa.types.is_floating, _to_float),
    (pa.types.is_decimal, _to_decimal),
    (pa.types.is_date32, _to_date),
    (pa.types.is_timestamp, _to_timestamp),
    (pa.types.is_time, _to_time),
    (is_text, lambda value, source, target: Literal(value, target) if isinstance(value, str) else None),
    (is_bytes, lambda value, source, target: Literal(value, target) if isinstance(value, bytes) else None),
)
