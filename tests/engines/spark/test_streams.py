"""`spark.readStream.format("tamis")`: the rows that are added to a table, each once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

pytest.importorskip("pyspark")

import tamis.spark
from builders.pyiceberg.tables import make_catalog, make_name


class DeltaRows:
    """A Delta table of numbers."""

    def __init__(self, folder: Path) -> None:
        self.location = str(folder / "numbers")

    def append(self, numbers: list[int]) -> None:
        write_deltalake(self.location, make_rows(numbers), partition_by=["part"], mode="append")

    def delete(self, where: str) -> None:
        DeltaTable(self.location).delete(where)


class IcebergRows:
    """An Iceberg table of numbers."""

    def __init__(self, folder: Path) -> None:
        self.location = str(folder / "numbers")
        self._table = make_catalog().create_table(make_name(), make_rows([]).schema, location=self.location)

    def append(self, numbers: list[int]) -> None:
        self._table.append(make_rows(numbers))

    def delete(self, where: str) -> None:
        self._table.delete(where)


def set_commit_time(location: str, version: int, day: int) -> None:
    """Without in-commit timestamps, the time of a commit is that of its file."""
    seconds = datetime(2024, 1, day, tzinfo=UTC).timestamp()
    os.utime(Path(location) / "_delta_log" / f"{version:020}.json", (seconds, seconds))


def make_rows(numbers: list[int]) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64()), "part": pa.array([each % 2 for each in numbers], pa.int64())})


@pytest.fixture(params=[DeltaRows, IcebergRows], ids=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return request.param(tmp_path)


@pytest.fixture
def stream(spark: Any, tmp_path: Path) -> Callable[..., list[int]]:
    """Return a function that runs one query until all rows are read, and returns the rows of all its runs."""
    tamis.spark.register(spark)

    def run(location: str, **options: str) -> list[int]:
        rows = spark.readStream.format("tamis").options(**options).load(location)
        target, checkpoint = str(tmp_path / "target"), str(tmp_path / "checkpoint")
        writer = rows.select("n").writeStream.format("parquet").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start(target).awaitTermination()
        return sorted(row.n for row in spark.read.schema("n long").parquet(target).collect())

    return run


def test_each_row_is_read_once_over_restarts(table: Any, stream: Callable[..., list[int]]) -> None:
    table.append([1, 2, 3])
    table.append([4])
    assert stream(table.location) == [1, 2, 3, 4]
    assert stream(table.location) == [1, 2, 3, 4]
    table.append([5, 6])
    table.append([7])
    assert stream(table.location) == [1, 2, 3, 4, 5, 6, 7]
    table.append([8])
    assert stream(table.location) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_filter_and_a_starting_version_choose_rows(table: Any, stream: Callable[..., list[int]]) -> None:
    table.append([1, 2, 3])
    table.append([4, 5, 6])
    table.append([7, 8])
    versions = tamis.open(table.location).history()
    second = versions.column(0).to_pylist()[1]
    assert stream(table.location, filter="n <> 5", startingVersion=str(second)) == [4, 6, 7, 8]
    table.append([5, 9])
    assert stream(table.location, filter="n <> 5", startingVersion=str(second)) == [4, 6, 7, 8, 9]


def test_deleted_rows_are_an_error_that_can_be_passed_over(table: Any, stream: Callable[..., list[int]]) -> None:
    from pyspark.errors import StreamingQueryException

    table.append([1, 2, 3])
    assert stream(table.location) == [1, 2, 3]
    table.delete("n = 2")
    table.append([4])
    with pytest.raises(StreamingQueryException, match=r"changed or deleted rows.*skip_change_commits"):
        stream(table.location)
    assert stream(table.location, skipChangeCommits="true") == [1, 2, 3, 4]


def test_rows_that_optimize_moves_are_not_new(stream: Callable[..., list[int]], tmp_path: Path) -> None:
    table = DeltaRows(tmp_path)
    table.append([1])
    assert stream(table.location) == [1]
    table.append([3])
    table.append([5])
    DeltaTable(table.location).optimize.compact()
    table.append([7])
    assert stream(table.location) == [1, 3, 5, 7]


def test_a_restarted_query_reads_a_new_column(spark: Any, stream: Callable[..., list[int]], tmp_path: Path) -> None:
    table = DeltaRows(tmp_path)
    table.append([1])
    assert stream(table.location) == [1]
    wider = make_rows([2]).append_column("more", pa.array(["x"]))
    write_deltalake(table.location, wider, partition_by=["part"], mode="append", schema_mode="merge")
    # A new query has the new column, and reads older versions with it.
    assert stream(table.location) == [1, 2]


def test_a_folder_has_no_stream(spark: Any, tmp_path: Path) -> None:
    import pyarrow.parquet as pq
    from pyspark.errors import PySparkException

    pq.write_table(make_rows([1]), tmp_path / "rows.parquet")
    tamis.spark.register(spark)
    rows = spark.readStream.format("tamis").load(str(tmp_path / "rows.parquet"))
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(PySparkException, match="has no versions"):
        query.processAllAvailable()


def test_a_running_query_does_not_pass_over_a_new_column(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    table = DeltaRows(tmp_path)
    table.append([1])
    tamis.spark.register(spark)
    writer = spark.readStream.format("tamis").load(table.location).writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path / "c")).start()
    query.processAllAvailable()
    wider = make_rows([2]).append_column("more", pa.array(["x"]))
    write_deltalake(table.location, wider, partition_by=["part"], mode="append", schema_mode="merge")
    with pytest.raises(StreamingQueryException, match="new column 'more': start the query again"):
        query.processAllAvailable()


def test_a_table_that_replaced_another_is_an_error(stream: Callable[..., list[int]], tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    table = DeltaRows(tmp_path)
    table.append([1])
    table.append([2])
    assert stream(table.location) == [1, 2]
    shutil.rmtree(table.location)
    table.append([3])
    with pytest.raises(StreamingQueryException, match=r"not the table that the stream has read.*new checkpoint"):
        stream(table.location)
    for number in range(4, 8):
        # Its newest version is now later than that of the first table.
        table.append([number])
    with pytest.raises(StreamingQueryException, match="not the table that the stream has read"):
        stream(table.location)


def test_a_version_below_that_of_the_checkpoint_is_an_error(stream: Callable[..., list[int]], tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    table = DeltaRows(tmp_path)
    table.append([1])
    table.append([2])
    assert stream(table.location) == [1, 2]
    (Path(table.location) / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(StreamingQueryException, match="has no version 1: its newest is 0"):
        stream(table.location)


def test_a_stream_goes_on_after_the_log_was_cleaned_up(stream: Callable[..., list[int]], tmp_path: Path) -> None:
    table = DeltaRows(tmp_path)
    table.append([0])
    assert stream(table.location) == [0]
    for number in range(1, 5):
        table.append([number])
    DeltaTable(table.location).create_checkpoint()
    (Path(table.location) / "_delta_log" / f"{0:020}.json").unlink()
    assert stream(table.location) == [0, 1, 2, 3, 4]
    assert stream(table.location) == [0, 1, 2, 3, 4]


def test_rows_that_cannot_be_found_after_a_clean_up_are_an_error(
    stream: Callable[..., list[int]], tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    table = DeltaRows(tmp_path)
    table.append([0])
    assert stream(table.location) == [0]
    table.append([2])
    DeltaTable(table.location).optimize.compact()
    table.append([4])
    DeltaTable(table.location).create_checkpoint()
    (Path(table.location) / "_delta_log" / f"{0:020}.json").unlink()
    with pytest.raises(StreamingQueryException, match="VersionNotFound"):
        stream(table.location)


def count_batches(folder: Path) -> int:
    return len(list((folder / "checkpoint" / "commits").glob("[0-9]*")))


def test_a_rate_limit_cuts_batches_between_files(table: Any, stream: Callable[..., list[int]], tmp_path: Path) -> None:
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark 4.1 has no limits for Python data sources")
    table.append([1, 3])
    table.append([5])
    assert stream(table.location, maxFilesPerTrigger="1") == [1, 3, 5]
    assert count_batches(tmp_path) == 2
    # In the Delta table, which has partitions, some of these are two files.
    table.append([6, 7])
    table.append([8, 9])
    table.append([10])
    new = tamis.open(table.location).files().num_rows - 2
    assert stream(table.location, maxFilesPerTrigger="3") == [1, 3, 5, 6, 7, 8, 9, 10]
    assert count_batches(tmp_path) == 2 + -(-new // 3)
    assert stream(table.location) == [1, 3, 5, 6, 7, 8, 9, 10]


def test_a_rate_limit_is_a_positive_number(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    table = DeltaRows(tmp_path)
    table.append([1])
    tamis.spark.register(spark)
    with pytest.raises(PySparkException, match="max_files_per_trigger must be a positive integer"):
        spark.readStream.format("tamis").option("maxFilesPerTrigger", "0").load(table.location)


def test_a_stream_starts_at_a_timestamp(stream: Callable[..., list[int]], tmp_path: Path) -> None:
    table = DeltaRows(tmp_path)
    for number in range(3):
        table.append([number])
        set_commit_time(table.location, number, day=1 + number)
    assert stream(table.location, startingTimestamp="2024-01-02") == [1, 2]
    table.append([3])
    assert stream(table.location, startingTimestamp="2024-01-02") == [1, 2, 3]


def test_a_timestamp_without_later_versions_is_an_error(stream: Callable[..., list[int]], tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    table = DeltaRows(tmp_path)
    for number in range(3):
        table.append([number])
        set_commit_time(table.location, number, day=1 + number)
    with pytest.raises(StreamingQueryException, match=r"no version of .* was committed at 2025-01-01 or later"):
        stream(table.location, startingTimestamp="2025-01-01")
    with pytest.raises(StreamingQueryException, match="starting_version and starting_timestamp exclude each other"):
        stream(table.location, startingTimestamp="2024-01-01", startingVersion="1")
    DeltaTable(table.location).create_checkpoint()
    (Path(table.location) / "_delta_log" / f"{0:020}.json").unlink()
    with pytest.raises(StreamingQueryException, match=r"before version 1 were cleaned up.*starting_version=1"):
        stream(table.location, startingTimestamp="2023-01-01")
