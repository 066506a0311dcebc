"""The history of a table: its commits, newest first, with the commit info of their writers."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from builders.delta.log import DeltaLog, add, commit_info
from tamis.formats.delta.log.commit_timestamps import HISTORY_SCHEMA
from tamis.formats.delta.snapshot import Snapshot
from tamis.io.storage import open_storage


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    log = DeltaLog(tmp_path)
    log.commit(commit_info(operation="CREATE TABLE"), milliseconds=1_000)
    log.commit(
        add("1"),
        commit_info(
            operation="WRITE",
            operationParameters={"mode": "Append", "partitionBy": "[]"},
            operationMetrics={"numFiles": "1"},
            userName="zoë",
            engineInfo="Test/1.0",
            readVersion=0,
            isolationLevel="Serializable",
            isBlindAppend=True,
            timestamp=5,
        ),
        milliseconds=2_000,
    )
    log.commit(add("2"), milliseconds=3_000)
    return log


def test_the_history_is_newest_first_with_the_commit_info(log: DeltaLog) -> None:
    found = Snapshot.load(open_storage(log.table)).history()
    assert found.schema == HISTORY_SCHEMA
    newest, written, created = found.to_pylist()
    assert [newest["version"], written["version"], created["version"]] == [2, 1, 0]
    assert created["operation"] == "CREATE TABLE"
    assert json.loads(written.pop("operation_parameters")) == {"mode": "Append", "partitionBy": "[]"}
    assert json.loads(written.pop("operation_metrics")) == {"numFiles": "1"}
    assert written == {
        "version": 1,
        "timestamp": datetime.fromtimestamp(2, UTC),
        "operation": "WRITE",
        "user_id": None,
        "user_name": "zoë",
        "user_metadata": None,
        "engine_info": "Test/1.0",
        "read_version": 0,
        "isolation_level": "Serializable",
        "is_blind_append": True,
        "written_at": datetime.fromtimestamp(0.005, UTC),
    }
    assert {value for name, value in newest.items() if name not in ("version", "timestamp")} == {None}


def test_a_limit_reads_only_that_many_commits(log: DeltaLog) -> None:
    snapshot = Snapshot.load(open_storage(log.table))
    before = snapshot.storage.counters.requests
    assert snapshot.history(limit=2)["version"].to_pylist() == [2, 1]
    assert snapshot.storage.counters.requests - before == 2
    assert snapshot.history(limit=0).num_rows == 0


def test_the_history_ends_at_the_version_of_the_snapshot(log: DeltaLog) -> None:
    assert Snapshot.load(open_storage(log.table), 1).history()["version"].to_pylist() == [1, 0]


def test_commits_that_were_cleaned_up_are_left_out(log: DeltaLog) -> None:
    log.checkpoint(2)
    log.path(0).unlink()
    assert Snapshot.load(open_storage(log.table)).history()["version"].to_pylist() == [2, 1]


def test_X8_booleans_are_not_numbers(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path)
    log.commit(commit_info(timestamp=True, readVersion=True))
    (row,) = Snapshot.load(open_storage(tmp_path)).history().to_pylist()
    assert (row["read_version"], row["written_at"]) == (None, None)


def test_commit_info_of_unusual_types_is_null_or_json(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path)
    log.commit(commit_info(operation=7, readVersion="x", isBlindAppend="yes", userMetadata={"a": 1}, timestamp=2**70))
    (row,) = Snapshot.load(open_storage(tmp_path)).history().to_pylist()
    assert (row["operation"], row["read_version"], row["is_blind_append"]) == ("7", None, None)
    assert (row["user_metadata"], row["written_at"]) == ('{"a": 1}', None)
