"""Files as a DataFrame: Spark finds the files of a local plan, reports the same sizes, and frees its memory."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tamis
from builders.delta.cases import draw_delta_case
from builders.delta.log import DeltaLog, remove
from builders.delta.tables import data_file
from builders.hive.tables import write_hive_table
from builders.values.choices import SeededChoices
from tamis import PartitionFilter
from tamis.engines.spark import files_dataframe
from tamis.errors import CorruptFile, InvalidArgument, UnknownColumn
from tamis.formats.file_funnel import Sizes
from tamis.skipping.metrics import LevelReport


def format_rows(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


def list_leftovers(spark: Any) -> list[str]:
    return [each.name for each in spark.catalog.listTables() if each.name.startswith("tamis_files")]


def find_levels(table: tamis.Table, where: object) -> dict[str, LevelReport]:
    return {level.level: level for level in table.scan(where).plan("files").report.levels}


def check_delta(files: Any, table: tamis.Table, where: object, *context: object) -> Any:
    """Return the plan of Spark, after checking that it equals the local plan."""
    found = files.files_for_scan(where)
    local = table.scan(where).plan("files")
    names = ["path", "size", *table.partition_columns]
    assert format_rows(found.files.select(names)) == format_rows(local.files.select(names)), context
    levels = find_levels(table, where)
    assert (found.after_partitions.files, found.after_partitions.bytes) == (
        levels["files"].total,
        levels["files"].bytes_total,
    ), context
    assert (found.after_statistics.files, found.after_statistics.bytes) == (
        levels["files"].kept,
        levels["files"].bytes_kept,
    ), context
    if levels["files"].rows_kept is not None:
        assert found.after_statistics.rows == levels["files"].rows_kept, context
    return found


def compare_delta_files(spark: Any, seed: int, predicates: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        case = draw_delta_case(SeededChoices(seed), Path(folder), predicates)
        table = tamis.open(folder)
        with table.files_dataframe(spark) as files:
            assert format_rows(files.files_for_scan().files) == format_rows(table.files()), seed
            for said in case.predicates:
                check_delta(files, table, said.expr, seed, said.sql)


@pytest.mark.parametrize("seed", [3, pytest.param(8, marks=pytest.mark.interop)])
def test_O8_random_delta_tables_have_the_files_of_a_local_plan(connect_spark: Any, seed: int) -> None:
    compare_delta_files(connect_spark, seed, predicates=3)


def write_delta_table(folder: Path) -> Path:
    """Write forty files in a checkpoint of two parts; newer commits remove some and add others."""
    columns = {"id": "long", "x": "double", "p": "string"}
    log = DeltaLog(folder, columns, partition_columns=["p"], features=["deletionVectors"])

    def add(number: int, **options: Any) -> Any:
        part = "ab"[number % 2]
        values = pa.array(range(10 * number, 10 * number + 10), pa.int64())
        rows = pa.table({"id": values, "x": values.cast(pa.float64())})
        return data_file(log, f"p={part}/{number}.parquet", rows, {"p": part}, **options)

    log.commit(*(add(number) for number in range(40)))
    log.checkpoint(parts=2)
    log.commit(remove("p=a/0.parquet"), remove("p=b/1.parquet"), add(40), add(41, deleted=[0, 1]))
    return folder


@pytest.mark.interop
def test_checkpoint_parts_and_commits_are_one_table(any_spark: Any, tmp_path: Path) -> None:
    table = tamis.open(write_delta_table(tmp_path))
    before = list_leftovers(any_spark)
    with table.files_dataframe(any_spark) as files:
        assert files.name.endswith("_v1")
        assert files.name in list_leftovers(any_spark)
        assert any_spark.catalog.isCached(files.name)
        frame = files.dataframe
        assert frame.count() == 40
        assert frame.where("lower.id >= 395 AND partition.p = 'b'").select("path", "logical_rows").collect() == [
            ("p=b/41.parquet", 8)
        ]
        found = check_delta(files, table, "p = 'a' AND id BETWEEN 105 AND 221 AND x < 1000")
        assert found.total == Sizes(40, found.total.bytes, 398)
        assert (found.after_partitions.files, found.after_partitions.rows) == (20, 200)
        assert (found.after_statistics.files, found.after_statistics.rows) == (7, 70)
        for where in (
            "id = 7",
            "id >= 405",
            "p IS NULL",
            "id IN (11, 33, 399) OR p = 'b' AND id > 380",
            "NOT (id < 400)",
        ):
            check_delta(files, table, where, where)
        unused = files.files_for_scan("p = 'a' AND upper(p) = 'A' AND id = 25")
        assert unused.after_statistics.files == 1
    assert list_leftovers(any_spark) == before
    files.unpersist()


def test_a_view_name_that_another_thread_uses_is_not_replaced(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DeltaLog(tmp_path, {"id": "long", "x": "long"}).commit()
    table = tamis.open(tmp_path)
    free_name = files_dataframe._find_free_name
    with table.files_dataframe(spark) as first:
        seen = [first.name]
        monkeypatch.setattr(
            files_dataframe, "_find_free_name", lambda *given: seen.pop() if seen else free_name(*given)
        )
        with table.files_dataframe(spark, columns=["x"]) as second:
            assert second.name == f"{first.name}_2"
        assert "id" in first.dataframe.select("lower.*").columns


def test_statistics_of_some_columns_only(connect_spark: Any, tmp_path: Path) -> None:
    table = tamis.open(write_delta_table(tmp_path))
    with table.files_dataframe(connect_spark, columns=["ID"]) as files:
        assert [field.name for field in files.dataframe.schema["lower"].dataType] == ["id"]
        assert files.files_for_scan("x > 1000").after_statistics.files == 40
        assert files.files_for_scan("id = 25").after_statistics.files == 1
        with pytest.raises(InvalidArgument, match="PartitionFilter"):
            files.files_for_scan(PartitionFilter.eq("p", "a"))
        with pytest.raises(UnknownColumn, match="no column 'y'"):
            files.files_for_scan("y = 1")
    with pytest.raises(UnknownColumn, match="no column 'y'"):
        table.files_dataframe(connect_spark, columns=["y"])


def test_footers_of_a_folder_are_read_by_executors(connect_spark: Any, tmp_path: Path) -> None:
    parts = []
    for number in range(6):
        values = range(100 * number, 100 * number + 100)
        rows = pa.table({"id": pa.array(values, pa.int64()), "Id2": [f"t{value:04d}" for value in values]})
        parts.append(({"day": ["2024-03-01", "2024-03-02", None][number % 3]}, rows))
    table = tamis.open(write_hive_table(tmp_path / "folder", parts, row_group_size=30))
    with table.files_dataframe(connect_spark) as files:
        found = files.files_for_scan("day = DATE '2024-03-01' AND id >= 250")
        assert found.total == Sizes(6, sum(table.files()["size"].to_pylist()), 600)
        assert found.after_partitions.files == 2
        assert found.after_statistics.files == 1
        assert found.files["num_records"].to_pylist() == [100]
        assert (
            found.files["day"].to_pylist()
            == table.scan("day = DATE '2024-03-01'").plan("files").files["day"].to_pylist()[:1]
        )
        assert files.files_for_scan("id2 = 't0333' OR id = 5").after_statistics.files == 2
        assert files.files_for_scan("day IS NULL").after_statistics.files == 2
    assert list_leftovers(connect_spark) == []


def test_a_damaged_file_is_an_error_of_ours_and_leaves_nothing(connect_spark: Any, tmp_path: Path) -> None:
    folder = write_hive_table(tmp_path / "folder", [({}, pa.table({"id": [1]})), ({}, pa.table({"id": [2]}))])
    table = tamis.open(folder)
    damaged = sorted(folder.glob("*.parquet"))[1]
    damaged.write_bytes(damaged.read_bytes()[:-4] + b"ABCD")
    with pytest.raises(CorruptFile, match=damaged.name):
        tamis.open(folder).files_dataframe(connect_spark)
    assert list_leftovers(connect_spark) == []
    assert table.format == "hive"
