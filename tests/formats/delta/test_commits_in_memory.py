"""Cached rows of commits belong to the snapshot that combined them, and keep its order."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import tamis
from builders.delta.log import DeltaLog, add, remove
from tamis.formats.delta import snapshot
from tamis.formats.delta.planning.file_batches import FILE_BATCH_CACHE
from tamis.formats.delta.snapshot import Snapshot
from tamis.io.storage import open_storage


def make_file(number: int) -> dict[str, object]:
    bounds = {"minValues": {"id": number * 10}, "maxValues": {"id": number * 10 + 9}, "nullCount": {"id": 0}}
    return add(f"f{number}", {"day": str(number % 2)}, stats=json.dumps({"numRecords": 10, **bounds}))


def plan_files(table: tamis.Table, where: str) -> set[str]:
    return {Path(path).name for path in table.scan(where).plan("files").files["path"].to_pylist()}


def test_D17_a_refreshed_and_a_fresh_snapshot_do_not_share_rows(tmp_path: Path) -> None:
    FILE_BATCH_CACHE.clear()
    log = DeltaLog(tmp_path, {"day": "string", "id": "long"}, partition_columns=["day"])
    log.commit(*(make_file(number) for number in range(6)))
    first = tamis.open(tmp_path)
    assert plan_files(first, "day = '1' AND id >= 30") == {"f3", "f5"}
    log.commit(remove("f0"), remove("f3"), make_file(6), make_file(7))
    log.commit(make_file(3))
    refreshed, fresh = first.refresh(), tamis.open(tmp_path)
    assert (first.version, refreshed.version, fresh.version) == (first.version, fresh.version, fresh.version)
    for table in (refreshed, fresh, refreshed, fresh):
        for number in (1, 2, 3, 4, 5, 6, 7):
            assert plan_files(table, f"id = {number * 10 + 5}") == {f"f{number}"}
            assert plan_files(table, f"day = '{number % 2}' AND id BETWEEN {number * 10} AND {number * 10 + 3}") == {
                f"f{number}"
            }
        assert plan_files(table, "id < 10") == set()
    assert plan_files(first, "id < 10") == {"f0"}


def test_commits_are_identified_by_content_and_not_by_modification_time(tmp_path: Path) -> None:
    """A table that is rewritten within the resolution of modification times has new files."""
    log = DeltaLog(tmp_path, {"day": "string", "id": "long"}, partition_columns=["day"])
    log.commit(*(make_file(number) for number in range(4)))
    (commit,) = (tmp_path / "_delta_log").glob("*.json")
    before = commit.stat()
    assert plan_files(tamis.open(tmp_path), "id >= 30") == {"f3"}
    commit.write_text(commit.read_text().replace('"f3"', '"g3"'))
    os.utime(commit, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (commit.stat().st_size, commit.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert plan_files(tamis.open(tmp_path), "id >= 30") == {"g3"}


def test_a_table_that_is_opened_again_decodes_its_commits_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = DeltaLog(tmp_path, {"day": "string", "id": "long"}, partition_columns=["day"])
    log.commit(*(make_file(number) for number in range(4)))
    assert plan_files(tamis.open(tmp_path), "id >= 30") == {"f3"}
    with monkeypatch.context() as patch:
        patch.delattr(snapshot, "decode_file_actions")
        assert plan_files(tamis.open(tmp_path), "id >= 20") == {"f2", "f3"}
    log.commit(remove("f3"))
    assert plan_files(tamis.open(tmp_path), "id >= 20") == {"f2"}


@pytest.mark.parametrize("most", [1, 700, 2000, 10_000])
def test_long_statistics_of_commits_are_read_in_the_same_batches_for_all_columns(tmp_path: Path, most: int) -> None:
    """An Arrow string array holds 2 GiB; longer statistics must not be lost."""
    tuning = tamis.Tuning(max_statistics_bytes=most)
    log = DeltaLog(tmp_path, {"id": "long"})
    lengths = [0, 500, 5, 1500, 10, 10, 600, 90]
    for number, length in enumerate(lengths):
        stats = json.dumps(
            {"numRecords": number, "minValues": {"id": number}, "maxValues": {"id": number}, "x": "x" * length}
        )
        log.commit(add(f"f{number}", stats=stats if length else None))
    log.commit(remove("f5"))
    (part,) = Snapshot.load(open_storage(tmp_path).with_tuning(tuning)).list_parts()
    by_columns = [[batch.num_rows for batch in part.read(columns)] for columns in (("path",), ("path", "stats"))]
    assert by_columns[0] == by_columns[1]
    assert sum(by_columns[0]) == len(lengths) - 1
    assert (len(by_columns[0]) > 1) == (most < 10_000)
    assert plan_files(tamis.open(tmp_path, tuning=tuning), "id < 2") == {"f0", "f1"}
