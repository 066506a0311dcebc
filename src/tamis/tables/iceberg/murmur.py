"""The 32-bit Murmur3 hash of Iceberg's bucket transform, vectorized over values.

The hash consumes four bytes at a time, so all values are processed together: the first four bytes of all values, then
the next four of those that are longer.
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


def compute_buckets(values: pa.Array, count: int) -> npt.NDArray[np.int32] | None:
    """Return the bucket of each value; None for types without buckets. Values must not be null."""
    hashes = _hash_values(values)
    return None if hashes is None else ((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(count)).astype(np.int32)


def _hash_values(values: pa.Array) -> Hashes | None:
    data_type = values.type
    if pa.types.is_timestamp(data_type) or pa.types.is_time64(data_type):
        counts = values.view(types.LONG).to_numpy()
        # Nanoseconds are truncated to microseconds before hashing.
        units = UNITS_PER_SECOND[data_type.unit]
        return _hash_longs(np.floor_divide(counts, units // _MICROSECONDS)) if units >= _MICROSECONDS else None
    if pa.types.is_date32(data_type):
        return _hash_longs(values.view(pa.int32()).to_numpy().astype(np.int64))
    if pa.types.is_signed_integer(data_type):
        return _hash_longs(values.to_numpy().astype(np.int64))
    if pa.types.is_decimal128(data_type):
        return hash_bytes(_encode_decimals(values))
    if types.is_text(data_type) or types.is_bytes(data_type):
        return hash_bytes(values.cast(types.BINARY))
    return None


def _hash_longs(values: npt.NDArray[np.int64]) -> Hashes:
    bits = values.astype(np.int64).view(np.uint64)
    low, high = (bits & np.uint64(0xFFFFFFFF)).astype(np.uint32), (bits >> np.uint64(32)).astype(np.uint32)
    found = _mix(_mix(np.zeros(len(bits), np.uint32), low), high)
    return _finalize(found ^ np.uint32(8))


def hash_bytes(values: pa.BinaryArray) -> Hashes:
    """Return the hash of each binary value. Values must not be null."""
    lengths = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    buffers = values.buffers()
    offsets = np.frombuffer(buffers[1], np.int32, len(values) + 1, values.offset * 4).astype(np.int64)[:-1]
    padding = np.zeros(4, np.uint8)
    given = np.frombuffer(buffers[2], np.uint8) if buffers[2] is not None else padding[:0]
    content = np.concatenate([given, padding])
    found = np.zeros(len(values), np.uint32)
    for block in range(int(lengths.max(initial=0)) // 4):
        own = np.flatnonzero(lengths >= 4 * (block + 1))
        found[own] = _mix(found[own], _read_words(content, offsets[own] + 4 * block))
    tail = lengths % 4
    has_tail = np.flatnonzero(tail)
    if len(has_tail):
        words = _read_words(content, offsets[has_tail] + lengths[has_tail] - tail[has_tail])
        kept = (np.uint64(1) << (np.uint64(8) * tail[has_tail].astype(np.uint64))) - np.uint64(1)
        found[has_tail] ^= _scramble(words & kept.astype(np.uint32))
    return _finalize(found ^ lengths.astype(np.uint32))


def _read_words(content: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]) -> Hashes:
    four = np.ascontiguousarray(content[starts[:, None] + np.arange(4)])
    return four.view("<u4").reshape(-1).astype(np.uint32)


def _scramble(words: Hashes) -> Hashes:
    return _rotate(words * _C1, 15) * _C2


def _mix(hashes: Hashes, words: Hashes) -> Hashes:
    return _rotate(hashes ^ _scramble(words), 13) * np.uint32(5) + _STEP


def _rotate(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))


def _finalize(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))


def _encode_decimals(values: pa.Decimal128Array) -> pa.BinaryArray:
    """Encode the unscaled numbers as minimal big-endian two's complement bytes."""
    content = np.frombuffer(values.buffers()[1], np.uint8, 16 * len(values), 16 * values.offset).reshape(-1, 16)[
        :, ::-1
    ]
    sign = np.where(content[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
    # A leading byte is redundant if it, and the highest bit of the next byte, equal the sign.
    is_redundant = (content[:, :-1] == sign) & ((content[:, 1:] >= 0x80) == (sign == 0xFF))
    leading = np.cumprod(is_redundant, axis=1).sum(axis=1)
    kept = np.arange(16) >= leading[:, None]
    offsets = np.concatenate([[0], np.cumsum(16 - leading)]).astype(np.int32)
    return pa.Array.from_buffers(
        types.BINARY, len(values), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(content)[kept])]
    )
