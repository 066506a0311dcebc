"""A snapshot is pinned, a refresh reads only new commits, and tables of other writers have the right files."""

import inspect
import json
import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tamis
from builders.delta.log import DeltaLog, add, commit_info, deletion_vector, format_action, metadata, protocol, remove
from builders.delta.tables import data_file
from tamis.errors import CorruptFile, InvalidArgument, TamisError, UnsupportedFeature, VersionNotFound
from tamis.formats.delta import snapshot as snapshot_module
from tamis.formats.delta.log import log_segment
from tamis.formats.delta.snapshot import Snapshot
from tamis.io.listing import list_directory
from tamis.io.storage import Storage, open_storage
from tamis.tuning import DEFAULT_TUNING, Tuning


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    log = DeltaLog(tmp_path)
    for version in range(5):
        log.commit(commit_info(), add(f"{version}"))
    return log


def load(log: DeltaLog, version: int | None = None, tuning: Tuning = DEFAULT_TUNING) -> Snapshot:
    return Snapshot.load(open_storage(log.table).with_tuning(tuning), version)


def list_paths(snapshot: Snapshot) -> list[str]:
    return sorted(
        path for part in snapshot.list_parts() for batch in part.read(["path"]) for path in batch["path"].to_pylist()
    )


def test_every_version_can_be_loaded(log: DeltaLog) -> None:
    log.commit(remove("0"))
    assert [list_paths(load(log, version)) for version in range(3)] == [["0"], ["0", "1"], ["0", "1", "2"]]
    assert list_paths(load(log)) == ["1", "2", "3", "4"]
    assert load(log).version == 5


def test_a_version_has_the_protocol_and_metadata_of_its_time(log: DeltaLog) -> None:
    log.commit(metadata({"id": "long", "more": "string"}), protocol(features=["deletionVectors"]))
    assert load(log, 4).metadata.schema.names == ["id"]
    assert load(log).metadata.schema.names == ["id", "more"]
    assert load(log, 4).protocol.reader_features is None
    assert load(log).protocol.reader_features == {"deletionVectors"}


def test_D13_an_unsupported_feature_is_an_error_at_its_version_only(log: DeltaLog) -> None:
    log.commit(protocol(features=["deletionVectors", "timeMachine"]))
    with pytest.raises(UnsupportedFeature, match="timeMachine"):
        load(log)
    assert load(log, 4).version == 4


def test_D13_a_timestamp_before_an_unsupported_feature_can_be_read(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path)
    for version in range(3):
        log.commit(add(f"{version}"), milliseconds=1_700_000_000_000 + version * 1000)
    log.commit(protocol(features=["timeMachine"]), milliseconds=1_700_000_010_000)
    storage = open_storage(log.table)
    assert Snapshot.load(storage, timestamp="2023-11-14T22:13:21.500Z").version == 1
    with pytest.raises(UnsupportedFeature, match="timeMachine"):
        Snapshot.load(storage, timestamp="2023-11-14T22:13:40Z")


@pytest.mark.parametrize("version", [-1, "3", 1.0, True])
def test_a_version_is_an_integer(log: DeltaLog, version: Any) -> None:
    with pytest.raises(InvalidArgument, match="a version must be an integer >= 0"):
        load(log, version)


def test_a_version_or_a_timestamp_but_not_both(log: DeltaLog) -> None:
    with pytest.raises(InvalidArgument, match="give one of them"):
        Snapshot.load(open_storage(log.table), 1, "2024-01-01")


@pytest.mark.parametrize("missing", ["protocol", "metaData"])
def test_a_log_without_protocol_or_metadata_is_an_error(tmp_path: Path, missing: str) -> None:
    log = DeltaLog(tmp_path)
    log.start = tuple(action for action in log.start if missing not in action)
    log.commit(add("1"))
    with pytest.raises(CorruptFile, match=f"has no {missing} action up to version 0"):
        load(log)


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_E1_a_snapshot_is_pinned(log: DeltaLog, has_checkpoint: bool) -> None:
    if has_checkpoint:
        log.checkpoint()
    snapshot = load(log)
    before = list_paths(snapshot)
    log.commit(remove("0"), add("new"), metadata({"other": "string"}))
    log.checkpoint()
    assert list_paths(snapshot) == before == ["0", "1", "2", "3", "4"]
    assert (snapshot.version, snapshot.metadata.schema.names) == (4, ["id"])
    assert snapshot.history().num_rows == 5


def test_E1_a_snapshot_is_pinned_before_its_files_are_read(log: DeltaLog) -> None:
    snapshot = load(log)
    for version in range(5):
        log.path(version).unlink()
    assert list_paths(snapshot) == ["0", "1", "2", "3", "4"]


def test_refresh_without_new_commits_is_the_same_snapshot_and_costs_a_listing(log: DeltaLog) -> None:
    snapshot = load(log)
    before = snapshot.storage.counters.counts()
    assert snapshot.refresh() is snapshot
    used = snapshot.storage.counters.counts() - before
    assert (used.listing_calls, used.requests, used.bytes_read) == (1, 1, 0)


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_refresh_reads_only_the_new_commits(log: DeltaLog, has_checkpoint: bool) -> None:
    if has_checkpoint:
        log.checkpoint()
    snapshot = load(log)
    list_paths(snapshot)
    log.commit(remove("0"), add("5"))
    log.commit(remove("5"), add("6"))
    before = snapshot.storage.counters.counts()
    newer = snapshot.refresh()
    used = newer.storage.counters.counts() - before
    assert (used.listing_calls, used.requests) == (1, 3)
    assert used.bytes_read == sum(log.path(version).stat().st_size for version in (5, 6))
    assert newer.version == 6
    assert list_paths(newer) == ["1", "2", "3", "4", "6"]
    assert list_paths(snapshot) == ["0", "1", "2", "3", "4"]
    assert [file.first for file in newer.segment.deltas][-2:] == [5, 6]


def test_refresh_takes_new_metadata_and_otherwise_keeps_the_old(log: DeltaLog) -> None:
    snapshot = load(log)
    log.commit(add("5"))
    newer = snapshot.refresh()
    assert newer.metadata == snapshot.metadata
    log.commit(metadata({"id": "long", "more": "string"}))
    newest = newer.refresh()
    assert newest.metadata.schema.names == ["id", "more"]
    assert newest.protocol == snapshot.protocol
    log.commit(protocol(features=["timeMachine"]))
    with pytest.raises(UnsupportedFeature, match="timeMachine"):
        newest.refresh()


def test_refresh_over_a_change_of_the_partition_columns_reads_the_older_commits_for_them_too(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long", "day": "string"})
    log.commit(add("0"), add("1", {"day": "a"}))
    table = tamis.open(tmp_path)
    assert table.files().num_rows == 2
    by_day = metadata({"id": "long", "day": "string"}, partition_columns=["day"])
    log.commit(by_day, remove("0"), add("2", {"day": "b"}))
    refreshed, fresh = table.refresh(), tamis.open(tmp_path)
    by_path = [("path", "ascending")]
    assert refreshed.files().sort_by(by_path).equals(fresh.files().sort_by(by_path))
    assert refreshed.scan("day = 'a'").plan("files").files.num_rows == 1


def test_a_snapshot_may_be_refreshed_often_before_the_first_plan(log: DeltaLog) -> None:
    snapshot = load(log)
    for version in range(90):
        log.commit(add(f"more {version}"), remove("0") if version == 30 else commit_info())
        snapshot = snapshot.refresh()
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 80)
    try:
        assert len(snapshot.changes.added) == 94
    finally:
        sys.setrecursionlimit(before)


def test_a_snapshot_with_many_commits_moves_on_to_a_newer_checkpoint(log: DeltaLog) -> None:
    snapshot = load(log, tuning=Tuning(max_commits_since_checkpoint=5))
    for version in range(5, 12):
        log.commit(add(f"{version}"))
        snapshot = snapshot.refresh()
    assert snapshot.segment.checkpoint is None
    log.checkpoint(11)
    log.commit(add("12"))
    newest = snapshot.refresh()
    assert newest.segment.checkpoint is not None
    assert [file.first for file in newest.segment.deltas] == [12]
    assert list_paths(newest) == sorted(map(str, range(13)))


def test_E1_commits_missing_from_a_listing_are_looked_up(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing during a write may show a later file but not an earlier one."""
    whole = list_directory(open_storage(log.table), f"{log.table}/_delta_log")
    seen = pc.invert(pc.match_substring_regex(whole.file_paths, "00[13].json"))
    partial = replace(
        whole,
        file_paths=whole.file_paths.filter(seen),
        file_sizes=whole.file_sizes.filter(seen),
        file_modified_ns=whole.file_modified_ns.filter(seen),
    )
    monkeypatch.setattr(log_segment, "list_directory", lambda storage, folder: partial)
    snapshot = load(log)
    assert [file.first for file in snapshot.segment.deltas] == [0, 1, 2, 3, 4]
    assert list_paths(snapshot) == ["0", "1", "2", "3", "4"]
    log.path(3).unlink()
    with pytest.raises(CorruptFile, match="commit 3 is missing"):
        load(log)


def test_a_file_of_the_log_that_is_cleaned_up_after_it_was_listed(
    log: DeltaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def list_then_checkpoint(storage: Storage) -> log_segment.LogListing:
        found = log_segment.list_log(storage)
        if not calls:
            log.checkpoint(4)
            log.path(2).unlink()
        calls.append(found)
        return found

    monkeypatch.setattr(snapshot_module, "list_log", list_then_checkpoint)
    assert list_paths(load(log)) == ["0", "1", "2", "3", "4"]
    assert len(calls) == 2


def test_overlapping_compactions_are_combined_to_reach_the_version(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path)
    for version in range(6):
        log.commit(add(f"{version}"))
    log.compact(1, 3)
    log.compact(2, 5)
    for version in (2, 3, 4, 5):
        log.path(version).unlink()
    assert list_paths(load(log)) == [str(version) for version in range(6)]
    assert [(file.first, file.last) for file in load(log).segment.deltas] == [(0, 0), (1, 1), (2, 5)]


def test_a_timestamp_after_all_commits_is_the_newest_version_even_without_its_commit(log: DeltaLog) -> None:
    log.checkpoint(4)
    log.path(4).unlink()
    storage = open_storage(log.table)
    assert Snapshot.load(storage, timestamp="2100-01-01").version == 4


def test_a_table_recreated_with_files_of_the_same_names_and_sizes(tmp_path: Path) -> None:
    for number, start in enumerate((0, 100_000)):
        shutil.rmtree(tmp_path / "orders", ignore_errors=True)
        log = DeltaLog(tmp_path / "orders")
        log.start = (protocol(), metadata({"id": "long"}, id=f"table {number}"))
        rows = pa.table({"id": pa.array(range(start, start + 50_000), pa.int64())})
        plain = {"compression": "none", "use_dictionary": False}
        log.commit(data_file(log, "part.parquet", rows, stats=None, options=plain))
        found = tamis.open(log.table).scan(f"id = {start + 40_000}")
        assert found.count() == 1
        assert found.to_arrow().num_rows == 1


def test_refresh_over_a_log_that_was_cleaned_up_reloads(log: DeltaLog) -> None:
    snapshot = load(log)
    for _ in range(3):
        log.commit(add(f"{log.version + 1}"))
    log.checkpoint(7)
    for version in range(7):
        log.path(version).unlink()
    newer = snapshot.refresh()
    assert newer.version == 7
    assert newer.segment.checkpoint is not None
    assert list_paths(newer) == [str(version) for version in range(8)]


def test_refresh_of_a_table_that_was_replaced_reloads(log: DeltaLog) -> None:
    snapshot = load(log)
    for version in range(5):
        log.path(version).unlink()
    other = DeltaLog(log.table, {"other": "string"})
    for version in range(6):
        other.commit(add(f"another {version}"), milliseconds=1_600_000_000_000)
    newer = snapshot.refresh()
    assert newer.metadata.schema.names == ["other"]
    assert list_paths(newer) == [f"another {version}" for version in range(6)]


def test_refresh_of_a_table_whose_newest_commits_are_gone_loads_the_rest(log: DeltaLog) -> None:
    snapshot = load(log)
    log.path(4).unlink()
    assert snapshot.refresh().version == 3


def test_a_damaged_commit_stops_a_refresh_and_leaves_the_snapshot_as_it_is(log: DeltaLog) -> None:
    snapshot = load(log)
    log.write(5, '{"add":{"pa')
    with pytest.raises(CorruptFile, match=r"0005\.json' is truncated"):
        snapshot.refresh()
    log.write(5, b"")
    with pytest.raises(CorruptFile, match=r"0005\.json' is empty"):
        snapshot.refresh()
    assert list_paths(snapshot) == ["0", "1", "2", "3", "4"]


def test_changes_after_a_checkpoint(log: DeltaLog) -> None:
    log.commit(remove("0"), add("5"))
    log.checkpoint(3)
    changes = load(log).changes
    assert changes.added["path"].to_pylist() == ["4", "5"]
    assert sorted(changes.touched.to_pylist()) == [b"0", b"4", b"5"]


def test_many_threads_ask_for_the_files_at_once(log: DeltaLog) -> None:
    snapshot = load(log)
    found: list[list[str]] = []
    threads = [threading.Thread(target=lambda: found.append(list_paths(snapshot))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [["0", "1", "2", "3", "4"]] * 8


def replay_by_hand(folder: Path) -> tuple[int, dict[Any, dict[str, Any]]]:
    """Replay all commits line by line; return the version and the live files."""
    live: dict[Any, dict[str, Any]] = {}
    commits = sorted((folder / "_delta_log").glob("0*.json"))
    commits = [path for path in commits if path.name[20:] == ".json"]
    for path in commits:
        rest = path.read_text().strip()
        while rest:
            # Each action is on one line, or on several.
            action, end = json.JSONDecoder().raw_decode(rest)
            rest = rest[end:].lstrip()
            for name, fields in action.items():
                if name not in ("add", "remove"):
                    continue
                plain = unquote(fields["path"])
                if plain.startswith("file:"):
                    plain = "/" + plain.removeprefix("file:").lstrip("/")
                vector = fields.get("deletionVector") or {}
                key = (plain, vector.get("pathOrInlineDv"), vector.get("offset"))
                live.pop(key, None)
                if name == "add":
                    live[key] = fields
    return int(commits[-1].name[:20]), live


def test_golden_tables_have_the_files_of_their_commits(golden: Path) -> None:
    logs = [*golden.glob("delta/**/_delta_log"), *golden.glob("delta-unlabelled/**/_delta_log")]
    checked = 0
    for folder in sorted(path.parent for path in logs):
        if "deltalog-state-reconstruction" in str(folder):
            continue
        version, live = replay_by_hand(folder)
        snapshot = Snapshot.load(open_storage(folder))
        rows = [row for part in snapshot.list_parts() for batch in part.read() for row in batch.to_pylist()]
        assert snapshot.version == version, folder
        found = sorted((row["path"], row["size"], row["modification_time"]) for row in rows)
        assert found == sorted((add["path"], add["size"], add["modificationTime"]) for add in live.values()), folder
        values = sorted(str(sorted(row["partition_values"])) for row in rows)
        assert values == sorted(str(sorted(add["partitionValues"].items())) for add in live.values()), folder
        checked += 1
    assert checked > 50


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("deltalog-state-reconstruction-from-checkpoint-missing-protocol", "protocol"),
        ("deltalog-state-reconstruction-without-metadata", "metaData"),
    ],
)
def test_golden_tables_without_protocol_or_metadata_are_errors(golden: Path, name: str, missing: str) -> None:
    with pytest.raises(CorruptFile, match=f"has no {missing} action"):
        Snapshot.load(open_storage(golden / "delta" / name / "delta"))


def test_a_version_beyond_the_newest_of_a_golden_table(golden: Path) -> None:
    with pytest.raises(VersionNotFound, match="versions 0 to 3 exist"):
        Snapshot.load(open_storage(golden / "delta" / "snapshot-data3" / "delta"), 4)


# --- Compactions that are damaged -------------------------------------------------------------------------------------

DAMAGES = {
    "cut": lambda text: text[: len(text) // 2],
    "cut at the end": lambda text: text[:-3],
    "no JSON": lambda text: "no compaction at all",
    "no UTF-8": lambda text: text.encode()[:-2] + b"\xff}\n",
    "a line in the middle": lambda text: text.replace('{"add":{"path":', '{"add":{"path":}', 1),
    "a number of a wrong kind": lambda text: text.replace('"size":100', '"size":"many"', 1),
    "the same file twice": lambda text: text + text.splitlines()[-1] + "\n",
}


def damage(path: Path, kind: str) -> None:
    damaged = DAMAGES[kind](path.read_text())
    assert damaged != path.read_text()
    path.write_bytes(damaged if isinstance(damaged, bytes) else damaged.encode())


@pytest.mark.parametrize("has_checkpoint", [False, True])
@pytest.mark.parametrize("kind", DAMAGES)
def test_D10_a_damaged_compaction_is_skipped_where_its_commits_exist(
    log: DeltaLog, kind: str, has_checkpoint: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if has_checkpoint:
        log.checkpoint(0)
    damage(log.compact(1, 3), kind)
    for version in (3, 4, None):
        caplog.clear()
        snapshot = load(log, version)
        assert list_paths(snapshot) == [f"{number}" for number in range(4 if version == 3 else 5)]
        assert not any(file.is_compaction for file in snapshot.segment.deltas)
        (warning,) = caplog.records
        assert warning.levelname == "WARNING"
        assert warning.getMessage().startswith("compaction 1 to 3 cannot be used: ")
        assert "\n" not in warning.getMessage()
    caplog.clear()
    assert list_paths(load(log, 2)) == ["0", "1", "2"]
    assert not caplog.records


def test_D10_a_compaction_with_damaged_metadata_is_skipped(log: DeltaLog, caplog: pytest.LogCaptureFixture) -> None:
    compaction = log.compact(0, 3)
    compaction.write_text(compaction.read_text().replace("struct", "heap", 1))
    assert list_paths(load(log)) == ["0", "1", "2", "3", "4"]
    assert "_delta_log' cannot be used: the schema of the Delta table" in caplog.text


NOT_RECONCILED: dict[str, Callable[[list[dict[str, Any]]], list[dict[str, Any]]]] = {
    "in the order of the commits": lambda actions: actions,
    "newest first": lambda actions: actions[::-1],
    "removes first": lambda actions: sorted(actions, key=lambda action: "add" in action),
    "adds first": lambda actions: sorted(actions, key=lambda action: "remove" in action),
    "without removes": lambda actions: [action for action in actions if "add" in action],
}


@pytest.mark.parametrize("order", NOT_RECONCILED)
@pytest.mark.parametrize("is_last", [True, False])
def test_D23_a_compaction_that_is_not_reconciled_gives_the_files_of_its_commits(
    tmp_path: Path, order: str, is_last: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = DeltaLog(tmp_path, features=["deletionVectors"])
    log.commit(add("1"), add("2"), add("3"))
    log.commit(remove("1"), add("4"))
    log.commit(remove("2"), add("2", deletionVector=deletion_vector()))
    log.commit(remove("4"), add("1"))
    expected = sorted(fields["path"] for fields in log.list_live_files())
    compaction = tmp_path / "_delta_log" / f"{0:020}.{3:020}.compacted.json"
    about_files = [each for commit in log.commits.values() for each in commit if each.keys() & {"add", "remove"}]
    actions = [*log.start, *NOT_RECONCILED[order](about_files)]
    compaction.write_text("".join(f"{format_action(action)}\n" for action in actions))
    if not is_last:
        log.commit(add("5"))
        expected.append("5")
    snapshot = Snapshot.load(open_storage(tmp_path))
    rows = [row for part in snapshot.list_parts() for batch in part.read() for row in batch.to_pylist()]
    assert sorted(row["path"] for row in rows) == expected
    assert not any(file.is_compaction for file in snapshot.segment.deltas)
    assert "not reconciled" in caplog.text
    log.path(1).unlink()
    with pytest.raises(CorruptFile, match="not reconciled"):
        Snapshot.load(open_storage(tmp_path))


def test_D10_a_damaged_compaction_whose_commits_are_gone_is_an_error(log: DeltaLog) -> None:
    damage(log.compact(1, 3), "cut")
    log.path(2).unlink()
    with pytest.raises(CorruptFile, match=r"3\.compacted\.json' is truncated or damaged"):
        load(log)
    assert list_paths(load(log, 1)) == ["0", "1"]


def test_D10_a_version_that_needs_a_damaged_compaction_is_an_error_and_not_an_older_version(log: DeltaLog) -> None:
    damage(log.compact(2, 4), "cut")
    for version in (2, 3, 4):
        log.path(version).unlink()
    with pytest.raises(CorruptFile, match=r"4\.compacted\.json' is truncated or damaged"):
        load(log)
    assert list_paths(load(log, 1)) == ["0", "1"]


def test_D10_of_two_compactions_the_undamaged_one_is_used(log: DeltaLog) -> None:
    damage(log.compact(0, 1), "cut")
    log.compact(2, 3)
    log.path(2).unlink()
    snapshot = load(log)
    assert list_paths(snapshot) == ["0", "1", "2", "3", "4"]
    assert [file.is_compaction for file in snapshot.segment.deltas] == [False, False, True, False]


@pytest.mark.parametrize("kind", DAMAGES)
def test_D10_a_refresh_skips_a_damaged_compaction_too(log: DeltaLog, kind: str) -> None:
    before = load(log, 0)
    damage(log.compact(1, 3), kind)
    after = before.refresh()
    assert (after.version, list_paths(after)) == (4, ["0", "1", "2", "3", "4"])


def test_D12_the_warning_about_a_damaged_checkpoint_is_one_line(
    log: DeltaLog, caplog: pytest.LogCaptureFixture
) -> None:
    (path,) = log.checkpoint(3)
    content, said = path.read_bytes(), []
    for start in range(0, len(content), max(1, len(content) // 60)):
        path.write_bytes(
            content[:start] + bytes(each ^ 0xFF for each in content[start : start + 8]) + content[start + 8 :]
        )
        try:
            tamis.open(log.table).files()
        except TamisError as error:
            said.append(str(error))
    assert said
    assert caplog.records
    assert not [text for text in (*said, *(record.getMessage() for record in caplog.records)) if "\n" in text]
