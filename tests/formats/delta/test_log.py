"""Which files of a log make up a version: gaps, missing parts, empty files, wrong hints."""

from pathlib import Path

import pytest

from builders.delta.log import DeltaLog, add, commit_info, remove
from tamis.errors import CorruptFile, TableNotFound, VersionNotFound
from tamis.formats.delta.log.log_segment import CheckpointKind, LogSegment, find_candidate_segments, list_log
from tamis.formats.delta.snapshot import Snapshot
from tamis.io.storage import open_storage


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    """Versions 0 to 6; each adds a file."""
    log = DeltaLog(tmp_path)
    for version in range(7):
        log.commit(commit_info(), add(f"{version}.parquet"))
    return log


def find_segment(log: DeltaLog, version: int | None = None) -> LogSegment:
    return next(find_candidate_segments(list_log(open_storage(log.table)), version))


def list_paths(log: DeltaLog, version: int | None = None) -> list[str]:
    snapshot = Snapshot.load(open_storage(log.table), version)
    return sorted(
        path for part in snapshot.list_parts() for batch in part.read(["path"]) for path in batch["path"].to_pylist()
    )


def find_checkpoint(log: DeltaLog, version: int | None = None) -> int | None:
    found = find_segment(log, version).checkpoint
    return None if found is None else found.version


def list_covered_versions(log: DeltaLog, version: int | None = None) -> list[tuple[int, int]]:
    return [(file.first, file.last) for file in find_segment(log, version).deltas]


def test_without_a_checkpoint_all_commits_are_used_in_version_order(log: DeltaLog) -> None:
    assert list_covered_versions(log) == [(version, version) for version in range(7)]
    assert find_segment(log).version == 6


def test_the_newest_checkpoint_and_the_commits_after_it(log: DeltaLog) -> None:
    log.checkpoint(2)
    log.checkpoint(4)
    assert find_checkpoint(log) == 4
    assert list_covered_versions(log) == [(5, 5), (6, 6)]
    assert list_paths(log) == [f"{version}.parquet" for version in range(7)]


def test_a_checkpoint_of_the_wanted_version_needs_no_commit(log: DeltaLog) -> None:
    log.checkpoint(6)
    assert list_covered_versions(log) == []
    assert len(list_paths(log)) == 7


def test_D17_a_checkpoint_newer_than_the_wanted_version_is_not_used(log: DeltaLog) -> None:
    log.checkpoint(2)
    log.checkpoint(5)
    assert find_checkpoint(log, 4) == 2
    assert list_covered_versions(log, 4) == [(3, 3), (4, 4)]
    assert list_paths(log, 4) == [f"{version}.parquet" for version in range(5)]
    assert find_checkpoint(log, 1) is None
    assert list_paths(log, 1) == ["0.parquet", "1.parquet"]


def test_D7_a_multi_part_checkpoint_with_a_missing_part_falls_back_to_an_older_one(log: DeltaLog) -> None:
    log.checkpoint(2)
    whole = log.checkpoint(5, parts=3)
    assert (find_checkpoint(log), find_segment(log).checkpoint.kind) == (5, CheckpointKind.MULTI_PART)  # type: ignore[union-attr]
    whole[1].unlink()
    assert find_checkpoint(log) == 2
    assert list_paths(log) == [f"{version}.parquet" for version in range(7)]


def test_D7_parts_of_two_checkpoints_of_one_version_are_not_mixed(log: DeltaLog) -> None:
    log.checkpoint(5, parts=2)[1].unlink()
    log.checkpoint(5, parts=3)[2].unlink()
    assert find_checkpoint(log) is None
    log.checkpoint(5, parts=3)
    assert len(find_segment(log).checkpoint.files) == 3  # type: ignore[union-attr]
    assert list_paths(log) == [f"{version}.parquet" for version in range(7)]


def test_D7_a_name_that_claims_a_billion_parts_costs_nothing(log: DeltaLog) -> None:
    (log.folder / f"{5:020}.checkpoint.{1:010}.{9_999_999_999:010}.parquet").write_bytes(b"PAR1")
    assert find_checkpoint(log) is None


@pytest.mark.parametrize(
    "hint",
    ['{"version":6,"size":3}', '{"version":99,"size":3}', '{"version":2', "", "no JSON", '{"version":"x"}', "[]"],
)
def test_D9_the_hint_may_be_stale_or_corrupt(log: DeltaLog, hint: str) -> None:
    log.checkpoint(4)
    log.write_hint(hint)
    assert find_checkpoint(log) == 4
    assert list_paths(log) == [f"{version}.parquet" for version in range(7)]


def test_D10_a_compaction_replaces_its_commits(log: DeltaLog) -> None:
    log.compact(1, 3)
    assert list_covered_versions(log) == [(0, 0), (1, 3), (4, 4), (5, 5), (6, 6)]
    assert list_paths(log) == [f"{version}.parquet" for version in range(7)]


def test_D10_the_longest_usable_compaction_is_used(log: DeltaLog) -> None:
    for first, last in [(1, 2), (1, 4), (2, 6), (5, 6)]:
        log.compact(first, last)
    assert list_covered_versions(log) == [(0, 0), (1, 4), (5, 6)]
    assert list_covered_versions(log, 3) == [(0, 0), (1, 2), (3, 3)]
    assert list_paths(log, 3) == [f"{version}.parquet" for version in range(4)]


def test_D10_a_compaction_across_the_checkpoint_is_not_used(log: DeltaLog) -> None:
    log.compact(2, 5)
    log.checkpoint(3)
    assert list_covered_versions(log) == [(4, 4), (5, 5), (6, 6)]


def test_D10_a_compaction_of_removals_removes_files_of_the_checkpoint(log: DeltaLog) -> None:
    log.checkpoint(6)
    log.commit(remove("0.parquet"))
    log.commit(add("9.parquet"), remove("1.parquet"))
    log.commit(remove("9.parquet"), add("0.parquet", size=5))
    log.compact(7, 9)
    assert list_covered_versions(log) == [(7, 9)]
    assert list_paths(log) == ["0.parquet", *(f"{version}.parquet" for version in range(2, 7))]


def test_D10_a_compaction_replaces_missing_commits(log: DeltaLog) -> None:
    log.compact(1, 6)
    for version in range(1, 6):
        log.path(version).unlink()
    assert list_covered_versions(log) == [(0, 0), (1, 6)]


def test_D10_an_empty_compaction_is_skipped(log: DeltaLog) -> None:
    log.compact(1, 3).write_bytes(b"")
    assert list_covered_versions(log) == [(version, version) for version in range(7)]


def test_D11_a_gap_in_the_log_is_an_error_that_names_the_version(log: DeltaLog) -> None:
    log.path(3).unlink()
    with pytest.raises(CorruptFile, match=r"commit 3 is missing .* version 6 needs it"):
        find_segment(log)
    with pytest.raises(CorruptFile, match="commit 3 is missing"):
        find_segment(log, 3)
    assert list_paths(log, 2) == ["0.parquet", "1.parquet", "2.parquet"]


def test_D11_a_gap_before_the_checkpoint_is_ignored(log: DeltaLog) -> None:
    log.checkpoint(4)
    log.path(3).unlink()
    assert list_paths(log) == [f"{version}.parquet" for version in range(7)]


def test_D11_a_log_without_a_start_is_an_error(log: DeltaLog) -> None:
    log.path(0).unlink()
    with pytest.raises(CorruptFile, match="version 6 needs a complete checkpoint or commit 0"):
        find_segment(log)


def test_D11_a_log_whose_beginning_was_cleaned_up_is_read_from_its_checkpoint(log: DeltaLog) -> None:
    log.checkpoint(4)
    for version in range(4):
        log.path(version).unlink()
    assert list_paths(log) == [f"{version}.parquet" for version in range(7)]
    with pytest.raises(VersionNotFound, match=r"no version 2 of .*: versions 4 to 6 exist"):
        find_segment(log, 2)


def test_D11_a_version_whose_earlier_commits_are_gone(log: DeltaLog) -> None:
    log.checkpoint(4)
    log.path(0).unlink()
    with pytest.raises(VersionNotFound, match=r"no version 2 of .*: versions 4 to 6 exist"):
        find_segment(log, 2)


@pytest.mark.parametrize("version", [7, 99, 2**62])
def test_a_version_that_does_not_exist(log: DeltaLog, version: int) -> None:
    with pytest.raises(VersionNotFound, match=rf"no version {version} of .*: versions 0 to 6 exist"):
        find_segment(log, version)


def test_D12_an_empty_commit_is_an_error(log: DeltaLog) -> None:
    log.write(7, b"")
    with pytest.raises(CorruptFile, match=r"0000000007\.json' is empty"):
        find_segment(log)
    assert find_segment(log, 6).version == 6


def test_D12_an_empty_checkpoint_is_skipped(log: DeltaLog) -> None:
    log.checkpoint(2)
    log.checkpoint(5)[0].write_bytes(b"")
    assert find_checkpoint(log) == 2
    log.checkpoint(6, parts=2)[1].write_bytes(b"")
    assert find_checkpoint(log) == 2
    assert list_paths(log) == [f"{version}.parquet" for version in range(7)]


def test_D12_checksum_files_are_ignored(log: DeltaLog) -> None:
    log.path(6, "crc").write_bytes(b"")
    log.path(5, "crc").write_text("no JSON")
    (log.folder / f".{6:020}.json.crc").write_bytes(b"")
    assert len(list_paths(log)) == 7


def test_files_with_other_names_are_ignored(log: DeltaLog) -> None:
    for name in [
        "7.json",
        f"{7:020}.json.tmp",
        f"_{7:020}.json",
        f"{7:020}.checkpoint.json",
        f"{7:020}.checkpoint.not-a-uuid.parquet",
        f"{'9' * 20}.json",
        f"{3:020}.{1:020}.compacted.json",
        f"{7:020}.{make_uuid()}.json",
    ]:
        (log.folder / name).write_text("x")
    (log.folder / "_staged_commits").mkdir()
    assert find_segment(log).version == 6
    assert len(list_paths(log)) == 7


def make_uuid() -> str:
    return "016ae953-37a9-438e-8683-9a9a4a79a395"


def test_a_folder_without_a_log_is_not_a_table(tmp_path: Path) -> None:
    with pytest.raises(TableNotFound, match="it has no directory _delta_log"):
        list_log(open_storage(tmp_path))
    with pytest.raises(TableNotFound, match="no Delta table"):
        list_log(open_storage(tmp_path / "nowhere"))
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(TableNotFound, match="neither a commit nor a checkpoint"):
        list_log(open_storage(tmp_path))


def test_of_checkpoints_of_one_version_the_one_with_most_parts_is_preferred(log: DeltaLog) -> None:
    log.checkpoint(5)
    assert find_segment(log).checkpoint.kind is CheckpointKind.CLASSIC  # type: ignore[union-attr]
    log.checkpoint(5, parts=2)
    assert find_segment(log).checkpoint.kind is CheckpointKind.MULTI_PART  # type: ignore[union-attr]
    log.checkpoint(5, sidecars=2, top="json")
    assert find_segment(log).checkpoint.kind is CheckpointKind.WITH_SIDECARS  # type: ignore[union-attr]


def test_one_listing_and_no_other_request(log: DeltaLog) -> None:
    log.checkpoint(4)
    log.write_hint('{"version":4,"size":5}')
    storage = open_storage(log.table)
    next(find_candidate_segments(list_log(storage)))
    assert (storage.counters.listing_calls, storage.counters.requests) == (1, 1)
