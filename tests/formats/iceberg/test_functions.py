"""The plain functions: the metadata of files, partition filters, and export to other runtimes."""

from __future__ import annotations

import ctypes
import json
import pickle
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest

import tamis
from builders.iceberg.deletes import deletion_vectors, equality_deletes, position_deletes
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field
from tamis import PartitionFilter, iceberg
from tamis.errors import AmbiguousColumn, CorruptFile, InvalidArgument, MissingFile, TableNotFound, UnknownColumn
from tamis.formats.iceberg.functions import FILE_SCHEMA


@pytest.fixture
def table(tmp_path: Path) -> IcebergFolder:
    fields = [field(1, "id", "long"), field(2, "ts", "timestamp"), field(3, "city", "string")]
    made = IcebergFolder(tmp_path, fields, specs=[[(2, "day", "day"), (3, "identity", "city")]], version=3)
    for number, city in enumerate(("Bern", "Aarau", None)):
        rows = pa.table(
            {"id": [number], "ts": [datetime(2024, 3, 1 + number, 5)], "city": pa.array([city], pa.string())}
        )
        made.commit(made.data_file(f"{number}.parquet", rows))
    return made


def list_names(batch: pa.RecordBatch) -> list[str]:
    return sorted(Path(path).name for path in batch["path"].to_pylist())


def test_the_files_of_a_snapshot_and_their_metadata(table: IcebergFolder) -> None:
    found = iceberg.list_files(table.folder)
    assert found.schema == FILE_SCHEMA
    rows = {Path(row["path"]).name: row for row in found.to_pylist()}
    assert rows["1.parquet"] == {
        "path": table.path_of("1.parquet"),
        "file_format": "parquet",
        "record_count": 1,
        "file_size_bytes": Path(table.path_of("1.parquet")).stat().st_size,
        "partition_values": '{"day": "2024-03-02", "city": "Aarau"}',
        "content_type": "data",
        "snapshot_id": table.snapshots[1].number,
    }
    assert json.loads(rows["2.parquet"]["partition_values"]) == {"day": "2024-03-03", "city": None}


def test_deletes_are_files_too(table: IcebergFolder) -> None:
    first = table.snapshots[0].files[0][0]
    gone = pa.table({"id": [1]})
    table.commit(
        position_deletes(table, "p.parquet", [(first.path, 0)], spec=0, partition=first.partition),
        equality_deletes(table, "e.parquet", gone, spec=0, partition=first.partition),
    )
    table.commit(*deletion_vectors(table, "v.puffin", {first.path: [0]}, {first.path: first}))
    found = iceberg.list_files(table.folder)
    kinds = {Path(row["path"]).name: (row["content_type"], row["file_format"]) for row in found.to_pylist()}
    assert kinds == {
        "0.parquet": ("data", "parquet"),
        "1.parquet": ("data", "parquet"),
        "2.parquet": ("data", "parquet"),
        "p.parquet": ("position_deletes", "parquet"),
        "e.parquet": ("equality_deletes", "parquet"),
        "v.puffin": ("position_deletes", "puffin"),
    }
    assert found["content_type"].to_pylist()[:3] == ["data"] * 3


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        (PartitionFilter.eq("city", "Bern"), ["0.parquet"]),
        (PartitionFilter.gte("day", "2024-03-02"), ["1.parquet", "2.parquet"]),
        (PartitionFilter.is_null("city"), ["2.parquet"]),
        (PartitionFilter.eq("city", "nowhere"), []),
    ],
)
def test_a_filter_keeps_files_of_some_partitions(table: IcebergFolder, where: PartitionFilter, kept: list[str]) -> None:
    assert list_names(iceberg.list_files(table.folder, filter=where)) == kept
    info = iceberg.snapshot_info(table.folder)
    each = [iceberg.read_manifest_file(table.folder, path, where) for path in info.manifests]
    assert sorted(name for batch in each for name in list_names(batch)) == kept


@pytest.mark.parametrize("name", ["nope", "id", "ts"])
def test_D24_a_filter_on_an_unknown_partition_field_is_an_error(table: IcebergFolder, name: str) -> None:
    wanted = PartitionFilter.eq(name, "1")
    manifest = iceberg.snapshot_info(table.folder).manifests[0]
    for ask in (
        lambda: iceberg.list_files(table.folder, filter=wanted),
        lambda: iceberg.read_manifest_file(table.folder, manifest, wanted),
        lambda: tamis.open(table.folder).scan(wanted).plan("files"),
    ):
        with pytest.raises(UnknownColumn, match=f"no partition column '{name}'.*Partition columns: day, city"):
            ask()


def test_D24_a_filter_finds_files_after_the_column_or_its_partition_field_was_renamed(tmp_path: Path) -> None:
    fields = [field(1, "id", "long"), field(2, "town", "string")]
    specs = [[(2, "identity", "city")], [(2, "identity", "place")]]
    made = IcebergFolder(tmp_path, fields, specs=specs)
    for number, spec in enumerate((0, 1)):
        rows = pa.table({"id": [number], "town": ["Bern"]})
        made.commit(made.data_file(f"{number}.parquet", rows, spec=spec))
        made.commit(made.data_file(f"{number}-other.parquet", pa.table({"id": [9], "town": ["Aarau"]}), spec=spec))
    manifests = iceberg.snapshot_info(made.folder).manifests
    for name in ("town", "Town"):
        wanted = PartitionFilter.eq(name, "Bern")
        assert list_names(iceberg.list_files(made.folder, filter=wanted)) == ["0.parquet", "1.parquet"]
        found = [list_names(iceberg.read_manifest_file(made.folder, each, wanted)) for each in manifests]
        assert sorted(each for some in found for each in some) == ["0.parquet", "1.parquet"]
        assert sorted(tamis.open(made.folder).scan(wanted).to_arrow()["id"].to_pylist()) == [0, 1]
    # The name of a partition field applies to the files that were written under its spec.
    assert list_names(iceberg.list_files(made.folder, filter=PartitionFilter.eq("city", "Bern"))) == ["0.parquet"]


def test_D24_a_name_of_a_partition_field_and_of_another_column_is_ambiguous(tmp_path: Path) -> None:
    fields = [field(1, "city", "string"), field(2, "town", "string")]
    made = IcebergFolder(tmp_path, fields, specs=[[(2, "identity", "city"), (1, "identity", "city_2")]])
    made.commit(made.data_file("0.parquet", pa.table({"city": ["Bern"], "town": ["Aarau"]})))
    with pytest.raises(AmbiguousColumn, match="'city' is ambiguous"):
        iceberg.list_files(made.folder, filter=PartitionFilter.eq("city", "Bern"))
    assert iceberg.list_files(made.folder, filter=PartitionFilter.eq("town", "Aarau")).num_rows == 1


def test_manifests_together_are_the_snapshot(table: IcebergFolder) -> None:
    info = iceberg.snapshot_info(table.folder)
    assert info.snapshot_id == table.snapshots[-1].number
    assert info.schema == tamis.open(table.folder).schema
    assert info.manifest_sizes == tuple(Path(path).stat().st_size for path in info.manifests)
    each = pa.concat_batches([iceberg.read_manifest_file(table.folder, path) for path in info.manifests])
    whole = iceberg.list_files(table.folder)
    assert sorted(map(str, each.to_pylist())) == sorted(map(str, whole.to_pylist()))


def test_the_manifests_of_an_older_snapshot(table: IcebergFolder) -> None:
    newest, older = iceberg.snapshot_info(table.folder), table.snapshots[1].number
    info = iceberg.snapshot_info(table.folder, snapshot_id=older)
    assert (info.snapshot_id, len(info.manifests)) == (older, len(newest.manifests) - 1)
    each = pa.concat_batches([iceberg.read_manifest_file(table.folder, path) for path in info.manifests])
    assert list_names(each) == ["0.parquet", "1.parquet"]


def test_the_info_of_a_snapshot_can_be_sent(table: IcebergFolder) -> None:
    info = iceberg.snapshot_info(table.folder)
    assert pickle.loads(pickle.dumps(info)) == info


def test_removed_files_are_not_listed(table: IcebergFolder) -> None:
    table.commit(removed=[table.path_of("1.parquet")], operation="delete")
    assert list_names(iceberg.list_files(table.folder)) == ["0.parquet", "2.parquet"]
    assert list_names(iceberg.list_files(table.folder, snapshot_id=table.snapshots[1].number)) == [
        "0.parquet",
        "1.parquet",
    ]
    assert list_names(iceberg.list_files(table.folder, ref="main")) == ["0.parquet", "2.parquet"]


def test_I10_paths_of_a_moved_table_are_its_new_locations(tmp_path: Path) -> None:
    made = IcebergFolder(tmp_path, [field(1, "id", "long")], location="s3://bucket/t")
    made.commit(made.data_file("0.parquet", pa.table({"id": [1]})))
    assert iceberg.list_files(tmp_path)["path"].to_pylist() == [str(tmp_path / "data/0.parquet")]
    named = made.snapshots[0].manifests[0].listed["manifest_path"]
    assert named.startswith("s3://bucket/t/metadata/")
    assert list_names(iceberg.read_manifest_file(tmp_path, named)) == ["0.parquet"]


def test_a_manifest_of_an_older_snapshot_describes_itself(table: IcebergFolder) -> None:
    older = table.snapshots[0].manifests[0].listed["manifest_path"]
    table.commit(removed=[table.path_of("0.parquet")], operation="delete")
    found = iceberg.read_manifest_file(table.folder, older)
    assert list_names(found) == ["0.parquet"]


def test_an_invalid_manifest_path_is_an_error(table: IcebergFolder) -> None:
    with pytest.raises(InvalidArgument, match="manifest must be a path"):
        iceberg.read_manifest_file(table.folder, "")
    with pytest.raises(MissingFile, match=r"other.avro"):
        iceberg.read_manifest_file(table.folder, f"{table.folder}/metadata/other.avro")
    with pytest.raises(TableNotFound):
        iceberg.list_files(table.folder / "data")
    with pytest.raises(InvalidArgument):
        iceberg.list_files(table.folder, filter="city = 'Bern'")  # type: ignore[arg-type]


def test_X6_a_manifest_with_an_invalid_spec_id_is_an_error(tmp_path: Path) -> None:
    made = IcebergFolder(tmp_path, [field(1, "id", "long")], version=1)
    made.manifests_in_metadata = True
    made.commit(made.data_file("0.parquet", pa.table({"id": [0]})))
    (manifest,) = (tmp_path / "metadata").glob("*-m*.avro")
    name = b"partition-spec-id"
    before, after = manifest.read_bytes().split(name)
    assert after[1:2] == b"0"
    manifest.write_bytes(before + name + after[:1] + b"x" + after[2:])
    message = r"m1\.avro' has the partition-spec-id 'x', expected a number"
    with pytest.raises(CorruptFile, match=message):
        tamis.open(tmp_path).scan().to_arrow()
    with pytest.raises(CorruptFile, match=message):
        iceberg.read_manifest_file(tmp_path, str(manifest))
    # A manifest that the table does not list is read for its own metadata.
    made.snapshots, made.refs, made.log = [], {}, []
    made.save()
    with pytest.raises(CorruptFile, match=message):
        iceberg.read_manifest_file(tmp_path, str(manifest))


def test_an_empty_table_has_no_files(tmp_path: Path) -> None:
    IcebergFolder(tmp_path, [field(1, "id", "long")])
    assert iceberg.list_files(tmp_path).num_rows == 0
    assert iceberg.snapshot_info(tmp_path).manifests == ()


def test_batches_are_exported_through_the_c_data_interface(table: IcebergFolder) -> None:
    found = iceberg.list_files(table.folder)
    array, schema = ctypes.create_string_buffer(80), ctypes.create_string_buffer(72)
    iceberg.export_batch(found, ctypes.addressof(array), ctypes.addressof(schema))
    imported = pa.RecordBatch._import_from_c(ctypes.addressof(array), ctypes.addressof(schema))
    assert imported.equals(found)
    assert pa.record_batch(found).equals(found)


def test_the_columns_of_a_manifest_are_exported_one_by_one(table: IcebergFolder) -> None:
    for manifest in iceberg.snapshot_info(table.folder).manifests:
        expected = iceberg.read_manifest_file(table.folder, manifest)
        arrays, schemas = ([ctypes.create_string_buffer(size) for _ in range(7)] for size in (80, 72))
        addresses = [[ctypes.addressof(each) for each in structs] for structs in (arrays, schemas)]
        rows = iceberg.read_manifest_file_arrow_ffi(table.folder, manifest, None, *addresses)
        assert rows == expected.num_rows > 0
        fields = [pa.Field._import_from_c(address) for address in addresses[1]]
        columns = [pa.Array._import_from_c(each, field.type) for each, field in zip(addresses[0], fields, strict=True)]
        assert pa.record_batch(columns, schema=pa.schema(fields)).equals(expected)


def test_a_manifest_has_seven_columns_to_export(table: IcebergFolder) -> None:
    with pytest.raises(InvalidArgument, match="for each of the 7 columns"):
        iceberg.read_manifest_file_arrow_ffi(table.folder, "nothing", None, [8] * 6, [16] * 7)
