"""Partition columns of a table are partition columns in Spark's plans, wherever the paths have the table's values."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import write_deltalake

pytest.importorskip("pyspark")

import tamis
from tamis.engines.spark.native_scan import find_base_path
from tamis.formats.constants import add_partitions
from tamis.scan.scan import get_planner

ROWS = pa.table(
    {
        "id": pa.array(range(1000)),
        "day": pa.array([date(2024, 1, 1 + i % 10) for i in range(1000)]),
        "kind": pa.array([None if i % 7 == 0 else f"k{i % 3}" for i in range(1000)]),
        "n": pa.array([i % 4 for i in range(1000)], pa.int32()),
    }
)


def write_delta(folder: Path) -> Path:
    write_deltalake(folder, ROWS, partition_by=["day", "kind", "n"])
    return folder


def write_hive(folder: Path) -> Path:
    partitioning = ds.partitioning(pa.schema([ROWS.schema.field(name) for name in ("day", "kind", "n")]), flavor="hive")
    ds.write_dataset(ROWS, folder, format="parquet", partitioning=partitioning)
    return folder


def show_plan(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def read_rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.select("id", "day", "kind", "n").collect()), key=repr)


@pytest.mark.parametrize("write", [write_delta, write_hive])
@pytest.mark.parametrize("where", [None, "day >= '2024-01-04' AND id > 20"])
def test_a_filter_on_the_frame_is_a_partition_filter(spark: Any, tmp_path: Path, write: Any, where: str | None) -> None:
    scan = tamis.open(write(tmp_path / "t")).scan(where)
    frame = scan.to_spark(spark, reader="spark")
    expected = sorted(
        (tuple(row.values()) for row in scan.to_arrow().select(["id", "day", "kind", "n"]).to_pylist()), key=repr
    )
    assert read_rows(frame) == expected
    filtered = frame.where("day = '2024-01-05' AND n = 0 AND kind IS NOT NULL")
    assert "PartitionFilters: [isnotnull(day" in show_plan(filtered)
    chosen = [row for row in expected if row[1] == date(2024, 1, 5) and row[3] == 0 and row[2] is not None]
    assert chosen
    assert read_rows(filtered) == chosen


def test_a_join_with_a_filtered_dimension_prunes_partitions(spark: Any, tmp_path: Path) -> None:
    fact = tamis.open(write_delta(tmp_path / "t")).scan().to_spark(spark, reader="spark")
    spark.createDataFrame([(date(2024, 1, day), day) for day in range(1, 11)], "day date, number int").write.parquet(
        str(tmp_path / "days")
    )
    days = spark.read.parquet(str(tmp_path / "days"))
    joined = fact.join(days.where("number = 5"), "day")
    assert "dynamicpruning" in show_plan(joined)
    assert joined.count() == 100


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("t", pa.array(["01", "1", "2"])),  # the same number, not the same text
        ("t", pa.array(["a%b", "a=b", "é"])),
        ("t", pa.array(["2024-01-01", "null", "__HIVE_DEFAULT_PARTITION__"])),
        ("t", pa.array([1.5, -0.0, None])),
        ("t", pa.array([True, False, None])),
        ("t", pa.array([1, None, -3], pa.int8())),
        ("t", pa.array([date(1, 1, 1), date(1969, 12, 31), None])),
    ],
)
@pytest.mark.parametrize("format", ["delta", "hive"])
def test_values_of_the_table_are_the_values_of_the_frame(
    spark: Any, tmp_path: Path, column: str, values: pa.Array, format: str
) -> None:
    rows = pa.table({"id": [0, 1, 2], column: values})
    folder = tmp_path / "x"
    if format == "delta":
        write_deltalake(folder, rows, partition_by=[column])
    else:
        partitioning = ds.partitioning(pa.schema([rows.schema.field(column)]), flavor="hive")
        ds.write_dataset(rows, folder, format="parquet", partitioning=partitioning)
    scan = tamis.open(folder).scan()
    expected = sorted((tuple(row.values()) for row in scan.to_arrow().to_pylist()), key=repr)
    found = scan.to_spark(spark, reader="spark").select(*scan.schema.names)
    assert sorted((tuple(row) for row in found.collect()), key=repr) == expected


def test_paths_that_contradict_the_log_are_not_used(tmp_path: Path) -> None:
    folder = write_delta(tmp_path / "t")
    planner = get_planner(tamis.open(folder).scan())
    listing = planner.listing
    names = ["day", "kind", "n"]
    schema = pa.schema([ROWS.schema.field(name) for name in names])
    assert find_base_path(listing, schema, names) is not None or "%" in str(listing.files["path"])
    swapped = listing.partitions.set_column(2, "n", pa.array([9] * listing.files.num_rows, pa.int32()))
    other = replace(listing, files=add_partitions(listing.files.select(["path"]), swapped))
    assert find_base_path(other, schema, names) is None
