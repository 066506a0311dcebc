"""Hashes of literals in their stored form, for Bloom filter lookups.

A filter hashes the bytes of the *stored* values, so a literal of the table's type is converted back to the file's type
first: to the stored value that is read as the literal. There is at most one, because a reader rejects values that the
table's type cannot represent exactly. A literal without a stored value is in no row of the file:

| table type    | file type             | stored value of the literal                              | in no file       |
|---------------|-----------------------|----------------------------------------------------------|------------------|
| integers      | other integers        | the number                                               | 300 as an int8   |
| decimals      | integers, decimals    | the digits at the file's scale                           | 1.5 as an int    |
| float, double | integers              | the number; unknown from where floats skip integers      | 1.5, infinities  |
| float, double | narrower floats       | the number; **both** zeros, which are equal; NaN unknown | 0.1 as a float   |
| times         | times of another unit | the ticks of the file's unit                             | 1 µs as ms       |
| timestamps    | dates                 | the day                                                  | noon             |
| text, bytes   | bytes                 | the bytes                                                | another width    |

Storage forms: INT32 and INT64 in little endian (an int8 as INT32, an unsigned number by its bits), floats in IEEE 754,
fixed-length decimals as big-endian numbers of exactly that width, bytes without a length prefix. No lookup is made
where writers differ (decimals of variable length), write no filter (booleans), or have several forms for one value
(INT96).
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.parquet.bloom import Array, Unavailable
from tamis.parquet.bounds import get_stored_type
from tamis.parquet.leaves import Leaf
from tamis.parquet.old_calendar import get_rebase_limit
from tamis.parquet.xxh64 import hash_byte_strings, hash_rows

_NO_HASHES = np.empty(0, np.uint64)
_PHYSICAL = {"INT32": "<i4", "INT64": "<i8"}
_FLOATS = {16: "<f2", 32: "<f4", 64: "<f8"}
_NANOSECONDS_PER_DAY = 86_400 * 10**9


def hash_stored_values(values: pa.Array, leaf: Leaf) -> Array | Unavailable:
    """Return the hashes of all stored values that equal one of `values`, which have the table's type.

    A column chunk contains one of the values only if its filter contains one of the hashes; without hashes it contains
    none of the values. NULL equals nothing and has no hash.
    """
    values = _decode_plain(values.drop_null())
    source = get_stored_type(leaf)
    if source is None or pa.types.is_boolean(source):
        return Unavailable(f"Bloom filters are not supported for {leaf.physical} {leaf.logical}")
    if not len(values):
        return _NO_HASHES
    if leaf.needs_rebase and _may_need_rebase(values):
        return Unavailable("dates before 1582 may be stored in the Julian calendar")
    if types.is_bytes(source):
        return _hash_bytes(values, source)
    if pa.types.is_floating(source):
        return _hash_floats(values, source)
    if pa.types.is_decimal(source) and leaf.physical not in _PHYSICAL:
        return _hash_decimals(values, source, leaf)
    numbers = _to_stored_numbers(values, source, leaf)
    if isinstance(numbers, Unavailable):
        return numbers
    return hash_rows(_as_byte_rows(numbers.astype(_PHYSICAL[leaf.physical])))


def _may_need_rebase(values: pa.Array) -> bool:
    """Return whether some value may be stored in the Julian calendar: see `tamis.parquet.old_calendar`."""
    if not (pa.types.is_date32(values.type) or pa.types.is_timestamp(values.type)):
        return True
    numbers = values.view(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    return bool(pc.min(numbers).as_py() < get_rebase_limit(values.type))


def _decode_plain(values: pa.Array) -> pa.Array:
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values


def _not_convertible(values: pa.Array, source: pa.DataType) -> Unavailable:
    target, stored = types.type_name(values.type), types.type_name(source)
    return Unavailable(f"a {target} literal cannot be converted to the stored type {stored} exactly")


def _as_byte_rows(numbers: Array) -> Array:
    """Return the bytes of the numbers, one row each."""
    return np.ascontiguousarray(numbers).view(np.uint8).reshape(len(numbers), numbers.dtype.itemsize)


# --- Whole numbers ---------------------------------------------------------------------------------------------------


def _to_stored_numbers(values: pa.Array, source: pa.DataType, leaf: Leaf) -> Array | Unavailable:
    """Return the stored numbers of the values, without those that the file's type cannot represent."""
    if pa.types.is_decimal(source):
        digits = _to_unscaled(values, source)
        return digits if isinstance(digits, Unavailable) else _keep_in_range(np.array(digits, object), source, leaf)
    if pa.types.is_integer(source):
        if pa.types.is_decimal(values.type):
            whole = _to_unscaled(values, pa.decimal128(38, 0))
            return whole if isinstance(whole, Unavailable) else _keep_in_range(np.array(whole, object), source, leaf)
        if pa.types.is_floating(values.type):
            floats = _to_whole_numbers(values)
            return floats if isinstance(floats, Unavailable) else _keep_in_range(floats, source, leaf)
        if pa.types.is_integer(values.type):
            return _keep_in_range(values.to_numpy(zero_copy_only=False), source, leaf)
        return _not_convertible(values, source)
    return _to_ticks(values, source, leaf)


def _keep_in_range(numbers: Array, source: pa.DataType, leaf: Leaf) -> Array:
    """Return the numbers in the range of the file's type; large unsigned numbers share the bits of negative ones."""
    if pa.types.is_integer(source):
        smallest, largest = types.integer_range(source)
    else:
        smallest, largest = types.integer_range(pa.int32() if leaf.physical == "INT32" else pa.int64())
    if numbers.dtype.kind in "iu":
        limits = np.iinfo(numbers.dtype)
        smallest, largest = max(smallest, int(limits.min)), min(largest, int(limits.max))
    fitting = numbers[(numbers >= smallest) & (numbers <= largest)]
    return fitting.astype(np.uint64 if largest >= 2**63 else np.int64)


def _to_whole_numbers(values: pa.Array) -> Array | Unavailable:
    floats = values.to_numpy(zero_copy_only=False)
    # From this magnitude on, several integers are read as the same float, or none is.
    first_gap = 2.0 ** (np.finfo(floats.dtype).nmant + 1)
    finite = floats[np.isfinite(floats)]
    if (np.abs(finite) >= first_gap).any():
        return Unavailable("several integers of the file convert to the same float at this magnitude")
    whole: Array = finite[finite == np.floor(finite)].astype(np.int64)
    return whole


def _to_ticks(values: pa.Array, source: pa.DataType, leaf: Leaf) -> Array | Unavailable:
    if not _is_same_kind_of_time(values.type, source, leaf):
        return _not_convertible(values, source)
    ticks = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64()).to_numpy(zero_copy_only=False)
    ticks = ticks.astype(np.int64)
    numerator, denominator = _nanoseconds_per_tick(values.type), _nanoseconds_per_tick(source)
    common = int(np.gcd(numerator, denominator))
    numerator, denominator = numerator // common, denominator // common
    largest = (2**63 - 1) // numerator
    ticks = ticks[(ticks >= -largest) & (ticks <= largest)] * np.int64(numerator)
    return _keep_in_range(ticks[ticks % denominator == 0] // denominator, source, leaf)


def _is_same_kind_of_time(target: pa.DataType, source: pa.DataType, leaf: Leaf) -> bool:
    is_type = pa.types
    if is_type.is_timestamp(target) and is_type.is_timestamp(source):
        # An instant and a local timestamp differ by an unknown zone. Files with only converted types do not
        # distinguish the two, so the table's type decides.
        zone_is_known = not leaf.parameters.get("is_from_converted_type", False)
        return not zone_is_known or (target.tz is None) == (source.tz is None)
    if is_type.is_timestamp(target) and is_type.is_date(source):
        return target.tz is None
    return any(same(target) and same(source) for same in (is_type.is_date, is_type.is_time, is_type.is_duration))


def _nanoseconds_per_tick(data_type: pa.DataType) -> int:
    """Return the length of a tick in nanoseconds."""
    if pa.types.is_date32(data_type):
        return _NANOSECONDS_PER_DAY
    return 10**9 // types.UNITS_PER_SECOND["ms" if pa.types.is_date64(data_type) else data_type.unit]


# --- Decimals --------------------------------------------------------------------------------------------------------


def _hash_decimals(values: pa.Array, source: pa.DataType, leaf: Leaf) -> Array | Unavailable:
    if leaf.physical != "FIXED_LEN_BYTE_ARRAY":
        return Unavailable("decimals of variable length have more than one stored form")
    digits = _to_unscaled(values, source)
    if isinstance(digits, Unavailable):
        return digits
    limit = 1 << (8 * leaf.length - 1)
    return hash_byte_strings(
        [each.to_bytes(leaf.length, "big", signed=True) for each in digits if -limit <= each < limit]
    )


def _to_unscaled(values: pa.Array, source: pa.DataType) -> list[int] | Unavailable:
    """Return the unscaled integers of the values at the scale of `source`, without values that have more digits."""
    if not pa.types.is_decimal(values.type):
        return _not_convertible(values, source)
    scale = values.type.scale
    digits = [_unscale(value, scale) for value in values.to_pylist()]
    if source.scale >= scale:
        factor = 10 ** (source.scale - scale)
        return [each * factor for each in digits]
    divisor = 10 ** (scale - source.scale)
    return [each // divisor for each in digits if each % divisor == 0]


def _unscale(value: Decimal, scale: int) -> int:
    # From its digits, because arithmetic on decimals rounds to the context's precision.
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # Arrow has no infinite decimals
    whole = int("".join(map(str, digits))) * int(10 ** (exponent + scale))
    return -whole if sign else whole


# --- Floats ----------------------------------------------------------------------------------------------------------


def _hash_floats(values: pa.Array, source: pa.DataType) -> Array | Unavailable:
    if not pa.types.is_floating(values.type):
        return _not_convertible(values, source)
    wide = values.to_numpy(zero_copy_only=False).astype(np.float64)
    if np.isnan(wide).any():
        return Unavailable("NaN has many bit patterns, and a Bloom filter contains only those that were written")
    with np.errstate(over="ignore"):
        stored = wide.astype(_FLOATS[source.bit_width])
    stored = stored[stored.astype(np.float64) == wide]
    zeros = stored == 0
    if zeros.any():
        stored = np.concatenate([stored[~zeros], np.array([0.0, -0.0], stored.dtype)])
    return hash_rows(_as_byte_rows(stored))


# --- Bytes -----------------------------------------------------------------------------------------------------------


def _hash_bytes(values: pa.Array, source: pa.DataType) -> Array | Unavailable:
    is_text = types.is_text(values.type)
    if not (is_text or types.is_bytes(values.type)) or (is_text and pa.types.is_fixed_size_binary(source)):
        return _not_convertible(values, source)
    stored: list[Any] = pc.cast(values, pa.large_binary()).to_pylist()
    if pa.types.is_fixed_size_binary(source):
        stored = [value for value in stored if len(value) == source.byte_width]
    return hash_byte_strings(stored)
