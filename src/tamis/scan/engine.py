"""What a scan needs of the engines above it. `tamis.engines` has the implementations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import pyarrow as pa

from tamis.expr.nodes import Expr
from tamis.formats.engines import load_engine

if TYPE_CHECKING:
    import duckdb

    from tamis.formats.source import TableSource
    from tamis.scan.planning.scan_planner import ScanPlanner


class CompiledPredicate(Protocol):
    """A predicate that an engine evaluates over batches, in any number of threads."""

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return the value of the predicate for each row."""

    def check(self, schema: pa.Schema) -> None:
        """Raise if the engine cannot evaluate the predicate over rows of a schema."""


class EmbeddedEngine(Protocol):
    """DuckDB in this process, for what Arrow's kernels do not compute."""

    def compile_predicate(self, predicate: Expr) -> CompiledPredicate: ...

    def compile_expressions(self, expressions: Sequence[Expr]) -> Callable[[pa.RecordBatch], list[pa.Array]]:
        """Return a function that computes expressions for the rows of a batch."""

    def make_relation(self, rows: Any, connection: duckdb.DuckDBPyConnection | None) -> duckdb.DuckDBPyRelation:
        """Return a relation over a scan or a query, which it reads each time it is used."""


class SparkScans(Protocol):
    """Spark, as scans use it."""

    def make_dataframe(self, spark: Any, planner: ScanPlanner, reader: str) -> Any:
        """Return the rows of a scan as a lazy DataFrame."""

    def make_files_dataframe(self, spark: Any, source: TableSource, columns: Sequence[str] | None) -> Any:
        """Return the files of a table as a cached DataFrame."""


def get_embedded_engine() -> EmbeddedEngine:
    """Import DuckDB on first use: it takes a tenth of a second, and few scans need it."""
    return cast(EmbeddedEngine, load_engine("duckdb"))


def spark_scans() -> SparkScans:
    return cast(SparkScans, load_engine("spark"))
