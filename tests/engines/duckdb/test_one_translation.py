"""A query is parsed once, when it is made, and written once, for DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.generator import Generator
from sqlglot.parser import Parser

import tamis

QUERIES = {
    "planned": "SELECT k, sum(v * 2) AS s FROM t WHERE day >= DATE '2024-01-02' GROUP BY k ORDER BY s DESC LIMIT 3",
    "joined": "SELECT a.k, upper(b.s) AS u FROM t a LEFT JOIN t b ON a.k = b.k AND b.v > 3 WHERE a.s LIKE 'x%'",
    "with unsupported syntax": "SELECT k, rank() OVER (PARTITION BY s ORDER BY v) AS r FROM t WHERE v < 4",
    "with an opaque expression": "SELECT xs[0] AS x FROM (SELECT k, xs FROM t WHERE k > 1) WHERE xs[0] + k > 3",
    "with a lateral view": "SELECT x FROM t LATERAL VIEW explode(xs) e AS x WHERE k = 2",
    "with a common table": "WITH c AS (SELECT k, count(*) AS n FROM t GROUP BY k) "
    "SELECT a.n FROM c a JOIN c b ON a.k = b.k",
}

REFUSED = "the engine does not accept the plan"


@pytest.fixture
def session(tmp_path: Path) -> tamis.Session[Any]:
    days = pa.array([19_723, 19_724, 19_725], pa.date32())
    columns = {"k": [1, 2, 3], "v": [1.5, 2.5, 3.5], "s": ["x1", "y", None], "day": days, "xs": [[1, 2], [3], [4]]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    session = tamis.connect()
    session.register("t", tmp_path / "t.parquet")
    return session


@contextmanager
def count_calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Count the texts that sqlglot parses and writes, without what it parses in order to parse another text."""
    counted = {"parsed": 0, "written": 0}
    depth = 0

    def wrap(owner: type, name: str, key: str) -> None:
        inner = getattr(owner, name)

        def outer(*args: Any, **options: Any) -> Any:
            nonlocal depth
            # Tamis also writes texts in Spark's dialect, for labels and messages.
            counted[key] += not depth and (key == "parsed" or isinstance(args[0].dialect, DuckDB))
            depth += 1
            try:
                return inner(*args, **options)
            finally:
                depth -= 1

        monkeypatch.setattr(owner, name, outer)

    wrap(Parser, "parse", "parsed")
    wrap(Parser, "parse_into", "parsed")
    wrap(Generator, "generate", "written")
    yield counted
    monkeypatch.undo()


@pytest.mark.parametrize("text", QUERIES.values(), ids=QUERIES)
def test_a_query_is_parsed_when_it_is_made_and_written_when_it_runs(
    session: tamis.Session[Any], text: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tamis")
    # The names of types are parsed once in a process.
    expected = session.sql(text).to_arrow().to_pylist()
    with count_calls(monkeypatch) as counted:
        query = session.sql(text)
        assert counted["parsed"] == 1
        # Not all of the queries have an order.
        assert sorted(map(repr, query.to_arrow().to_pylist())) == sorted(map(repr, expected))
        assert counted == {"parsed": 1, "written": 1}
    assert REFUSED not in caplog.text


def test_a_plan_that_the_engine_refuses_is_logged_before_the_query_runs_as_it_was_written(
    session: tamis.Session[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tamis")
    query = session.sql("SELECT k FROM t WHERE v > (SELECT avg(u.v) FROM t u WHERE u.k < t.k)")
    assert query.to_arrow()["k"].to_pylist() == [2, 3]
    assert REFUSED in caplog.text


def test_the_sides_of_a_set_operation_are_written_once_more_to_describe_them(
    session: tamis.Session[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "SELECT k AS x FROM t UNION ALL SELECT s FROM t WHERE s = '7'"
    session.sql(text).to_arrow()
    with count_calls(monkeypatch) as counted:
        query = session.sql(text)
        assert sorted(query.to_arrow()["x"].to_pylist()) == [1, 2, 3]
        assert counted == {"parsed": 1, "written": 2}


def test_a_filter_on_the_engine_is_written_once(
    session: tamis.Session[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = "soundex(s) = 'X000' AND xs[0] = 1 AND initcap(s) = 'X1'"
    assert tamis.open(tmp_path / "t.parquet").scan(where=where).count() == 1
    with count_calls(monkeypatch) as counted:
        scan = tamis.open(tmp_path / "t.parquet").scan(where=where)
        # One more predicate is made to check the functions of the filter before anything is read.
        assert counted == {"parsed": 1, "written": 1}
        assert scan.count() == 1
        assert counted == {"parsed": 1, "written": 2}
