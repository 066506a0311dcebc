"""One run of a scan: tasks are planned a few files ahead of reading, and the report grows with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.formats.source import FileListing
from tamis.io.listing import check_unchanged
from tamis.io.storage import Storage
from tamis.scan.planning.projection import Path, reject_unsupported_types
from tamis.scan.planning.scan_planner import ScanPlanner
from tamis.scan.planning.tasks import MAX_TASKS_PER_GROUP, ScanTask, group_tasks
from tamis.scan.reading.pipeline import run_tasks
from tamis.scan.report.report import add_level
from tamis.skipping.metrics import LevelReport
from tamis.skipping.prune import ConjunctOutcome

_FILES = pa.schema([("path", pa.string()), ("size", pa.int64()), ("modified_ns", pa.int64())])

_FIRST_FILES = 16
_FIRST_LOCAL_FILES = 64
_MAX_FILES = 1024
"""The number of files that are planned together while reading: few at first, so that a small limit opens few footers
and the first rows come soon. Footers of local files take hardly any time."""


def read_batches(planner: ScanPlanner) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a scan, batch by batch in the order of the files; memory does not grow with the table."""
    reject_unsupported_types(planner.source.schema, planner.projection)
    run = Run(planner, planner.projection, planner.listing)
    remaining = planner.limit
    try:
        if remaining == 0:
            run.reduced_by = [f"limit {planner.limit}"]
            return
        with planner.name_version_of_missing_file():
            # If no column of a file is read, only this check detects that the file was replaced.
            tasks = run.plan_tasks() if planner.reads_data_columns else check_files(run.plan_tasks(), planner.storage)
            for batch in run_tasks(tasks, planner.reader.read, planner.reader.estimate_bytes):
                if remaining is not None:
                    batch = batch.slice(0, remaining)
                    remaining -= batch.num_rows
                run.rows += batch.num_rows
                yield batch
                if remaining == 0:
                    run.reduced_by = [f"limit {planner.limit}"]
                    return
        run.reduced_by = []
    finally:
        run.finish()


def count_rows(planner: ScanPlanner) -> int:
    """Return how many rows match. No column is read of row groups that metadata proves fully matched."""
    found, rest, counted_files = _count_matched_files(planner.list_with_rows())
    check_unchanged(planner.storage, counted_files)
    run = Run(planner, (), rest)
    run.add_answered_rows(found)
    limit = planner.limit
    try:
        is_enough = limit is not None and found >= limit
        tasks = iter(()) if is_enough else check_files(run.plan_tasks(), planner.storage)
        with planner.name_version_of_missing_file():
            for counted in run_tasks(
                tasks, lambda tasks: iter([planner.reader.count(tasks)]), planner.reader.estimate_bytes
            ):
                found += counted
                if limit is not None and found >= limit:
                    break
        run.reduced_by = [] if limit is None or found < limit else [f"limit {limit}"]
        found = found if limit is None else min(found, limit)
        run.rows = found
    finally:
        run.finish()
    return found


def _count_matched_files(listing: FileListing) -> tuple[int, FileListing, pa.Table]:
    """Return the rows of fully matched files whose row counts are known, the other files, and those files."""
    if listing.rows is None:
        return 0, listing, listing.files.slice(0, 0)
    is_counted = listing.fully_matched & np.asarray(listing.rows.is_valid())
    found = pc.sum(listing.rows.filter(pa.array(is_counted))).as_py() or 0
    left = np.flatnonzero(~is_counted)
    # Taking no row of a large table would first copy all of it.
    rest = listing.take(left) if len(left) else listing.slice(0, 0)
    return found, rest, listing.files.filter(pa.array(is_counted))


def check_files(tasks: Iterable[list[ScanTask]], storage: Storage) -> Iterator[list[ScanTask]]:
    """Yield the tasks, after checking that files without a residual filter have not changed since they were listed."""
    checked: set[str] = set()
    for group in tasks:
        new = {task.path: task for task in group if not task.residual and task.path not in checked}
        if new:
            files = [(task.path, task.size, task.modified_ns) for task in new.values()]
            check_unchanged(storage, pa.table(list(zip(*files, strict=True)), schema=_FILES))
            checked |= new.keys()
        yield group


class Run:
    """One run of a scan: its tasks as they are planned, and the report that grows with them."""

    def __init__(self, planner: ScanPlanner, projection: tuple[Path, ...], listing: FileListing) -> None:
        self._planner = planner
        self._projection = projection
        self._listing = listing
        # Reads of planning that no run has reported yet belong to this one.
        self._before = planner.reported_counts
        self._rows_planned = 0
        self._has_enough = False
        self.rows = 0
        """The rows that are returned."""
        self.reduced_by: list[str] = ["end of reading"]
        """Why rows are not returned, besides the residual filter. A caller that reads to the end clears it."""
        self._plan = planner.find_page_plan(listing)
        self._report = self._plan.report if self._plan is not None else planner.make_report(listing)

    def add_answered_rows(self, rows: int) -> None:
        """Add rows that metadata answers for and that are not read."""
        self._rows_planned += rows

    def add_level(self, level: LevelReport) -> None:
        """Add the metrics of a level that the caller planned."""
        add_level(self._report, level)

    def plan_tasks(self) -> Iterator[list[ScanTask]]:
        """Yield the row groups to read, in groups to be read together, planned a few files ahead of reading."""
        if self._plan is not None:
            yield from self.group_tasks(self._plan.tasks)
            return
        is_local = self._planner.storage.is_local
        start, count = 0, _FIRST_LOCAL_FILES if is_local and self._planner.limit is None else _FIRST_FILES
        total = self._listing.files.num_rows
        while start < total:
            some = self._listing.slice(start, count)
            planned = self._planner.plan_slice(some, self._projection)
            for level in (planned.row_groups.report, *planned.below):
                add_level(self._report, level)
            yield from self.group_tasks(planned.tasks())
            if self._has_enough:
                return
            start += count
            count = min(count * 2, _MAX_FILES)

    def group_tasks(self, tasks: Iterable[ScanTask]) -> Iterator[list[ScanTask]]:
        """Yield tasks in groups to be read together, and count their rows."""
        storage = self._planner.storage
        # Ranges of remote files are fetched concurrently.
        max_tasks = MAX_TASKS_PER_GROUP if storage.is_local else storage.threads
        limit = self._planner.limit
        certain = 0
        for group in group_tasks(tasks, limit, max_tasks):
            self._rows_planned += sum(task.row_count for task in group)
            yield group
            certain += sum(task.row_count for task in group if not task.residual)
            if limit is not None and certain >= limit:
                # Further tasks would be prefetched in vain.
                self._has_enough = True
                return

    def finish(self) -> None:
        """Complete the report, and make it the planner's."""
        storage = self._planner.storage
        storage.open_files.clear()
        now = storage.counters.counts()
        spent, self._planner.reported_counts = now - self._before, now
        self._report.bytes_read = spent.bytes_read
        self._report.requests = spent.requests
        self._report.levels = [level for level in self._report.levels if level.level != "rows"]
        self._report.levels.append(self._describe_rows())
        self._planner.report = self._report

    def _describe_rows(self) -> LevelReport:
        """Return the metrics of rows. One entry names all causes: rows after a limit are not tested by the filter."""
        skipped = self._rows_planned - self.rows
        causes = [*(["residual filter"] if self._planner.predicate.conjuncts else []), *self.reduced_by]
        outcomes = (ConjunctOutcome(" and ".join(causes), skipped, None),) if skipped else ()
        return LevelReport("rows", self._rows_planned, self.rows, by_predicate=outcomes)
