"""Bloom join filters: drop most rows of the probe side whose key is not among the many keys of the build side.

Each key sets two positions in a table with a byte per bit, since numpy reads bytes faster than bits. Filtering a
million values by half a million keys takes 20 ms; Arrow's `is_in` takes 145 ms, and an engine's join 70 ms. There are
false positives but no false negatives: the join tests the remaining rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis.scan.planning.projection import read_path

BYTES_PER_KEY = 8
MIN_ROWS_TO_DECIDE = 100_000
MAX_SELECTIVITY = 0.5
"""If a larger share of the first `MIN_ROWS_TO_DECIDE` rows passes, the filter does not pay and stops."""

_FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
"""Odd 64-bit multipliers: the upper bits of the product depend on all bits of the key."""

Bits = npt.NDArray[np.bool_]


class BloomJoinFilter:
    """A Bloom filter of keys of one type. It is compared by identity."""

    def __init__(self, keys: pa.Array) -> None:
        self.type = keys.type
        distinct = _to_integers(keys.drop_null())
        self._shift = np.uint64(64 - max(6, int(np.ceil(np.log2(max(1, len(distinct)) * BYTES_PER_KEY)))))
        self._bits = np.zeros(1 << (64 - int(self._shift)), bool)
        for factor in _FACTORS:
            self._bits[self._find_positions(distinct, factor)] = True

    @staticmethod
    def can_hold(data_type: pa.DataType | None) -> bool:
        """Return whether equality of a type is equality of at most 64 bits."""
        if data_type is None:
            return False
        is_temporal = pa.types.is_temporal(data_type) and not pa.types.is_interval(data_type)
        return bool(pa.types.is_integer(data_type) or is_temporal)

    def may_contain(self, values: pa.Array) -> Bits:
        """Return which values may be keys; NULL never is."""
        assert values.type == self.type
        numbers = _to_integers(values)
        passed: Bits = self._bits[self._find_positions(numbers, _FACTORS[0])]
        # Few values reach the second probe.
        left = np.flatnonzero(passed)
        passed[left] = self._bits[self._find_positions(numbers[left], _FACTORS[1])]
        if values.null_count:
            passed &= np.asarray(values.is_valid(), bool)
        return passed

    def _find_positions(self, numbers: npt.NDArray[np.uint64], factor: int) -> npt.NDArray[np.uint64]:
        return (numbers * np.uint64(factor)) >> self._shift


def apply_join_filter(
    batches: Iterable[pa.RecordBatch],
    join_filter: BloomJoinFilter,
    column: tuple[str, ...],
    *,
    min_rows_to_decide: int = MIN_ROWS_TO_DECIDE,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows whose column may be a key, as long as the filter drops many rows."""
    seen = passed = 0
    batches = iter(batches)
    for batch in batches:
        mask = join_filter.may_contain(read_path(batch, column))
        count = int(np.count_nonzero(mask))
        seen, passed = seen + len(mask), passed + count
        if count:
            yield batch if count == len(mask) else batch.filter(pa.array(mask))
        if seen >= min_rows_to_decide and passed > MAX_SELECTIVITY * seen:
            break
    yield from batches


def _to_integers(values: pa.Array) -> npt.NDArray[np.uint64]:
    """Return values as integers; any integer for NULL."""
    width = values.type.bit_width
    plain = values.view(pa.int32() if width == 32 else pa.int64()) if pa.types.is_temporal(values.type) else values
    if plain.null_count:
        plain = pc.fill_null(plain, 0)
    wide = np.int64 if pa.types.is_signed_integer(plain.type) else np.uint64
    found: npt.NDArray[np.uint64] = plain.to_numpy(zero_copy_only=False).astype(wide).view(np.uint64)
    return found
