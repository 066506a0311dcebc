"""Golden files, pruned and read by pages: the rows equal pyarrow's, with predicates and without."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.answers.same_rows import has_same_rows
from builders.parquet.page_checks import check_by_pages
from builders.parquet.tuning import BY_PAGES
from tamis.errors import TamisError
from tamis.parquet import PruneRequest

EVERY = {
    "alltypes_plain": 3,
    "alltypes_tiny_pages": 11,
    "alltypes_tiny_pages_plain": 11,
    "delta_byte_array": 5,
    "nested_structs.rust": 150,
}
"""The files with many rows or columns, for which only one probe in this many is tried."""


@pytest.mark.parametrize(
    ("name", "levels"),
    [
        ("alltypes_plain", ()),  # an old Impala: no statistics, no index, INT96
        ("alltypes_tiny_pages", ("pages", "dictionary")),
        ("alltypes_tiny_pages_plain", ("pages",)),
        ("binary_truncated_min_max", ("row_groups",)),  # S1, S2
        ("data_index_bloom_encoding_stats", ("row_groups",)),
        ("data_index_bloom_encoding_with_length", ("pages", "bloom")),
        ("datapage_v2.snappy", ()),  # P9
        ("delta_byte_array", ("row_groups",)),
        ("fixed_length_decimal", ("row_groups",)),  # T2
        ("float16_nonzeros_and_nans", ()),  # F6
        ("floating_orders_nan_count", ("row_groups", "pages")),  # F1, F3
        ("int32_decimal", ("row_groups",)),
        ("int32_with_null_pages", ("row_groups", "pages")),  # P1
        ("int96_from_spark", ("dictionary",)),  # T3
        ("list_columns", ()),
        ("nan_in_stats", ("row_groups",)),  # F2
        ("nation.dict-malformed", ()),  # P10
        ("nested_maps.snappy", ("row_groups",)),
        ("nested_structs.rust", ()),  # N9
        ("nulls.snappy", ()),  # N5
        ("rle_boolean_encoding", ()),
        ("sort_columns", ("row_groups", "dictionary")),
    ],
)
@pytest.mark.one_in(4)
def test_F_N_P_S_T_rows_of_a_golden_file_read_by_pages_are_those_of_pyarrow(
    golden: Path, name: str, levels: tuple[str, ...]
) -> None:
    skipped = check_by_pages(golden / "parquet" / f"{name}.parquet", every=EVERY.get(name, 1))
    # Levels with usable metadata skipped something.
    assert {level for level in ("row_groups", "bloom", "pages", "dictionary") if skipped[level]} >= set(levels)


def test_every_golden_file_is_named_above(golden: Path) -> None:
    marks = test_F_N_P_S_T_rows_of_a_golden_file_read_by_pages_are_those_of_pyarrow.pytestmark
    (mark,) = (each for each in marks if each.name == "parametrize")
    assert [name for name, _ in mark.args[1]] == sorted(path.stem for path in (golden / "parquet").glob("*.parquet"))


@pytest.mark.parametrize("name", ["ARROW-GH-41317", "ARROW-RS-GH-6229-LEVELS", "PARQUET-1481"])
def test_bad_data_is_a_TamisError_or_read_like_pyarrow(golden: Path, name: str) -> None:
    path = golden / "parquet" / "bad_data" / f"{name}.parquet"
    with pytest.raises(TamisError, match=name):
        tamis.open(path, tuning=BY_PAGES).scan().to_arrow()
    try:
        file = pq.ParquetFile(path)
    except OSError:
        return
    for column in file.schema_arrow.names:
        for where in (None, f"`{column}` IS NULL", f"`{column}` IS NOT NULL"):
            try:
                found = tamis.open(path, tuning=BY_PAGES).scan(where, columns=[f"`{column}`"]).to_arrow()
            except TamisError:
                continue
            assert has_same_rows(found, _read_expected(file, column, where)), (column, where)


def _read_expected(file: pq.ParquetFile, column: str, where: str | None) -> pa.Table:
    rows = file.read(columns=[column])
    if where is None:
        return rows
    is_null = rows[column].is_null()
    return rows.filter(is_null if where.endswith("IS NULL") else pa.compute.invert(is_null))


@pytest.mark.parametrize("name", ["ARROW-GH-41317", "ARROW-RS-GH-6229-LEVELS", "PARQUET-1481"])
def test_pruning_of_bad_data_keeps_rows_or_is_a_TamisError(golden: Path, name: str) -> None:
    path = golden / "parquet" / "bad_data" / f"{name}.parquet"
    request = PruneRequest(path, tuning=BY_PAGES).enable_page_index().enable_bloom_filter().enable_dictionary()
    try:
        file = pq.ParquetFile(path)
    except OSError:
        with pytest.raises(TamisError, match=name):
            request.with_predicate("1 = 1").prune()
        return
    for column in file.schema_arrow.names:
        if not pa.types.is_nested(file.schema_arrow.field(column).type):
            try:
                result = request.with_predicate(f"`{column}` IS NULL OR `{column}` IS NOT NULL").prune()
            except TamisError:
                continue
            assert result.row_selection.row_count == file.metadata.num_rows
