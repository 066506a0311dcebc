"""Rows that people hold: as Arrow, and in the forms of other libraries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from tamis.scan.results import duckdb_relation, pandas_frame, polars_frame

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars

    from tamis.scan.plan import ScanPlan
    from tamis.scan.report import Report


class Rows(ABC):
    """Rows that are read when a method asks for them. Every method uses `schema` and `to_batches` alone."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of the rows."""

    @abstractmethod
    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, batch by batch."""

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as an Arrow reader, which knows their columns before the first batch."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_arrow(self) -> pa.Table:
        """Return all rows as one Arrow table."""
        return pa.Table.from_batches(self.to_batches(), self.schema)

    def to_pandas(self) -> pandas.DataFrame:
        """Return all rows as a pandas DataFrame."""
        return pandas_frame(self.to_arrow())

    def to_polars(self) -> polars.DataFrame:
        """Return all rows as a polars DataFrame."""
        return polars_frame(self.to_arrow())

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """Return the rows as a DuckDB relation, which reads them each time it is used."""
        return duckdb_relation(self, connection)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as an Arrow C stream, which polars, duckdb, pyarrow and others accept."""
        return self.to_reader().__arrow_c_stream__(requested_schema)


class LazyScan(Rows):
    """What people can do with a scan. `tamis.Scan` is one; `ProtectedScan` is the one of a table under a policy."""

    @abstractmethod
    def filter(self, where: object) -> LazyScan:
        """Return a scan of those rows for which `where` is TRUE too. It may name any column of the table."""

    @abstractmethod
    def select(self, *columns: Any) -> LazyScan:
        """Return a scan of some of the columns: `scan.select("id", "address.city")`, or a list of names."""

    @abstractmethod
    def limit(self, count: int) -> LazyScan:
        """Return a scan of at most `count` of the rows."""

    @abstractmethod
    def head(self, count: int = 5) -> LazyScan:
        """Return a scan of at most `count` of the rows, as `limit` does."""

    @abstractmethod
    def plan(self, depth: str = "pages") -> ScanPlan:
        """Plan what would be read, down to files (their footers are not opened), to row groups, or to pages."""

    @abstractmethod
    def explain(self) -> str:
        """Return the plan's report as text: what each level keeps, and what each part of the filter does."""

    @abstractmethod
    def count(self) -> int:
        """Return how many rows match."""

    @abstractmethod
    def to_spark(self, spark: Any, *, reader: str = "auto") -> Any:
        """Return the rows as a Spark DataFrame; `spark` is a classic or a Connect session."""

    @property
    @abstractmethod
    def report(self) -> Report | None:
        """The report of what was read last; None until something was."""

    @property
    @abstractmethod
    def bytes_read(self) -> int:
        """The bytes that this scan has read so far, those of planning included."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a scan cannot be pickled: send the URI of its table and its filter, and open it there, or send its rows"
        )
