"""Checkpoints of every form: their parts, the columns that are read, and how damage is handled."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import tamis
from builders.delta.log import DeltaLog, add, commit_info, deletion_vector, format_action, metadata, protocol, remove
from tamis.errors import CorruptFile, MissingFile
from tamis.formats.delta.checkpoint import read_checkpoint_part
from tamis.formats.delta.log.actions import ADD
from tamis.formats.delta.snapshot import Snapshot
from tamis.io.storage import open_storage

FORMS: dict[str, dict[str, Any]] = {
    "classic": {},
    "multi-part": {"parts": 3},
    "V2 with JSON": {"sidecars": 2, "top": "json"},
    "V2 with Parquet": {"sidecars": 2, "top": "parquet"},
    "V2 with the name of a classic one": {"sidecars": 1, "uuid_named": False},
    "V2 with JSON and no sidecar": {"sidecars": 0, "top": "json"},
    "V2 with Parquet and no sidecar": {"sidecars": 0, "top": "parquet"},
}


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    """Ten files in two partitions, two of them with deletion vectors, and an eleventh that was removed."""
    log = DeltaLog(
        tmp_path, {"id": "long", "day": "string"}, partition_columns=["day"], configuration={"delta.appendOnly": "true"}
    )
    log.commit(
        *(
            add(f"day={number % 2}/{number}", {"day": str(number % 2)}, size=number, stats=f'{{"numRecords":{number}}}')
            for number in range(8)
        )
    )
    log.commit(
        commit_info(), *(add(f"v{number}", {"day": None}, deletionVector=deletion_vector()) for number in (8, 9))
    )
    log.commit(add("gone", {"day": "0"}), {"txn": {"appId": "a", "version": 1}})
    log.commit(remove("gone"))
    return log


def load(log: DeltaLog, version: int | None = None) -> Snapshot:
    return Snapshot.load(open_storage(log.table), version)


def read_file_rows(snapshot: Snapshot, columns: Any = tuple(ADD.names)) -> list[dict[str, Any]]:
    found = [row for part in snapshot.list_parts() for batch in part.read(columns) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: str(row.get("path")))


@pytest.mark.parametrize("form", FORMS)
def test_D8_every_kind_of_checkpoint_lists_the_files_of_its_commits(log: DeltaLog, form: str) -> None:
    by_commits = load(log)
    log.checkpoint(**FORMS[form])
    for version in range(4):
        log.path(version).unlink()
    by_checkpoint = load(log)
    assert by_checkpoint.segment.deltas == ()
    assert by_checkpoint.version == 3
    assert by_checkpoint.metadata == by_commits.metadata
    assert by_checkpoint.protocol == by_commits.protocol
    assert read_file_rows(by_checkpoint) == read_file_rows(by_commits)
    assert len(read_file_rows(by_checkpoint)) == 10


@pytest.mark.parametrize("form", FORMS)
def test_D8_commits_after_every_kind_of_checkpoint(log: DeltaLog, form: str) -> None:
    log.checkpoint(**FORMS[form])
    log.commit(remove("day=0/0"), add("new", {"day": "7"}))
    log.commit(remove("v8"), remove("v9", deletionVector=deletion_vector()), add("day=1/1", {"day": "1"}, size=77))
    found = {row["path"]: row["size"] for row in read_file_rows(load(log))}
    assert set(found) == {f"day={number % 2}/{number}" for number in range(1, 8)} | {"new", "v8"}
    assert found["day=1/1"] == 77
    assert load(log, 3).version == 3
    assert len(read_file_rows(load(log, 3))) == 10


@pytest.mark.parametrize("form", FORMS)
def test_the_parts_are_the_commits_and_the_files_with_add_actions(log: DeltaLog, form: str) -> None:
    paths = log.checkpoint(**FORMS[form])
    log.commit(add("new"))
    parts = load(log).list_parts()
    assert parts[0].path is None
    assert sum(batch.num_rows for batch in parts[0].read(["path"])) == 1
    with_files = paths if not FORMS[form].get("sidecars") else paths[1:]
    assert {part.path for part in parts[1:]} == {str(path) for path in with_files}
    assert [part.size for part in parts[1:]] == [Path(part.path or "").stat().st_size for part in parts[1:]]
    assert len({part.key for part in parts}) == len(parts)


def test_D8_a_sidecar_may_be_named_by_its_whole_path(log: DeltaLog) -> None:
    top, *sidecars = log.checkpoint(sidecars=2, top="json")
    text = top.read_text()
    for sidecar in sidecars:
        text = text.replace(f'"{sidecar.name}"', json.dumps(sidecar.as_uri()))
    top.write_text(text)
    assert load(log).segment.checkpoint is not None
    assert len(read_file_rows(load(log))) == 10


def test_D8_a_sidecar_path_outside_the_directory_is_resolved_inside_it(log: DeltaLog) -> None:
    top, first, _ = log.checkpoint(sidecars=2, top="json")
    top.write_text(top.read_text().replace(f'"{first.name}"', f'"../../../../elsewhere/{first.name}"'))
    assert {part.path for part in load(log).list_parts()} >= {str(first)}
    top.write_text(top.read_text().replace(first.name, "%2e%2e"))
    assert load(log).segment.checkpoint is None
    assert len(read_file_rows(load(log))) == 10


def test_D7_a_missing_sidecar_falls_back_to_an_older_checkpoint(log: DeltaLog) -> None:
    log.checkpoint(1)
    log.checkpoint(3, sidecars=2, top="json")[2].unlink()
    assert load(log).segment.checkpoint.version == 1  # type: ignore[union-attr]
    assert len(read_file_rows(load(log))) == 10


def test_D7_a_missing_sidecar_without_an_older_checkpoint_is_an_error(log: DeltaLog) -> None:
    sidecar = log.checkpoint(3, sidecars=2, top="parquet")[2]
    sidecar.unlink()
    log.path(0).unlink()
    with pytest.raises(MissingFile, match=f"the sidecar '.*{sidecar.name}' of the checkpoint '.*' is gone"):
        load(log)
    for path in (log.folder / "_sidecars").iterdir():
        path.unlink()
    (log.folder / "_sidecars").rmdir()
    with pytest.raises(MissingFile, match="_sidecars"):
        load(log)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("damage", ["cut", "garbage"])
def test_D12_a_damaged_checkpoint_is_skipped(log: DeltaLog, form: str, damage: str) -> None:
    top = log.checkpoint(**FORMS[form])[0]
    content = top.read_bytes()
    top.write_bytes(content[: len(content) // 2] if damage == "cut" else b"no checkpoint at all")
    assert load(log).segment.checkpoint is None
    assert len(read_file_rows(load(log))) == 10
    log.path(0).unlink()
    with pytest.raises(CorruptFile, match="checkpoint"):
        load(log)


def test_damage_inside_a_row_group_is_an_error_and_loses_no_rows_silently(log: DeltaLog) -> None:
    (path,) = log.checkpoint()
    content = bytearray(path.read_bytes())
    column = next(
        chunk
        for chunk in (pq.read_metadata(path).row_group(0).column(index) for index in range(5))
        if chunk.path_in_schema == "add.path"
    )
    start = column.dictionary_page_offset or column.data_page_offset
    content[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(content)
    with pytest.raises(CorruptFile, match=r"row group 0 of '.*checkpoint\.parquet' cannot be decoded"):
        read_file_rows(load(log))


@pytest.mark.parametrize("missing", ["protocol", "metaData"])
def test_a_checkpoint_without_protocol_or_metadata_is_an_error(log: DeltaLog, missing: str) -> None:
    held = [action for action in log.reconcile(0, 3) if missing not in action]
    log.checkpoint(actions=held)
    with pytest.raises(CorruptFile, match=f"from checkpoint 3 on, has no {missing} action up to version 3"):
        load(log)
    log.commit(*(action for action in log.start if missing in action))
    assert len(read_file_rows(load(log))) == 10


def test_D20_a_checkpoint_with_two_protocols_is_skipped(log: DeltaLog) -> None:
    log.checkpoint(actions=[*log.reconcile(0, 3), protocol(writer=3)])
    assert load(log).segment.checkpoint is None


def test_newer_commits_win_over_the_metadata_of_the_checkpoint(log: DeltaLog) -> None:
    log.checkpoint()
    log.commit(metadata({"id": "long", "day": "string", "more": "string"}, ["day"]))
    assert load(log).metadata.schema.names == ["id", "day", "more"]
    assert load(log, 3).metadata.schema.names == ["id", "day"]


def test_only_requested_columns_are_read(log: DeltaLog) -> None:
    (path,) = log.checkpoint(row_group_size=4)
    storage = open_storage(log.table)
    (batch, *_) = read_checkpoint_part(storage, str(path), ["size", "path"])
    assert batch.schema == pa.schema([ADD.field("path"), ADD.field("size")])
    (batch, *_) = read_checkpoint_part(storage, str(path), ["deletion_vector"])
    assert batch.schema.names == ["deletion_vector"]
    (batch, *_) = read_checkpoint_part(storage, str(path), [])
    assert batch.num_rows


def test_batches_have_the_canonical_types_whatever_the_checkpoint_has(log: DeltaLog) -> None:
    (path,) = log.checkpoint()
    table = pq.read_table(path)
    adds = table["add"].combine_chunks()
    fields = [field for field in adds.type if field.name not in ("size", "path", "stats")]
    others = [pc.struct_field(adds, field.name) for field in fields]
    large = {"path": pa.large_string(), "size": pa.int32(), "stats": pa.large_string()}
    children = [pc.struct_field(adds, name).cast(kind) for name, kind in large.items()]
    all_fields = [*fields, *(pa.field(name, kind) for name, kind in large.items())]
    adds = pa.StructArray.from_arrays([*others, *children], fields=all_fields, mask=adds.is_null())
    wanted = read_file_rows(load(log))
    pq.write_table(table.set_column(table.schema.get_field_index("add"), "add", adds), path)
    snapshot = load(log)
    assert snapshot.segment.checkpoint is not None
    for part in snapshot.list_parts():
        for batch in part.read():
            assert batch.schema == ADD
    assert read_file_rows(snapshot) == wanted


def test_columns_that_a_checkpoint_lacks_are_null(log: DeltaLog) -> None:
    log.checkpoint(omit=["stats", "deletionVector"])
    found = read_file_rows(load(log))
    assert len(found) == 10
    assert {row["stats"] for row in found} == {None}
    assert {row["deletion_vector"] for row in found} == {None}


def test_D14_parsed_statistics_are_read_unchanged_where_they_exist(log: DeltaLog) -> None:
    values = pa.struct([("id", pa.int64()), ("x", pa.string())])
    stats = pa.struct([("numRecords", pa.int64()), ("minValues", values), ("maxValues", values)])
    parsed = pa.struct([("day", pa.string())])
    held = log.reconcile(0, 3)
    for action in held:
        if "add" in action:
            size = action["add"]["size"]
            action["add"]["stats_parsed"] = {
                "numRecords": size,
                "minValues": {"id": -size, "x": "a"},
                "maxValues": None,
            }
            action["add"]["partitionValues_parsed"] = {"day": action["add"]["partitionValues"]["day"]}
    log.checkpoint(
        actions=held, add_fields=[("stats_parsed", stats), ("partitionValues_parsed", parsed)], omit=["stats"]
    )
    log.commit(add("new", {"day": "3"}))
    commits, checkpoint = load(log).list_parts()
    (batch,) = commits.read(["path", "stats_parsed", "partition_values_parsed"])
    assert batch.schema.names == ["path"]
    (batch,) = checkpoint.read(["path", "stats_parsed", "partition_values_parsed"])
    assert batch.schema.names == ["path", "partition_values_parsed", "stats_parsed"]
    assert batch["stats_parsed"].to_pylist()[3] == {
        "numRecords": 3,
        "minValues": {"id": -3, "x": "a"},
        "maxValues": None,
    }
    (batch,) = checkpoint.read(["path", ("stats_parsed", "minValues", "id"), ("stats_parsed", "numRecords")])
    assert batch.schema.field("stats_parsed").type == pa.struct(
        [("numRecords", pa.int64()), ("minValues", pa.struct([("id", pa.int64())]))]
    )


def test_row_groups_stream_and_can_be_skipped(log: DeltaLog) -> None:
    (path,) = log.checkpoint(row_group_size=2)
    (part,) = load(log).list_parts()
    sizes = [batch.num_rows for batch in part.read(["path"])]
    assert max(sizes) == 2
    assert sum(sizes) == 10
    seen: list[int] = []

    def keep(footer: Any, row_group: int) -> bool:
        seen.append(row_group)
        return row_group % 2 == 0

    kept = [batch.num_rows for batch in part.read(["path"], keep)]
    assert 0 < sum(kept) < 10
    # The callback is not called for row groups without files.
    assert len(seen) < pq.read_metadata(path).num_row_groups


def test_files_of_a_part_can_be_kept_and_filtered_later(log: DeltaLog) -> None:
    log.checkpoint()
    before = load(log)
    (old,) = before.list_parts()
    log.commit(remove("day=0/0"), remove("v8", deletionVector=deletion_vector()))
    after = before.refresh()
    _, new = after.list_parts()
    assert old.source_key == new.source_key
    assert old.key != new.key
    (batch,) = new.read(live=False)
    assert batch.num_rows == 10
    assert old.find_live(batch) is None
    live = batch.filter(new.find_live(batch))
    assert live.equals(next(new.read()))
    assert live.num_rows == 8


def test_a_part_can_be_read_by_its_path_alone(log: DeltaLog) -> None:
    paths = log.checkpoint(parts=2)
    found = [
        row
        for path in paths
        for batch in read_checkpoint_part(open_storage(log.table), str(path), ["path"])
        for row in batch["path"].to_pylist()
    ]
    assert len(found) == 10
    paths[0].unlink()
    with pytest.raises(MissingFile, match="is gone"):
        list(read_checkpoint_part(open_storage(log.table), str(paths[0]), ["path"]))


def test_requests_of_a_load_are_one_listing_and_one_for_each_file(log: DeltaLog) -> None:
    log.checkpoint(sidecars=2, top="json")
    log.commit(add("new"))
    storage = open_storage(log.table)
    Snapshot.load(storage)
    # The listings of the log and of the sidecars; the top file, the commit.
    assert (storage.counters.listing_calls, storage.counters.requests) == (2, 4)


def test_a_json_top_file_truncated_in_its_only_sidecar_is_skipped(log: DeltaLog) -> None:
    top = log.checkpoint(sidecars=1, top="json")[0]
    top.write_text("\n".join([*top.read_text().splitlines()[:-1], format_action({"sidecar": {"path": None}})]))
    assert load(log).segment.checkpoint is None
    assert len(read_file_rows(load(log))) == 10


@pytest.mark.parametrize("top", ["json", "parquet"])
def test_D8_a_sidecar_of_another_size_is_an_error(log: DeltaLog, top: str) -> None:
    expected = read_file_rows(load(log))
    _, sidecar, _ = log.checkpoint(sidecars=2, top=top)
    pq.write_table(pq.read_table(sidecar).slice(0, 1), sidecar)
    assert read_file_rows(load(log)) == expected  # by the commits
    log.path(0).unlink()
    with pytest.raises(CorruptFile, match=r"sidecar .* bytes, expected .* by the checkpoint"):
        load(log)


@pytest.mark.parametrize("top", ["json", "parquet"])
def test_D8_a_sidecar_that_is_listed_twice_is_read_once(log: DeltaLog, top: str) -> None:
    expected = read_file_rows(load(log))
    path, *_ = log.checkpoint(sidecars=2, top=top)
    assert load(log).note is None
    if top == "json":
        text = path.read_text()
        path.write_text(text + "".join(f"{line}\n" for line in text.splitlines() if '"sidecar"' in line))
    else:
        held = pq.read_table(path)
        pq.write_table(pa.concat_tables([held, held.filter(held["sidecar"].is_valid())]), path)
    for number in range(3):  # a version without its commits
        log.path(number).unlink()
    found = load(log)
    assert read_file_rows(found) == expected
    assert "lists the sidecar" in str(found.note)
    level = tamis.open(log.table).scan().plan("files").report.level("files")
    assert level is not None
    assert "twice: it is read once" in str(level.note)


def test_D8_a_checkpoint_with_the_same_metadata_twice_is_read(log: DeltaLog) -> None:
    expected = read_file_rows(load(log))
    (path,) = log.checkpoint()
    held = pq.read_table(path)
    pq.write_table(pa.concat_tables([held, held.filter(held["metaData"].is_valid())]), path)
    for number in range(3):
        log.path(number).unlink()
    assert read_file_rows(load(log)) == expected
    other = held.filter(held["metaData"].is_valid())
    changed = [{**each, "metaData": {**each["metaData"], "id": "another"}} for each in other.to_pylist()]
    pq.write_table(pa.concat_tables([held, pa.Table.from_pylist(changed, held.schema)]), path)
    with pytest.raises(CorruptFile, match="has 2 different metaData actions"):
        load(log)


def test_a_checkpoint_without_the_column_path_is_unusable(log: DeltaLog) -> None:
    expected = read_file_rows(load(log))
    log.checkpoint(omit=["path"])
    assert read_file_rows(load(log)) == expected


def test_a_checkpoint_with_paths_in_a_dictionary(log: DeltaLog) -> None:
    """Arrow writers report a null count of zero for such a column, although most rows are other actions."""
    expected = read_file_rows(load(log))
    (path,) = log.checkpoint()
    table = pq.read_table(path)
    position = table.schema.get_field_index("add")
    kind = table.schema.field("add").type
    fields = [pa.field(each.name, pa.dictionary(pa.int32(), pa.string()) if each.name == "path" else each.type)
              for each in kind]  # fmt: skip
    pq.write_table(table.set_column(position, "add", pa.array(table["add"].to_pylist(), pa.struct(fields))), path)
    for version in range(log.version + 1):
        log.path(version).unlink()
    assert read_file_rows(load(log)) == expected
    assert sorted(row["size"] for row in read_file_rows(load(log), ("size",))) == sorted(
        row["size"] for row in expected
    )
