"""Time travel by timestamp: modification times made increasing, and in-commit timestamps."""

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from builders.delta.log import DeltaLog, add, commit_info, metadata
from tamis.errors import CorruptFile, InvalidArgument, VersionNotFound
from tamis.formats.delta.log.commit_timestamps import COMMIT_INFO_BYTES, find_version_at, read_in_commit_timestamp
from tamis.formats.delta.log.log_segment import list_log
from tamis.formats.delta.snapshot import Snapshot
from tamis.formats.time_travel import to_milliseconds
from tamis.io.storage import open_storage

START = datetime(2024, 3, 1, 12, tzinfo=UTC)


def compute_ms(seconds: float) -> int:
    return to_milliseconds(START + timedelta(seconds=seconds))


def find_version_after(log: DeltaLog, seconds: float) -> int:
    return find_version(log, START + timedelta(seconds=seconds))


def find_version(log: DeltaLog, timestamp: datetime | str) -> int:
    return Snapshot.load(open_storage(log.table), timestamp=timestamp).version


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    """Versions 0 to 4, made at 0, 10, 20, 30 and 40 seconds."""
    log = DeltaLog(tmp_path)
    for version in range(5):
        log.commit(commit_info(), add(f"{version}"), milliseconds=compute_ms(10 * version))
    return log


def test_D17_the_newest_version_at_a_timestamp(log: DeltaLog) -> None:
    assert [find_version_after(log, seconds) for seconds in (0, 5, 9.999, 10, 39.9999, 40, 10**6)] == [
        0,
        0,
        0,
        1,
        3,
        4,
        4,
    ]


def test_D17_a_snapshot_at_a_timestamp(log: DeltaLog) -> None:
    log.checkpoint(3)
    snapshot = Snapshot.load(open_storage(log.table), timestamp=START + timedelta(seconds=25))
    assert (snapshot.version, snapshot.segment.checkpoint) == (2, None)
    assert snapshot.timestamp == START + timedelta(seconds=20)
    newest = Snapshot.load(open_storage(log.table), timestamp=START + timedelta(seconds=50))
    assert newest.version == 4
    assert newest.segment.checkpoint is not None


def test_D17_before_the_first_version_is_an_error_with_its_timestamp(log: DeltaLog) -> None:
    with pytest.raises(
        VersionNotFound, match=r"at 2024-03-01T11:59:59Z: the oldest version, 0, has the timestamp 2024-03-01T12:00:00Z"
    ):
        find_version_after(log, -1)


@pytest.mark.parametrize(
    "text",
    [
        "2024-03-01T12:00:15Z",
        "2024-03-01 12:00:15",
        "2024-03-01T13:00:15+01:00",
        "2024-03-01T12:00:15.000001",
        "20240301T120015",
    ],
)
def test_timestamps_as_strings(log: DeltaLog, text: str) -> None:
    assert find_version(log, text) == 1


def test_a_timestamp_without_a_zone_is_in_utc(log: DeltaLog) -> None:
    assert find_version(log, datetime(2024, 3, 1, 12, 0, 15)) == 1
    there = timezone(timedelta(hours=-5))
    assert find_version(log, datetime(2024, 3, 1, 7, 0, 15, tzinfo=there)) == 1


def test_a_date_is_its_midnight(log: DeltaLog) -> None:
    assert find_version(log, "2024-03-02") == 4
    with pytest.raises(VersionNotFound):
        find_version(log, "2024-03-01")


@pytest.mark.parametrize("text", ["yesterday", "", "2024-13-01", "12:00"])
def test_an_invalid_timestamp(log: DeltaLog, text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"invalid timestamp .*: write it as 2024-03-01T12:30:00Z"):
        find_version(log, text)


def test_a_number_is_not_a_timestamp(log: DeltaLog) -> None:
    with pytest.raises(InvalidArgument, match="a timestamp must be a datetime or a string, found int"):
        find_version(log, 1_700_000_000_000)  # type: ignore[arg-type]


def test_modification_times_that_go_backwards_are_made_increasing(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path)
    for seconds in (10, 5, 5, 20, 1):
        log.commit(milliseconds=compute_ms(seconds))
    # 10, 10.001, 10.002, 20, 20.001
    found = [Snapshot.load(open_storage(tmp_path), version).timestamp for version in range(5)]
    assert [time - START for time in found if time] == [
        timedelta(seconds=seconds) for seconds in (10, 10.001, 10.002, 20, 20.001)
    ]
    assert [find_version_after(log, seconds) for seconds in (10, 10.001, 10.002, 19, 20, 20.001)] == [0, 1, 2, 2, 3, 4]
    assert [row["version"] for row in Snapshot.load(open_storage(tmp_path)).history().to_pylist()] == [4, 3, 2, 1, 0]


def write_in_commit_timestamps(tmp_path: Path, own: list[float], written: list[float], enabled: int | None) -> DeltaLog:
    """Write commits with in-commit timestamps from version `enabled` on; None means from the first."""
    properties = {"delta.enableInCommitTimestamps": "true"}
    if enabled is not None:
        properties |= {
            "delta.inCommitTimestampEnablementVersion": str(enabled),
            "delta.inCommitTimestampEnablementTimestamp": str(compute_ms(own[enabled])),
        }
    log = DeltaLog(tmp_path, configuration=properties if not enabled else None)
    for version, (seconds, file_seconds) in enumerate(zip(own, written, strict=True)):
        fields = {"inCommitTimestamp": compute_ms(seconds)} if version >= (enabled or 0) else {}
        more = [metadata({"id": "long"}, configuration=properties)] if version and version == enabled else []
        log.commit(commit_info(**fields), *more, add(f"{version}"), milliseconds=compute_ms(file_seconds))
    return log


def test_D17_in_commit_timestamps_hold_where_they_were_always_enabled(tmp_path: Path) -> None:
    log = write_in_commit_timestamps(tmp_path, [0, 10, 20, 30], [1000, 900, 1100, 1200], None)
    assert [find_version_after(log, seconds) for seconds in (0, 9, 10, 25, 30, 31)] == [0, 0, 1, 2, 3, 3]
    assert Snapshot.load(open_storage(tmp_path), 2).timestamp == START + timedelta(seconds=20)
    with pytest.raises(VersionNotFound, match=r"the oldest version, 0, has the timestamp 2024-03-01T12:00:00Z"):
        find_version_after(log, -1)


def test_D17_in_commit_timestamps_hold_from_the_version_that_enabled_them(tmp_path: Path) -> None:
    log = write_in_commit_timestamps(tmp_path, [0, 0, 100, 110, 120], [10, 20, 5000, 4000, 3000], 2)
    assert [find_version_after(log, seconds) for seconds in (10, 15, 20, 99, 100, 109, 110, 10**4)] == [
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        4,
    ]
    times = [Snapshot.load(open_storage(tmp_path)).history()["timestamp"].to_pylist()[::-1]]
    assert [[(time - START).total_seconds() for time in row] for row in times] == [[10, 20, 100, 110, 120]]


def test_D17_a_version_before_they_were_enabled_has_the_modification_time(tmp_path: Path) -> None:
    write_in_commit_timestamps(tmp_path, [0, 0, 100], [10, 20, 5000], 2)
    assert Snapshot.load(open_storage(tmp_path), 1).timestamp == START + timedelta(seconds=20)
    assert Snapshot.load(open_storage(tmp_path), 2).timestamp == START + timedelta(seconds=100)


def test_D17_few_commits_are_read_to_find_a_timestamp(tmp_path: Path) -> None:
    log = write_in_commit_timestamps(tmp_path, [float(second) for second in range(100)], [0.0] * 100, None)
    log.checkpoint()
    storage = open_storage(tmp_path)
    assert find_version_at(list_log(storage), Snapshot.load(storage).metadata.configuration, compute_ms(42.5)) == 42
    assert storage.counters.requests < 15


def test_a_commit_without_its_in_commit_timestamp_is_an_error(tmp_path: Path) -> None:
    log = write_in_commit_timestamps(tmp_path, [0, 10], [0, 0], None)
    log.commit(add("2"))
    with pytest.raises(CorruptFile, match=r"0002\.json' has no inCommitTimestamp"):
        assert Snapshot.load(open_storage(tmp_path)).timestamp
    log.commit(commit_info(inCommitTimestamp="soon"))
    with pytest.raises(CorruptFile, match=r"0003\.json' has no inCommitTimestamp"):
        assert Snapshot.load(open_storage(tmp_path)).timestamp


def test_the_timestamp_of_a_large_commit_is_found_at_its_start_or_its_end(tmp_path: Path) -> None:
    log = write_in_commit_timestamps(tmp_path, [0], [0], None)
    adds = [add(f"{number:04}", stats="x" * 1000) for number in range(5 * COMMIT_INFO_BYTES // 1000)]
    log.commit(commit_info(inCommitTimestamp=compute_ms(10)), *adds)
    log.commit(*adds, commit_info(inCommitTimestamp=compute_ms(20)))
    log.commit(
        *adds,
        commit_info(inCommitTimestamp=compute_ms(30)),
        *(add(f"more {number}", stats="x" * COMMIT_INFO_BYTES) for number in range(2)),
    )
    storage = open_storage(tmp_path)
    for version, bounded in ((1, True), (2, True), (3, False)):
        snapshot = Snapshot.load(storage, version)
        before = storage.counters.counts()
        assert snapshot.timestamp == START + timedelta(seconds=10 * version)
        assert ((storage.counters.counts() - before).bytes_read <= 2 * COMMIT_INFO_BYTES) is bounded


def test_the_name_commit_info_inside_a_string_is_ignored(tmp_path: Path) -> None:
    log = write_in_commit_timestamps(tmp_path, [0], [0], None)
    log.commit(add('{"commitInfo":{"inCommitTimestamp":1}}'), commit_info(inCommitTimestamp=compute_ms(7)))
    assert Snapshot.load(open_storage(tmp_path)).timestamp == START + timedelta(seconds=7)


def test_a_version_whose_commit_is_gone_has_no_timestamp(log: DeltaLog) -> None:
    log.checkpoint(4)
    log.path(4).unlink()
    assert Snapshot.load(open_storage(log.table)).timestamp is None
    for version in range(4):
        log.path(version).unlink()
    with pytest.raises(VersionNotFound, match="its log has no commits any more"):
        find_version_after(log, 10)


@pytest.mark.parametrize("text", ["1e400", "Infinity", "NaN", "true", "10000000000000000000000000000", "[]"])
def test_X8_an_invalid_in_commit_timestamp_is_an_error_or_null(tmp_path: Path, text: str) -> None:
    log = write_in_commit_timestamps(tmp_path, [0], [0], None)
    log.write(1, f'{{"commitInfo":{{"inCommitTimestamp":{text}}}}}\n')
    storage = open_storage(tmp_path)
    assert Snapshot.load(storage).history()["timestamp"].to_pylist() == [None, START]
    with pytest.raises(CorruptFile, match=r"0001\.json' has no inCommitTimestamp"):
        assert Snapshot.load(storage).timestamp
    with pytest.raises(CorruptFile, match=r"0001\.json' has no inCommitTimestamp"):
        find_version(log, START + timedelta(days=1))


def test_X8_a_line_that_names_commit_info_very_often_is_parsed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = write_in_commit_timestamps(tmp_path, [0], [0], None)
    tags = {"add": {"path": "1", "tags": [{"commitInfo": number} for number in range(1000)]}}
    log.commit(tags, commit_info(inCommitTimestamp=compute_ms(7)))
    parsed: list[bytes] = []
    loads = json.loads

    def count_parsed(text: bytes) -> Any:
        parsed.append(text)
        return loads(text)

    monkeypatch.setattr("tamis.formats.delta.log.commit_timestamps.json.loads", count_parsed)
    storage = open_storage(tmp_path)
    newest = list_log(storage).get_commit(1)
    assert newest is not None
    assert read_in_commit_timestamp(storage, newest) == compute_ms(7)
    assert len(parsed) == 2
