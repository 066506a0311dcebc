"""The plain functions of `tamis.delta`: the parts of a version, and its files as Arrow for engines that plan scans."""

from __future__ import annotations

import ctypes
import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tamis
from builders.delta.log import DeltaLog, add, commit_info, deletion_vector, metadata, remove
from builders.delta.statistics import field, mapping
from tamis import PartitionFilter
from tamis.errors import CorruptFile, InvalidArgument, MissingFile, TamisError, UnknownColumn, VersionNotFound

COLUMNS = [
    ("path", pa.string()),
    ("size", pa.int64()),
    ("modification_time", pa.int64()),
    ("num_records", pa.int64()),
    ("partition_values", pa.string()),
    ("has_deletion_vector", pa.bool_()),
]


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    """A checkpoint of version 2, and two commits after it."""
    log = DeltaLog(
        tmp_path, {"p": "string", "q": "integer", "id": "long"}, partition_columns=["p", "q"],
        features=["deletionVectors", "v2Checkpoint"],
    )  # fmt: skip
    log.commit(
        add("a%20b/1", {"p": "a", "q": "1"}, size=11, modificationTime=5, stats='{"numRecords":7}'),
        add("2", {"p": "b", "q": None}, size=22, modificationTime=6),
    )
    log.commit(add("3", {"p": "", "q": "3"}, size=33, stats='{"numRecords":0}', deletionVector=deletion_vector()))
    log.commit(add("4", {"p": 'say "é"\\', "q": "4"}, size=44, stats="no JSON"))
    log.checkpoint(2)
    log.commit(remove("2"), add("5", {"p": "a", "q": "5"}, size=55, stats='{"numRecords":5}'))
    log.commit(add("6", {"p": "c", "q": "6"}, size=66))
    return log


def index_by_path(batch: pa.RecordBatch) -> dict[str, dict[str, Any]]:
    rows = {row["path"]: row for row in batch.to_pylist()}
    assert len(rows) == batch.num_rows
    return rows


def check_columns(batch: pa.RecordBatch) -> None:
    assert isinstance(batch, pa.RecordBatch)
    assert [(each.name, each.type) for each in batch.schema] == COLUMNS
    assert all(column.null_count == 0 for column in batch.columns)
    batch.validate(full=True)


# --- The parts of a version -------------------------------------------------------------------------------------------


def test_the_parts_of_a_version(log: DeltaLog) -> None:
    info = tamis.delta.snapshot_info(log.table)
    assert info.version == 4
    assert info.schema == pa.schema([("p", pa.string()), ("q", pa.int32()), ("id", pa.int64())])
    assert info.partition_columns == ("p", "q")
    assert info.checkpoint_parts == ("_delta_log/00000000000000000002.checkpoint.parquet",)
    assert info.commits == tuple(f"_delta_log/{version:020}.json" for version in (3, 4))
    for paths, sizes in ((info.checkpoint_parts, info.checkpoint_part_sizes), (info.commits, info.commit_sizes)):
        assert sizes == tuple((log.table / path).stat().st_size for path in paths)


def test_the_parts_of_an_older_version(log: DeltaLog) -> None:
    info = tamis.delta.snapshot_info(log.table, version=1)
    assert (info.version, info.checkpoint_parts, len(info.commits)) == (1, (), 2)
    with pytest.raises(VersionNotFound):
        tamis.delta.snapshot_info(log.table, version=9)
    with pytest.raises(TamisError, match="_delta_log"):
        tamis.delta.snapshot_info(log.table / "_delta_log")


@pytest.mark.parametrize("form", [{"parts": 2}, {"sidecars": 2}, {"sidecars": 2, "top": "json"}], ids=str)
def test_D8_the_parts_of_a_checkpoint_are_the_files_that_hold_its_files(log: DeltaLog, form: dict[str, Any]) -> None:
    paths = log.checkpoint(4, **form)
    info = tamis.delta.snapshot_info(log.table)
    assert info.commits == ()
    assert sorted(info.checkpoint_parts) == sorted(
        str(path.relative_to(log.table)) for path in (paths if "parts" in form else paths[1:])
    )
    found = [tamis.delta.read_checkpoint_part(log.table, part) for part in info.checkpoint_parts]
    for batch in found:
        check_columns(batch)
    assert sorted(path for batch in found for path in batch["path"].to_pylist()) == ["3", "4", "5", "6", "a%20b/1"]


@pytest.mark.parametrize("top", ["json", "parquet"])
def test_D8_a_v2_checkpoint_without_sidecars(log: DeltaLog, top: str) -> None:
    log.checkpoint(4, sidecars=0, top=top)
    info = tamis.delta.snapshot_info(log.table)
    (part,) = info.checkpoint_parts
    batch = tamis.delta.read_checkpoint_part(log.table, part, PartitionFilter.eq("p", "a"))
    check_columns(batch)
    assert set(index_by_path(batch)) == {"a%20b/1", "5"}
    assert index_by_path(batch)["5"]["num_records"] == 5


# --- Files ------------------------------------------------------------------------------------------------------------


def test_the_live_files_of_a_version(log: DeltaLog) -> None:
    batch = tamis.delta.list_files(log.table)
    check_columns(batch)
    rows = index_by_path(batch)
    assert set(rows) == {"a%20b/1", "3", "4", "5", "6"}
    assert rows["a%20b/1"] == {
        "path": "a%20b/1",
        "size": 11,
        "modification_time": 5,
        "num_records": 7,
        "partition_values": '{"p": "a", "q": "1"}',
        "has_deletion_vector": False,
    }
    assert {path: row["num_records"] for path, row in rows.items()} == {"a%20b/1": 7, "3": 0, "4": -1, "5": 5, "6": -1}
    assert [path for path, row in rows.items() if row["has_deletion_vector"]] == ["3"]
    values = {path: json.loads(row["partition_values"]) for path, row in rows.items()}
    assert values["3"] == {"p": None, "q": "3"}
    assert values["4"] == {"p": 'say "é"\\', "q": "4"}
    assert set(index_by_path(tamis.delta.list_files(log.table, version=0))) == {"a%20b/1", "2"}
    assert (
        index_by_path(tamis.delta.list_files(log.table, version=0))["2"]["partition_values"] == '{"p": "b", "q": null}'
    )


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        (PartitionFilter.eq("p", "a"), {"a%20b/1", "5"}),
        (PartitionFilter.eq("p", "a") & PartitionFilter.gt("q", "1").with_type("long"), {"5"}),
        (PartitionFilter.is_null("p"), {"3"}),
        (PartitionFilter.eq("p", ""), set()),
        (~PartitionFilter.is_null("p"), {"a%20b/1", "4", "5", "6"}),
        (PartitionFilter.in_("q", ["3", "6"]), {"3", "6"}),
        (PartitionFilter.and_(), {"a%20b/1", "3", "4", "5", "6"}),
        (PartitionFilter.or_(), set()),
    ],
    ids=lambda each: each.to_json() if isinstance(each, PartitionFilter) else "",
)
def test_a_filter_keeps_files_by_their_partition_values(
    log: DeltaLog, filter: PartitionFilter, expected: set[str]
) -> None:
    batch = tamis.delta.list_files(log.table, filter=filter)
    check_columns(batch)
    assert set(index_by_path(batch)) == expected
    info = tamis.delta.snapshot_info(log.table)
    assert set(index_by_path(_plan_by_hand(log.table, info, filter))) == expected


def _plan_by_hand(table: Path, info: Any, filter: PartitionFilter | None) -> pa.Table:
    """Combine the parts as an engine does: actions in commits take precedence over the checkpoint."""
    added, removed = tamis.delta.read_post_checkpoint_changes(table, info.commits, filter)
    known, _ = tamis.delta.read_post_checkpoint_changes(table, info.commits)
    spoken_of = pa.concat_arrays([known["path"], removed["path"]])
    parts = [tamis.delta.read_checkpoint_part(table, part, filter) for part in info.checkpoint_parts]
    kept = [part.filter(pc.invert(pc.is_in(part["path"], spoken_of))) for part in parts]
    return pa.Table.from_batches([added, *kept])


def test_an_engine_that_reads_the_parts_by_itself_finds_the_same_files(log: DeltaLog) -> None:
    whole = index_by_path(tamis.delta.list_files(log.table))
    for form in ({}, {"parts": 3}, {"sidecars": 2}, {"sidecars": 1, "top": "json"}):
        log.checkpoint(3, **form)
        info = tamis.delta.snapshot_info(log.table)
        assert len(info.commits) == 1
        assert index_by_path(_plan_by_hand(log.table, info, None)) == whole
        assert index_by_path(tamis.delta.list_files(log.table)) == whole
        for path in log.folder.glob("*3.checkpoint*"):
            path.unlink()


def test_files_that_a_filter_rejects_are_not_decoded(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    from tamis.formats.delta import functions

    asked: list[int] = []
    plainly = functions.extract_num_records

    def count_calls(texts: pa.Array | None, parsed: pa.Array | None) -> pa.Array:
        asked.append(0 if texts is None else len(texts))
        return plainly(texts, parsed)

    monkeypatch.setattr(functions, "extract_num_records", count_calls)
    assert tamis.delta.list_files(log.table, filter=PartitionFilter.eq("p", "c")).num_rows == 1
    assert sum(asked) == 1


def test_what_commits_add_and_remove(log: DeltaLog) -> None:
    info = tamis.delta.snapshot_info(log.table)
    added, removed = tamis.delta.read_post_checkpoint_changes(log.table, info.commits)
    check_columns(added)
    check_columns(removed)
    assert set(index_by_path(added)) == {"5", "6"}
    assert set(index_by_path(removed)) == {"2"}
    # A remove action has few fields of the file.
    assert index_by_path(removed)["2"]["num_records"] == -1
    added, removed = tamis.delta.read_post_checkpoint_changes(log.table, info.commits, PartitionFilter.eq("p", "c"))
    assert set(index_by_path(added)) == {"6"}
    assert set(index_by_path(removed)) == {"2"}
    for batch in tamis.delta.read_post_checkpoint_changes(log.table, []):
        check_columns(batch)
        assert batch.num_rows == 0


def test_D1_the_newest_action_of_a_file_holds(log: DeltaLog) -> None:
    log.commit(remove("6"))
    log.commit(add("6", {"p": "c", "q": "6"}, size=67), remove("5"))
    log.commit(
        remove("3", deletionVector=deletion_vector()),
        add("3", {"p": "", "q": "3"}, deletionVector=deletion_vector(offset=9)),
    )
    info = tamis.delta.snapshot_info(log.table)
    added, removed = tamis.delta.read_post_checkpoint_changes(log.table, info.commits)
    assert {path: row["size"] for path, row in index_by_path(added).items()} == {"3": 100, "6": 67}
    assert {"2", "5"} <= set(removed["path"].to_pylist())
    assert index_by_path(_plan_by_hand(log.table, info, None)) == index_by_path(tamis.delta.list_files(log.table))
    assert tamis.delta.list_files(log.table).num_rows == 4


def test_a_table_without_partitions(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path)
    log.commit(add("1", stats='{"numRecords": 3}'))
    log.checkpoint(0)
    log.commit(add("2"))
    batch = tamis.delta.list_files(tmp_path)
    check_columns(batch)
    assert batch["partition_values"].to_pylist() == ["{}", "{}"]
    with pytest.raises(UnknownColumn, match=r"no partition column 'p'.*Partition columns: none"):
        tamis.delta.list_files(tmp_path, filter=PartitionFilter.is_null("p"))


def test_a_table_without_files(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path)
    log.commit()
    batch = tamis.delta.list_files(tmp_path)
    check_columns(batch)
    assert batch.num_rows == 0


def test_D14_rows_out_of_parsed_statistics(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path)
    log.commit(add("1"), add("2"))
    actions = log.reconcile(0, 0)
    for action in actions:
        if action.get("add", {}).get("path") == "1":
            action["add"]["stats_parsed"] = {"numRecords": 12}
    log.checkpoint(
        0, actions=actions, add_fields=[("stats_parsed", pa.struct([("numRecords", pa.int64())]))], omit=["stats"]
    )
    log.commit(commit_info())
    rows = index_by_path(tamis.delta.list_files(tmp_path))
    assert {path: row["num_records"] for path, row in rows.items()} == {"1": 12, "2": -1}


def test_D6_a_filter_is_by_the_names_of_the_table_where_columns_are_mapped(tmp_path: Path) -> None:
    fields = [field("p", "string", **mapping(1, "col-1")), field("id", "long", **mapping(2, "col-2"))]
    log = DeltaLog(
        tmp_path,
        fields,
        partition_columns=["p"],
        features=["columnMapping"],
        configuration={"delta.columnMapping.mode": "name"},
    )
    log.commit(add("1", {"col-1": "a"}), add("2", {"col-1": "b"}))
    assert set(index_by_path(tamis.delta.list_files(tmp_path, filter=PartitionFilter.eq("p", "a")))) == {"1"}


@pytest.fixture
def mapped(tmp_path: Path) -> DeltaLog:
    """A table that maps columns, with a checkpoint and two commits after it: the last one renames `p` to `place`."""
    configuration = {"delta.columnMapping.mode": "name"}
    fields = [field("p", "string", **mapping(1, "col-1")), field("id", "long", **mapping(2, "col-2"))]
    log = DeltaLog(
        tmp_path,
        fields,
        partition_columns=["p"],
        features=["columnMapping", "v2Checkpoint"],
        configuration=configuration,
    )
    log.commit(add("1", {"col-1": "a"}), add("2", {"col-1": "b"}))
    log.checkpoint(0)
    log.commit(add("3", {"col-1": "a"}), add("4", {"col-1": "b"}), remove("2"))
    renamed = [field("place", "string", **mapping(1, "col-1")), fields[1]]
    log.commit(metadata(renamed, ["place"], configuration))
    return log


def _read_in_executors(table: Path, info: Any, wanted: PartitionFilter | None, **given: Any) -> dict[str, Any]:
    parts = [tamis.delta.read_checkpoint_part(table, part, wanted, **given) for part in info.checkpoint_parts]
    added, removed = tamis.delta.read_post_checkpoint_changes(table, info.commits, wanted, **given)
    assert removed["path"].to_pylist() == ["2"]
    found = [row for batch in (*parts, added) for row in batch.to_pylist()]
    return {row["path"]: json.loads(row["partition_values"]) for row in found if row["path"] != "2"}


def test_D24_executor_functions_take_and_give_the_logical_names_of_mapped_columns(mapped: DeltaLog) -> None:
    table = mapped.table
    info = tamis.delta.snapshot_info(table)
    assert dict(info.physical_names) == {"place": "col-1", "id": "col-2"}
    wanted = PartitionFilter.eq("place", "a")
    expected = {"1": {"place": "a"}, "3": {"place": "a"}}
    assert _read_in_executors(table, info, wanted) == expected
    assert _read_in_executors(table, info, wanted, snapshot=info) == expected
    assert _read_in_executors(table, info, PartitionFilter.eq("PLACE", "a"), snapshot=pickle.loads(pickle.dumps(info)))
    assert set(index_by_path(tamis.delta.list_files(table, filter=wanted))) == {"1", "3"}
    assert set(_read_in_executors(table, info, ~wanted)) == {"4"}
    assert set(_read_in_executors(table, info, None)) == {"1", "3", "4"}


def test_D24_a_version_has_the_logical_names_of_its_own_metadata(mapped: DeltaLog) -> None:
    info = tamis.delta.snapshot_info(mapped.table, version=1)
    assert dict(info.physical_names) == {"p": "col-1", "id": "col-2"}
    wanted = PartitionFilter.eq("p", "a")
    assert _read_in_executors(mapped.table, info, wanted, snapshot=info) == {"1": {"p": "a"}, "3": {"p": "a"}}
    assert set(index_by_path(tamis.delta.list_files(mapped.table, wanted, version=1))) == {"1", "3"}


@pytest.mark.parametrize("name", ["col-1", "p", "id", "nope"])
def test_D24_a_filter_on_another_column_is_an_error(mapped: DeltaLog, name: str) -> None:
    table, wanted = mapped.table, PartitionFilter.neq(name, "a")
    info = tamis.delta.snapshot_info(table)
    for ask in (
        lambda: tamis.delta.list_files(table, filter=wanted),
        lambda: tamis.delta.read_checkpoint_part(table, info.checkpoint_parts[0], wanted),
        lambda: tamis.delta.read_checkpoint_part(table, info.checkpoint_parts[0], wanted, snapshot=info),
        lambda: tamis.delta.read_post_checkpoint_changes(table, info.commits, wanted),
        lambda: tamis.open(table).scan(wanted).plan("files"),
    ):
        with pytest.raises(UnknownColumn, match=f"no partition column '{name}'.*Partition columns: place"):
            ask()


def test_another_object_than_a_snapshot_info_is_refused(mapped: DeltaLog) -> None:
    commits = tamis.delta.snapshot_info(mapped.table).commits
    with pytest.raises(InvalidArgument, match="snapshot_info"):
        tamis.delta.read_post_checkpoint_changes(mapped.table, commits, snapshot=3)  # type: ignore[arg-type]


# --- Invalid input ----------------------------------------------------------------------------------------------------


def test_parts_and_commits_must_be_files_of_the_log(log: DeltaLog, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("{}")
    for name in ("other", "_delta_log/../other", "/etc/hostname", "", "_delta_log"):
        with pytest.raises(InvalidArgument, match="not a file of the log"):
            tamis.delta.read_checkpoint_part(log.table, name)
        with pytest.raises(InvalidArgument, match="not a file of the log"):
            tamis.delta.read_post_checkpoint_changes(log.table, [name])
    with pytest.raises(MissingFile, match=r"00099\.json"):
        tamis.delta.read_post_checkpoint_changes(log.table, ["_delta_log/00000000000000000099.json"])
    log.path(4).write_text('{"add": ')
    with pytest.raises(CorruptFile, match=r"00004\.json"):
        tamis.delta.list_files(log.table)


@pytest.mark.parametrize("filter", ["p = 'a'", {"op": "eq"}, 3])
def test_a_filter_of_another_kind_is_refused(log: DeltaLog, filter: Any) -> None:
    info = tamis.delta.snapshot_info(log.table)
    for ask in (
        lambda: tamis.delta.list_files(log.table, filter=filter),
        lambda: tamis.delta.read_checkpoint_part(log.table, info.checkpoint_parts[0], filter),
        lambda: tamis.delta.read_post_checkpoint_changes(log.table, info.commits, filter),
    ):
        with pytest.raises(InvalidArgument, match="PartitionFilter"):
            ask()


# --- Export -----------------------------------------------------------------------------------------------------------


class Schema(ctypes.Structure):
    """`ArrowSchema`, as large as the C Data Interface has it."""

    _fields_ = [("content", ctypes.c_byte * 72)]


class Array(ctypes.Structure):
    _fields_ = [("content", ctypes.c_byte * 80)]


def test_a_batch_is_exported_to_addresses_that_another_runtime_gives(log: DeltaLog) -> None:
    batch = tamis.delta.list_files(log.table)
    schema, array = Schema(), Array()
    tamis.delta.export_batch(batch, ctypes.addressof(array), ctypes.addressof(schema))
    imported = pa.RecordBatch._import_from_c(ctypes.addressof(array), ctypes.addressof(schema))
    assert imported.equals(batch)
    # Without a copy.
    locations = [
        [buffer.address for column in each.columns for buffer in column.buffers() if buffer is not None]
        for each in (batch, imported)
    ]
    assert locations[0] == locations[1]


def test_the_array_is_exported_without_the_schema(log: DeltaLog) -> None:
    batch = tamis.delta.list_files(log.table)
    array = Array()
    tamis.delta.export_batch(batch, ctypes.addressof(array))
    assert pa.RecordBatch._import_from_c(ctypes.addressof(array), batch.schema).equals(batch)


def test_an_export_outlives_its_batch(log: DeltaLog) -> None:
    schema, array = Schema(), Array()
    expected = tamis.delta.list_files(log.table).to_pylist()
    tamis.delta.export_batch(tamis.delta.list_files(log.table), ctypes.addressof(array), ctypes.addressof(schema))
    assert pa.RecordBatch._import_from_c(ctypes.addressof(array), ctypes.addressof(schema)).to_pylist() == expected


def find_part(log: DeltaLog) -> str:
    log.checkpoint(len(tamis.delta.snapshot_info(log.table).commits) - 1)
    (part,) = tamis.delta.snapshot_info(log.table).checkpoint_parts
    return part


@pytest.mark.parametrize("wanted", [None, PartitionFilter.is_null("nothing at all"), PartitionFilter.or_()])
def test_the_columns_of_a_part_are_exported_one_by_one(log: DeltaLog, wanted: PartitionFilter | None) -> None:
    part = find_part(log)
    arrays, schemas = [Array() for _ in range(6)], [Schema() for _ in range(6)]
    addresses = [[ctypes.addressof(each) for each in structs] for structs in (arrays, schemas)]
    if wanted is not None and wanted.columns:
        with pytest.raises(UnknownColumn):
            tamis.delta.read_checkpoint_part_arrow_ffi(log.table, part, wanted, *addresses)
        assert not any(bytes(each) != bytes(len(bytes(each))) for each in (*arrays, *schemas))
        return
    expected = tamis.delta.read_checkpoint_part(log.table, part, wanted)
    assert tamis.delta.read_checkpoint_part_arrow_ffi(log.table, part, wanted, *addresses) == expected.num_rows
    fields = [pa.Field._import_from_c(address) for address in addresses[1]]
    columns = [pa.Array._import_from_c(address, each.type) for address, each in zip(addresses[0], fields, strict=True)]
    assert pa.record_batch(columns, schema=pa.schema(fields)).equals(expected)


@pytest.mark.parametrize(
    ("arrays", "schemas", "message"),
    [
        ([8] * 5, [8] * 6, r"array_addresses must have one address for each of the 6 columns \(path, .*found 5"),
        (list(range(8, 14)), [8], "schema_addresses must have one address for each of the 6 columns"),
        (list(range(8, 14)), 8, "schema_addresses must be a list of 6 addresses"),
        ("123456", list(range(8, 14)), "array_addresses must be a list of 6 addresses"),
        ([8, 16, 24, None, 32, 40], list(range(48, 54)), r"array_addresses\[3\] must be the address"),
        (list(range(8, 14)), [48, 49, 50, 51, 52, 2**64], r"schema_addresses\[5\] must be the address"),
        (list(range(8, 14)), list(range(13, 19)), r"schema_addresses\[0\] and array_addresses\[5\] are the same"),
    ],
)
def test_addresses_of_columns_are_checked_before_anything_is_read(arrays: Any, schemas: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        tamis.delta.read_checkpoint_part_arrow_ffi("nowhere", "_delta_log/nothing", None, arrays, schemas)


@pytest.mark.parametrize("address", [0, -1, 2**64, True, "12", None, 1.5])
def test_an_invalid_address_is_refused(log: DeltaLog, address: Any) -> None:
    batch = tamis.delta.list_files(log.table)
    with pytest.raises(InvalidArgument, match="array_address"):
        tamis.delta.export_batch(batch, address)
    if address is not None:
        with pytest.raises(InvalidArgument, match="schema_address"):
            tamis.delta.export_batch(batch, ctypes.addressof(Array()), address)
    with pytest.raises(InvalidArgument, match="record batch"):
        tamis.delta.export_batch(pa.table({"a": [1]}), 8)  # type: ignore[arg-type]


def test_batches_are_handed_on_through_capsules(log: DeltaLog) -> None:
    batch = tamis.delta.list_files(log.table)

    class Foreign:
        """An object that only implements the Arrow C data interface."""

        def __arrow_c_array__(self, requested: object = None) -> Any:
            return batch.__arrow_c_array__(requested)

    assert pa.record_batch(Foreign()).equals(batch)
    assert pa.table(pa.RecordBatchReader.from_stream(batch)).num_rows == batch.num_rows
