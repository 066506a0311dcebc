"""Literals as a file would have stored them, hashed: what a Bloom filter is asked.

A filter knows the bytes of the *stored* values, so a literal of the table's type is taken back to the file's type
first: the value that, read from the file, becomes the literal. There is at most one, since a reader refuses values that
do not fit the table's type exactly, and a literal without one is in no row of the file:

| the table has | the file has          | the literal's stored value                               | in no file       |
|---------------|-----------------------|----------------------------------------------------------|------------------|
| integers      | other integers        | the number                                               | 300 as an int8   |
| decimals      | integers, decimals    | the digits at the file's scale                           | 1.5 as an int    |
| float, double | integers              | the number; unknown from where floats skip integers      | 1.5, infinities  |
| float, double | narrower floats       | the number; **both** zeros, which are equal; NaN unknown | 0.1 as a float   |
| times         | times of another unit | the ticks of the file's unit                             | 1 µs as ms       |
| timestamps    | dates                 | the day                                                  | noon             |
| text, bytes   | bytes                 | the bytes                                                | another width    |

Stored how: INT32 and INT64 in little endian (an int8 as INT32, an unsigned number by its bits), floats in IEEE 754,
decimals in fixed-length bytes as big-endian numbers of that very width, bytes without a length. Where writers differ
(decimals of variable length), where they write no filter (booleans), or where a type has several forms for one value
(INT96), nothing is asked.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.parquet.bloom import Array, Unavailable
from tamis.parquet.bounds import stored_type
from tamis.parquet.leaves import Leaf
from tamis.parquet.old_calendar import first_new
from tamis.parquet.xxh64 import xxh64_of_rows, xxh64_of_texts

_NO_HASHES = np.empty(0, np.uint64)
_PHYSICAL = {"INT32": "<i4", "INT64": "<i8"}
_FLOATS = {16: "<f2", 32: "<f4", 64: "<f8"}
_NANOSECONDS_PER_DAY = 86_400 * 10**9


def hashes_of(values: pa.Array, leaf: Leaf) -> Array | Unavailable:
    """The hashes of all stored values that equal one of the values, which are of the table's type.

    A column of the file holds one of the values only if it holds one of the hashes; where there are none, it holds
    none of the values. NULL equals nothing and has no hash.
    """
    values = _plain(values.drop_null())
    source = stored_type(leaf)
    if source is None or pa.types.is_boolean(source):
        return Unavailable(f"a Bloom filter does not tell values of {leaf.physical} {leaf.logical} apart")
    if not len(values):
        return _NO_HASHES
    if leaf.is_old and _may_be_old(values):
        return Unavailable("dates before 1582 are stored in the calendar of their time")
    if types.is_bytes(source):
        return _hashes_of_bytes(values, source)
    if pa.types.is_floating(source):
        return _hashes_of_floats(values, source)
    if pa.types.is_decimal(source) and leaf.physical not in _PHYSICAL:
        return _hashes_of_digits(values, source, leaf)
    numbers = _stored_numbers(values, source, leaf)
    if isinstance(numbers, Unavailable):
        return numbers
    return xxh64_of_rows(_rows(numbers.astype(_PHYSICAL[leaf.physical])))


def _may_be_old(values: pa.Array) -> bool:
    """Whether some value may be stored in another form than that of today: see `tamis.parquet.old_calendar`."""
    if not (pa.types.is_date32(values.type) or pa.types.is_timestamp(values.type)):
        return True
    numbers = values.view(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    return bool(pc.min(numbers).as_py() < first_new(values.type))


def _plain(values: pa.Array) -> pa.Array:
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values


def _cannot(values: pa.Array, source: pa.DataType) -> Unavailable:
    target, stored = types.type_name(values.type), types.type_name(source)
    return Unavailable(f"a {target} has no certain form among the stored values of {stored}")


def _rows(numbers: Array) -> Array:
    """Numbers as rows of the bytes that they are stored in."""
    return np.ascontiguousarray(numbers).view(np.uint8).reshape(len(numbers), numbers.dtype.itemsize)


# --- Whole numbers ---------------------------------------------------------------------------------------------------


def _stored_numbers(values: pa.Array, source: pa.DataType, leaf: Leaf) -> Array | Unavailable:
    """The stored numbers of values, without those that the file's type does not have."""
    if pa.types.is_decimal(source):
        digits = _digits(values, source)
        return digits if isinstance(digits, Unavailable) else _within(np.array(digits, object), source, leaf)
    if pa.types.is_integer(source):
        if pa.types.is_decimal(values.type):
            whole = _digits(values, pa.decimal128(38, 0))
            return whole if isinstance(whole, Unavailable) else _within(np.array(whole, object), source, leaf)
        if pa.types.is_floating(values.type):
            floats = _whole_floats(values)
            return floats if isinstance(floats, Unavailable) else _within(floats, source, leaf)
        if pa.types.is_integer(values.type):
            return _within(values.to_numpy(zero_copy_only=False), source, leaf)
        return _cannot(values, source)
    return _ticks(values, source, leaf)


def _within(numbers: Array, source: pa.DataType, leaf: Leaf) -> Array:
    """The numbers that fit the file's type, by their bits: those of large unsigned ones are those of negative ones."""
    if pa.types.is_integer(source):
        smallest, largest = types.integer_range(source)
    else:
        smallest, largest = types.integer_range(pa.int32() if leaf.physical == "INT32" else pa.int64())
    if numbers.dtype.kind in "iu":
        limits = np.iinfo(numbers.dtype)
        smallest, largest = max(smallest, int(limits.min)), min(largest, int(limits.max))
    fitting = numbers[(numbers >= smallest) & (numbers <= largest)]
    return fitting.astype(np.uint64 if largest >= 2**63 else np.int64)


def _whole_floats(values: pa.Array) -> Array | Unavailable:
    floats = values.to_numpy(zero_copy_only=False)
    # From here on several integers are read as one float, or as none.
    first_gap = 2.0 ** (np.finfo(floats.dtype).nmant + 1)
    finite = floats[np.isfinite(floats)]
    if (np.abs(finite) >= first_gap).any():
        return Unavailable("a float this large stands for several integers of the file")
    whole: Array = finite[finite == np.floor(finite)].astype(np.int64)
    return whole


def _ticks(values: pa.Array, source: pa.DataType, leaf: Leaf) -> Array | Unavailable:
    if not _is_same_kind_of_time(values.type, source, leaf):
        return _cannot(values, source)
    ticks = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64()).to_numpy(zero_copy_only=False)
    ticks = ticks.astype(np.int64)
    numerator, denominator = _tick(values.type), _tick(source)
    common = int(np.gcd(numerator, denominator))
    numerator, denominator = numerator // common, denominator // common
    largest = (2**63 - 1) // numerator
    ticks = ticks[(ticks >= -largest) & (ticks <= largest)] * np.int64(numerator)
    return _within(ticks[ticks % denominator == 0] // denominator, source, leaf)


def _is_same_kind_of_time(target: pa.DataType, source: pa.DataType, leaf: Leaf) -> bool:
    is_type = pa.types
    if is_type.is_timestamp(target) and is_type.is_timestamp(source):
        # An instant and a wall clock differ by a zone that nobody named. Files that know converted types only
        # cannot tell the two apart, and the table decides.
        zone_is_known = not leaf.parameters.get("is_from_converted_type", False)
        return not zone_is_known or (target.tz is None) == (source.tz is None)
    if is_type.is_timestamp(target) and is_type.is_date(source):
        return target.tz is None
    return any(same(target) and same(source) for same in (is_type.is_date, is_type.is_time, is_type.is_duration))


def _tick(data_type: pa.DataType) -> int:
    """The length of a tick in nanoseconds."""
    if pa.types.is_date32(data_type):
        return _NANOSECONDS_PER_DAY
    return 10**9 // types.UNITS_PER_SECOND["ms" if pa.types.is_date64(data_type) else data_type.unit]


# --- Decimals --------------------------------------------------------------------------------------------------------


def _hashes_of_digits(values: pa.Array, source: pa.DataType, leaf: Leaf) -> Array | Unavailable:
    if leaf.physical != "FIXED_LEN_BYTE_ARRAY":
        return Unavailable("decimals of variable length are stored in more than one form")
    digits = _digits(values, source)
    if isinstance(digits, Unavailable):
        return digits
    limit = 1 << (8 * leaf.length - 1)
    return xxh64_of_texts([each.to_bytes(leaf.length, "big", signed=True) for each in digits if -limit <= each < limit])


def _digits(values: pa.Array, source: pa.DataType) -> list[int] | Unavailable:
    """The values without their scale, at the scale of a decimal; those that have more digits are left out."""
    if not pa.types.is_decimal(values.type):
        return _cannot(values, source)
    scale = values.type.scale
    digits = [_unscaled(value, scale) for value in values.to_pylist()]
    if source.scale >= scale:
        factor = 10 ** (source.scale - scale)
        return [each * factor for each in digits]
    divisor = 10 ** (scale - source.scale)
    return [each // divisor for each in digits if each % divisor == 0]


def _unscaled(value: Decimal, scale: int) -> int:
    # From its digits, because arithmetic on decimals rounds to the context's precision.
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # Arrow has no infinite decimals
    whole = int("".join(map(str, digits))) * int(10 ** (exponent + scale))
    return -whole if sign else whole


# --- Floats ----------------------------------------------------------------------------------------------------------


def _hashes_of_floats(values: pa.Array, source: pa.DataType) -> Array | Unavailable:
    if not pa.types.is_floating(values.type):
        return _cannot(values, source)
    wide = values.to_numpy(zero_copy_only=False).astype(np.float64)
    if np.isnan(wide).any():
        return Unavailable("NaN has many forms, and a Bloom filter knows one")
    with np.errstate(over="ignore"):
        stored = wide.astype(_FLOATS[source.bit_width])
    stored = stored[stored.astype(np.float64) == wide]
    zeros = stored == 0
    if zeros.any():
        stored = np.concatenate([stored[~zeros], np.array([0.0, -0.0], stored.dtype)])
    return xxh64_of_rows(_rows(stored))


# --- Bytes -----------------------------------------------------------------------------------------------------------


def _hashes_of_bytes(values: pa.Array, source: pa.DataType) -> Array | Unavailable:
    is_text = types.is_text(values.type)
    if not (is_text or types.is_bytes(values.type)) or (is_text and pa.types.is_fixed_size_binary(source)):
        return _cannot(values, source)
    stored: list[Any] = pc.cast(values, pa.large_binary()).to_pylist()
    if pa.types.is_fixed_size_binary(source):
        stored = [value for value in stored if len(value) == source.byte_width]
    return xxh64_of_texts(stored)
