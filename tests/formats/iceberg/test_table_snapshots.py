"""The selected snapshot of an Iceberg table, and how the table is found: folders, metadata files, catalogs."""

from __future__ import annotations

import datetime
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import tamis
from builders.iceberg.avro_files import CODECS, edit_avro
from builders.iceberg.tables import FIRST_TIMESTAMP, IcebergFolder
from builders.iceberg.values import field
from tamis.errors import CorruptFile, TamisError

FIELDS = [field(1, "id", "long")]


def write_table(folder: Path, commits: int = 3, **options: Any) -> IcebergFolder:
    """Write a table with one row in each commit."""
    table = IcebergFolder(folder, FIELDS, **options)
    for number in range(commits):
        add_row(table, number)
    return table


def add_row(table: IcebergFolder, number: int, **options: Any) -> int:
    return table.commit(table.data_file(f"{number}.parquet", pa.table({"id": [number]})), **options)


def find_ids(table: tamis.Table) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def make_timestamp(index: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(FIRST_TIMESTAMP / 1000 + index, datetime.UTC)


# --- Snapshots --------------------------------------------------------------------------------------------------------


def test_I8_a_snapshot_a_branch_a_tag_and_a_timestamp(tmp_path: Path) -> None:
    table = write_table(tmp_path)
    first, second, third = (each.number for each in table.snapshots)
    table.tag("one", first)
    table.refs["side"] = {"type": "branch", "snapshot-id": second}
    side = add_row(table, 100, ref="side")
    assert find_ids(tamis.open(tmp_path)) == [0, 1, 2]
    assert find_ids(tamis.open(tmp_path, snapshot_id=second)) == [0, 1]
    assert find_ids(tamis.open(tmp_path, version=second)) == [0, 1]
    assert find_ids(tamis.open(tmp_path, ref="one")) == [0]
    assert find_ids(tamis.open(tmp_path, ref="side")) == [0, 1, 100]
    assert tamis.open(tmp_path, ref="side").version == side
    assert find_ids(tamis.open(tmp_path, ref="main")) == [0, 1, 2]
    assert find_ids(tamis.open(tmp_path, timestamp=make_timestamp(1))) == [0, 1]
    assert find_ids(tamis.open(tmp_path, timestamp=make_timestamp(1) + datetime.timedelta(milliseconds=999))) == [0, 1]
    assert find_ids(tamis.open(tmp_path, timestamp=make_timestamp(99))) == [0, 1, 2]
    assert tamis.open(tmp_path).version == third


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"snapshot_id": 5}, "5"),
        ({"ref": "nothing"}, "nothing"),
        ({"timestamp": make_timestamp(-1)}, "2023-11-14"),
        ({"version": 1}, "no snapshot 1: .* Snapshots, newest first: 1000"),
        ({"version": 1, "snapshot_id": 2}, "give it or snapshot_id="),
        ({"ref": "main", "snapshot_id": 10**12}, "snapshot_id"),
    ],
)
def test_I8_a_missing_snapshot_or_ref_is_an_error_with_a_hint(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    write_table(tmp_path)
    with pytest.raises(TamisError, match=message):
        tamis.open(tmp_path, **options)


def test_I8_snapshots_and_tags_have_the_schema_that_they_were_written_with(tmp_path: Path) -> None:
    table = write_table(tmp_path, 1)
    table.tag("before", table.snapshots[0].number)
    table.evolve([field(1, "number", "long"), field(2, "new", "string")])
    table.commit(table.data_file("new.parquet", pa.table({"number": [7], "new": ["x"]})))
    assert tamis.open(tmp_path).schema.names == ["number", "new"]
    assert tamis.open(tmp_path, snapshot_id=table.snapshots[0].number).schema.names == ["id"]
    assert tamis.open(tmp_path, ref="before").schema.names == ["id"]
    assert tamis.open(tmp_path, ref="main").schema.names == ["number", "new"]


def test_E1_a_table_stays_at_its_snapshot_until_it_is_refreshed(tmp_path: Path) -> None:
    table = write_table(tmp_path, 1)
    opened = tamis.open(tmp_path)
    add_row(table, 1)
    assert find_ids(opened) == [0]
    assert find_ids(opened.refresh()) == [0, 1]
    assert find_ids(tamis.open(tmp_path)) == [0, 1]


def test_history_lists_every_snapshot(tmp_path: Path) -> None:
    table = write_table(tmp_path)
    history = tamis.open(tmp_path).history()
    assert isinstance(history, pa.Table)
    assert set(history["snapshot_id"].to_pylist()) == {each.number for each in table.snapshots}
    assert set(history["operation"].to_pylist()) == {"append"}


def test_a_table_without_snapshots_has_no_rows(tmp_path: Path) -> None:
    write_table(tmp_path, 0)
    opened = tamis.open(tmp_path)
    assert opened.version is None
    assert opened.scan("id = 1").to_arrow().num_rows == opened.scan().count() == opened.files().num_rows == 0


def test_deleted_manifest_entries_are_ignored(tmp_path: Path) -> None:
    table = write_table(tmp_path, 0)
    one, two = (table.data_file(f"{number}.parquet", pa.table({"id": [number]})) for number in range(2))
    table.commit(one, two)
    table.commit(removed=[one.path])
    (tmp_path / "data" / "0.parquet").unlink()
    assert find_ids(tamis.open(tmp_path)) == [1]
    assert tamis.open(tmp_path).files()["path"].to_pylist() == [two.path]


# --- Versions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_metadata", [False, True])
def test_I9_version_1_with_manifests_in_metadata_and_in_a_list(tmp_path: Path, in_metadata: bool) -> None:
    table = IcebergFolder(tmp_path, FIELDS, version=1, specs=[[(1, "identity", "p")]])
    table.manifests_in_metadata = in_metadata
    for number in range(3):
        add_row(table, number)
    opened = tamis.open(tmp_path)
    assert find_ids(opened) == [0, 1, 2]
    plan = opened.scan("id = 1").plan("files")
    assert plan.num_files == 1
    assert opened.scan("id = 1").count() == 1


def test_I9_a_list_without_counts_and_summaries_keeps_all_manifests(tmp_path: Path) -> None:
    write_table(tmp_path, 2, version=1)

    def drop_counts(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {name: None if name.endswith("_count") or name == "partitions" else value for name, value in each.items()}
            for each in records
        ]

    for path in (tmp_path / "metadata").glob("snap-*.avro"):
        edit_avro(path, drop_counts)
    assert find_ids(tamis.open(tmp_path)) == [0, 1]


def test_I9_metadata_of_version_1_may_have_one_schema_and_one_spec(tmp_path: Path) -> None:
    table = write_table(tmp_path, 2, version=1)
    metadata = table.metadata()
    for name in ("schemas", "current-schema-id", "partition-specs", "default-spec-id", "sort-orders", "snapshot-log",
                 "default-sort-order-id", "last-partition-id", "metadata-log"):  # fmt: skip
        del metadata[name]
    path = tmp_path / "metadata" / "v9.metadata.json"
    path.write_text(json.dumps(metadata))
    assert find_ids(tamis.open(path)) == [0, 1]


# --- Manifests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("per_block", [1, 1000])
def test_manifests_of_every_codec_and_block(tmp_path: Path, codec: str, per_block: int) -> None:
    table = IcebergFolder(tmp_path, FIELDS, codec=codec, per_block=per_block, specs=[[(1, "identity", "p")]])
    table.commit(*(table.data_file(f"{number}.parquet", pa.table({"id": [number]})) for number in range(5)))
    opened = tamis.open(tmp_path)
    assert find_ids(opened) == [0, 1, 2, 3, 4]
    assert opened.scan("id = 3").plan("files").num_files == 1


@pytest.mark.parametrize("which", ["snap-*.avro", "*-m*.avro"])
def test_X6_damaged_manifests_are_errors_that_name_them(tmp_path: Path, which: str) -> None:
    write_table(tmp_path, 1)
    (path,) = (tmp_path / "metadata").glob(which)
    content = path.read_bytes()
    opened = tamis.open(tmp_path)
    for damaged in (b"", content[:4], content[:-20], content[:60], b"PAR1" + content[4:], content + b"\xff" * 12):
        path.write_bytes(damaged)
        with pytest.raises(CorruptFile, match=path.name):
            tamis.open(tmp_path).scan().to_arrow()
    path.unlink()
    with pytest.raises(TamisError, match=path.name):
        opened.scan().to_arrow()


# --- Where tables are found -------------------------------------------------------------------------------------------


def test_metadata_files_by_name(tmp_path: Path) -> None:
    table = write_table(tmp_path, 2)
    path = tmp_path / "metadata" / "v2.metadata.json"
    assert find_ids(tamis.open(path)) == [0]
    assert find_ids(tamis.open(table.save("v99.gz.metadata.json"))) == [0, 1]
    assert find_ids(tamis.open(table.save("v98.metadata.json.gz"))) == [0, 1]


@pytest.mark.parametrize("ending", [".metadata.json", ".gz.metadata.json"])
def test_without_a_hint_the_newest_metadata_counts(tmp_path: Path, ending: str) -> None:
    table = IcebergFolder(tmp_path, FIELDS)
    for number in range(3):
        add_row(table, number)
        table.save(f"{8 + number:05}-6b55fc2b-ce03-407e-9585-336c4675e61{9 - number}{ending}")
    for path in (tmp_path / "metadata").glob("v*"):
        path.unlink()
    assert find_ids(tamis.open(tmp_path)) == [0, 1, 2]


def test_a_stale_hint_is_only_a_hint(tmp_path: Path) -> None:
    table = write_table(tmp_path, 3)
    hint = tmp_path / "metadata" / "version-hint.text"
    hint.write_text("2")
    assert find_ids(tamis.open(tmp_path)) in ([0], [0, 1, 2])
    hint.write_text("no number")
    assert find_ids(tamis.open(tmp_path)) == [0, 1, 2]
    hint.write_text("77")
    assert find_ids(tamis.open(tmp_path)) == [0, 1, 2]
    assert len(table.snapshots) == 3


def test_damaged_metadata_is_an_error_that_names_it(tmp_path: Path) -> None:
    write_table(tmp_path, 1)
    path = tmp_path / "metadata" / "v2.metadata.json"
    for text in ("", "{", "[]", '{"format-version": 9}', '{"format-version": 2}'):
        path.write_text(text)
        with pytest.raises(TamisError, match=r"v2\.metadata\.json"):
            tamis.open(tmp_path)


def test_a_catalog_and_its_properties(tmp_path: Path) -> None:
    properties = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    catalog = SqlCatalog("here", **properties)
    catalog.create_namespace("ns")
    rows = pa.table({"id": [1, 2, 3]})
    table = catalog.create_table("ns.t", rows.schema)
    table.append(rows)
    assert find_ids(tamis.open("ns.t", catalog=catalog)) == [1, 2, 3]
    by_properties = tamis.open("ns.t", catalog={"name": "here", "type": "sql", **properties})
    assert find_ids(by_properties) == [1, 2, 3]
    table.append(pa.table({"id": [4]}))
    assert find_ids(by_properties) == [1, 2, 3]
    assert find_ids(by_properties.refresh()) == [1, 2, 3, 4]
    before = table.history()[0].snapshot_id
    assert find_ids(tamis.open("ns.t", catalog=catalog, snapshot_id=before)) == [1, 2, 3]
    with pytest.raises(TamisError, match=r"ns\.nothing"):
        tamis.open("ns.nothing", catalog=catalog)


@pytest.mark.parametrize(
    "location", ["s3://bucket/warehouse/t", "file:/old/folder/t", "hdfs://host:8020/t/", "t", "./t", "/old/t"]
)
def test_I10_a_table_at_another_location(tmp_path: Path, location: str) -> None:
    write_table(tmp_path / "here", 2, location=location)
    opened = tamis.open(tmp_path / "here")
    assert find_ids(opened) == [0, 1]
    assert location.rstrip("/") in opened.scan().explain()
    with pytest.raises(TamisError, match="relocate"):
        tamis.open(tmp_path / "here", relocate=False)


def test_I10_a_table_that_was_moved_after_it_was_written(tmp_path: Path) -> None:
    write_table(tmp_path / "old", 2)
    assert (
        str(tmp_path / "old") not in tamis.open(tmp_path / "old", relocate=False).scan().explain().partition("moved")[2]
    )
    shutil.move(tmp_path / "old", tmp_path / "new")
    opened = tamis.open(tmp_path / "new")
    assert find_ids(opened) == [0, 1]
    assert opened.files()["path"].to_pylist()[0].startswith(str(tmp_path / "new"))


def test_I10_I14_files_outside_a_moved_table_are_read(tmp_path: Path) -> None:
    table = write_table(tmp_path / "t", 1)
    elsewhere = tmp_path / "elsewhere" / "1.parquet"
    elsewhere.parent.mkdir()
    file = table.data_file("1.parquet", pa.table({"id": [1]}))
    shutil.move(tmp_path / "t" / "data" / "1.parquet", elsewhere)
    table.commit(replace(file, path=str(elsewhere)))
    assert find_ids(tamis.open(tmp_path / "t", allow_outside=True)) == [0, 1]
    assert find_ids(tamis.open(tmp_path / "t")) == [0, 1]


@pytest.mark.parametrize("path", ["{t}/../elsewhere/1.parquet", "{t}2/data/1.parquet", "{t}/data/../../1.parquet"])
def test_X7_paths_that_leave_the_table_are_rejected(tmp_path: Path, path: str) -> None:
    table = write_table(tmp_path / "t", 1)
    file = table.data_file("1.parquet", pa.table({"id": [1]}))
    table.commit(replace(file, path=path.replace("{t}", table.location)))
    with pytest.raises(TamisError, match=r"1\.parquet"):
        tamis.open(tmp_path / "t").scan().to_arrow()


def test_folders_are_recognised(tmp_path: Path) -> None:
    write_table(tmp_path, 1)
    assert tamis.open(tmp_path).format == "iceberg"
    assert tamis.open(tmp_path, format="iceberg").format == "iceberg"
    assert tamis.open(f"file://{tmp_path}").format == "iceberg"
