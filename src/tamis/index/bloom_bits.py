"""Building Bloom filters of whole files: split blocks of 256 bits and xxh64, as `tamis.parquet.indexes.bloom_filter`
reads them.

A filter inside a Parquet file hashes values in the file's types. These hash values in the *table's* types, so that
files that store a column in different types are probed alike: every type has one canonical form that is hashed, given
by the leaf of `find_canonical_leaf`. That form is part of the format of an index and must never change.
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

MAX_FILTER_BYTES = 8 * 1024 * 1024
"""The maximum size of a filter. A file with more distinct values has no filter, and is always kept."""

SAMPLE_SIZE = 4096
"""The number of first values that are checked for duplicates."""

_BITS_PER_BLOCK = 8 * BLOCK_BYTES
_NO_HASHES = np.empty(0, np.uint64)
_UNITS = {"s": "milliseconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


@lru_cache(maxsize=256)
def find_canonical_leaf(data_type: pa.DataType) -> Leaf | None:
    """Return the Parquet leaf in whose physical form values of a type are hashed; None if they cannot be hashed."""
    kinds = pa.types
    if kinds.is_integer(data_type):
        signed = bool(kinds.is_signed_integer(data_type))
        return _make_leaf(data_type, "INT64", "INT", {"bitWidth": data_type.bit_width, "isSigned": signed})
    if kinds.is_floating(data_type):
        return _make_leaf(data_type, "DOUBLE", "NONE")
    if kinds.is_date(data_type):
        return _make_leaf(data_type, "INT32", "DATE")
    if kinds.is_time(data_type):
        return _make_leaf(data_type, "INT64", "TIME", {"timeUnit": "nanoseconds"})
    if kinds.is_timestamp(data_type):
        parameters = {"timeUnit": _UNITS[data_type.unit], "isAdjustedToUTC": data_type.tz is not None}
        return _make_leaf(data_type, "INT64", "TIMESTAMP", parameters)
    if kinds.is_duration(data_type):
        return _make_leaf(data_type, "INT64", "NONE")
    if kinds.is_decimal(data_type):
        return _make_leaf(data_type, "FIXED_LEN_BYTE_ARRAY", "DECIMAL", length=32, scale=data_type.scale)
    if kinds.is_fixed_size_binary(data_type):
        return _make_leaf(data_type, "FIXED_LEN_BYTE_ARRAY", "NONE", length=data_type.byte_width)
    if any(is_kind(data_type) for is_kind in (kinds.is_string, kinds.is_large_string, kinds.is_binary)):
        return _make_leaf(data_type, "BYTE_ARRAY", "NONE")
    return _make_leaf(data_type, "BYTE_ARRAY", "NONE") if kinds.is_large_binary(data_type) else None


def _make_leaf(
    data_type: pa.DataType,
    physical: str,
    logical: str,
    parameters: dict[str, object] | None = None,
    *,
    length: int = 0,
    scale: int = 0,
) -> Leaf:
    return Leaf(0, ("value",), physical, logical, parameters or {}, length, 0, scale, True, data_type)


def hash_column_values(values: pa.Array, leaf: Leaf) -> Array | None:
    """Return the hashes of the values of a column, possibly with duplicates; None if some have no canonical form."""
    values = values.drop_null()
    # If few values repeat, finding duplicates takes longer than hashing them.
    if pc.count_distinct(values[:SAMPLE_SIZE]).as_py() <= min(len(values), SAMPLE_SIZE) // 2:
        values = pc.unique(values)
    if pa.types.is_floating(values.type):
        # NaN is never looked up in a filter.
        values = values.filter(pc.invert(pc.is_nan(values)))
    return hash_distinct_values(values, leaf)


def sort_distinct(hashes: Array) -> Array:
    """Return the distinct hashes, ascending. `np.unique` builds a hash table first, and took fifty times as long."""
    ordered = np.sort(hashes)
    is_first = np.ones(len(ordered), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    found: Array = ordered[is_first]
    return found


def hash_distinct_values(values: pa.Array, leaf: Leaf) -> Array | None:
    """Return the hashes of distinct values; None if one of them (NaN) has none."""
    found = hash_stored_values(values, leaf) if len(values) else _NO_HASHES
    # Each value must have a hash: these are values of the table, which every file can hold.
    return None if isinstance(found, Unavailable) or len(found) < len(values) else found


@lru_cache(maxsize=64)
def compute_bits_per_value(false_positives: float) -> float:
    """Return the number of bits per value for a share of false positives.

    Values are distributed over blocks at random. With k values in a block, each of its eight 32-bit words has a given
    bit set with probability 1 - (31/32)^k, and a value is a false positive if all eight are set.

    >>> [round(compute_bits_per_value(share), 1) for share in (0.1, 0.01, 0.001)]
    [6.0, 10.5, 16.9]
    """
    fewest, most = 1.0, 1024.0
    while most - fewest > 0.001:
        bits = (fewest + most) / 2
        fewest, most = (bits, most) if _compute_false_positives(bits) > false_positives else (fewest, bits)
    return most


def _compute_false_positives(bits: float) -> float:
    load = _BITS_PER_BLOCK / bits
    chance = math.exp(-load)
    total = 0.0
    for count in range(1, int(load + 12 * math.sqrt(load) + 24)):
        chance *= load / count
        total += chance * (1 - (31 / 32) ** count) ** WORDS_PER_BLOCK
    return total


def compute_filter_size(distinct: int, false_positives: float) -> int:
    """Return the size in bytes of a filter for a number of distinct values.

    >>> compute_filter_size(0, 0.01), compute_filter_size(1000, 0.01), compute_filter_size(1000, 0.001)
    (32, 1344, 2112)
    """
    bits = distinct * compute_bits_per_value(false_positives)
    return max(1, math.ceil(bits / _BITS_PER_BLOCK)) * BLOCK_BYTES


def compute_max_distinct(false_positives: float, max_bytes: int = MAX_FILTER_BYTES) -> int:
    """Return the maximum number of distinct values of a file with a filter."""
    return int(8 * max_bytes / compute_bits_per_value(false_positives))


def build_filter(hashes: Array, false_positives: float, max_bytes: int = MAX_FILTER_BYTES) -> bytes | None:
    """Return the filter for ascending hashes; None if it would have more than `max_bytes`."""
    size = compute_filter_size(len(hashes), false_positives)
    if size > max_bytes:
        return None
    bits = np.zeros((size // BLOCK_BYTES, WORDS_PER_BLOCK), np.uint32)
    if len(hashes):
        # Ascending hashes are in ascending blocks, so that the hashes of a block are adjacent.
        blocks = find_blocks(hashes, len(bits))
        starts = np.flatnonzero(np.diff(blocks, prepend=-1))
        lower = hashes.astype(np.uint32)
        with np.errstate(over="ignore"):
            for position, salt in enumerate(SALTS):
                marks = np.uint32(1) << ((lower * salt) >> np.uint32(27))
                bits[blocks[starts], position] = np.bitwise_or.reduceat(marks, starts)
    return bits.astype("<u4").tobytes()
