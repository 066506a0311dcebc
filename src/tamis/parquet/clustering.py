"""How clustered a column is: how many pages a reader must open to find one value.

The measure is the *overlap*: of all pages that have values, the share whose range, from its smallest to its largest
value, holds a typical value of the file. A lookup by `=` reads about that share of the column.

    1 / pages   every value lies in one page: the column is sorted, or might as well be
    100 %       every page covers everything: the order of the rows says nothing about this column

Values themselves are not at hand, only the bounds of the pages. Bounds are extremes, and no typical values: where rows
are shuffled, the smallest value of a page lies inside of half of the pages, and nearly all other values inside of all.
What the ranges say about where the values are is that they crowd: going up through all bounds in their order, wherever
a lower bound is followed by an upper one, the ranges are closest together, and each range has at least one such place
within it. (Those places are the ones where the most likely distribution has its mass, if all that is known of values
is a range for each.) The overlap of a page is the average share of pages over the crowded places in its range, and the
overlap of the column the average over its pages.

    pages  [1, 4] [4, 8] [9, 9]     crowded: between 1 and 4, between 4 and 8, and 9; in one page each: 33 %
    pages  [1, 9] [2, 8] [1, 9]     crowded: between 2 and 8; in all three: 100 %
    pages  [1, 5] [3, 9] [7, 9]     crowded: between 3 and 5, between 7 and 9; in two pages each: 67 %

Only the order of the bounds matters: texts and dates are measured like numbers, and no outlier stretches a scale.

A page whose bounds are unknown has to be read for any value, so it counts as holding all of them. Pages without values,
of NULL only, hold none and do not count. Where a file has no page index, row groups take the place of pages.
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
    """The overlap of the ranges of some units that have values. The least that it can be is one unit of all."""

    unit: str
    """`pages`, or `row_groups` where the file has no page index."""
    units: int
    overlap: float
    """Above 0, at most 1."""

    @property
    def units_of_a_value(self) -> float:
        """In the ranges of how many units a typical value lies."""
        return self.overlap * self.units


def measure_clustering(lower: pa.Array, upper: pa.Array, without_values: Mask, unit: str) -> Clustering | None:
    """The overlap of ranges, a row each; null is an unknown bound. None where no range at all is known."""
    overlap = range_overlap(lower, upper, without_values)
    return None if overlap is None else Clustering(unit, int(np.count_nonzero(~without_values)), overlap)


def range_overlap(lower: pa.Array, upper: pa.Array, without_values: Mask) -> float | None:
    known = both_known(lower, upper) & ~without_values
    count = int(np.count_nonzero(known))
    if count == 0:
        return None
    unknown = int(np.count_nonzero(~without_values)) - count
    first, last = bound_ranks(lower.filter(pa.array(known)), upper.filter(pa.array(known)))
    return (float(_holding(first, last).mean()) + unknown) / (count + unknown)


def _holding(first: Ranks, last: Ranks) -> npt.NDArray[np.float64]:
    """For each range, given by the ranks of its bounds: how many ranges hold a value of its crowded places."""
    # The bound of rank r is at position 2r, and 2r + 1 is what lies between it and the next one. Ranges that only touch
    # crowd nowhere, so the ends of a range count for that only where it has nothing else.
    is_wide = first < last
    start, end = 2 * first + is_wide, 2 * last - is_wide
    positions = 2 * int(last.max()) + 1
    starts, ends = np.bincount(start, minlength=positions), np.bincount(end, minlength=positions)
    place = np.arange(positions)
    last_start = np.maximum.accumulate(np.where(starts > 0, place, -1))
    last_end = np.maximum.accumulate(np.where(ends > 0, place, -1))
    end_before = np.concatenate([[-1], last_end[:-1]])
    is_crowded = (ends > 0) & (last_start > end_before)
    # Whoever looks for a value that is a bound must also read the ranges that only touch it.
    holding = np.cumsum(np.bincount(2 * first, minlength=positions))
    holding[1:] -= np.cumsum(np.bincount(2 * last, minlength=positions))[:-1]
    crowded_until = np.concatenate([[0], np.cumsum(is_crowded)])
    held_until = np.concatenate([[0], np.cumsum(holding * is_crowded)])
    held, crowded = held_until[end + 1] - held_until[start], crowded_until[end + 1] - crowded_until[start]
    return np.asarray(held / crowded, np.float64)


def both_known(lower: pa.Array, upper: pa.Array) -> Mask:
    return np.asarray(pc.and_(lower.is_valid(), upper.is_valid()))


def bound_ranks(lower: pa.Array, upper: pa.Array) -> tuple[Ranks, Ranks]:
    """The ranks, from 0 on, of known bounds in the order of all of them; equal ones have the same."""
    ranks = pc.rank(pa.chunked_array([lower, upper]).combine_chunks(), tiebreaker="dense")
    numbers = np.asarray(ranks).astype(np.int64) - 1
    return numbers[: len(lower)], numbers[len(lower) :]
