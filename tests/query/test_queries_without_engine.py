"""Queries that only select columns of a scan run without the engine, and return the same rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.engines.duckdb.run.run_plan import RunningQuery
from tamis.query.engine import query_engine
from tamis.query.query import find_direct_result, get_compiled_query


@pytest.fixture
def session(tmp_path: Path) -> tamis.Session:
    rows = pa.table({"id": range(10), "name": [f"n{number}" for number in range(10)], "s": [{"x": 1}] * 10})
    pq.write_table(rows, tmp_path / "t.parquet")
    session = tamis.connect()
    session.register("t", tamis.open(tmp_path / "t.parquet"))
    return session


@pytest.mark.parametrize(
    ("query", "is_direct"),
    [
        ("SELECT id, name FROM t WHERE id > 3", True),
        ("SELECT name AS a, id, id AS b FROM t WHERE id > 3", True),
        ("SELECT b AS c FROM (SELECT name AS b, id AS a FROM t) WHERE a < 5", True),
        ("SELECT id AS name, name AS id FROM t WHERE name = 'n4'", True),
        ("SELECT id + 1 AS id FROM t", False),
        ("SELECT s FROM t", False),
        ("SELECT id FROM t ORDER BY id", False),
    ],
)
def test_rows_are_those_of_the_engine(session: tamis.Session, query: str, is_direct: bool) -> None:
    asked = session.sql(query)
    made = get_compiled_query(asked)
    connectors = made.context.connectors
    found = find_direct_result(made.optimized.plan, made.names, connectors, query_engine())
    assert (found is not None) is is_direct
    running = RunningQuery(made.optimized.plan, made.names, connectors, lambda error: error)
    expected = pa.Table.from_batches(running.batches(), running.schema)
    assert asked.to_arrow() == expected
    assert found is None or pa.Table.from_batches(found.batches(), found.schema) == expected
