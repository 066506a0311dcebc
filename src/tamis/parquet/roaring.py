"""Conversion between runs of rows and Roaring bitmaps, with memory proportional to the runs, not to the rows.

*From a bitmap.* A run starts at a row whose predecessor is not in the bitmap, and ends at one whose successor is not.
Shifting the whole bitmap by one and subtracting leaves exactly those rows, without decompression: one run of 2^31 rows
gives two numbers.

*To a bitmap.* pyroaring cannot add many ranges in one call: adding them one by one is a loop in Python, and adding
their rows takes memory for each row. But its portable format, which every Roaring library reads, has run containers,
and numpy can write that format completely:

    cookie (12347, and the number of containers − 1) · a bit for each container, set: it holds runs ·
    for each container: key (bits 16–31 of its rows), number of its rows − 1 · for each its offset, if there are
    four or more · for each container: number of runs, then for each run its start and its length − 1

All numbers have 16 bits and are little-endian, except the cookie and the offsets (32 bits). A 64-bit bitmap is a count
(64 bits), then for each group of 2^32 rows its number (32 bits) and its bitmap.
Measured for 1 M runs of 100 rows: 20 ms, where adding one range after the other takes 310 ms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pyroaring import AbstractBitMap, AbstractBitMap64, BitMap, BitMap64

from tamis.errors import InvalidArgument
from tamis.parquet.runs import Rows, Runs, expand_ranges

_COOKIE = 12347
_MIN_CONTAINERS_WITH_OFFSETS = 4


def runs_from_bitmap(bitmap: AbstractBitMap | AbstractBitMap64, total: int) -> Runs:
    """Return the normalised runs of a bitmap of either width over `total` rows."""
    if not isinstance(bitmap, AbstractBitMap | AbstractBitMap64):
        raise InvalidArgument(f"a Roaring bitmap is a pyroaring.BitMap or BitMap64, not {type(bitmap).__name__}")
    if bitmap and bitmap.max() >= total:
        raise InvalidArgument(f"row {bitmap.max()} of the bitmap is out of range: the selection has {total} rows")
    either: Any = bitmap  # the two widths have the same methods and no common type
    starts, lasts = either - either.shift(1), either - either.shift(-1)
    return np.array(starts.to_array(), dtype=np.int64), np.array(lasts.to_array(), dtype=np.int64) + 1


def bitmap_from_runs(starts: Rows, ends: Rows) -> BitMap:
    """Build the 32-bit bitmap of normalised runs of rows below 2^32."""
    if starts.size == 0:
        return BitMap()
    bitmap = BitMap.deserialize(serialise_runs(*split_at_containers(starts, ends)))
    bitmap.run_optimize()  # short runs take less memory as an array or as bits
    return bitmap


def bitmap64_from_runs(starts: Rows, ends: Rows) -> BitMap64:
    """Build the 64-bit bitmap of normalised runs."""
    if starts.size == 0:
        return BitMap64()
    starts, ends = split_at_containers(starts, ends)
    groups, firsts = np.unique(starts >> 32, return_index=True)
    parts = [np.array([groups.size], "<u8").tobytes()]
    for group, *runs in zip(groups, np.split(starts, firsts[1:]), np.split(ends, firsts[1:]), strict=True):
        parts += [np.array([group], "<u4").tobytes(), serialise_runs(*runs)]
    bitmap = BitMap64.deserialize(b"".join(parts))
    bitmap.run_optimize()
    return bitmap


def split_at_containers(starts: Rows, ends: Rows) -> Runs:
    """Split runs at container boundaries. A container has the 2^16 rows that share all higher bits."""
    first = starts >> 16
    further = ((ends - 1) >> 16) - first
    crossing = np.flatnonzero(further)
    edges = expand_ranges(first[crossing] + 1, further[crossing]) << 16
    # An edge ends one part and starts the next. Only the stable sort merges two sorted halves in one pass.
    starts, ends = np.concatenate((starts, edges)), np.concatenate((ends, edges))
    return np.sort(starts, kind="stable"), np.sort(ends, kind="stable")


def serialise_runs(starts: Rows, ends: Rows) -> bytes:
    """Serialise runs that do not cross containers, all in one group of 2^32 rows, in the portable format."""
    keys = (starts >> 16) & 0xFFFF
    firsts = np.concatenate(([0], np.flatnonzero(keys[1:] != keys[:-1]) + 1))
    counts = np.diff(firsts, append=starts.size)

    runs = np.empty((starts.size, 2), "<u2")
    runs[:, 0] = starts & 0xFFFF
    runs[:, 1] = ends - starts - 1
    body = np.insert(runs.ravel(), 2 * firsts, counts.astype("<u2"))

    descriptions = np.empty((firsts.size, 2), "<u2")
    descriptions[:, 0] = keys[firsts]
    descriptions[:, 1] = np.add.reduceat(ends - starts, firsts) - 1
    head = np.array([_COOKIE | (firsts.size - 1) << 16], "<u4").tobytes()
    head += np.packbits(np.ones(firsts.size, bool), bitorder="little").tobytes() + descriptions.tobytes()
    if firsts.size >= _MIN_CONTAINERS_WITH_OFFSETS:
        offsets = 2 * np.arange(firsts.size) + 4 * firsts
        head += (len(head) + 4 * firsts.size + offsets).astype("<u4").tobytes()
    return head + body.tobytes()
