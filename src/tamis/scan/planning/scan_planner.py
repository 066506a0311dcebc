"""The planner of one scan: its filter and projection, its files, and their plan down to pages.

Users hold a `Scan`. Everything that reads one (`tamis.scan.reading.run`,
`tamis.scan.aggregation.aggregate_scan`, `tamis.scan.aggregation.top_n`, Spark) works with its planner.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import InvalidArgument, MissingFile, make_argument_error, suggest_name
from tamis.expr.nodes import FALSE, Column, Expr
from tamis.formats.constants import name_partition
from tamis.formats.listing_parts import ListingJob, ListsInParts, ReadsDeletedRows
from tamis.formats.source import LEVELS, FileListing, HasFileStatistics, TableSource, make_table_predicate
from tamis.io.counters import IoCounters
from tamis.io.storage import Storage
from tamis.scan.planning.plan import DEPTHS, FilteredBatch, PlannedFiles, ScanPlan, describe_files
from tamis.scan.planning.projection import Path, reject_unsupported_types, resolve_projection
from tamis.scan.planning.row_groups import RowGroups, remove_deleted_rows, take_rows
from tamis.scan.planning.slices import SlicePlanner, plan_in_slices
from tamis.scan.reading.task_reader import TaskReader
from tamis.scan.report.report import Report, add_level
from tamis.skipping.metrics import LevelReport
from tamis.skipping.predicate import Predicate

MAX_LIMIT = 2**62
"""No table has more rows, and Arrow could not count them."""


def check_limit(limit: object) -> int | None:
    """Return the limit of a scan; None if there is no limit, or if no table has as many rows."""
    if limit is None:
        return None
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise InvalidArgument(f"limit must be a number of rows, 0 or more, found {limit!r}")
    return limit if limit <= MAX_LIMIT else None


def check_levels(levels: object) -> None:
    """Raise an error unless `levels` are names of pruning levels."""
    if isinstance(levels, str):
        raise InvalidArgument(f"levels must be a list of names, found one string: write levels=[{levels!r}]")
    if not isinstance(levels, Iterable):
        raise make_argument_error("levels", f"a list of {', '.join(LEVELS)}", levels)
    for level in levels:
        if level not in LEVELS:
            raise InvalidArgument(f"no level {level!r}.{suggest_name(level, LEVELS)} Levels: {', '.join(LEVELS)}")


class ScanPlanner:
    """Plans one scan of a table.

    `levels` are the pruning levels to apply; they do not change the rows. Rows for which `pruning` is not TRUE may or
    may not be returned: the caller drops them. `listing` returns the files for the same filter, for callers that may
    have listed them already; its argument is whether their row counts are needed.
    """

    def __init__(
        self,
        source: TableSource,
        where: object = None,
        columns: Sequence[object] | None = None,
        limit: int | None = None,
        levels: Collection[str] = LEVELS,
        *,
        pruning: Expr | None = None,
        listing: Callable[[bool], FileListing] | None = None,
    ) -> None:
        self.limit = check_limit(limit)
        check_levels(levels)
        self.source = source
        self.levels = frozenset(levels)
        tested = make_table_predicate(where, source)
        # Conjuncts of `pruning` prune, but are not part of the residual filter.
        self.predicate: Predicate = tested
        if pruning is not None:
            self.predicate = tested.and_with(make_table_predicate(pruning, source))
        self.projection: tuple[Path, ...] = resolve_projection(columns, source.schema, source.name)
        reject_unsupported_types(source.schema, [column.path for column in self.predicate.mentioned])
        # The scan has its own counters, so that a report shows what this scan cost.
        self.storage = replace(source.storage, counters=IoCounters())
        texts = self.predicate.partition_texts
        self._constant_columns = (*source.partition_columns, *(column.name for column in texts))
        self.reader = TaskReader(
            self.storage,
            pa.schema([*source.schema, *(pa.field(column.name, column.type) for column in texts)]),
            tested,
            self.projection,
            self._constant_columns,
            source.field_names,
            may_filter_first="pages" in self.levels,
        )
        self.report: Report | None = None
        """The report of the last read; None before the first one."""
        self.reported_counts = self.storage.counters.counts()
        """The requests and bytes in the reports of earlier runs."""
        self._given_listing = listing
        self._plans: dict[str, ScanPlan] = {}
        self._slice_planners: dict[tuple[tuple[Path, ...], bool], SlicePlanner] = {}

    @property
    def schema(self) -> pa.Schema:
        """The columns that the scan returns."""
        return self.reader.output_schema

    @property
    def reads_data_columns(self) -> bool:
        """Return whether the scan returns a column that is stored in files, not only in the table's metadata."""
        return has_data_columns(self.projection, self.source)

    # --- Files --------------------------------------------------------------------------------------------------

    @cached_property
    def listing(self) -> FileListing:
        """The files that may hold a matching row."""
        return self.unchecked_listing.require(path[0] for path in self.projection)

    @cached_property
    def unchecked_listing(self) -> FileListing:
        """The files, even if partition values of the projection are unreadable: for readers of other columns."""
        if self._given_listing is not None:
            return self._given_listing(False)
        return self.source.list_files(self.predicate, self.levels, self.limit)

    def plan_listing_job(self, min_files: int) -> ListingJob | None:
        """Return the job that lists the files in executors; None if the table has at most this many files."""
        if self._given_listing is not None or not isinstance(self.source, ListsInParts):
            return None
        return self.source.plan_listing(self.predicate, self.levels, min_files)

    def list_with_rows(self) -> FileListing:
        """List the files with their row counts, if the format records them."""
        if self._given_listing is not None:
            return self._given_listing(True)
        return self.source.list_files(self.predicate, self.levels, self.limit, with_rows=True)

    def list_with_statistics(self, columns: Sequence[Column]) -> FileListing:
        """List the files with their row counts and the format's statistics of some columns."""
        source = self.source
        own = [column for column in columns if column.path[0] not in source.partition_columns]
        if own and isinstance(source, HasFileStatistics) and "files" in self.levels:
            listing = source.list_files_with_statistics(self.predicate, self.levels, own)
        else:
            listing = source.list_files(self.predicate, self.levels, with_rows=True)
        return listing.slice(0, 0) if self.predicate.expr == FALSE else listing

    @contextmanager
    def name_version_of_missing_file(self) -> Iterator[None]:
        """Add the version of the table, and what to do, to the error for a file that is gone."""
        try:
            yield
        except MissingFile as error:
            version = self.source.version
            if version is None:
                raise MissingFile(
                    f"{error}. Open the table again, or call refresh(), which lists its files as they are now"
                ) from error
            table = f"version {version} of '{self.source.storage.uri}'"
            raise MissingFile(
                f"{error}, and {table} needs it. If it was vacuumed, open a newer version; if this is the newest, "
                "restore the file"
            ) from error

    # --- Row groups and pages -----------------------------------------------------------------------------------

    def plan(self, depth: str) -> ScanPlan:
        """Return the plan down to files, row groups or pages. It is memoised."""
        if depth not in DEPTHS:
            raise InvalidArgument(f"no depth {depth!r}.{suggest_name(depth, DEPTHS)} Depths: {', '.join(DEPTHS)}")
        if depth not in self._plans:
            with self.name_version_of_missing_file():
                self._plans[depth] = self._plan_files() if depth == "files" else self._plan_row_groups(depth)
        return self._plans[depth]

    def find_page_plan(self, listing: FileListing) -> ScanPlan | None:
        """Return the plan to pages if it was made, and `listing` has all files of this scan."""
        # A run over other files does not use the scan's listing.
        return self._plans.get("pages") if listing is vars(self).get("listing") else None

    def make_report(self, listing: FileListing) -> Report:
        """Return a report that begins with the levels of a listing."""
        names = tuple(".".join(path) for path in self.projection)
        where = self.predicate
        report = Report(
            self.source.name, self.source.format, where.text, names, _labels=where.labels, _implied=where.implied
        )
        for level in listing.levels:
            add_level(report, level)
        handler = self.source.storage.handler
        if handler is not None and self.source.planning is not None and report.levels:
            note = (
                f"what executors plan is evaluated by Arrow's kernels: {type(handler).__name__} stays in this process"
            )
            report.levels[0].note = "; ".join(filter(None, (report.levels[0].note, note)))
        return report

    def plan_slice(self, listing: FileListing, projection: tuple[Path, ...]) -> PlannedFiles:
        """Plan some files to pages in this process. Small files come with their contents."""
        planner = self.get_slice_planner(projection, to_pages=True)
        return self._with_tasks(listing, *planner.plan(listing, keep_contents=True))

    def plan_listing(self, listing: FileListing, *, to_pages: bool = True) -> PlannedFiles:
        """Plan some files to pages or row groups, in this process or in the engine that plans the table."""
        planner = self.get_slice_planner(self.projection, to_pages=to_pages)
        return self._with_tasks(listing, *plan_in_slices(planner, listing, self.source.planning, self.source.name))

    def get_slice_planner(self, projection: tuple[Path, ...], *, to_pages: bool) -> SlicePlanner:
        """Return the planner of files for this filter and a projection."""
        key = (projection, to_pages)
        if key not in self._slice_planners:
            self._slice_planners[key] = SlicePlanner(
                self.storage,
                self.predicate,
                (*projection, *(column.path for column in self.predicate.columns)),
                self._constant_columns,
                self.levels,
                self.source.field_names,
                to_pages,
                self.source.index if "files" in self.levels else None,
            )
        return self._slice_planners[key]

    def exclude_deleted_rows(self, files: pa.Table, row_groups: RowGroups) -> RowGroups:
        """Return the row groups without the rows that the table's delete files or deletion vectors remove."""
        return exclude_deleted_rows(self.storage, self.source, files, row_groups)

    def _plan_files(self) -> ScanPlan:
        files = describe_files(self.listing.files, source=self.source)
        return ScanPlan(files, "files", self.make_report(self.listing), None, self._filter_files)

    def _filter_files(self, read: npt.NDArray[np.integer] | None = None) -> Iterator[FilteredBatch]:
        """Yield all files with the selection of those of the listing; with `read`, of these files of the listing."""
        paths, done = self.listing.files["path"], 0
        is_read = np.zeros(len(paths), bool)
        is_read[slice(None) if read is None else read] = True
        for each in self.source.filter_files(self.predicate, self.levels, self.limit):
            selection = each.selection.copy()
            if not is_read.all():
                own = each.files["path"].filter(pa.array(selection))
                # The files are those of the listing, in its order. But Spark may have listed them in another order.
                is_same = own.equals(paths.slice(done, len(own)))
                left = (
                    is_read[done:][: len(own)] if is_same else pc.is_in(own, value_set=paths.filter(pa.array(is_read)))
                )
                selection[selection] = np.asarray(left)
                done += len(own)
            unreadable = {name_partition(name) for name in self.listing.unreadable} & set(each.files.column_names)
            files = describe_files(each.files.drop_columns(list(unreadable)), source=self.source).combine_chunks()
            start = 0
            for batch in files.to_batches(max_chunksize=self.storage.tuning.max_batch_rows):
                yield FilteredBatch(batch, pa.array(selection[start : start + batch.num_rows]))
                start += batch.num_rows

    def _plan_row_groups(self, depth: str) -> ScanPlan:
        report = self.make_report(self.listing)
        planner = self.get_slice_planner(self.projection, to_pages=depth == "pages")
        row_groups, below = plan_in_slices(planner, self.listing, self.source.planning, self.source.name)
        planned = self._with_tasks(self.listing, row_groups, below)
        for level in (row_groups.report, *below):
            add_level(report, level)
        read = np.unique(planned.row_groups.units.file)
        return ScanPlan(planned.describe_files_to_read(), depth, report, planned, lambda: self._filter_files(read))

    def _with_tasks(self, listing: FileListing, row_groups: RowGroups, below: Sequence[LevelReport]) -> PlannedFiles:
        left = drop_pruning_conjuncts(self.exclude_deleted_rows(listing.files, row_groups), self.reader)
        return PlannedFiles(listing.files, left, below, self.source)


def exclude_deleted_rows(
    storage: Storage, deletes: ReadsDeletedRows, files: pa.Table, row_groups: RowGroups
) -> RowGroups:
    """Return the row groups without the rows that delete files or deletion vectors remove."""
    units = row_groups.units
    wanted, first = np.unique(units.file, return_index=True)
    kept = np.split(units.row_group, first[1:])
    deleted = deletes.read_deleted_rows(storage, take_rows(files, wanted), kept)
    if not deleted:
        return row_groups
    numbers = wanted.tolist()
    locations = {numbers[index]: storage.format_path(files["path"][numbers[index]].as_py()) for index in deleted}
    return remove_deleted_rows(row_groups, {numbers[index]: rows for index, rows in deleted.items()}, locations)


def drop_pruning_conjuncts(row_groups: RowGroups, reader: TaskReader) -> RowGroups:
    """Keep only the conjuncts in the residual filter that a reader tests: others only prune."""
    tested = len(reader.predicate.conjuncts)
    if row_groups.residual.shape[1] == tested:
        return row_groups
    residual = row_groups.residual.copy()
    residual[:, tested:] = False
    return replace(row_groups, residual=residual)


def has_data_columns(projection: Iterable[Path], source: TableSource) -> bool:
    """Return whether some of the columns are stored in files: partition columns come from metadata."""
    return any(path[0] not in source.partition_columns for path in projection)
