"""Min/max bounds of a column chunk, converted from the bytes in the file to the table's type.

Three steps, chosen once per column: *decode* the stored statistic (by physical and logical type) into a plain value,
*validate* the pair, *convert* it to the table's type. An impossible pair is dropped as a whole: one bound is NaN, the
lower bound is above the upper in the order of the type, or a value is outside its type. An inexact conversion rounds
the lower bound down and the upper bound up; if that is impossible, the bound is unknown.

| stored as                                   | plain value                  | in the table                       |
|---------------------------------------------|------------------------------|------------------------------------|
| BOOLEAN                                     | bool                         | boolean                            |
| INT32, INT64, signed and unsigned           | int                          | integers, decimals, float, double  |
| decimals: INT32, INT64, big-endian bytes    | int, without its scale       | decimals                           |
| FLOAT, DOUBLE, two bytes of FLOAT16         | float                        | floats at least as wide            |
| DATE                                        | days                         | dates, timestamps without zone     |
| TIME, TIMESTAMP, Arrow's durations          | ticks of the unit            | the same in any unit               |
| BYTE_ARRAY, fixed-length bytes, UUID        | bytes, ordered unsigned      | text (not of fixed length), binary |
| INT96, INTERVAL, all other types            | no trustworthy order         |                                    |
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tamis import types
from tamis.expr.patterns import find_successor_of_prefix
from tamis.parquet.footer.datetime_rebase import get_rebase_limit, rebase_days
from tamis.parquet.footer.leaves import Leaf

_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_WIDE = Context(prec=100)

Decode = Callable[[Any], Any]
"""Converts a statistic from pyarrow to the plain value; returns None if the type has no such value."""

Converted = tuple[Any, bool]
Convert = Callable[[Any, bool], Converted]
"""Converts a plain value to the table's type; the second argument rounds up, not down. Also returns exactness."""

Bounds = tuple[Any, Any, bool | None, bool | None]
"""Lower bound, upper bound, and for each whether it is exact: the value of some row."""

_NOT_CONVERTIBLE: Converted = (None, False)
UNKNOWN: Bounds = (None, None, None, None)


@dataclass(frozen=True, slots=True)
class BoundsReader:
    """The conversion of one column's statistics to bounds in the table's type."""

    decode: Decode
    convert: Convert
    source: pa.DataType
    target: pa.DataType

    def bounds(self, smallest: Any, largest: Any) -> Bounds:
        low, high = self.decode(smallest), self.decode(largest)
        # A comparison with NaN is false, so a NaN drops the pair too.
        if low is None or high is None or not low <= high:
            return UNKNOWN
        lower, lower_exact = self.convert(low, False)
        upper, upper_exact = self.convert(high, True)
        return lower, upper, None if lower is None else lower_exact, None if upper is None else upper_exact

    def array(self, values: Sequence[Any]) -> pa.Array:
        if pa.types.is_decimal(self.target):
            scale = -self.target.scale
            values = [None if value is None else _WIDE.scaleb(Decimal(value), scale) for value in values]
        return pa.array(values, self.target)


def make_bounds_reader(leaf: Leaf, target: pa.DataType | None, *, trust_bytes: bool = True) -> BoundsReader | None:
    """Return the conversion of a leaf's bounds to the table's type; None if its bounds cannot be used."""
    if target is None or not types.is_ordered(target):
        return None
    source = get_stored_type(leaf)
    if source is None or (leaf.physical in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY") and not trust_bytes):
        return None
    convert = _choose_converter(source, target, zone_is_known=not leaf.parameters.get("is_from_converted_type", False))
    if convert is None:
        return None
    decode = _choose_decoder(leaf, source)
    if leaf.needs_rebase:
        decode, convert = _rebase_bounds(source, decode, convert)
    return BoundsReader(decode, convert, source, target)


def _rebase_bounds(source: pa.DataType, decode: Decode, convert: Convert) -> tuple[Decode, Convert]:
    """Adapt the conversion to bounds that may be in the Julian calendar: see `tamis.parquet.footer.datetime_rebase`."""
    if pa.types.is_date(source):
        return lambda raw: int(rebase_days(np.array(decode(raw), np.int64))), convert
    first = get_rebase_limit(source)
    return decode, lambda value, up: _NOT_CONVERTIBLE if value < first else convert(value, up)


# --- Decoding --------------------------------------------------------------------------------------------------------


def get_stored_type(leaf: Leaf) -> pa.DataType | None:
    """Return the Arrow type of the stored values; None if their order is unknown and statistics are unusable."""
    match leaf.physical, leaf.logical:
        case "BOOLEAN", "NONE":
            return types.BOOLEAN
        case "INT32" | "INT64", "NONE":
            plain = pa.int32() if leaf.physical == "INT32" else types.LONG
            # Parquet has no durations: Arrow writes plain integers and declares their type in its own schema.
            return leaf.arrow_type if pa.types.is_duration(leaf.arrow_type) else plain
        case "INT32" | "INT64", "INT":
            sign = "" if leaf.parameters["isSigned"] else "u"
            return types.type_from_name(f"{sign}int{leaf.parameters['bitWidth']}")
        case "INT32", "DATE":
            return types.DATE
        case "INT32", "TIME":
            return pa.time32("ms")
        case "INT64", "TIME" if leaf.parameters["timeUnit"] in ("microseconds", "nanoseconds"):
            return pa.time64(_UNITS[leaf.parameters["timeUnit"]])
        case "INT64", "TIMESTAMP" if leaf.parameters["timeUnit"] in _UNITS:
            zone = "UTC" if leaf.parameters["isAdjustedToUTC"] else None
            return pa.timestamp(_UNITS[leaf.parameters["timeUnit"]], zone)
        case _, "DECIMAL" if pa.types.is_decimal(leaf.arrow_type) and leaf.arrow_type.scale == leaf.scale:
            return leaf.arrow_type
        case "FLOAT", "NONE":
            return pa.float32()
        case "DOUBLE", "NONE":
            return types.DOUBLE
        case "FIXED_LEN_BYTE_ARRAY", "FLOAT16":
            return pa.float16()
        case "FIXED_LEN_BYTE_ARRAY", "NONE" | "UUID":
            return pa.binary(leaf.length)
        case "BYTE_ARRAY", "NONE" | "STRING" | "ENUM" | "JSON" | "BSON":
            return types.BINARY
        case _:
            return None


def _choose_decoder(leaf: Leaf, source: pa.DataType) -> Decode:
    if pa.types.is_integer(source):
        return _make_integer_decoder(source, 32 if leaf.physical == "INT32" else 64)
    if pa.types.is_decimal(source):
        largest = 10**source.precision
        from_bytes = leaf.physical not in ("INT32", "INT64")

        def decode_decimal(raw: Any) -> int | None:
            if from_bytes and not raw:
                return None
            value = int.from_bytes(raw, "big", signed=True) if from_bytes else int(raw)
            return value if -largest < value < largest else None

        return decode_decimal
    if pa.types.is_float16(source):
        return lambda raw: struct.unpack("<e", raw)[0]
    return lambda raw: raw


def _make_integer_decoder(source: pa.DataType, stored_bits: int) -> Decode:
    smallest, largest = types.get_integer_range(source)
    # pyarrow returns every stored integer as a signed one.
    mask = 2**stored_bits - 1 if pa.types.is_unsigned_integer(source) else -1

    def decode_integer(raw: int) -> int | None:
        value = raw & mask
        return value if smallest <= value <= largest else None

    return decode_integer


# --- Converting ------------------------------------------------------------------------------------------------------


def _choose_converter(source: pa.DataType, target: pa.DataType, *, zone_is_known: bool) -> Convert | None:
    is_type = pa.types
    if is_type.is_boolean(source) or is_type.is_boolean(target):
        return (lambda value, up: (value, True)) if source == target else None
    if is_type.is_integer(source) or is_type.is_decimal(source):
        return _make_number_converter(source, target)
    if is_type.is_floating(source):
        return _widen_zero if is_type.is_floating(target) and target.bit_width >= source.bit_width else None
    if types.is_bytes(source):
        return _make_bytes_converter(source, target)
    return _make_time_converter(source, target, zone_is_known)


def _make_number_converter(source: pa.DataType, target: pa.DataType) -> Convert | None:
    if pa.types.is_integer(target):
        if not pa.types.is_integer(source):
            return None
        smallest, largest = types.get_integer_range(target)
        return lambda value, up: (value, True) if smallest <= value <= largest else _NOT_CONVERTIBLE
    if pa.types.is_decimal(target):
        digits = target.scale - (source.scale if pa.types.is_decimal(source) else 0)
        largest = 10**target.precision - 1
        return _make_ratio_converter(10 ** max(digits, 0), 10 ** max(-digits, 0), -largest, largest)
    if pa.types.is_integer(source) and (pa.types.is_float64(target) or pa.types.is_float32(target)):
        return _to_float64 if pa.types.is_float64(target) else _to_float32
    # Arrow may round twice from a decimal to a binary fraction, so no bound computed here is certain.
    return None


def _make_ratio_converter(numerator: int, denominator: int, smallest: int, largest: int) -> Convert:
    def convert(value: int, up: bool) -> Converted:
        quotient, remainder = divmod(value * numerator, denominator)
        quotient += up and remainder > 0
        return (quotient, remainder == 0) if smallest <= quotient <= largest else _NOT_CONVERTIBLE

    return convert


def _to_float64(value: int, up: bool) -> Converted:
    nearest = float(value)
    # Python compares integers with floats exactly.
    if nearest == value:
        return nearest, True
    if (nearest < value) == up:
        nearest = math.nextafter(nearest, math.inf if up else -math.inf)
    return nearest, False


def _to_float32(value: int, up: bool) -> Converted:
    nearest = np.float32(value)
    if float(nearest) == value:
        return float(nearest), True
    if (float(nearest) < value) == up:
        nearest = np.nextafter(nearest, np.float32(np.inf if up else -np.inf))
    return float(nearest), False


def _widen_zero(value: float, up: bool) -> Converted:
    if value == 0.0:
        # Writers that treat both zeros as equal may write either, so each bound uses the outer zero.
        return (0.0 if up else -0.0), False
    return value, True


# In nanoseconds.
_TICKS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY = 86_400 * _TICKS["s"]


def get_nanoseconds_per_tick(data_type: pa.DataType) -> int:
    """Return the length of a tick of a date, time or duration in nanoseconds."""
    if pa.types.is_date32(data_type):
        return _DAY
    return _TICKS["ms"] if pa.types.is_date64(data_type) else _TICKS[data_type.unit]


def _make_time_converter(source: pa.DataType, target: pa.DataType, zone_is_known: bool) -> Convert | None:
    is_type = pa.types
    both = (source, target)
    if is_type.is_timestamp(source) and is_type.is_timestamp(target):
        # An instant and a local timestamp differ by an unknown zone. Files with only converted types do not
        # distinguish the two, so the table's type decides.
        if zone_is_known and (source.tz is None) != (target.tz is None):
            return None
    elif is_type.is_date(source) and is_type.is_timestamp(target):
        if target.tz is not None:
            return None
    elif not any(all(map(same, both)) for same in (is_type.is_date, is_type.is_time, is_type.is_duration)):
        return None
    numerator, denominator = get_nanoseconds_per_tick(source), get_nanoseconds_per_tick(target)
    common = math.gcd(numerator, denominator)
    if is_type.is_time(target):
        smallest, largest = 0, _DAY // denominator - 1
    else:
        # Some libraries use the smallest 64-bit integer as NaT ("not a time").
        largest = 2 ** (target.bit_width - 1) - 1
        smallest = -largest
    return _make_ratio_converter(numerator // common, denominator // common, smallest, largest)


def _make_bytes_converter(source: pa.DataType, target: pa.DataType) -> Convert | None:
    if types.is_text(target):
        return None if pa.types.is_fixed_size_binary(source) else _to_text
    if pa.types.is_fixed_size_binary(target):
        width = target.byte_width
        return lambda value, up: (value, False) if len(value) == width else _NOT_CONVERTIBLE
    # Bounds of bytes may be truncated, and pyarrow does not report it.
    return (lambda value, up: (value, False)) if types.is_bytes(target) else None


def _to_text(value: bytes, up: bool) -> Converted:
    try:
        return value.decode(), False
    except UnicodeDecodeError as error:
        valid = value[: error.start].decode()
    # Lower: every value is >= the given bytes, so it is >= any prefix of them. Upper: every value that starts with
    # the prefix, or sorts before it, is smaller than the prefix with its last character incremented.
    return (find_successor_of_prefix(valid) if up else valid), False
