"""Requests to an object store: a scan opens a file once, and reads the end of a file once."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.servers.iceberg_rest import RestServer
from tamis.errors import CorruptFile
from tamis.io.counters import IoCounters
from tamis.io.ranges import RangedFile
from tamis.io.storage import MAX_AGE_SECONDS, MAX_OPEN_FILES, OpenFile, OpenFiles, Storage, open_storage
from tamis.parquet.footer.footer import FOOTERS
from tamis.parquet.indexes.page_units import PAGE_INDEXES

CONTENT = bytes(range(256)) * 4


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    """The folder of the objects in a bucket of an S3 store."""
    (tmp_path / "file").write_bytes(CONTENT)
    return tmp_path


@pytest.fixture
def options(bucket: Path) -> Iterator[dict[str, str]]:
    """The options that open objects of the bucket."""
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "r"}
    with RestServer(buckets={"bucket": bucket}) as server:
        yield {**keys, "AWS_ENDPOINT_URL": server.uri}


@pytest.fixture
def storage(options: dict[str, str]) -> Storage:
    return open_storage("s3://bucket/file", options)


def test_a_file_is_opened_once_for_several_steps(storage: Storage) -> None:
    for _ in range(3):
        with RangedFile(storage, "bucket/file") as file:
            assert file.read([(10, 5)])[0].to_pybytes() == CONTENT[10:15]
    assert storage.counters.requests == 1 + 3


def test_each_user_of_an_open_file_counts_its_own_reads(storage: Storage) -> None:
    RangedFile(storage, "bucket/file").read([(0, 4)])
    other = replace(storage, counters=IoCounters())
    RangedFile(other, "bucket/file").read([(0, 8)])
    assert (other.counters.requests, other.counters.bytes_read) == (1, 8)
    assert (storage.counters.requests, storage.counters.bytes_read) == (2, 4)


def test_what_is_in_the_tail_is_not_read_again(storage: Storage) -> None:
    with RangedFile(storage, "bucket/file") as file:
        file.read_tail(100)
    with RangedFile(storage, "bucket/file") as file:
        before = storage.counters.counts()
        assert file.read_tail(50).to_pybytes() == CONTENT[-50:]
        parts = file.read([(1000, 24), (924, 1), (0, 3), (900, 124), (1024, 0), (930, 10)])
        spent = storage.counters.counts() - before
    # The fourth range starts before the tail, so all of it is read.
    wanted = [CONTENT[1000:], CONTENT[924:925], CONTENT[:3], CONTENT[900:], b"", CONTENT[930:940]]
    assert [part.to_pybytes() for part in parts] == wanted
    assert spent.bytes_read <= 1024
    assert spent.requests == 1
    # A shorter tail does not replace a longer one.
    kept = storage.open_files.get("bucket/file")
    assert kept is not None
    assert kept.tail is not None
    assert kept.tail.size == 100


def test_E2_a_replaced_file_is_detected_at_the_next_request(bucket: Path, storage: Storage) -> None:
    RangedFile(storage, "bucket/file", 1024)
    (bucket / "file").write_bytes(b"other")
    storage.open_files.clear()
    with pytest.raises(CorruptFile, match="was replaced: it has 5 bytes, expected 1024 as listed; open the table"):
        RangedFile(storage, "bucket/file", 1024)


def test_a_file_that_was_opened_long_ago_is_opened_again(storage: Storage) -> None:
    RangedFile(storage, "bucket/file")
    opened = storage.open_files.get("bucket/file")
    assert opened is not None
    opened.opened_at -= MAX_AGE_SECONDS + 1
    RangedFile(storage, "bucket/file")
    assert storage.counters.requests == 2


def test_few_files_stay_open_and_none_in_a_copy_for_another_process() -> None:
    files = OpenFiles()
    for number in range(MAX_OPEN_FILES + 1):
        files.put(f"{number}", OpenFile(pa.BufferReader(b""), 0))
    assert files.get("0") is None
    assert files.get("1") is not None
    assert files.get(f"{MAX_OPEN_FILES}") is not None
    assert pickle.loads(pickle.dumps(files)).get("1") is None


def test_a_scan_of_one_object_opens_it_once_and_reads_no_byte_of_its_end_twice(
    bucket: Path, options: dict[str, str]
) -> None:
    table = pa.table({"id": range(100_000), "double": [number / 3 for number in range(100_000)]})
    layout = {"use_dictionary": False, "compression": "none", "write_page_index": True, "max_rows_per_page": 1_000}
    pq.write_table(table, bucket / "rows.parquet", **layout)
    FOOTERS.clear()
    PAGE_INDEXES.clear()
    opened = tamis.open("s3://bucket/rows.parquet", storage_options=options)
    first, second = opened.scan("id = 54321"), opened.scan("id = 12345")
    of_table = opened._source.storage.counters
    # Requests: open, read the tail.
    assert (of_table.requests, of_table.listing_calls) == (2, 0)
    assert first.to_arrow()["double"].to_pylist() == [54321 / 3]
    assert first.report is not None
    # The indexes were read with the footer. Only the pages of two columns remain.
    assert first.report.requests == 2
    assert second.to_arrow().num_rows == 1
    assert second.report is not None
    # Requests: open, read the pages.
    assert second.report.requests == 1 + 2


def test_a_remote_directory_may_have_the_name_of_a_file(bucket: Path, options: dict[str, str]) -> None:
    (bucket / "table.parquet").mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), bucket / "table.parquet" / "part-0.parquet")
    table = tamis.open("s3://bucket/table.parquet", storage_options=options)
    assert (table.format, table.scan("id = 2").count()) == ("hive", 1)
