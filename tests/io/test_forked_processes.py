"""E7: forked processes share the cache of their parent, and files change between them."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis

ROWS = 3_000
WHERE = "id >= 700 AND id < 2300 AND text <> 'text 5'"

pytestmark = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="processes are not forked here"
)


def write(path: Path, shift: int = 0) -> None:
    rows = pa.table({"id": range(shift, shift + ROWS), "text": [f"text {row % 7}" for row in range(ROWS)]})
    pq.write_table(rows, path, row_group_size=500, write_page_index=True, max_rows_per_page=50)


def count_and_sum(folder: Path) -> tuple[int, int]:
    found = tamis.open(folder).scan(WHERE).to_arrow()
    return found.num_rows, sum(found["id"].to_pylist())


def expect_count_and_sum(files: int, shift: int = 0) -> tuple[int, int]:
    ids = [row + shift for row in range(ROWS) if 700 <= row + shift < 2300 and row % 7 != 5]
    return files * len(ids), files * sum(ids)


def test_E7_processes_that_were_forked_after_a_scan_can_scan(tmp_path: Path) -> None:
    """Forked processes have the cached footers of their parent, but not its threads."""
    for index in range(6):
        write(tmp_path / f"{index}.parquet")
    assert count_and_sum(tmp_path) == expect_count_and_sum(6)
    with multiprocessing.get_context("fork").Pool(3) as pool:
        found = pool.map_async(count_and_sum, [tmp_path] * 9, chunksize=1).get(timeout=120)
    assert found == [expect_count_and_sum(6)] * 9
    assert count_and_sum(tmp_path) == expect_count_and_sum(6)


def test_E7_a_file_that_another_process_wrote_again_is_read_again(tmp_path: Path) -> None:
    """A file with another size or modification time is not read from the cache."""
    write(tmp_path / "0.parquet")
    assert count_and_sum(tmp_path) == expect_count_and_sum(1)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        pool.apply_async(write, [tmp_path / "0.parquet", 1_000]).get(timeout=120)
        assert count_and_sum(tmp_path) == expect_count_and_sum(1, 1_000)
        write(tmp_path / "0.parquet", 2_000)
        assert pool.apply_async(count_and_sum, [tmp_path]).get(timeout=120) == expect_count_and_sum(1, 2_000)
