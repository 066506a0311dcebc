"""Top-n pruning: the first n rows by a column, read only from the files that may have them.

Row groups are read in the order of their bounds. Once n rows are found, a row group whose rows all sort after the last
of them is skipped, and so are all row groups after it. The result may have a few more rows, never fewer: the caller
sorts and cuts them.

A file whose bounds the format has is not opened if its turn never comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.nodes import Column
from tamis.formats.source import FileListing
from tamis.scan.aggregation.metadata_answers import MetadataAnswers
from tamis.scan.planning.plan import PlannedFiles
from tamis.scan.planning.projection import read_path
from tamis.scan.planning.scan_planner import ScanPlanner
from tamis.scan.planning.tasks import ScanTask
from tamis.scan.reading.pipeline import run_tasks
from tamis.scan.reading.run import Run

Bits = npt.NDArray[np.bool_]


def read_top_rows(
    planner: ScanPlanner, column: Column, count: int, *, descending: bool, nulls_first: bool, with_ties: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a scan that may be among the first `count` by a column that it returns.

    With `with_ties`, all rows equal to the last one are included, for sorting by further columns.
    """
    return _TopRowsReader(planner, SortOrder(column, descending, nulls_first), count, with_ties).run()


def choose_top_files(planner: ScanPlanner, order: SortOrder, count: int) -> FileListing:
    """Return the files that may have one of the first `count` rows of a scan, or an equal one. None is opened.

    Fully matched files prove how far these rows reach at most: all their values sort at or before their last bound.
    """
    listing = planner.list_with_statistics([order.column]).require(path[0] for path in planner.projection)
    units = MetadataAnswers.of_files(listing, [order.column])
    limit = _find_reach(order, units, listing.fully_matched, count)
    chosen = UnitPositions.from_metadata(order, units).may_reach(limit, with_ties=True)
    return listing if chosen.all() else listing.take(np.flatnonzero(chosen))


def _find_reach(order: SortOrder, units: MetadataAnswers, matched: Bits, count: int) -> SortPosition | None:
    """Return a position at or before which fully matched units have `count` rows with values; None if unknown."""
    column = order.column
    assert column.type is not None
    last = units.get("lower" if order.descending else "upper", column, column.type)
    others = units.get("null_count", column, types.LONG)
    if order.is_floating:
        others = pc.add(others, units.get("nan_count", column, types.LONG))
    # Deletes may have removed any rows: at least these are left.
    values = pc.fill_null(pc.subtract(units.rows, others), 0)
    is_known = matched & np.asarray(last.is_valid(), bool) & ~np.asarray(order.is_nan(last), bool)
    usable = pa.array(is_known)
    last, values = last.filter(usable), values.filter(usable)
    sorted_by = pc.array_sort_indices(last, order="descending" if order.descending else "ascending")
    reached = np.cumsum(np.maximum(np.asarray(values.take(sorted_by)), 0)) >= count
    if not reached.any():
        return None
    return SortPosition(order.segments["value"], last[sorted_by[int(np.argmax(reached))].as_py()])


class _TopRowsReader:
    def __init__(self, planner: ScanPlanner, order: SortOrder, count: int, with_ties: bool) -> None:
        self._planner = planner
        self._order = order
        self._count = count
        self._with_ties = with_ties
        self._best = TopPositions(order, count)
        self._limit: SortPosition | None = None
        slice_planner = planner.get_slice_planner(planner.projection, to_pages=True)
        self._slice_planner = replace(slice_planner, with_statistics=(order.column,), index=None)

    def run(self) -> Iterator[pa.RecordBatch]:
        if not self._count:
            return
        planner = self._planner
        with planner.name_version_of_missing_file():
            listing = planner.list_with_statistics([self._order.column])
            listing = listing.require(path[0] for path in planner.projection)
            run = Run(planner, planner.projection, listing)
            run.reduced_by = [f"top {self._count}"]
            try:
                for batch in self._read(listing, run):
                    run.rows += batch.num_rows
                    yield batch
            finally:
                run.finish()

    def _read(self, listing: FileListing, run: Run) -> Iterator[pa.RecordBatch]:
        reader = self._planner.reader
        groups = self._plan_tasks(listing, run)
        first = next(groups, None)
        if first is None:
            return
        # Read alone, because it mostly suffices.
        yield from self._keep_candidates(reader.read(first))
        yield from self._keep_candidates(run_tasks(groups, reader.read, reader.estimate_bytes))

    def _keep_candidates(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            values = read_path(batch, self._order.column.path)
            self._best.add(values)
            self._limit = self._best.get_limit()
            kept = self._best.may_include(values)
            yield batch if kept.all() else batch.filter(pa.array(kept))

    # --- Planning --------------------------------------------------------------------------------------------------

    def _plan_tasks(self, listing: FileListing, run: Run) -> Iterator[list[ScanTask]]:
        """Yield the tasks, planned lazily, until no further row can be among the first n."""
        bounds = UnitPositions.from_metadata(self._order, MetadataAnswers.of_files(listing, [self._order.column]))
        order = bounds.sort_units()
        start, count = 0, self._planner.storage.tuning.min_files_per_round
        while start < len(order):
            chosen = order[start : start + count]
            chosen = chosen[self._may_reach(bounds)[chosen]]
            if not len(chosen):
                return
            yield from self._plan_groups(listing.take(chosen), run)
            start += count
            count = min(2 * count, self._planner.storage.tuning.max_files_per_round)

    def _plan_groups(self, listing: FileListing, run: Run) -> Iterator[list[ScanTask]]:
        row_groups = self._slice_planner.plan_row_groups(listing)
        run.add_level(row_groups.report)
        units = row_groups.units
        known = MetadataAnswers.of_row_groups(listing, row_groups, [self._order.column])
        bounds = UnitPositions.from_metadata(self._order, known)
        narrowed, below = self._slice_planner.plan_pages(listing.files, row_groups)
        for level in below:
            run.add_level(level)
        left = self._planner.exclude_deleted_rows(listing.files, narrowed)
        tasks = list(PlannedFiles(listing.files, left, below).tasks())
        by_unit = dict(
            zip(zip(left.units.file.tolist(), left.units.row_group.tolist(), strict=True), tasks, strict=True)
        )
        numbers = list(zip(units.file.tolist(), units.row_group.tolist(), strict=True))
        order = [number for number in bounds.sort_units().tolist() if numbers[number] in by_unit]
        position = 0
        while position < len(order):
            may_reach = self._may_reach(bounds)
            group: list[ScanTask] = []
            while position < len(order) and sum(task.row_count for task in group) < self._count:
                if not may_reach[order[position]]:
                    yield from run.group_tasks(group)
                    return
                group.append(by_unit[numbers[order[position]]])
                position += 1
            yield from run.group_tasks(group)

    def _may_reach(self, bounds: UnitPositions) -> npt.NDArray[np.bool_]:
        return bounds.may_reach(self._limit, with_ties=self._with_ties)


# --- Sort order: segments of NULL, NaN and other values, and the n-th position so far ---------------------------------
#
# | order             | segments, first to last          |
# |-------------------|----------------------------------|
# | ascending         | values, NaN                      |
# | descending        | NaN, values from the largest     |
# | NULL first, last  | NULL before, or after, all these |


@dataclass(frozen=True, slots=True)
class SortOrder:
    """A sort order of the values of a column."""

    column: Column
    descending: bool
    nulls_first: bool

    @property
    def segments(self) -> dict[str, int]:
        values = ["nan", "value"] if self.descending else ["value", "nan"]
        names = ["null", *values] if self.nulls_first else [*values, "null"]
        return {name: position for position, name in enumerate(names)}

    @property
    def is_floating(self) -> bool:
        return bool(pa.types.is_floating(self.column.type))

    def is_nan(self, values: pa.Array) -> pa.BooleanArray:
        if not self.is_floating:
            return pa.repeat(pa.scalar(False), len(values))
        return pc.fill_null(pc.is_nan(values), False)

    def find_segments(self, values: pa.Array) -> npt.NDArray[np.int64]:
        segments = self.segments
        found = np.full(len(values), segments["value"], np.int64)
        found[np.asarray(values.is_null(), bool)] = segments["null"]
        found[np.asarray(self.is_nan(values), bool)] = segments["nan"]
        return found

    def is_before(self, values: pa.Array, limit: pa.Scalar, *, with_ties: bool) -> Bits:
        """Return which values sort before `limit`, or with ties at it; FALSE for NULL and NaN."""
        comparisons = (pc.greater, pc.greater_equal) if self.descending else (pc.less, pc.less_equal)
        found = comparisons[with_ties](values, limit)
        return np.asarray(pc.fill_null(pc.and_not(found, self.is_nan(values)), False), bool)


@dataclass(frozen=True, slots=True)
class SortPosition:
    """A position in a sort order: a segment, and in the segment of values a value."""

    segment: int
    value: pa.Scalar | None


@dataclass(frozen=True)
class UnitPositions:
    """The first sort position that a row of each unit may have."""

    order: SortOrder
    segments: npt.NDArray[np.int64]
    bounds: pa.Array
    """The first possible value in the segment of values; null if unknown."""

    @staticmethod
    def from_metadata(order: SortOrder, units: MetadataAnswers) -> UnitPositions:
        """Return the sort positions from the metadata of units."""
        positions = order.segments
        column = order.column
        kind = "upper" if order.descending else "lower"
        assert column.type is not None
        segments = np.full(len(units.rows), positions["value"], np.int64)
        may_be_nan = _may_be_positive(units.get("nan_count", column, pa.int64())) if order.is_floating else None
        if may_be_nan is not None:
            segments[may_be_nan] = np.minimum(segments[may_be_nan], positions["nan"])
        may_be_null = _may_be_positive(units.get("null_count", column, pa.int64()))
        segments[may_be_null] = np.minimum(segments[may_be_null], positions["null"])
        segments[np.asarray(units.has_no_value(column), bool)] = positions["null"]
        return UnitPositions(order, segments, units.get(kind, column, column.type))

    def sort_units(self) -> npt.NDArray[np.int64]:
        """Return the units in the order of their positions; those with unknown bounds come first."""
        direction = "descending" if self.order.descending else "ascending"
        is_known = self.bounds.is_valid().cast(pa.int8())
        table = pa.table({"segment": self.segments, "is_known": is_known, "bound": self.bounds})
        keys = [("segment", "ascending"), ("is_known", "ascending"), ("bound", direction)]
        found: npt.NDArray[np.int64] = pc.sort_indices(table, sort_keys=keys).to_numpy()
        return found.astype(np.int64)

    def may_reach(self, limit: SortPosition | None, *, with_ties: bool) -> Bits:
        """Return which units may have a row before a position, or with ties at it."""
        if limit is None:
            return np.ones(len(self.segments), bool)
        is_before: Bits = self.segments < limit.segment
        is_same: Bits = self.segments == limit.segment
        if limit.value is None:
            # All rows of such a segment are equal.
            return is_before | is_same if with_ties else is_before
        known = np.asarray(self.bounds.is_valid(), bool)
        may_be_before: Bits = ~known | self.order.is_before(self.bounds, limit.value, with_ties=with_ties)
        return is_before | (is_same & may_be_before)


class TopPositions:
    """The first n sort positions of all rows so far."""

    def __init__(self, order: SortOrder, count: int) -> None:
        self._order = order
        self._count = count
        self._values = pa.array([], order.column.type)
        self._others = {"nan": 0, "null": 0}

    def add(self, values: pa.Array) -> None:
        order = self._order
        is_nan = order.is_nan(values)
        self._others["null"] += values.null_count
        self._others["nan"] += is_nan.true_count
        plain = values.filter(pc.and_not(values.is_valid(), is_nan))
        direction = "descending" if order.descending else "ascending"
        both = pa.concat_arrays([self._values, plain])
        best = pc.array_sort_indices(both, order=direction).slice(0, self._count)
        self._values = both.take(best)

    def get_limit(self) -> SortPosition | None:
        """Return the n-th position; None while there are fewer rows."""
        left = self._count
        for name, segment in sorted(self._order.segments.items(), key=lambda each: each[1]):
            own = len(self._values) if name == "value" else self._others[name]
            if own >= left:
                return SortPosition(segment, self._values[left - 1] if name == "value" else None)
            left -= own
        return None

    def may_include(self, values: pa.Array) -> Bits:
        """Return which rows sort before the n-th position, or at it."""
        limit = self.get_limit()
        if limit is None:
            return np.ones(len(values), bool)
        segments = self._order.find_segments(values)
        is_before: Bits = segments < limit.segment
        is_same: Bits = segments == limit.segment
        if limit.value is not None:
            is_same &= self._order.is_before(values, limit.value, with_ties=True)
        return is_before | is_same


def _may_be_positive(counts: pa.Array) -> Bits:
    """Return where a count is not known to be 0."""
    return ~np.asarray(pc.fill_null(pc.equal(counts, 0), False), bool)
