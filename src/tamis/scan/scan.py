"""A scan: the filter and the columns of a table, planned and read when a method asks for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from importlib import import_module
from typing import Any

import pyarrow as pa

from tamis.errors import UnknownColumn
from tamis.expr.nodes import Expr
from tamis.io.listing import check_unchanged
from tamis.scan.plan import ScanPlan
from tamis.scan.projection import refuse_not_read
from tamis.scan.report import Report
from tamis.scan.request import ScanRequest
from tamis.scan.residual import check_functions
from tamis.scan.rows import LazyScan
from tamis.scan.run import count_rows, read_batches
from tamis.scan.scan_planner import ScanPlanner
from tamis.tables.source import LEVELS, FileListing, SampledSchema, TableSource


class Scan(LazyScan):
    """A lazy scan of a table. Nothing is read before one of its methods asks for it.

    `levels` are the levels of pruning that are switched on; the rows are the same with any of them. `pruning` and
    `listing` are those of `tamis.scan.scan_planner.ScanPlanner`.
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
        self._request = ScanRequest.parse(where, columns, limit, levels)
        self._planner = ScanPlanner(
            source, self._request.where, columns, limit, levels, pruning=pruning, listing=listing
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns that the scan returns."""
        return self._planner.schema

    # --- Further scans ------------------------------------------------------------------------------------------

    def filter(self, where: object) -> Scan:
        """Return a scan of those rows for which `where` is TRUE too. It may name any column of the table."""
        return make_scan(self._planner.source, self._request.filter(where))

    def select(self, *columns: Any) -> Scan:
        """Return a scan of some of the columns: `scan.select("id", "address.city")`, or a list of names."""
        return make_scan(self._planner.source, self._request.select(columns, self.schema, self._planner.source.name))

    def limit(self, count: int) -> Scan:
        """Return a scan of at most `count` of the rows."""
        return make_scan(self._planner.source, self._request.first_rows(count))

    def head(self, count: int = 5) -> Scan:
        """Return a scan of at most `count` of the rows, as `limit` does."""
        return self.limit(count)

    # --- Planning -----------------------------------------------------------------------------------------------

    def plan(self, depth: str = "pages") -> ScanPlan:
        """Plan what would be read, down to files (their footers are not opened), to row groups, or to pages."""
        return self._planner.plan(depth)

    def explain(self) -> str:
        """Return the plan's report as text: what each level keeps, and what each part of the filter does."""
        return str(self.plan())

    # --- Reading ------------------------------------------------------------------------------------------------

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, batch by batch in the order of the files; memory does not grow with the table."""
        return read_batches(self._planner)

    def count(self) -> int:
        """Return how many rows match. Where metadata proves that all rows of a row group do, no column is read."""
        return count_rows(self._planner)

    def to_spark(self, spark: Any, *, reader: str = "auto") -> Any:
        """Return the rows as a lazy Spark DataFrame; `spark` is a classic or a Connect session.

        Files are pruned now, and read when Spark is asked for rows: by Spark's own Parquet reader where it reads them
        right (`reader="spark"` does not look for narrow selections), else by Arrow tasks (`reader="arrow"`: always).
        """
        # A layer above this one, found by its name.
        to_spark = import_module("tamis.spark.to_spark")
        planner = self._planner
        refuse_not_read(planner.source.schema, planner.projection)
        with planner.name_version_of_missing_file():
            # Spark would read another file under the same path without an error.
            check_unchanged(planner.storage, planner.listing.files)
            wanted = to_spark.Wanted(
                planner.source, planner.reader, planner.listing, planner.limit, planner.plan_listing
            )
            return to_spark.frame_of(spark, wanted, reader)

    @property
    def report(self) -> Report | None:
        """The report of what was read last; None until something was."""
        return self._planner.report

    @property
    def bytes_read(self) -> int:
        """The bytes that this scan has read so far, those of planning included."""
        return self._planner.storage.counters.bytes_read

    def __repr__(self) -> str:
        return describe_scan(self._planner.source.name, self.schema, self._planner.predicate.text, self._planner.limit)

    def _repr_html_(self) -> str:
        return self.plan()._repr_html_()


def planner_of(scan: Scan) -> ScanPlanner:
    """Return the planner of a scan, for engines that read it."""
    return scan._planner


def make_scan(source: TableSource, request: ScanRequest) -> Scan:
    """Return the scan of a table for a user's request. Errors name functions and columns that do not exist."""
    try:
        scan = Scan(source, request.where, request.columns, request.limit, request.levels)
    except UnknownColumn as error:
        if not isinstance(source, SampledSchema) or source.has_all_columns:
            raise
        # The column may be one that only later files have.
        way_out = "merge_schema=True (--merge-schema) takes those of all files."
        raise UnknownColumn(f"{str(error).rstrip('.')}. These are the columns of the first file: {way_out}") from error
    check_functions(scan._planner.predicate.expr, source.schema)
    return scan


def describe_scan(table: str, schema: pa.Schema, where: str | None, limit: int | None) -> str:
    """Return the `repr` of a scan."""
    parts = [repr(table), f"columns={', '.join(schema.names)}"]
    if where:
        parts.append(f"where={where}")
    if limit is not None:
        parts.append(f"limit={limit}")
    return f"<tamis.Scan {'; '.join(parts)}>"
