"""Manifests with impossible or missing values: no row is lost, and no wrong count is returned."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

import tamis
from builders.iceberg.avro_files import write_avro
from builders.iceberg.deletes import deletion_vectors, equality_deletes
from builders.iceberg.tables import EXISTING, Entry, File, IcebergFolder, Manifest
from builders.iceberg.values import field, list_of
from tamis.errors import CorruptFile

ID = field(1, "id", "long")


def find_ids(folder: Path, where: str | None = None, **options: Any) -> list[int]:
    return sorted(tamis.open(folder).scan(where, **options).to_arrow()["id"].to_pylist())


def count_rows(folder: Path, where: str | None = None) -> int:
    return tamis.open(folder).scan(where).count()


def make_numbers(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def write_file(folder: Path, version: int = 2) -> tuple[IcebergFolder, File]:
    """Write a table with a file of the ids 1, 2 and 3."""
    table = IcebergFolder(folder, [ID], version=version)
    file = table.data_file("1.parquet", make_numbers(1, 2, 3))
    table.commit(file)
    return table, file


# --- Rows that are not counted ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["parquet", "orc", "avro"])
def test_I3_a_negative_number_of_rows_is_unknown(tmp_path: Path, ending: str) -> None:
    table = IcebergFolder(tmp_path, [ID], version=1)
    file = table.data_file(f"a.{ending}", make_numbers(1, 2, 3), metrics={})
    counted = table.data_file(f"b.{ending}", make_numbers(4, 5))
    table.commit(replace(file, rows=-1), counted)
    assert find_ids(tmp_path) == [1, 2, 3, 4, 5]
    assert find_ids(tmp_path, "id >= 2") == [2, 3, 4, 5]
    assert [count_rows(tmp_path, where) for where in (None, "id >= 2", "id > 3", "id < 0")] == [5, 4, 2, 0]
    assert tamis.open(tmp_path).scan(limit=3).to_arrow().num_rows == 3
    assert sorted(tamis.iceberg.list_files(tmp_path)["record_count"].to_pylist()) == [-1, 2]
    assert tamis.open(tmp_path).files()["num_records"].to_pylist() == [None, 2]


@pytest.mark.parametrize("value", [7, None])
def test_I3_partitions_prune_files_without_row_counts(tmp_path: Path, value: int | None) -> None:
    table = IcebergFolder(tmp_path, [ID, field(2, "p", "int")], specs=[[(2, "identity", "p")]])
    rows = pa.table({"id": [1, 2], "p": pa.array([value] * 2, pa.int32())})
    table.commit(replace(table.data_file("a.parquet", rows), rows=-1))
    everything = [1, 2]
    assert find_ids(tmp_path, "p IS NULL") == (everything if value is None else [])
    assert find_ids(tmp_path, "p = 7") == ([] if value is None else everything)
    assert count_rows(tmp_path, "p = 7") == (0 if value is None else 2)
    assert find_ids(tmp_path, "p < 7 OR p > 7") == []


def test_a_vector_of_unknown_cardinality_is_read_for_counts(tmp_path: Path) -> None:
    table, file = write_file(tmp_path, version=3)
    (vector,) = deletion_vectors(table, "v.puffin", {file.path: [1]}, {file.path: file})
    table.commit(replace(vector, rows=-1))
    assert (find_ids(tmp_path), count_rows(tmp_path)) == ([1, 3], 2)


# --- Impossible counts ------------------------------------------------------------------------------------------------


def encode_int(value: int) -> bytes:
    return value.to_bytes(4, "little", signed=True)


BOUNDS = {"lower_bounds": {2: encode_int(5)}, "upper_bounds": {2: encode_int(5)}}


@pytest.mark.parametrize(
    "metrics",
    [
        {"null_value_counts": {2: 2}, **BOUNDS},
        {"null_value_counts": {2: 2}},
        {"null_value_counts": {2: 2**62}},
        {"null_value_counts": {2: 2}, "value_counts": {2: 1}},
        {"null_value_counts": {2: 2}, "value_counts": {2: 2}},
        {"null_value_counts": {2: 1}, **BOUNDS},
        {"null_value_counts": {2: 1}, "lower_bounds": {2: encode_int(5)}},
    ],
    ids=str,
)
def test_I3_contradictory_null_counts_are_ignored(tmp_path: Path, metrics: dict[str, Any]) -> None:
    table = IcebergFolder(tmp_path, [ID, field(2, "x", "int")])
    rows = pa.table({"id": [1], "x": pa.array([5], pa.int32())})
    table.commit(table.data_file("1.parquet", rows, metrics=metrics))
    for where in ("x = 5", "x > 3", "x IS NOT NULL"):
        assert (find_ids(tmp_path, where), count_rows(tmp_path, where)) == ([1], 1), where
    assert (find_ids(tmp_path, "x IS NULL"), count_rows(tmp_path, "x IS NULL")) == ([], 0)


@pytest.mark.parametrize(
    "metrics", [{"nan_value_counts": {2: 2}}, {"null_value_counts": {2: 1}, "nan_value_counts": {2: 1}}]
)
def test_I3_impossible_nan_counts_are_ignored(tmp_path: Path, metrics: dict[str, Any]) -> None:
    table = IcebergFolder(tmp_path, [ID, field(2, "x", "double")])
    rows = pa.table({"id": [1], "x": [5.0]})
    table.commit(table.data_file("1.parquet", rows, metrics={"null_value_counts": {2: 0}, **metrics}))
    assert find_ids(tmp_path, "x = 5") == [1]
    assert count_rows(tmp_path, "x > 1e9") == 0
    assert count_rows(tmp_path, "x IS NULL") == 0


def test_I3_nulls_in_all_rows_without_bounds_are_used(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, [ID, field(2, "x", "int")])
    table.commit(table.data_file("1.parquet", pa.table({"id": [1], "x": pa.array([None], pa.int32())})))
    assert tamis.open(tmp_path).scan("x = 5", levels=["files"]).plan("files").num_files == 0


@pytest.mark.parametrize("deleted", [4, 5])
def test_counting_with_a_vector_larger_than_its_file_is_an_error(tmp_path: Path, deleted: int) -> None:
    table, file = write_file(tmp_path, version=3)
    (vector,) = deletion_vectors(table, "v.puffin", {file.path: [1]}, {file.path: file})
    table.commit(replace(vector, rows=deleted))
    with pytest.raises(CorruptFile, match=rf"3 rows for '.*1\.parquet', but {deleted} deleted rows"):
        count_rows(tmp_path)


@pytest.mark.parametrize("where", [None, "id >= 1"])
def test_a_file_row_count_that_differs_from_its_manifest_is_an_error(tmp_path: Path, where: str | None) -> None:
    table = IcebergFolder(tmp_path, [ID])
    table.commit(replace(table.data_file("1.parquet", make_numbers(1, 2, 3)), rows=2))
    with pytest.raises(CorruptFile, match=r"1\.parquet' has 3 rows, but the table metadata says 2"):
        find_ids(tmp_path, where)


# --- Missing values ---------------------------------------------------------------------------------------------------


def rewrite_manifest_list(table: IcebergFolder, *manifests: Manifest) -> None:
    """Write another manifest list for the last snapshot."""
    last = table.snapshots[-1]
    table._write_manifest_list(last.number, None, last.sequence, manifests)


def test_I6_an_existing_file_does_not_inherit_a_sequence_number(tmp_path: Path) -> None:
    table, file = write_file(tmp_path)
    table.commit(equality_deletes(table, "e.parquet", make_numbers(1)))
    last = table.snapshots[-1]
    entry = Entry(file, status=EXISTING, snapshot=last.number)
    deletes = last.manifests[1]
    rewrite_manifest_list(table, table.write_manifest([entry], last.number, 3), deletes)
    with pytest.raises(CorruptFile, match="has an existing file without a sequence number"):
        find_ids(tmp_path)
    # A manifest without sequence numbers, as in format version 1.
    rewrite_manifest_list(table, table.write_manifest([entry], last.number, 0), deletes)
    assert find_ids(tmp_path) == [2, 3]
    rewrite_manifest_list(table, table.write_manifest([replace(entry, sequence=1)], last.number, 3), deletes)
    assert find_ids(tmp_path) == [2, 3]


@pytest.mark.parametrize("missing", ["referenced_data_file", "content_offset", "content_size_in_bytes"])
def test_I6_a_vector_without_range_or_referenced_file_is_an_error(tmp_path: Path, missing: str) -> None:
    table, file = write_file(tmp_path, version=3)
    (vector,) = deletion_vectors(table, "v.puffin", {file.path: [0]}, {file.path: file})
    table.commit(vector.with_metrics(**{missing: None}))
    for read in (find_ids, count_rows):
        with pytest.raises(CorruptFile, match="has a deletion vector without"):
            read(tmp_path)
    # A deleted entry is not checked.
    table.commit(removed=[vector.path])
    assert find_ids(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize("given", [None, []])
def test_I6_equality_deletes_without_compared_columns_are_an_error(tmp_path: Path, given: list[int] | None) -> None:
    table, _ = write_file(tmp_path)
    table.commit(equality_deletes(table, "e.parquet", make_numbers(1)).with_metrics(equality_ids=given))
    for read in (find_ids, count_rows):
        with pytest.raises(CorruptFile, match="equality deletes without the compared columns"):
            read(tmp_path)


@pytest.mark.parametrize(
    ("number", "what"), [(2, "'s' of the type struct"), (4, "'l' of the type list"), (5, "no schema")]
)
def test_I6_equality_deletes_by_nested_or_unknown_fields_are_an_error(tmp_path: Path, number: int, what: str) -> None:
    table = IcebergFolder(tmp_path, [ID, field(2, "s", [field(3, "x", "int")]), field(4, "l", list_of(5, "int"))])
    rows = pa.Table.from_pylist([{"id": 1, "s": {"x": 1}, "l": [1]}], schema=table.arrow_schema)
    table.commit(table.data_file("1.parquet", rows))
    table.commit(equality_deletes(table, "e.parquet", make_numbers(1)).with_metrics(equality_ids=[number]))
    for read in (find_ids, count_rows):
        with pytest.raises(CorruptFile, match=what):
            read(tmp_path)


def test_I6_duplicate_equality_ids_are_compared_once(tmp_path: Path) -> None:
    table, _ = write_file(tmp_path)
    table.commit(equality_deletes(table, "e.parquet", make_numbers(1)).with_metrics(equality_ids=[1, 1]))
    assert find_ids(tmp_path) == [2, 3]


def test_a_manifest_with_unsupported_content_is_an_error(tmp_path: Path) -> None:
    table, file = write_file(tmp_path)
    last = table.snapshots[-1]
    rewrite_manifest_list(table, table.write_manifest([Entry(file, snapshot=last.number)], last.number, 1, content=7))
    for read in (find_ids, count_rows):
        with pytest.raises(CorruptFile, match="a manifest with unsupported content"):
            read(tmp_path)


# --- Fields that only bookkeeping needs -------------------------------------------------------------------------------


def drop_fields(path: Path, *names: str) -> None:
    """Write an Avro file again without some fields of its records, or of the data files in them."""
    reader = fastavro.reader(io.BytesIO(path.read_bytes()))
    metadata, rows = dict(reader.metadata), list(reader)
    schema = json.loads(metadata.pop("avro.schema"))
    metadata.pop("avro.codec", None)
    waiting = [schema]
    while waiting:
        record = waiting.pop()
        record["fields"] = [each for each in record["fields"] if each["name"] not in names]
        kinds = [each["type"] for each in record["fields"]]
        waiting += [each for each in kinds if isinstance(each, dict) and each["type"] == "record"]
    write_avro(path, schema, rows, metadata)


def test_manifests_without_sizes_lengths_and_counts_are_read(tmp_path: Path) -> None:
    table, _ = write_file(tmp_path)
    table.commit(table.data_file("2.parquet", make_numbers(4, 5)))
    for path in (tmp_path / "metadata").glob("*.avro"):
        drop_fields(path, "file_size_in_bytes", "record_count", "manifest_length")
    assert find_ids(tmp_path) == [1, 2, 3, 4, 5]
    assert find_ids(tmp_path, "id > 3") == [4, 5]
    assert (count_rows(tmp_path), count_rows(tmp_path, "id > 3")) == (5, 2)
    assert tamis.connect().register("t", tamis.open(tmp_path)).sql(
        "SELECT max(id) m FROM t"
    ).to_arrow().to_pylist() == [{"m": 5}]
