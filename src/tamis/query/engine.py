"""What a query needs of the engines above it. `tamis.engines` has the implementations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, Protocol, cast

import pyarrow as pa
from sqlglot import exp

from tamis.errors import ExpressionError, TamisError
from tamis.formats.engines import load_engine
from tamis.query.connectors.connector import Connector
from tamis.query.plan.nodes import Node, TableScan
from tamis.tuning import Tuning

if TYPE_CHECKING:
    from tamis.query.query import CompiledQuery, Rules
    from tamis.query.sql.parameters import Arguments
    from tamis.query.sql.sources import Tables


class UntranslatableQuery(Exception):
    """The engine rejected the query before running it."""


class Running(Protocol):
    """A query that an engine has started. Its batches can be read once."""

    @property
    def schema(self) -> pa.Schema: ...

    def batches(self) -> Iterator[pa.RecordBatch]: ...

    def close(self) -> None: ...


class QueryEngine(Protocol):
    """DuckDB in this process, which runs what remains of a plan above its scans."""

    def list_scalar_functions(self) -> frozenset[str]:
        """Return the names of functions that return one value for each row, in lower case."""

    def reads_natively(self, scan: TableScan, connector: Connector) -> bool:
        """Return whether the engine's own Parquet reader reads the files of a scan."""

    def can_round_trip(self, data_type: pa.DataType) -> bool:
        """Return whether the engine returns values of a type unchanged."""

    def find_result_schema(
        self, plan: Node, names: Sequence[str] | None, connectors: Mapping[str, Connector]
    ) -> pa.Schema:
        """Return the columns of a plan's result; raise `UntranslatableQuery` if the engine rejects the plan."""

    def start(
        self,
        plan: Node,
        names: Sequence[str] | None,
        connectors: Mapping[str, Connector],
        explain: Callable[[BaseException], BaseException],
        *,
        is_guarded: bool,
        tuning: Tuning,
    ) -> Running:
        """Start a plan; raise `UntranslatableQuery` if the engine rejects it."""

    def compile_duckdb_query(
        self,
        text: str,
        tables: Tables,
        connectors: Mapping[str, Connector],
        rules: Rules,
        *,
        arguments: Arguments | None,
        tuning: Tuning,
    ) -> CompiledQuery:
        """Compile a query in DuckDB's own dialect."""

    def explain_rejection(
        self,
        tree: exp.Expr,
        tables: Tables,
        doubts: Sequence[ExpressionError],
        error: BaseException,
        otherwise: Callable[[str], TamisError],
    ) -> TamisError:
        """Return the error for a query that an engine rejects; `otherwise` wraps the engine's own message."""

    def explain_failure(
        self, tree: exp.Expr | None, doubts: Sequence[ExpressionError], error: BaseException
    ) -> TamisError:
        """Return the error for a query that the engine started but could not finish."""


class SparkQueries(Protocol):
    """Spark, as queries use it."""

    def check_query(self, spark: Any, query: CompiledQuery) -> None:
        """Raise an error if Spark rejects a query."""

    def make_query_dataframe(self, spark: Any, query: CompiledQuery) -> Any:
        """Return the DataFrame of a query that was planned for Spark."""

    def get_settings(self, spark: Any) -> tuple[tzinfo, bool]:
        """Return the time zone of a Spark session, and whether it is in ANSI mode."""

    def find_frame_schema(self, frame: Any) -> pa.Schema | None:
        """Return the columns of a Spark DataFrame in Arrow's types; None for any other object."""

    def find_table(self, spark: Any, parts: Sequence[str]) -> Any | None:
        """Return a view or table of the Spark session as a DataFrame; None if Spark has no table of this name."""

    def make_case_sensitive_dataframe(
        self,
        spark: Any,
        text: str,
        arguments: Arguments | None,
        tables: Tables,
        make_frame: Callable[[str], Any],
        check_name: Callable[[Sequence[str]], None],
    ) -> Any | None:
        """Return the DataFrame of a query whose names differ only by case, if the session is case-sensitive."""
        ...

    def make_text_dataframe(self, spark: Any, text: str, find: Callable[[str], Any]) -> Any:
        """Return the DataFrame of a text that only Spark can read; None if Spark rejects it too."""


def query_engine() -> QueryEngine:
    """Import DuckDB on first use: it takes a tenth of a second."""
    return cast(QueryEngine, load_engine("duckdb"))


def spark_queries() -> SparkQueries:
    return cast(SparkQueries, load_engine("spark"))
