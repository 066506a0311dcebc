"""Ranged reads, their coalescing, and files with only some ranges in memory."""

import random
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from tamis.errors import CorruptFile, StorageError
from tamis.io.ranges import (
    LOCAL,
    MAX_BUFFERED_FILE_BYTES,
    MIB,
    REMOTE,
    Coalescing,
    PrefetchedFile,
    RangedFile,
    make_prefetched_file,
    read_ranges,
)
from tamis.io.storage import Storage, open_storage

CONTENT = random.Random(7).randbytes(200_000)


@pytest.fixture
def file(tmp_path: Path) -> Storage:
    (tmp_path / "file").write_bytes(CONTENT)
    return open_storage(tmp_path / "file")


def test_ranges_are_returned_in_the_requested_order(file: Storage) -> None:
    ranges = [(150_000, 10), (0, 5), (150_005, 100), (199_999, 1), (7, 0), (0, 5), (200_000, 0)]
    found = read_ranges(file, file.root, ranges)
    assert [buffer.to_pybytes() for buffer in found] == [CONTENT[start : start + length] for start, length in ranges]


@pytest.mark.parametrize("seed", range(20))
def test_any_ranges_equal_slices_of_the_content(file: Storage, seed: int) -> None:
    chance = random.Random(seed)
    ranges = [(start := chance.randrange(len(CONTENT)), chance.randrange(len(CONTENT) - start)) for _ in range(30)]
    found = read_ranges(file, file.root, ranges, coalesce_gap=chance.choice([None, 0, 100, 100_000]))
    assert [buffer.to_pybytes() for buffer in found] == [CONTENT[start : start + length] for start, length in ranges]


def test_neighbours_are_read_together_where_the_gap_is_small(file: Storage) -> None:
    near, far = [(0, 100), (100 + LOCAL.gap, 100)], [(0, 100), (101 + LOCAL.gap, 100)]
    for ranges, requests, bytes_read in ((near, 1, 200 + LOCAL.gap), (far, 2, 200)):
        before = file.counters.counts()
        read_ranges(file, file.root, ranges)
        used = file.counters.counts() - before
        assert (used.requests, used.bytes_read, used.listing_calls) == (requests, bytes_read, 0)


def test_a_remote_open_counts_as_a_request_and_gaps_are_wider(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(2 * MIB))
    remote = pafs.PyFileSystem(pafs.FSSpecHandler(fsspec.filesystem("file")))
    storage = open_storage(str(tmp_path / "file"), {"filesystem": remote})
    assert not storage.is_local
    read_ranges(storage, storage.root, [(0, 100), (REMOTE.gap, 100), (2 * MIB - 1, 1)])
    assert (storage.counters.requests, storage.counters.bytes_read) == (3, REMOTE.gap + 101)


def test_merging_covers_every_range_with_one_read_and_stays_below_the_largest() -> None:
    rule = Coalescing(gap=10, max_bytes=100)
    assert rule.merge([(0, 60), (60, 60), (125, 10)]) == [(0, 60), (60, 75)]
    assert rule.merge([(0, 60), (59, 60)]) == [(0, 119)], "what overlaps stays together"
    assert rule.merge([(0, 500)]) == [(0, 500)]
    assert rule.merge([]) == []


@pytest.mark.parametrize("wanted", [(199_999, 2), (200_001, 0), (-1, 5), (0, -1), (10**15, 1)])
def test_X3_a_range_that_the_file_does_not_have_is_a_corrupt_file(file: Storage, wanted: tuple[int, int]) -> None:
    with pytest.raises(CorruptFile, match="200000 bytes"):
        read_ranges(file, file.root, [wanted])
    assert file.counters.requests == 0


def test_the_tail_of_a_file(file: Storage) -> None:
    with RangedFile(file, file.root) as opened:
        assert opened.read_tail(8).to_pybytes() == CONTENT[-8:]
        assert opened.read_tail(10**9).to_pybytes() == CONTENT
    with pytest.raises(CorruptFile):
        RangedFile(file, file.root, len(CONTENT) + 1)


def test_a_file_kept_open_knows_its_size(file: Storage) -> None:
    with RangedFile(file, file.root) as opened:
        assert opened.size == len(CONTENT)
        assert opened.read_tail(3).to_pybytes() == CONTENT[-3:]


def test_a_prefetched_file_gives_slices_without_a_copy() -> None:
    whole = pa.py_buffer(CONTENT)
    prefetched = PrefetchedFile([(100, whole.slice(100, 50)), (0, whole.slice(0, 10))], len(CONTENT))
    prefetched.seek(120)
    part = prefetched.read(5)
    assert (part.to_pybytes(), part.address, prefetched.tell()) == (CONTENT[120:125], whole.address + 120, 125)
    assert prefetched.seek(-1, 2) == len(CONTENT) - 1
    assert prefetched.seek(2, 1) == len(CONTENT) + 1
    assert prefetched.read(10).size == 0
    assert (prefetched.size(), prefetched.readable(), prefetched.seekable(), prefetched.writable()) == (
        len(CONTENT), True, True, False,
    )  # fmt: skip


def test_a_read_across_adjacent_ranges_is_joined() -> None:
    prefetched = PrefetchedFile([(0, pa.py_buffer(b"abc")), (3, pa.py_buffer(b"def"))], 6)
    assert prefetched.read().to_pybytes() == b"abcdef"


@pytest.mark.parametrize(("start", "length"), [(0, 5), (10, 11), (25, 1), (15, 30)])
def test_a_read_outside_of_the_fetched_ranges_is_an_internal_error(start: int, length: int) -> None:
    prefetched = PrefetchedFile([(10, pa.py_buffer(bytes(10)))], 100, name="part-0.parquet")
    prefetched.seek(start)
    with pytest.raises(StorageError, match=r"'part-0.parquet' were not fetched .* defect of Tamis"):
        prefetched.read(length)


def test_parquet_is_read_from_the_fetched_column_chunks_alone(tmp_path: Path) -> None:
    table = pa.table({
        "id": range(1000),
        "text": [f"text {number}" for number in range(1000)],
        "list": [[number, None] for number in range(1000)],
        "float": [number / 7 for number in range(1000)],
    })  # fmt: skip
    path = tmp_path / "file.parquet"
    pq.write_table(table, path, row_group_size=100)
    metadata = pq.read_metadata(path)
    storage = open_storage(path)
    ranges = []
    for group in (3, 7):
        for column in (1, 2):
            chunk = metadata.row_group(group).column(column)
            start = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
            ranges.append((start, chunk.total_compressed_size))
    buffers = read_ranges(storage, storage.root, ranges, coalesce_gap=0)
    starts = [start for start, _ in ranges]
    prefetched = PrefetchedFile(list(zip(starts, buffers, strict=True)), path.stat().st_size)
    with pq.ParquetFile(prefetched, metadata=metadata, pre_buffer=False) as parquet:
        found = pa.Table.from_batches(parquet.iter_batches(row_groups=[3, 7], columns=["text", "list"]))
    expected = pa.concat_tables([table.slice(300, 100), table.slice(700, 100)]).select(["text", "list"])
    assert found.to_pylist() == expected.to_pylist()
    assert storage.counters.bytes_read == sum(length for _, length in ranges)


@pytest.mark.parametrize("size", [1000, MAX_BUFFERED_FILE_BYTES, MAX_BUFFERED_FILE_BYTES + 1])
def test_a_file_of_ranges_returns_them_at_their_offsets(size: int) -> None:
    ranges = [(900, pa.py_buffer(b"x" * 100)), (10, pa.py_buffer(b"abc"))]
    made = make_prefetched_file(ranges, size)
    assert isinstance(made, PrefetchedFile) == (size > MAX_BUFFERED_FILE_BYTES)
    assert made.size() == size
    for start, buffer in ranges:
        made.seek(start)
        assert bytes(made.read(buffer.size)) == buffer.to_pybytes()
