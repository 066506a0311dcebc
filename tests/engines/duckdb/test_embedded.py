"""The statistics that the embedded engine has for the scans that stream into it."""

from __future__ import annotations

import math
import re
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import tamis
from builders.query.sql_tables import has_same_rows
from tamis.engines.duckdb.run import run_plan as embedded
from tamis.engines.duckdb.run.run_plan import RunningQuery
from tamis.query.plan.nodes import Output, TableScan
from tamis.tuning import DEFAULT_TUNING, Tuning

TWO = "SELECT o.id, o.customer, c.name FROM orders o JOIN customers c ON o.customer = c.id"
THREE = f"SELECT t.*, e.id AS earlier FROM ({TWO}) t JOIN orders e ON e.id = t.id - 1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Orders of a few customers; the first customer has no name."""
    customers = pa.table({"id": pa.array(range(5), pa.int64()), "name": [None, "b", "c", "d", "e"]})
    orders = pa.table({"id": range(100), "customer": [number % 7 for number in range(100)]})
    for name, rows in (("customers", customers), ("orders", orders)):
        deltalake.write_deltalake(str(tmp_path / name), rows)
    return tmp_path


def connect(folder: Path, tuning: Tuning = DEFAULT_TUNING) -> tamis.Session:
    session = tamis.connect(tuning=tuning)
    for name in ("customers", "orders"):
        session.register(name, session.open(folder / name))
    return session


@pytest.fixture
def session(folder: Path) -> tamis.Session:
    return connect(folder)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The EXPLAIN output of the engine for each run."""
    explained: list[str] = []
    started = RunningQuery._start

    def record_plan(self: RunningQuery, text: str) -> pa.RecordBatchReader:
        explained.append(self._connection.sql(f"EXPLAIN {text}").fetchall()[0][1])
        return started(self, text)

    monkeypatch.setattr(RunningQuery, "_start", record_plan)
    return explained


def test_small_scans_of_several_joins_are_materialised(session: tamis.Session, plans: list[str]) -> None:
    found = session.sql(THREE, rules=False).to_arrow()
    assert sorted(found["id"].to_pylist()) == [n for n in range(1, 100) if n % 7 < 5]
    assert "PYTHON_ARROW_SCAN" not in plans[-1]
    assert "~100 rows" in plans[-1]


def test_large_scans_stream_with_a_row_estimate(folder: Path, plans: list[str]) -> None:
    held = connect(folder).sql(THREE, rules=False).to_arrow()
    streamed = connect(folder, Tuning(max_materialised_rows=0)).sql(THREE, rules=False).to_arrow()
    assert has_same_rows(streamed, held)
    assert streamed.schema == held.schema
    assert "PYTHON_ARROW_SCAN" in plans[-1]
    assert "~100 rows" in plans[-1]


def test_both_sides_of_a_join_stream_with_row_estimates(session: tamis.Session, plans: list[str]) -> None:
    found = session.sql(TWO, rules=False).to_arrow()
    assert sorted(found["id"].to_pylist()) == [n for n in range(100) if n % 7 < 5]
    assert "PYTHON_ARROW_SCAN" in plans[-1]
    assert "~100 rows" in plans[-1]
    assert "~5 rows" in plans[-1]


def test_a_single_table_streams(session: tamis.Session, plans: list[str]) -> None:
    session.sql("SELECT count(DISTINCT customer) FROM orders", rules=False).to_arrow()
    assert "PYTHON_ARROW_SCAN" in plans[-1]


def test_an_interrupt_of_the_engine_raises_keyboard_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt), embedded.raise_keyboard_interrupt():
        raise RuntimeError("Query interrupted")
    with pytest.raises(RuntimeError, match="otherwise"), embedded.raise_keyboard_interrupt():
        raise RuntimeError("otherwise")


@pytest.mark.parametrize("rows", [1, 1000, 2**31, 2**62])
def test_the_estimate_of_many_rows_uses_a_small_range(rows: int) -> None:
    leaf = TableScan("memory", "t", (Output("a"),))
    text = embedded._write_query_with_row_estimate("FROM t", leaf, rows)
    numbers = [int(number) for number in re.findall(r"range\((\d+)\)", text)]
    assert numbers[0] <= embedded.MAX_RANGE_LENGTH
    assert math.prod(numbers) == pytest.approx(rows / embedded.FILTER_SELECTIVITY, rel=0.01)
