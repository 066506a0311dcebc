"""Deletes and data files of one partition whose manifests encode it differently."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tamis
from builders.iceberg import manifests as iceberg_manifests
from builders.iceberg import tables as iceberg_tables
from builders.iceberg.deletes import equality_deletes, position_deletes
from builders.iceberg.tables import File, IcebergFolder
from builders.iceberg.values import encode_unscaled, field
from tamis.formats.source import LEVELS

ID = field(1, "id", "long")
KINDS = ("positions", "values")


def find_ids(folder: Path) -> list[int]:
    return sorted(tamis.open(folder).scan().to_arrow()["id"].to_pylist())


def write_partitioned(folder: Path, kind: str, data_type: pa.DataType, value: Any) -> tuple[IcebergFolder, File]:
    """Write a table partitioned by `p`, with a file of the ids 1, 2 and 3."""
    table = IcebergFolder(folder, [ID, field(2, "p", kind)], specs=[[(2, "identity", "p")]])
    file = table.data_file("1.parquet", pa.table({"id": [1, 2, 3], "p": pa.array([value] * 3, data_type)}))
    table.commit(file)
    return table, file


def delete_first(table: IcebergFolder, file: File, how: str, partition: tuple[Any, ...], **options: Any) -> File:
    if how == "positions":
        # The bounds exclude no row, so the partition decides.
        return position_deletes(table, "p.parquet", [(file.path, 0)], partition=partition, metrics={}, **options)
    return equality_deletes(table, "e.parquet", pa.table({"id": [1]}), fields=[ID], partition=partition, **options)


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize(
    ("before", "after", "data_type", "value"),
    [
        ("int", "long", pa.int32(), 5),
        ("float", "double", pa.float32(), 1.5),
        ("float", "double", pa.float32(), float("nan")),
        ("decimal(5, 2)", "decimal(19, 2)", pa.decimal128(5, 2), Decimal("-1.25")),
    ],
    ids=str,
)
def test_I6_deletes_apply_to_files_from_before_a_type_promotion(
    tmp_path: Path, how: str, before: str, after: str, data_type: pa.DataType, value: Any
) -> None:
    table, file = write_partitioned(tmp_path, before, data_type, value)
    table.evolve([ID, field(2, "p", after)])
    table.commit(delete_first(table, file, how, (value,)))
    assert find_ids(tmp_path) == [2, 3]


@pytest.mark.parametrize("how", KINDS)
def test_I6_a_decimal_partition_value_is_the_same_as_fixed_and_as_bytes(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, file = write_partitioned(tmp_path, "decimal(9, 2)", pa.decimal128(9, 2), Decimal("1.25"))
    as_bytes = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    monkeypatch.setattr(iceberg_manifests, "to_partition_type", lambda kind, name, **_: as_bytes)
    monkeypatch.setattr(iceberg_tables, "encode_partition_value", lambda kind, value: encode_unscaled(value))
    table.commit(delete_first(table, file, how, (Decimal("1.25"),)))
    assert find_ids(tmp_path) == [2, 3]


@pytest.mark.parametrize("how", KINDS)
def test_I6_deletes_of_another_partition_do_not_apply(tmp_path: Path, how: str) -> None:
    table, file = write_partitioned(tmp_path, "decimal(5, 2)", pa.decimal128(5, 2), Decimal("1.25"))
    table.evolve([ID, field(2, "p", "decimal(19, 2)")])
    table.commit(delete_first(table, file, how, (Decimal("1.26"),)))
    assert find_ids(tmp_path) == [1, 2, 3]


def test_I6_position_deletes_with_a_referenced_file_apply_in_any_partition_encoding(tmp_path: Path) -> None:
    table, file = write_partitioned(tmp_path, "double", pa.float64(), 0.0)
    table.commit(position_deletes(table, "p.parquet", [(file.path, 0)], partition=(-0.0,), referenced=file.path))
    assert find_ids(tmp_path) == [2, 3]


@pytest.mark.parametrize("how", [*KINDS, "named"])
def test_I6_deletes_with_a_dropped_partition_column_apply_to_older_files(tmp_path: Path, how: str) -> None:
    table, file = write_partitioned(tmp_path, "string", pa.string(), "a")
    table.evolve([ID])
    table.forgets_types = True
    if how == "named":
        deletes = position_deletes(table, "p.parquet", [(file.path, 0)], partition=(None,), referenced=file.path)
    else:
        deletes = delete_first(table, file, how, (None,))
    table.commit(deletes)
    assert find_ids(tmp_path) == [2, 3]


def test_I6_partitions_of_a_dropped_column_differ_where_both_values_are_known(tmp_path: Path) -> None:
    table, file = write_partitioned(tmp_path, "string", pa.string(), "a")
    table.commit(delete_first(table, file, "values", ("b",)))
    table.evolve([ID])
    assert find_ids(tmp_path) == [1, 2, 3]
    table.commit(equality_deletes(table, "more.parquet", pa.table({"id": [2]}), partition=("a",)))
    assert find_ids(tmp_path) == [1, 3]


# --- Columns that files lack, compared by values ----------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["parquet", "avro"])
def test_I6_a_missing_column_is_compared_by_its_partition_value_even_if_dropped(tmp_path: Path, ending: str) -> None:
    table = IcebergFolder(tmp_path, [ID, field(2, "p", "int")], specs=[[(2, "identity", "p")], []])
    for number, value in enumerate([5, 6, None]):
        rows = pa.table({"id": [number]})
        table.commit(table.data_file(f"{number}.{ending}", rows, fields=[ID], spec=0, partition=(value,), metrics={}))
    table.commit(equality_deletes(table, "e.parquet", pa.table({"p": pa.array([5, None], pa.int32())}), spec=1))
    assert find_ids(tmp_path) == [1]
    table.evolve([ID, field(2, "q", "long")])
    assert find_ids(tmp_path) == [1]
    table.evolve([ID])
    assert find_ids(tmp_path) == [1]


def test_I6_a_missing_struct_field_is_compared_by_its_partition_value(tmp_path: Path) -> None:
    inner = [field(3, "a", "int"), field(4, "b", "int")]
    table = IcebergFolder(tmp_path, [ID, field(2, "s", inner)], specs=[[(4, "identity", "p")], []])
    stored = pa.struct([("a", pa.int32())])
    for number, value in enumerate([5, 6]):
        rows = pa.table({"id": [number], "s": pa.array([{"a": 1}], stored)})
        fields = [ID, field(2, "s", inner[:1])]
        table.commit(table.data_file(f"{number}.parquet", rows, fields=fields, spec=0, partition=(value,), metrics={}))
    deleted = pa.table({"s": pa.array([{"b": 5}], pa.struct([("b", pa.int32())]))})
    table.commit(equality_deletes(table, "e.parquet", deleted, ids=[4], fields=[field(2, "s", inner[1:])], spec=1))
    assert find_ids(tmp_path) == [1]
    table.evolve([ID, field(2, "s", inner[:1])])
    assert find_ids(tmp_path) == [1]


def test_I6_fields_of_null_structs_are_compared_without_null_counts(tmp_path: Path) -> None:
    def encode_int(value: int) -> bytes:
        return value.to_bytes(4, "little")

    table = IcebergFolder(tmp_path, [ID, field(2, "s", [field(3, "x", "int")])])
    stored = pa.struct([("x", pa.int32())])
    rows = pa.table({"id": [1, 2, 3], "s": pa.array([{"x": 100}, None, {"x": 101}], stored)})
    bounds = {"lower_bounds": {3: encode_int(100)}, "upper_bounds": {3: encode_int(101)}}
    metrics = {"value_counts": {1: 3, 3: 2}, "null_value_counts": {1: 0, 3: 0}, **bounds}
    table.commit(table.data_file("1.parquet", rows, metrics=metrics))
    metrics = {"value_counts": {3: 2}, "null_value_counts": {3: 1}} | {name: {3: encode_int(5)} for name in bounds}
    deleted = pa.table({"s": pa.array([{"x": None}, {"x": 5}], stored)})
    table.commit(equality_deletes(table, "e.parquet", deleted, ids=[3], metrics=metrics))
    assert find_ids(tmp_path) == [1, 3]


@pytest.fixture
def of_two_specs(tmp_path: Path) -> tuple[IcebergFolder, File, File]:
    """A file partitioned by `p`, and a newer one by `q`, the current partition column."""
    fields = [ID, field(2, "p", "int"), field(3, "q", "int")]
    table = IcebergFolder(tmp_path, fields, specs=[[(2, "identity", "p")], [(3, "identity", "q")]])
    one, other = (table.data_file(f"{spec}.parquet", make_rows(first), spec=spec) for spec, first in ((0, 1), (1, 3)))
    table.commit(one, other)
    return table, one, other


def make_rows(first: int) -> pa.Table:
    values = pa.array([3, 3], pa.int32())
    return pa.table({"id": [first, first + 1], "p": values, "q": values})


@pytest.mark.parametrize("named", ["by path", "by bounds"])
@pytest.mark.parametrize("where", [None, "q = 3", "p = 3", "q = 3 AND id = 1", "p = 3 AND q = 3"])
@pytest.mark.one_in(3)
def test_O1_I1_I6_position_deletes_with_a_referenced_file_of_another_spec_apply_after_pruning(
    of_two_specs: tuple[IcebergFolder, File, File], named: str, where: str | None
) -> None:
    table, one, _ = of_two_specs
    referenced = one.path if named == "by path" else None
    # The filter rules out this partition, which does not concern a file under another spec.
    deletes = position_deletes(table, "d.parquet", [(one.path, 0)], spec=1, partition=(9,), referenced=referenced)
    table.commit(deletes)
    opened = tamis.open(table.folder)
    expected = [] if where == "q = 3 AND id = 1" else [2, 3, 4]
    for levels in (LEVELS, ("manifests",), ()):
        scan = opened.scan(where, levels=levels)
        assert sorted(scan.to_arrow()["id"].to_pylist()) == expected
        assert opened.scan(where, levels=levels).count() == len(expected)


def test_I6_position_deletes_of_several_files_apply_to_their_spec_and_partition(
    of_two_specs: tuple[IcebergFolder, File, File],
) -> None:
    table, one, other = of_two_specs
    table.commit(position_deletes(table, "d.parquet", [(one.path, 0), (other.path, 0)], spec=1, partition=(3,)))
    assert find_ids(table.folder) == [1, 2, 4]


def test_I6_delete_manifests_of_other_partitions_are_pruned_if_all_files_have_their_spec(tmp_path: Path) -> None:
    table, file = write_partitioned(tmp_path, "int", pa.int32(), 5)
    table.commit(delete_first(table, file, "positions", (5,)))
    other = position_deletes(table, "o.parquet", [(file.path, 1)], partition=(6,), metrics={})
    table.commit(other)
    (tmp_path / "metadata" / Path(table.snapshots[-1].manifests[-1].listed["manifest_path"]).name).unlink()
    assert tamis.open(tmp_path).scan("p = 5").to_arrow()["id"].to_pylist() == [2, 3]
