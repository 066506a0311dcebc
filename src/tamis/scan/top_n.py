"""Top-n pruning: the first rows by a column, from the files that may have them.

Row groups are read in the order of their bounds. Once enough rows are found, a row group whose rows all come after the
last of them is skipped, and so are all row groups after it. The result may have a few rows more than needed, never
fewer: the caller sorts and cuts them.

A file whose bounds the format knows is not even opened where its turn never comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.nodes import Column
from tamis.scan.aggregation import file_metadata
from tamis.scan.known_units import KnownUnits
from tamis.scan.pipeline import run_tasks
from tamis.scan.plan import PlannedFiles
from tamis.scan.run import Run, estimate_bytes
from tamis.scan.scan_planner import ScanPlanner
from tamis.scan.sort_places import BestPlaces, Order, Place, SmallestPlaces
from tamis.scan.tasks import ScanTask
from tamis.tables.source import FileListing

FILES_AT_FIRST = 16
MOST_FILES_TOGETHER = 1024
"""How many files are planned at once, in the order of their bounds."""


def top_rows(
    planner: ScanPlanner, column: Column, count: int, *, descending: bool, nulls_first: bool, with_ties: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a scan that may be among the first `count` by a column that it returns.

    With `with_ties` they include all rows that are equal to the last one, for an order by further columns.
    """
    return _TopRows(planner, Order(column, descending, nulls_first), count, with_ties).run()


class _TopRows:
    def __init__(self, planner: ScanPlanner, order: Order, count: int, with_ties: bool) -> None:
        self._planner = planner
        self._order = order
        self._count = count
        self._with_ties = with_ties
        self._best = SmallestPlaces(order, count)
        self._limit: Place | None = None
        slice_planner = planner.slice_planner(planner.projection, to_pages=True)
        self._slice_planner = replace(slice_planner, described=(order.column,), index=None)

    def run(self) -> Iterator[pa.RecordBatch]:
        if not self._count:
            return
        planner = self._planner
        with planner.name_version_of_missing_file():
            listing = planner.list_with_statistics([self._order.column])
            listing = listing.require(path[0] for path in planner.projection)
            run = Run(planner, planner.projection, listing)
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
        # Alone, because it is mostly enough.
        yield from self._keep_candidates(reader.read(first))
        yield from self._keep_candidates(run_tasks(groups, reader.read, estimate_bytes))

    def _keep_candidates(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            values = _read_values(batch, self._order.column)
            self._best.add(values)
            self._limit = self._best.limit()
            kept = self._best.reaches(values)
            yield batch if kept.all() else batch.filter(pa.array(kept))

    # --- Planning --------------------------------------------------------------------------------------------------

    def _plan_tasks(self, listing: FileListing, run: Run) -> Iterator[list[ScanTask]]:
        """Yield the tasks, planned when their turn comes, until no further row can be among the first."""
        bounds = self._file_bounds(listing)
        order = bounds.sorted()
        start, count = 0, FILES_AT_FIRST
        while start < len(order):
            chosen = order[start : start + count]
            chosen = chosen[self._may_reach(bounds)[chosen]]
            if not len(chosen):
                return
            yield from self._plan_groups(listing.take(chosen), run)
            start += count
            count = min(2 * count, MOST_FILES_TOGETHER)

    def _file_bounds(self, listing: FileListing) -> BestPlaces:
        files = np.arange(listing.files.num_rows)
        rows = pa.nulls(len(files), types.LONG) if listing.rows is None else listing.rows
        metadata = file_metadata(listing, [self._order.column])
        return BestPlaces.of(self._order, KnownUnits(_combine(rows), metadata, self._constants(listing, files)))

    def _plan_groups(self, listing: FileListing, run: Run) -> Iterator[list[ScanTask]]:
        row_groups = self._slice_planner.row_groups(listing.files, listing.partitions)
        run.add_level(row_groups.report)
        units = row_groups.units
        described = row_groups.metadata
        metadata = {name: described.column(name) for name in described.schema.names}
        known = KnownUnits(pa.array(units.row_count), metadata, self._constants(listing, units.file))
        bounds = BestPlaces.of(self._order, known)
        narrowed, below = self._slice_planner.below(listing.files, row_groups)
        for level in below:
            run.add_level(level)
        left = self._planner.exclude_deleted_rows(listing.files, narrowed)
        tasks = list(PlannedFiles(listing.files, listing.partitions, left, below).tasks())
        by_unit = dict(
            zip(zip(left.units.file.tolist(), left.units.row_group.tolist(), strict=True), tasks, strict=True)
        )
        numbers = list(zip(units.file.tolist(), units.row_group.tolist(), strict=True))
        order = [number for number in bounds.sorted().tolist() if numbers[number] in by_unit]
        position = 0
        while position < len(order):
            may_reach = self._may_reach(bounds)
            group: list[ScanTask] = []
            while position < len(order) and sum(task.row_count for task in group) < self._count:
                if not may_reach[order[position]]:
                    yield from run.group(group)
                    return
                group.append(by_unit[numbers[order[position]]])
                position += 1
            yield from run.group(group)

    def _may_reach(self, bounds: BestPlaces) -> npt.NDArray[np.bool_]:
        return bounds.may_reach(self._limit, with_ties=self._with_ties)

    def _constants(self, listing: FileListing, files: npt.NDArray[np.int64]) -> dict[Column, pa.Array]:
        column = self._order.column
        if column.path[0] not in listing.partitions.column_names:
            return {}
        return {column: listing.partitions[column.path[0]].combine_chunks().take(pa.array(files))}


def _combine(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _read_values(batch: pa.RecordBatch, column: Column) -> pa.Array:
    values = batch.column(column.path[0])
    return pc.struct_field(values, list(column.path[1:])) if len(column.path) > 1 else values
