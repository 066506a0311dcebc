"""Batches stay small, even if rows take more bytes in memory than in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.parquet.tuning import BY_PAGES
from tamis.parquet import RowSelection, read_selection

WIDTH = 20_000
ROWS = 2_000
"""Ten texts as a dictionary: 200 KB in the file, 40 MB as rows."""


def make_wide_rows() -> pa.Table:
    codes = pa.array([row % 10 for row in range(ROWS)], pa.int32())
    texts = pa.DictionaryArray.from_arrays(codes, pa.array([str(digit) * WIDTH for digit in range(10)]))
    return pa.table({"id": pa.array(range(ROWS)), "text": texts.dictionary_decode()})


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that records the uncompressed size of its texts."""
    path = tmp_path_factory.mktemp("recorded") / "f.parquet"
    pq.write_table(make_wide_rows(), path, write_page_index=True, max_rows_per_page=500)
    return path


@pytest.fixture(scope="module")
def unrecorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file without the uncompressed size of its texts."""
    path = tmp_path_factory.mktemp("unrecorded") / "f.parquet"
    with duckdb.connect() as connection:
        rows = f"select i as id, repeat((i % 10)::varchar, {WIDTH}) as text from range({ROWS}) as r(i)"
        connection.execute(f"copy ({rows}) to '{path}' (format parquet, dictionary_size_limit 1000)")
    return path


@pytest.fixture(params=["recorded", "unrecorded"])
def file(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def check(batches: list[pa.RecordBatch], rows: int = ROWS) -> None:
    assert sum(batch.num_rows for batch in batches) == rows
    assert max(batch.nbytes for batch in batches) <= 1.5 * BY_PAGES.max_batch_bytes
    assert len(batches) <= 10


def test_texts_of_a_dictionary_do_not_exceed_the_batch_size(file: Path) -> None:
    assert file.stat().st_size < 500_000
    check(list(tamis.open(file).scan().to_batches()))


def test_texts_of_a_dictionary_in_rows_that_are_tested(file: Path) -> None:
    check(list(tamis.open(file).scan("id % 10 <> 0").to_batches()), ROWS - ROWS // 10)


def test_texts_of_a_dictionary_that_are_read_by_pages(recorded: Path) -> None:
    check(list(tamis.open(recorded, tuning=BY_PAGES).scan("id >= 100").to_batches()), ROWS - 100)
    check(list(read_selection(recorded, [0], RowSelection.all(ROWS), tuning=BY_PAGES)))


def test_narrow_texts_still_come_in_large_batches(tmp_path: Path) -> None:
    rows = 100_000
    table = pa.table({"text": [f"text {row % 100}" for row in range(rows)]})
    pq.write_table(table, tmp_path / "f.parquet")
    assert [batch.num_rows for batch in tamis.open(tmp_path / "f.parquet").scan().to_batches()] == [rows]
