"""Lines of commits as columns: differences between writers, damaged lines, and duplicate actions."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from builders.delta.log import DeltaLog, add, commit_info, deletion_vector, format_action, metadata, protocol, remove
from tamis.errors import CorruptFile
from tamis.formats.delta.log import actions
from tamis.formats.delta.log.actions import ADD, FILE_ACTIONS, decode_file_actions
from tamis.formats.delta.log.commits import ActionLines, read_actions
from tamis.formats.delta.log.log_segment import find_candidate_segments, list_log
from tamis.formats.delta.snapshot import Snapshot
from tamis.io.storage import open_storage
from tamis.tuning import DEFAULT_TUNING, Tuning


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return DeltaLog(tmp_path, {"id": "long", "day": "string", "é ü": "string"}, partition_columns=["day", "é ü"])


def read_lines(log: DeltaLog, tuning: Tuning = DEFAULT_TUNING) -> ActionLines:
    storage = open_storage(log.table).with_tuning(tuning)
    return read_actions(storage, next(find_candidate_segments(list_log(storage))).deltas)


def decode_log(
    log: DeltaLog, names: tuple[str, ...] = ("day",), tuning: Tuning = DEFAULT_TUNING
) -> list[dict[str, Any]]:
    found = decode_file_actions(read_lines(log, tuning), names)
    assert found.schema == FILE_ACTIONS
    found.validate(full=True)
    return found.to_pylist()


def read_files(log: DeltaLog, tuning: Tuning = DEFAULT_TUNING) -> list[dict[str, Any]]:
    snapshot = Snapshot.load(open_storage(log.table).with_tuning(tuning))
    return [row for part in snapshot.list_parts() for batch in part.read() for row in batch.to_pylist()]


def test_every_column_of_an_add(log: DeltaLog) -> None:
    vector = deletion_vector("ab^-aqEH.-t@S}K{vb[*k^", 4, sizeInBytes=40, cardinality=6)
    stats = '{"numRecords":3,"note":"a \\"quoted\\" ü"}'
    log.commit(add("a/b.parquet", {"day": "1", "é ü": "x"}, size=7, stats=stats, deletionVector=vector))
    (row,) = read_files(log)
    assert row == {
        "path": "a/b.parquet",
        "partition_values": [("day", "1"), ("é ü", "x")],
        "size": 7,
        "modification_time": 1_700_000_000_000,
        "stats": stats,
        "deletion_vector": {
            "storage_type": "u",
            "path_or_inline": "ab^-aqEH.-t@S}K{vb[*k^",
            "offset": 4,
            "size": 40,
            "cardinality": 6,
        },
    }
    assert list(row) == ADD.names


def test_a_removal_is_a_path_and_a_deletion_vector(log: DeltaLog) -> None:
    log.commit(remove("gone", deletionVector=deletion_vector("x" * 20, None), size=3, stats="{}"))
    (row,) = decode_log(log)
    assert (row["is_add"], row["path"], row["deletion_vector"]["offset"]) == (False, "gone", None)
    assert (row["size"], row["stats"]) == (None, None)


def test_absent_fields_are_null(log: DeltaLog) -> None:
    log.commit({"add": {"path": "bare"}}, {"remove": {"path": "gone"}})
    rows = decode_log(log)
    assert [(row["path"], row["is_add"]) for row in rows] == [("bare", True), ("gone", False)]
    assert all(row[name] is None for row in rows for name in ("size", "modification_time", "stats", "deletion_vector"))
    assert rows[0]["partition_values"] == [("day", None)]


def test_partition_values_are_strings_or_null(log: DeltaLog) -> None:
    log.commit(
        add("1", {"day": "2024-01-01", "é ü": "null"}),
        add("2", {"day": "", "é ü": None}),
        add("3", {"é ü": "12.50"}),
        add("4", {"day": "true", "other": "kept out"}),
    )
    assert [dict(row["partition_values"]) for row in decode_log(log, ("day", "é ü"))] == [
        {"day": "2024-01-01", "é ü": "null"},
        {"day": "", "é ü": None},
        {"day": None, "é ü": "12.50"},
        {"day": "true", "é ü": None},
    ]


def test_without_partition_columns_maps_are_empty(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path)
    log.commit(add("1"), add("2", {"day": "x"}))
    assert [row["partition_values"] for row in read_files(log)] == [[], []]


def test_unknown_actions_and_fields_are_ignored(log: DeltaLog) -> None:
    log.commit(
        commit_info(),
        {"cdc": {"path": "_change_data/1", "partitionValues": {}, "size": 1, "dataChange": False}},
        {"txn": {"appId": "a", "version": 1}},
        {"domainMetadata": {"domain": "delta.clustering", "configuration": "{}", "removed": False}},
        {"somethingNew": {"path": "x", "add": {"path": "y"}}},
        {"add": add("1")["add"] | {"tags": {"a": [1, {"path": "z"}]}, "baseRowId": 5, "new": [[1], "a", None]}},
        {},
        {"add": None},
    )
    assert [row["path"] for row in read_files(log)] == ["1"]


def test_the_name_of_an_action_inside_a_string_is_not_an_action(log: DeltaLog) -> None:
    log.commit(commit_info(notes='{"add":{"path":"not a file"}}'), add('{"remove":{"path":"x"}}'))
    assert [row["path"] for row in read_files(log)] == ['{"remove":{"path":"x"}}']


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\n\n", "  \n", "\n \t\r\n"])
@pytest.mark.parametrize("is_ended", [True, False])
def test_line_breaks_of_every_kind(log: DeltaLog, ending: str, is_ended: bool) -> None:
    lines = [format_action(action) for action in (*log.start, add("1"), remove("2"), add("3"))]
    log.write(0, ending.join(lines) + ending * is_ended)
    log.write(1, format_action(add("4")))
    log.write(2, ending + format_action(add("5")))
    assert [row["path"] for row in decode_log(log)] == ["1", "2", "3", "4", "5"]


def format_json(action: dict[str, Any]) -> str:
    return json.dumps(action, indent=2)


@pytest.mark.parametrize(
    "spell",
    [format_json, lambda action: json.dumps(action, indent=0), lambda action: json.dumps(action, indent="\t") + "\r"],
)
@pytest.mark.parametrize("between", ["\n", "", " \n\n\t"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_D22_actions_on_several_lines_are_read(log: DeltaLog, spell: Any, between: str, mark: str) -> None:
    actions = [*log.start, commit_info(), {"new": {"add": [{"path": "z"}]}}, add('1"}\n{"', stats='{\n"numRecords":1}')]
    log.write(0, mark + between.join(map(spell, [*actions, add("2")])))
    log.write(1, format_action(add("3")))
    log.write(2, between + between.join(map(spell, [remove("3"), add("4")])) + between)
    assert [row["path"] for row in decode_log(log)] == ['1"}\n{"', "2", "3", "3", "4"]
    snapshot = Snapshot.load(open_storage(log.table))
    assert sorted(
        row["path"] for part in snapshot.list_parts() for batch in part.read() for row in batch.to_pylist()
    ) == [
        '1"}\n{"',
        "2",
        "4",
    ]
    assert snapshot.history()["operation"].to_pylist()[-1] == "WRITE"


def test_D22_a_byte_order_mark_is_ignored(log: DeltaLog) -> None:
    log.write(0, "\ufeff" + "\n".join(format_action(action) for action in (*log.start, add("é"))))
    assert [row["path"] for row in decode_log(log)] == ["é"]


@pytest.mark.parametrize("blank", [" ", "\t", " \r\t"])
@pytest.mark.parametrize("count", [1, 2**18])
def test_X8_any_number_of_trailing_blanks(log: DeltaLog, blank: str, count: int) -> None:
    lines = [format_action(action) for action in (*log.start, add("1"))]
    log.write(0, "".join(f"{line}{blank * count}\n" for line in lines) + blank * count)
    log.write(1, blank * count + "\n" + format_action(add("2")) + blank * count)
    assert [row["path"] for row in decode_log(log)] == ["1", "2"]
    log.write(2, format_action(add("3"))[:-2] + blank * count + "\n")
    with pytest.raises(CorruptFile, match=r"02\.json' is truncated or damaged"):
        read_lines(log)


def test_spaces_around_names(log: DeltaLog) -> None:
    text = "\n".join(json.dumps(action, indent=None) for action in (*log.start, add("1")))
    log.write(0, f'{text}\n  {{ "add" : {{ "path" : "2" , "size" : 5 }} }}\n{{"remove" :{{"path":"1"}}}}')
    assert [(row["path"], row["size"]) for row in read_files(log)] == [("2", 5)]


@pytest.mark.parametrize("path", ["é/ü.parquet", "日本/🦊.parquet", "a\\b", 'quote"', "tab\t", "nul\\u0000", "%C3%A9"])
def test_paths_with_every_kind_of_letter(log: DeltaLog, path: str) -> None:
    log.commit(add(path), add("other"))
    log.write(1, json.dumps(remove(path)) + "\n")  # with escapes; the previous commit has plain letters
    assert [row["path"] for row in read_files(log)] == ["other"]


def test_numbers_may_be_strings_and_strings_numbers(log: DeltaLog) -> None:
    log.commit(add("0", {"day": "a"}))
    log.commit(
        add("1", {"day": 5}, size="12", modificationTime="1700000000001"),
        add("2", {"day": True}, size=12.0, modificationTime=1.7e12, stats={"numRecords": 1}),
        remove("0", deletionTimestamp="x"),
    )
    log.commit(add("3", {"day": "b"}))
    rows = read_files(log)
    assert [(row["path"], row["size"], row["modification_time"]) for row in rows] == [
        ("1", 12, 1_700_000_000_001),
        ("2", 12, 1_700_000_000_000),
        ("3", 100, 1_700_000_000_000),
    ]
    assert [dict(row["partition_values"])["day"] for row in rows] == ["5", "true", "b"]
    assert json.loads(rows[1]["stats"]) == {"numRecords": 1}


def test_only_files_that_the_fast_decoder_cannot_read_are_read_slowly(
    log: DeltaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in range(20):
        log.commit(*(add(f"{version}-{number}", size="7" if version in (3, 13) else 7) for number in range(5)))
    slow: list[int] = []
    read_slowly = actions._decode_slowly

    def count_slow_reads(lines: pa.Array, schema: pa.Schema, location: str) -> pa.Table:
        slow.append(len(lines))
        return read_slowly(lines, schema, location)

    monkeypatch.setattr(actions, "_decode_slowly", count_slow_reads)
    rows = decode_log(log)
    assert [row["path"] for row in rows] == [f"{version}-{number}" for version in range(20) for number in range(5)]
    assert [row["origin"] for row in rows] == [version for version in range(20) for _ in range(5)]
    assert {row["size"] for row in rows} == {7}
    assert slow == [5, 5]


def test_lines_longer_than_a_block(log: DeltaLog) -> None:
    stats = json.dumps({"numRecords": 1, "maxValues": {"s": "x" * (2 * actions.BLOCK)}})
    log.commit(add("1", stats=stats), add("2"), add("3", stats=stats))
    assert [row["stats"] for row in read_files(log)] == [stats, None, stats]


def test_two_objects_on_one_line_are_not_one(log: DeltaLog) -> None:
    log.commit()
    log.write(1, format_action(add("1")) + format_action(add("2")) + "\n")
    with pytest.raises(CorruptFile, match=r"01\.json' has a damaged action"):
        decode_log(log)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"add":{"path":"x"', "truncated or damaged"),
        ('{"commitInfo":{"timest', "truncated or damaged"),
        ("[1]", "not a JSON object, but list"),
        ('{"add":{"path":"x"}', "damaged action"),
        ('{"add":{"path":"x",}}', "damaged action"),
        ('{"add":{"size":1}}', "without a path"),
        ('{"add":{"path":null}}', "without a path"),
        ('{"remove":{}}', "without a path"),
        ('{"add":{"path":"x","size":"many"}}', "damaged action"),
        ('{"add":{"path":"x","size":1.5}}', "damaged action"),
        ('{"add":{"path":"x","size":99999999999999999999}}', "damaged action"),
        ('{"add":{"path":"x","deletionVector":"y"}}', "damaged action"),
        ('{"add":{"path":"\\ud800"}}', "damaged action"),
        ('{"add":{"path":"x"},"remove":{"path":"y"}}', "both an add and a remove action"),
        ("{add}", "not a JSON object"),
        ("x}", "expected a sequence of JSON objects"),
        ('{"add":{"path":"x","path":"y"}}', "the key 'path' occurs twice"),
        ('{\n"add":{"path":"x",\n"path":"y"}}', "the key 'path' occurs twice"),
        ('{"add":\n{"path":"x"}', "truncated or damaged"),
        ('{"add":\n{"path":"x"}},', "expected a sequence of JSON objects"),
        ('"add"', "not a JSON object, but str"),
    ],
)
def test_a_damaged_line_is_an_error_that_names_the_file(log: DeltaLog, line: str, reason: str) -> None:
    log.commit()
    log.commit(add("1"))
    log.write(2, format_action(add("2")) + "\n" + line)
    with pytest.raises(CorruptFile, match=rf"0002\.json' .*{reason}"):
        read_files(log)


def test_a_file_that_is_not_utf8_is_an_error_that_names_it(log: DeltaLog) -> None:
    log.commit()
    log.write(1, b'{"add":{"path":"\xff"}}\n')
    log.write(2, format_action(add("2")))
    with pytest.raises(CorruptFile, match=r"0001\.json' is damaged: invalid UTF-8 at byte 16"):
        read_files(log)


def test_E8_a_commit_truncated_anywhere_within_a_line_is_an_error(log: DeltaLog) -> None:
    log.commit()
    whole = format_action(add("1", {"day": "x"}, stats="{}")) + "\n" + format_action(commit_info()) + "\n"
    first = whole.index("\n")
    for length in range(1, len(whole) - 1):
        if length in (first, first + 1):
            continue
        log.write(1, whole[:length])
        with pytest.raises(CorruptFile, match=r"0001\.json'"):
            read_files(log)
    log.write(1, whole)
    assert [row["path"] for row in read_files(log)] == ["1"]


@pytest.mark.parametrize("action", [protocol(), metadata({"id": "long"})])
def test_D20_a_protocol_or_metadata_twice_in_a_commit_is_an_error(log: DeltaLog, action: dict[str, Any]) -> None:
    log.commit()
    log.commit(action, add("1"), action)
    (name,) = action
    with pytest.raises(CorruptFile, match=rf"0001\.json' has the action {name} twice"):
        Snapshot.load(open_storage(log.table))


def test_D20_a_file_added_twice_in_a_commit_is_an_error(log: DeltaLog) -> None:
    log.commit(add("a%20b", size=1))
    log.commit(add("x"), add("a b", size=2), add("a%20b", size=3))
    with pytest.raises(CorruptFile, match=r"0001\.json' adds the file 'a.*b' 2 times"):
        read_files(log)


def test_D20_a_file_added_with_two_deletion_vectors_is_not_the_same_twice(log: DeltaLog) -> None:
    log.commit(add("a"), add("a", deletionVector=deletion_vector(offset=1)))
    log.commit(add("a"))
    assert len(read_files(log)) == 2


def test_many_commits_are_one_array_of_lines(log: DeltaLog) -> None:
    for version in range(300):
        log.commit(commit_info(), add(f"{version}"), *([remove(f"{version - 1}")] if version else []))
    lines = read_lines(log)
    assert (lines.num_file_actions, len(lines.other_actions.texts)) == (599, 302)
    assert len(lines.file_actions) == 1
    assert [row["path"] for row in read_files(log)] == ["299"]


def test_runs_of_files_and_slices_of_lines_of_any_length_give_the_same_actions(log: DeltaLog) -> None:
    for version in range(12):
        added = [add(f"{version}-{number}", {"day": str(version)}, stats="x" * 50) for number in range(version)]
        log.commit(commit_info(), *added, *([remove(f"{version - 1}-0")] if version % 3 == 0 else []))
    wanted, wanted_files = decode_log(log), read_files(log)
    for together, at_once in [(1, 1), (700, 150), (2000, 400), (10**6, 1000)]:
        tuning = Tuning(max_log_bytes_together=together, max_action_bytes_together=at_once)
        assert decode_log(log, tuning=tuning) == wanted
        assert read_files(log, tuning) == wanted_files
