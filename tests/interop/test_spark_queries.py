"""Queries over tables that Spark wrote return the rows of the format's own reader, in two time zones and ANSI modes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tamis

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("default"),  # those of pyspark are not ours to mend
]

QUERIES = [
    "SELECT count(*) FROM sales",
    "SELECT count(*), min(ts), max(ts) FROM sales WHERE region = 'eu'",
    "SELECT region, count(*), sum(amount) FROM sales GROUP BY region",
    "SELECT day, max(amount), min(price) FROM sales GROUP BY day",
    "SELECT * FROM sales WHERE id = 777",
    "SELECT id, ts FROM sales WHERE ts >= TIMESTAMP '2024-03-10 01:30:00' AND ts < TIMESTAMP '2024-03-10 04:00:00'",
    "SELECT id, ts FROM sales WHERE ts = '2024-11-03 01:30:00'",
    "SELECT count(*) FROM sales WHERE CAST(ts AS DATE) = DATE '2024-06-15'",
    "SELECT date_trunc('HOUR', ts), count(*) FROM sales WHERE day = DATE '2024-03-10' GROUP BY 1",
    "SELECT hour(ts), count(*) FROM sales GROUP BY hour(ts)",
    "SELECT year(day), month(day), sum(amount) FROM sales GROUP BY year(day), month(day)",
    "SELECT id FROM sales WHERE day BETWEEN DATE '2024-02-28' AND DATE '2024-03-01' AND region IN ('eu', 'asia')",
    "SELECT id, name FROM sales WHERE name LIKE 'name 1%' AND amount > 900",
    "SELECT id FROM sales WHERE name IS NULL",
    "SELECT id FROM sales WHERE region IS NULL",
    "SELECT id FROM sales WHERE NOT (amount < 990)",
    "SELECT id, price FROM sales WHERE price = 3.50",
    "SELECT sum(price), avg(price), count(price) FROM sales WHERE region <> 'us'",
    "SELECT id, amount FROM sales ORDER BY amount DESC, id LIMIT 7",
    "SELECT id, day FROM sales WHERE region = 'us' ORDER BY day, id LIMIT 5",
    "SELECT region, id FROM (SELECT *, row_number() OVER (PARTITION BY region ORDER BY id) n FROM sales) WHERE n < 3",
    "SELECT s.region, r.label, count(*) FROM sales s JOIN regions r ON s.region = r.region GROUP BY s.region, r.label",
    "SELECT count(*) FROM sales s LEFT JOIN regions r ON s.region = r.region WHERE r.label IS NULL",
    "SELECT count(*) FROM sales WHERE region IN (SELECT region FROM regions WHERE label = 'Europe')",
    "SELECT r.label FROM regions r WHERE NOT EXISTS (SELECT 1 FROM sales s WHERE s.region = r.region)",
    "SELECT DISTINCT region, day FROM sales WHERE amount > 995",
    "SELECT region, count(*) AS n FROM sales GROUP BY region HAVING count(*) > 100",
    "SELECT id FROM sales WHERE id < 3 UNION ALL SELECT id FROM sales WHERE id > 1996",
    "SELECT info.kind, sum(info.size) FROM sales WHERE info.size > 5 GROUP BY info.kind",
    "SELECT id, try_cast(name AS INT), upper(name), length(name) FROM sales WHERE id % 500 = 1",
    "SELECT max(ts_96), count(*) FROM sales WHERE ts_96 > TIMESTAMP '2024-05-01 00:00:00'",
    "SELECT id, ts_96 FROM sales WHERE ts_96 = TIMESTAMP '2024-03-10 01:00:00'",
]

ROWS = """
SELECT id,
       CASE WHEN id % 50 = 7 THEN NULL ELSE concat('name ', id % 90) END AS name,
       CASE id % 4 WHEN 0 THEN 'eu' WHEN 1 THEN 'us' WHEN 2 THEN 'asia' END AS region,
       date_add(DATE '2024-01-01', CAST(id % 360 AS INT)) AS day,
       timestamp_micros(1704067200000000 + id * 15900000000) AS ts,
       timestamp_micros(1704067200000000 + id * 3600000000) AS ts_96,
       CAST(id * 37 % 1000 AS INT) AS amount,
       CAST(id % 700 / 100 AS DECIMAL(9, 2)) AS price,
       named_struct('kind', concat('k', id % 3), 'size', id % 11) AS info
FROM range(2000)
"""


@pytest.fixture(scope="module", params=["delta", "hive"])
def session(request: pytest.FixtureRequest, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with the tables of a format, and Spark's own views `plain_sales` and `plain_regions` of them."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    sales, regions = str(folder / "sales"), str(folder / "regions")
    labels = spark.createDataFrame(
        [("eu", "Europe"), ("us", "States"), ("mars", "Mars")], "region string, label string"
    )
    c = tamis.connect(spark)
    if request.param == "delta":
        spark.sql(
            f"CREATE TABLE delta.`{sales}` USING delta PARTITIONED BY (region) TBLPROPERTIES "
            f"('delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name') AS {ROWS}"
        )
        spark.sql(f"ALTER TABLE delta.`{sales}` RENAME COLUMN amount TO cents")
        spark.sql(f"ALTER TABLE delta.`{sales}` RENAME COLUMN cents TO amount")
        spark.sql(f"DELETE FROM delta.`{sales}` WHERE id % 97 = 5")
        labels.coalesce(1).write.format("delta").save(regions)
        format = "delta"
    else:
        spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
        spark.sql(ROWS).repartition(4).write.partitionBy("region").parquet(sales)
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        spark.sql(ROWS).where("id % 2 = 0").write.mode("append").partitionBy("region").parquet(sales)
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
        labels.coalesce(1).write.parquet(regions)
        format = "parquet"
    for name, path in (("sales", sales), ("regions", regions)):
        spark.read.format(format).load(path).createOrReplaceTempView(f"plain_{name}")
        c.register(name, path)
    yield c
    for name in ("plain_sales", "plain_regions"):
        spark.catalog.dropTempView(name)


@pytest.fixture(
    scope="module",
    params=[("America/New_York", "true"), ("Asia/Kolkata", "false")],
    ids=["New York, ANSI", "Kolkata, not ANSI"],
)
def settings(request: pytest.FixtureRequest, spark: Any) -> Iterator[None]:
    names = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled")
    before = [spark.conf.get(name) for name in names]
    for name, value in zip(names, request.param, strict=True):
        spark.conf.set(name, value)
    yield
    for name, value in zip(names, before, strict=True):
        spark.conf.set(name, value)


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("query", QUERIES)
def test_rows_names_and_types_are_those_of_the_own_reader(spark: Any, session: Any, query: str) -> None:
    plain = query.replace("FROM sales", "FROM plain_sales").replace("regions r", "plain_regions r")
    expected = spark.sql(plain.replace("FROM regions", "FROM plain_regions"))
    found = session.sql(query)
    assert found.columns == expected.columns
    assert [field.dataType for field in found.schema] == [field.dataType for field in expected.schema]
    rows, wanted = ([tuple(row) for row in frame.collect()] for frame in (found, expected))
    is_ordered = query.endswith(("LIMIT 7", "LIMIT 5"))
    assert (rows if is_ordered else sorted(rows, key=repr)) == (wanted if is_ordered else sorted(wanted, key=repr))
