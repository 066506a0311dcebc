"""A program that writes tables with Iceberg on Spark 4.1, and reports what Iceberg reads and plans.

    python on_spark.py work.json answers.json

Iceberg's jars are made for an older Spark than the other tests run with, so this runs in an environment of its own and
imports nothing but pyspark. Rows go into Parquet files, which keep their types.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.ice.type": "hadoop",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def start(work: dict[str, Any]) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("tamis-iceberg")
    given = {"spark.jars.packages": work["jars"], "spark.sql.catalog.ice.warehouse": work["warehouse"]}
    for name, value in (SETTINGS | given).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class TableQueries:
    """Queries of Spark, which write their rows into files of a folder."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._files = 0

    def query_table(self, name: str, filters: list[str]) -> dict[str, Any]:
        table_rows = self._spark.table(name).localCheckpoint()
        table = self._spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self._spark._jsparkSession, name)
        return {
            "location": table.location(),
            "filters": {
                where: {
                    "rows": self._write_rows(table_rows.where(where)),
                    "files": self._count_planned_files(name, table, where),
                }
                for where in filters
            },
            "snapshots": {
                str(row["snapshot_id"]): self._write_rows(self._read_snapshot(name, row["snapshot_id"]))
                for row in self._spark.sql(f"SELECT snapshot_id FROM {name}.snapshots").collect()
            },
            "refs": {
                row["name"]: self._write_rows(self._spark.sql(f"SELECT * FROM {name} VERSION AS OF '{row['name']}'"))
                for row in self._spark.sql(f"SELECT name FROM {name}.refs").collect()
            },
        }

    def _read_snapshot(self, name: str, snapshot: int) -> Any:
        return self._spark.sql(f"SELECT * FROM {name} VERSION AS OF {snapshot}")

    def _write_rows(self, rows: Any) -> str:
        self._files += 1
        path = self._folder / f"{self._files}"
        rows.coalesce(1).write.parquet(str(path))
        return str(path)

    def _count_planned_files(self, name: str, table: Any, where: str) -> int:
        """Return the number of files that Iceberg plans, with the filter as its Spark extension translates it."""
        converter = self._spark._jvm.org.apache.spark.sql.execution.datasources.SparkExpressionConverter
        scan = table.newScan()
        resolved = converter.collectResolvedSparkExpression(self._spark._jsparkSession, name, where)
        with contextlib.suppress(IllegalArgumentException):
            # Spark does not push down a filter that Iceberg cannot express. Then all files are planned.
            scan = scan.filter(converter.convertToIcebergExpression(resolved))
        found = set()
        tasks = scan.planFiles().iterator()
        while tasks.hasNext():
            found.add(tasks.next().file().location())
        return len(found)


def main() -> None:
    work = json.loads(Path(sys.argv[1]).read_text())
    spark = start(work)
    answers = TableQueries(spark, Path(work["rows"]))
    found = {}
    for name, table in work["tables"].items():
        for statement in table["statements"]:
            spark.sql(statement.replace("{t}", f"ice.db.{name}"))
        found[name] = answers.query_table(f"ice.db.{name}", table["filters"])
    Path(sys.argv[2]).write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
