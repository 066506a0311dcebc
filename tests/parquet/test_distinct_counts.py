"""Distinct counts: they save reading Bloom filters and dictionaries that cannot help, and decide about nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.parquet.bloom import read_layouts
from builders.parquet.footers import change_field
from builders.parquet.tuning import BY_PAGES
from tamis.io.ranges import RangedFile
from tamis.parquet import PruneRequest, PruneResult, inspect
from tamis.parquet.footer.thrift import encode_integer

DISTINCT_COUNT = (4, 1, 3, 12, 4)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file by DuckDB, which counts distinct values and writes Bloom filters where it uses a dictionary."""
    path = tmp_path / "f.parquet"
    duckdb.sql(
        f"""COPY (
            SELECT i % 50 AS dense, i % 50 * 3 AS sparse, DATE '2024-01-01' + (i % 20)::INT AS day,
                   CASE WHEN i % 2 = 0 THEN 'one' END AS constant, (i % 3)::DOUBLE AS number,
                   i AS id
            FROM range(3000) t(i)
        ) TO '{path}' (ROW_GROUP_SIZE 2048)"""
    )
    return path


def prune_and_count_reads(path: Path, where: str, monkeypatch: pytest.MonkeyPatch) -> tuple[PruneResult, int]:
    request = PruneRequest(path, tuning=BY_PAGES).with_predicate(where).enable_page_index(False)
    request.with_predicate("id < 0").prune()  # caches the footer
    reads: list[int] = []
    plainly = RangedFile.read

    def read(self: RangedFile, ranges: Any, **options: Any) -> list[pa.Buffer]:
        reads.append(len(ranges))
        return plainly(self, ranges, **options)

    monkeypatch.setattr(RangedFile, "read", read)
    return request.prune(), sum(reads)


@pytest.mark.parametrize(
    ("where", "reads"),
    [
        ("dense = 7", False),
        ("dense IN (7, 9)", False),
        ("dense = 7 AND id >= 0", False),
        ("day = DATE '2024-01-07'", False),
        ("constant = 'one'", False),
        ("sparse = 7", True),
        ("sparse = 9", True),
        ("number = 1.5", True),
        ("dense * 2 = 7", True),
        ("dense = 7 OR sparse = 7", False),
        ("dense = 7 AND sparse = 7", True),
    ],
)
def test_filters_and_dictionaries_that_cannot_exclude_a_value_are_not_read(
    file: Path, where: str, reads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, count = prune_and_count_reads(file, where, monkeypatch)
    assert (count > 0) is reads
    if not reads:
        assert result.row_groups == (0, 1)
        bloom = [each for level in result.levels if level.level == "bloom" for each in level.by_predicate]
        assert "no Bloom filter" not in {each.unused_because for each in bloom}


def test_a_wrong_count_loses_no_row(file: Path) -> None:
    change_field(file, DISTINCT_COUNT, lambda value: encode_integer(1))
    for where in ("constant = 'one'", "dense = 7", "sparse = 9", "number = 1.0", "number IN (0.0, 2.0)"):
        matching = duckdb.sql(f"SELECT DISTINCT id // 2048 FROM '{file}' WHERE {where}").fetchall()
        assert {group for (group,) in matching} <= set(PruneRequest(file).with_predicate(where).prune().row_groups)


def test_a_count_above_the_number_of_values_is_ignored(file: Path) -> None:
    change_field(file, DISTINCT_COUNT, lambda value: encode_integer(5000))
    assert {layout.distinct_count for layout in read_layouts(file).values()} == {None}


def test_a_single_value_beside_NaN_proves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "nan.parquet"
    duckdb.sql(f"COPY (SELECT CASE WHEN i = 5 THEN 'NaN'::DOUBLE ELSE 1.0 END AS x FROM range(100) t(i)) TO '{path}'")
    change_field(path, DISTINCT_COUNT, lambda value: encode_integer(1))
    for where in ("x > 1.0", "x = DOUBLE 'NaN'", "x <> 1.0", "NOT (x = 1.0)"):
        assert PruneRequest(path).with_predicate(where).prune().row_groups == (0,), where


@given(st.data())
def test_O3_counts_change_no_answer_that_matters(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """With any stated count, the row groups with a matching row are kept."""
    values = data.draw(st.lists(st.none() | st.integers(0, 6), min_size=1, max_size=30))
    path = tmp_path_factory.mktemp("counts") / "f.parquet"
    rows = pa.table({"x": pa.array(values, pa.int64())})
    duckdb.from_arrow(rows).query("t", f"COPY t TO '{path}' (FORMAT parquet)")
    stated = data.draw(st.integers(0, 31))
    change_field(path, DISTINCT_COUNT, lambda value: encode_integer(stated))
    items = data.draw(st.lists(st.integers(-1, 7), min_size=1, max_size=3))
    where = f"x IN ({', '.join(map(str, items))})"
    kept = PruneRequest(path, tuning=BY_PAGES).with_predicate(where).prune().row_selection
    matching = {row for row, value in enumerate(values) if value in items}
    assert matching <= set(kept.to_indices().tolist())


def test_inspect_shows_the_counts(file: Path) -> None:
    found = {column.name: column for column in inspect(file).columns}
    assert found["dense"].row_groups["distinct_count"].to_pylist() == [50, 50]
    assert found["constant"].row_groups["distinct_count"].to_pylist() == [1, 1]
    assert found["dense"].summary["max_distinct_count"].to_pylist() == [50]
    assert found["dense"].to_dict()["row_groups"][0]["distinct_count"] == 50


def test_files_of_other_writers_have_no_counts(tmp_path: Path) -> None:
    path = tmp_path / "plain.parquet"
    pq.write_table(pa.table({"x": [1, 1]}), path)
    (column,) = inspect(path).columns
    assert column.row_groups["distinct_count"].to_pylist() == [None]
    assert column.summary["max_distinct_count"].to_pylist() == [None]
