"""Scans: a filter and columns of a table, planned and read lazily. `Scan` is what users hold; `ScanRequest` holds its
arguments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa

from tamis.errors import (
    InvalidArgument,
    UnknownColumn,
    UnsupportedFeature,
    make_missing_package_error,
    suggest_method_arguments,
    to_one_line,
)
from tamis.expr.interop.from_any import to_expr
from tamis.expr.nodes import AnyExpr, Expr, Name
from tamis.formats.source import LEVELS, FileListing, SampledSchema, TableSource
from tamis.scan.engine import get_embedded_engine, spark_scans
from tamis.scan.planning.plan import ScanPlan
from tamis.scan.planning.projection import resolve_projection
from tamis.scan.planning.scan_planner import ScanPlanner, check_limit
from tamis.scan.reading.residual import check_functions
from tamis.scan.reading.run import count_rows, read_batches
from tamis.scan.report.report import Report
from tamis.types import type_name_with_article

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars


# --- Results --------------------------------------------------------------------------------------------------------
#
# Conversion of rows for pandas, polars and DuckDB, which are imported on first use.
#
# A type that the library lacks is converted to one that holds the same values. If there is none, or a value does not
# fit, the error names the column.


_INTERVAL = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
_MICROSECONDS_PER_DAY = 86_400_000_000
_POLARS_DIGITS = 38

_HINT = "leave it out, cast it in a query, or use to_arrow()"


def to_pandas_frame(rows: pa.Table) -> pandas.DataFrame:
    """Return the rows as a pandas DataFrame."""
    try:
        import pandas  # noqa: F401  # pyarrow's own error does not say how to install it
    except ImportError as error:
        raise make_missing_package_error("to_pandas()", "pandas", "pandas") from error
    # Values or time zones that Python lacks: a day in the year 10000, a nanosecond of a time.
    conversion_errors = (pa.ArrowException, ValueError, OverflowError, LookupError)
    try:
        return rows.to_pandas()
    except conversion_errors as error:
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            try:
                column.to_pandas()
            except conversion_errors as reason:
                raise _make_conversion_error("pandas", name, column.type, to_one_line(reason)) from error
        raise UnsupportedFeature(f"pandas cannot hold the rows: {to_one_line(error)}. Use to_arrow()") from error


def to_polars_frame(rows: pa.Table) -> polars.DataFrame:
    """Return the rows as a polars DataFrame."""
    try:
        import polars
    except ImportError as error:
        raise make_missing_package_error("to_polars()", "polars", "polars") from error
    repeated = [name for index, name in enumerate(rows.column_names) if name in rows.column_names[:index]]
    if repeated:
        raise UnsupportedFeature(
            f"polars does not allow duplicate column names, found {repeated[0]!r} twice: rename one of them "
            "with AS, or use to_arrow()"
        )
    columns = [_convert_for_polars(column, name) for name, column in zip(rows.column_names, rows.columns, strict=True)]
    converted = pa.table(columns, names=rows.column_names)
    try:
        frame = polars.from_arrow(converted)
    except polars.exceptions.PolarsError as error:
        for name in converted.column_names:
            try:
                polars.from_arrow(converted.select([name]))
            except polars.exceptions.PolarsError as reason:
                raise _make_conversion_error(
                    "polars", name, rows.schema.field(name).type, to_one_line(reason)
                ) from error
        raise UnsupportedFeature(f"polars cannot hold the rows: {to_one_line(error)}. Use to_arrow()") from error
    assert isinstance(frame, polars.DataFrame)
    return frame


def _convert_for_polars(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return a column in a type that polars supports. For some others polars panics instead of raising an error."""
    data_type = column.type
    if pa.types.is_interval(data_type):
        return pa.chunked_array([_to_duration(chunk, name) for chunk in column.chunks], pa.duration("us"))
    if pa.types.is_decimal256(data_type) and data_type.precision <= _POLARS_DIGITS:
        return column.cast(pa.decimal128(data_type.precision, data_type.scale))
    inner = _find_unsupported_type(data_type)
    if inner is not None:
        raise _make_conversion_error("polars", name, data_type, f"it has no type for {inner}")
    return column


def _find_unsupported_type(data_type: pa.DataType) -> pa.DataType | None:
    """Return the first type, nested ones included, that polars does not support; None if it supports all."""
    if pa.types.is_decimal256(data_type) or pa.types.is_interval(data_type) or pa.types.is_union(data_type):
        return data_type
    inner = (data_type.field(index).type for index in range(data_type.num_fields))
    return next((found for each in inner if (found := _find_unsupported_type(each)) is not None), None)


def _to_duration(intervals: pa.Array, name: str) -> pa.Array:
    """Return intervals as durations with days of 24 hours. Months have no fixed length."""
    values = np.frombuffer(intervals.buffers()[1], _INTERVAL, len(intervals), intervals.offset * _INTERVAL.itemsize)
    is_null = np.asarray(intervals.is_null())
    if np.any(values["months"][~is_null]):
        raise _make_conversion_error("polars", name, intervals.type, "an interval with months has no fixed length")
    if np.any(values["nanoseconds"][~is_null] % 1000):
        raise _make_conversion_error("polars", name, intervals.type, "an interval has nanoseconds")
    # The ranges of days and nanoseconds are too small for the sum to overflow.
    microseconds = values["days"].astype(np.int64) * _MICROSECONDS_PER_DAY + values["nanoseconds"] // 1000
    return pa.array(microseconds, mask=is_null).cast(pa.duration("us"))


def _make_conversion_error(library: str, column: str, data_type: pa.DataType, reason: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"{library} cannot hold the column {column!r}, {type_name_with_article(data_type)}: {reason}. "
        f"{_HINT.capitalize()}"
    )


# --- Rows and lazy scans ----------------------------------------------------------------------------------------------


class Rows(ABC):
    """Rows that are read lazily. Subclasses implement `schema` and `to_batches`; all other methods use these two."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of the rows."""

    @abstractmethod
    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, batch by batch."""

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as an Arrow reader. Its schema is known before the first batch."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_arrow(self) -> pa.Table:
        """Return all rows as one Arrow table."""
        return pa.Table.from_batches(self.to_batches(), self.schema)

    def to_pandas(self) -> pandas.DataFrame:
        """Return all rows as a pandas DataFrame."""
        return to_pandas_frame(self.to_arrow())

    def to_polars(self) -> polars.DataFrame:
        """Return all rows as a polars DataFrame."""
        return to_polars_frame(self.to_arrow())

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """Return the rows as a DuckDB relation, which reads them each time it is used."""
        return get_embedded_engine().make_relation(self, connection)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as an Arrow C stream, which polars, duckdb, pyarrow and others accept."""
        return self.to_reader().__arrow_c_stream__(requested_schema)


class LazyScan(Rows):
    """The interface of scans: `tamis.Scan`, and `ProtectedScan` for tables under a policy."""

    @abstractmethod
    def filter(self, where: object) -> LazyScan:
        """Return this scan with one more filter, which may name any column of the table."""

    @abstractmethod
    def select(self, *columns: Any) -> LazyScan:
        """Return a scan of some of the columns: `scan.select("id", "address.city")`, or a list of names."""

    @abstractmethod
    def limit(self, count: int) -> LazyScan:
        """Return a scan of at most `count` of the rows."""

    def head(self, count: int = 5) -> LazyScan:
        """Return a scan of at most `count` of the rows, as `limit` does."""
        return self.limit(count)

    @abstractmethod
    def plan(self, depth: str = "pages") -> ScanPlan:
        """Plan what would be read, down to files (their footers are not opened), to row groups, or to pages."""

    def explain(self) -> str:
        """Return the plan's report as text: what each level keeps, and what each part of the filter does."""
        return str(self.plan())

    @abstractmethod
    def count(self) -> int:
        """Return how many rows match."""

    @abstractmethod
    def to_spark(self, spark: Any, *, reader: str = "auto") -> Any:
        """Return the rows as a Spark DataFrame; `spark` is a classic or a Connect session."""

    @property
    @abstractmethod
    def report(self) -> Report | None:
        """The report of the last read; None before the first one."""

    @property
    @abstractmethod
    def bytes_read(self) -> int:
        """The bytes that this scan has read so far, those of planning included."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a scan cannot be pickled: send the URI of its table and its filter, and open it there, or send its rows"
        )


@suggest_method_arguments("Scan")
class Scan(LazyScan):
    """A lazy scan of a table: it reads only when a method needs rows or metadata.

    `levels` are the pruning levels to apply; they do not change the rows. `pruning` and
    `listing` are those of `tamis.scan.planning.scan_planner.ScanPlanner`.
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
        self._listing = listing
        self._planner = ScanPlanner(
            source, self._request.where, columns, limit, levels, pruning=pruning, listing=listing
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns that the scan returns."""
        return self._planner.schema

    # --- Further scans ------------------------------------------------------------------------------------------

    def filter(self, where: object) -> Scan:
        """Return this scan with one more filter, which may name any column of the table."""
        given = self._listing
        # Files that are fully matched by this filter need not be by both.
        listing = None if given is None else lambda with_rows: replace(given(with_rows), matched=None)
        return make_scan(self._planner.source, self._request.filter(where), listing)

    def select(self, *columns: Any) -> Scan:
        """Return a scan of some of the columns: `scan.select("id", "address.city")`, or a list of names."""
        request = self._request.select(columns, self.schema, self._planner.source.name)
        return make_scan(self._planner.source, request, self._listing)

    def limit(self, count: int) -> Scan:
        """Return a scan of at most `count` of the rows."""
        return make_scan(self._planner.source, self._request.limit_rows(count), self._listing)

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

        Files are pruned now, and read when Spark needs rows: by Spark's own Parquet reader where it is correct
        (`reader="spark"` does not look for narrow selections), else by Arrow tasks (`reader="arrow"`: always).
        """
        return spark_scans().make_dataframe(spark, self._planner, reader)

    @property
    def report(self) -> Report | None:
        """The report of the last read; None before the first one."""
        return self._planner.report

    @property
    def bytes_read(self) -> int:
        """The bytes that this scan has read so far, those of planning included."""
        return self._planner.storage.counters.bytes_read

    def __repr__(self) -> str:
        return describe_scan(self._planner.source.name, self.schema, self._planner.predicate.text, self._planner.limit)

    def _repr_html_(self) -> str:
        return self.plan()._repr_html_()


def get_planner(scan: Scan) -> ScanPlanner:
    return scan._planner


def make_scan(source: TableSource, request: ScanRequest, listing: Callable[[bool], FileListing] | None = None) -> Scan:
    """Return the scan of a table for a user's request. Errors name functions and columns that do not exist."""
    try:
        scan = Scan(source, request.where, request.columns, request.limit, request.levels, listing=listing)
    except UnknownColumn as error:
        if not isinstance(source, SampledSchema) or source.has_all_columns or error.is_partition_column:
            raise
        # The column may be one that only later files have.
        hint = "merge_schema=True (--merge-schema) takes those of all files."
        raise UnknownColumn(f"{str(error).rstrip('.')}. These are the columns of the first file: {hint}") from None
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


# --- Scan requests ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """The arguments of a scan: filter, columns, limit and pruning levels. Each method returns a new request."""

    where: AnyExpr | None = None
    columns: Sequence[object] | None = None
    limit: int | None = None
    levels: Collection[str] = LEVELS

    @staticmethod
    def parse(
        where: object = None,
        columns: Sequence[object] | None = None,
        limit: int | None = None,
        levels: Collection[str] = LEVELS,
    ) -> ScanRequest:
        """Return the request for the arguments of `Table.scan`."""
        return ScanRequest(to_expr(where), columns, check_limit(limit), levels)

    def filter(self, where: object) -> ScanRequest:
        """Return the request with one more filter."""
        if self.limit is not None:
            raise InvalidArgument(
                "the scan already has a limit, and a filter would drop some of its rows: call filter() before limit()"
            )
        return replace(self, where=to_expr([self.where, to_expr(where)]))

    def select(self, columns: Sequence[object], schema: pa.Schema, table: str) -> ScanRequest:
        """Return only some columns of `schema`, which is the schema of this request."""
        if len(columns) == 1 and isinstance(columns[0], Iterable) and not isinstance(columns[0], str):
            columns = list(columns[0])
        paths = resolve_projection(columns, schema, table)
        return replace(self, columns=[Name(path, exact=True) for path in paths])

    def limit_rows(self, count: int) -> ScanRequest:
        """Return at most `count` rows."""
        limit = check_limit(count)
        limits = [each for each in (self.limit, limit) if each is not None]
        return replace(self, limit=min(limits, default=None))
