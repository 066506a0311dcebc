"""A scan: what to keep and what to return of a table, planned and read when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import InvalidArgument, MissingFile, wrong_argument
from tamis.expr.nodes import Expr
from tamis.io.counters import IoCounters
from tamis.io.listing import check_unchanged
from tamis.parquet.batches import MOST_BYTES
from tamis.scan.deletes import without_deleted
from tamis.scan.pipeline import run_tasks
from tamis.scan.plan import DEPTHS, PlannedFiles, ScanPlan, describe_files
from tamis.scan.projection import Path, projected_paths, refuse_not_read
from tamis.scan.read import TaskReader
from tamis.scan.report import Report
from tamis.scan.results import duckdb_relation, pandas_frame, polars_frame
from tamis.scan.row_groups import RowGroups, taken
from tamis.scan.slices import SlicePlanner, plan_in_slices
from tamis.scan.tasks import MOST_TOGETHER, ScanTask, put_together
from tamis.skipping.account import LevelReport
from tamis.skipping.predicate import make_predicate
from tamis.tables.source import LEVELS, FileListing, TableSource

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars

MOST_LIMIT = 2**62
"""No table has more rows, and Arrow could not count them."""

_FILES = pa.schema([("path", pa.string()), ("size", pa.int64()), ("modified_ns", pa.int64())])

_FIRST_FILES = 16
_FIRST_LOCAL_FILES = 64
_MOST_FILES = 1024
"""How many files are planned at once while reading: few at first, so that a small limit opens few footers and the first
rows come soon. The footers of local files take no time to speak of."""


def checked_limit(limit: object) -> int | None:
    """A limit that a scan can have; None for none, and for one that no table reaches."""
    if limit is None:
        return None
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise InvalidArgument(f"limit is a number of rows, 0 or more, not {limit!r}")
    return limit if limit <= MOST_LIMIT else None


def _check_levels(levels: object) -> None:
    if isinstance(levels, str):
        raise InvalidArgument(f"levels is a list of names, not one text: levels=[{levels!r}]")
    if not isinstance(levels, Iterable):
        raise wrong_argument("levels", f"a list of {', '.join(LEVELS)}", levels)
    for level in levels:
        if level not in LEVELS:
            raise InvalidArgument(f"no level {level!r}. Levels: {', '.join(LEVELS)}")


class Scan:
    """A lazy scan of a table. Nothing is read before one of its methods asks for it.

    `levels` switches levels of pruning off for whoever wants to see what they do; the rows are the same with any. Rows
    for which `pruning` is not TRUE may be left out, or not: for whoever drops them anyway. `listing` gives the files
    for the same filter, where somebody may have listed them already: with their rows, if it is told so.
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
        limit = checked_limit(limit)
        _check_levels(levels)
        self._source = source
        self._given_listing = listing
        self._limit = limit
        self._levels = frozenset(levels)
        tested = make_predicate(where, source.schema, source.name, source.partition_columns)
        # What is only there to leave something out is not tested row by row.
        self._tested = len(tested.conjuncts) if pruning is not None else None
        self._predicate = tested if pruning is None else tested.and_also(
            make_predicate(pruning, source.schema, source.name, source.partition_columns)
        )  # fmt: skip
        self._projection = projected_paths(columns, source.schema, source.name)
        refuse_not_read(source.schema, [column.path for column in self._predicate.mentioned])
        # Counts of its own, so that a report tells what this scan cost.
        self._storage = replace(source.storage, counters=IoCounters())
        self._reader = TaskReader(
            self._storage,
            source.schema,
            tested,
            self._projection,
            source.partition_columns,
            source.field_names,
            may_filter_first="pages" in self._levels,
        )
        self._plans: dict[str, ScanPlan] = {}
        self._planners: dict[tuple[tuple[Path, ...], bool], SlicePlanner] = {}
        self._reported = self._storage.counters.counts()

    @property
    def schema(self) -> pa.Schema:
        """The columns that the scan returns."""
        return self._reader.output_schema

    # --- Planning -----------------------------------------------------------------------------------------------

    def plan(self, depth: str = "pages") -> ScanPlan:
        """What would be read, down to files (their footers are not opened), to row groups, or to pages."""
        if depth not in DEPTHS:
            raise InvalidArgument(f"no depth {depth!r}. Depths: {', '.join(DEPTHS)}")
        if depth not in self._plans:
            with self._telling_version():
                self._plans[depth] = self._plan_files() if depth == "files" else self._plan_row_groups(depth)
        return self._plans[depth]

    @contextmanager
    def _telling_version(self) -> Iterator[None]:
        """A file that is gone belongs to some version of the table, where it has versions."""
        try:
            yield
        except MissingFile as error:
            version = self._source.version
            if version is None:
                raise
            table = f"version {version} of '{self._source.storage.uri}'"
            raise MissingFile(
                f"{error}, and {table} needs it. Was it vacuumed? Then open a newer version; if this is the newest, "
                "restore the file"
            ) from error

    def explain(self) -> str:
        """The funnel of the scan as text: what each level keeps, and what each part of the filter does."""
        return str(self.plan())

    @cached_property
    def _listing(self) -> FileListing:
        return self._unchecked_listing.require(path[0] for path in self._projection)

    @cached_property
    def _unchecked_listing(self) -> FileListing:
        """The files, also where values of the projection cannot be read: for what reads other columns than those."""
        if self._given_listing is not None:
            return self._given_listing(False)
        return self._source.list_files(self._predicate, self._levels, self._limit)

    def _counted_listing(self) -> FileListing:
        if self._given_listing is not None:
            return self._given_listing(True)
        return self._source.list_files(self._predicate, self._levels, self._limit, with_rows=True)

    def _new_report(self, listing: FileListing) -> Report:
        names = tuple(".".join(path) for path in self._projection)
        report = Report(self._source.name, self._source.format, self._predicate.text, names)
        for level in listing.levels:
            report.take_in(replace(level))
        return report

    def _plan_files(self) -> ScanPlan:
        files = describe_files(self._listing.files, self._listing.partitions)
        return ScanPlan(files, "files", self._new_report(self._listing))

    def _plan_row_groups(self, depth: str) -> ScanPlan:
        report = self._new_report(self._listing)
        planner = self._planner(self._projection, to_pages=depth == "pages")
        row_groups, below = plan_in_slices(planner, self._listing, self._source.planning, self._source.name)
        planned = self._planned(self._listing, row_groups, below)
        for level in (row_groups.report, *below):
            report.take_in(level)
        return ScanPlan(planned.surviving_files(), depth, report, planned)

    def _plan_slice(self, listing: FileListing, projection: tuple[Path, ...]) -> PlannedFiles:
        """Some files, down to what must be read for the filter and a projection; small ones come along whole."""
        planner = self._planner(projection, to_pages=True)
        return self._planned(listing, *planner.plan(listing.files, listing.partitions, keep_contents=True))

    def _planner(self, projection: tuple[Path, ...], *, to_pages: bool) -> SlicePlanner:
        key = (projection, to_pages)
        if key not in self._planners:
            self._planners[key] = SlicePlanner(
                self._storage,
                self._predicate,
                (*projection, *(column.path for column in self._predicate.columns)),
                self._source.partition_columns,
                self._levels,
                self._source.field_names,
                to_pages,
                self._source.index if "files" in self._levels else None,
            )
        return self._planners[key]

    def _planned(self, listing: FileListing, row_groups: RowGroups, below: Sequence[LevelReport]) -> PlannedFiles:
        files = listing.files
        left = self._to_be_tested(self._without_deleted(files, row_groups))
        return PlannedFiles(files, listing.partitions, left, below)

    def _to_be_tested(self, row_groups: RowGroups) -> RowGroups:
        if self._tested is None:
            return row_groups
        unmatched = row_groups.unmatched.copy()
        unmatched[:, self._tested :] = False
        return replace(row_groups, unmatched=unmatched)

    def _without_deleted(self, files: pa.Table, row_groups: RowGroups) -> RowGroups:
        units = row_groups.units
        wanted, first = np.unique(units.file, return_index=True)
        kept = np.split(units.row_group, first[1:])
        deleted = self._source.deleted_rows(self._storage, taken(files, wanted), kept)
        if not deleted:
            return row_groups
        numbers = wanted.tolist()
        places = {numbers[index]: self._storage.place(files["path"][numbers[index]].as_py()) for index in deleted}
        return without_deleted(row_groups, {numbers[index]: rows for index, rows in deleted.items()}, places)

    # --- Reading ------------------------------------------------------------------------------------------------

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, batch by batch in the order of the files; memory does not grow with the table."""
        refuse_not_read(self._source.schema, self._projection)
        run = Run(self, self._projection, self._listing)
        remaining = self._limit
        try:
            if remaining == 0:
                return
            with self._telling_version():
                of_files = [path for path in self._projection if path[0] not in self._source.partition_columns]
                # Where nothing of a file is read, nothing else shows that it is another one by now.
                tasks = run.tasks() if of_files else self.unchanged(run.tasks())
                for batch in run_tasks(tasks, self._reader.read, weight):
                    if remaining is not None:
                        batch = batch.slice(0, remaining)
                        remaining -= batch.num_rows
                    run.rows += batch.num_rows
                    yield batch
                    if remaining == 0:
                        return
        finally:
            run.finish()

    def to_arrow(self) -> pa.Table:
        """All rows as one Arrow table."""
        return pa.Table.from_batches(self.to_batches(), self.schema)

    def count(self) -> int:
        """How many rows match. Where metadata proves that all rows of a row group do, no column is read."""
        found, rest, counted_files = _counted(self._counted_listing())
        check_unchanged(self._storage, counted_files)
        run = Run(self, (), rest)
        run.count_known(found)
        try:
            enough = self._limit is not None and found >= self._limit
            tasks = iter(()) if enough else self.unchanged(run.tasks())
            with self._telling_version():
                for counted in run_tasks(tasks, lambda tasks: iter([self._reader.count(tasks)]), weight):
                    found += counted
                    if self._limit is not None and found >= self._limit:
                        break
            found = found if self._limit is None else min(found, self._limit)
            run.rows = found
        finally:
            run.finish()
        return found

    def unchanged(self, tasks: Iterable[list[ScanTask]]) -> Iterator[list[ScanTask]]:
        """The tasks, once their files are seen to be those that were listed, where no row is going to be tested."""
        checked: set[str] = set()
        for group in tasks:
            new = {task.path: task for task in group if not task.residual and task.path not in checked}
            if new:
                files = [(task.path, task.size, task.modified_ns) for task in new.values()]
                check_unchanged(self._storage, pa.table(list(zip(*files, strict=True)), schema=_FILES))
                checked |= new.keys()
            yield group

    def to_pandas(self) -> pandas.DataFrame:
        """All rows as a pandas DataFrame."""
        return pandas_frame(self.to_arrow())

    def to_polars(self) -> polars.DataFrame:
        """All rows as a polars DataFrame."""
        return polars_frame(self.to_arrow())

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """The rows as a DuckDB relation, which reads them each time it is used."""
        return duckdb_relation(self, connection)

    def to_spark(self, spark: Any, *, reader: str = "auto") -> Any:
        """The rows as a lazy Spark DataFrame; `spark` is a classic or a Connect session.

        Files are pruned now, and read when Spark is asked for rows: by Spark's own Parquet reader where it reads them
        right (`reader="spark"` does not look for narrow selections), else by tasks of ours (`reader="arrow"`: always).
        """
        # A layer above this one, found by its name.
        to_spark = import_module("tamis.spark.to_spark")
        refuse_not_read(self._source.schema, self._projection)
        with self._telling_version():
            # Spark opens whatever is at a path.
            check_unchanged(self._storage, self._listing.files)
            wanted = to_spark.Wanted(self._source, self._reader, self._listing, self._limit, self._plan_listing)
            return to_spark.frame_of(spark, wanted, reader)

    def _plan_listing(self, listing: FileListing, *, to_pages: bool = True) -> PlannedFiles:
        """Some files, planned to their pages or row groups where the table's plans are made."""
        planner = self._planner(self._projection, to_pages=to_pages)
        return self._planned(listing, *plan_in_slices(planner, listing, self._source.planning, self._source.name))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows as an Arrow C stream, so that polars, duckdb, pyarrow and others take a scan as it is."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self.to_batches())
        return reader.__arrow_c_stream__(requested_schema)

    @property
    def report(self) -> Report | None:
        """The report of what was read last; None while nothing was."""
        return getattr(self, "_last_report", None)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a scan cannot be pickled: send the URI of its table and its filter, and open it there, or send its rows"
        )

    def __repr__(self) -> str:
        parts = [repr(self._source.name), f"columns={', '.join(self.schema.names)}"]
        if self._predicate.text:
            parts.append(f"where={self._predicate.text}")
        if self._limit is not None:
            parts.append(f"limit={self._limit}")
        return f"<tamis.Scan {'; '.join(parts)}>"

    def _repr_html_(self) -> str:
        return self.plan()._repr_html_()


def _counted(listing: FileListing) -> tuple[int, FileListing, pa.Table]:
    """The rows of files that match whole and tell how many they have, the other files, and those files."""
    if listing.rows is None or listing.matched is None:
        return 0, listing, listing.files.slice(0, 0)
    is_counted = listing.matched & np.asarray(listing.rows.is_valid())
    found = pc.sum(listing.rows.filter(pa.array(is_counted))).as_py() or 0
    left = np.flatnonzero(~is_counted)
    # To take none out of many copies them all before.
    rest = listing.take(left) if len(left) else listing.slice(0, 0)
    return found, rest, listing.files.filter(pa.array(is_counted))


def weight(tasks: list[ScanTask]) -> int:
    """What tasks hold while they are read: their column chunks, and about three batches decoded from them."""
    size = sum(task.bytes for task in tasks)
    return size + 3 * min(MOST_BYTES, 8 * size)


class Run:
    """One reading of a scan: its tasks as they are planned, and the report that grows with them."""

    def __init__(self, scan: Scan, projection: tuple[Path, ...], listing: FileListing) -> None:
        self._scan = scan
        self._projection = projection
        self._listing = listing
        # What planning read, and no run has reported yet, belongs to this one.
        self._before = scan._reported
        self._rows_planned = 0
        self._has_enough = False
        self.rows = 0
        # The files of a scan are not listed here for a run that has others.
        plan = scan._plans.get("pages") if listing is vars(scan).get("_listing") else None
        self._plan = plan
        self._report = plan.report if plan is not None else scan._new_report(listing)

    def count_known(self, rows: int) -> None:
        """Take in rows that need not be read."""
        self._rows_planned += rows

    def take_in(self, level: LevelReport) -> None:
        """Add the account of what was planned elsewhere."""
        self._report.take_in(level)

    def tasks(self) -> Iterator[list[ScanTask]]:
        """The row groups to read, in groups to be read together, planned a few files ahead of the reading."""
        if self._plan is not None:
            yield from self.together(self._plan.tasks)
            return
        is_local = self._scan._storage.is_local
        start, count = 0, _FIRST_LOCAL_FILES if is_local and self._scan._limit is None else _FIRST_FILES
        total = self._listing.files.num_rows
        while start < total:
            some = self._listing.slice(start, count)
            planned = self._scan._plan_slice(some, self._projection)
            for level in (planned.row_groups.report, *planned.below):
                self._report.take_in(level)
            yield from self.together(planned.tasks())
            if self._has_enough:
                return
            start += count
            count = min(count * 2, _MOST_FILES)

    def together(self, tasks: Iterable[ScanTask]) -> Iterator[list[ScanTask]]:
        """Tasks in groups to be read together, counted."""
        storage = self._scan._storage
        # What is fetched together from afar is fetched at the same time.
        most = MOST_TOGETHER if storage.is_local else storage.threads
        limit = self._scan._limit
        certain = 0
        for group in put_together(tasks, limit, most):
            self._rows_planned += sum(task.row_count for task in group)
            yield group
            certain += sum(task.row_count for task in group if not task.residual)
            if limit is not None and certain >= limit:
                # Whatever else is planned would be read ahead for nothing.
                self._has_enough = True
                return

    def finish(self) -> None:
        self._scan._storage.open_files.clear()
        now = self._scan._storage.counters.counts()
        spent, self._scan._reported = now - self._before, now
        self._report.bytes_read = spent.bytes_read
        self._report.requests = spent.requests
        self._report.levels = [level for level in self._report.levels if level.level != "rows"]
        self._report.levels.append(LevelReport("rows", self._rows_planned, self.rows))
        self._scan._last_report = self._report  # type: ignore[attr-defined]
