"""INT96 timestamps, as Spark and Impala wrote them: instants in microseconds, which cover every year."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.delta.log import DeltaLog, add
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field
from builders.parquet.tuning import PRUNE_PAGES
from tamis.errors import InvalidArgument, UnsupportedFeature

TIMESTAMPS = [datetime(9999, 12, 31, 23, 59, 59), datetime(2020, 1, 1), None, datetime(1, 1, 1), datetime(1582, 1, 1)]
INSTANTS = [None if each is None else each.replace(tzinfo=UTC) for each in TIMESTAMPS]
INNER = pa.struct([("at", pa.timestamp("us")), ("n", pa.int64())])


@pytest.fixture(params=[True, False], ids=["with pages", "without"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    rows = pa.table(
        {
            "id": range(len(TIMESTAMPS)),
            "at": pa.array(TIMESTAMPS, pa.timestamp("us")),
            "s": pa.array([{"at": each, "n": 1} for each in TIMESTAMPS], INNER),
            "l": pa.array([[each, each] for each in TIMESTAMPS], pa.list_(pa.timestamp("us"))),
            "m": pa.array([[("k", {"at": each, "n": 2})] for each in TIMESTAMPS], pa.map_(pa.string(), INNER)),
        }
    )
    path = tmp_path / "f.parquet"
    pq.write_table(
        rows, path, use_deprecated_int96_timestamps=True, write_page_index=request.param, max_rows_per_page=2
    )
    assert pq.read_metadata(path).schema.column(1).physical_type == "INT96"
    return path


def open_table(location: Path, **options: Any) -> tamis.Table:
    return tamis.open(location, tuning=PRUNE_PAGES, **options)


def test_T3_years_beyond_nanoseconds_are_read_correctly(path: Path) -> None:
    table = open_table(path)
    assert table.schema.field("at").type == pa.timestamp("us", "UTC")
    assert table.schema.field("s").type.field("at").type == pa.timestamp("us", "UTC")
    check(table.scan().to_arrow(), INSTANTS)
    expected_rows = duckdb.sql(f"SELECT t.at FROM '{path}' t ORDER BY id").fetchall()
    assert [timestamp for (timestamp,) in expected_rows] == TIMESTAMPS


def check(found: pa.Table, expected: list[datetime | None]) -> None:
    assert found["at"].to_pylist() == expected
    assert [row["at"] for row in found["s"].to_pylist()] == expected
    assert [row[1] for row in found["l"].to_pylist()] == expected
    assert [row[0][1]["at"] for row in found["m"].to_pylist()] == expected


def test_T3_an_option_reads_them_without_a_zone(path: Path) -> None:
    for location, options in ((path, {}), (path.parent, {}), (path.parent, {"merge_schema": True})):
        table = open_table(location, int96="local", **options)
        assert table.schema.field("at").type == pa.timestamp("us")
        assert table.schema.field("l").type.value_type == pa.timestamp("us")
        check(table.scan().to_arrow(), TIMESTAMPS)
        assert table.scan("at = TIMESTAMP_NTZ '2020-01-01'").to_arrow()["at"].to_pylist() == TIMESTAMPS[1:2]
    info = tamis.hive.table_info(path.parent, int96="local")
    assert info.schema.field("at").type == pa.timestamp("us")
    assert tamis.hive.table_info(path.parent).schema.field("at").type == pa.timestamp("us", "UTC")


def test_T3_an_index_holds_for_both_readings(path: Path) -> None:
    tamis.index.build(path.parent, bloom=["id"])
    assert open_table(path.parent).scan("id = 1").to_arrow()["at"].to_pylist() == INSTANTS[1:2]
    assert open_table(path.parent, int96="local").scan("id = 1").to_arrow()["at"].to_pylist() == TIMESTAMPS[1:2]
    refreshed = open_table(path.parent, int96="local").refresh()
    assert refreshed.scan("id = 1").to_arrow()["at"].to_pylist() == TIMESTAMPS[1:2]
    assert open_table(path.parent).scan("at < TIMESTAMP '1600-01-01 00:00:00Z'").count() == 2
    assert open_table(path.parent, int96="local").scan("at < TIMESTAMP_NTZ '1600-01-01'").count() == 2


def test_T3_values_of_the_option(path: Path) -> None:
    with pytest.raises(InvalidArgument, match="int96 must be 'instant' or 'local', found 'UTC'"):
        open_table(path, int96="UTC")
    log = DeltaLog(path.parent / "t", {"at": "timestamp"})
    log.commit()
    with pytest.raises(InvalidArgument, match="int96= was given, but the log of a Delta table has its schema"):
        open_table(log.table, int96="local")


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_T3_the_schema_of_a_delta_table_decides(path: Path, kind: str) -> None:
    features = ["timestampNtz"] if kind == "timestamp_ntz" else None
    log = DeltaLog(path.parent, {"id": "long", "at": kind}, features=features)
    log.commit(add(path.name, size=path.stat().st_size))
    table = open_table(path.parent)
    expected = INSTANTS if kind == "timestamp" else TIMESTAMPS
    assert table.scan().to_arrow()["at"].to_pylist() == expected
    literal = "TIMESTAMP '2020-01-01 00:00:00Z'" if kind == "timestamp" else "TIMESTAMP_NTZ '2020-01-01'"
    assert table.scan(f"at = {literal}").to_arrow()["id"].to_pylist() == [1]
    assert table.scan(f"at <= {literal}").count() == 3


@pytest.mark.parametrize("kind", ["timestamptz", "timestamp"])
def test_T3_the_schema_of_an_iceberg_table_decides(tmp_path: Path, kind: str) -> None:
    expected = INSTANTS if kind == "timestamptz" else TIMESTAMPS
    folder = IcebergFolder(tmp_path, [field(1, "id", "long"), field(2, "at", kind)])
    rows = pa.table({"id": range(5), "at": pa.array(expected, folder.arrow_schema.field("at").type)})
    options = {"use_deprecated_int96_timestamps": True, "store_schema": False}
    folder.commit(folder.data_file("0.parquet", rows, options=options))
    assert pq.read_metadata(tmp_path / "data" / "0.parquet").schema.column(1).physical_type == "INT96"
    table = open_table(tmp_path)
    assert table.scan().to_arrow()["at"].to_pylist() == expected
    literal = "TIMESTAMP '2020-01-01 00:00:00Z'" if kind == "timestamptz" else "TIMESTAMP_NTZ '2020-01-01'"
    assert table.scan(f"at = {literal}").to_arrow()["id"].to_pylist() == [1]
    assert table.scan(f"at < {literal}").count() == 2
    with pytest.raises(UnsupportedFeature, match="int96= was given, which an Iceberg table does not have"):
        open_table(tmp_path, int96="local")


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
def test_T3_filters_see_the_same_timestamps(path: Path, where: str, ids: list[int]) -> None:
    assert open_table(path).scan(where, columns=["id", "m"]).to_arrow()["id"].to_pylist() == ids
