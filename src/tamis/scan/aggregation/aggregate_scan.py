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
from tamis.formats.source import FileListing, has_deleted_rows
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

Bits = npt.NDArray[np.bool_]


def aggregate(planner: ScanPlanner, keys: Sequence[Column], measures: Sequence[Measure]) -> pa.Table:
    """Return the measures of the matching rows by keys: columns `k0`, … and `m0`, …; one row if there are no keys."""
    return _Aggregator(planner, PartialResults(tuple(keys), tuple(measures))).run()


def answer_whole_files(
    planner: ScanPlanner, keys: Sequence[Column], measures: Sequence[Measure]
) -> tuple[pa.Table, FileListing]:
    """Return the measures of the files that metadata answers for, and the files whose rows an engine must read.

    The result has the columns of `aggregate`. Footers are read only if the format's statistics leave few files.
    """
    return _Aggregator(planner, PartialResults(tuple(keys), tuple(measures))).answer_whole_files()


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
        measured = [measure.column for measure in partials.measures if measure.column is not None]
        self._columns = tuple(dict.fromkeys((*partials.keys, *measured)))
        """The keys too: a file may store an identity column with more than one value."""
        self._projection: tuple[Path, ...] = tuple(dict.fromkeys(column.path for column in self._columns))
        self._needs_rows = needs_rows(partials.measures, planner.source.partition_columns)
        self._found: list[pa.Table] = []
        self._may_skip = (
            not partials.keys and bool(partials.measures) and all(measure.is_extreme for measure in partials.measures)
        )

    def run(self) -> pa.Table:
        planner = self._planner
        with planner.name_version_of_missing_file():
            listing = _list_all_files(planner) if self._needs_rows else planner.list_with_statistics(self._columns)
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

    def answer_whole_files(self) -> tuple[pa.Table, FileListing]:
        planner = self._planner
        with planner.name_version_of_missing_file():
            listing = planner.list_with_statistics(self._columns)
            listing = listing.require(path[0] for path in self._projection)
            rest = self._answer_files(listing)
            if self._may_skip and rest.files.num_rows:
                rest = self._drop_beaten(rest)
            if 0 < rest.files.num_rows <= planner.storage.tuning.spark_max_footers:
                rest = self._answer_by_footers(rest)
        return self._partials.finish(self._partials.merge(self._found)), rest

    # --- Files -----------------------------------------------------------------------------------------------------

    def _answer_files(self, listing: FileListing) -> FileListing:
        """Return the files that the format's metadata cannot answer for, the best bounds first."""
        count = listing.files.num_rows
        if not count:
            return listing
        units = MetadataAnswers.of_files(listing, self._columns)
        is_answered = self._answer(units, listing.fully_matched, listing, np.arange(count))
        order = units.sort_best_first(self._partials.measures) if self._may_skip else np.arange(count)
        return _take_files(listing, order[~is_answered[order]])

    def _drop_beaten(self, listing: FileListing) -> FileListing:
        """Return the files that may still change the best values."""
        units = MetadataAnswers.of_files(listing, self._columns)
        return _take_files(
            listing, np.flatnonzero(~units.cannot_change(self._partials.measures, self._find_best_values()))
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
        known = MetadataAnswers.of_row_groups(listing, row_groups, self._columns, rows)
        matched: Bits = ~np.any(row_groups.residual, axis=1)
        is_answered = self._answer(known, matched, listing, units.file) | (rows == 0)
        run.add_answered_rows(int(rows[is_answered].sum()))
        rest = ~is_answered
        kept = _filter_row_groups(row_groups, rest)
        return _Boundary(listing, kept, known.filter(rest))

    def _answer_by_footers(self, rest: FileListing) -> FileListing:
        """Return the files with a row group that footers cannot answer for."""
        row_groups = self._slice_planner.plan_row_groups(rest)
        files = row_groups.units.file
        known = MetadataAnswers.of_row_groups(rest, row_groups, self._columns)
        keys, answers, is_answered = self._find_answers(known, ~np.any(row_groups.residual, axis=1))
        is_left = np.zeros(rest.files.num_rows, bool)
        is_left[files[~is_answered]] = True
        is_left |= has_deleted_rows(rest.files)
        self._add_answers(known, keys, answers, ~is_left[files], rest, files)
        return _take_files(rest, np.flatnonzero(is_left))

    @cached_property
    def _slice_planner(self) -> SlicePlanner:
        # Without the index, which may have less metadata of the columns than footers.
        planner = self._planner.get_slice_planner(self._projection, to_pages=True)
        return replace(planner, with_statistics=self._columns, index=None)

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
        yield from PlannedFiles(listing.files, left, below).tasks()

    # --- Answers ---------------------------------------------------------------------------------------------------

    def _answer(
        self, units: MetadataAnswers, matched: Bits, listing: FileListing, files: npt.NDArray[np.int64]
    ) -> Bits:
        """Add the results of fully matched units that metadata answers for, and return which units these are."""
        keys, answers, is_answered = self._find_answers(units, matched)
        self._add_answers(units, keys, answers, is_answered, listing, files)
        return is_answered

    def _find_answers(
        self, units: MetadataAnswers, matched: Bits
    ) -> tuple[list[pa.Array], list[dict[str, pa.Array]], Bits]:
        """Return the keys and measures of units, and the units for which they are the answer."""
        is_answered: Bits = matched & np.asarray(units.rows.is_valid(), bool)
        keys = []
        for key in self._partials.keys:
            values, is_constant = units.find_constant(key)
            keys.append(values)
            is_answered = is_answered & is_constant
        answers = []
        for measure in self._partials.measures:
            answer, is_known = units.answer(measure)
            answers.append(answer)
            is_answered = is_answered & is_known
        return keys, answers, is_answered

    def _add_answers(
        self,
        units: MetadataAnswers,
        keys: Sequence[pa.Array],
        answers: Sequence[dict[str, pa.Array]],
        chosen: Bits,
        listing: FileListing,
        files: npt.NDArray[np.int64],
    ) -> None:
        if not chosen.any():
            return
        check_unchanged(self._planner.storage, listing.files.take(pa.array(np.unique(files[chosen]))))
        mask = pa.array(chosen)
        self._found.append(
            self._partials.from_units(
                [values.filter(mask) for values in keys],
                units.rows.filter(mask),
                [{name: values.filter(mask) for name, values in answer.items()} for answer in answers],
            )
        )

    def _find_best_values(self) -> list[pa.Scalar]:
        """Return the best value of each measure so far."""
        found = self._partials.finish(self._partials.merge(self._found))
        if not found.num_rows:
            return [pa.scalar(None, measure.type) for measure in self._partials.measures]
        return [found[f"m{number}"][0] for number in range(len(self._partials.measures))]


def _list_all_files(planner: ScanPlanner) -> FileListing:
    listing = planner.unchecked_listing
    return listing.slice(0, 0) if planner.predicate.expr == FALSE else listing


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
