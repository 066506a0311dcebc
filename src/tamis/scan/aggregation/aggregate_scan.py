"""Metadata-only aggregation: counts, minima, maxima and sums of a scan, reading as few rows as metadata allows.

The format's statistics answer for fully matched files, footers for fully matched row groups. The other row groups, the
*boundary*, are read. The partial results of all three are merged. Grouping keys are columns with one value per file:
partition columns, and identity partitions of Iceberg. Files whose key is unknown are read.

    fully matched files     ─▶ answered ─┐
        │ others                         ├─▶ merged ─▶ result
    row groups              ─▶ answered ─┤
        │ others                         │
    rows of the boundary    ─▶ computed ─┘

Sums need the rows, unless they are of partition columns: a scan of the measured columns reads all matching rows, and
they are summed batch by batch.

If only minima and maxima are measured, a unit that cannot change the best values so far is skipped: so the newest
timestamp of a table comes from metadata even if a filter cuts its oldest file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis import types
from tamis.expr.nodes import FALSE, Column
from tamis.formats.source import FileListing
from tamis.io.listing import check_unchanged
from tamis.scan.aggregation.measures import Measure, PartialResults, needs_rows
from tamis.scan.aggregation.metadata_answers import MetadataAnswers
from tamis.scan.planning.plan import PlannedFiles
from tamis.scan.planning.projection import Path
from tamis.scan.planning.row_groups import RowGroups
from tamis.scan.planning.scan_planner import ScanPlanner, has_data_columns
from tamis.scan.planning.slices import SlicePlanner
from tamis.scan.planning.tasks import ScanTask
from tamis.scan.reading.pipeline import run_tasks
from tamis.scan.reading.run import Run, check_files
from tamis.skipping.metadata import ROW_COUNT, metadata_names

Bits = npt.NDArray[np.bool_]


def aggregate(planner: ScanPlanner, keys: Sequence[Column], measures: Sequence[Measure]) -> pa.Table:
    """Return the measures of the matching rows by keys: columns `k0`, … and `m0`, …; one row if there are no keys."""
    return _Aggregator(planner, PartialResults(tuple(keys), tuple(measures))).run()


@dataclass(frozen=True)
class _Boundary:
    """Row groups of some files that must be read."""

    listing: FileListing
    row_groups: RowGroups
    units: MetadataAnswers


class _Aggregator:
    def __init__(self, planner: ScanPlanner, partials: PartialResults) -> None:
        self._planner = planner
        self._partials = partials
        asked = [measure.column for measure in partials.measures if measure.column is not None]
        self._measured = tuple(dict.fromkeys(asked))
        read: tuple[Path, ...] = tuple(dict.fromkeys(column.path for column in (*partials.keys, *self._measured)))
        self._projection = read
        self._needs_rows = needs_rows(partials.measures, planner.source.partition_columns)
        self._found: list[pa.Table] = []
        self._may_skip = (
            not partials.keys and bool(partials.measures) and all(measure.is_extreme for measure in partials.measures)
        )

    def run(self) -> pa.Table:
        planner = self._planner
        with planner.name_version_of_missing_file():
            measured = self._measured
            listing = _list_all_files(planner) if self._needs_rows else planner.list_with_statistics(measured)
            listing = listing.require(path[0] for path in self._projection)
            run = Run(planner, self._projection, listing)
            run.reduced_by = ["aggregation"]
            try:
                if self._needs_rows:
                    self._read(run.plan_tasks())
                else:
                    rest = self._answer_files(listing)
                    boundaries = list(self._answer_row_groups(rest, run))
                    self._read(group for each in boundaries for group in run.group_tasks(self._plan_tasks(each, run)))
            finally:
                run.finish()
        return self._partials.finish(self._partials.merge(self._found))

    # --- Files -----------------------------------------------------------------------------------------------------

    def _answer_files(self, listing: FileListing) -> FileListing:
        """Return the files that the format's metadata cannot answer for, the best bounds first."""
        count = listing.files.num_rows
        if not count:
            return listing
        units = self._file_units(listing)
        is_answered = self._answer(units, listing.fully_matched, listing, np.arange(count))
        order = units.sort_best_first(self._partials.measures) if self._may_skip else np.arange(count)
        return _take_files(listing, order[~is_answered[order]])

    def _drop_beaten(self, listing: FileListing) -> FileListing:
        """Return the files that may still change the best values."""
        beaten = self._file_units(listing).cannot_change(self._partials.measures, self._find_best_values())
        return _take_files(listing, np.flatnonzero(~beaten))

    def _file_units(self, listing: FileListing) -> MetadataAnswers:
        files = listing.files
        rows = pa.nulls(files.num_rows, types.LONG) if listing.rows is None else listing.rows
        return MetadataAnswers(
            rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows,
            read_file_metadata(listing, self._measured),
            self._find_constants(listing, np.arange(files.num_rows)),
        )

    # --- Row groups ------------------------------------------------------------------------------------------------

    def _answer_row_groups(self, rest: FileListing, run: Run) -> Iterator[_Boundary]:
        """Yield the row groups that footers cannot answer for."""
        count = (
            self._planner.storage.tuning.min_files_per_round
            if self._may_skip
            else self._planner.storage.tuning.max_files_per_round
        )
        while rest.files.num_rows:
            if self._may_skip:
                rest = self._drop_beaten(rest)
                if not rest.files.num_rows:
                    return
            yield self._answer_some(rest.slice(0, count), run)
            rest = rest.slice(count, max(0, rest.files.num_rows - count))
            count = min(2 * count, self._planner.storage.tuning.max_files_per_round)

    def _answer_some(self, listing: FileListing, run: Run) -> _Boundary:
        row_groups = self._slice_planner.plan_row_groups(listing)
        run.add_level(row_groups.report)
        units = row_groups.units
        left = self._planner.exclude_deleted_rows(listing.files, row_groups)
        rows = _count_rows_left(row_groups, left)
        metadata = {name: row_groups.metadata.column(name) for name in row_groups.metadata.schema.names}
        known = MetadataAnswers(pa.array(rows), metadata, self._find_constants(listing, units.file))
        matched: Bits = ~np.any(row_groups.residual, axis=1)
        is_answered = self._answer(known, matched, listing, units.file) | (rows == 0)
        run.add_answered_rows(int(rows[is_answered].sum()))
        rest = ~is_answered
        kept = _filter_row_groups(row_groups, rest)
        return _Boundary(listing, kept, _filter_units(known, rest))

    @cached_property
    def _slice_planner(self) -> SlicePlanner:
        # Without the index, which may have less metadata of the columns than footers.
        planner = self._planner.get_slice_planner(self._projection, to_pages=True)
        return replace(planner, with_statistics=self._measured, index=None)

    # --- Rows ------------------------------------------------------------------------------------------------------

    def _read(self, tasks: Iterator[list[ScanTask]]) -> None:
        reader = self._planner.reader

        def compute(tasks: list[ScanTask]) -> Iterator[list[pa.Table]]:
            if not self._projection:
                counted = pa.array([reader.count(tasks)], types.LONG)
                yield [self._partials.from_units([], counted, [{"value": counted} for _ in self._partials.measures])]
                return
            # One result for all batches: the consumer reads tasks in order, and no worker waits for it.
            yield [self._partials.from_rows(batch) for batch in reader.read_columns(tasks, self._projection)]

        waiting: list[pa.Table] = []
        if not has_data_columns(self._projection, self._planner.source):
            tasks = check_files(tasks, self._planner.storage)
        for found in run_tasks(tasks, compute, self._planner.reader.estimate_bytes):
            waiting += found
            if len(waiting) >= self._planner.storage.tuning.max_files_per_round:
                waiting = [self._partials.merge(waiting)]
        self._found += waiting

    def _plan_tasks(self, boundary: _Boundary, run: Run) -> Iterator[ScanTask]:
        row_groups = boundary.row_groups
        if self._may_skip:
            needed = ~boundary.units.cannot_change(self._partials.measures, self._find_best_values())
            row_groups = _filter_row_groups(row_groups, needed)
        if not len(row_groups.units):
            return
        listing = boundary.listing
        narrowed, below = self._slice_planner.plan_pages(listing.files, row_groups)
        for level in below:
            run.add_level(level)
        left = self._planner.exclude_deleted_rows(listing.files, narrowed)
        yield from PlannedFiles(listing.files, listing.partitions, left, below).tasks()

    # --- Answers ---------------------------------------------------------------------------------------------------

    def _answer(
        self, units: MetadataAnswers, matched: Bits, listing: FileListing, files: npt.NDArray[np.int64]
    ) -> Bits:
        """Add the results of fully matched units that metadata answers for, and return which units these are."""
        is_answered: Bits = matched & np.asarray(units.rows.is_valid(), bool)
        keys = []
        for key in self._partials.keys:
            values, is_constant = listing.read_constants(key, files)
            # A column may have been widened after its partition value was recorded.
            has_type = values.type == key.type
            keys.append(values if has_type else pa.nulls(len(files), key.type))
            is_answered = is_answered & is_constant & has_type
        answers = []
        for measure in self._partials.measures:
            answer, is_known = units.answer(measure)
            answers.append(answer)
            is_answered = is_answered & is_known
        if is_answered.any():
            check_unchanged(self._planner.storage, listing.files.take(pa.array(np.unique(files[is_answered]))))
            chosen = pa.array(is_answered)
            self._found.append(
                self._partials.from_units(
                    [values.filter(chosen) for values in keys],
                    units.rows.filter(chosen),
                    [{name: values.filter(chosen) for name, values in answer.items()} for answer in answers],
                )
            )
        return is_answered

    def _find_constants(self, listing: FileListing, files: npt.NDArray[np.int64]) -> dict[Column, pa.Array]:
        """Return the measured columns that are constant in each file."""
        indices = pa.array(files)
        partitions = listing.partitions
        return {
            column: partitions[column.path[0]].combine_chunks().take(indices)
            for column in self._measured
            if column.path[0] in partitions.column_names
        }

    def _find_best_values(self) -> list[pa.Scalar]:
        """Return the best value of each measure so far."""
        found = self._partials.finish(self._partials.merge(self._found))
        if not found.num_rows:
            return [pa.scalar(None, measure.type) for measure in self._partials.measures]
        return [found[f"m{number}"][0] for number in range(len(self._partials.measures))]


def _list_all_files(planner: ScanPlanner) -> FileListing:
    listing = planner.unchecked_listing
    return listing.slice(0, 0) if planner.predicate.expr == FALSE else listing


def read_file_metadata(listing: FileListing, columns: Sequence[Column]) -> dict[str, pa.Array]:
    """Return a format's statistics of columns in files, in the layout of `tamis.skipping.metadata`."""
    files = listing.files
    found = {name: files[name].combine_chunks() for name in metadata_names(columns, files.column_names)}
    if found:
        found[ROW_COUNT.name] = files["num_records"].combine_chunks()
    return found


def _take_files(listing: FileListing, files: npt.NDArray[np.int64]) -> FileListing:
    # Taking no row of a large table would first copy all of it.
    return listing.take(files) if len(files) else listing.slice(0, 0)


def _count_rows_left(row_groups: RowGroups, left: RowGroups) -> npt.NDArray[np.int64]:
    """Return how many rows of each row group remain; `left` has the row groups with remaining rows."""
    if left is row_groups:
        return row_groups.units.row_count
    keys = zip(left.units.file.tolist(), left.units.row_group.tolist(), strict=True)
    counts = dict(zip(keys, left.units.row_count.tolist(), strict=True))
    units = zip(row_groups.units.file.tolist(), row_groups.units.row_group.tolist(), strict=True)
    return np.array([counts.get(key, 0) for key in units], np.int64)


def _filter_row_groups(row_groups: RowGroups, chosen: Bits) -> RowGroups:
    return replace(
        row_groups,
        units=row_groups.units.take(chosen),
        residual=row_groups.residual[chosen],
        metadata=row_groups.metadata.filter(pa.array(chosen)),
    )


def _filter_units(units: MetadataAnswers, chosen: Bits) -> MetadataAnswers:
    mask = pa.array(chosen)
    return MetadataAnswers(
        units.rows.filter(mask),
        {name: values.filter(mask) for name, values in units.metadata.items()},
        {column: values.filter(mask) for column, values in units.constants.items()},
    )
