"""`RowSelection`, a set of selected rows of a file that is compact while it consists of few runs.

A selection counts its rows over the concatenated *kept* row groups of a file: pruning drops row groups first, and later
steps work on the remaining ones. For positions in the file (deletes), `in_file` and `in_row_groups` convert between the
two.

    row groups of the file     0: rows 0–99    1: rows 100–199    2: rows 200–299
    kept                       0                                  2
    selection over 200 rows    0–99                               100–199
    `[95, 105)` of it is       `[95, 100)` and `[200, 205)` of the file

Every operation returns the normalised form of `tamis.parquet.selection.runs`, so equal sets of rows are equal
selections.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis.errors import InvalidArgument, suggest_arguments
from tamis.parquet.selection import runs
from tamis.parquet.selection.runs import Rows, Runs

if TYPE_CHECKING:
    from pyroaring import BitMap, BitMap64

    Ranges = Iterable[tuple[int, int]] | npt.NDArray[np.integer[Any]]
    Integers = Sequence[int] | npt.NDArray[np.integer[Any]]

_SHOWN_RUNS = 4


class RowSelection:
    """An immutable subset of the rows 0 to `total` − 1, stored as sorted half-open runs that do not overlap or touch.

    `RowSelection(starts, ends, total)` accepts ranges in any order, overlapping or empty, and normalises them;
    `from_ranges` accepts pairs.

    There is no `len()`: it could mean `total`, `row_count` or `num_runs`. So a selection is always true, even an empty
    one, and `selection or default` only replaces None.

    >>> wanted = RowSelection.from_ranges([(0, 10), (8, 20), (50, 60)], total=100)
    >>> wanted
    RowSelection(30 of 100 rows: [0, 20) [50, 60))
    >>> wanted & ~RowSelection.from_ranges([(5, 55)], 100)
    RowSelection(10 of 100 rows: [0, 5) [55, 60))
    """

    __slots__ = ("_ends", "_rows_before", "_starts", "_total")

    def __init__(self, starts: Integers, ends: Integers, total: SupportsIndex) -> None:
        rows = _check_total(total)
        found = runs.normalise_ranges(*runs.validate_ranges(starts, ends, rows))
        # Copies protect the selection from later changes of the caller's arrays.
        self._set(found[0].copy(), found[1].copy(), rows)

    def _set(self, starts: Rows, ends: Rows, total: int) -> None:
        starts.flags.writeable = False
        ends.flags.writeable = False
        self._starts, self._ends, self._total = starts, ends, total
        self._rows_before: Rows | None = None

    @classmethod
    def _from_runs(cls, normalised: Runs, total: int) -> RowSelection:
        selection = cls.__new__(cls)
        selection._set(*normalised, total)
        return selection

    # --- Construction -------------------------------------------------------------------------------------------------

    @classmethod
    @suggest_arguments("RowSelection.from_ranges")
    def from_ranges(cls, ranges: Ranges, total: SupportsIndex) -> RowSelection:
        """Select pairs `(start, end)`, or an array of two columns, in any order; they may overlap or be empty."""
        rows = _check_total(total)
        starts, ends = runs.validate_pairs(ranges, rows)
        return cls(starts, ends, rows)

    @classmethod
    @suggest_arguments("RowSelection.all")
    def all(cls, total: SupportsIndex) -> RowSelection:
        """Return the selection of all of so many rows."""
        return cls([0], [index(total)], total)

    @classmethod
    @suggest_arguments("RowSelection.none")
    def none(cls, total: SupportsIndex) -> RowSelection:
        """Return the selection of none of so many rows."""
        return cls([], [], total)

    @classmethod
    @suggest_arguments("RowSelection.from_mask")
    def from_mask(
        cls, mask: npt.NDArray[np.bool_] | pa.BooleanArray | pa.ChunkedArray | Sequence[bool]
    ) -> RowSelection:
        """Select the rows for which a mask is true. A mask with NULL is an error."""
        if isinstance(mask, pa.Array | pa.ChunkedArray) and mask.null_count:
            raise InvalidArgument(f"a mask of rows must not contain NULL, found {mask.null_count}: use fill_null first")
        values = np.asarray(mask)
        if values.ndim != 1 or (values.size and values.dtype != np.bool_):
            raise InvalidArgument(
                f"a mask of rows must be one dimension of booleans, found {values.ndim} of {values.dtype}"
            )
        values = values.astype(np.bool_, copy=False)
        changes = np.flatnonzero(values[1:] != values[:-1]) + 1
        bounds = np.concatenate(([0] * bool(values[:1].any()), changes, [values.size] * bool(values[-1:].any())))
        bounds = bounds.astype(np.int64, copy=False)
        return cls._from_runs((bounds[0::2].copy(), bounds[1::2].copy()), values.size)

    @classmethod
    @suggest_arguments("RowSelection.from_indices")
    def from_indices(cls, indices: Integers, total: SupportsIndex) -> RowSelection:
        """Select single rows, in any order; duplicates count once."""
        limit, rows = _check_total(total), runs.as_row_array(indices, "rows")
        if rows.ndim != 1:
            raise InvalidArgument(f"rows must have one dimension, found {rows.ndim}")
        if (rows[1:] < rows[:-1]).any():
            rows = np.sort(rows)
        if rows.size and (rows[0] < 0 or rows[-1] >= limit):
            wrong = rows[0] if rows[0] < 0 else rows[-1]
            raise InvalidArgument(f"no row {wrong} in {limit} rows")
        return cls._from_runs(runs.runs_from_sorted_rows(rows), limit)

    @classmethod
    @suggest_arguments("RowSelection.from_roaring")
    def from_roaring(cls, bitmap: BitMap | BitMap64, total: SupportsIndex) -> RowSelection:
        """Select the rows of a Roaring bitmap of either width, without expanding it."""
        rows = _check_total(total)
        return cls._from_runs(runs.runs_from_bitmap(bitmap, rows), rows)

    @classmethod
    def concat(cls, selections: Iterable[RowSelection]) -> RowSelection:
        """Concatenate selections; the inverse of `split`."""
        parts = list(selections)
        totals = [part.total for part in parts]
        total = _check_total(sum(totals))
        if not parts:
            return cls.none(0)
        shifts = np.repeat(np.cumsum([0, *totals[:-1]], dtype=np.int64), [part.num_runs for part in parts])
        starts = np.concatenate([part._starts for part in parts]) + shifts
        ends = np.concatenate([part._ends for part in parts]) + shifts
        return cls._from_runs(runs.merge_adjacent(starts, ends), total)

    # --- Properties ---------------------------------------------------------------------------------------------------

    @property
    def total(self) -> int:
        """The number of rows of the kept row groups, from which rows are selected."""
        return self._total

    @property
    def row_count(self) -> int:
        """The number of selected rows."""
        return int(self._cumulative_counts[-1])

    @property
    def num_runs(self) -> int:
        """The number of runs of consecutive selected rows."""
        return self._starts.size

    @property
    def starts(self) -> Rows:
        """The first row of each run; read-only."""
        return self._starts

    @property
    def ends(self) -> Rows:
        """The row after the last of each run; read-only."""
        return self._ends

    @property
    def is_all(self) -> bool:
        """Return whether all rows are selected."""
        return self.num_runs <= 1 and self.row_count == self._total

    @property
    def is_empty(self) -> bool:
        """Return whether no row is selected. If `total` is 0, a selection is both empty and all."""
        return self.num_runs == 0

    def ranges(self) -> list[tuple[int, int]]:
        """Return the start and the end of each run of selected rows."""
        return list(zip(self._starts.tolist(), self._ends.tolist(), strict=True))

    @property
    def _cumulative_counts(self) -> Rows:
        """The number of selected rows before each run, and finally in total."""
        if self._rows_before is None:
            self._rows_before = np.concatenate(([0], np.cumsum(self._ends - self._starts)))
        return self._rows_before

    def _count_before(self, rows: Rows) -> Rows:
        if self.is_empty:
            return np.zeros_like(rows)
        run = np.searchsorted(self._starts, rows, side="right") - 1
        # Before the first run, `run` is -1, a valid index whose result is replaced below.
        before = self._cumulative_counts[run] + np.minimum(rows, self._ends[run]) - self._starts[run]
        return np.where(run < 0, 0, before)

    def overlaps(self, starts: Integers, ends: Integers) -> npt.NDArray[np.bool_]:
        """Return for each range, such as a page, whether it contains a selected row."""
        starts, ends = runs.validate_ranges(starts, ends, self._total)
        # True if some run that ends after the range's start also starts before the range's end.
        ended = np.searchsorted(self._ends, starts, side="right")
        return (ended < np.searchsorted(self._starts, ends, side="left")) & (starts < ends)

    # --- Algebra ------------------------------------------------------------------------------------------------------

    def intersection(self, other: RowSelection) -> RowSelection:
        """Return the rows that both select."""
        self._check_same_rows(other)
        if self.is_all or other.is_empty:
            return other
        if other.is_all or self.is_empty:
            return self
        return self._from_runs(runs.intersect_runs(self._starts, self._ends, other._starts, other._ends), self._total)

    def union(self, other: RowSelection) -> RowSelection:
        """Return the rows that at least one of both selects."""
        self._check_same_rows(other)
        if self.is_empty or other.is_all:
            return other
        if other.is_empty or self.is_all:
            return self
        starts = np.concatenate((self._starts, other._starts))
        return self._from_runs(runs.normalise_ranges(starts, np.concatenate((self._ends, other._ends))), self._total)

    def difference(self, other: RowSelection) -> RowSelection:
        """Return the selected rows that the other does not select."""
        self._check_same_rows(other)
        return self & ~other

    def invert(self) -> RowSelection:
        """Return the rows that are not selected."""
        return self._from_runs(runs.invert_runs(self._starts, self._ends, self._total), self._total)

    def __and__(self, other: RowSelection) -> RowSelection:
        return self.intersection(other) if isinstance(other, RowSelection) else NotImplemented

    def __or__(self, other: RowSelection) -> RowSelection:
        return self.union(other) if isinstance(other, RowSelection) else NotImplemented

    def __sub__(self, other: RowSelection) -> RowSelection:
        return self.difference(other) if isinstance(other, RowSelection) else NotImplemented

    __invert__ = invert

    def _check_same_rows(self, other: RowSelection) -> None:
        if self._total != other._total:
            raise InvalidArgument(
                f"a selection over {self._total} rows cannot be combined with one over {other._total}: "
                "both must be over the same row groups"
            )

    # --- Selections of other rows -------------------------------------------------------------------------------------

    def and_then(self, inner: RowSelection) -> RowSelection:
        """Return this selection narrowed by a selection over its selected rows: keep the n-th if `inner` has row n.

        >>> RowSelection.from_ranges([(0, 10), (50, 60)], 100).and_then(RowSelection.from_ranges([(8, 13)], 20))
        RowSelection(5 of 100 rows: [8, 10) [50, 53))
        """
        if inner._total != self.row_count:
            raise InvalidArgument(f"{self.row_count} rows are selected, but the inner selection is over {inner._total}")
        lengths = self._ends - self._starts
        found = runs.move_runs(inner._starts, inner._ends, self._cumulative_counts[:-1], lengths, self._starts)
        return self._from_runs(found, self._total)

    def relative_to(self, outer: RowSelection) -> RowSelection:
        """Return the same rows, counted among the selected rows of `outer`, which must contain them all.

        This is the inverse of `and_then`: the positions of the rows after only `outer` was read.
        """
        self._check_same_rows(outer)
        starts, ends = outer._count_before(self._starts), outer._count_before(self._ends)
        if not np.array_equal(ends - starts, self._ends - self._starts):
            raise InvalidArgument(
                f"row {(self - outer).starts[0]} is selected, but it is not among the {outer.row_count} outer rows"
            )
        return self._from_runs(runs.merge_adjacent(starts, ends), outer.row_count)

    def positions_within(self, ranges: Ranges) -> Rows:
        """Return the positions of the selected rows in the concatenation of sorted, disjoint ranges, such as pages."""
        starts, ends = runs.validate_pairs(ranges, self._total)
        if (starts[1:] < ends[:-1]).any():
            raise InvalidArgument("ranges to concatenate must be sorted and must not overlap")
        return self.relative_to(RowSelection(starts, ends, self._total)).to_indices()

    def slice(self, start: int, length: int) -> RowSelection:
        """Return the selection of rows `start` to `start + length` − 1, counted from `start`."""
        start, length = index(start), index(length)
        runs.validate_ranges([start], [start + length], self._total)
        if length == 0:
            return RowSelection.none(0)
        first, last = np.searchsorted(self._ends, start, side="right"), np.searchsorted(self._starts, start + length)
        starts, ends = self._starts[first:last] - start, self._ends[first:last] - start
        return self._from_runs((np.maximum(starts, 0), np.minimum(ends, length)), length)

    def iter_parts(self, most_rows: int) -> Iterator[RowSelection]:
        """Yield the selected rows in parts of at most `most_rows`, each over the same `total`."""
        for start in range(0, self.row_count, most_rows):
            end = min(start + most_rows, self.row_count)
            yield (
                self
                if end - start == self.row_count
                else self.and_then(RowSelection.from_ranges([(start, end)], self.row_count))
            )

    def split(self, row_group_rows: Integers) -> list[RowSelection]:
        """Return one selection per row group with the given numbers of rows, each counted from its first row."""
        edges = runs.compute_edges(row_group_rows)
        if edges[-1] != self._total:
            raise InvalidArgument(
                f"a selection over {self._total} rows cannot be split into row groups with {edges[-1]} rows in total"
            )
        windows = zip(edges[:-1].tolist(), np.diff(edges).tolist(), strict=True)
        return [self.slice(start, length) for start, length in windows]

    def in_file(self, kept_row_groups: Integers, row_group_rows: Integers) -> RowSelection:
        """Return the same rows as a selection over all rows of the file.

        `row_group_rows` are the rows of every row group of the file; `kept_row_groups` are ascending indexes into it.
        """
        starts, lengths, total = runs.locate_row_groups(kept_row_groups, row_group_rows)
        kept_starts = np.cumsum(lengths) - lengths
        if lengths.sum() != self._total:
            raise InvalidArgument(
                f"a selection over {self._total} rows does not match the kept row groups, which have {lengths.sum()}"
            )
        return self._from_runs(runs.move_runs(self._starts, self._ends, kept_starts, lengths, starts), total)

    def in_row_groups(self, kept_row_groups: Integers, row_group_rows: Integers) -> RowSelection:
        """Return the rows in the kept row groups, counted over them, of a selection over all rows of a file.

        This is the inverse of `in_file`; rows of other row groups are dropped.
        """
        starts, lengths, total = runs.locate_row_groups(kept_row_groups, row_group_rows)
        kept_starts = np.cumsum(lengths) - lengths
        if total != self._total:
            raise InvalidArgument(f"a selection over {self._total} rows does not match a file of {total} rows")
        return self._from_runs(
            runs.move_runs(self._starts, self._ends, starts, lengths, kept_starts), int(lengths.sum())
        )

    # --- Conversion ---------------------------------------------------------------------------------------------------

    def to_indices(self) -> Rows:
        """Return the selected rows, ascending."""
        return runs.expand_ranges(self._starts, self._ends - self._starts)

    def to_numpy_mask(self) -> npt.NDArray[np.bool_]:
        """Return one boolean per row as a NumPy array: whether it is selected."""
        bounds = np.empty(2 * self.num_runs + 2, np.int64)
        bounds[0], bounds[-1] = 0, self._total
        bounds[1:-1:2], bounds[2:-1:2] = self._starts, self._ends
        return np.repeat(np.arange(bounds.size - 1) % 2 == 1, np.diff(bounds))

    def to_mask(self) -> pa.BooleanArray:
        """Return an Arrow mask for `filter`, true for the selected rows."""
        return pa.array(self.to_numpy_mask(), pa.bool_())

    def to_roaring(self) -> BitMap:
        """Return a 32-bit Roaring bitmap, for up to 2^32 rows."""
        if self._total > 2**32:
            raise InvalidArgument(
                f"a selection over {self._total} rows does not fit a 32-bit Roaring bitmap, which ends at {2**32}: "
                "use to_roaring64()"
            )
        return runs.bitmap_from_runs(self._starts, self._ends)

    def to_roaring64(self) -> BitMap64:
        """Return a 64-bit Roaring bitmap, for any number of rows."""
        return runs.bitmap64_from_runs(self._starts, self._ends)

    # --- Comparison, pickling, display --------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RowSelection):
            return NotImplemented
        return (
            self._total == other._total
            and np.array_equal(self._starts, other._starts)
            and np.array_equal(self._ends, other._ends)
        )

    def __hash__(self) -> int:
        return hash((self._total, self._starts.tobytes(), self._ends.tobytes()))

    def __reduce__(self) -> tuple[type[RowSelection], tuple[Rows, Rows, int]]:
        return RowSelection, (self._starts, self._ends, self._total)

    def __repr__(self) -> str:
        shown = [
            f"[{start}, {end})"
            for start, end in zip(self._starts[:_SHOWN_RUNS].tolist(), self._ends[:_SHOWN_RUNS].tolist(), strict=True)
        ]
        if self.num_runs > _SHOWN_RUNS:
            shown.append(f"… {self.num_runs} runs")
        return f"RowSelection({self.row_count} of {self._total} rows{': ' * bool(shown)}{' '.join(shown)})"


def _check_total(total: SupportsIndex) -> int:
    rows = index(total)
    if not 0 <= rows <= runs.LARGEST:
        raise InvalidArgument(f"the total of a selection must be 0 to {runs.LARGEST} rows, found {rows}")
    return rows
