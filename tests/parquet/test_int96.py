"""Timestamps of 96 bits, as Spark and Impala wrote them: microseconds, which reach every year that they can hold."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis

MOMENTS = [datetime(9999, 12, 31, 23, 59, 59), datetime(2020, 1, 1), None, datetime(1, 1, 1), datetime(1582, 1, 1)]
INNER = pa.struct([("at", pa.timestamp("us")), ("n", pa.int64())])


@pytest.fixture(params=[True, False], ids=["with pages", "without"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tamis.scan.pages.SMALLEST", 0)
    rows = pa.table(
        {
            "id": range(len(MOMENTS)),
            "at": pa.array(MOMENTS, pa.timestamp("us")),
            "s": pa.array([{"at": each, "n": 1} for each in MOMENTS], INNER),
            "l": pa.array([[each, each] for each in MOMENTS], pa.list_(pa.timestamp("us"))),
            "m": pa.array([[("k", {"at": each, "n": 2})] for each in MOMENTS], pa.map_(pa.string(), INNER)),
        }
    )
    path = tmp_path / "f.parquet"
    pq.write_table(
        rows, path, use_deprecated_int96_timestamps=True, write_page_index=request.param, max_rows_per_page=2
    )
    assert pq.read_metadata(path).schema.column(1).physical_type == "INT96"
    return path


def test_T3_years_that_nanoseconds_cannot_count_are_read_as_they_are(path: Path) -> None:
    table = tamis.open(path)
    assert table.schema.field("at").type == pa.timestamp("us")
    found = table.scan().to_arrow()
    assert found["at"].to_pylist() == MOMENTS
    assert [row["at"] for row in found["s"].to_pylist()] == MOMENTS
    assert [row[1] for row in found["l"].to_pylist()] == MOMENTS
    assert [row[0][1]["at"] for row in found["m"].to_pylist()] == MOMENTS
    judged = duckdb.sql(f"SELECT t.at FROM '{path}' t ORDER BY id").fetchall()
    assert [moment for (moment,) in judged] == MOMENTS


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("at > TIMESTAMP '9000-01-01'", [0]),
        ("at < TIMESTAMP '1600-01-01'", [3, 4]),
        ("s.at = TIMESTAMP '2020-01-01'", [1]),
        ("at IS NULL", [2]),
        ("id >= 3 AND at IS NOT NULL", [3, 4]),
    ],
)
def test_T3_filters_see_the_same_moments(path: Path, where: str, ids: list[int]) -> None:
    assert tamis.open(path).scan(where, columns=["id", "m"]).to_arrow()["id"].to_pylist() == ids
