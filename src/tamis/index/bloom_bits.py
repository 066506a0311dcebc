"""Bloom filters of whole files, made here: split blocks of 256 bits and xxh64, as `tamis.parquet.indexes.bloom_filter`
reads them.

A filter inside a Parquet file knows values as that file stores them. These know values as the *table* has them, so that
files that store a column in different types are asked the same question: every type has one form in which it is
hashed, given by the leaf of `canonical_leaf`. That form is part of the format of an index and must never change.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.parquet.footer.leaves import Leaf
from tamis.parquet.indexes.bloom_filter import (
    BLOCK_BYTES,
    SALTS,
    WORDS_PER_BLOCK,
    Array,
    Unavailable,
    find_blocks,
    hash_stored_values,
)

LARGEST_FILTER = 8 * 1024 * 1024
"""A file with so many distinct values that its filter would be larger has none: it is kept."""

SAMPLE = 4096
"""Of so many values at the beginning it is found out whether values repeat."""

_BITS_OF_A_BLOCK = 8 * BLOCK_BYTES
_NO_HASHES = np.empty(0, np.uint64)
_UNITS = {"s": "milliseconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


@lru_cache(maxsize=256)
def canonical_leaf(data_type: pa.DataType) -> Leaf | None:
    """How values of a type are hashed, said as a column of a Parquet file that would store them; None for no way."""
    kinds = pa.types
    if kinds.is_integer(data_type):
        signed = bool(kinds.is_signed_integer(data_type))
        return _leaf(data_type, "INT64", "INT", {"bitWidth": data_type.bit_width, "isSigned": signed})
    if kinds.is_floating(data_type):
        return _leaf(data_type, "DOUBLE", "NONE")
    if kinds.is_date(data_type):
        return _leaf(data_type, "INT32", "DATE")
    if kinds.is_time(data_type):
        return _leaf(data_type, "INT64", "TIME", {"timeUnit": "nanoseconds"})
    if kinds.is_timestamp(data_type):
        parameters = {"timeUnit": _UNITS[data_type.unit], "isAdjustedToUTC": data_type.tz is not None}
        return _leaf(data_type, "INT64", "TIMESTAMP", parameters)
    if kinds.is_duration(data_type):
        return _leaf(data_type, "INT64", "NONE")
    if kinds.is_decimal(data_type):
        return _leaf(data_type, "FIXED_LEN_BYTE_ARRAY", "DECIMAL", length=32, scale=data_type.scale)
    if kinds.is_fixed_size_binary(data_type):
        return _leaf(data_type, "FIXED_LEN_BYTE_ARRAY", "NONE", length=data_type.byte_width)
    if any(is_kind(data_type) for is_kind in (kinds.is_string, kinds.is_large_string, kinds.is_binary)):
        return _leaf(data_type, "BYTE_ARRAY", "NONE")
    return _leaf(data_type, "BYTE_ARRAY", "NONE") if kinds.is_large_binary(data_type) else None


def _leaf(
    data_type: pa.DataType,
    physical: str,
    logical: str,
    parameters: dict[str, object] | None = None,
    *,
    length: int = 0,
    scale: int = 0,
) -> Leaf:
    return Leaf(0, ("value",), physical, logical, parameters or {}, length, 0, scale, True, data_type)


def hashes_of_values(values: pa.Array, leaf: Leaf) -> Array | None:
    """The hashes of the values of a column, some maybe often; None where some have no certain form."""
    values = values.drop_null()
    # To find values that repeat takes longer than to hash them, where few do.
    if pc.count_distinct(values[:SAMPLE]).as_py() <= min(len(values), SAMPLE) // 2:
        values = pc.unique(values)
    if pa.types.is_floating(values.type):
        # A question about NaN is never answered, so it need not be there.
        values = values.filter(pc.invert(pc.is_nan(values)))
    return hashes_of_items(values, leaf)


def ascending(hashes: Array) -> Array:
    """Each hash once. `np.unique` looks for repeated ones in a table first, and took fifty times as long."""
    ordered = np.sort(hashes)
    is_first = np.ones(len(ordered), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    found: Array = ordered[is_first]
    return found


def hashes_of_items(values: pa.Array, leaf: Leaf) -> Array | None:
    """The hashes of distinct values; None where one of them (NaN) has none, so that nothing can be said of it."""
    found = hash_stored_values(values, leaf) if len(values) else _NO_HASHES
    # A value without a form in a file is in no file; but these are values of the table, and each must have one.
    return None if isinstance(found, Unavailable) or len(found) < len(values) else found


@lru_cache(maxsize=64)
def bits_of_a_value(false_positives: float) -> float:
    """How many bits a filter has for each value, so that it is wrong about others no more often than that.

    Blocks get values at random, some more than others. With k values in it each of a block's eight words of 32 bits
    has a certain bit set by chance with probability 1 - (31/32)^k, and a value is taken for present if all eight are.

    >>> [round(bits_of_a_value(share), 1) for share in (0.1, 0.01, 0.001)]
    [6.0, 10.5, 16.9]
    """
    fewest, most = 1.0, 1024.0
    while most - fewest > 0.001:
        bits = (fewest + most) / 2
        fewest, most = (bits, most) if _expected_share(bits) > false_positives else (fewest, bits)
    return most


def _expected_share(bits: float) -> float:
    load = _BITS_OF_A_BLOCK / bits
    chance = math.exp(-load)
    total = 0.0
    for count in range(1, int(load + 12 * math.sqrt(load) + 24)):
        chance *= load / count
        total += chance * (1 - (31 / 32) ** count) ** WORDS_PER_BLOCK
    return total


def filter_size(distinct: int, false_positives: float) -> int:
    """The bytes of a filter for so many values.

    >>> filter_size(0, 0.01), filter_size(1000, 0.01), filter_size(1000, 0.001)
    (32, 1344, 2112)
    """
    bits = distinct * bits_of_a_value(false_positives)
    return max(1, math.ceil(bits / _BITS_OF_A_BLOCK)) * BLOCK_BYTES


def most_distinct(false_positives: float) -> int:
    """With more values than this a file has no filter."""
    return int(8 * LARGEST_FILTER / bits_of_a_value(false_positives))


def bits_of(hashes: Array, false_positives: float) -> bytes | None:
    """The filter of values whose hashes are ascending; None where it would be too large to be worth reading."""
    size = filter_size(len(hashes), false_positives)
    if size > LARGEST_FILTER:
        return None
    bits = np.zeros((size // BLOCK_BYTES, WORDS_PER_BLOCK), np.uint32)
    if len(hashes):
        # Ascending hashes are in ascending blocks, so that the bits of a block are next to each other.
        blocks = find_blocks(hashes, len(bits))
        starts = np.flatnonzero(np.diff(blocks, prepend=-1))
        lower = hashes.astype(np.uint32)
        with np.errstate(over="ignore"):
            for position, salt in enumerate(SALTS):
                marks = np.uint32(1) << ((lower * salt) >> np.uint32(27))
                bits[blocks[starts], position] = np.bitwise_or.reduceat(marks, starts)
    return bits.astype("<u4").tobytes()
