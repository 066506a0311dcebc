"""Builds: incremental, resumable, with progress, and with the settings of the previous build."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.hive.indexed import get_index_folder, list_data_files, make_unreadable, write_files
from tamis.engines.jobs import LocalEngine
from tamis.errors import InvalidArgument, UnknownArgument, UnknownColumn, UnsupportedFeature
from tamis.formats.jobs import Item, Job
from tamis.index.operations import Progress
from tamis.tuning import Tuning

TWO_PER_ITEM = Tuning(max_files_per_index_item=2)
"""Two files per work item, so that a small table has several."""


class Interrupted(Exception):
    """The error that interrupts a build."""


class FailingEngine(LocalEngine):
    """An engine that fails after so many results."""

    def __init__(self, results: int) -> None:
        super().__init__(threads=1)
        self._results = results

    def run(self, job: Job, items: Sequence[Item]) -> Iterator[tuple[int, pa.RecordBatch]]:
        for number, found in enumerate(super().run(job, items)):
            if number == self._results:
                raise Interrupted
            yield found


def get_counts(result: tamis.index.BuildResult) -> tuple[int, int, int, int]:
    return result.files, result.collected, result.reused, result.removed


def test_only_what_is_new_or_changed_is_read_and_what_is_gone_drops_out(tmp_path: Path) -> None:
    root = write_files(tmp_path / "t", range(10))
    assert get_counts(tamis.index.build(root)) == (10, 10, 0, 0)
    old = list_data_files(root)
    # Opening one of the old files would raise an error; the first one has the schema of the table.
    make_unreadable(old[1:])
    assert get_counts(tamis.index.build(root)) == (10, 0, 10, 0)
    old[5].unlink()
    write_files(root, [3, 20, 21])
    assert get_counts(tamis.index.build(root)) == (11, 3, 8, 2)
    assert tamis.open(root).scan("id = 205").plan("files").num_files == 1
    assert tamis.open(root).scan("id BETWEEN 50 AND 59").plan("files").num_files == 0
    status = tamis.index.status(root)
    assert (status.files, status.fresh_files, status.table_files, status.is_complete) == (11, 11, 11, True)


def test_a_changed_file_is_not_trusted_before_the_next_build(tmp_path: Path) -> None:
    root = write_files(tmp_path / "t", range(3))
    tamis.index.build(root)
    pq.write_table(pa.table({"id": [777], "name": ["a"], "x": [0.0]}), root / "0001.parquet")
    assert tamis.open(root).scan("id = 777").count() == 1
    status = tamis.index.status(root)
    assert (status.files, status.fresh_files, status.table_files, status.is_complete) == (3, 2, 3, False)
    assert get_counts(tamis.index.build(root)) == (3, 1, 2, 1)
    assert tamis.open(root).scan("id = 777").plan("files").num_files == 1


def test_a_file_of_the_same_size_at_another_time_is_another_file(tmp_path: Path) -> None:
    root = write_files(tmp_path / "t", range(3), compression="none")
    tamis.index.build(root)
    changed = root / "0001.parquet"
    size, rows = changed.stat().st_size, pq.ParquetFile(changed).read()
    rows = rows.set_column(0, "id", pa.array(range(900, 910)))
    pq.write_table(rows, changed, row_group_size=4, compression="none")
    assert changed.stat().st_size == size
    assert tamis.open(root).scan("id = 905").count() == 1
    os.utime(root / "0002.parquet")
    assert tamis.index.status(root).fresh_files == 1


def test_a_file_of_the_same_size_a_nanosecond_later_is_another_file(tmp_path: Path) -> None:
    root = write_files(tmp_path / "t", range(3), compression="none")
    changed = root / "0001.parquet"
    size, rows = changed.stat().st_size, pq.ParquetFile(changed).read()
    os.utime(changed, ns=(10**18, 10**18))
    tamis.index.build(root)
    assert tamis.open(root).scan("id = 15").plan("files").num_files == 1
    rows = rows.set_column(0, "id", pa.array(range(900, 910)))
    pq.write_table(rows, changed, row_group_size=4, compression="none")
    os.utime(changed, ns=(10**18, 10**18 + 1))
    assert changed.stat().st_size == size
    assert tamis.open(root).scan("id = 905").count() == 1
    assert tamis.open(root).scan("id = 15").count() == 0


def test_an_unchanged_table_leaves_the_index_untouched(tmp_path: Path) -> None:
    root = write_files(tmp_path / "t", range(3))
    tamis.index.build(root)
    before = {path.name: path.read_bytes() for path in get_index_folder(root).iterdir()}
    tamis.index.build(root)
    assert {path.name: path.read_bytes() for path in get_index_folder(root).iterdir()} == before


def test_the_next_build_has_the_settings_of_the_last(tmp_path: Path) -> None:
    root = write_files(tmp_path / "t", range(3))
    tamis.index.build(root, columns=["id"], bloom=["name"], count_nan=["x"], false_positives=0.1)
    write_files(root, [3])
    assert get_counts(tamis.index.build(root)) == (4, 1, 3, 0)
    status = tamis.index.status(root)
    assert (status.columns, status.bloom, status.count_nan) == (("id", "name", "x"), ("name",), ("x",))
    # Other columns are another index.
    assert get_counts(tamis.index.build(root, bloom=[])) == (4, 4, 0, 0)
    assert tamis.index.status(root).bloom == ()


def test_E5_a_failed_build_changes_nothing_and_the_next_one_continues(tmp_path: Path) -> None:
    root = write_files(tmp_path / "t", range(4))
    tamis.index.build(root, tuning=TWO_PER_ITEM)
    current = (get_index_folder(root) / "current.json").read_bytes()
    write_files(root, range(4, 14))
    with pytest.raises(Interrupted):
        tamis.index.build(root, engine=FailingEngine(3), tuning=TWO_PER_ITEM)
    assert (get_index_folder(root) / "current.json").read_bytes() == current
    assert tamis.open(root).scan("id = 105").count() == 1
    result = tamis.index.build(root, tuning=TWO_PER_ITEM)
    assert result.files == 14
    # At least the three reported work items had been written.
    assert result.collected <= 4
    assert result.reused >= 10
    assert tamis.open(root).scan("id = 105").plan("files").num_files == 1


def test_parts_of_a_build_with_other_columns_are_not_reused(tmp_path: Path) -> None:
    root = write_files(tmp_path / "t", range(6))
    with pytest.raises(Interrupted):
        tamis.index.build(root, columns=["name"], engine=FailingEngine(2), tuning=TWO_PER_ITEM)
    assert get_counts(tamis.index.build(root, tuning=TWO_PER_ITEM)) == (6, 6, 0, 0)


def test_many_builds_leave_few_parts_and_nothing_else(tmp_path: Path) -> None:
    root = write_files(tmp_path / "t", range(4))
    for number in range(4, 12):
        tamis.index.build(root, bloom=["name"], tuning=TWO_PER_ITEM)
        write_files(root, [number])
    tamis.index.build(root, tuning=TWO_PER_ITEM)
    tamis.index.build(root, tuning=TWO_PER_ITEM)
    assert tamis.index.status(root).parts == 1
    names = sorted(path.name for path in get_index_folder(root).iterdir())
    assert names[0] == "current.json"
    # The parts of the previous index stay for queries that are reading them.
    assert len(names) <= 3
    assert tamis.open(root).scan("id >= 0").count() == 120


def test_full_parts_are_not_written_again(tmp_path: Path) -> None:
    tuning = Tuning(max_files_per_index_item=2, max_files_per_index_part=4)
    root = write_files(tmp_path / "t", range(9))
    tamis.index.build(root, tuning=tuning)
    before = {path.name for path in get_index_folder(root).glob("part-*")}
    assert tamis.index.status(root).parts >= 3
    write_files(root, [9])
    tamis.index.build(root, tuning=tuning)
    after = {path.name for path in get_index_folder(root).glob("part-*")}
    assert len(before & after) >= 3
    assert tamis.open(root).scan("id IN (5, 95)").plan("files").num_files == 2
    for path in list_data_files(root)[:3]:
        path.unlink()
    assert get_counts(tamis.index.build(root, tuning=tuning)) == (7, 0, 7, 3)
    assert tamis.open(root).scan("id >= 0").count() == 70


def test_progress_counts_files_and_bytes(tmp_path: Path) -> None:
    root = write_files(tmp_path / "t", range(7))
    seen: list[Progress] = []
    tamis.index.build(root, progress=seen.append, tuning=TWO_PER_ITEM)
    size = sum(path.stat().st_size for path in list_data_files(root))
    assert [each.files for each in seen] == [0, 2, 4, 6, 7]
    assert {each.total_files for each in seen} == {7}
    assert (seen[-1].bytes, seen[-1].total_bytes) == (size, size)


def test_a_file_that_cannot_be_read_is_left_out_and_reported(tmp_path: Path) -> None:
    root = write_files(tmp_path / "t", range(4))
    (root / "0002.parquet").write_bytes(b"no Parquet file at all")
    result = tamis.index.build(root)
    assert (result.files, result.collected, result.left_out) == (3, 3, 1)
    assert "0002.parquet' is not a Parquet file" in (result.left_out_because or "")
    with pytest.raises(tamis.TamisError, match=r"0002\.parquet"):
        tamis.open(root).scan("id = 5").to_arrow()


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"columns": "id"}, InvalidArgument, "columns must be a list of names"),
        ({"columns": ["nope"]}, UnknownColumn, "no column 'nope'"),
        ({"bloom": ["day"]}, InvalidArgument, "'day' is a partition column"),
        ({"columns": ["l"]}, InvalidArgument, "column 'l' has a type without bounds"),
        ({"bloom": ["b"]}, InvalidArgument, "a boolean, which needs no Bloom filter"),
        ({"count_nan": ["id"]}, InvalidArgument, "has no NaN"),
        ({"false_positives": 1.5}, InvalidArgument, "between 0 and 1"),
        ({"engine": "moon"}, InvalidArgument, "engine must be 'local', 'spark', .*, found 'moon'"),
        ({"engine": 5}, InvalidArgument, "a Spark session or an engine, found an int"),
        ({"version": 3}, UnknownArgument, "has no argument 'version'"),
    ],
)
def test_a_build_with_invalid_arguments_is_refused(
    tmp_path: Path, options: dict[str, object], error: type[Exception], text: str
) -> None:
    (tmp_path / "day=1").mkdir()
    pq.write_table(pa.table({"id": [1], "b": [True], "l": [[1]]}), tmp_path / "day=1" / "0.parquet")
    with pytest.raises(error, match=text):
        tamis.index.build(tmp_path, **options)  # type: ignore[arg-type]
    assert not (tmp_path.parent / "_tamis" / tmp_path.name).exists()


def test_a_single_file_has_no_index(tmp_path: Path) -> None:
    root = write_files(tmp_path, [1])
    with pytest.raises(UnsupportedFeature, match="a single file"):
        tamis.index.build(root / "0001.parquet")


def test_drop_removes_the_index_and_its_folders_and_nothing_else(tmp_path: Path) -> None:
    root = write_files(tmp_path / "t", range(2))
    assert not tamis.index.drop(root)
    tamis.index.build(root)
    (get_index_folder(root) / "aside-left-behind").write_bytes(b"x")
    assert tamis.index.drop(root)
    assert not (tmp_path / "_tamis").exists()
    tamis.index.build(root)
    (get_index_folder(root) / "notes.txt").write_text("mine")
    assert tamis.index.drop(root)
    assert [path.name for path in get_index_folder(root).iterdir()] == ["notes.txt"]
    assert len(list_data_files(root)) == 2
