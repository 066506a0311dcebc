"""Vectorised xxh64 with seed 0, the hash of Parquet's Bloom filters.

The library needs one call per value. Here a hundred thousand numbers are hashed in a few milliseconds, all rows side by
side: below 32 bytes the hash is a short chain of steps that is the same for all values of one width. Longer values, and
values of different lengths, use the library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xxhash

Array = np.ndarray[Any, Any]

_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)

_MAX_WIDTH = 31
"""The maximum width here. From 32 bytes on the hash has four lanes, which are left to the library."""


def hash_rows(rows: Array) -> Array:
    """Return the hashes of the rows of a byte matrix.

    >>> [hex(each) for each in xxh64_of_rows(np.frombuffer(b"abcdefgh", np.uint8).reshape(2, 4)).tolist()]
    ['0xde0327b0d25d92cc', '0xfe796c96042e67c9']
    """
    count, width = rows.shape
    if width > _MAX_WIDTH:
        return hash_byte_strings([row.tobytes() for row in rows])
    rows = np.ascontiguousarray(rows)
    with np.errstate(over="ignore"):
        state = np.full(count, _PRIME_5 + np.uint64(width), np.uint64)
        position = 0
        while position + 8 <= width:
            lane = _read_integers(rows, position, "<u8") * _PRIME_2
            state ^= _rotate_left(lane, 31) * _PRIME_1
            state = _rotate_left(state, 27) * _PRIME_1 + _PRIME_4
            position += 8
        if position + 4 <= width:
            state ^= _read_integers(rows, position, "<u4") * _PRIME_1
            state = _rotate_left(state, 23) * _PRIME_2 + _PRIME_3
            position += 4
        for last in range(position, width):
            state ^= rows[:, last].astype(np.uint64) * _PRIME_5
            state = _rotate_left(state, 11) * _PRIME_1
        state ^= state >> np.uint64(33)
        state *= _PRIME_2
        state ^= state >> np.uint64(29)
        state *= _PRIME_3
        state ^= state >> np.uint64(32)
    return state


def hash_byte_strings(values: Sequence[bytes]) -> Array:
    """Return the hashes of values of any length."""
    digest = xxhash.xxh64_intdigest
    return np.fromiter((digest(value) for value in values), np.uint64, len(values))


def _read_integers(rows: Array, position: int, form: str) -> Array:
    width = np.dtype(form).itemsize
    column = np.ascontiguousarray(rows[:, position : position + width])
    return column.view(form).reshape(len(rows)).astype(np.uint64)


def _rotate_left(values: Array, bits: int) -> Array:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))
