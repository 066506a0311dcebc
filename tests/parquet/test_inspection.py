"""Inspection of files by several writers, and of files with little or invalid metadata."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders.parquet.page_files import (
    damage_bytes,
    get_footer,
    parquet_bytes,
    replace_footer,
    write_with_duckdb,
    write_with_polars,
)
from tamis.errors import AmbiguousColumn, CorruptFile, TableNotFound, TamisError, UnknownColumn, UnsupportedFeature
from tamis.parquet import ColumnInspection, FileInspection, inspect

ROWS = 1_000


def make_rows() -> pa.Table:
    numbers = range(ROWS)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "shuffled": pa.array([number * 7_919 % ROWS for number in numbers], pa.int32()),
            "part": pa.array([None if number % 4 == 0 else number / 8 for number in numbers], pa.float64()),
            "word": [f"w{number % 20:02}" for number in numbers],
            "place": [{"city": f"c{number // 100}", "zip.code": number} for number in numbers],
            "tags": [[number, number + 1] if number % 3 else [] for number in numbers],
        }
    )


def write_file(folder: Path, table: pa.Table, **options: Any) -> Path:
    path = folder / "f.parquet"
    path.write_bytes(parquet_bytes(table, **{"row_group_size": 500, "max_rows_per_page": 50} | options))
    return path


@pytest.fixture
def found(tmp_path: Path) -> FileInspection:
    return inspect(write_file(tmp_path, make_rows()))


def get_column(found: FileInspection, name: str) -> ColumnInspection:
    (only,) = [column for column in found.columns if column.name == name]
    return only


def summarise(path: Path, name: str) -> dict[str, Any]:
    facts = inspect(path, name).to_dict()["columns"]
    assert len(facts) == 1
    return dict(facts[0])


def test_file_and_row_groups(found: FileInspection, tmp_path: Path) -> None:
    metadata = pq.read_metadata(tmp_path / "f.parquet")
    assert found.size == (tmp_path / "f.parquet").stat().st_size
    assert found.rows == ROWS
    assert found.created_by == metadata.created_by
    assert found.footer_size == metadata.serialized_size
    assert found.key_value_metadata == ("ARROW:schema",)
    assert found.row_groups.select(["row_group", "first_row", "rows"]).to_pylist() == [
        {"row_group": 0, "first_row": 0, "rows": 500},
        {"row_group": 1, "first_row": 500, "rows": 500},
    ]
    chunks = [metadata.row_group(0).column(leaf).total_compressed_size for leaf in range(metadata.num_columns)]
    assert found.row_groups["compressed"][0].as_py() == sum(chunks)


def test_leaves_are_named_as_filters_name_them_and_inside_lists_as_parquet_does(found: FileInspection) -> None:
    names = [column.name for column in found.columns]
    assert names == ["id", "shuffled", "part", "word", "place.city", "place.`zip.code`", "tags.list.element"]


def test_storage_of_a_column_matches_pyarrow(found: FileInspection, tmp_path: Path) -> None:
    metadata = pq.read_metadata(tmp_path / "f.parquet")
    for leaf, each in enumerate(found.columns):
        for group, facts in enumerate(each.row_groups.to_pylist()):
            chunk = metadata.row_group(group).column(leaf)
            assert facts["compressed"] == chunk.total_compressed_size
            assert facts["uncompressed"] == chunk.total_uncompressed_size
            assert facts["codec"] == chunk.compression
            assert facts["values"] == chunk.num_values
            assert facts["nulls"] == chunk.statistics.null_count
            assert set(facts["encodings"]) == set(chunk.encodings)
            assert (facts["min"], facts["max"]) == (chunk.statistics.min, chunk.statistics.max)
            assert (facts["min_exact"], facts["max_exact"]) == (True, True)


def test_summary_of_a_column(tmp_path: Path) -> None:
    path = write_file(tmp_path, make_rows())
    facts = summarise(path, "part")
    assert (facts["nulls"], facts["min"], facts["max"]) == (250, 0.125, 124.875)
    assert (facts["page_index"], facts["page_count"], facts["bloom_filters"]) == ("yes", 20, 0)
    assert facts["ratio"] == pytest.approx(facts["uncompressed"] / facts["compressed"], abs=0.001)
    assert summarise(path, "word")["dictionary"] == "all pages"
    plain = write_file(tmp_path, make_rows(), use_dictionary=False, compression="zstd")
    facts = summarise(plain, "word")
    assert (facts["dictionary"], facts["dictionary_bytes"], facts["codecs"]) == ("no", 0, ["ZSTD"])


def test_pages_are_where_the_file_has_them(found: FileInspection) -> None:
    pages = get_column(found, "id").pages.to_pylist()
    assert len(pages) == 20
    assert [page["first_row"] for page in pages] == list(range(0, ROWS, 50))
    assert [page["page"] for page in pages] == [*range(10), *range(10)]
    assert all((page["min"], page["max"]) == (page["first_row"], page["first_row"] + 49) for page in pages)
    assert all(page["rows"] == 50 and page["nulls"] == 0 and page["has_values"] for page in pages)
    ends = [page["offset"] + page["bytes"] for page in pages]
    assert ends[:9] == [page["offset"] for page in pages[1:10]]


def test_pages_inside_lists_have_bounds_too(found: FileInspection) -> None:
    pages = get_column(found, "tags.list.element").pages.to_pylist()
    assert pages[0]["min"] == 1
    assert pages[-1]["max"] == ROWS - 1
    assert sum(page["rows"] for page in pages) == ROWS


def test_clustering_distinguishes_sorted_from_shuffled(found: FileInspection) -> None:
    by_name = {column.name: column.clustering for column in found.columns}
    assert all(clustering is not None and clustering.unit == "pages" for clustering in by_name.values())
    assert by_name["id"].overlap == pytest.approx(1 / 20)  # type: ignore[union-attr]
    assert by_name["shuffled"].overlap == 1  # type: ignore[union-attr]
    assert by_name["place.city"].overlap == pytest.approx(1 / 10)  # type: ignore[union-attr]


def test_without_a_page_index_row_groups_are_measured(tmp_path: Path) -> None:
    path = write_file(tmp_path, make_rows(), write_page_index=False, row_group_size=100)
    facts = summarise(path, "id")
    assert (facts["page_index"], facts["page_count"]) == ("no", None)
    assert (facts["overlap_of"], facts["overlap_units"], facts["overlap"]) == ("row_groups", 10, pytest.approx(0.1))
    assert inspect(path, "id").columns[0].pages.num_rows == 0


def test_without_statistics_nothing_is_known_and_nothing_fails(tmp_path: Path) -> None:
    path = write_file(tmp_path, make_rows(), write_statistics=False, write_page_index=False)
    for facts in inspect(path).to_dict()["columns"]:
        assert (facts["min"], facts["max"], facts["overlap"]) == (None, None, None)
    assert summarise(path, "id")["nulls"] is None


def test_columns_of_null_only(tmp_path: Path) -> None:
    table = pa.table({"n": pa.nulls(100), "i": pa.nulls(100, pa.int32()), "x": range(100)})
    path = write_file(tmp_path, table, max_rows_per_page=10)
    for name in ("n", "i"):
        facts = summarise(path, name)
        assert (facts["nulls"], facts["min"], facts["overlap"]) == (100, None, None)
        assert not any(page["has_values"] for page in facts["pages"])


def test_null_pages_between_others(tmp_path: Path) -> None:
    values = [None if number // 10 % 2 else number for number in range(100)]
    facts = summarise(write_file(tmp_path, pa.table({"x": pa.array(values, pa.int64())}), max_rows_per_page=10), "x")
    assert [page["has_values"] for page in facts["pages"]] == [True, False] * 5
    assert (facts["overlap_units"], facts["overlap"]) == (5, pytest.approx(1 / 5))
    assert (facts["min"], facts["max"], facts["nulls"]) == (0, 89, 50)


def test_bounds_that_some_row_groups_lack_are_unknown_for_the_file(tmp_path: Path) -> None:
    values = [float("nan")] * 10 + [1.0] * 10
    facts = summarise(write_file(tmp_path, pa.table({"x": values}), row_group_size=10), "x")
    assert (facts["min"], facts["max"]) == (None, None)
    assert [group["min"] for group in facts["row_groups"]] == [None, 1.0]


def test_row_groups_replace_pages_if_some_pages_lack_bounds(tmp_path: Path) -> None:
    # pyarrow writes no bounds for any page of a row group that has a page of NaN only.
    values = [float("nan")] * 10 + [float(number) for number in range(190)]
    facts = summarise(write_file(tmp_path, pa.table({"x": values}), row_group_size=100, max_rows_per_page=10), "x")
    assert [group["page_index"] for group in facts["row_groups"]] == ["locations only", "yes"]
    assert (facts["overlap_of"], facts["overlap_units"], facts["overlap"]) == ("row_groups", 2, pytest.approx(0.5))
    assert (facts["min"], facts["max"]) == (0.0, 189.0)


def test_file_without_rows_and_without_row_groups(tmp_path: Path) -> None:
    found = inspect(write_file(tmp_path, make_rows().slice(0, 0)))
    assert (found.rows, found.row_groups.num_rows) == (0, found.row_groups.num_rows)
    assert all(column.clustering is None for column in found.columns)
    with pq.ParquetWriter(tmp_path / "none.parquet", make_rows().schema):
        pass
    found = inspect(tmp_path / "none.parquet")
    assert (found.rows, found.row_groups.num_rows, len(found.columns)) == (0, 0, 7)
    assert all(facts["pages"] == [] for facts in found.to_dict()["columns"])


def test_values_of_every_type_are_valid_json(tmp_path: Path) -> None:
    table = pa.table(
        {
            "date": pa.array([0, 2_932_897], pa.date32()),
            "ts": pa.array([1, 2**62], pa.timestamp("us", "UTC")),
            "ns": pa.array([1, 2], pa.timestamp("ns")),
            "time": pa.array([1, 2], pa.time64("us")),
            "duration": pa.array([1, 2], pa.duration("ms")),
            "decimal": pa.array([Decimal("1.50"), Decimal("-99.25")], pa.decimal128(30, 2)),
            "bytes": [b"\x00\xff", b"ab"],
            "fixed": pa.array([b"ab", b"cd"], pa.binary(2)),
            "flag": [True, False],
            "half": pa.array([1.5, 2.5]).cast(pa.float16()),
            "zero": [0.0, -0.0],
            "big": pa.array([2**64 - 1, 0], pa.uint64()),
        }
    )
    found = inspect(write_file(tmp_path, table)).to_dict()
    json.dumps(found)
    bounds = {facts["name"]: (facts["min"], facts["max"]) for facts in found["columns"]}
    assert bounds["date"] == ("1970-01-01", "10000-01-01")
    assert bounds["decimal"] == ("-99.25", "1.50")
    assert bounds["bytes"] == ("00ff", "6162")
    assert bounds["duration"] == ("1", "2")
    assert bounds["flag"] == (False, True)
    assert bounds["half"] == (1.5, 2.5)
    assert str(bounds["zero"]) == "(0.0, 0.0)"
    assert bounds["big"] == (0, 2**64 - 1)


def test_S1_truncated_bounds_are_not_exact(golden: Path) -> None:
    found = inspect(golden / "parquet" / "binary_truncated_min_max.parquet")
    exact = {
        column.name: tuple(column.summary[name][0].as_py() for name in ("min_exact", "max_exact"))
        for column in found.columns
    }
    assert exact["utf8_full_truncation"] == exact["binary_full_truncation"] == (False, False)
    assert exact["utf8_partial_truncation"] == exact["binary_partial_truncation"] == (False, True)
    assert exact["utf8_no_truncation"] == exact["binary_no_truncation"] == (True, True)


def test_T3_int96_has_no_bounds(golden: Path) -> None:
    (only,) = inspect(golden / "parquet" / "int96_from_spark.parquet").columns
    assert only.physical == "INT96"
    assert only.clustering is None


@pytest.mark.parametrize(
    ("name", "size"),
    [("data_index_bloom_encoding_stats", 1_040), ("data_index_bloom_encoding_with_length", 2_064)],
)
def test_bloom_filters_are_measured_with_and_without_a_stated_length(golden: Path, name: str, size: int) -> None:
    facts = summarise(golden / "parquet" / f"{name}.parquet", "String")
    assert (facts["bloom_filters"], facts["bloom_filter_bytes"]) == (1, size)


def test_logical_types_are_shown_with_their_parameters(tmp_path: Path) -> None:
    table = pa.table(
        {
            "ts": pa.array([1], pa.timestamp("us", "UTC")),
            "wall": pa.array([1], pa.timestamp("ms")),
            "small": pa.array([1], pa.uint8()),
            "money": pa.array([Decimal(1)], pa.decimal128(12, 2)),
            "day": pa.array([datetime.date(2024, 1, 1)]),
            "plain": [1.0],
        }
    )
    found = inspect(write_file(tmp_path, table))
    assert [column.logical for column in found.columns] == [
        "TIMESTAMP(us, UTC)",
        "TIMESTAMP(ms)",
        "INT(8, unsigned)",
        "DECIMAL(12, 2)",
        "DATE",
        None,
    ]
    assert get_column(found, "money").physical == "FIXED_LEN_BYTE_ARRAY(6)"


# --- Names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("id", ["id"]),
        ("ID", ["id"]),
        ("place", ["place.city", "place.`zip.code`"]),
        ("place.city", ["place.city"]),
        ("Place.`zip.code`", ["place.`zip.code`"]),
        ("tags", ["tags.list.element"]),
        ("tags.list.element", ["tags.list.element"]),
    ],
)
def test_a_name_selects_a_leaf_or_all_leaves_inside_a_column(tmp_path: Path, name: str, expected: list[str]) -> None:
    found = inspect(write_file(tmp_path, make_rows()), name)
    assert [column.name for column in found.columns] == expected
    assert found.row_groups.num_rows == 2


def test_names_with_dots_are_found_without_back_ticks_if_unambiguous(tmp_path: Path) -> None:
    path = write_file(tmp_path, pa.table({"a.b": [1], "a": [{"c": 2}]}))
    assert [column.name for column in inspect(path, "a.b").columns] == ["`a.b`"]
    assert [column.name for column in inspect(path, "a").columns] == ["a.c"]


def test_unknown_and_ambiguous_names(tmp_path: Path) -> None:
    with pytest.raises(UnknownColumn, match=r"no column 'wrd' in '.*f.parquet'. Did you mean 'word'\? Columns: id, "):
        inspect(write_file(tmp_path, make_rows()), "wrd")
    with pytest.raises(UnknownColumn, match=r"Did you mean 'place\.city'"):
        inspect(write_file(tmp_path, make_rows()), "place.cty")
    with pytest.raises(AmbiguousColumn, match="'Ab', 'aB'"):
        inspect(write_file(tmp_path, pa.table({"Ab": [1], "aB": [2]})), "ab")


# --- Files of other writers, and invalid files ------------------------------------------------------------------------


def test_files_of_duckdb_and_polars(tmp_path: Path) -> None:
    write_with_duckdb(tmp_path / "d.parquet", ", bloom_filter_false_positive_ratio 0.01")
    facts = summarise(tmp_path / "d.parquet", "k")
    assert (facts["min"], facts["max"]) == (0, 6)
    assert facts["bloom_filters"] == 3
    assert facts["bloom_filter_bytes"] > 0
    (tmp_path / "p.parquet").write_bytes(write_with_polars())
    assert summarise(tmp_path / "p.parquet", "i")["max"] == 2_999


def test_every_golden_file_is_inspected_or_rejected(golden: Path) -> None:
    inspected = 0
    for path in sorted((golden / "parquet").rglob("*.parquet")):
        try:
            found = inspect(path).to_dict()
        except TamisError:
            assert path.parent.name == "bad_data"
            continue
        inspected += 1
        assert found["rows"] == pq.read_metadata(path).num_rows
        json.dumps(found)
    assert inspected >= 20


def test_X1_missing_invalid_and_encrypted_files(tmp_path: Path) -> None:
    with pytest.raises(TableNotFound, match=r"nothing\.parquet' is not a file: give the path of a Parquet file"):
        inspect(tmp_path / "nothing.parquet")
    with pytest.raises(TableNotFound, match="is a folder: give one of its files"):
        inspect(tmp_path)
    (tmp_path / "text.parquet").write_text("not a Parquet file at all")
    with pytest.raises(CorruptFile, match="not a Parquet file"):
        inspect(tmp_path / "text.parquet")
    content = parquet_bytes(make_rows())
    (tmp_path / "encrypted.parquet").write_bytes(content[:-4] + b"PARE")
    with pytest.raises(UnsupportedFeature, match="encrypted"):
        inspect(tmp_path / "encrypted.parquet")


def test_an_inconsistent_column_index_is_reported_and_ignored(tmp_path: Path) -> None:
    path = write_file(tmp_path, pa.table({"x": pa.array([None, 1, 2, 3], pa.int64())}), max_rows_per_page=2)
    content = path.read_bytes()
    # The first list of the column index says that two pages are not null pages: both become null pages.
    old, new = b"\x19\x21\x02\x02", b"\x19\x21\x01\x01"
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, new))
    (only,) = inspect(path).columns
    assert len(only.remarks) == 1
    assert "is inconsistent" in only.remarks[0]
    assert only.row_groups["page_index"].to_pylist() == ["locations only"]
    assert only.summary["min"][0].as_py() == 1


def test_X1_X3_damaged_footers_are_inspected_or_rejected(tmp_path: Path) -> None:
    content = parquet_bytes(make_rows().slice(0, 200), max_rows_per_page=50)
    outcomes = set()
    for number, footer in enumerate(damage_bytes(get_footer(content), 60, seed=5)):
        path = tmp_path / f"{number}.parquet"
        path.write_bytes(replace_footer(content, footer))
        try:
            inspect(path).to_dict()
            outcomes.add("inspected")
        except TamisError:
            outcomes.add("refused")
    assert outcomes == {"inspected", "refused"}


def test_files_are_read_without_their_data(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(
            f"copy (select range as i, hash(range) as h from range(300_000)) to '{tmp_path / 'f.parquet'}' "
            "(row_group_size 100_000)"
        )
    content = bytearray((tmp_path / "f.parquet").read_bytes())
    before = inspect(tmp_path / "f.parquet").to_dict()
    content[4:100_000] = bytes(99_996)
    (tmp_path / "f.parquet").write_bytes(content)
    assert inspect(tmp_path / "f.parquet").to_dict() == before
