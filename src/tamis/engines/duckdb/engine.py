"""DuckDB as the layers below see it: it implements `scan.engine.EmbeddedEngine` and `query.engine.QueryEngine`."""

from __future__ import annotations

from typing import Any

import duckdb

from tamis.engines.duckdb.dialect.duckdb_query import DuckdbQuery
from tamis.engines.duckdb.native_scan import can_round_trip, plan_native_scan
from tamis.engines.duckdb.run.errors import explain_failure, explain_rejection
from tamis.engines.duckdb.run.evaluate import EmbeddedExpressions, EmbeddedPredicates
from tamis.engines.duckdb.run.run_plan import CastStream, RunningQuery, find_result_schema, to_engine_schema
from tamis.engines.duckdb.translate.functions import FUNCTIONS
from tamis.errors import make_argument_error
from tamis.query.connectors.connector import Connector
from tamis.query.plan.nodes import TableScan

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


compile_predicate, compile_expressions = EmbeddedPredicates, EmbeddedExpressions
start, compile_duckdb_query = RunningQuery, DuckdbQuery
"""Functions of the interface that make an object of a class."""


def list_scalar_functions() -> frozenset[str]:
    return frozenset(FUNCTIONS)


def reads_natively(scan: TableScan, connector: Connector) -> bool:
    return plan_native_scan(scan, connector) is not None


def make_relation(rows: Any, connection: duckdb.DuckDBPyConnection | None) -> duckdb.DuckDBPyRelation:
    """Return a relation over a scan or a query, which it reads each time it is used."""
    if connection is not None and not hasattr(connection, "from_arrow"):
        raise make_argument_error("connection", "one of duckdb.connect()", connection)
    source = rows if to_engine_schema(rows.schema) == rows.schema else CastStream(rows.schema, rows.to_batches, [])
    return duckdb.from_arrow(source) if connection is None else connection.from_arrow(source)
