"""Opening Iceberg tables: the newest metadata, the locations of moved files, and the selected snapshot."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.iceberg.edits import edit_manifest_list, edit_metadata
from builders.iceberg.tables import FIRST_TIMESTAMP, IcebergFolder
from builders.iceberg.values import field
from builders.servers.iceberg_rest import RestServer
from tamis.errors import (
    CorruptFile,
    InvalidArgument,
    MissingDependency,
    MissingFile,
    TableNotFound,
    UnsupportedFeature,
    VersionNotFound,
)
from tamis.formats import errors as format_errors
from tamis.formats.iceberg.metadata.open_metadata import is_metadata_file, open_location
from tamis.formats.iceberg.metadata.relocation import Relocation
from tamis.io.location import Location
from tamis.io.storage import open_storage


def find_ids(table: tamis.Table) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def write_folder(tmp_path: Path, commits: int = 2, **options: Any) -> IcebergFolder:
    table = IcebergFolder(tmp_path, [field(1, "id", "long")], **options)
    for number in range(commits):
        table.commit(table.data_file(f"{number}.parquet", pa.table({"id": [number]})))
    return table


# --- The newest metadata ----------------------------------------------------------------------------------------------


def test_the_hint_names_the_newest_metadata(tmp_path: Path) -> None:
    write_folder(tmp_path)
    assert find_ids(tamis.open(tmp_path)) == [0, 1]


def test_an_outdated_hint_leads_to_later_versions(tmp_path: Path) -> None:
    write_folder(tmp_path)
    (tmp_path / "metadata/version-hint.text").write_text("1\n")
    assert find_ids(tamis.open(tmp_path)) == [0, 1]


@pytest.mark.parametrize("hint", ["99", "nonsense", "", "../../v1", "9" * 5_000])
def test_a_hint_to_a_missing_file_is_ignored(tmp_path: Path, hint: str) -> None:
    write_folder(tmp_path)
    (tmp_path / "metadata/version-hint.text").write_text(hint)
    assert find_ids(tamis.open(tmp_path)) == [0, 1]


def test_a_hint_may_be_the_name_of_a_file(tmp_path: Path) -> None:
    table = write_folder(tmp_path)
    table.save("00001-abc.metadata.json")
    table.commit(table.data_file("2.parquet", pa.table({"id": [2]})))
    (tmp_path / "metadata/version-hint.text").write_text("00001-abc")
    assert find_ids(tamis.open(tmp_path)) == [0, 1]


def test_without_a_hint_the_highest_number_is_the_newest(tmp_path: Path) -> None:
    table = write_folder(tmp_path, 9)
    (tmp_path / "metadata/version-hint.text").unlink()
    assert table.save("v10.metadata.json", hint=False).exists()
    assert len(find_ids(tamis.open(tmp_path))) == 9


def test_of_two_files_with_one_version_the_last_written_is_the_newest(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, [field(1, "id", "long")])
    first = table.save("00007-b.metadata.json", hint=False)
    table.commit(table.data_file("0.parquet", pa.table({"id": [0]})))
    second = table.save("00007-a.metadata.json", hint=False)
    for path in (tmp_path / "metadata").glob("v*"):
        path.unlink()
    os.utime(first, ns=(1, 10**18))
    os.utime(second, ns=(1, 2 * 10**18))
    assert find_ids(tamis.open(tmp_path)) == [0]
    os.utime(second, ns=(1, 10**17))
    assert find_ids(tamis.open(tmp_path)) == []


@pytest.mark.parametrize("name", ["v9.gz.metadata.json", "v9.metadata.json.gz"])
def test_compressed_metadata(tmp_path: Path, name: str) -> None:
    table = write_folder(tmp_path)
    path = table.save(name)
    (tmp_path / "metadata/version-hint.text").write_text("9")
    assert path.read_bytes().startswith(b"\x1f\x8b")
    assert find_ids(tamis.open(tmp_path)) == [0, 1]
    assert find_ids(tamis.open(path)) == [0, 1]


def test_a_metadata_file_is_opened_directly(tmp_path: Path) -> None:
    write_folder(tmp_path)
    table = tamis.open(tmp_path / "metadata/v2.metadata.json")
    assert find_ids(table) == [0]
    assert table.format == "iceberg"
    assert table.uri == str(tmp_path)
    assert is_metadata_file("v2.metadata.json.gz")


def test_missing_tables(tmp_path: Path) -> None:
    with pytest.raises(TableNotFound, match="no Iceberg table at"):
        tamis.open(tmp_path, format="iceberg")
    (tmp_path / "metadata").mkdir()
    with pytest.raises(TableNotFound, match=r"has no file \*.metadata.json"):
        tamis.open(tmp_path, format="iceberg")
    with pytest.raises(TableNotFound, match="no metadata file"):
        tamis.open(tmp_path / "metadata/v1.metadata.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not valid JSON"),
        (b"[]", "expected a JSON object"),
        (b'{"format-version": 9}', "the unsupported format version 9"),
        (b'{"format-version": 2, "format-version": 2}', "duplicate key 'format-version'"),
        (b'{"format-version": 2}', "is not valid Iceberg table metadata"),
        (b'{"format-version": 1, "snapshots": 5, "schemas": 5}', "is not valid Iceberg table metadata"),
        (b'{"format-version": 1, "snapshots": [{"manifests": 5}], "schema": 5}', "is not valid Iceberg table metadata"),
        (b'{"format-version": 2, "schemas": [{"schema-id": []}], "partition-specs": 5}', "is not valid Iceb"),
        (b"[" * 100_000, "is not valid JSON"),
        (gzip.compress(b"{}", mtime=0)[:-6], "compressed, and either truncated"),
        (b"\x1f\x8bnonsense", "invalid gzip data"),
    ],
)
def test_X8_invalid_metadata(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "metadata/v1.metadata.json"
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises((CorruptFile, UnsupportedFeature), match=message):
        tamis.open(tmp_path)


def test_a_missing_package_is_named_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path)
    monkeypatch.setattr(format_errors, "_PACKAGES", ("pyiceberg", "a_package_that_does_not_exist"))
    with pytest.raises(MissingDependency, match=r"a_package_that_does_not_exist: pip install 'tamis\[iceberg\]'"):
        tamis.open(tmp_path)


# --- Moved tables -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("location", "other", "is_same"),
    [
        ("s3://b/t", "s3a://b/t/", True),
        ("file:///a/t", "/a/t", True),
        ("file:/a/t", "/a/t", True),
        ("file://localhost/a/t", "/a/t", True),
        ("./t", "t", True),
        ("s3://b/t", "gs://b/t", False),
        ("s3://b/t", "/b/t", False),
        ("s3://b/t", "s3://b/T", False),
    ],
)
def test_equivalent_spellings_of_locations_are_equal(location: str, other: str, is_same: bool) -> None:
    assert (Location.of(location) == Location.of(other)) is is_same


@pytest.mark.parametrize(
    "location", ["s3://bucket/wh/t", "/nowhere/t", "warehouse/t", "./t", "file://data/t", "hdfs://host:80/t"]
)
def test_I10_a_moved_table_is_read_at_its_new_location(tmp_path: Path, location: str) -> None:
    write_folder(tmp_path, location=location)
    table = tamis.open(tmp_path)
    assert find_ids(table) == [0, 1]
    (level,) = [each for each in table.scan().plan("files").report.levels if each.level == "manifests"]
    assert level.note == f"moved: the metadata records '{location}', files are read from '{tmp_path}'"
    with pytest.raises(UnsupportedFeature) as refused:
        tamis.open(tmp_path, relocate=False)
    assert f"'{tmp_path}'" in str(refused.value)
    assert f"'{location}'" in str(refused.value)


def test_a_table_that_was_not_moved_has_no_note(tmp_path: Path) -> None:
    write_folder(tmp_path)
    table = tamis.open(tmp_path, relocate=False)
    assert [level.note for level in table.scan().plan("files").report.levels if level.level == "manifests"] == [None]


def test_I10_a_copied_table_does_not_read_the_original(tmp_path: Path) -> None:
    write_folder(tmp_path / "first")
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    shutil.rmtree(tmp_path / "first")
    assert find_ids(tamis.open(tmp_path / "second")) == [0, 1]


def make_relocation(written: str, **options: Any) -> Relocation:
    return Relocation(open_storage("/data/t"), written, **options)


@pytest.mark.parametrize(
    "location", ["s3://b/t/../other/a.parquet", "/data/t/../x", "s3://b/t/..", "s3://b/t/a\0b", "s3://b/t/data/../../x"]
)
def test_X7_locations_with_parent_segments_are_rejected(location: str) -> None:
    with pytest.raises(CorruptFile, match="must not contain"):
        make_relocation("s3://b/t").resolve_all(pa.array(["s3://b/t/data/1", location]))


def test_I14_X7_files_of_another_store_are_rejected_unless_allowed() -> None:
    assert make_relocation("/data/t").resolve("/data/t2/a.parquet") == "/data/t2/a.parquet"
    with pytest.raises(UnsupportedFeature, match=r"in another store.*allow_outside=True"):
        make_relocation("/data/t").resolve("s3://b/a.parquet")
    assert make_relocation("/data/t", allow_outside=True).resolve("s3://b/a.parquet") == "s3://b/a.parquet"


def test_I14_X7_the_same_store_is_the_same_bucket() -> None:
    storage = open_storage("s3://b/t", {"AWS_REGION": "eu-west-1", "AWS_SKIP_SIGNATURE": "true"})
    assert Relocation(storage, "s3://b/t").resolve("s3a://b/other/a.parquet") == "b/other/a.parquet"
    for location in ("s3://c/t/a.parquet", "/data/a.parquet", "file:///data/a.parquet", "gs://b/t/a.parquet"):
        with pytest.raises(UnsupportedFeature, match=r"in another store.*allow_outside=True"):
            Relocation(storage, "s3://b/t").resolve(location)
    allowed = Relocation(storage, "s3://b/t", allow_outside=True)
    assert allowed.resolve("/data/a.parquet") == "file:///data/a.parquet"
    assert allowed.resolve("s3://c/t/a.parquet") == "c/t/a.parquet"


def write_with_data_elsewhere(folder: Path, data: Path, spelled: str, location: str | None = None) -> IcebergFolder:
    """Write a table of two files; the metadata locates the second at `spelled`."""
    table = IcebergFolder(folder, [field(1, "id", "long")], location=location)
    table.commit(table.data_file("0.parquet", pa.table({"id": [0]})))
    file = table.data_file("1.parquet", pa.table({"id": [1]}))
    data.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(folder / "data" / "1.parquet", data)
    table.commit(replace(file, path=spelled))
    table.save()
    return table


def read_notes(table: tamis.Table) -> str:
    report = table.scan().plan("files").report.to_dict()
    return "; ".join(level["note"] or "" for level in report["levels"])


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_I14_data_files_outside_the_folder_are_read_and_reported(tmp_path: Path, prefix: str) -> None:
    data = tmp_path / "raw" / "1.parquet"
    write_with_data_elsewhere(tmp_path / "t", data, f"{prefix}{data}")
    for options in ({}, {"allow_outside": True}):
        opened = tamis.open(tmp_path / "t", **options)
        assert find_ids(opened) == [0, 1]
        assert opened.scan("id = 1").to_arrow()["id"].to_pylist() == [1]
        assert f"1 file outside the table's folder, such as '{data}'" in read_notes(opened)
    paths = tamis.iceberg.list_files(tmp_path / "t")["path"].to_pylist()
    assert any(path.endswith("/raw/1.parquet") for path in paths)


def test_I14_data_beside_a_table_that_was_moved_with_it(tmp_path: Path) -> None:
    data = tmp_path / "old/raw/1.parquet"
    write_with_data_elsewhere(tmp_path / "old/wh/t", data, str(data))
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    data.write_bytes(b"what is here now does not matter")
    assert find_ids(tamis.open(tmp_path / "new/wh/t")) == [0, 1]
    # If the folders around it were not moved, files are read at their old locations.
    shutil.copytree(tmp_path / "new/wh/t", tmp_path / "alone/wh/t")
    shutil.copy(tmp_path / "new/raw/1.parquet", data)
    assert find_ids(tamis.open(tmp_path / "alone/wh/t")) == [0, 1]


@pytest.mark.parametrize("location", ["here/data/persistent/t", "elsewhere/persistent/t", "elsewhere/t"])
def test_I14_relative_paths_are_beside_the_table(tmp_path: Path, location: str) -> None:
    folder = tmp_path / location
    around = location.removesuffix("/t").removesuffix("persistent").rstrip("/")
    raw = {"here/data": "here/data/raw", "elsewhere": "elsewhere/raw"}[around]
    spelled = "data/raw/1.parquet"
    if location == "elsewhere/t":
        raw, spelled = "elsewhere/raw", "data/persistent/raw/1.parquet"
    write_with_data_elsewhere(folder, tmp_path / raw / "1.parquet", spelled, location="data/persistent/t")
    for options in ({}, {"allow_outside": True}):
        opened = tamis.open(folder, **options)
        assert find_ids(opened) == [0, 1]
        assert "1 file outside the table's folder" in read_notes(opened)


def test_I14_relative_paths_below_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_with_data_elsewhere(tmp_path / "t", tmp_path / "work/raw/1.parquet", "raw/1.parquet")
    with pytest.raises(MissingFile, match=r"'raw/1\.parquet'.*working directory"):
        tamis.open(tmp_path / "t").scan().to_arrow()
    monkeypatch.chdir(tmp_path / "work")
    assert find_ids(tamis.open(tmp_path / "t")) == [0, 1]


def test_I14_a_file_of_another_store_is_read_if_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    write_with_data_elsewhere(tmp_path / "t", tmp_path / "bucket/raw/1.parquet", "s3://bucket/raw/1.parquet")
    with RestServer() as server:
        server.buckets["bucket"] = tmp_path / "bucket"
        options = {
            "AWS_ENDPOINT_URL": server.uri,
            "AWS_REGION": "eu-west-1",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }
        with pytest.raises(UnsupportedFeature, match="allow_outside=True"):
            tamis.open(tmp_path / "t", storage_options=options).scan().to_arrow()
        assert find_ids(tamis.open(tmp_path / "t", storage_options=options, allow_outside=True)) == [0, 1]


# --- Wrong values that are not needed ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["metadata.json", "abc.metadata.json", "abc.gz.metadata.json", "metadata.json.gz"])
def test_I13_metadata_under_another_name_is_found_and_reported(tmp_path: Path, name: str) -> None:
    table = write_folder(tmp_path)
    path = table.save("v9.metadata.json")
    content = path.read_bytes()
    for each in path.parent.glob("*metadata.json*"):
        each.unlink()
    (path.parent / "version-hint.text").unlink(missing_ok=True)
    (path.parent / name).write_bytes(gzip.compress(content) if "gz" in name else content)
    for location in (tmp_path, path.parent / name):
        opened = tamis.open(location)
        assert (opened.format, find_ids(opened)) == ("iceberg", [0, 1])
    assert f"the metadata file '{name}' was found by its suffix" in read_notes(tamis.open(tmp_path))


def test_I13_of_several_names_without_a_version_the_last_updated_is_the_newest(tmp_path: Path) -> None:
    table = write_folder(tmp_path)
    older = json.loads(table.save("v9.metadata.json").read_bytes())
    folder = tmp_path / "metadata"
    for each in folder.glob("*metadata.json*"):
        each.unlink()
    (folder / "version-hint.text").unlink(missing_ok=True)
    (folder / "z.metadata.json").write_text(json.dumps(older | {"current-snapshot-id": -1, "refs": {}}))
    (folder / "a.metadata.json").write_text(json.dumps(older | {"last-updated-ms": older["last-updated-ms"] + 1}))
    assert find_ids(tamis.open(tmp_path)) == [0, 1]
    assert "'a.metadata.json' was found by its suffix, and is the most recently updated of 2" in read_notes(
        tamis.open(tmp_path)
    )
    # This also holds beside a file with a version number, which may be older.
    (folder / "v3.metadata.json").write_text(json.dumps(older | {"current-snapshot-id": -1, "refs": {}}))
    assert find_ids(tamis.open(tmp_path)) == [0, 1]
    (folder / "a.metadata.json").write_text(json.dumps(older))
    with pytest.raises(CorruptFile, match="updated at the same time"):
        tamis.open(tmp_path)
    (folder / "a.metadata.json").write_text(json.dumps(older | {"table-uuid": str(uuid4()), "last-updated-ms": 1}))
    with pytest.raises(CorruptFile, match="different tables in one folder"):
        tamis.open(tmp_path)


def test_I13_a_folder_with_unrelated_metadata_is_not_an_iceberg_table(tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "metadata.json").write_text('{"name": "a data set"}')
    pq.write_table(pa.table({"id": [1]}), tmp_path / "1.parquet")
    assert tamis.open(tmp_path).format == "hive"


@pytest.mark.parametrize("length", [0, 1, -1, 10**9])
def test_I13_wrong_lengths_in_the_manifest_list_are_reported(tmp_path: Path, length: int) -> None:
    table = write_folder(tmp_path)
    path = table.save("v9.metadata.json")
    edit_manifest_list(path, lambda row: row | {"manifest_length": length})
    opened = tamis.open(tmp_path)
    assert find_ids(opened) == [0, 1]
    assert "the manifest list has a wrong length for 2 manifests" in read_notes(opened)
    assert tamis.iceberg.list_files(tmp_path).num_rows == 2


def test_I13_a_wrong_length_with_a_wrong_file_count_is_an_error(tmp_path: Path) -> None:
    table = write_folder(tmp_path)
    path = table.save("v9.metadata.json")
    edit_manifest_list(path, lambda row: row | {"manifest_length": 7, "added_files_count": 3})
    with pytest.raises(CorruptFile, match="3 files: the manifest was replaced or truncated"):
        tamis.open(tmp_path).scan().to_arrow()


@pytest.mark.parametrize("number", [2**63, 2**63 + 5, 2**64 - 2])
def test_I13_snapshot_ids_beyond_63_bits(tmp_path: Path, number: int) -> None:
    write_folder(tmp_path)
    path = edit_metadata(tmp_path, lambda metadata: metadata)
    was = json.loads(path.read_bytes())["current-snapshot-id"]
    # The name of the manifest list contains the id as well.
    path.write_text(path.read_text().replace(str(was), str(number)).replace(f"snap-{number}", f"snap-{was}"))
    opened = tamis.open(tmp_path)
    assert (opened.version, find_ids(opened)) == (number, [0, 1])
    assert f"the snapshot id {number} has more than 63 bits" in read_notes(opened)
    assert opened.history()["snapshot_id"].to_pylist()[0] == number - 2**64
    for known in (number, number - 2**64):
        assert find_ids(tamis.open(tmp_path, snapshot_id=known)) == [0, 1]


@pytest.mark.parametrize("size", [0, -1])
def test_I13_data_files_without_a_size_are_looked_up(tmp_path: Path, size: int) -> None:
    table = IcebergFolder(tmp_path, [field(1, "id", "long")])
    table.commit(replace(table.data_file("0.parquet", pa.table({"id": [0]})), size=size))
    table.save()
    assert find_ids(tamis.open(tmp_path)) == [0]


def test_locations_of_one_table_in_several_spellings() -> None:
    given = ["s3://b/t/data/1", "s3a://b/t/data/2", "s3://b/t/data/a..b", "/data/t/data/3", "s3://b/t/x%20y/é"]
    found = make_relocation("s3a://b/t/").resolve_all(pa.chunked_array([given]))
    assert found.to_pylist() == [
        "/data/t/data/1",
        "/data/t/data/2",
        "/data/t/data/a..b",
        "/data/t/data/3",
        "/data/t/x%20y/é",
    ]
    assert make_relocation("s3://b/t").resolve_all(pa.array([], pa.string())).to_pylist() == []


def test_metadata_in_another_folder_does_not_mean_a_moved_table(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere/metadata"
    table = write_folder(tmp_path / "t", properties={"write.metadata.path": str(elsewhere)})
    elsewhere.mkdir(parents=True)
    path = shutil.copy(table.save("v9.metadata.json"), elsewhere)
    opened = tamis.open(path)
    assert find_ids(opened) == [0, 1]
    assert opened.uri == str(tmp_path / "t")


def test_a_metadata_file_elsewhere_in_its_table_folder(tmp_path: Path) -> None:
    table = write_folder(tmp_path)
    (tmp_path / "a/b").mkdir(parents=True)
    path = shutil.copy(table.save("v9.metadata.json"), tmp_path / "a/b")
    opened = tamis.open(path, relocate=False)
    assert opened.uri == str(tmp_path)
    assert find_ids(opened) == [0, 1]


@pytest.mark.parametrize(
    ("uri", "location", "found"),
    [
        ("s3://b/t", "s3a://b/other/1.parquet", "b/other/1.parquet"),
        ("s3://b/t", "s3://c/1.parquet", "c/1.parquet"),
        ("s3://b/t", "s3n://b/t/1.parquet", "b/t/1.parquet"),
    ],
)
def test_paths_in_an_object_store_begin_with_the_bucket(uri: str, location: str, found: str) -> None:
    storage = open_storage(uri, {"AWS_REGION": "eu-west-1", "AWS_SKIP_SIGNATURE": "true"})
    moved = Relocation(storage, uri, allow_outside=True)
    assert not moved.is_moved
    assert moved.resolve(location) == found


# --- Snapshots --------------------------------------------------------------------------------------------------------


def test_I8_a_snapshot_by_id_by_ref_and_by_timestamp(tmp_path: Path) -> None:
    table = write_folder(tmp_path, 3)
    first, second, _ = (each.number for each in table.snapshots)
    table.tag("release", first)
    table.refs["audit"] = {"snapshot-id": second, "type": "branch"}
    table.save()
    assert find_ids(tamis.open(tmp_path, snapshot_id=first)) == [0]
    assert find_ids(tamis.open(tmp_path, ref="release")) == [0]
    assert find_ids(tamis.open(tmp_path, ref="audit")) == [0, 1]
    assert find_ids(tamis.open(tmp_path, ref="main")) == [0, 1, 2]
    timestamp = datetime.fromtimestamp((FIRST_TIMESTAMP + 1500) / 1000, UTC)
    assert find_ids(tamis.open(tmp_path, timestamp=timestamp)) == [0, 1]
    assert find_ids(tamis.open(tmp_path, timestamp=timestamp.isoformat())) == [0, 1]
    assert tamis.open(tmp_path, ref="audit").version == second


def test_I8_a_missing_snapshot_is_an_error_that_names_it(tmp_path: Path) -> None:
    write_folder(tmp_path)
    known = tamis.open(tmp_path).history()["snapshot_id"].to_pylist()
    expected = f"'{tmp_path}' has no snapshot 17: .*Snapshots, newest first: {', '.join(map(str, known))}$"
    for choose in ({"snapshot_id": 17}, {"version": 17}):
        with pytest.raises(VersionNotFound, match=expected):
            tamis.open(tmp_path, **choose)
    with pytest.raises(VersionNotFound, match=r"no branch or tag 'other'\. Branches and tags: main"):
        tamis.open(tmp_path, ref="other")
    with pytest.raises(
        VersionNotFound, match="had no snapshot at 2001-01-01T00:00:00Z: the first known one is from 2023"
    ):
        tamis.open(tmp_path, timestamp="2001-01-01")
    with pytest.raises(InvalidArgument, match="snapshot_id= and ref= both select a snapshot"):
        tamis.open(tmp_path, snapshot_id=1, ref="main")
    with pytest.raises(VersionNotFound, match="has no snapshot 3"):
        tamis.open(tmp_path, version=3)
    with pytest.raises(UnsupportedFeature, match="merge_schema= was given, which an Iceberg table does not have"):
        tamis.open(tmp_path, merge_schema=True)
    with pytest.raises(InvalidArgument, match="snapshot_id must be an integer"):
        tamis.open(tmp_path, snapshot_id="17")  # type: ignore[arg-type]


def test_I8_in_an_unordered_log_the_last_entry_not_after_the_timestamp_applies(tmp_path: Path) -> None:
    table = write_folder(tmp_path)
    first, second = (each.number for each in table.snapshots)
    table.log = [(FIRST_TIMESTAMP + 5000, first), (FIRST_TIMESTAMP + 4000, second)]
    table.save()
    for after, version in ((6000, second), (5000, second), (4500, second)):
        timestamp = datetime.fromtimestamp((FIRST_TIMESTAMP + after) / 1000, UTC)
        assert tamis.open(tmp_path, timestamp=timestamp).version == version
    with pytest.raises(VersionNotFound, match="the first known one is from 2023-11-14T22:13:24Z"):
        tamis.open(tmp_path, timestamp=datetime.fromtimestamp((FIRST_TIMESTAMP + 3000) / 1000, UTC))


def test_I8_without_a_log_the_timestamps_of_snapshots_apply(tmp_path: Path) -> None:
    table = write_folder(tmp_path)
    table.log = []
    table.save()
    edit_metadata(tmp_path, lambda metadata: metadata["snapshots"].reverse())
    timestamp = datetime.fromtimestamp((FIRST_TIMESTAMP + 1500) / 1000, UTC)
    assert tamis.open(tmp_path, timestamp=timestamp).version == table.snapshots[1].number


def test_an_empty_table(tmp_path: Path) -> None:
    write_folder(tmp_path, 0)
    table = tamis.open(tmp_path)
    assert table.version is None
    assert table.scan("id > 3").count() == 0
    assert table.files().num_rows == 0
    assert tamis.open(tmp_path, ref="main").version is None
    assert table.history().num_rows == 0


def test_an_old_snapshot_is_read_with_its_schema_and_a_branch_with_the_current_one(tmp_path: Path) -> None:
    table = write_folder(tmp_path, 1)
    first = table.snapshots[0].number
    table.evolve([field(1, "number", "long"), field(2, "name", "string")])
    table.commit(table.data_file("1.parquet", pa.table({"number": [7], "name": ["x"]})))
    table.tag("old", first)
    table.refs["branch"] = {"snapshot-id": first, "type": "branch"}
    table.save()
    assert tamis.open(tmp_path, snapshot_id=first).schema.names == ["id"]
    assert tamis.open(tmp_path, ref="old").schema.names == ["id"]
    assert tamis.open(tmp_path, ref="branch").schema.names == ["number", "name"]
    assert tamis.open(tmp_path, ref="branch").scan("number = 0").to_arrow().to_pylist() == [{"number": 0, "name": None}]


def test_E1_a_table_stays_at_its_snapshot_until_it_is_refreshed(tmp_path: Path) -> None:
    table = write_folder(tmp_path, 1)
    opened = tamis.open(tmp_path)
    assert opened.refresh() is not None
    table.commit(table.data_file("1.parquet", pa.table({"id": [1]})))
    assert find_ids(opened) == [0]
    assert find_ids(opened.refresh()) == [0, 1]
    pinned = tamis.open(tmp_path, snapshot_id=table.snapshots[0].number)
    assert find_ids(pinned) == [0]
    assert find_ids(pinned.refresh()) == [0, 1]


def test_the_history_goes_back_from_the_snapshot(tmp_path: Path) -> None:
    table = write_folder(tmp_path, 3)
    numbers = [each.number for each in table.snapshots]
    history = tamis.open(tmp_path).history()
    assert history["snapshot_id"].to_pylist() == numbers[::-1]
    assert history["parent_id"].to_pylist() == [numbers[1], numbers[0], None]
    assert history["operation"].to_pylist() == ["append"] * 3
    assert history["timestamp"][2].as_py() == datetime.fromtimestamp(FIRST_TIMESTAMP / 1000, UTC)
    assert tamis.open(tmp_path).history(1)["snapshot_id"].to_pylist() == numbers[2:]
    assert tamis.open(tmp_path, snapshot_id=numbers[1]).history()["snapshot_id"].to_pylist() == numbers[1::-1]
    assert json.loads(history["summary"][0].as_py()) == {}


# --- Catalogs ---------------------------------------------------------------------------------------------------------


def test_a_catalog_by_object_by_properties_and_invalid_ones(tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog

    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    catalog = load_catalog("here", **properties)
    catalog.create_namespace("ns")
    rows = pa.table({"id": [1, 2, 3]})
    created = catalog.create_table("ns.t", rows.schema)
    created.append(rows)
    for given in (catalog, {**properties, "name": "here"}):
        opened = tamis.open("ns.t", catalog=given)
        assert find_ids(opened) == [1, 2, 3]
        assert opened.name == "t"
        created.append(rows.slice(0, 1))
        assert find_ids(opened) == [1, 2, 3]
        assert len(find_ids(opened.refresh())) > 3
        created.overwrite(rows)
    with pytest.raises(TableNotFound, match=r"no table 'ns.other' in the catalog 'here'"):
        tamis.open("ns.other", catalog=catalog)
    with pytest.raises(InvalidArgument, match="catalog= must be a pyiceberg catalog"):
        tamis.open("ns.t", catalog=17)
    with pytest.raises(InvalidArgument, match="a catalog has Iceberg tables, not delta"):
        tamis.open("ns.t", "delta", catalog=catalog)


def test_the_folder_of_a_location_uses_its_storage(tmp_path: Path) -> None:
    write_folder(tmp_path)
    opened = open_location(open_storage(tmp_path))
    assert opened.storage.root == str(tmp_path)
    assert not opened.relocation.is_moved
