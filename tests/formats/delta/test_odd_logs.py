"""Unusual logs that are valid, or nearly valid, but differ from those of most writers."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.delta.log import DeltaLog, add, remove
from builders.delta.statistics import field, mapping
from builders.delta.tables import data_file, make_inline_vector
from tamis import PartitionFilter
from tamis.errors import CorruptFile, UnsupportedFeature
from tamis.formats.delta.log import commits
from tamis.formats.delta.planning.file_batches import FILE_BATCH_CACHE


def make_ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def find_ids(path: Path, where: object = None) -> list[int]:
    return sorted(tamis.open(path).scan(where).to_arrow()["id"].to_pylist())


def test_D1_actions_beside_nulls_and_under_escaped_names_count(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long"})
    first, second, third, fourth = (data_file(log, f"{number}.parquet", make_ids(number)) for number in range(4))
    start = {name: action for each in log.start for name, action in each.items()}
    log.write(
        0,
        "\n".join(
            [
                json.dumps({"txn": None, "protocol": start["protocol"]}),
                json.dumps({"add": None, "metaData": start["metaData"], "remove": None}),
                json.dumps(first),
                '{"commitInfo": {"operationParameters": {"predicate": "\\"add\\": 1", "add": {"path": "none"}}}}',
            ]
        ),
    )
    assert find_ids(tmp_path) == [0]
    log.write(
        1,
        "\n".join(
            [
                json.dumps({"txn": None, "add": second["add"], "remove": None}),
                json.dumps({"add": None, "remove": {"path": "0.parquet", "dataChange": True}}),
                '{"\\u0061dd": ' + json.dumps(third["add"]) + "}",
                '{"txn": {"appId": "a", "version": 1}, "\\u0061d\\u0064": ' + json.dumps(fourth["add"]) + "}",
            ]
        ),
    )
    assert find_ids(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"add": "x"}', "action add that is not a JSON object"),
        ('{"add": []}', "action add that is not a JSON object"),
        ('{"txn": null, "metaData": 3}', "action metaData that is not a JSON object"),
        (
            '{"txn": null, "add": {"path": "a"}, "remove": {"path": "b"}}',
            "the actions add and remove: expected one action per line",
        ),
    ],
)
def test_lines_without_exactly_one_action_are_an_error(tmp_path: Path, line: str, message: str) -> None:
    log = DeltaLog(tmp_path, {"id": "long"})
    log.commit()
    log.write(1, line + "\n")
    with pytest.raises(CorruptFile, match=message):
        tamis.open(tmp_path)


def test_E1_a_commit_that_replaces_another_determines_the_live_files(tmp_path: Path) -> None:
    FILE_BATCH_CACHE.clear()
    log = DeltaLog(tmp_path, {"id": "long"})
    log.commit(*(data_file(log, f"{number}.parquet", make_ids(number)) for number in range(4)))
    log.checkpoint(0)
    log.commit(remove("0.parquet"))
    assert find_ids(tmp_path) == [1, 2, 3]
    log.path(1).unlink()
    log.commit(remove("1.parquet"), remove("2.parquet"), version=1)
    assert find_ids(tmp_path) == [0, 3]
    assert tamis.open(tmp_path).scan().count() == 2


def test_refresh_after_the_checkpoint_of_a_snapshot_was_cleaned_up(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long"})
    log.commit(data_file(log, "0.parquet", make_ids(0)))
    old = log.checkpoint(0)
    log.commit(data_file(log, "1.parquet", make_ids(1)))
    table = tamis.open(tmp_path)
    log.commit(data_file(log, "2.parquet", make_ids(2)))
    log.checkpoint(2)
    for path in (*old, log.path(0)):
        path.unlink()
    refreshed = table.refresh()
    assert sorted(refreshed.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2]


def test_partition_values_that_only_some_adds_of_a_commit_have(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long", "a": "string", "b": "string"}, partition_columns=["a", "b"])
    log.commit(
        add("1.parquet", {"a": "x"}),
        add("2.parquet", {"a": 'x"}{', "b": "y"}),
        add("3.parquet", {"a": None, "b": 'y: "z"'}),
    )
    commits = tamis.delta.snapshot_info(tmp_path).commits

    def list_added(wanted: PartitionFilter) -> list[str]:
        return tamis.delta.read_post_checkpoint_changes(tmp_path, commits, wanted)[0]["path"].to_pylist()

    assert list_added(PartitionFilter.in_("b", ["y"])) == ["2.parquet"]
    assert list_added(PartitionFilter.eq("b", 'y: "z"')) == ["3.parquet"]
    assert list_added(PartitionFilter.is_null("b")) == ["1.parquet"]
    assert list_added(PartitionFilter.eq("a", 'x"}{')) == ["2.parquet"]


@pytest.mark.parametrize("name", [".day", ".a.b", "[0]", "a.b", "p`q"])
def test_partition_columns_whose_names_look_like_paths(tmp_path: Path, name: str) -> None:
    log = DeltaLog(tmp_path, {"id": "long", name: "string"}, partition_columns=[name])
    log.commit(
        data_file(log, "1.parquet", make_ids(1), {name: "x"}), data_file(log, "2.parquet", make_ids(2), {name: "y"})
    )
    quoted = name.replace("`", "``")
    assert find_ids(tmp_path, f"`{quoted}` = 'y'") == [2]


def test_D6_a_file_without_field_ids_in_a_table_that_maps_by_id_is_an_error(tmp_path: Path) -> None:
    log = DeltaLog(
        tmp_path,
        [field("a", "long", **mapping(1, "c1"))],
        configuration={"delta.columnMapping.mode": "id"},
        reader=2,
    )
    log.commit(data_file(log, "1.parquet", pa.table({"c1": pa.array([1, 2], pa.int64())})))
    with pytest.raises(CorruptFile, match="has no field ids"):
        tamis.open(tmp_path).scan().to_arrow()


def test_shredded_variants_are_an_error_and_not_null(tmp_path: Path) -> None:
    shredded = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.int64())])
    log = DeltaLog(tmp_path, {"id": "long", "v": "variant"}, features=["variantType", "variantShredding"])
    rows = pa.table({"id": [1], "v": pa.array([{"metadata": b"\x01\0\0", "value": None, "typed_value": 5}], shredded)})
    log.commit(data_file(log, "1.parquet", rows))
    table = tamis.open(tmp_path)
    with pytest.raises(UnsupportedFeature, match="column 'v' has shredded variants"):
        table.scan().to_arrow()
    assert table.scan(columns=["id"]).to_arrow()["id"].to_pylist() == [1]


def test_a_struct_with_the_fields_of_a_shredded_variant_is_a_struct(tmp_path: Path) -> None:
    kind = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.int64())])
    rows = pa.table({"s": pa.array([{"metadata": b"m", "value": None, "typed_value": 5}], kind)})
    pq.write_table(rows, tmp_path / "1.parquet")
    assert tamis.open(tmp_path).scan().to_arrow().to_pylist() == rows.to_pylist()


def test_D5_a_vector_that_deletes_more_rows_than_there_are_makes_the_count_unknown(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long"}, features=["deletionVectors"])
    log.commit(data_file(log, "1.parquet", make_ids(1, 2, 3), deletionVector=make_inline_vector([0, 1, 2, 3])))
    with pytest.raises(CorruptFile):
        tamis.open(tmp_path).scan().count()


@pytest.mark.parametrize("second", ["metaData", "protocol", "sidecar"])
def test_D20_an_action_after_a_file_action_is_not_ignored(tmp_path: Path, second: str) -> None:
    log = DeltaLog(tmp_path, {"id": "long"})
    log.commit()
    actions = data_file(log, "1.parquet", make_ids(1)) | {second: {"path": "x"}}
    log.write(1, json.dumps(actions) + "\n")
    with pytest.raises(CorruptFile, match=f"a file action and a {second} action: expected one action per line"):
        find_ids(tmp_path)
    log.write(1, json.dumps(actions | {second: None, "txn": {"appId": "a", "version": 1}}) + "\n")
    assert find_ids(tmp_path) == [1]


def test_D1_a_deletion_vector_under_a_name_with_escapes_counts(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long"}, features=["deletionVectors"])
    log.commit()
    line = json.dumps(data_file(log, "1.parquet", make_ids(1, 2, 3), deleted=[0]))
    log.write(1, line + "\n")
    assert find_ids(tmp_path) == [2, 3]
    log.write(1, line.replace("deletionVector", "deletion\\u0056ector").replace("stats", "st\\u0061ts") + "\n")
    assert find_ids(tmp_path) == [2, 3]
    assert tamis.open(tmp_path).scan().count() == 2


@pytest.mark.parametrize("window_bytes", [1, 7, 32, 10_000])
def test_D1_names_are_found_across_the_ends_of_windows(window_bytes: int) -> None:
    plain, escaped = b'{"add":{"path":"x","deletionVector":{}}}', b'{"add":{"path":"x","deletion\\u0056ector":{}}}'
    for before in range(40):
        for line, expected in ((plain, {"deletionVector"}), (escaped, set(commits.OPTIONAL_NAMES))):
            content = memoryview(b" " * before + line)
            assert commits.find_mentioned_names(content, commits.OPTIONAL_NAMES, window_bytes) == expected


def test_half_of_a_surrogate_pair_beside_an_action_is_ignored(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long"})
    start, meta = log.start
    meta["metaData"] |= {"description": "\ud83d", "configuration": {"note": "\ud800"}}
    first = data_file(log, "1.parquet", make_ids(1))
    lines = [{"txn": None} | start, {"txn": None} | meta, first, {"txn": {"appId": "\ud800"}, "add": None}]
    log.write(0, "".join(json.dumps(line) + "\n" for line in lines))
    assert find_ids(tmp_path) == [1]
