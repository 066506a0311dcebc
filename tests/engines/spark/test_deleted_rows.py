"""Rows that are deleted by position are left out by Spark itself, whatever its reader skips."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap64

pytest.importorskip("pyspark")

import tamis
from builders.delta.log import DeltaLog
from builders.delta.tables import data_file
from builders.iceberg.deletes import equality_deletes, position_deletes
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field
from tamis.engines.spark.native_scan import make_bitmap_rows
from tamis.engines.spark.sessions import is_connect

ROWS = 20_000
"""Several blocks of 4,096 rows, and several row groups."""


OPTIONS = {"row_group_size": 6000, "data_page_size": 4096, "write_page_index": True}


def choose_rows(seed: int) -> list[int]:
    made = np.random.default_rng(seed)
    block = np.arange(8192, 12288)
    return sorted({0, 63, 64, 4095, 4096, ROWS - 1, *block.tolist(), *made.integers(0, ROWS, 200).tolist()})


def make_rows(number: int) -> pa.Table:
    ids = np.arange(number * ROWS, (number + 1) * ROWS)
    return pa.table({"id": ids, "x": ids % 7, "name": np.char.add("n", ids.astype(str))})


def write_delta(folder: Path, parts: Sequence[str]) -> None:
    log = DeltaLog(
        folder,
        {"id": "long", "x": "long", "name": "string", "p": "string"},
        partition_columns=["p"],
        features=["deletionVectors"],
    )
    made = []
    for number, part in enumerate(parts):
        deleted = () if number == 1 else choose_rows(number)
        made.append(
            data_file(
                log, f"p={number % 2}/{part}.parquet", make_rows(number), {"p": part}, deleted=deleted, options=OPTIONS
            )
        )
    log.commit(*made)


def write_iceberg(folder: Path, parts: Sequence[str]) -> None:
    table = IcebergFolder(folder, [field(1, "id", "long"), field(2, "x", "long"), field(3, "name", "string")])
    files = [table.data_file(f"{part}.parquet", make_rows(number)) for number, part in enumerate(parts)]
    table.commit(*files)
    pairs = [(file.path, row) for number, file in enumerate(files) if number != 1 for row in choose_rows(number)]
    table.commit(position_deletes(table, "p.parquet", sorted(pairs)))


FILTERS = [None, "x = 1", f"id BETWEEN {ROWS - 5000} AND {2 * ROWS + 5000}", "name = 'n8191' OR name = 'n8192'"]


@pytest.mark.parametrize("write", [write_delta, write_iceberg])
@pytest.mark.parametrize("names", [("a", "b", "c"), ("a b", "b+c%20", "ü")], ids=["plain", "escaped"])
def test_D16_I6_rows_deleted_by_position_are_left_out_in_the_jvm(
    any_spark: Any, tmp_path: Path, write: Any, names: tuple[str, ...]
) -> None:
    write(tmp_path / "t", names)
    table = tamis.open(tmp_path / "t")
    for where in FILTERS:
        frame = table.scan(where, ["id", "x"]).to_spark(any_spark, reader="spark")
        expected = table.scan(where, ["id"]).to_arrow()["id"].to_pylist()
        assert sorted(row["id"] for row in frame.collect()) == sorted(expected), where
        if not is_connect(any_spark):
            assert "MapInArrow" not in frame._jdf.queryExecution().executedPlan().toString()


def test_I6_files_with_plain_and_escaped_names_in_separate_scans_lose_their_deleted_rows(
    any_spark: Any, tmp_path: Path
) -> None:
    fields = [field(1, "id", "long"), field(2, "x", "long"), field(3, "name", "string")]
    table = IcebergFolder(tmp_path / "t", fields)
    # The second file lacks a column, so that a native scan of its own reads it.
    rows = [make_rows(0), make_rows(1).drop_columns(["name"])]
    files = [table.data_file(name, each) for name, each in zip(("a.parquet", "ü b.parquet"), rows, strict=True)]
    table.commit(*files)
    table.commit(position_deletes(table, "p.parquet", [(file.path, row) for file in files for row in (0, 5000)]))
    scan = tamis.open(tmp_path / "t").scan(None, ["id", "name"])
    found = scan.to_spark(any_spark, reader="spark").collect()
    assert {row["id"] for row in found} == {*range(2 * ROWS)} - {0, 5000, ROWS, ROWS + 5000}
    assert len(found) == 2 * ROWS - 4


def write_equality_deletes(
    folder: Path, deletes: Sequence[pa.Table], names: Sequence[str] = ("id", "x", "name")
) -> IcebergFolder:
    """Write a data file before each delete file, and one after the last."""
    kinds = {"id": "long", "x": "long", "name": "string", "d": "double"}
    table = IcebergFolder(folder, [field(number, name, kinds[name]) for number, name in enumerate(names, 1)])
    for number in range(len(deletes) + 1):
        ids = list(range(number * 10, number * 10 + 10))
        values = {"id": ids, "x": [None if each % 5 == 0 else each % 3 for each in ids]}
        values |= {"name": [f"n{each % 4}" for each in ids], "d": [-0.0, 0.0, *[float(each) for each in ids[2:]]]}
        rows = pa.table({name: pa.array(values[name]) for name in names})
        table.commit(table.data_file(f"{number}.parquet", rows))
        if number < len(deletes):
            table.commit(equality_deletes(table, f"e{number}.parquet", deletes[number]))
    return table


BY_VALUE = {
    "later files keep their rows": [pa.table({"id": [1, 5, 11]}), pa.table({"id": [2, 12, 25]})],
    "NULL equals NULL": [pa.table({"x": pa.array([None, 2], pa.int64())})],
    "two columns": [pa.table({"x": pa.array([None, 1], pa.int64()), "name": ["n0", "n2"]})],
    "several sets of columns": [pa.table({"id": [3]}), pa.table({"name": ["n1"]}), pa.table({"id": [4, 14]})],
    "the same row twice": [pa.table({"id": [3, 3]}), pa.table({"id": [3]})],
}


@pytest.mark.parametrize("deletes", BY_VALUE.values(), ids=BY_VALUE.keys())
def test_I6_rows_deleted_by_value_are_left_out_in_the_jvm(
    any_spark: Any, tmp_path: Path, deletes: list[pa.Table]
) -> None:
    write_equality_deletes(tmp_path / "t", deletes)
    table = tamis.open(tmp_path / "t")
    # The compared columns may be neither filtered nor returned.
    for where, columns in ((None, ["id", "x", "name"]), ("id > 3", ["name"]), ("x = 1", ["id"])):
        frame = table.scan(where, columns).to_spark(any_spark, reader="spark")
        expected = table.scan(where, columns).to_arrow().to_pylist()
        assert frame.columns == columns
        assert sorted(map(repr, (row.asDict() for row in frame.collect()))) == sorted(map(repr, expected)), where
        if not is_connect(any_spark):
            assert "MapInArrow" not in frame._jdf.queryExecution().executedPlan().toString()


@pytest.mark.parametrize("reason", ["zeros of floats differ", "more sets than scans", "more bytes than allowed"])
def test_I6_other_rows_deleted_by_value_are_left_to_tasks(spark: Any, tmp_path: Path, reason: str) -> None:
    deletes = [pa.table({"id": [number, 1000]}) for number in range(6 if reason == "more sets than scans" else 1)]
    if reason == "zeros of floats differ":
        deletes = [pa.table({"d": [0.0]})]
    write_equality_deletes(tmp_path / "t", deletes, ["id", "x", "name", "d"])
    most = 4 if reason == "more bytes than allowed" else 1 << 20
    scan = tamis.open(tmp_path / "t", tuning=tamis.Tuning(spark_max_deletion_bytes=most)).scan(None, ["id"])
    frame = scan.to_spark(spark, reader="spark")
    assert "MapInArrow" in frame._jdf.queryExecution().executedPlan().toString()
    assert sorted(row["id"] for row in frame.collect()) == sorted(scan.to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("change", ["rename", "drop"])
def test_I6_a_renamed_or_dropped_column_still_deletes(spark: Any, tmp_path: Path, change: str) -> None:
    table = write_equality_deletes(tmp_path / "t", [pa.table({"name": ["n1"]})])
    fields = [field(1, "id", "long"), field(2, "name", "long"), field(3, "title", "string")]
    table.evolve(fields if change == "rename" else fields[:2])
    table.save()
    scan = tamis.open(tmp_path / "t").scan(None, ["id", "name"])
    frame = scan.to_spark(spark, reader="spark")
    is_in_jvm = "MapInArrow" not in frame._jdf.queryExecution().executedPlan().toString()
    assert is_in_jvm == (change == "rename")
    found = sorted(row["id"] for row in frame.collect())
    assert found == sorted(scan.to_arrow()["id"].to_pylist())
    assert not {1, 5, 9} & set(found)


def test_the_join_keeps_the_size_of_the_frame_and_its_columns(spark: Any, tmp_path: Path) -> None:
    write_delta(tmp_path / "t", ("a", "b", "c"))
    frame = tamis.open(tmp_path / "t").scan().to_spark(spark, reader="spark").where("x = 3").select("id")
    plan = frame._jdf.queryExecution()
    assert plan.optimizedPlan().stats().sizeInBytes() < 10_000_000
    text = plan.executedPlan().toString()
    assert text.count("ReadSchema: struct<id:bigint,x:bigint") == 2
    assert "name:string" not in text
    assert "EqualTo(x,3)" in text


def test_many_deleted_rows_are_left_to_tasks(spark: Any, tmp_path: Path) -> None:
    write_delta(tmp_path / "t", ("a", "b", "c"))
    table = tamis.open(tmp_path / "t", tuning=tamis.Tuning(spark_max_deletion_bytes=2000))
    frame = table.scan(None, ["id"]).to_spark(spark, reader="spark")
    assert "MapInArrow" in frame._jdf.queryExecution().executedPlan().toString()
    assert sorted(row["id"] for row in frame.collect()) == sorted(table.scan().to_arrow()["id"].to_pylist())


def test_bitmaps_have_the_bits_of_the_rows() -> None:
    rows = [0, 1, 63, 64, 4095, 4096, 2**33, 2**33 + 4097]
    found = make_bitmap_rows(["f", "g"], [BitMap64(rows), BitMap64([5])]).to_pylist()
    seen = {
        (each["file"], each["block"] * 4096 + word * 64 + bit)
        for each in found
        for word, bits in enumerate(each["words"])
        for bit in range(64)
        if bits >> bit & 1
    }
    assert seen == {*(("f", row) for row in rows), ("g", 5)}
    assert len(found) == 5
