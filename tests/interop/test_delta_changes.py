"""The change data feed of tables that Delta on Spark wrote: the rows that Spark reads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tamis

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("default")]

PROPERTIES = {
    "plain": "",
    "vectors and mapped": ", delta.columnMapping.mode = 'name', delta.enableDeletionVectors = true",
}


def write_history(spark: Any, path: Path, properties: str) -> None:
    target = f"delta.`{path}`"
    spark.sql(
        f"CREATE TABLE {target} (id BIGINT, day DATE, name STRING) USING delta PARTITIONED BY (day) "
        f"TBLPROPERTIES (delta.enableChangeDataFeed = true{properties})"
    )
    rows = "id, date_add(DATE '2024-01-01', CAST(id % 3 AS INT)) AS day, concat('n', id) AS name"
    spark.range(0, 200, 1, 2).createOrReplaceTempView("ids")
    spark.sql(f"INSERT INTO {target} SELECT {rows} FROM ids")
    spark.sql(f"DELETE FROM {target} WHERE id % 10 = 3")
    spark.sql(f"UPDATE {target} SET name = upper(name) WHERE id BETWEEN 20 AND 60")
    spark.sql(
        f"MERGE INTO {target} t USING (SELECT id + 190 AS id FROM ids WHERE id < 30) s ON s.id = t.id "
        f"WHEN MATCHED AND t.id < 195 THEN DELETE WHEN MATCHED THEN UPDATE SET name = 'merged' "
        f"WHEN NOT MATCHED THEN INSERT (id, day, name) VALUES (s.id, DATE '2024-02-01', NULL)"
    )
    spark.sql(f"DELETE FROM {target} WHERE id % 10 = 4")
    spark.sql(f"RESTORE TABLE {target} TO VERSION AS OF 2")
    spark.sql(f"OPTIMIZE {target}")
    spark.sql(f"DELETE FROM {target} WHERE day = DATE '2024-01-02'")


def count_rows(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(str(sorted((name, str(value)) for name, value in row.items())) for row in rows)


@pytest.mark.parametrize("name", PROPERTIES)
def test_D16_changes_are_those_that_spark_reads(spark: Any, tmp_path: Path, name: str) -> None:
    path = tmp_path / "table"
    write_history(spark, path, PROPERTIES[name])
    newest = tamis.open(path).version
    assert newest is not None
    for start, stop in ((0, newest), (2, 2)):
        feed = spark.read.format("delta").option("readChangeFeed", "true")
        expected = feed.option("startingVersion", start).option("endingVersion", stop).load(str(path)).toArrow()
        changes = tamis.open(path, changes=(start, stop))
        assert changes.schema.names == expected.column_names
        assert count_rows(changes.scan().to_arrow().to_pylist()) == count_rows(expected.to_pylist())
        on_spark = changes.scan("_change_type <> 'insert'").to_spark(spark).toArrow().to_pylist()
        assert count_rows(on_spark) == count_rows(
            [row for row in expected.to_pylist() if row["_change_type"] != "insert"]
        )
