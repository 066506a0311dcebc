"""Unsupported features of Iceberg tables: an error that names the feature, and only if it is needed."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tamis
from builders.iceberg.edits import add_column, edit_metadata
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field, list_of, to_arrow_type
from tamis.errors import CorruptFile, UnsupportedFeature

KINDS = [
    "variant",
    "geometry",
    "geometry(srid:4326)",
    "geography",
    "geography('OGC:CRS84', 'spherical')",
    "fixed[2000000000]",
]


def write_folder(folder: Path, **options: Any) -> IcebergFolder:
    table = IcebergFolder(folder, [field(1, "id", "long")], version=3, **options)
    table.commit(table.data_file("1.parquet", pa.table({"id": [1, 2]})))
    return table


# --- Types ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_of_an_unsupported_type_is_rejected_only_if_needed(tmp_path: Path, kind: str) -> None:
    write_folder(tmp_path)
    add_column(tmp_path, 2, "g", kind)
    opened = tamis.open(tmp_path)
    assert opened.schema.names == ["id", "g"]
    assert opened.scan(columns=["id"]).to_arrow()["id"].to_pylist() == [1, 2]
    assert opened.scan("id > 1", columns=["id"]).to_arrow()["id"].to_pylist() == [2]
    assert opened.scan("id > 1").count() == 1
    for scan in (opened.scan(), opened.scan("id = 1")):
        with pytest.raises(
            UnsupportedFeature, match=r"column 'g' has the unsupported type .*: select the other columns with columns=…"
        ):
            scan.to_arrow()
        with pytest.raises(UnsupportedFeature, match="column 'g' has the unsupported type"):
            scan.to_spark(None)
    for where in ("g IS NULL AND id > 0", "g = X'00' OR id = 1", "g < 'x'"):
        with pytest.raises(UnsupportedFeature, match="column 'g' has the unsupported type"):
            opened.scan(where, columns=["id"])


@pytest.mark.parametrize(
    "kind", [[field(3, "a", "int"), field(4, "v", "variant")], list_of(3, "variant")], ids=["struct", "list"]
)
def test_an_unsupported_type_inside_nested_types(tmp_path: Path, kind: Any) -> None:
    write_folder(tmp_path)
    add_column(tmp_path, 2, "g", field(0, "", kind)["type"])
    opened = tamis.open(tmp_path)
    assert opened.scan(columns=["id"]).to_arrow().num_rows == 2
    with pytest.raises(UnsupportedFeature, match=r"column 'g\.(v|element)' has the unsupported type 'variant'"):
        opened.scan().to_arrow()
    if isinstance(kind, list):
        assert opened.scan(columns=["id", "g.a"]).to_arrow().num_rows == 2


@pytest.mark.parametrize("ending", ["parquet", "orc", "avro"])
def test_files_with_a_column_of_an_unsupported_type(tmp_path: Path, ending: str) -> None:
    table = IcebergFolder(tmp_path, [field(1, "id", "long"), field(2, "g", "binary")], version=3)
    table.commit(table.data_file(f"1.{ending}", pa.table({"id": [1, 2], "g": [b"\x01", None]})))
    edit_metadata(tmp_path, lambda metadata: metadata["schemas"][0]["fields"][1].update({"type": "geometry"}))
    opened = tamis.open(tmp_path)
    assert opened.scan("id = 2", columns=["id"]).to_arrow()["id"].to_pylist() == [2]
    with pytest.raises(UnsupportedFeature, match="column 'g' has the unsupported type 'geometry'"):
        opened.scan().to_arrow()


def test_variants_in_files_do_not_prevent_reading_other_columns(tmp_path: Path) -> None:
    parts = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
    inner = pa.array([{"metadata": b"\x01", "value": b"\x00"}, None], parts)
    table = IcebergFolder(tmp_path, [field(1, "id", "long"), field(2, "v", "binary")], version=3)
    rows = pa.table({"id": [1, 2]}).append_column(pa.field("v", parts), inner)
    # The parts of a variant have no ids.
    schema = pa.schema(
        [each.with_metadata({"PARQUET:field_id": str(number + 1)}) for number, each in enumerate(rows.schema)]
    )
    table.commit(table.data_file("1.parquet", rows.cast(schema), with_ids=False, metrics={}))
    edit_metadata(tmp_path, lambda metadata: metadata["schemas"][0]["fields"][1].update({"type": "variant"}))
    opened = tamis.open(tmp_path)
    assert opened.scan("id = 2", columns=["id"]).to_arrow()["id"].to_pylist() == [2]
    with pytest.raises(UnsupportedFeature, match="column 'v' has the unsupported type 'variant'"):
        opened.scan().to_arrow()


def test_an_unsupported_type_in_an_old_schema_is_ignored(tmp_path: Path) -> None:
    write_folder(tmp_path)
    old = {"type": "struct", "schema-id": 7, "fields": [field(1, "id", "long"), field(2, "v", "variant")]}
    edit_metadata(tmp_path, lambda metadata: metadata["schemas"].append(old))
    assert tamis.open(tmp_path).scan().to_arrow()["id"].to_pylist() == [1, 2]


@pytest.mark.parametrize("kind", ["nonsense", {"type": "vector", "of": "float"}])
def test_an_invalid_type_is_an_error_that_names_the_column(tmp_path: Path, kind: Any) -> None:
    write_folder(tmp_path)
    add_column(tmp_path, 2, "g", kind)
    with pytest.raises(
        UnsupportedFeature, match=r"column 'g' of the table has the (type 'nonsense'|unsupported type 'vector')"
    ):
        tamis.open(tmp_path).scan()


def test_X1_absent_fixed_values_do_not_allocate_much_memory(tmp_path: Path) -> None:
    table = write_folder(tmp_path)
    table.evolve([field(1, "id", "long"), field(2, "g", "fixed[1048576]")])
    table.commit(table.data_file("2.parquet", pa.table({"id": range(5_000)}), metrics={}))
    opened = tamis.open(tmp_path)
    assert opened.scan("id = 1", columns=["id"]).to_arrow().num_rows == 2
    with pytest.raises(UnsupportedFeature, match=r"column 'g' of '.*2\.parquet' .* 4\.9 GiB"):
        opened.scan().to_arrow()


def put_junk(metadata: Any, path: tuple[Any, ...], junk: Any) -> None:
    for part in path[:-1]:
        metadata = metadata[part]
    metadata[path[-1]] = junk


def make_deep_type(levels: int) -> Any:
    kind: Any = "int"
    for number in range(levels):
        kind = {"type": "struct", "fields": [field(100 + number, "a", kind)]}
    return kind


FIELDS = ("schemas", 0, "fields")


@pytest.mark.parametrize(
    ("path", "junk"),
    [
        (("schemas",), 5),
        (("schemas",), [5]),
        (("schemas", 0, "schema-id"), []),
        (("schemas", 0, "schema-id"), "x"),
        (FIELDS, None),
        (FIELDS, [5]),
        ((*FIELDS, 0, "id"), True),
        ((*FIELDS, 0, "id"), "1"),
        ((*FIELDS, 0, "name"), 5),
        ((*FIELDS, 0, "type"), make_deep_type(150)),
        ((*FIELDS, 0, "type"), {"type": "struct"}),
        ((*FIELDS, 0, "type"), True),
        ((*FIELDS, 0, "type"), {"type": "list", "element": 5}),
        (("snapshots",), 5),
        (("snapshots",), [5]),
        (("snapshots", 0, "sequence-number"), 10**30),
        (("snapshots", 0, "snapshot-id"), [1]),
        (("partition-specs",), 5),
        (("partition-specs", 0, "fields"), [5]),
    ],
    ids=str,
)
def test_X8_metadata_with_invalid_values_is_an_error(tmp_path: Path, path: tuple[Any, ...], junk: Any) -> None:
    write_folder(tmp_path)
    edit_metadata(tmp_path, lambda metadata: put_junk(metadata, path, junk))
    with pytest.raises(CorruptFile):
        tamis.open(tmp_path)


def test_X2_nested_structs_are_read(tmp_path: Path) -> None:
    write_folder(tmp_path)
    add_column(tmp_path, 2, "g", make_deep_type(80))
    assert tamis.open(tmp_path).scan("g IS NULL").to_arrow()["id"].to_pylist() == [1, 2]


def test_statistics_files_of_any_shape_are_ignored(tmp_path: Path) -> None:
    write_folder(tmp_path)
    edit_metadata(tmp_path, lambda metadata: metadata.update({"statistics": [{"a": 1}], "partition-statistics": 5}))
    assert tamis.open(tmp_path).scan().count() == 2


# --- Transforms -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        {"source-ids": [1, 1], "transform": "zorder"},
        {"source-ids": [1, 1], "transform": "bucket[16]"},
        {"source-id": 1, "source-ids": [1, 1], "transform": "bucket[16]"},
        {"source-ids": [1], "transform": "identity"},
        {"source-id": 1, "transform": "bucketv2[16]"},
        {"source-id": 1, "transform": "truncated"},
    ],
)
def test_I2_unknown_partition_fields_keep_all_files(tmp_path: Path, spec: dict[str, Any]) -> None:
    table = IcebergFolder(tmp_path, [field(1, "id", "long")], specs=[[(1, "identity", "p")]], version=3)
    table.commit(table.data_file("1.parquet", pa.table({"id": [1]})))
    one = {"field-id": 1000, "name": "p", **spec}
    edit_metadata(tmp_path, lambda metadata: metadata["partition-specs"][0].update({"fields": [one]}))
    assert tamis.open(tmp_path).scan("id = 1").to_arrow()["id"].to_pylist() == [1]
    assert tamis.open(tmp_path).scan("id = 2", levels=["partitions", "manifests"]).to_arrow().num_rows == 0


def test_sort_orders_are_ignored(tmp_path: Path) -> None:
    write_folder(tmp_path)
    order = {"order-id": 3, "fields": [{"source-ids": [1, 2], "transform": "hilbert", "direction": "up"}]}
    edit_metadata(tmp_path, lambda metadata: metadata.update({"sort-orders": [order], "default-sort-order-id": 3}))
    assert tamis.open(tmp_path).scan().count() == 2


# --- Encryption -------------------------------------------------------------------------------------------------------


def test_encrypted_data_files_are_rejected(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, [field(1, "id", "long")], version=3)
    plain = table.data_file("0.parquet", pa.table({"id": [0]}))
    table.commit(plain, table.data_file("1.parquet", pa.table({"id": [1]})).with_metrics(key_metadata=b"key"))
    with pytest.raises(UnsupportedFeature, match=r"1\.parquet', listed in '.*avro', is encrypted"):
        tamis.open(tmp_path).scan().to_arrow()
    table.commit(removed=[table.path_of("1.parquet")], operation="delete")
    assert tamis.open(tmp_path).scan().to_arrow()["id"].to_pylist() == [0]


def test_encrypted_manifests_are_rejected(tmp_path: Path) -> None:
    table = write_folder(tmp_path)
    table.snapshots[0].manifests[0].listed["key_metadata"] = b"key"
    table.commit(table.data_file("2.parquet", pa.table({"id": [3]})))
    with pytest.raises(UnsupportedFeature, match=r"m1\.avro', listed in '.*snap-.*', is encrypted"):
        tamis.open(tmp_path).scan().to_arrow()


def test_encrypted_manifest_lists_are_rejected(tmp_path: Path) -> None:
    table = write_folder(tmp_path)
    path = next((tmp_path / "metadata").glob("snap-*.avro"))
    path.write_bytes(os.urandom(1000))
    with pytest.raises(CorruptFile, match="is not an Avro file"):
        tamis.open(tmp_path).scan().count()
    edit_metadata(tmp_path, lambda metadata: metadata["snapshots"][0].update({"key-id": "k1"}))
    with pytest.raises(UnsupportedFeature, match=r"snap-.*, the manifest list of a snapshot, is encrypted"):
        tamis.open(tmp_path).scan().count()
    assert table.snapshots


# --- Formats ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz"])
def test_T5_orc_timestamps_beyond_nanoseconds_are_rejected_with_their_column(tmp_path: Path, kind: str) -> None:
    table = IcebergFolder(tmp_path, [field(1, "id", "long"), field(2, "near", kind), field(3, "far", kind)])
    near, far = datetime.datetime(2024, 1, 1), datetime.datetime(9999, 12, 31)
    columns = {
        name: pa.array([value], pa.timestamp("us")).cast(to_arrow_type(kind))
        for name, value in {"near": near, "far": far}.items()
    }
    table.commit(table.data_file("1.orc", pa.table({"id": [1], **columns}), metrics={}))
    opened = tamis.open(tmp_path)
    assert opened.scan(columns=["id", "near"]).to_arrow()["near"].combine_chunks().equals(columns["near"])
    with pytest.raises(UnsupportedFeature, match=r"column 'far' of '.*1\.orc' has timestamps outside 1677 to 2262"):
        opened.scan().to_arrow()
