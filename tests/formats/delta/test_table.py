"""A Delta table through the public API: which files a scan plans, by which skipping strategy, and what it reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tamis
from builders.delta.log import DeltaLog, add, commit_info, metadata, remove
from builders.delta.statistics import field
from builders.delta.tables import compute_statistics, data_file, make_inline_vector
from tamis import PartitionFilter, col
from tamis.errors import CorruptFile, InvalidArgument, MissingFile, UnsupportedFeature, VersionNotFound
from tamis.formats.delta.planning.file_batches import FILE_BATCH_CACHE, FILE_COLUMNS, read_batches
from tamis.formats.delta.snapshot import Snapshot
from tamis.io.counters import IoCounts
from tamis.io.storage import open_storage


@pytest.fixture(autouse=True)
def _nothing_in_memory() -> None:
    FILE_BATCH_CACHE.clear()


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    """Two files of three rows in each of the partitions a and b; one has no statistics, one has deleted rows."""
    log = DeltaLog(tmp_path, {"p": "string", "id": "long"}, partition_columns=["p"], features=["deletionVectors"])
    log.commit(
        data_file(log, "p=a/0.parquet", make_ids(0, 3), {"p": "a"}),
        data_file(log, "p=a/10.parquet", make_ids(10, 13), {"p": "a"}, stats=None),
        data_file(log, "p=b/20.parquet", make_ids(20, 23), {"p": "b"}, deleted=[1]),
        data_file(log, "p=b/30.parquet", make_ids(30, 33), {"p": "b"}),
    )
    return log


def make_ids(start: int, end: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, end), pa.int64())})


def find_ids(table: tamis.Table, where: object = None, **options: Any) -> list[int]:
    return sorted(table.scan(where, **options).to_arrow()["id"].to_pylist())


def plan_files(table: tamis.Table, where: object = None, **options: Any) -> list[str]:
    """Return the names of the files that a scan plans."""
    paths = table.scan(where, **options).plan("files").files["path"].to_pylist()
    return sorted(Path(path).name for path in paths)


def report_levels(table: tamis.Table, where: object = None, **options: Any) -> dict[str, dict[str, Any]]:
    report = table.scan(where, **options).plan("files").report.to_dict()
    return {level["level"]: level for level in report["levels"]}


def count_io(table: tamis.Table) -> IoCounts:
    """Return the I/O counts of the log so far."""
    return table._source.storage.counters.counts()


# --- Which files, by which skipping strategy --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "limit", "skipping", "after_partitions", "left"),
    [
        (None, None, "none", ["0", "10", "20", "30"], ["0", "10", "20", "30"]),
        ("p = 'b'", None, "partition (", ["20", "30"], ["20", "30"]),
        ("id > 25", None, "partition + statistics", ["0", "10", "20", "30"], ["10", "30"]),
        ("p = 'b' AND id > 25", None, "partition + statistics", ["20", "30"], ["30"]),
        (None, 2, "limit", ["0", "10", "20", "30"], ["0"]),
        ("p = 'b'", 3, "limit", ["20", "30"], ["20", "30"]),
    ],
)
def test_the_report_names_the_four_skipping_strategies_and_their_sizes_add_up(
    log: DeltaLog, where: str | None, limit: int | None, skipping: str, after_partitions: list[str], left: list[str]
) -> None:
    table = tamis.open(log.table)
    sizes = {path.stem: path.stat().st_size for path in log.table.glob("p=*/*.parquet")}
    assert plan_files(table, where, limit=limit) == [f"{name}.parquet" for name in left]
    found = report_levels(table, where, limit=limit)
    partitions, files = found["partitions"], found["files"]
    assert f"skipping: {skipping}" in files["note"]
    assert (partitions["total"], partitions["bytes_total"]) == (4, sum(sizes.values()))
    assert (partitions["kept"], partitions["bytes_kept"]) == (
        len(after_partitions),
        sum(sizes[name] for name in after_partitions),
    )
    assert (files["total"], files["bytes_total"]) == (partitions["kept"], partitions["bytes_kept"])
    assert (files["kept"], files["bytes_kept"]) == (len(left), sum(sizes[name] for name in left))


def test_partition_only_does_not_read_statistics(log: DeltaLog) -> None:
    text = json.dumps({"numRecords": 1, "minValues": {"id": 0}, "maxValues": {"id": 9}, "more": "x" * 1000})
    log.commit(*(add(f"f{number}", {"p": "c"}, stats=text + " " * number) for number in range(200)))
    log.checkpoint(1)
    for version in (2, 3):
        log.commit(commit_info(), version=version)
    read = []
    for where in ("p = 'c'", "p = 'c' AND id = 1"):
        FILE_BATCH_CACHE.clear()
        table = tamis.open(log.table)
        before = count_io(table)
        table.scan(where).plan("files")
        read.append((count_io(table) - before).bytes_read)
    assert read[0] < read[1]


def test_statistics_that_are_not_needed_may_be_invalid(log: DeltaLog) -> None:
    log.commit(data_file(log, "40.parquet", make_ids(40, 42), {"p": "c"}, stats='{"numRecords": '))
    table = tamis.open(log.table)
    assert find_ids(table, "p = 'c'") == [40, 41]
    assert find_ids(table, "p = 'c' AND id > 40") == [41]
    assert table.scan("p = 'c'").count() == 2


def test_a_limit_picks_files_by_their_logical_rows_and_those_without_statistics_last(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, features=["deletionVectors"])
    log.commit(
        data_file(log, "unknown.parquet", make_ids(0, 9), stats=None),
        data_file(log, "one_left.parquet", make_ids(10, 14), deleted=[0, 1, 2]),
        data_file(log, "empty.parquet", make_ids(20, 22), deleted=[0, 1]),
        data_file(log, "three.parquet", make_ids(30, 33)),
    )
    table = tamis.open(tmp_path)
    assert "unknown.parquet" not in plan_files(table, limit=4)
    assert {"one_left.parquet", "three.parquet"} <= set(plan_files(table, limit=4))
    assert "unknown.parquet" in plan_files(table, limit=5)
    for limit in range(14):
        assert table.scan(limit=limit).to_arrow().num_rows == limit
        assert table.scan(limit=limit).count() == limit
    assert table.scan(limit=100).count() == 13
    assert plan_files(table, limit=0) == []


def test_a_limit_with_a_residual_keeps_every_file(log: DeltaLog) -> None:
    table = tamis.open(log.table)
    assert plan_files(table, "id >= 0", limit=1) == ["0.parquet", "10.parquet", "20.parquet", "30.parquet"]
    assert "skipping: partition + statistics" in report_levels(table, "id >= 0", limit=1)["files"]["note"]
    # Without partition pruning the filter is a residual, so it is unknown how many files are enough.
    assert len(plan_files(table, "p = 'b'", limit=1, levels=["files"])) == 4
    assert find_ids(table, "p = 'b'", limit=9, levels=["files"]) == [20, 22, 30, 31, 32]
    # Predicates over partition values, and over functions of them, leave no residual.
    assert len(plan_files(table, "upper(p) = 'B'", limit=1)) == 1
    assert len(find_ids(table, "upper(p) = 'B'", limit=4)) == 4


def test_N10_one_missing_statistic_does_not_switch_off_the_others(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long", "s": "string"})
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "s": ["a", "b"]})
    log.commit(
        data_file(log, "without_s.parquet", rows, stats=compute_statistics(rows, without=["s"])),
        data_file(log, "without_id.parquet", rows, stats=compute_statistics(rows, without=["id"])),
        data_file(log, "whole.parquet", rows),
    )
    table = tamis.open(tmp_path)
    assert plan_files(table, "id > 5 AND s = 'a'") == ["without_id.parquet"]
    assert plan_files(table, "id = 1 AND s = 'z'") == ["without_s.parquet"]
    assert plan_files(table, "id > 5 OR s = 'z'") == ["without_id.parquet", "without_s.parquet"]
    assert plan_files(table, "id > 5 AND s = 'z'") == []


def test_IN_prunes_by_its_values_and_not_by_their_range(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path)
    log.commit(*(data_file(log, f"{start}.parquet", make_ids(start, start + 10)) for start in range(0, 100, 10)))
    table = tamis.open(tmp_path)
    assert plan_files(table, "id IN (5, 95)") == ["0.parquet", "90.parquet"]
    assert plan_files(table, col("id").isin([5, *range(200, 2000)])) == ["0.parquet"]


def test_D18_generated_columns_choose_partitions(tmp_path: Path) -> None:
    fields = [
        field("ts", "timestamp"),
        field("day", "date", **{"delta.generationExpression": "CAST(ts AS DATE)"}),
        field("id", "long"),
    ]
    log = DeltaLog(tmp_path, fields, partition_columns=["day"])
    for number in (1, 10, 20):
        timestamp = datetime(2024, 3, number, 12, tzinfo=UTC)
        rows = pa.table({"ts": pa.array([timestamp], pa.timestamp("us", "UTC")), "id": pa.array([number], pa.int64())})
        log.commit(data_file(log, f"{number}.parquet", rows, {"day": f"2024-03-{number:02}"}, stats=None))
    table = tamis.open(tmp_path)
    # The zone of the writer's day is unknown, so the neighbouring days are kept too.
    assert plan_files(table, "ts >= TIMESTAMP '2024-03-05 00:00:00Z'") == ["10.parquet", "20.parquet"]
    assert find_ids(table, "ts >= TIMESTAMP '2024-03-10 13:00:00Z'") == [20]
    assert report_levels(table, "ts < TIMESTAMP '2024-03-05 00:00:00Z'")["partitions"]["kept"] == 1


# --- count() ----------------------------------------------------------------------------------------------------------


def test_count_is_net_of_deletion_vectors_and_opens_no_data_file(log: DeltaLog) -> None:
    log.commit(remove("p=a/10.parquet"))
    for path in log.table.glob("p=*/*.parquet"):
        path.unlink()
    table = tamis.open(log.table)
    assert table.scan().count() == 3 + 2 + 3
    assert table.scan("p = 'b'").count() == 2 + 3
    assert table.scan("p = 'b' AND id >= 30").count() == 3
    assert table.scan(PartitionFilter.eq("p", "a")).count() == 3
    for where in (None, "p = 'b'", "p = 'nowhere'"):
        scan = table.scan(where)
        scan.count()
        assert scan.report is not None
        assert scan.report.requests == 0


def test_count_reads_files_without_row_counts(log: DeltaLog) -> None:
    table = tamis.open(log.table)
    assert table.scan().count() == 3 + 3 + 2 + 3
    assert table.scan("id > 20").count() == 1 + 3
    assert table.scan("id = 21").count() == 0
    assert table.scan("id <> 11").count() == 3 + 2 + 2 + 3
    assert table.scan("p = 'a' AND id < 11", limit=2).count() == 2


def test_bounds_that_are_not_tight_prove_no_match(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, features=["deletionVectors"])
    rows = pa.table({"id": pa.array([1, None, 3], pa.int64())})
    log.commit(data_file(log, "1.parquet", rows, stats=compute_statistics(rows, tight=False), deleted=[1]))
    table = tamis.open(tmp_path)
    assert table.scan("id IS NULL").count() == 0
    assert table.scan("id IS NOT NULL").count() == 2
    assert table.scan("id >= 1").count() == 2


# --- Files ------------------------------------------------------------------------------------------------------------


def test_E2_a_missing_data_file_is_an_error_with_its_path_and_version(log: DeltaLog) -> None:
    (log.table / "p=b" / "30.parquet").unlink()
    table = tamis.open(log.table)
    assert find_ids(table, "p = 'a'") == [0, 1, 2, 10, 11, 12]
    for where in (None, "p = 'b'", "id > 29"):
        with pytest.raises(MissingFile, match=r"p=b/30\.parquet") as raised:
            table.scan(where).to_arrow()
        assert "version 0" in str(raised.value)
        # A newer version may not exist.
        assert str(raised.value).endswith("open a newer version; if this is the newest, restore the file")


def test_E2_a_missing_file_is_an_error_even_if_the_log_gives_a_small_size(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path)
    log.commit(add("gone.parquet", size=1))
    with pytest.raises(MissingFile, match="gone"):
        tamis.open(tmp_path).scan().to_arrow()


def test_X7_absolute_paths_outside_are_read_only_if_allowed(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path / "table")
    elsewhere = DeltaLog(tmp_path / "elsewhere")
    outside = data_file(elsewhere, "1.parquet", make_ids(0, 2))["add"] | {
        "path": f"file://{tmp_path}/elsewhere/1.parquet"
    }
    inside = data_file(log, "2.parquet", make_ids(5, 7))["add"] | {"path": f"file://{tmp_path}/table/2.parquet"}
    log.commit({"add": inside})
    assert find_ids(tamis.open(log.table)) == [5, 6]
    log.commit({"add": outside})
    for ask in (lambda table: table.scan().to_arrow(), lambda table: table.scan().plan("files")):
        with pytest.raises(UnsupportedFeature, match="allow_outside"):
            ask(tamis.open(log.table))
    allowed = tamis.open(log.table, allow_outside=True)
    assert find_ids(allowed) == [0, 1, 5, 6]
    assert find_ids(allowed.refresh()) == [0, 1, 5, 6]


def test_X7_a_path_with_parent_directories_is_rejected(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path / "table")
    data_file(DeltaLog(tmp_path / "other"), "1.parquet", make_ids(0, 2))
    log.commit(add("%2e%2e/other/1.parquet", size=10))
    for allow_outside in (False, True):
        with pytest.raises(tamis.TamisError, match=r"must not contain|outside"):
            tamis.open(log.table, allow_outside=allow_outside).scan().to_arrow()


def test_D2_paths_are_decoded_once(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path)
    names = ["a%25b.parquet", "a b.parquet", "é+.parquet", "x=%2F/1.parquet"]
    log.commit(*(data_file(log, name, make_ids(number, number + 1)) for number, name in enumerate(names)))
    assert find_ids(tamis.open(tmp_path)) == [0, 1, 2, 3]


def test_D3_a_partition_filter_sees_an_empty_text_as_null(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"p": "string", "id": "long"}, partition_columns=["p"])
    log.commit(
        *(data_file(log, f"{n}", make_ids(n, n + 1), {"p": text}) for n, text in enumerate(["a", "", None, "null"]))
    )
    table = tamis.open(tmp_path)
    assert find_ids(table, PartitionFilter.is_null("p")) == [1, 2]
    assert find_ids(table, PartitionFilter.eq("p", "a")) == [0]
    assert find_ids(table, PartitionFilter.eq("p", "")) == []
    assert find_ids(table, PartitionFilter.not_(PartitionFilter.is_null("p"))) == [0, 3]
    assert table.scan(PartitionFilter.is_null("p")).count() == 2
    assert report_levels(table, PartitionFilter.is_null("p"))["partitions"]["kept"] == 2


def test_a_partition_filter_over_cached_files_may_also_need_row_counts(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"p": "string", "id": "long"}, partition_columns=["p"])
    log.commit(*(data_file(log, f"{n}.parquet", make_ids(n, n + 1), {"p": "ab"[n % 2]}) for n in range(6)))
    log.checkpoint(0, row_group_size=2)
    log.commit(commit_info())
    table = tamis.open(tmp_path)
    assert find_ids(table) == list(range(6))
    assert table.scan(PartitionFilter.eq("p", "a")).count() == 3
    assert len(find_ids(table, PartitionFilter.eq("p", "b"), limit=2)) == 2


# --- Versions ---------------------------------------------------------------------------------------------------------


def test_E1_a_table_is_pinned_until_it_is_refreshed(log: DeltaLog) -> None:
    table = tamis.open(log.table)
    before = find_ids(table)
    log.commit(remove("p=b/30.parquet"), data_file(log, "40.parquet", make_ids(40, 42), {"p": "c"}))
    assert (table.version, find_ids(table), table.scan().count()) == (0, before, len(before))
    newest = table.refresh()
    assert (newest.version, table.version) == (1, 0)
    assert find_ids(newest) == [0, 1, 2, 10, 11, 12, 20, 22, 40, 41]
    assert find_ids(table) == before


def test_refresh_reads_only_the_new_commits(log: DeltaLog) -> None:
    for _ in range(5):
        log.commit(data_file(log, f"{log.version}.parquet", make_ids(50, 51), {"p": "d"}))
    table = tamis.open(log.table)
    find_ids(table)
    assert table.refresh().version == table.version
    version = log.commit(data_file(log, "60.parquet", make_ids(60, 61), {"p": "d"}))
    before = count_io(table)
    newest = table.refresh()
    used = count_io(table) - before
    assert used.bytes_read == log.path(version).stat().st_size
    assert used.listing_calls == 1
    assert 60 in find_ids(newest)


def test_a_second_plan_reads_nothing_of_the_log(log: DeltaLog) -> None:
    log.checkpoint(0, row_group_size=2)
    log.commit(data_file(log, "40.parquet", make_ids(40, 42), {"p": "c"}))
    table = tamis.open(log.table)
    for where in (None, "p = 'b'", "p <> 'a' AND id > 25", "id IN (1, 40)"):
        first = plan_files(table, where)
        before = count_io(table)
        assert plan_files(table, where) == first
        assert plan_files(tamis.open(log.table), where) == first
        assert count_io(table) == before, where


def test_a_plan_from_the_cache_reads_statistics_only_of_parts_that_partition_pruning_keeps(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"p": "string", "id": "long"}, partition_columns=["p"])
    texts = [json.dumps({"numRecords": 1, "minValues": {"id": number}}) for number in range(100)]
    log.commit(*(add(f"f{number}", {"p": "abcd"[number % 4]}, stats=text) for number, text in enumerate(texts)))
    parts = log.checkpoint(0, parts=4)
    table = tamis.open(tmp_path)
    assert len(plan_files(table, "p = 'a'")) == 25
    before = count_io(table)
    assert len(plan_files(table, "p = 'a' AND id >= 0")) == 25
    used = count_io(table) - before
    assert used.requests == 1
    assert used.bytes_read < max(path.stat().st_size for path in parts)


def test_cached_files_of_one_version_do_not_leak_into_another(log: DeltaLog) -> None:
    log.checkpoint(0)
    log.commit(remove("p=b/30.parquet"))
    log.commit(data_file(log, "40.parquet", make_ids(40, 42), {"p": "c"}), remove("p=a/0.parquet"))
    expected = {version: len(log.list_live_files(version)) for version in range(3)}
    tables = {version: tamis.open(log.table, version=version) for version in range(3)}
    for version in (2, 0, 1, 0, 2, 1):
        assert len(plan_files(tables[version])) == expected[version]
        assert len(plan_files(tables[version], "id >= 0")) == expected[version]


class Interrupted:
    """A lock that lets another thread run once, right after its release."""

    def __init__(self, other: Callable[[], object]) -> None:
        self._others = [other]

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        if self._others:
            self._others.pop()()


def test_threads_with_other_versions_do_not_change_which_files_are_live(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path)
    log.commit(add("0"), add("1"), add("2"))
    log.checkpoint(0)
    log.commit(remove("1"))
    log.commit(remove("0"))
    (first, second) = (Snapshot.load(open_storage(tmp_path), version) for version in (1, 2))
    ((batch, _),) = read_batches(first.list_parts()[-1], first.metadata, FILE_COLUMNS)
    object.__setattr__(batch, "_lock", Interrupted(lambda: batch.find_live(second.list_parts()[-1])))
    assert batch.find_live(first.list_parts()[-1]).tolist() == [True, False, True]
    assert batch.find_live(second.list_parts()[-1]).tolist() == [False, False, True]


def test_changed_partitioning_with_the_same_schema(tmp_path: Path) -> None:
    columns = {"id": "long", "p": "string", "q": "string"}
    log = DeltaLog(tmp_path, columns, partition_columns=["p"])
    one = pa.array([1], pa.int64())
    log.commit(data_file(log, "1.parquet", pa.table({"id": one, "q": ["x"]}), {"p": "a"}))
    log.checkpoint(0)
    second = data_file(log, "2.parquet", pa.table({"id": one, "p": ["y"]}), {"q": "b"})
    log.commit(metadata(columns, ["q"]), remove("1.parquet"), second)
    for version, row in ((0, {"p": "a", "q": "x"}), (1, {"p": "y", "q": "b"}), (0, {"p": "a", "q": "x"})):
        table = tamis.open(tmp_path, version=version)
        assert table.scan().to_arrow().to_pylist() == [{"id": 1} | row]
        assert find_ids(table, " AND ".join(f"{name} = '{value}'" for name, value in row.items())) == [1]


def test_D17_time_travel_by_version_and_by_timestamp(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path)
    hour = 3_600_000
    for version in range(4):
        added = data_file(log, f"{version}.parquet", make_ids(version, version + 1))
        log.commit(commit_info(timestamp=version * hour), added, milliseconds=version * hour)
    log.checkpoint(3)
    for version in range(4):
        assert find_ids(tamis.open(tmp_path, version=version)) == list(range(version + 1))
    for timestamp, version in [
        ("1970-01-01T01:00:00Z", 1),
        ("1970-01-01 02:59:59", 2),
        (datetime(1970, 1, 1, 3, tzinfo=UTC), 3),
    ]:
        table = tamis.open(tmp_path, timestamp=timestamp)
        assert (table.version, find_ids(table)) == (version, list(range(version + 1)))
    assert tamis.open(tmp_path, version=1).refresh().version == 3
    with pytest.raises(VersionNotFound, match="4"):
        tamis.open(tmp_path, version=4)
    with pytest.raises(VersionNotFound):
        tamis.open(tmp_path, timestamp="1969-12-31T00:00:00Z")
    with pytest.raises(InvalidArgument):
        tamis.open(tmp_path, version=1, timestamp="1970-01-01T01:00:00Z")


def test_history_is_newest_first_and_ends_at_the_version(log: DeltaLog) -> None:
    log.commit(commit_info(operation="DELETE"), remove("p=b/30.parquet"))
    log.commit(commit_info(operation="WRITE"))
    assert tamis.open(log.table).history()["version"].to_pylist() == [2, 1, 0]
    assert tamis.open(log.table).history(limit=1)["operation"].to_pylist() == ["WRITE"]
    assert tamis.open(log.table, version=1).history()["operation"].to_pylist()[0] == "DELETE"


def test_all_files_of_a_table(log: DeltaLog) -> None:
    files = tamis.open(log.table).files().sort_by("path")
    assert files.column_names == ["path", "size", "num_records", "modified", "p"]
    assert files["num_records"].to_pylist() == [3, None, 3, 3]
    assert files["p"].to_pylist() == ["a", "a", "b", "b"]
    assert files["size"].to_pylist() == [Path(path).stat().st_size for path in files["path"].to_pylist()]
    assert tamis.open(log.table).files("p = 'a'").num_rows == 2
    assert tamis.open(log.table).files("1 = 0").num_rows == tamis.open(log.table).files("NULL").num_rows == 0


def test_an_inline_vector_that_deletes_all_rows(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, features=["deletionVectors"])
    action = data_file(log, "1.parquet", make_ids(0, 3), stats=None)
    action["add"]["deletionVector"] = make_inline_vector([0, 1, 2])
    log.commit(action, data_file(log, "2.parquet", make_ids(5, 6), stats=None))
    table = tamis.open(tmp_path)
    assert (find_ids(table), table.scan().count(), find_ids(table, "id < 3")) == ([5], 1, [])


# --- Column names and file sizes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_column_called_row_count_is_pruned_by_its_statistics(tmp_path: Path, has_checkpoint: bool) -> None:
    log = DeltaLog(tmp_path, {"row_count": "long", "id": "long"})
    for number in range(3):
        rows = pa.table({"row_count": pa.array([10 * number, 10 * number + 1]), "id": pa.array([number, number])})
        log.commit(data_file(log, f"{number}.parquet", rows))
    if has_checkpoint:
        log.checkpoint(2)
    table = tamis.open(tmp_path)
    for _ in range(2):  # first from the log, then from the cache
        assert plan_files(table, "row_count >= 20") == ["2.parquet"]
        # The literal equals the row count of each file, but the filter is on the column.
        assert plan_files(table, "row_count = 2") == []
        assert plan_files(table, "row_count < 5 AND id < 5") == ["0.parquet"]
        assert plan_files(table, "id = 1") == ["1.parquet"]
    assert find_ids(table, "row_count BETWEEN 1 AND 10") == [0, 1]
    counts = [table.scan(where).count() for where in ("row_count >= 10", "row_count = 2", "row_count > 10", None)]
    assert counts == [4, 0, 3, 6]


@pytest.mark.parametrize(("size", "recorded"), [(7, "records 7"), (10**9, "records 1000000000")])
@pytest.mark.parametrize("where", [None, "id > 1"])
def test_a_size_in_the_log_that_differs_from_the_file_is_an_error(
    tmp_path: Path, size: int, recorded: str, where: str | None
) -> None:
    log = DeltaLog(tmp_path, {"id": "long"})
    log.commit(data_file(log, "1.parquet", make_ids(0, 3), stats=None, size=size))
    has = (tmp_path / "1.parquet").stat().st_size
    table = tamis.open(tmp_path)
    scan = table.scan(where)
    for run in (scan.to_arrow, scan.count, scan.plan):
        with pytest.raises(
            CorruptFile, match=rf"1\.parquet' has {has} bytes, but the log of its table {recorded}: "
        ) as caught:
            run()
        assert "open the table again" not in str(caught.value)
        assert "restore the file" in str(caught.value)
    assert plan_files(table) == ["1.parquet"]


@pytest.mark.parametrize("size", [None, 0, "absent"])
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_file_without_a_size_in_the_log_is_looked_up(tmp_path: Path, size: object, has_checkpoint: bool) -> None:
    log = DeltaLog(tmp_path, {"id": "long"})
    action = data_file(log, "1.parquet", make_ids(0, 3), size=size)
    if size == "absent":
        del action["add"]["size"]
    log.commit(action, data_file(log, "2.parquet", make_ids(3, 5)))
    if has_checkpoint:
        log.checkpoint(0)
    table = tamis.open(tmp_path)
    assert find_ids(table) == [0, 1, 2, 3, 4]
    assert find_ids(table, "id > 1") == [2, 3, 4]
    assert table.scan("id > 1").count() == 3
    session = tamis.connect().register("t", table)
    assert session.sql("SELECT sum(id) s FROM t WHERE id % 2 = 0").to_arrow()["s"].to_pylist() == [6]
    level = table.scan().plan("files").report.level("files")
    assert level is not None
    assert "looked up the size of 1 file, which the log does not have" in str(level.note)
    (tmp_path / "1.parquet").unlink()
    with pytest.raises(MissingFile, match=r"1\.parquet"):
        tamis.open(tmp_path).scan().to_arrow()
