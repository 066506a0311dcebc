"""Tables partitioned by a struct field: files that lack it have the partition value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tamis
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field
from builders.parquet.tuning import BY_PAGES

ID = field(1, "id", "long")
A, B = field(3, "a", "int"), field(4, "b", "int")
STORED = pa.struct([("a", pa.int32())])
WHERES = ("s.b = 7", "s.b <> 7", "NOT s.b = 7", "s.b IS NULL", "s.b IS NOT NULL", "s.b IN (6, 7) AND id > 1", "s.b > 8")


def write_partitioned_by_field(folder: Path, ending: str, value: int | None, *, has_struct: bool = True) -> tamis.Table:
    """Open a table of one file with the ids 1 and 2; the file lacks `s.b`, and its partition has the value."""
    table = IcebergFolder(folder, [ID, field(2, "s", [A, B])], specs=[[(4, "identity", "p")]])
    rows = pa.table({"id": [1, 2]})
    if has_struct:
        rows = rows.append_column("s", pa.array([{"a": 1}, {"a": 2}], STORED))
    fields = [ID, field(2, "s", [A])] if has_struct else [ID]
    table.commit(table.data_file(f"1.{ending}", rows, fields=fields, partition=(value,), metrics={}))
    return tamis.open(folder)


def compute_expected_ids(where: str, value: int | None) -> list[int]:
    matches = {
        "s.b = 7": value == 7,
        "s.b <> 7": value is not None and value != 7,
        "NOT s.b = 7": value is not None and value != 7,
        "s.b IS NULL": value is None,
        "s.b IS NOT NULL": value is not None,
        "s.b > 8": value is not None and value > 8,
    }
    if where in matches:
        return [1, 2] if matches[where] else []
    return [2] if value in (6, 7) else []


def find_ids(table: tamis.Table, where: str, **options: Any) -> list[int]:
    return sorted(table.scan(where, **options).to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("ending", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("value", [7, None])
def test_I5_a_missing_struct_field_has_its_partition_value(tmp_path: Path, ending: str, value: int | None) -> None:
    table = write_partitioned_by_field(tmp_path, ending, value)
    assert table.scan(columns=["s"]).to_arrow()["s"].to_pylist() == [{"a": 1, "b": value}, {"a": 2, "b": value}]
    assert table.scan(columns=["s.b"]).to_arrow()["s"].to_pylist() == [{"b": value}] * 2
    for where in WHERES:
        assert find_ids(table, where) == find_ids(table, where, levels=[]) == compute_expected_ids(where, value), where
        assert table.scan(where).count() == len(compute_expected_ids(where, value)), where


@pytest.mark.parametrize("ending", ["parquet", "avro"])
@pytest.mark.parametrize("value", [7, None])
def test_I5_a_missing_struct_is_not_null_where_a_field_has_a_partition_value(
    tmp_path: Path, ending: str, value: int | None
) -> None:
    table = write_partitioned_by_field(tmp_path, ending, value, has_struct=False)
    whole = None if value is None else {"a": None, "b": value}
    assert table.scan().to_arrow()["s"].to_pylist() == [whole, whole]
    for where in WHERES:
        for levels in ([], ["partitions", "manifests", "files", "row_groups"]):
            assert find_ids(table, where, levels=levels) == compute_expected_ids(where, value), (where, levels)


def test_I5_a_null_struct_has_no_partition_value(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, [ID, field(2, "s", [A, B])], specs=[[(4, "identity", "p")]])
    rows = pa.table({"id": [1, 2], "s": pa.array([{"a": 1}, None], STORED)})
    table.commit(table.data_file("1.parquet", rows, fields=[ID, field(2, "s", [A])], partition=(7,), metrics={}))
    opened = tamis.open(tmp_path)
    assert opened.scan().to_arrow()["s"].to_pylist() == [{"a": 1, "b": 7}, None]
    assert find_ids(opened, "s.b = 7", levels=["row_groups"]) == [1]
    assert find_ids(opened, "s.b IS NULL", levels=["row_groups"]) == [2]
    assert opened.scan("s.b = 7", levels=["row_groups"]).count() == 1


def test_I5_P5_pages_of_a_struct_that_lacks_a_field(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, [ID, field(2, "s", [A, B])], specs=[[(4, "identity", "p")]])
    numbers = list(range(500))
    rows = pa.table({"id": numbers, "s": pa.array([{"a": number} for number in numbers], STORED)})
    options = {"max_rows_per_page": 10, "write_page_index": True}
    fields = [ID, field(2, "s", [A])]
    table.commit(table.data_file("1.parquet", rows, fields=fields, partition=(7,), metrics={}, options=options))
    opened = tamis.open(tmp_path, tuning=BY_PAGES)
    found = opened.scan("id BETWEEN 100 AND 102 AND s.b = 7").to_arrow()
    assert found["s"].to_pylist() == [{"a": number, "b": 7} for number in (100, 101, 102)]
    assert find_ids(opened, "s.a = 44 AND s.b <=> 7", levels=["pages"]) == [44]


def test_tasks_with_partition_values_are_serializable(tmp_path: Path) -> None:
    from tamis.scan.planning.task_data import tasks_from_table, tasks_to_table

    scan = write_partitioned_by_field(tmp_path, "parquet", 7).scan()
    tasks = scan.plan("row_groups").tasks
    assert [task.constants for task in tasks] == [{("s", "b"): pa.scalar(7, pa.int32())}]
    assert tasks_from_table(tasks_to_table(tasks)) == tasks
