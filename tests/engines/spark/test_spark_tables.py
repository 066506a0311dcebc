"""Tables, views and DataFrames of a Spark session in the queries of a session of Tamis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

import tamis
from tamis.errors import TableNotFound


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    pq.write_table(pa.table({"id": [1, 2, 3], "x": [1.5, 2.5, None]}), tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


def test_views_and_tables_of_spark_are_found_by_name(any_spark: Any, lake: Path) -> None:
    session = tamis.connect(spark=any_spark)
    session.register("t", tamis.open(lake))
    any_spark.range(3).createOrReplaceTempView("some_ids")
    joined = "SELECT t.id, t.x FROM t JOIN some_ids s ON t.id = s.id ORDER BY 1"
    assert [tuple(row) for row in session.sql(joined).collect()] == [(1, 1.5), (2, 2.5)]
    any_spark.range(2, 9).createOrReplaceTempView("some_ids")
    assert [tuple(row) for row in session.sql(joined).collect()] == [(2, 2.5), (3, None)]
    any_spark.sql("CREATE OR REPLACE TEMP VIEW t AS SELECT 99 AS id, 0.5D AS x")
    # A registered table comes first.
    assert session.sql("SELECT max(id) FROM t").collect()[0][0] == 3
    any_spark.catalog.dropTempView("some_ids")
    any_spark.catalog.dropTempView("t")
    with pytest.raises(TableNotFound, match="some_ids"):
        session.sql(joined)


def test_tables_of_the_catalog_are_found_by_all_parts_of_their_names(spark: Any) -> None:
    spark.sql("DROP TABLE IF EXISTS stored_ids")
    spark.sql("CREATE TABLE stored_ids USING parquet AS SELECT id FROM range(4)")
    session = tamis.connect(spark=spark)
    for name in ("stored_ids", "default.stored_ids", "spark_catalog.default.stored_ids"):
        assert session.sql(f"SELECT sum(id) AS s FROM {name} WHERE id > 1").collect() == [(5,)]
    spark.sql("DROP TABLE stored_ids")


def test_a_registered_dataframe_stays_one(spark: Any, lake: Path) -> None:
    session = tamis.connect(spark=spark)
    frame = spark.range(1000).selectExpr("id", "id * 2 AS `a b`", "'x' AS s")
    session.register("f", frame).register("t", tamis.open(lake))
    group = "registered frames"
    spark.sparkContext.setJobGroup(group, group)
    found = session.sql("SELECT f.`a b` AS y, t.x FROM f JOIN t ON f.id = t.id WHERE s = 'x'")
    assert not list(spark.sparkContext.statusTracker().getJobIdsForGroup(group))
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert "Range (0, 1000" in found._jdf.queryExecution().toString()
    assert sorted(map(tuple, found.collect()), key=repr) == [(2, 1.5), (4, 2.5), (6, None)]
    assert session.sql("SELECT count(*) AS n FROM f").collect() == [(1000,)]
    assert session.sql("SELECT 1 AS one FROM f LIMIT 2").collect() == [(1,), (1,)]


def test_a_session_with_policies_does_not_reach_tables_of_spark(spark: Any, lake: Path) -> None:
    spark.range(3).createOrReplaceTempView("hidden_ids")
    policies = {"tables": {"t": [{"principals": ["ana"], "rows": "id < 3"}]}}
    session = tamis.connect(spark=spark, policies=policies)
    session.register("t", tamis.open(lake))
    with pytest.raises(tamis.TamisError, match="hidden_ids"):
        session.as_principal("ana").sql("SELECT * FROM hidden_ids")
    spark.catalog.dropTempView("hidden_ids")
