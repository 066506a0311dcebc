"""Filters with columns that differ only by case, and with functions that do not exist."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import tamis
from builders.commands import run_here
from tamis import col
from tamis.errors import AmbiguousColumn, EvaluationError


@pytest.fixture
def table(tmp_path: Path) -> tamis.Table:
    rows = pa.table({"user_id": [1, 2], "uSeR_Id": [10, 20], "s": pa.array([{"a": 1, "A": 2}, {"a": 3, "A": 4}])})
    pq.write_table(rows, tmp_path / "f.parquet")
    return tamis.open(tmp_path / "f.parquet")


def test_an_exact_name_in_python_wins_over_another_case(table: tamis.Table) -> None:
    assert table.scan(columns=["user_id"]).to_arrow().to_pydict() == {"user_id": [1, 2]}
    assert table.scan(columns=["uSeR_Id", "s.A"]).to_arrow()["s"].to_pylist() == [{"A": 2}, {"A": 4}]
    wheres = (
        col("user_id") == 2,
        [("user_id", "=", 2)],
        pc.field("user_id") == 2,
        col("uSeR_Id") > 10,
        col("s.A") == 4,
    )
    for where in (*wheres, col("s.a") == 3):
        assert table.scan(where, columns=["user_id"]).to_arrow()["user_id"].to_pylist() == [2]
        assert table.scan(where).count() == 1


def test_back_ticks_are_exact_and_plain_text_is_ambiguous(table: tamis.Table) -> None:
    assert table.scan("`user_id` = 2").count() == table.scan("`uSeR_Id` = 20").count() == 1
    for where in ("user_id = 2", "uSeR_Id = 20", "s.a = 3", "hex(user_id) = '2'"):
        with pytest.raises(AmbiguousColumn, match="matches several columns"):
            table.scan(where)


def test_a_name_without_an_exact_match_is_ambiguous(table: tamis.Table) -> None:
    for make in (lambda: table.scan(columns=["USER_ID"]), lambda: table.scan(col("USER_ID") == 1)):
        with pytest.raises(AmbiguousColumn, match="'user_id', 'uSeR_Id'"):
            make()


UNKNOWN = {
    "uper(x) = 'A'": "there is no function uper",
    "n > 100 AND uper(x) = 'A'": "Did you mean upper",
    "n IS NULL OR frobnicate(n, x) > 1": "there is no function frobnicate",
    "CASE WHEN n > 1 THEN uper(x) = 'A' ELSE TRUE END": "Did you mean upper",
    "hex(uper(x)) = 'A'": "Did you mean upper",
    "levenshtein(x) = 1": "levenshtein",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "t"
    folder.mkdir()
    pq.write_table(pa.table({"x": ["a", "b"], "n": [1, 2]}), folder / "f.parquet")
    # A table without rows: no predicate is ever evaluated on it.
    pq.write_table(pa.table({"x": pa.array([], pa.string()), "n": pa.array([], pa.int64())}), tmp_path / "e.parquet")
    return folder


@pytest.mark.parametrize("where", UNKNOWN)
def test_unknown_functions_are_an_error_of_the_scan(folder: Path, where: str) -> None:
    for path in (folder, folder.parent / "e.parquet"):
        with pytest.raises(EvaluationError, match=UNKNOWN[where]):
            tamis.open(path).scan(where)
    policies = {"tables": {"t": [{"principals": "*", "rows": "n > 0"}]}}
    with pytest.raises(EvaluationError, match=UNKNOWN[where]):
        tamis.connect(policies=policies).as_principal("ana").open(folder).scan(where)


@pytest.mark.parametrize("command", ["count", "scan", "plan", "files"])
def test_unknown_functions_are_an_error_of_every_command(folder: Path, command: str) -> None:
    for path in (folder, folder.parent / "e.parquet"):
        done = run_here(command, str(path), "--where", "uper(x) = 'A'", folder=folder)
        assert done.exit_code == 1
        assert "Did you mean upper" in done.stderr


def test_supported_functions_of_the_engine_run(folder: Path) -> None:
    assert tamis.open(folder).scan("levenshtein(x, 'a') = 1").to_arrow()["x"].to_pylist() == ["b"]
    assert tamis.open(folder).scan("hex(n) = '2' AND upper(x) = 'B'").count() == 1
