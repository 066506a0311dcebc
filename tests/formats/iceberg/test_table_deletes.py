"""Row-level deletes of Iceberg tables by position, value and vector, and the files they apply to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tamis
from builders.iceberg.deletes import deletion_vectors, equality_deletes, position_deletes
from builders.iceberg.tables import File, IcebergFolder
from builders.iceberg.values import field
from builders.parquet.tuning import BY_PAGES
from tamis.errors import TamisError

FIELDS = [field(1, "id", "long"), field(2, "k", "string")]


def find_ids(table: tamis.Table, where: object = None, **options: Any) -> list[int]:
    return sorted(table.scan(where, **options).to_arrow()["id"].to_pylist())


def make_rows(start: int, count: int = 4) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table({"id": list(numbers), "k": [f"k{number % 4}" for number in numbers]})


def write_two_files(folder: Path, version: int = 2, **options: Any) -> tuple[IcebergFolder, File, File]:
    table = IcebergFolder(folder, FIELDS, version=version, **options)
    one, two = table.data_file("1.parquet", make_rows(0)), table.data_file("2.parquet", make_rows(4))
    table.commit(one, two)
    return table, one, two


# --- By position ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("truncate", [None, 4])
def test_I6_position_deletes_apply_to_their_files(tmp_path: Path, ending: str, truncate: int | None) -> None:
    table, one, two = write_two_files(tmp_path)
    table.commit(
        position_deletes(table, f"d.{ending}", [(one.path, 0), (two.path, 1), (two.path, 3)], truncate=truncate)
    )
    opened = tamis.open(tmp_path)
    assert find_ids(opened) == [1, 2, 3, 4, 6]
    assert find_ids(opened, "id >= 3") == [3, 4, 6]
    assert find_ids(opened, "id < 2") == [1]
    assert opened.scan().count() == 5
    assert opened.scan("id >= 4").count() == 2


def test_I6_position_deletes_do_not_apply_to_later_files(tmp_path: Path) -> None:
    table, one, _ = write_two_files(tmp_path)
    table.commit(position_deletes(table, "d.parquet", [(one.path, 0)]))
    table.commit(removed=[one.path])
    table.commit(one)
    assert find_ids(tamis.open(tmp_path)) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_I6_position_deletes_of_the_same_commit_apply(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, FIELDS)
    one = table.data_file("1.parquet", make_rows(0))
    table.commit(one, position_deletes(table, "d.parquet", [(one.path, 2)]))
    assert find_ids(tamis.open(tmp_path)) == [0, 1, 3]


def test_I6_position_deletes_apply_to_their_partition(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, FIELDS, specs=[[(2, "identity", "k")]])
    files = {
        key: table.data_file(f"{key}.parquet", pa.table({"id": [number, number + 10], "k": [key, key]}))
        for number, key in enumerate(["a", "b"])
    }
    table.commit(*files.values())
    own = position_deletes(table, "a-d.parquet", [(files["a"].path, 0)], partition=("a",))
    other = position_deletes(table, "b-d.parquet", [(files["a"].path, 1), (files["b"].path, 1)], partition=("b",))
    table.commit(own, other)
    assert find_ids(tamis.open(tmp_path)) == [1, 10]


def test_I6_several_delete_files_of_one_data_file(tmp_path: Path) -> None:
    table, one, two = write_two_files(tmp_path)
    table.commit(position_deletes(table, "d1.parquet", [(one.path, 0), (two.path, 0)]))
    table.commit(position_deletes(table, "d2.parquet", [(one.path, 0), (one.path, 3)], referenced=one.path))
    opened = tamis.open(tmp_path)
    assert find_ids(opened) == [1, 2, 5, 6, 7]
    assert opened.scan().count() == 5


def test_P5_positions_refer_to_rows_of_the_file_not_to_rows_read(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, FIELDS)
    options = {"row_group_size": 10, "max_rows_per_page": 2, "write_batch_size": 1, "write_page_index": True}
    one = table.data_file("1.parquet", make_rows(0, 40), options=options)
    table.commit(one)
    table.commit(position_deletes(table, "d.parquet", [(one.path, row) for row in (5, 17, 18, 39)]))
    opened = tamis.open(tmp_path, tuning=BY_PAGES)
    assert find_ids(opened, "id BETWEEN 16 AND 20") == [16, 19, 20]
    assert find_ids(opened, "id IN (4, 5, 38, 39)") == [4, 38]
    assert opened.scan("id BETWEEN 16 AND 20").count() == 3


# --- By value ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["parquet", "avro"])
def test_I6_equality_deletes_apply_to_earlier_files(tmp_path: Path, ending: str) -> None:
    table, _, _ = write_two_files(tmp_path)
    later = table.data_file("3.parquet", make_rows(8))
    table.commit(later, equality_deletes(table, f"d.{ending}", pa.table({"k": ["k1", "k3"]})))
    opened = tamis.open(tmp_path)
    assert find_ids(opened) == [0, 2, 4, 6, 8, 9, 10, 11]
    assert find_ids(opened, "id IN (1, 9)") == [9]
    assert find_ids(opened, columns=["id"]) == find_ids(opened)
    assert opened.scan("id >= 0").count() == 8
    assert opened.scan().count() == 8


def test_I6_columns_besides_the_compared_ones_are_ignored(tmp_path: Path) -> None:
    table, _, _ = write_two_files(tmp_path)
    deleted = pa.table({"id": [1, 6], "k": ["another", None]})
    table.commit(equality_deletes(table, "d.parquet", deleted, ids=[1]))
    assert find_ids(tamis.open(tmp_path)) == [0, 2, 3, 4, 5, 7]


def test_I6_null_is_equal_to_null_and_nan_to_nan(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, [field(1, "id", "long"), field(2, "k", "string"), field(3, "x", "double")])
    nan = float("nan")
    rows = pa.table({"id": [1, 2, 3, 4], "k": ["a", None, None, "a"], "x": [nan, nan, 1.0, None]})
    table.commit(table.data_file("1.parquet", rows))
    table.commit(equality_deletes(table, "d1.parquet", pa.table({"k": pa.array([None], pa.string()), "x": [1.0]})))
    assert find_ids(tamis.open(tmp_path)) == [1, 2, 4]
    table.commit(equality_deletes(table, "d2.parquet", pa.table({"k": ["a"], "x": [nan]})))
    assert find_ids(tamis.open(tmp_path)) == [2, 4]
    table.commit(equality_deletes(table, "d3.parquet", pa.table({"x": pa.array([None], pa.float64())})))
    assert find_ids(tamis.open(tmp_path)) == [2]


def test_I6_equality_deletes_of_a_partition_and_of_all_partitions(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, FIELDS, specs=[[(2, "identity", "k")], []])
    files = [
        table.data_file(f"{key}.parquet", pa.table({"id": [1, number + 2], "k": [key, key]}), spec=0)
        for number, key in enumerate(["a", "b"])
    ]
    table.commit(*files)
    in_one = equality_deletes(table, "one.parquet", pa.table({"id": [1, 3]}), spec=0, partition=("a",))
    table.commit(in_one)
    assert find_ids(tamis.open(tmp_path)) == [1, 2, 3]
    table.commit(equality_deletes(table, "all.parquet", pa.table({"id": [1, 2]}), spec=1))
    assert find_ids(tamis.open(tmp_path)) == [3]


def test_I6_equality_deletes_by_missing_renamed_and_promoted_columns(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, [field(1, "id", "int"), field(2, "k", "string")])
    table.commit(table.data_file("1.parquet", pa.table({"id": pa.array([1, 2], pa.int32()), "k": ["a", "b"]})))
    table.evolve([field(1, "number", "long"), field(2, "k", "string"), field(3, "new", "string")])
    rows = pa.table({"number": [3, 4], "k": ["a", "b"], "new": ["x", None]})
    table.commit(table.data_file("2.parquet", rows))
    table.commit(equality_deletes(table, "d1.parquet", pa.table({"number": [2, 3]})))
    opened = tamis.open(tmp_path)
    assert sorted(opened.scan().to_arrow()["number"].to_pylist()) == [1, 4]
    null = pa.array([None], pa.string())
    table.commit(equality_deletes(table, "d2.parquet", pa.table({"k": ["a"], "new": null})))
    assert sorted(tamis.open(tmp_path).scan().to_arrow()["number"].to_pylist()) == [4]


def test_I6_equality_deletes_compare_initial_defaults(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, FIELDS, version=3)
    table.commit(table.data_file("1.parquet", make_rows(0)))
    table.evolve([*FIELDS, field(3, "d", "int", **{"initial-default": 7, "write-default": 7})])
    table.commit(equality_deletes(table, "d.parquet", pa.table({"id": [1, 2], "d": pa.array([7, 8], pa.int32())})))
    assert find_ids(tamis.open(tmp_path)) == [0, 2, 3]


def test_I6_several_delete_files_with_different_compared_columns(tmp_path: Path) -> None:
    table, _, two = write_two_files(tmp_path)
    table.commit(equality_deletes(table, "d1.parquet", pa.table({"id": [0]})))
    table.commit(equality_deletes(table, "d2.parquet", pa.table({"k": ["k2"]})))
    table.commit(
        equality_deletes(table, "d3.parquet", pa.table({"id": [3, 5], "k": ["k3", "k0"]})),
        position_deletes(table, "d4.parquet", [(two.path, 3)]),
    )
    opened = tamis.open(tmp_path)
    assert find_ids(opened) == [1, 4, 5]
    assert opened.scan("k <> 'k2'").count() == 3


def test_I6_deletes_unrelated_to_the_predicate_still_apply(tmp_path: Path) -> None:
    table, one, _ = write_two_files(tmp_path)
    table.commit(
        equality_deletes(table, "e.parquet", pa.table({"k": ["k0"]})),
        position_deletes(table, "p.parquet", [(one.path, 1)]),
    )
    opened = tamis.open(tmp_path)
    assert find_ids(opened, "id < 3") == [2]
    assert find_ids(opened, "k = 'k0'") == []
    assert opened.scan("k = 'k0' OR id = 1").count() == 0
    assert find_ids(opened, "id < 3", levels=[]) == [2]


def test_limits_count_only_rows_that_are_not_deleted(tmp_path: Path) -> None:
    table, one, two = write_two_files(tmp_path)
    table.commit(
        equality_deletes(table, "e.parquet", pa.table({"id": [0, 1, 2]})),
        position_deletes(table, "p.parquet", [(two.path, 0), (one.path, 3)]),
    )
    opened = tamis.open(tmp_path)
    for limit in range(5):
        assert opened.scan(limit=limit).to_arrow().num_rows == min(limit, 3)
        assert opened.scan("id > 0", limit=limit).count() == min(limit, 3)


# --- By vector --------------------------------------------------------------------------------------------------------


def test_I6_deletion_vectors_replace_all_position_deletes_of_their_file(tmp_path: Path) -> None:
    table, one, two = write_two_files(tmp_path, version=3)
    table.commit(position_deletes(table, "p.parquet", [(one.path, 0), (two.path, 0)]))
    files = {one.path: one, two.path: two}
    table.commit(*deletion_vectors(table, "v.puffin", {one.path: [1, 2], two.path: [0, 3]}, files))
    opened = tamis.open(tmp_path)
    # The position delete file deletes row 0, but the later deletion vector does not.
    assert find_ids(opened) == [0, 3, 5, 6]
    assert opened.scan().count() == 4
    assert opened.scan("id > 3").count() == 2


def test_I6_count_with_vectors_needs_no_data(tmp_path: Path) -> None:
    table, one, two = write_two_files(tmp_path, version=3)
    table.commit(*deletion_vectors(table, "v.puffin", {one.path: [1]}, {one.path: one, two.path: two}))
    for name in ("1.parquet", "2.parquet"):
        (tmp_path / "data" / name).unlink()
    assert tamis.open(tmp_path).scan().count() == 7


def test_I6_newer_deletion_vectors_replace_older_ones(tmp_path: Path) -> None:
    table, one, two = write_two_files(tmp_path, version=3)
    files = {one.path: one, two.path: two}
    first = deletion_vectors(table, "v1.puffin", {one.path: [1]}, files)
    table.commit(*first)
    table.commit(*deletion_vectors(table, "v2.puffin", {one.path: [1, 3]}, files), removed=[first[0].path])
    assert find_ids(tamis.open(tmp_path)) == [0, 2, 4, 5, 6, 7]


def test_deletion_vectors_and_equality_deletes_combine(tmp_path: Path) -> None:
    table, one, two = write_two_files(tmp_path, version=3)
    table.commit(equality_deletes(table, "e.parquet", pa.table({"k": ["k0"]})))
    table.commit(*deletion_vectors(table, "v.puffin", {one.path: [1], two.path: [2]}, {one.path: one, two.path: two}))
    assert find_ids(tamis.open(tmp_path)) == [2, 3, 5, 7]


@pytest.mark.parametrize("where", ["checksum", "magic", "length"])
def test_D16_a_damaged_vector_is_an_error_that_names_it(tmp_path: Path, where: str) -> None:
    table, one, two = write_two_files(tmp_path, version=3)
    (vector,) = deletion_vectors(table, "v.puffin", {one.path: [1]}, {one.path: one, two.path: two})
    table.commit(vector)
    path = tmp_path / "data" / "v.puffin"
    content = bytearray(path.read_bytes())
    offset, length = vector.metrics["content_offset"], vector.metrics["content_size_in_bytes"]
    content[{"checksum": offset + length - 1, "magic": offset + 5, "length": offset + 3}[where]] ^= 0x55
    path.write_bytes(bytes(content))
    with pytest.raises(TamisError, match=r"v\.puffin"):
        tamis.open(tmp_path).scan().to_arrow()


def test_a_vector_cardinality_that_differs_from_the_manifest_is_an_error(tmp_path: Path) -> None:
    table, one, two = write_two_files(tmp_path, version=3)
    (vector,) = deletion_vectors(table, "v.puffin", {one.path: [1]}, {one.path: one, two.path: two})
    table.commit(replace(vector, rows=3))
    with pytest.raises(TamisError, match=r"v\.puffin"):
        tamis.open(tmp_path).scan().to_arrow()


def test_E2_a_missing_delete_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    table, one, _ = write_two_files(tmp_path)
    table.commit(position_deletes(table, "d.parquet", [(one.path, 0)]))
    (tmp_path / "data" / "d.parquet").unlink()
    with pytest.raises(TamisError, match=r"d\.parquet"):
        tamis.open(tmp_path).scan().to_arrow()


def test_I10_deletes_of_a_moved_table_refer_to_old_locations(tmp_path: Path) -> None:
    table, one, two = write_two_files(tmp_path, version=3, location="s3://bucket/warehouse/t")
    table.commit(position_deletes(table, "d.parquet", [(two.path, 0)]))
    table.commit(*deletion_vectors(table, "v.puffin", {one.path: [1]}, {one.path: one, two.path: two}))
    table.commit(equality_deletes(table, "e.parquet", pa.table({"id": [7]})))
    assert find_ids(tamis.open(tmp_path)) == [0, 2, 3, 5, 6]


def test_deletes_from_data_files_of_other_formats(tmp_path: Path) -> None:
    names = [{"field-id": each["id"], "names": [each["name"]]} for each in FIELDS]
    table = IcebergFolder(tmp_path, FIELDS, properties={"schema.name-mapping.default": json.dumps(names)})
    one, two = table.data_file("1.avro", make_rows(0)), table.data_file("2.orc", make_rows(4))
    table.commit(one, two)
    table.commit(
        position_deletes(table, "p.parquet", [(one.path, 0), (two.path, 3)]),
        equality_deletes(table, "e.parquet", pa.table({"k": ["k1"]})),
    )
    opened = tamis.open(tmp_path)
    assert find_ids(opened) == [2, 3, 4, 6]
    assert find_ids(opened, "id > 2") == [3, 4, 6]
    assert opened.scan().count() == 4
