"""Clustering of a column: how many pages a reader must open to find one value.

The measure is the *overlap*: among all pages that have values, the share whose min/max range contains a typical value
of the file. A lookup by `=` reads about that share of the column.

    1 / pages   every value lies in one page: the column is sorted, or equivalent to sorted
    100 %       every page covers everything: the row order is unrelated to this column

The values themselves are unknown, only the bounds of the pages. Bounds are extremes, not typical values: if rows are
shuffled, the min of a page lies inside half of the pages, and nearly all other values lie inside all pages. The ranges
do show where values crowd: in the sorted sequence of all bounds, wherever a lower bound is followed by an upper one,
the ranges are densest, and each range contains at least one such crowded position. (The most likely distribution has
its mass at these positions if only a range is known for each value.) The overlap of a page is the average share of
pages over the crowded positions in its range. The overlap of the column is the average over its pages.

    pages  [1, 4] [4, 8] [9, 9]     crowded: between 1 and 4, between 4 and 8, and 9; in one page each: 33 %
    pages  [1, 9] [2, 8] [1, 9]     crowded: between 2 and 8; in all three: 100 %
    pages  [1, 5] [3, 9] [7, 9]     crowded: between 3 and 5, between 7 and 9; in two pages each: 67 %

Only the order of the bounds matters: strings and dates are measured like numbers, and outliers have no influence.

A page with unknown bounds must be read for any value, so it counts as containing all of them. Pages with only NULLs do
not count. For a file without page index, row groups replace pages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]
Ranks = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Clustering:
    """The overlap of the value ranges of some units. Its minimum is 1 / units."""

    unit: str
    """`pages`, or `row_groups` where the file has no page index."""
    units: int
    overlap: float
    """Above 0, at most 1."""

    @property
    def units_per_value(self) -> float:
        """The number of units whose range contains a typical value."""
        return self.overlap * self.units


def measure_clustering(lower: pa.Array, upper: pa.Array, without_values: Mask, unit: str) -> Clustering | None:
    """Measure the overlap of ranges, one row each; a null bound is unknown. None if no range is known."""
    overlap = measure_overlap(lower, upper, without_values)
    return None if overlap is None else Clustering(unit, int(np.count_nonzero(~without_values)), overlap)


def measure_overlap(lower: pa.Array, upper: pa.Array, without_values: Mask) -> float | None:
    known = has_both_bounds(lower, upper) & ~without_values
    count = int(np.count_nonzero(known))
    if count == 0:
        return None
    unknown = int(np.count_nonzero(~without_values)) - count
    first, last = rank_bounds(lower.filter(pa.array(known)), upper.filter(pa.array(known)))
    return (float(_count_overlapping(first, last).mean()) + unknown) / (count + unknown)


def _count_overlapping(first: Ranks, last: Ranks) -> npt.NDArray[np.float64]:
    """Return for each range, given by the ranks of its bounds, how many ranges contain its crowded positions."""
    # The bound of rank r is at position 2r, and 2r + 1 is the gap between it and the next bound. Ranges that only touch
    # are not crowded there, so the ends of a range count only if the range has no interior.
    is_wide = first < last
    start, end = 2 * first + is_wide, 2 * last - is_wide
    positions = 2 * int(last.max()) + 1
    starts, ends = np.bincount(start, minlength=positions), np.bincount(end, minlength=positions)
    indexes = np.arange(positions)
    last_start = np.maximum.accumulate(np.where(starts > 0, indexes, -1))
    last_end = np.maximum.accumulate(np.where(ends > 0, indexes, -1))
    end_before = np.concatenate([[-1], last_end[:-1]])
    is_crowded = (ends > 0) & (last_start > end_before)
    # A lookup of a value that is a bound must also read the ranges that only touch it.
    holding = np.cumsum(np.bincount(2 * first, minlength=positions))
    holding[1:] -= np.cumsum(np.bincount(2 * last, minlength=positions))[:-1]
    crowded_until = np.concatenate([[0], np.cumsum(is_crowded)])
    held_until = np.concatenate([[0], np.cumsum(holding * is_crowded)])
    held, crowded = held_until[end + 1] - held_until[start], crowded_until[end + 1] - crowded_until[start]
    return np.asarray(held / crowded, np.float64)


def has_both_bounds(lower: pa.Array, upper: pa.Array) -> Mask:
    return np.asarray(pc.and_(lower.is_valid(), upper.is_valid()))


def rank_bounds(lower: pa.Array, upper: pa.Array) -> tuple[Ranks, Ranks]:
    """Return the dense ranks, from 0, of known bounds among all of them; equal bounds have equal ranks."""
    ranks = pc.rank(pa.chunked_array([lower, upper]).combine_chunks(), tiebreaker="dense")
    numbers = np.asarray(ranks).astype(np.int64) - 1
    return numbers[: len(lower)], numbers[len(lower) :]
