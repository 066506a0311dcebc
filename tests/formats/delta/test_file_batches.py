"""The cache of file batches: when statistics are decoded, and that what is read again matches the cached files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

import tamis
from builders.delta.log import DeltaLog, add
from tamis.errors import CorruptFile
from tamis.expr.nodes import Column
from tamis.formats.delta.planning.file_batches import (
    FILE_BATCH_CACHE,
    STATISTICS,
    FileBatch,
    LogColumns,
    read_batches,
)
from tamis.formats.delta.snapshot import Snapshot
from tamis.io.counters import IoCounts
from tamis.io.storage import open_storage
from tamis.io.weighted_cache import WeightedCache
from tamis.skipping.metadata import ROW_COUNT
from tamis.tuning import Tuning

FILES = 40
COLUMNS = ["path", "size", "modification_time", "deletion_vector", "partition_values"]


@pytest.fixture(autouse=True)
def nothing_in_memory() -> Iterator[None]:
    FILE_BATCH_CACHE.clear()
    yield
    FILE_BATCH_CACHE.clear()


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    """Forty files in five partitions; each row group of both checkpoint parts has files of all partitions.

    The first row group has other actions too.
    """
    log = DeltaLog(tmp_path, {"p": "string", "id": "long", "n": "long"}, partition_columns=["p"])
    log.commit(*(make_file(number) for number in range(FILES)))
    log.checkpoint(0, parts=2, row_group_size=7)
    return log


def choose_partition(number: int) -> str:
    return "abcde"[number // 2 % 5]


def make_file(number: int) -> dict[str, object]:
    ids = {"id": number * 10, "n": -number}
    stats = {"numRecords": 10, "minValues": ids, "maxValues": {"id": number * 10 + 9, "n": -number}}
    return add(f"f{number}", {"p": choose_partition(number)}, stats=json.dumps(stats, separators=(",", ":")))


def plan_files(table: tamis.Table, where: str) -> list[str]:
    return sorted(Path(path).name for path in table.scan(where).plan("files").files["path"].to_pylist())


def count_io(table: tamis.Table) -> IoCounts:
    return table._source.storage.counters.counts()


def test_a_plan_that_reads_statistics_again_leaves_nothing_to_read_for_the_next_of_the_same_columns(
    log: DeltaLog,
) -> None:
    table = tamis.open(log.table)
    assert plan_files(table, "p = 'a' AND id BETWEEN 100 AND 105") == ["f10"]
    first = count_io(table)
    assert plan_files(table, "p = 'b' AND id BETWEEN 120 AND 125") == ["f12"]
    second = count_io(table)
    assert (second - first).bytes_read > 0
    for number in range(FILES):
        assert plan_files(table, f"p = '{choose_partition(number)}' AND id = {number * 10 + 5}") == [f"f{number}"]
    assert count_io(table) == second
    assert plan_files(table, "p = 'c' AND n = -14") == ["f14"]
    assert (count_io(table) - second).bytes_read > 0


def test_without_room_for_all_statistics_only_requested_ones_are_cached(log: DeltaLog) -> None:
    for number in range(FILES):
        plan_files(tamis.open(log.table), f"p = '{choose_partition(number)}' AND id = {number}")
    full = FILE_BATCH_CACHE._weight
    FILE_BATCH_CACHE.clear()
    table = tamis.open(log.table, tuning=Tuning(max_cached_log_bytes=full))
    assert plan_files(table, "p = 'a' AND id = 105") == ["f10"]
    assert plan_files(table, "p = 'b' AND id = 125") == ["f12"]
    before = count_io(table)
    assert [plan_files(table, f"p = '{p}' AND id = {number}") for p, number in (("a", 15), ("b", 25))] == [
        ["f1"],
        ["f2"],
    ]
    assert count_io(table) == before
    assert plan_files(table, "p = 'c' AND id = 145") == ["f14"]
    assert (count_io(table) - before).bytes_read > 0


def test_reading_again_reads_only_the_requested_columns(log: DeltaLog) -> None:
    snapshot = Snapshot.load(open_storage(log.table))
    for part in snapshot.list_parts()[-2:]:
        again = LogColumns(part)
        for batch, _ in list(read_batches(part, snapshot.metadata, [*COLUMNS, "stats"])):
            texts = again.batch(batch.number, batch.rows, STATISTICS)
            assert texts.schema.names == ["stats"]
            numbers = [json.loads(text)["minValues"]["id"] // 10 for text in texts.column("stats").to_pylist()]
            assert [f"f{number}" for number in numbers] == batch.files.column("path").to_pylist()
            again.done()


def test_batches_may_be_read_in_any_order_and_repeatedly(log: DeltaLog) -> None:
    snapshot = Snapshot.load(open_storage(log.table))
    part = snapshot.list_parts()[-1]
    batches = [batch for batch, _ in read_batches(part, snapshot.metadata, COLUMNS)]
    assert len(batches) > 1
    again = LogColumns(part)
    for number in (1, 0, 0, 1):
        for columns in (["path"], STATISTICS):
            assert again.batch(number, batches[number].rows, columns).num_rows == batches[number].rows
        again.done()
    again.close()
    assert again.batch(0, batches[0].rows, ["path"]).column("path") == batches[0].files.column("path")


def test_a_part_that_was_replaced_while_it_was_in_use_is_an_error(log: DeltaLog) -> None:
    snapshot = Snapshot.load(open_storage(log.table))
    part = snapshot.list_parts()[-1]
    (batch, _), *_ = read_batches(part, snapshot.metadata, COLUMNS)
    other = replace(batch, files=pa.concat_batches([batch.files, batch.files]))
    with pytest.raises(CorruptFile, match=r"checkpoint\.\d+\.\d+\.parquet' changed while it was in use"):
        LogColumns(part).batch(0, other.rows, STATISTICS)
    with pytest.raises(CorruptFile, match="changed while it was in use"):
        LogColumns(part).batch(100, batch.rows, STATISTICS)


def test_count_lists_files_once(log: DeltaLog) -> None:
    # Without a cache each listing reads the log.
    table = tamis.open(log.table, tuning=Tuning(max_cached_log_bytes=0))
    before = count_io(table)
    table.scan(limit=1).plan("files")
    between = count_io(table)
    assert table.scan().count() == 10 * FILES
    assert count_io(table) - between == between - before


def test_a_cache_reports_whether_it_has_room() -> None:
    cache = WeightedCache(capacity=10_000)
    cache.put("one", object(), 4_000)
    assert cache.has_room(4_000, 10_000)
    assert not cache.has_room(10_000 - 4_000, 10_000)
    cache.clear()
    assert cache.has_room(10_000, 10_000)


def test_E12_a_batch_is_weighed_while_another_thread_decodes_statistics() -> None:
    batch = FileBatch(0, cast(Any, None), pa.record_batch({"path": ["a"]}), cast(Any, SimpleNamespace(weight=0)))
    counts = {ROW_COUNT.name: pa.array([1])}
    log = cast(Any, SimpleNamespace(min_share_to_decode_all=0.0))

    def decode(batch: FileBatch) -> None:
        for number in range(300):
            batch.read_statistics([Column((f"c{number}",), type=pa.int64())], np.array([0]), log)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(1) as pool, mock.patch.object(FileBatch, "_decode", return_value=counts):
            decoding = pool.submit(decode, batch)
            while not decoding.done():
                assert batch.weight >= 0
            decoding.result()
    finally:
        sys.setswitchinterval(before)


def test_a_smaller_capacity_evicts_the_oldest_and_takes_nothing_larger() -> None:
    cache = WeightedCache(capacity=10_000)
    for name in ("one", "two", "three"):
        cache.put(name, name, 1_000)
    cache.put("four", "four", 1_000, capacity=5_000)
    cache.put("five", "five", 4_500, capacity=5_000)
    assert [name for name in ("one", "two", "three", "four", "five") if name in cache._entries] == ["three", "four"]
