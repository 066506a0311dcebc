"""The index of a Delta table: statistics of files that the log lacks, at any version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tamis
from builders.delta.log import DeltaLog, metadata, remove
from builders.delta.statistics import field, mapping
from builders.delta.tables import compute_statistics, data_file
from builders.hive.indexed import make_rows, make_unreadable
from tamis.errors import CorruptFile
from tamis.parquet.footer.footer import FOOTERS


def get_files_level(table: tamis.Table, where: str) -> dict[str, Any]:
    levels = table.scan(where).plan("files").report.to_dict()["levels"]
    return next(level for level in levels if level["level"] == "files")


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    """Ten files with statistics of `id` alone, one of them with deleted rows."""
    log = DeltaLog(tmp_path / "t", {"id": "long", "name": "string", "x": "double"}, features=["deletionVectors"])
    for number in range(10):
        rows = make_rows(number)
        recorded = compute_statistics(rows, without=["name", "x"])
        log.commit(data_file(log, f"{number}.parquet", rows, stats=recorded, deleted=[0, 1] if number == 3 else ()))
    return log


def test_columns_without_statistics_in_the_log_are_answered_by_the_index(log: DeltaLog) -> None:
    wanted = make_rows(4)["name"][2].as_py()
    before = get_files_level(tamis.open(log.table), f"name = '{wanted}'")
    assert (before["kept"], before["by_predicate"][0]["unused_because"]) == (10, "no statistics")
    result = tamis.index.build(log.table, bloom=["name"], count_nan=["x"], false_positives=0.0001)
    assert (result.files, result.rows) == (10, 100)
    table = tamis.open(log.table)
    after = get_files_level(table, f"name = '{wanted}'")
    assert (after["total"], after["kept"], after["by_predicate"][0]["skipped"]) == (10, 1, 9)
    assert after["note"].startswith("skipping: partition + statistics; index of 10 files")
    assert after["rows_kept"] == 10
    assert table.scan(f"name = '{wanted}'").to_arrow()["id"].to_pylist() == [42]
    assert table.scan("x > 6").plan("files").num_files == 0
    # Together: the log skips nine files, the index the last.
    assert get_files_level(table, f"id < 10 AND name = '{wanted}'")["kept"] == 0


def test_D15_deleted_rows_stay_deleted_and_counts_are_right(log: DeltaLog) -> None:
    tamis.index.build(log.table, bloom=["name"])
    table = tamis.open(log.table)
    assert table.scan().count() == table.scan("id >= 0").count() == table.scan("x >= 0").count() == 98
    assert table.scan("id IN (30, 31, 32)").to_arrow()["id"].to_pylist() == [32]
    gone = make_rows(3)["name"][0].as_py()
    assert table.scan(f"name = '{gone}'").count() == 0
    assert table.scan("x IS NOT NULL").count() == 98


def test_later_versions_are_read_with_what_is_known_and_the_next_build_takes_the_rest(log: DeltaLog) -> None:
    tamis.index.build(log.table)
    log.commit(remove("2.parquet"), data_file(log, "new.parquet", make_rows(20), stats=None))
    table = tamis.open(log.table)
    assert table.scan("name = 'nobody'").plan("files").num_files == 1
    assert table.scan("id = 205").to_arrow().num_rows == 1
    status = tamis.index.status(log.table)
    assert (status.version, status.files, status.fresh_files, status.table_files) == (9, 10, 9, 10)
    result = tamis.index.build(log.table)
    assert (result.files, result.collected, result.reused, result.removed) == (10, 1, 9, 1)
    assert tamis.index.status(log.table).version == 10
    assert tamis.open(log.table).scan("name = 'nobody'").plan("files").num_files == 0
    # The version before needs a file that the index no longer has.
    old = tamis.open(log.table, version=9)
    assert old.scan("id = 25").to_arrow().num_rows == 1
    assert old.scan("name = 'nobody'").plan("files").num_files == 1


def test_a_refreshed_table_keeps_its_index(log: DeltaLog) -> None:
    tamis.index.build(log.table)
    table = tamis.open(log.table)
    log.commit(data_file(log, "new.parquet", make_rows(20), stats=None))
    assert table.refresh().scan("name = 'nobody'").plan("files").num_files == 1


def test_only_new_files_of_a_table_are_opened(log: DeltaLog) -> None:
    tamis.index.build(log.table)
    make_unreadable(log.table / f"{number}.parquet" for number in range(10))
    log.commit(data_file(log, "new.parquet", make_rows(20)))
    assert tamis.index.build(log.table).collected == 1
    assert tamis.open(log.table).scan("name = 'nobody'").to_arrow().num_rows == 0


def test_D6_columns_are_identified_by_what_never_changes(tmp_path: Path) -> None:
    def columns(name: str, number: int) -> list[dict[str, Any]]:
        return [field("id", "long", **mapping(1, "col-1")), field(name, "long", **mapping(number, f"col-{number}"))]

    settings = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"}
    log = DeltaLog(tmp_path / "t", columns("x", 2), configuration=settings, features=["columnMapping"])
    for number in range(3):
        rows = pa.table({"col-1": [number], "col-2": [number * 10]})
        log.commit(data_file(log, f"{number}.parquet", rows, stats=None))
    tamis.index.build(log.table, bloom=["x"])
    assert tamis.open(log.table).scan("x = 10").plan("files").num_files == 1
    # Renamed: the same values under another name, which the index knows.
    log.commit(metadata(columns("y", 2), configuration=settings))
    renamed = tamis.open(log.table)
    assert renamed.scan("y = 10").plan("files").num_files == renamed.scan("y = 10").count() == 1
    # Dropped and added again under its old name: another column, which old files lack.
    log.commit(metadata(columns("x", 5), configuration=settings))
    again = tamis.open(log.table)
    assert again.scan("x IS NULL").count() == 3
    assert again.scan("x = 10").count() == 0
    tamis.index.build(log.table)
    assert tamis.open(log.table).scan("x IS NULL").count() == 3
    assert tamis.open(log.table).scan("x = 10").plan("files").num_files == 0


def test_another_table_at_the_same_location_does_not_have_the_index_of_the_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = DeltaLog(tmp_path / "t", {"id": "long"})
    first.commit(data_file(first, "a.parquet", pa.table({"id": [1]}), stats=None))
    tamis.index.build(first.table)
    size = (first.table / "a.parquet").stat().st_size
    for path in first.folder.iterdir():
        path.unlink()
    second = DeltaLog(first.table)
    columns = metadata({"id": "long"}, id="another")
    second.start = (second.start[0], columns)
    second.commit(data_file(second, "a.parquet", pa.table({"id": [2]}), stats=None))
    assert (second.table / "a.parquet").stat().st_size == size
    FOOTERS.clear()
    assert tamis.open(second.table).scan("id = 2").count() == 1
    assert "belongs to another table" in caplog.text
    with pytest.raises(CorruptFile, match="belongs to another table"):
        tamis.index.status(second.table)
    assert tamis.index.build(second.table).collected == 1
    assert tamis.open(second.table).scan("id = 1").plan("files").num_files == 0


def test_S9_texts_with_a_collation_of_their_own_are_not_indexed(tmp_path: Path) -> None:
    collated = field("s", "string", __COLLATIONS={"s": "ICU.UNICODE_CI"})
    log = DeltaLog(tmp_path / "t", [field("id", "long"), collated])
    log.commit(data_file(log, "a.parquet", pa.table({"id": [1], "s": ["A"]}), stats=None))
    tamis.index.build(log.table)
    assert tamis.index.status(log.table).columns == ("id",)
    with pytest.raises(tamis.TamisError, match="has a type without bounds"):
        tamis.index.build(log.table, columns=["s"])


def test_partitioned_tables_are_indexed_without_their_partition_columns(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path / "t", {"id": "long", "day": "date"}, partition_columns=["day"])
    for number in range(4):
        day = f"2024-03-0{number + 1}"
        rows = pa.table({"id": [number, number + 100]})
        log.commit(data_file(log, f"day={day}/a b.parquet", rows, {"day": day}, stats=None))
    tamis.index.build(log.table, bloom=["id"])
    table = tamis.open(log.table)
    assert tamis.index.status(log.table).columns == ("id",)
    assert table.scan("id = 102 OR day = DATE '2024-03-01'").plan("files").num_files == 2
    assert table.scan("id < 100 AND day > DATE '2024-03-02'").count() == 2
