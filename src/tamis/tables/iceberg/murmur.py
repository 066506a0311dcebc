"""Murmur3, 32 bits, as Iceberg buckets values with it: many values at a time.

The hash takes four bytes after another, so that values are gone through together: the first four bytes of all, then the
next four of those that have more.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.types import UNITS_PER_SECOND

Hashes = npt.NDArray[np.uint32]

_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_STEP = np.uint32(0xE6546B64)
_MICROSECONDS = UNITS_PER_SECOND["us"]


def buckets_of(values: pa.Array, count: int) -> npt.NDArray[np.int32] | None:
    """The bucket of each value, none of which is null; None for types that have no buckets."""
    hashes = _hashes(values)
    return None if hashes is None else ((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(count)).astype(np.int32)


def _hashes(values: pa.Array) -> Hashes | None:
    data_type = values.type
    if pa.types.is_timestamp(data_type) or pa.types.is_time64(data_type):
        counts = values.view(types.LONG).to_numpy()
        # Nanoseconds are hashed as the microseconds that they are in.
        units = UNITS_PER_SECOND[data_type.unit]
        return _of_longs(np.floor_divide(counts, units // _MICROSECONDS)) if units >= _MICROSECONDS else None
    if pa.types.is_date32(data_type):
        return _of_longs(values.view(pa.int32()).to_numpy().astype(np.int64))
    if pa.types.is_signed_integer(data_type):
        return _of_longs(values.to_numpy().astype(np.int64))
    if pa.types.is_decimal128(data_type):
        return hash_bytes(_shortest(values))
    if types.is_text(data_type) or types.is_bytes(data_type):
        return hash_bytes(values.cast(types.BINARY))
    return None


def _of_longs(values: npt.NDArray[np.int64]) -> Hashes:
    bits = values.astype(np.int64).view(np.uint64)
    low, high = (bits & np.uint64(0xFFFFFFFF)).astype(np.uint32), (bits >> np.uint64(32)).astype(np.uint32)
    found = _mixed(_mixed(np.zeros(len(bits), np.uint32), low), high)
    return _finished(found ^ np.uint32(8))


def hash_bytes(values: pa.BinaryArray) -> Hashes:
    """The hash of each of some binaries, none of which is null."""
    lengths = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    buffers = values.buffers()
    offsets = np.frombuffer(buffers[1], np.int32, len(values) + 1, values.offset * 4).astype(np.int64)[:-1]
    padding = np.zeros(4, np.uint8)
    given = np.frombuffer(buffers[2], np.uint8) if buffers[2] is not None else padding[:0]
    content = np.concatenate([given, padding])
    found = np.zeros(len(values), np.uint32)
    for block in range(int(lengths.max(initial=0)) // 4):
        own = np.flatnonzero(lengths >= 4 * (block + 1))
        found[own] = _mixed(found[own], _word(content, offsets[own] + 4 * block))
    rest = lengths % 4
    has_rest = np.flatnonzero(rest)
    if len(has_rest):
        words = _word(content, offsets[has_rest] + lengths[has_rest] - rest[has_rest])
        kept = (np.uint64(1) << (np.uint64(8) * rest[has_rest].astype(np.uint64))) - np.uint64(1)
        found[has_rest] ^= _scrambled(words & kept.astype(np.uint32))
    return _finished(found ^ lengths.astype(np.uint32))


def _word(content: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]) -> Hashes:
    four = np.ascontiguousarray(content[starts[:, None] + np.arange(4)])
    return four.view("<u4").reshape(-1).astype(np.uint32)


def _scrambled(words: Hashes) -> Hashes:
    return _rotated(words * _C1, 15) * _C2


def _mixed(hashes: Hashes, words: Hashes) -> Hashes:
    return _rotated(hashes ^ _scrambled(words), 13) * np.uint32(5) + _STEP


def _rotated(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))


def _finished(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))


def _shortest(values: pa.Decimal128Array) -> pa.BinaryArray:
    """The unscaled numbers as the fewest big-endian bytes that hold them with their sign."""
    content = np.frombuffer(values.buffers()[1], np.uint8, 16 * len(values), 16 * values.offset).reshape(-1, 16)[
        :, ::-1
    ]
    sign = np.where(content[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
    # A leading byte is needless where it, and the highest bit behind it, are the sign.
    is_needless = (content[:, :-1] == sign) & ((content[:, 1:] >= 0x80) == (sign == 0xFF))
    leading = np.cumprod(is_needless, axis=1).sum(axis=1)
    kept = np.arange(16) >= leading[:, None]
    offsets = np.concatenate([[0], np.cumsum(16 - leading)]).astype(np.int32)
    return pa.Array.from_buffers(
        types.BINARY, len(values), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(content)[kept])]
    )
