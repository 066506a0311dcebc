"""Files of many writers and of all types: a scan finds the rows that an oracle finds in a full read."""

from __future__ import annotations

import math
from datetime import time, timedelta
from decimal import Decimal

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.parquet.files import find_rows, write_table
from builders.parquet.probes import check_file

NAN = math.nan
OTHER_NAN = float(np.array([0xFFF8_0000_0000_0001], np.uint64).view(np.float64)[0])


# --- Files that others wrote ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "alltypes_plain",  # an old Impala: no statistics, INT96
        "binary_truncated_min_max",  # S1, S2
        "data_index_bloom_encoding_stats",
        "datapage_v2.snappy",  # S4: deprecated statistics
        "fixed_length_decimal",  # T2: decimals in bytes, deprecated statistics
        "float16_nonzeros_and_nans",  # F6
        "floating_orders_nan_count",  # F1, F3, F6: total order, counted NaN
        "int32_decimal",
        "int96_from_spark",  # T3
        "nan_in_stats",  # F2
        "nulls.snappy",  # N5, N9
        "rle_boolean_encoding",
        "sort_columns",
    ],
)
def test_rows_of_a_golden_file_are_those_of_a_full_read(golden, name):
    check_file(golden / "parquet" / f"{name}.parquet")


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("alltypes_tiny_pages", "id < 10"),
        ("alltypes_tiny_pages", "bigint_col = 90 AND id > 7000"),
        ("alltypes_tiny_pages", "timestamp_col < '2009-01-02'"),
        ("alltypes_tiny_pages", "string_col LIKE '9%' AND id < 50"),
        ("alltypes_tiny_pages", "float_col > 9.8"),
        ("alltypes_tiny_pages", "tinyint_col = 300"),
        ("int32_with_null_pages", "int32_field IS NULL"),
        ("int32_with_null_pages", "int32_field > 2000000000"),
        ("int32_with_null_pages", "int32_field < 5.5"),
        ("delta_byte_array", "c_customer_id LIKE 'AAAAAAAAB%'"),
        ("delta_byte_array", "c_salutation IS NULL"),
        ("nested_structs.rust", "roll_num.count > 0 AND roll_num.min <= roll_num.max"),
        ("nested_structs.rust", "roll_num.max < 0"),
    ],
)
def test_rows_of_larger_golden_files_are_those_of_a_full_read(golden, name, where):
    path = golden / "parquet" / f"{name}.parquet"
    rows = pq.ParquetFile(path, coerce_int96_timestamp_unit="us").read()
    (expected,) = duckdb.sql(f"SELECT count(*) FROM rows WHERE {where}").fetchall()[0]
    assert rows.num_rows >= expected
    assert tamis.open(path).scan(where).count() == expected
    assert tamis.open(path).scan(where).to_arrow().num_rows == expected


# --- Writers --------------------------------------------------------------------------------------------------------

ROWS = 40


def make_all_types() -> pa.Table:
    """Return columns of all types, mostly ascending so that row groups differ, with NULL, NaN and the extremes."""
    numbers = list(range(-ROWS // 2, ROWS // 2))
    floats = [float(each) for each in numbers]
    floats[3], floats[7], floats[20] = NAN, OTHER_NAN, -0.0

    def add_nulls(values: list) -> list:
        return [None if index % 9 == 4 or 30 <= index < 33 else value for index, value in enumerate(values)]

    return pa.table(
        {
            "i8": pa.array(add_nulls(numbers), pa.int8()),
            "i32": pa.array(add_nulls(numbers), pa.int32()),
            "i64": pa.array(add_nulls([each * 2**58 for each in numbers]), pa.int64()),
            "u8": pa.array(add_nulls([each + 128 for each in numbers]), pa.uint8()),
            "u32": pa.array(add_nulls([each + 2**31 for each in numbers]), pa.uint32()),
            "u64": pa.array(add_nulls([each + 2**63 for each in numbers]), pa.uint64()),
            "f64": pa.array(add_nulls(floats), pa.float64()),
            "text": pa.array(add_nulls([chr(0xD7F0 + each) * 70 if each < 0 else "é" * each for each in numbers])),
            "bytes": pa.array(add_nulls([bytes([each % 256]) * 70 for each in numbers])),
            "flag": pa.array(add_nulls([each > 0 for each in numbers])),
            "day": pa.array(add_nulls(numbers), pa.int32()).cast(pa.date32()),
            "us": pa.array(add_nulls([each * 43_200_000_001 for each in numbers]), pa.timestamp("us")),
            "utc": pa.array(add_nulls([each * 43_200_000_001 for each in numbers]), pa.timestamp("us", "UTC")),
            "ns": pa.array(add_nulls([each * 43_200_000_000_001 for each in numbers]), pa.timestamp("ns")),
            "ms": pa.array(add_nulls([each * 43_200_001 for each in numbers]), pa.timestamp("ms")),
            "money": pa.array(add_nulls([Decimal(each) / 4 for each in numbers]), pa.decimal128(9, 2)),
            "wide": pa.array(add_nulls([Decimal(each * 10**27) for each in numbers]), pa.decimal128(38, 4)),
            "inner": pa.array(
                [None if index % 5 == 0 else {"x": each, "y": str(each)} for index, each in enumerate(numbers)],
                pa.struct([("x", pa.int64()), ("y", pa.string())]),
            ),
        }
    )


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, None),
        ({"data_page_version": "2.0", "use_dictionary": False, "write_page_index": True}, ("text", "f64", "inner")),
        ({"store_decimal_as_integer": True, "write_statistics": ["text", "money"]}, ("text", "f64", "money")),
        ({"write_statistics": False}, ("text", "f64")),
        ({"use_deprecated_int96_timestamps": True, "store_schema": False}, ("us", "utc", "i8")),
        ({"version": "1.0", "coerce_timestamps": "ms", "store_schema": False}, ("day", "ms", "u32")),
    ],
    ids=["defaults", "v2 pages", "decimals as integers", "no statistics", "int96", "version 1.0"],
)
def test_rows_of_a_pyarrow_file_are_those_of_a_full_read(tmp_path, options, names):
    path = tmp_path / "f.parquet"
    rows = make_all_types() if names is None else make_all_types().select(names)
    pq.write_table(rows, path, row_group_size=8, **options)
    assert (check_file(path, names) == 0) == (options.get("write_statistics") is False)


def test_rows_of_a_duckdb_file_are_those_of_a_full_read(tmp_path):
    path = tmp_path / "f.parquet"
    rows = make_all_types()
    assert rows.num_rows == ROWS
    many = "SELECT * FROM rows ORDER BY i32 IS NULL, i32"
    # DuckDB makes row groups of 2048 rows at least.
    duckdb.sql(f"COPY (SELECT r.* FROM ({many}) r, range(120)) TO '{path}' (ROW_GROUP_SIZE 2048, PARQUET_VERSION v2)")
    assert pq.ParquetFile(path).num_row_groups > 1
    table = tamis.open(path)
    for where in (
        "i8 > 5", "u64 >= 9223372036854775808", "f64 > 5", "f64 = 0", "NOT (f64 < 3)", "money = -0.25", "flag",
        "text LIKE 'éé%'", "bytes > X'FE'", "day < '1969-12-25'", "us IS NULL", "ns < '1970-01-01'", "`inner`.x = 3",
        "wide > 0", "i64 <> 0",
    ):  # fmt: skip
        plain = where.replace("X'FE'", "'\\xFE'::BLOB").replace("`", '"')
        (expected,) = duckdb.sql(f"SELECT count(*) FROM '{path}' WHERE {plain}").fetchall()[0]
        assert table.scan(where).count() == expected, where


def test_rows_of_a_polars_file_are_those_of_a_full_read(tmp_path):
    path = tmp_path / "f.parquet"
    pl.from_arrow(make_all_types()).write_parquet(path, row_group_size=8, statistics="full")
    assert check_file(path, ("i8", "u64", "f64", "text", "bytes", "ns", "utc", "money", "inner")) > 0


# --- Rare types -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("string views", pa.array(["a", "b", "c", None], pa.string_view())),
        ("binary views", pa.array([b"a", b"b", b"c", None], pa.binary_view())),
        ("dictionaries", pa.array(["a", "b", "c", None]).dictionary_encode()),
        ("half floats", pa.array([np.float16(1), np.float16(2), np.float16(3), None], pa.float16())),
        ("times", pa.array([time(1), time(2), time(3), None])),
        ("durations", pa.array([timedelta(1), timedelta(2), timedelta(3), None])),
        ("milliseconds of dates", pa.array([0, 86_400_000, -86_400_000, None], pa.date64())),
        ("nothing", pa.nulls(4)),
        ("lists", pa.array([[1], [], [2, 3], None])),
        ("maps", pa.array([[("a", 1)], [], [("b", 2)], None], pa.map_(pa.string(), pa.int64()))),
        ("fixed lists", pa.array([[1, 2], [3, 4], [5, 6], None], pa.list_(pa.int64(), 2))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_rows_with_columns_of_rare_types_are_filtered(tmp_path, name, column):
    table = write_table(tmp_path, {"x": column})
    nulls = [row for row, value in enumerate(column.to_pylist()) if value is None]
    assert find_rows(table, "x IS NULL") == nulls
    assert find_rows(table, "x IS NULL OR row % 2 = 5") == nulls
    assert find_rows(table, "row >= 2") == [2, 3]
    assert table.scan("row >= 2").to_arrow().num_rows == 2


@pytest.mark.parametrize(
    "column", [pa.array(["a", "b", "c", None]), pa.array([3, 1, 2, None]), pa.array([1.5, NAN, 2.5, None])]
)
def test_dictionary_columns_are_compared_by_their_values(tmp_path, column):
    plain, coded = column, column.dictionary_encode()
    tables = []
    for name, each in (("plain", plain), ("coded", coded)):
        (tmp_path / name).mkdir()
        tables.append(write_table(tmp_path / name, {"x": each}))
    literals = ["'b'", "'x'"] if pa.types.is_string(column.type) else ["2", "2.5", "9"]
    for literal in literals:
        for operator in ("=", "<>", "<", ">=", "<=>"):
            where = f"x {operator} {literal}"
            assert find_rows(tables[0], where) == find_rows(tables[1], where), where
        assert find_rows(tables[0], f"x NOT IN ({literal})") == find_rows(tables[1], f"x NOT IN ({literal})")
    assert find_rows(tables[1], "x IS NULL") == [3]
