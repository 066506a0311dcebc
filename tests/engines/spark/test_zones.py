"""Spark sessions in other time zones than UTC: timestamps have Spark's semantics, with and without pushdown."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis

START = datetime(2024, 3, 8, tzinfo=UTC)
HOURS = 96
ZONES = ("America/New_York", "+05:30", "UTC")
"""In New York a clock leaves an hour out on 2024-03-10."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    instants = [START + timedelta(hours=number) for number in range(HOURS)]
    rows = pa.table(
        {
            "id": range(HOURS),
            "ts": pa.array(instants, pa.timestamp("us", "UTC")),
            "local": pa.array([each.replace(tzinfo=None) for each in instants], pa.timestamp("us")),
            "day": pa.array([each.date() for each in instants], pa.date32()),
            "s": pa.StructArray.from_arrays([pa.array(instants, pa.timestamp("us", "UTC"))], ["at"]),
        }
    )
    found = tmp_path_factory.mktemp("zones") / "e.parquet"
    pq.write_table(rows, found, row_group_size=8)
    return found


@pytest.fixture(params=ZONES)
def session(request: pytest.FixtureRequest, spark: Any, path: Path) -> Iterator[tamis.Session]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    spark.read.parquet(str(path)).createOrReplaceTempView("e")
    days = pa.table({"d": pa.array([date(2024, 3, 9), date(2024, 3, 11)]), "name": ["sat", "mon"]})
    spark.createDataFrame(days).createOrReplaceTempView("days")
    yield tamis.connect(spark=spark).register("e", path).register("days", days)
    spark.catalog.dropTempView("e")
    spark.catalog.dropTempView("days")
    spark.conf.set("spark.sql.session.timeZone", before)


QUERIES = (
    "SELECT hour(ts) h, count(*) n FROM e WHERE hour(ts) < 2 GROUP BY 1",
    "SELECT date(ts) d, count(*) n FROM e WHERE date(ts) >= DATE '2024-03-09' GROUP BY 1",
    "SELECT count(*) FROM e WHERE to_date(ts) = '2024-03-08'",
    "SELECT count(*) FROM e WHERE date_trunc('day', ts) = TIMESTAMP '2024-03-09 00:00:00'",
    "SELECT id FROM e WHERE ts >= TIMESTAMP '2024-03-10 02:30:00' AND ts < TIMESTAMP '2024-03-10T07:00:00Z'",
    "SELECT id FROM e WHERE ts BETWEEN '2024-03-09' AND '2024-03-10 01:30'",
    "SELECT id FROM e WHERE ts IN ('2024-03-09 05:00:00', '2024-03-09 05:00:00Z')",
    "SELECT id FROM e WHERE ts > DATE '2024-03-11'",
    "SELECT id FROM e WHERE s.at > '2024-03-11 20:00'",
    "SELECT id FROM e WHERE ts = CAST('2024-03-09 12:00:00' AS TIMESTAMP) OR ts = to_timestamp('2024-03-09 13:00:00')",
    "SELECT id FROM e WHERE CAST(ts AS STRING) LIKE '2024-03-09 1%'",
    "SELECT id FROM e WHERE ts = local",
    "SELECT id FROM e WHERE local >= TIMESTAMP_NTZ '2024-03-11 20:00:00'",
    "SELECT id FROM e WHERE local >= '2024-03-11 20:00:00'",
    "SELECT id FROM e WHERE ts + INTERVAL 1 DAY < TIMESTAMP '2024-03-10 12:00:00'",
    "SELECT min(ts), max(ts), count(*) FROM e WHERE ts >= '2024-03-10'",
    "SELECT name, count(*) FROM e JOIN days ON date(e.ts) = days.d GROUP BY name",
    "SELECT id, name FROM e JOIN days ON e.ts = days.d",
    "SELECT id FROM e WHERE ts >= '2024-03-11' AND hour(ts) = 3",
    "SELECT max(hour(ts)) OVER () FROM e WHERE ts < '2024-03-08 12:00:00' LIMIT 1",
    "SELECT count(*) FROM e WHERE ts > current_date() OR day < current_date()",
)


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.one_in(4)
def test_a_query_returns_the_rows_of_spark(session: tamis.Session, spark: Any, query: str) -> None:
    expected = sorted(map(tuple, spark.sql(query).collect()))
    assert sorted(map(tuple, session.sql(query).collect())) == expected
    assert sorted(map(tuple, session.sql(query, rules=False).collect())) == expected


def test_a_query_that_was_made_without_spark_means_the_same_there(
    session: tamis.Session, spark: Any, path: Path
) -> None:
    query = "SELECT id FROM e WHERE ts >= '2024-03-09' AND hour(ts) < 3"
    made = tamis.connect().register("e", path).sql(query)
    assert sorted(made.to_spark(spark).collect()) == sorted(spark.sql(query).collect())


def test_times_still_prune(session: tamis.Session) -> None:
    explained = session.explain("SELECT id FROM e WHERE ts >= '2024-03-11' AND hour(ts) = 3")
    scan = explained.split("Scans")[1]
    assert "`ts` >= TIMESTAMP" in scan
