"""DuckDB as the layers below see it: it implements `scan.engine.EmbeddedEngine` and `query.engine.QueryEngine`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from tamis.engines.duckdb.macros.macros import UNSUPPORTED_FUNCTIONS
from tamis.engines.duckdb.native_scan import can_round_trip, plan_native_scan
from tamis.engines.duckdb.run.errors import explain_failure, explain_rejection
from tamis.engines.duckdb.run.evaluate import EmbeddedExpressions, EmbeddedPredicates
from tamis.engines.duckdb.run.run_plan import RunningQuery, cast_to_engine_schema, find_result_schema, to_engine_schema
from tamis.engines.duckdb.translate.functions import BUILDERS, SAME
from tamis.errors import make_argument_error
from tamis.expr.nodes import Expr
from tamis.query.connectors.connector import Connector
from tamis.query.plan.nodes import Node, TableScan
from tamis.tuning import Tuning

if TYPE_CHECKING:
    from tamis.query.query import CompiledQuery, Rules
    from tamis.query.sql.parameters import Arguments
    from tamis.query.sql.sources import Tables

__all__ = [
    "can_round_trip",
    "compile_duckdb_query",
    "compile_expressions",
    "compile_predicate",
    "explain_failure",
    "explain_rejection",
    "find_result_schema",
    "list_scalar_functions",
    "make_relation",
    "reads_natively",
    "start",
]


def compile_predicate(predicate: Expr) -> EmbeddedPredicates:
    return EmbeddedPredicates(predicate)


def compile_expressions(expressions: Sequence[Expr]) -> EmbeddedExpressions:
    return EmbeddedExpressions(expressions)


def list_scalar_functions() -> frozenset[str]:
    return (SAME | BUILDERS.keys()) - UNSUPPORTED_FUNCTIONS.keys()


def reads_natively(scan: TableScan, connector: Connector) -> bool:
    return plan_native_scan(scan, connector) is not None


def compile_duckdb_query(
    text: str,
    tables: Tables,
    connectors: Mapping[str, Connector],
    rules: Rules,
    *,
    arguments: Arguments | None,
    tuning: Tuning,
) -> CompiledQuery:
    from tamis.engines.duckdb.dialect.duckdb_query import DuckdbQuery

    return DuckdbQuery(text, tables, connectors, rules, arguments=arguments, tuning=tuning)


def start(
    plan: Node,
    names: Sequence[str] | None,
    connectors: Mapping[str, Connector],
    explain: Callable[[BaseException], BaseException],
    *,
    is_guarded: bool,
    tuning: Tuning,
) -> RunningQuery:
    return RunningQuery(plan, names, connectors, explain, is_guarded=is_guarded, tuning=tuning)


def make_relation(rows: Any, connection: duckdb.DuckDBPyConnection | None) -> duckdb.DuckDBPyRelation:
    """Return a relation over a scan or a query, which it reads each time it is used."""
    if connection is not None and not hasattr(connection, "from_arrow"):
        raise make_argument_error("connection", "one of duckdb.connect()", connection)
    schema = rows.schema
    supported = to_engine_schema(schema)
    source = rows if supported == schema else _CastRows(rows, supported)
    return duckdb.from_arrow(source) if connection is None else connection.from_arrow(source)


class _CastRows:
    """The rows of a scan or a query, cast to types that DuckDB supports, as an Arrow stream."""

    def __init__(self, rows: Any, schema: pa.Schema) -> None:
        self._rows = rows
        self._schema = schema

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._rows.to_batches():
            yield pa.RecordBatch.from_arrays(cast_to_engine_schema(batch, self._schema), schema=self._schema)
