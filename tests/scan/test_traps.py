"""Traps end to end: scans of files whose rows other readers have lost."""

from __future__ import annotations

import math
import struct
from datetime import date, datetime
from decimal import Decimal

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.parquet.files import count_kept_row_groups, find_rows, patch_footer, write_table
from tamis.errors import EvaluationError, TamisError

NAN = math.nan
OTHER_NAN = float(np.array([0xFFF8_0000_0000_0001], np.uint64).view(np.float64)[0])


# --- N --------------------------------------------------------------------------------------------------------------


def test_N1_a_file_without_null_counts(tmp_path):
    table = write_table(tmp_path, {"x": pa.array([1, None, 3, 4])}, write_statistics=False)
    assert find_rows(table, "x IS NULL") == [1]
    assert find_rows(table, "x IS NOT NULL") == [0, 2, 3]
    assert count_kept_row_groups(table, "x IS NULL") == (2, 2)


def test_N2_N3_lists_and_null(tmp_path):
    table = write_table(tmp_path, {"x": pa.array(["foo", None, "foo", "foo", "goo", None])})
    assert find_rows(table, "x NOT IN ('foo')") == [4]
    assert count_kept_row_groups(table, "x NOT IN ('foo')") == (1, 3)
    assert find_rows(table, "x IN ('foo', NULL)") == [0, 2, 3]
    assert find_rows(table, "x NOT IN ('foo', NULL)") == []
    assert count_kept_row_groups(table, "x NOT IN ('foo', NULL)")[0] == 0
    assert find_rows(table, "(x IN ('foo', NULL)) IS NULL") == [1, 4, 5]


def test_N4_unequal_inside_the_bounds(tmp_path):
    table = write_table(tmp_path, {"x": pa.array(["A", "Z", "M", "M", "N", "Z"])})
    assert find_rows(table, "x <> 'M'") == [0, 1, 4, 5]
    assert count_kept_row_groups(table, "x <> 'M'") == (2, 3)


def test_N5_N6_row_groups_of_nulls(tmp_path):
    table = write_table(tmp_path, {"x": pa.array([None, None, 5, 5, 5, None], pa.int32())})
    assert find_rows(table, "x <> 7") == [2, 3, 4]
    assert count_kept_row_groups(table, "x <> 7") == (2, 3)
    assert find_rows(table, "x <=> NULL") == [0, 1, 5]
    assert find_rows(table, "x IS DISTINCT FROM 5") == [0, 1, 5]
    assert count_kept_row_groups(table, "x IS DISTINCT FROM 5") == (2, 3)


def test_N7_not_like_with_a_shared_prefix(tmp_path):
    table = write_table(tmp_path, {"x": pa.array(["aba", "abz", "abc", None, "aa", "abc", "b", "c"])})
    assert find_rows(table, "x NOT LIKE 'ab%'") == [4, 6, 7]
    assert count_kept_row_groups(table, "x NOT LIKE 'ab%'") == (2, 4)


def test_N9_fields_of_null_structs_and_items_of_lists(tmp_path):
    table = write_table(
        tmp_path,
        {
            "s": pa.array([{"x": 1}, None, {"x": None}, {"x": 9}], pa.struct([("x", pa.int64())])),
            "l": pa.array([[1, None, None], [], None, [5]], pa.list_(pa.int64())),
        },
    )
    assert find_rows(table, "s.x IS NULL") == [1, 2]
    assert find_rows(table, "s IS NULL") == [1]
    assert find_rows(table, "NOT (s.x > 5)") == [0]
    assert count_kept_row_groups(table, "s.x > 5") == (1, 2)
    # A list has more NULL items than the file has rows, but a NULL item does not make the list NULL.
    assert find_rows(table, "l IS NULL") == [2]
    assert find_rows(table, "l IS NOT NULL") == [0, 1, 3]
    assert find_rows(table, "size(l) = 3") == [0]


def test_N10_one_column_without_statistics(tmp_path):
    columns = {"a": pa.array([1, 2, 8, 9]), "b": pa.array([1, 2, 8, 9])}
    table = write_table(tmp_path, columns, write_statistics=["a"])
    assert find_rows(table, "a > 5 AND b > 8") == [3]
    assert count_kept_row_groups(table, "a > 5 AND b > 8") == (1, 2)
    assert find_rows(table, "a > 5 OR b = 1") == [0, 2, 3]


# --- F --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data_type", [pa.float64(), pa.float32(), pa.float16()])
@pytest.mark.parametrize("nan", [NAN, OTHER_NAN])
def test_F1_F3_nan_beside_the_bounds(tmp_path, data_type, nan):
    values = [1.0, nan, 1.0, None, nan, nan, 5.0, 5.0]
    halves = [value if value is None else np.float16(value) for value in values]
    table = write_table(tmp_path, {"x": pa.array(halves if data_type == pa.float16() else values, data_type)})
    nans = [1, 4, 5]
    assert find_rows(table, "x <> 1") == [1, 4, 5, 6, 7]
    assert find_rows(table, "NOT (x < 3)") == [1, 4, 5, 6, 7]
    assert find_rows(table, "x > 3") == [1, 4, 5, 6, 7]
    assert find_rows(table, "x > 5") == nans
    assert find_rows(table, "x NOT IN (1, 5)") == nans
    assert find_rows(table, "x = double('NaN')") == nans
    assert find_rows(table, "x IN (5, double('NaN'))") == [1, 4, 5, 6, 7]
    assert find_rows(table, "x <> double('NaN')") == [0, 2, 6, 7]
    assert find_rows(table, "x < double('NaN')") == [0, 2, 6, 7]
    assert find_rows(table, "x BETWEEN 3 AND 9") == [6, 7]
    assert find_rows(table, "x IS NULL") == [3]
    assert table.scan("x <= 5").count() == 4


def test_F2_a_bound_that_is_nan(tmp_path):
    table = write_table(tmp_path, {"x": pa.array([1.25, 7.75, 100.0, 200.0])})
    broken = patch_footer(table, upper=(struct.pack("<d", 7.75), struct.pack("<d", NAN)))
    for where in ("x > 5", "x < 3", "x = 7.75", "x <> 1.25", "x BETWEEN 7 AND 8"):
        assert find_rows(broken, where) == find_rows(table, where)
    assert count_kept_row_groups(broken, "x < 1") == (1, 2)


@pytest.mark.parametrize(("lower", "upper"), [(0.0, 5.0), (-5.0, -0.0)])
def test_F4_a_zero_in_the_bounds_hides_the_other(tmp_path, lower, upper):
    both = pa.array([lower, upper, 0.0, -0.0, -0.0, 0.0])
    table = write_table(tmp_path, {"x": both})
    zero = -lower if lower == 0 else -upper
    # A writer that treats both zeros as equal may record either of them.
    for sign in (0.0, -0.0):
        text = "-0.0D" if math.copysign(1, sign) < 0 else "0.0D"
        assert len(find_rows(table, f"x = {text}")) == 5
        assert find_rows(table, f"x <> {text}") == [1 if lower == 0 else 0]
        assert len(find_rows(table, f"x IN ({text}, 99)")) == 5
    assert zero == 0


def test_F6_half_floats_are_not_compared_as_bytes(tmp_path):
    values = [np.float16(each) for each in (-2.0, -1.0, -0.5, 0.5, 1.0, 60000.0)]
    table = write_table(tmp_path, {"x": pa.array(values, pa.float16())})
    assert find_rows(table, "x < -0.75") == [0, 1]
    assert find_rows(table, "x BETWEEN -0.6 AND 0.6") == [2, 3]
    assert find_rows(table, "x = 0.1") == []
    assert count_kept_row_groups(table, "x < -0.75") == (1, 3)


def test_F8_floats_against_decimal_literals(tmp_path):
    table = write_table(
        tmp_path, {"x": pa.array([0.1, 0.5, 5.0, 9.0], pa.float32()), "y": pa.array([0.1, 0.5, 5.0, 9.0])}
    )
    assert find_rows(table, "y = 0.1") == [0]
    assert find_rows(table, "x = 0.1") == []
    assert find_rows(table, "x > 0.1") == [0, 1, 2, 3]
    assert find_rows(table, "x = 5.0 OR x = 0.5") == [1, 2]
    assert find_rows(table, "x < 1e39 AND x > -1e39") == [0, 1, 2, 3]


# --- S --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writer", ["pyarrow", "polars"])
def test_S1_S2_long_texts_whose_statistics_are_cut(tmp_path, writer):
    texts = ["a" * 5000 + "b", "a" * 5000 + "c", "é" * 3000, "é" * 3000 + "z", "\U0010ffff" * 2000, "\U0010ffff" * 2001]
    table = write_table(tmp_path, {"x": pa.array(texts)})
    if writer == "polars":
        pl.read_parquet(tmp_path / "f.parquet").write_parquet(tmp_path / "p.parquet", row_group_size=2)
        table = tamis.open(tmp_path / "p.parquet")
    for index, text in enumerate(texts):
        assert table.scan(tamis.col("x") == text).to_arrow()["row"].to_pylist() == [index]
        assert table.scan(tamis.col("x") > text).count() == len(texts) - 1 - index
    assert table.scan(tamis.col("x").startswith("a" * 5000)).to_arrow()["row"].to_pylist() == [0, 1]
    assert table.scan(tamis.col("x").startswith("\U0010ffff" * 2001)).to_arrow()["row"].to_pylist() == [5]


def test_S3_bounds_that_are_not_text(tmp_path):
    table = write_table(tmp_path, {"x": pa.array(["ééé", "ééz", "zzzz", "zzzz"])})
    # A writer may truncate bounds inside of a character: the lower bound down, the upper bound up.
    broken = patch_footer(
        table, lower=("ééé".encode(), b"\xc3\xa9\xc3\xa9\xc3\xff"), upper=("ééz".encode(), b"\xc3\xa9\xc3\xa9z")
    )
    lowered = patch_footer(broken, lower=(b"\xc3\xa9\xc3\xa9\xc3\xff", b"\xc3\xa9\xc3\x80\xc3\x00"))
    for where in ("x = 'ééé'", "x = 'ééz'", "x LIKE 'é%'", "x > 'ééy'", "x < 'zz'", "x <> 'ééé'"):
        assert find_rows(lowered, where) == find_rows(table, where)


def test_S5_bounds_of_texts_by_an_old_or_nameless_writer(tmp_path):
    table = write_table(tmp_path, {"x": pa.array(["bbbb", "cccc", "yyyy", "zzzz"])})
    name = pq.ParquetFile(tmp_path / "f.parquet").metadata.created_by.encode()
    for writer in (b"parquet-mr version 1.6.0", b"somebody"):
        wrong = patch_footer(table, writer=(name, writer.ljust(len(name))[: len(name)]), bound=(b"bbbb", b"caaa"))
        assert find_rows(wrong, "x = 'bbbb'") == [0]
        assert count_kept_row_groups(wrong, "x = 'bbbb'") == (2, 2)
    assert count_kept_row_groups(table, "x = 'bbbb'") == (1, 2)


def test_S6_uuids_compare_unsigned(tmp_path):
    path = tmp_path / "f.parquet"
    duckdb.sql(
        "COPY (SELECT i AS row, (lpad(to_hex(i * 16), 2, '0') || '000000-0000-0000-0000-000000000000')::UUID AS x "
        f"FROM range(16) t(i)) TO '{path}'"
    )
    table = tamis.open(path)
    assert find_rows(table, "x >= X'80000000000000000000000000000000'") == list(range(8, 16))
    assert find_rows(table, "x < X'10'") == [0]
    binary = write_table(tmp_path, {"x": pa.array([b"\x00\x01", b"\x7f\xff", b"\x80\x00", b"\xff\xff"], pa.binary(2))})
    assert find_rows(binary, "x > X'7FFF'") == [2, 3]
    assert count_kept_row_groups(binary, "x > X'7FFF'") == (1, 2)


def test_S7_S8_patterns_and_prefixes(tmp_path):
    texts = ["a%c", "a_c", "abc", "abd", "a\\c", "b", "\U0010ffff", "\U0010ffffz", "", "é", None, "a\nc"]
    table = write_table(tmp_path, {"x": pa.array(texts)})
    for where, expected in {
        r"x LIKE 'a\\%c'": ["a%c"],
        r"x LIKE 'a\\_c'": ["a_c"],
        "x LIKE 'a_c'": ["a%c", "a_c", "abc", "a\\c", "a\nc"],
        "x LIKE 'ab%'": ["abc", "abd"],
        "x LIKE 'a!%%' ESCAPE '!'": ["a%c"],
        "x LIKE '%c'": ["a%c", "a_c", "abc", "a\\c", "a\nc"],
        "x LIKE ''": [""],
        "x LIKE '\U0010ffff%'": ["\U0010ffff", "\U0010ffffz"],
        "x NOT LIKE 'a%'": ["b", "\U0010ffff", "\U0010ffffz", "", "é"],
        "startswith(x, '\U0010ffff')": ["\U0010ffff", "\U0010ffffz"],
        "x > 'é'": ["\U0010ffff", "\U0010ffffz"],
        "reverse(x) LIKE 'c\\\\%a'": ["a%c"],
    }.items():
        assert [texts[row] for row in find_rows(table, where)] == expected, where


# --- T --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writer", ["pyarrow", "duckdb", "polars"])
def test_T1_unsigned_numbers_with_the_high_bit(tmp_path, writer):
    columns = {
        f"u{bits}": pa.array([0, 1, 2 ** (bits - 1), 2**bits - 1], pa.type_for_alias(f"uint{bits}"))
        for bits in (8, 16, 32, 64)
    }
    table = write_table(tmp_path, columns)
    if writer != "pyarrow":
        path, rows = tmp_path / "other.parquet", table.scan().to_arrow()
        if writer == "polars":
            pl.from_arrow(rows).write_parquet(path, row_group_size=2)
        else:
            duckdb.sql(f"COPY (SELECT * FROM rows) TO '{path}'")
        table = tamis.open(path)
    for bits in (8, 16, 32, 64):
        half = 2 ** (bits - 1)
        assert find_rows(table, f"u{bits} >= {half}") == [2, 3]
        assert find_rows(table, f"u{bits} < {half}") == [0, 1]
        assert find_rows(table, f"u{bits} = {2**bits - 1}") == [3]
        assert find_rows(table, f"u{bits} IN (1, {2**bits - 1}, {2**bits})") == [1, 3]
        assert find_rows(table, f"u{bits} > -1") == [0, 1, 2, 3]
        assert find_rows(table, f"u{bits} % 2 = 1 OR u{bits} = {half}") == [1, 2, 3]


@pytest.mark.parametrize("as_integer", [True, False])
@pytest.mark.parametrize(("precision", "scale"), [(5, 2), (18, 4), (38, 10)])
def test_T2_decimals_of_every_storage(tmp_path, precision, scale, as_integer):
    values = [Decimal("-10"), Decimal("-1.5"), Decimal("0"), Decimal("1.5"), Decimal("10"), None]
    columns = {"x": pa.array(values, pa.decimal128(precision, scale))}
    table = write_table(tmp_path, columns, store_decimal_as_integer=as_integer and precision <= 18)
    assert find_rows(table, "x < 0") == [0, 1]
    assert find_rows(table, "x = 1.5") == [3]
    assert find_rows(table, "x = 1.50000000000001") == []
    assert find_rows(table, "x > 1.49999999999999") == [3, 4]
    assert find_rows(table, "x BETWEEN -1.5 AND 1.5") == [1, 2, 3]
    assert find_rows(table, "x <> 0 AND x < 1e30") == [0, 1, 3, 4]
    assert count_kept_row_groups(table, "x < -5") == (1, 3)


def test_T3_int96_timestamps(tmp_path):
    timestamps = [datetime(1960, 1, 1), datetime(1969, 12, 31, 23), datetime(1970, 1, 1), datetime(2024, 1, 1)]
    table = write_table(tmp_path, {"x": pa.array(timestamps)}, use_deprecated_int96_timestamps=True)
    assert find_rows(table, "x < '1970-01-01'") == [0, 1]
    assert find_rows(table, "x = '2024-01-01'") == [3]
    assert find_rows(table, "date(x) = '1969-12-31'") == [1]
    assert count_kept_row_groups(table, "x > '2020-01-01'") == (2, 2)  # their statistics have no order


def test_T4_literals_wider_than_the_column(tmp_path):
    table = write_table(tmp_path, {"x": pa.array([-128, 5, 6, 127, None, 7], pa.int8())})
    assert find_rows(table, "x = 300") == []
    assert find_rows(table, "x < 300") == [0, 1, 2, 3, 5]
    assert find_rows(table, "x <> 300") == [0, 1, 2, 3, 5]
    assert find_rows(table, "NOT (x = 300)") == [0, 1, 2, 3, 5]
    assert find_rows(table, "(x = 300) IS NULL") == [4]
    assert find_rows(table, "x < 5.5") == [0, 1]
    assert find_rows(table, "x > 5.5") == [2, 3, 5]
    assert find_rows(table, "x = 5.5") == []
    assert find_rows(table, "x <= 9223372036854775807") == [0, 1, 2, 3, 5]
    assert find_rows(table, "x IN (5, 300, 5.5)") == [1]
    assert find_rows(table, "x NOT IN (5, 300)") == [0, 2, 3, 5]
    assert table.scan(tamis.col("x") > 126.5).to_arrow()["row"].to_pylist() == [3]
    assert count_kept_row_groups(table, "x = 300") == (0, 3)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "America/New_York"])
def test_T5_T6_T7_timestamps_of_every_unit_and_zone(tmp_path, unit, zone, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    counts = [-86_401, -1, 0, 1, 86_399, 86_400]
    table = write_table(tmp_path, {"x": pa.array([each * per_second for each in counts], pa.timestamp(unit, zone))})
    assert find_rows(table, "x < '1970-01-01'") == [0, 1]
    assert find_rows(table, "x < TIMESTAMP '1970-01-01 00:00:00.000001'") == [0, 1, 2]
    assert find_rows(table, "x > '1970-01-01 00:00:00.5'") == [3, 4, 5]
    assert find_rows(table, "x = '1970-01-01T02:00:00+02:00'") == [2]
    assert find_rows(table, "date(x) = '1970-01-01'") == [2, 3, 4]
    assert find_rows(table, "date(x) = '1969-12-31'") == [1]
    assert find_rows(table, "year(x) = 1969") == [0, 1]
    assert find_rows(table, "hour(x) = 23") == [0, 1, 4]
    assert find_rows(table, "x >= DATE '1970-01-02'") == [5]
    assert find_rows(table, "x + INTERVAL 1 DAY < '1970-01-01'") == [0]
    assert find_rows(table, "date_trunc('day', x) = TIMESTAMP '1969-12-31'") == [1]
    assert count_kept_row_groups(table, "date(x) = '1969-12-31'") == (1, 3)


def test_T6_dates_before_1970(tmp_path):
    days = [
        date(1, 1, 1),
        date(1900, 2, 28),
        date(1969, 12, 31),
        date(1970, 1, 1),
        date(2024, 2, 29),
        date(9999, 12, 31),
    ]
    table = write_table(tmp_path, {"x": pa.array(days)})
    assert find_rows(table, "x < '1970-01-01'") == [0, 1, 2]
    assert find_rows(table, "year(x) < 1970") == [0, 1, 2]
    assert find_rows(table, "trunc(x, 'month') = DATE '1969-12-01'") == [2]
    assert find_rows(table, "x + 1 = DATE '1970-01-01'") == [2]
    assert find_rows(table, "x - INTERVAL 1 MONTH < DATE '1900-02-01'") == [0, 1]
    assert find_rows(table, "month(x) = 2") == [1, 4]
    assert count_kept_row_groups(table, "year(x) = 2024") == (1, 3)


def test_T6_infinities_of_duckdb(tmp_path):
    path = tmp_path / "f.parquet"
    duckdb.sql(
        "COPY (SELECT * FROM (VALUES (0, 'infinity'::TIMESTAMP, '-infinity'::DATE, 'infinity'::TIMESTAMP_MS), "
        "(1, '2024-03-03 10:00:00', '2024-03-03', '2024-03-03 10:00:00'), (2, '-infinity', 'infinity', '-infinity')) "
        f"t(row, us, day, ms)) TO '{path}'"
    )
    table = tamis.open(path)
    assert find_rows(table, "year(us) = 2024") == [1]
    assert find_rows(table, "year(day) = 2024") == [1]
    assert find_rows(table, "year(ms) = 2024") == [1]
    assert find_rows(table, "date(us) = '2024-03-03'") == [1]
    assert find_rows(table, "us > '2024-01-01'") == [0, 1]
    assert find_rows(table, "day < '2024-01-01'") == [0]


def test_T9_intervals_have_no_order(tmp_path):
    path = tmp_path / "f.parquet"
    duckdb.sql(f"COPY (SELECT i AS row, CASE WHEN i > 1 THEN INTERVAL (i) DAY END AS x FROM range(4) t(i)) TO '{path}'")
    table = tamis.open(path)
    assert find_rows(table, "x IS NULL") == [0, 1]
    assert find_rows(table, "x IS NOT NULL AND row < 3") == [2]


def test_T10_bounds_the_wrong_way_round(tmp_path):
    table = write_table(tmp_path, {"x": pa.array([0x11223344, 0x55667788, 5, 6], pa.int32())})
    low, high = struct.pack("<i", 0x11223344), struct.pack("<i", 0x55667788)
    swapped = patch_footer(table, mark=(low, b"MARK"), low=(high, low), high=(b"MARK", high))
    for where in ("x = 287454020", "x < 1000000000", "x > 1000000000", "x <> 5", "x BETWEEN 287454020 AND 287454021"):
        assert find_rows(swapped, where) == find_rows(table, where)
        assert find_rows(table, where)
    assert count_kept_row_groups(swapped, "x = 300000000") == (1, 2)


@pytest.mark.parametrize(
    ("table_type", "file_type", "values", "wheres"),
    [
        (pa.int64(), pa.int32(), [1, 7], ["x = 7", "x > 5", "x IN (7, 8)", "x < 5.5", "x = 4294967303"]),
        (pa.int64(), pa.uint32(), [1, 2**31 + 7], ["x > 2147483647", "x = 2147483655", "x < 0"]),
        (pa.float64(), pa.float32(), [0.1, 7.5], ["x = 7.5", "x = 0.1", "x > 0.1", "x <= 0.1", "x < 5"]),
        (pa.float64(), pa.int32(), [1, 7], ["x = 7", "x > 6.5", "x <> 1", "x = double('NaN')"]),
        (pa.timestamp("us"), pa.timestamp("ms"), [0, 7],
         ["x > '1970-01-01'", "x = '1970-01-01 00:00:00.007'", "x < '1970-01-01 00:00:00.0065'"]),
        (pa.timestamp("us"), pa.date32(), [0, 7], ["x > '1970-01-01'", "x = '1970-01-08'", "date(x) = '1970-01-08'"]),
        (pa.decimal128(12, 4), pa.decimal128(5, 2), [Decimal("1.5"), Decimal("7.25")],
         ["x = 7.25", "x > 1.5001", "x < 1.5001"]),
        (pa.decimal128(12, 2), pa.int32(), [1, 7], ["x = 7", "x > 1.01", "x <> 1"]),
        (pa.large_string(), pa.string(), ["a", "z"], ["x = 'z'", "x LIKE 'z%'", "x > 'b'"]),
    ],
)  # fmt: skip
def test_T11_columns_that_the_table_promoted(tmp_path, table_type, file_type, values, wheres):
    """The first file has the type of the table; the second was written before the type was widened."""
    narrow = (
        pa.array(values, pa.int32()).cast(file_type) if pa.types.is_date(file_type) else pa.array(values, file_type)
    )
    wide = narrow.cast(table_type)
    folder = tmp_path / "t"
    folder.mkdir()
    for name, first, column in (("a", 0, wide), ("b", 2, narrow)):
        rows = pa.table({"row": pa.array([first, first + 1]), "x": column})
        pq.write_table(rows, folder / f"{name}.parquet", row_group_size=1)
    table = tamis.open(folder)
    assert table.schema.field("x").type == table_type
    for where in wheres:
        found = find_rows(table, where)
        assert [row - 2 for row in found if row >= 2] == [row for row in found if row < 2], where
        assert table.scan(where).to_arrow().schema.field("x").type == table_type


@pytest.mark.parametrize("where", ["day < ns", "ns > day", "seconds <> ns"])
def test_T5_a_far_day_against_nanoseconds_is_an_error_and_not_a_lost_row(tmp_path, where):
    """Two columns are compared in the finer unit, and nanoseconds end in 2262."""
    columns = {
        "day": pa.array([date(9999, 12, 31), date(1970, 1, 1)]),
        "seconds": pa.array([10**12, 0], pa.timestamp("s")),
        "ns": pa.array([0, 1], pa.timestamp("ns")),
    }
    table = write_table(tmp_path, columns)
    with pytest.raises(EvaluationError, match="cannot evaluate"):
        table.scan(where).to_arrow()


def test_T11_a_file_of_a_wider_type_than_the_table_is_an_error_and_not_rounded(tmp_path):
    folder = tmp_path / "t"
    folder.mkdir()
    pq.write_table(pa.table({"x": pa.array([0.5], pa.float32())}), folder / "a.parquet")
    pq.write_table(pa.table({"x": pa.array([0.1], pa.float64())}), folder / "b.parquet")
    table = tamis.open(folder)
    if table.schema.field("x").type == pa.float32():
        with pytest.raises(TamisError, match="x"):
            table.scan().to_arrow()


def test_columns_that_a_file_does_not_have_are_null(tmp_path):
    folder = tmp_path / "t"
    folder.mkdir()
    pq.write_table(pa.table({"row": pa.array([0]), "x": pa.array([7.5])}), folder / "a.parquet")
    pq.write_table(pa.table({"row": pa.array([1])}), folder / "b.parquet")
    table = tamis.open(folder)
    assert find_rows(table, "x IS NULL") == [1]
    assert find_rows(table, "x > 5") == [0]
    assert find_rows(table, "NOT (x > 9)") == [0]
    assert find_rows(table, "x <=> NULL OR x > 5") == [0, 1]


def test_a_row_group_of_no_rows_and_a_file_of_no_rows(tmp_path):
    schema = pa.schema([("row", pa.int64()), ("x", pa.float64())])
    with pq.ParquetWriter(tmp_path / "f.parquet", schema) as writer:
        writer.write_table(pa.table({"row": [0], "x": [1.0]}, schema), row_group_size=1)
        writer.write_table(schema.empty_table())
        writer.write_table(pa.table({"row": [1], "x": [9.0]}, schema))
    assert find_rows(tamis.open(tmp_path / "f.parquet"), "x > 5") == [1]
    pq.write_table(schema.empty_table(), tmp_path / "g.parquet")
    assert find_rows(tamis.open(tmp_path / "g.parquet"), "x > 5 OR x IS NULL") == []


def test_an_error_of_a_value_names_the_expression(tmp_path):
    table = write_table(tmp_path, {"x": pa.array([1, 2**62, 3, 4])})
    with pytest.raises(TamisError, match="x \\* 4"):
        table.scan("x * 4 = 4").to_arrow()
    assert find_rows(write_table(tmp_path, {"x": pa.array([1, 2, 3, 4])}), "x * 4 = 4") == [0]
