"""Files of Spark 2 added to an Iceberg table: Iceberg has one calendar, and there is no datetime rebase."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, LongType, NestedField

import tamis
from builders.pyiceberg.tables import create_table


def test_T6_dates_of_added_files_are_not_rebased(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "d", DateType()))
    table = create_table(tmp_path / "t", schema)
    days = [datetime.date(1200, 1, 8), datetime.date(2020, 1, 1)]
    rows = pa.table({"id": [1, 2], "d": days})
    path = tmp_path / "t" / "data" / "f.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(path, rows.schema, store_schema=False) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({"org.apache.spark.version": "2.4.8"})
    table.add_files([str(path)])
    opened = tamis.open(tmp_path / "t")
    assert opened.scan().to_arrow()["d"].to_pylist() == days
    assert opened.scan("d = DATE'1200-01-08'").to_arrow()["id"].to_pylist() == [1]
    assert opened.scan("d = DATE'1200-01-01'").count() == 0
