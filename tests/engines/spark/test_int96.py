"""INT96 timestamps, as Spark writes them: the same instants in Tamis and Spark, in any session time zone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import tamis
from tamis.spark import register

ZONES = ("America/New_York", "+05:30", "UTC")

FILTERS = (
    "ts >= TIMESTAMP '2024-03-10 02:30:00'",
    "ts BETWEEN TIMESTAMP '2024-03-09 00:00:00' AND TIMESTAMP '2024-03-10 01:30:00Z'",
    "ts IS NULL OR s.at > TIMESTAMP '2024-03-11 00:00:00'",
)


@pytest.fixture(scope="module")
def path(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hive-style table that Spark wrote, with timestamps around the missing hour of 2024-03-10 in New York."""
    path = tmp_path_factory.mktemp("int96") / "t"
    before = spark.conf.get("spark.sql.parquet.outputTimestampType")
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    frame = spark.range(100).selectExpr(
        "id", "IF(id = 99, NULL, timestamp_seconds(1709856000 + 3600 * id)) AS ts", "id % 2 AS p"
    )
    frame.selectExpr("*", "struct(ts AS at) AS s").coalesce(1).write.partitionBy("p").parquet(str(path))
    spark.conf.set("spark.sql.parquet.outputTimestampType", before)
    (file, *_) = path.rglob("*.parquet")
    assert pq.read_metadata(file).schema.column(1).physical_type == "INT96"
    return path


@pytest.fixture(autouse=True)
def registered(spark: Any) -> Iterator[None]:
    name = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(name, "false")
    register(spark)
    yield
    spark.conf.set(name, before)


@pytest.fixture(params=ZONES)
def zone(request: pytest.FixtureRequest, spark: Any) -> Iterator[str]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)


def read_micros(frame: Any) -> list[tuple[Any, ...]]:
    found = frame.selectExpr("id", "unix_micros(ts) AS ts", "unix_micros(s.at) AS at").collect()
    return sorted(map(tuple, found))


@pytest.mark.parametrize("where", FILTERS)
@pytest.mark.one_in(4)
def test_T3_T7_rows_and_filters_equal_a_native_scan(spark: Any, path: Path, zone: str, where: str) -> None:
    expected = read_micros(spark.read.parquet(str(path)).where(where))
    assert expected
    spark.read.parquet(str(path)).createOrReplaceTempView("t")
    session = tamis.connect(spark=spark).register("t", path)
    query = f"SELECT id, ts, s FROM t WHERE {where}"
    assert read_micros(session.sql(query)) == expected
    assert read_micros(session.sql(query, rules=False)) == expected
    assert read_micros(spark.read.format("tamis").load(str(path)).where(where)) == expected
    # A scan has no session, so the literals of its filter are in UTC, as on the embedded engine.
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    expected = read_micros(spark.read.parquet(str(path)).where(where))
    spark.conf.set("spark.sql.session.timeZone", zone)
    scan = tamis.open(path).scan(where)
    for reader in ("auto", "spark", "arrow"):
        assert read_micros(scan.to_spark(spark, reader=reader)) == expected, reader
    assert sorted(scan.to_arrow()["id"].to_pylist()) == [row[0] for row in expected]
    assert scan.count() == len(expected)
    local = tamis.connect().register("t", path).sql(query).to_arrow()
    assert sorted(local["id"].to_pylist()) == [row[0] for row in expected]


def test_T3_T7_without_a_zone_clocks_are_the_same_in_every_session(spark: Any, path: Path, zone: str) -> None:
    table = tamis.open(path, int96="local")
    where = "ts >= TIMESTAMP_NTZ '2024-03-10 02:30:00' AND ts < TIMESTAMP_NTZ '2024-03-10 05:00:00'"
    clocks = [datetime(2024, 3, 10, 3), datetime(2024, 3, 10, 4)]
    assert sorted(table.scan(where).to_arrow()["ts"].to_pylist()) == clocks
    for reader in ("auto", "spark", "arrow"):
        frame = table.scan(where).to_spark(spark, reader=reader)
        assert dict(frame.dtypes)["ts"] == "timestamp_ntz"
        assert sorted(row["ts"] for row in frame.collect()) == clocks
    frame = spark.read.format("tamis").option("int96", "local").option("filter", where).load(str(path))
    assert sorted(row["ts"] for row in frame.collect()) == clocks


def test_T3_a_session_that_converts_int96_uses_no_native_scan(spark: Any, path: Path) -> None:
    name = "spark.sql.parquet.int96TimestampConversion"
    scan = tamis.open(path).scan()
    expected = read_micros(scan.to_spark(spark))
    spark.conf.set(name, "true")
    try:
        assert read_micros(scan.to_spark(spark)) == expected
    finally:
        spark.conf.unset(name)
