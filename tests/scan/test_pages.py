"""The levels below row groups in whole scans: damaged metadata, and reports."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.parquet.tuning import PRUNE_PAGES
from tamis.errors import CorruptFile
from tamis.formats.source import LEVELS

ROWS = 60_000


def write(path: Path, rows: pa.Table, **options: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    given = {"write_page_index": True, "max_rows_per_page": 1_000} | options
    pq.write_table(rows, path, **given)


@pytest.mark.parametrize("levels", [LEVELS, ("pages",), ("bloom",), ("dictionary",), ("row_groups",), ()], ids=str)
def test_H6_the_directory_wins_over_a_column_of_the_same_name_in_the_file(
    tmp_path: Path, levels: tuple[str, ...]
) -> None:
    rows = pa.table({"x": np.arange(ROWS), "p": np.full(ROWS, 7), "q": np.arange(ROWS)})
    write(tmp_path / "p=1" / "a.parquet", rows, bloom_filter_options={"p": {"ndv": 10}})
    table = tamis.open(tmp_path, tuning=PRUNE_PAGES)
    assert table.scan("p = 1 AND x < 5000", levels=levels).count() == 5_000
    assert table.scan("p = 7 AND x < 5000", levels=levels).count() == 0
    assert table.scan("p = 1 OR x < 5000", levels=levels).count() == ROWS
    assert table.scan("p IN (1, 2) AND q > 59990", columns=["p"], levels=levels).to_arrow()["p"].to_pylist() == [1] * 9


@pytest.mark.parametrize("where", ["x < 5000", "x >= 0"])
def test_E2_a_file_that_was_replaced_after_planning_is_an_error(tmp_path: Path, where: str) -> None:
    path = tmp_path / "a.parquet"
    write(path, pa.table({"x": np.arange(ROWS)}))
    scan = tamis.open(tmp_path).scan(where)
    scan.plan()
    write(path, pa.table({"x": np.arange(2 * ROWS)}))
    with pytest.raises(CorruptFile, match="was replaced"):
        scan.to_arrow()


def test_batches_of_wide_rows_stay_small(tmp_path: Path) -> None:
    wide = [f"{n:06d}" * 1_000 for n in range(20_000)]
    write(tmp_path / "a.parquet", pa.table({"x": np.arange(20_000), "s": wide}), compression="zstd")
    batches = list(tamis.open(tmp_path).scan("x < 9800").to_batches())
    assert sum(batch.num_rows for batch in batches) == 9_800
    assert max(batch.nbytes for batch in batches) < 20 * 2**20


def test_E2_a_file_that_was_replaced_by_one_of_the_same_size_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, pa.table({"x": np.arange(ROWS)}), compression="none", use_dictionary=False)
    size = path.stat().st_size
    scan = tamis.open(tmp_path).scan("x < 5000")
    scan.plan()
    write(path, pa.table({"x": np.arange(ROWS)[::-1]}), compression="none", use_dictionary=False)
    assert path.stat().st_size == size
    with pytest.raises(CorruptFile, match="was rewritten after"):
        scan.to_arrow()


def test_the_report_says_why_small_row_groups_are_read_whole(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pa.table({"x": np.arange(100)}))
    plan = tamis.open(tmp_path).scan("x < 50").plan()
    assert [level.level for level in plan.report.levels] == ["files", "row_groups"]
    assert plan.report.levels[-1].note == "read whole: row groups under 256 KiB"
    assert "read whole" in str(plan.report)
    assert tamis.open(tmp_path).scan("x < 500").plan().report.levels[-1].note is None


def test_bytes_of_fully_matched_and_other_pages_are_counted_once(tmp_path: Path) -> None:
    """A page of y has rows of fully matched pages of x and rows that are tested; only the latter use the dictionary."""
    rows = pa.table({"x": np.arange(ROWS) // 100, "y": np.arange(ROWS)})
    write(tmp_path / "a.parquet", rows, row_group_size=ROWS)
    plan = tamis.open(tmp_path, tuning=PRUNE_PAGES).scan("x < 305 AND x % 7 <> 8").plan()
    levels = plan.report.levels[1:]
    assert [level.level for level in levels][:2] == ["row_groups", "pages"]
    for one, next_one in pairwise(levels):
        assert one.bytes_kept == next_one.bytes_total
    assert levels[-1].bytes_kept == plan.bytes


def test_without_levels_everything_is_read(tmp_path: Path) -> None:
    texts = [f"{number * 7919 % ROWS:020d}" * 4 for number in range(ROWS)]
    write(
        tmp_path / "a.parquet", pa.table({"x": np.arange(ROWS), "s": texts}), compression="none", use_dictionary=False
    )
    scan = tamis.open(tmp_path).scan("x = 5", levels=())
    assert scan.to_arrow().num_rows == 1
    assert scan.report is not None
    assert scan.report.bytes_read is not None
    assert scan.report.bytes_read > 0.9 * (tmp_path / "a.parquet").stat().st_size


def test_levels_add_up_where_a_row_group_without_rows_has_no_page(tmp_path: Path) -> None:
    files = {"x": pa.array([], pa.float32()), "other": pa.array([1], pa.int32())}
    for number, (name, values) in enumerate(files.items()):
        pq.write_table(pa.table({name: values}), tmp_path / f"{number}.parquet", write_page_index=True)
    asked = ["files", "bloom", "pages", "dictionary"]
    plan = tamis.open(tmp_path, tuning=PRUNE_PAGES).scan("x = CAST('NaN' AS FLOAT)", ["x"], levels=asked).plan()
    levels = [level for level in plan.report.levels if level.level != "files"]
    assert [level.bytes_kept for level in levels] == [*(level.bytes_total for level in levels[1:]), plan.bytes]
