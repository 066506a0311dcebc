"""Traps end to end: files of several writers, scanned with and without pruning, against a judge over a full read."""

from __future__ import annotations

import math
import struct
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.probes import check_file
from tamis.errors import TamisError

NAN = math.nan
OTHER_NAN = float(np.array([0xFFF8_0000_0000_0001], np.uint64).view(np.float64)[0])


def written(path: Path, columns: dict[str, pa.Array], rows: int = 2, **options: object) -> tamis.Table:
    """A file of small row groups, with the number of each row."""
    count = len(next(iter(columns.values())))
    table = pa.table({"row": pa.array(range(count), pa.int64()), **columns})
    pq.write_table(table, path / "f.parquet", row_group_size=rows, **options)
    return tamis.open(path / "f.parquet")


def rows_of(table: tamis.Table, where: str) -> list[int]:
    """The numbers of the matching rows; the same with every level of pruning off."""
    found = table.scan(where, columns=["row"]).to_arrow()["row"].to_pylist()
    assert table.scan(where, columns=["row"], levels=()).to_arrow()["row"].to_pylist() == found
    assert table.scan(where).count() == len(found)
    return found


def kept_row_groups(table: tamis.Table, where: str) -> tuple[int, int]:
    (level,) = (each for each in table.scan(where).plan().report.to_dict()["levels"] if each["level"] == "row_groups")
    return level["kept"], level["total"]


def patched(table: tamis.Table, **replacements: tuple[bytes, bytes]) -> tamis.Table:
    """The table with other bytes in its footer, of the same length."""
    path = Path(table.uri.removeprefix("file://"))
    content = path.read_bytes()
    length = struct.unpack("<I", content[-8:-4])[0]
    body, footer = content[: -8 - length], content[-8 - length :]
    for old, new in replacements.values():
        assert len(old) == len(new)
        assert old in footer
        footer = footer.replace(old, new)
    other = path.with_name("patched.parquet")
    other.write_bytes(body + footer)
    return tamis.open(other)


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
        "nested_structs.rust",
        "rle_boolean_encoding",
        "sort_columns",
    ],
)
def test_rows_of_a_golden_file_are_those_of_a_full_read(golden, name):
    check_file(golden / "parquet" / f"{name}.parquet")


def test_rows_of_larger_golden_files_are_those_of_a_full_read(golden):
    for name, wheres in {
        "alltypes_tiny_pages": ["id < 10", "bigint_col = 90 AND id > 7000", "timestamp_col < '2009-01-02'", "year = 2010",
                                "string_col LIKE '9%' AND id < 50", "float_col > 9.8", "tinyint_col = 300", "month IN (1, 13)"],
        "int32_with_null_pages": ["int32_field IS NULL", "int32_field > 2000000000", "int32_field <> 0", "int32_field < 5.5"],
        "delta_byte_array": ["c_customer_id LIKE 'AAAAAAAAB%'", "c_salutation IS NULL", "c_login = ''"],
    }.items():  # fmt: skip
        path = golden / "parquet" / f"{name}.parquet"
        table, full = tamis.open(path), pq.ParquetFile(path).read()
        for where in wheres:
            expected = duckdb.sql(f"SELECT * FROM full WHERE {where}").to_arrow_table()
            assert full.num_rows >= expected.num_rows
            assert table.scan(where).count() == expected.num_rows, where
            assert repr(table.scan(where).to_arrow().to_pylist()) == repr(expected.cast(full.schema).to_pylist()), where


# --- Writers --------------------------------------------------------------------------------------------------------

ROWS = 40


def everything() -> pa.Table:
    """Columns of all types, mostly ascending so that row groups differ, with NULL, NaN and the extremes."""
    numbers = list(range(-ROWS // 2, ROWS // 2))
    floats = [float(each) for each in numbers]
    floats[3], floats[7], floats[20] = NAN, OTHER_NAN, -0.0

    def with_nulls(values: list) -> list:
        return [None if index % 9 == 4 or 30 <= index < 33 else value for index, value in enumerate(values)]

    return pa.table(
        {
            "i8": pa.array(with_nulls(numbers), pa.int8()),
            "i16": pa.array(with_nulls([each * 300 for each in numbers]), pa.int16()),
            "i32": pa.array(with_nulls(numbers), pa.int32()),
            "i64": pa.array(with_nulls([each * 2**58 for each in numbers]), pa.int64()),
            "u8": pa.array(with_nulls([each + 128 for each in numbers]), pa.uint8()),
            "u16": pa.array(with_nulls([each + 2**15 for each in numbers]), pa.uint16()),
            "u32": pa.array(with_nulls([each + 2**31 for each in numbers]), pa.uint32()),
            "u64": pa.array(with_nulls([each + 2**63 for each in numbers]), pa.uint64()),
            "f32": pa.array(with_nulls(floats), pa.float32()),
            "f64": pa.array(with_nulls(floats), pa.float64()),
            "text": pa.array(with_nulls([chr(0xD7F0 + each) * 70 if each < 0 else "é" * each for each in numbers])),
            "bytes": pa.array(with_nulls([bytes([each % 256]) * 70 for each in numbers])),
            "flag": pa.array(with_nulls([each > 0 for each in numbers])),
            "day": pa.array(with_nulls(numbers), pa.int32()).cast(pa.date32()),
            "us": pa.array(with_nulls([each * 43_200_000_001 for each in numbers]), pa.timestamp("us")),
            "utc": pa.array(with_nulls([each * 43_200_000_001 for each in numbers]), pa.timestamp("us", "UTC")),
            "ns": pa.array(with_nulls([each * 43_200_000_000_001 for each in numbers]), pa.timestamp("ns")),
            "ms": pa.array(with_nulls([each * 43_200_001 for each in numbers]), pa.timestamp("ms")),
            "money": pa.array(with_nulls([Decimal(each) / 4 for each in numbers]), pa.decimal128(9, 2)),
            "wide": pa.array(with_nulls([Decimal(each * 10**27) for each in numbers]), pa.decimal128(38, 4)),
            "inner": pa.array(
                [None if index % 5 == 0 else {"x": each, "y": str(each)} for index, each in enumerate(numbers)],
                pa.struct([("x", pa.int64()), ("y", pa.string())]),
            ),
        }
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"data_page_version": "2.0", "use_dictionary": False, "write_page_index": True},
        {"store_decimal_as_integer": True, "compression": "none", "write_statistics": ["i8", "text", "f64", "money"]},
        {"write_statistics": False},
        {"use_deprecated_int96_timestamps": True, "store_schema": False},
        {"version": "1.0", "coerce_timestamps": "ms", "allow_truncated_timestamps": True, "store_schema": False},
    ],
    ids=["defaults", "v2 pages", "decimals as integers", "no statistics", "int96", "version 1.0"],
)
def test_rows_of_a_pyarrow_file_are_those_of_a_full_read(tmp_path, options):
    path = tmp_path / "f.parquet"
    pq.write_table(everything(), path, row_group_size=8, **options)
    skipped = check_file(path)
    assert (skipped == 0) == (options.get("write_statistics") is False)


def test_rows_of_a_duckdb_file_are_those_of_a_full_read(tmp_path):
    path = tmp_path / "f.parquet"
    rows = everything()
    assert rows.num_rows == ROWS
    many = "SELECT * FROM rows ORDER BY i32 IS NULL, i32"
    # DuckDB makes row groups of 2048 rows at least.
    duckdb.sql(f"COPY (SELECT r.* FROM ({many}) r, range(120)) TO '{path}' (ROW_GROUP_SIZE 2048, PARQUET_VERSION v2)")
    assert pq.ParquetFile(path).num_row_groups > 1
    table = tamis.open(path)
    for where in ("i8 > 5", "u64 >= 9223372036854775808", "f64 > 5", "f64 = 0", "NOT (f32 < 3)", "money = -0.25",
                  "text LIKE 'éé%'", "bytes > X'FE'", "day < '1969-12-25'", "us IS NULL", "ns < '1970-01-01'", "inner.x = 3",
                  "wide > 0", "i64 <> 0", "flag"):  # fmt: skip
        plain = where.replace("X'FE'", "'\\xFE'::BLOB").replace("inner.x", '"inner".x')
        (expected,) = duckdb.sql(f"SELECT count(*) FROM '{path}' WHERE {plain}").fetchone()
        assert table.scan(where).count() == expected, where
        assert table.scan(where, levels=()).count() == expected, where


def test_rows_of_a_polars_file_are_those_of_a_full_read(tmp_path):
    path = tmp_path / "f.parquet"
    pl.from_arrow(everything()).write_parquet(path, row_group_size=8, statistics="full")
    assert check_file(path) > 0


# --- N --------------------------------------------------------------------------------------------------------------


def test_N1_a_file_without_null_counts(tmp_path):
    table = written(tmp_path, {"x": pa.array([1, None, 3, 4])}, write_statistics=False)
    assert rows_of(table, "x IS NULL") == [1]
    assert rows_of(table, "x IS NOT NULL") == [0, 2, 3]
    assert kept_row_groups(table, "x IS NULL") == (2, 2)


def test_N2_N3_lists_and_null(tmp_path):
    table = written(tmp_path, {"x": pa.array(["foo", None, "foo", "foo", "goo", None])})
    assert rows_of(table, "x NOT IN ('foo')") == [4]
    assert kept_row_groups(table, "x NOT IN ('foo')") == (1, 3)
    assert rows_of(table, "x IN ('foo', NULL)") == [0, 2, 3]
    assert rows_of(table, "x NOT IN ('foo', NULL)") == []
    assert kept_row_groups(table, "x NOT IN ('foo', NULL)")[0] == 0
    assert rows_of(table, "(x IN ('foo', NULL)) IS NULL") == [1, 4, 5]


def test_N4_unequal_inside_the_bounds(tmp_path):
    table = written(tmp_path, {"x": pa.array(["A", "Z", "M", "M", "N", "Z"])})
    assert rows_of(table, "x <> 'M'") == [0, 1, 4, 5]
    assert kept_row_groups(table, "x <> 'M'") == (2, 3)


def test_N5_N6_row_groups_of_nulls(tmp_path):
    table = written(tmp_path, {"x": pa.array([None, None, 5, 5, 5, None], pa.int32())})
    assert rows_of(table, "x <> 7") == [2, 3, 4]
    assert kept_row_groups(table, "x <> 7") == (2, 3)
    assert rows_of(table, "x <=> NULL") == [0, 1, 5]
    assert rows_of(table, "x IS DISTINCT FROM 5") == [0, 1, 5]
    assert kept_row_groups(table, "x IS DISTINCT FROM 5") == (2, 3)


def test_N7_not_like_with_a_shared_prefix(tmp_path):
    table = written(tmp_path, {"x": pa.array(["aba", "abz", "abc", None, "aa", "abc", "b", "c"])})
    assert rows_of(table, "x NOT LIKE 'ab%'") == [4, 6, 7]
    assert kept_row_groups(table, "x NOT LIKE 'ab%'") == (2, 4)


def test_N9_fields_of_null_structs_and_items_of_lists(tmp_path):
    table = written(
        tmp_path,
        {
            "s": pa.array([{"x": 1}, None, {"x": None}, {"x": 9}], pa.struct([("x", pa.int64())])),
            "l": pa.array([[1, None, None], [], None, [5]], pa.list_(pa.int64())),
        },
    )
    assert rows_of(table, "s.x IS NULL") == [1, 2]
    assert rows_of(table, "s IS NULL") == [1]
    assert rows_of(table, "NOT (s.x > 5)") == [0]
    assert kept_row_groups(table, "s.x > 5") == (1, 2)
    # A list has more NULL items than there are rows, and none of them makes the list NULL.
    assert rows_of(table, "l IS NULL") == [2]
    assert rows_of(table, "l IS NOT NULL") == [0, 1, 3]
    assert rows_of(table, "size(l) = 3") == [0]


def test_N10_one_column_without_statistics(tmp_path):
    columns = {"a": pa.array([1, 2, 8, 9]), "b": pa.array([1, 2, 8, 9])}
    table = written(tmp_path, columns, write_statistics=["a"])
    assert rows_of(table, "a > 5 AND b > 8") == [3]
    assert kept_row_groups(table, "a > 5 AND b > 8") == (1, 2)
    assert rows_of(table, "a > 5 OR b = 1") == [0, 2, 3]


# --- F --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data_type", [pa.float64(), pa.float32(), pa.float16()])
@pytest.mark.parametrize("nan", [NAN, OTHER_NAN])
def test_F1_F3_nan_beside_the_bounds(tmp_path, data_type, nan):
    values = [1.0, nan, 1.0, None, nan, nan, 5.0, 5.0]
    halves = [value if value is None else np.float16(value) for value in values]
    table = written(tmp_path, {"x": pa.array(halves if data_type == pa.float16() else values, data_type)})
    nans = [1, 4, 5]
    assert rows_of(table, "x <> 1") == [1, 4, 5, 6, 7]
    assert rows_of(table, "NOT (x < 3)") == [1, 4, 5, 6, 7]
    assert rows_of(table, "x > 3") == [1, 4, 5, 6, 7]
    assert rows_of(table, "x > 5") == nans
    assert rows_of(table, "x NOT IN (1, 5)") == nans
    assert rows_of(table, "x = double('NaN')") == nans
    assert rows_of(table, "x IN (5, double('NaN'))") == [1, 4, 5, 6, 7]
    assert rows_of(table, "x <> double('NaN')") == [0, 2, 6, 7]
    assert rows_of(table, "x < double('NaN')") == [0, 2, 6, 7]
    assert rows_of(table, "x BETWEEN 3 AND 9") == [6, 7]
    assert rows_of(table, "x IS NULL") == [3]
    assert table.scan("x <= 5").count() == 4


def test_F2_a_bound_that_is_nan(tmp_path):
    table = written(tmp_path, {"x": pa.array([1.25, 7.75, 100.0, 200.0])})
    broken = patched(table, upper=(struct.pack("<d", 7.75), struct.pack("<d", NAN)))
    for where in ("x > 5", "x < 3", "x = 7.75", "x <> 1.25", "x BETWEEN 7 AND 8"):
        assert rows_of(broken, where) == rows_of(table, where)
    assert kept_row_groups(broken, "x < 1") == (1, 2)


@pytest.mark.parametrize(("lower", "upper"), [(0.0, 5.0), (-5.0, -0.0)])
def test_F4_a_zero_in_the_bounds_hides_the_other(tmp_path, lower, upper):
    both = pa.array([lower, upper, 0.0, -0.0, -0.0, 0.0])
    table = written(tmp_path, {"x": both})
    zero = -lower if lower == 0 else -upper
    # As a writer that holds both zeros for equal may note either of them.
    for sign in (0.0, -0.0):
        text = "-0.0D" if math.copysign(1, sign) < 0 else "0.0D"
        assert len(rows_of(table, f"x = {text}")) == 5
        assert rows_of(table, f"x <> {text}") == [1 if lower == 0 else 0]
        assert len(rows_of(table, f"x IN ({text}, 99)")) == 5
    assert zero == 0


def test_F6_half_floats_are_not_compared_as_bytes(tmp_path):
    values = [np.float16(each) for each in (-2.0, -1.0, -0.5, 0.5, 1.0, 60000.0)]
    table = written(tmp_path, {"x": pa.array(values, pa.float16())})
    assert rows_of(table, "x < -0.75") == [0, 1]
    assert rows_of(table, "x BETWEEN -0.6 AND 0.6") == [2, 3]
    assert rows_of(table, "x = 0.1") == []
    assert kept_row_groups(table, "x < -0.75") == (1, 3)


def test_F8_floats_against_decimal_literals(tmp_path):
    table = written(tmp_path, {"x": pa.array([0.1, 0.5, 5.0, 9.0], pa.float32()), "y": pa.array([0.1, 0.5, 5.0, 9.0])})
    assert rows_of(table, "y = 0.1") == [0]
    assert rows_of(table, "x = 0.1") == []
    assert rows_of(table, "x > 0.1") == [0, 1, 2, 3]
    assert rows_of(table, "x = 5.0 OR x = 0.5") == [1, 2]
    assert rows_of(table, "x < 1e39 AND x > -1e39") == [0, 1, 2, 3]


# --- S --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writer", ["pyarrow", "polars"])
def test_S1_S2_long_texts_whose_statistics_are_cut(tmp_path, writer):
    texts = ["a" * 5000 + "b", "a" * 5000 + "c", "é" * 3000, "é" * 3000 + "z", "\U0010ffff" * 2000, "\U0010ffff" * 2001]
    table = written(tmp_path, {"x": pa.array(texts)})
    if writer == "polars":
        pl.read_parquet(tmp_path / "f.parquet").write_parquet(tmp_path / "p.parquet", row_group_size=2)
        table = tamis.open(tmp_path / "p.parquet")
    for index, text in enumerate(texts):
        assert table.scan(tamis.col("x") == text).to_arrow()["row"].to_pylist() == [index]
        assert table.scan(tamis.col("x") > text).count() == len(texts) - 1 - index
    assert table.scan(tamis.col("x").startswith("a" * 5000)).to_arrow()["row"].to_pylist() == [0, 1]
    assert table.scan(tamis.col("x").startswith("\U0010ffff" * 2001)).to_arrow()["row"].to_pylist() == [5]


def test_S3_bounds_that_are_not_text(tmp_path):
    table = written(tmp_path, {"x": pa.array(["ééé", "ééz", "zzzz", "zzzz"])})
    # As a writer leaves them that cuts in the middle of a character: the lower one down, the upper one up.
    broken = patched(
        table, lower=("ééé".encode(), b"\xc3\xa9\xc3\xa9\xc3\xff"), upper=("ééz".encode(), b"\xc3\xa9\xc3\xa9z")
    )
    lowered = patched(broken, lower=(b"\xc3\xa9\xc3\xa9\xc3\xff", b"\xc3\xa9\xc3\x80\xc3\x00"))
    for where in ("x = 'ééé'", "x = 'ééz'", "x LIKE 'é%'", "x > 'ééy'", "x < 'zz'", "x <> 'ééé'"):
        assert rows_of(lowered, where) == rows_of(table, where)


def test_S5_bounds_of_texts_by_an_old_or_nameless_writer(tmp_path):
    table = written(tmp_path, {"x": pa.array(["bbbb", "cccc", "yyyy", "zzzz"])})
    name = pq.ParquetFile(tmp_path / "f.parquet").metadata.created_by.encode()
    for writer in (b"parquet-mr version 1.6.0", b"somebody"):
        wrong = patched(table, writer=(name, writer.ljust(len(name))[: len(name)]), bound=(b"bbbb", b"caaa"))
        assert rows_of(wrong, "x = 'bbbb'") == [0]
        assert kept_row_groups(wrong, "x = 'bbbb'") == (2, 2)
    assert kept_row_groups(table, "x = 'bbbb'") == (1, 2)


def test_S6_uuids_compare_unsigned(tmp_path):
    path = tmp_path / "f.parquet"
    duckdb.sql(
        "COPY (SELECT i AS row, (lpad(to_hex(i * 16), 2, '0') || repeat('0', 6) || '-0000-0000-0000-000000000000')::UUID AS x "
        f"FROM range(16) t(i)) TO '{path}'"
    )
    table = tamis.open(path)
    assert rows_of(table, "x >= X'80000000000000000000000000000000'") == list(range(8, 16))
    assert rows_of(table, "x < X'10'") == [0]
    binary = written(tmp_path, {"x": pa.array([b"\x00\x01", b"\x7f\xff", b"\x80\x00", b"\xff\xff"], pa.binary(2))})
    assert rows_of(binary, "x > X'7FFF'") == [2, 3]
    assert kept_row_groups(binary, "x > X'7FFF'") == (1, 2)


def test_S7_S8_patterns_and_prefixes(tmp_path):
    texts = ["a%c", "a_c", "abc", "abd", "a\\c", "b", "\U0010ffff", "\U0010ffffz", "", "é", None, "a\nc"]
    table = written(tmp_path, {"x": pa.array(texts)})
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
        assert [texts[row] for row in rows_of(table, where)] == expected, where


# --- T --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writer", ["pyarrow", "duckdb", "polars"])
def test_T1_unsigned_numbers_with_the_high_bit(tmp_path, writer):
    columns = {
        f"u{bits}": pa.array([0, 1, 2 ** (bits - 1), 2**bits - 1], pa.type_for_alias(f"uint{bits}"))
        for bits in (8, 16, 32, 64)
    }
    table = written(tmp_path, columns)
    if writer != "pyarrow":
        path, rows = tmp_path / "other.parquet", table.scan().to_arrow()
        if writer == "polars":
            pl.from_arrow(rows).write_parquet(path, row_group_size=2)
        else:
            duckdb.sql(f"COPY (SELECT * FROM rows) TO '{path}'")
        table = tamis.open(path)
    for bits in (8, 16, 32, 64):
        half = 2 ** (bits - 1)
        assert rows_of(table, f"u{bits} >= {half}") == [2, 3]
        assert rows_of(table, f"u{bits} < {half}") == [0, 1]
        assert rows_of(table, f"u{bits} = {2**bits - 1}") == [3]
        assert rows_of(table, f"u{bits} IN (1, {2**bits - 1}, {2**bits})") == [1, 3]
        assert rows_of(table, f"u{bits} > -1") == [0, 1, 2, 3]
        assert rows_of(table, f"u{bits} % 2 = 1 OR u{bits} = {half}") == [1, 2, 3]


@pytest.mark.parametrize("as_integer", [True, False])
@pytest.mark.parametrize(("precision", "scale"), [(5, 2), (18, 4), (38, 10)])
def test_T2_decimals_of_every_storage(tmp_path, precision, scale, as_integer):
    values = [Decimal("-10"), Decimal("-1.5"), Decimal("0"), Decimal("1.5"), Decimal("10"), None]
    columns = {"x": pa.array(values, pa.decimal128(precision, scale))}
    table = written(tmp_path, columns, store_decimal_as_integer=as_integer and precision <= 18)
    assert rows_of(table, "x < 0") == [0, 1]
    assert rows_of(table, "x = 1.5") == [3]
    assert rows_of(table, "x = 1.50000000000001") == []
    assert rows_of(table, "x > 1.49999999999999") == [3, 4]
    assert rows_of(table, "x BETWEEN -1.5 AND 1.5") == [1, 2, 3]
    assert rows_of(table, "x <> 0 AND x < 1e30") == [0, 1, 3, 4]
    assert kept_row_groups(table, "x < -5") == (1, 3)


def test_T3_int96_timestamps(tmp_path):
    moments = [datetime(1960, 1, 1), datetime(1969, 12, 31, 23), datetime(1970, 1, 1), datetime(2024, 1, 1)]
    table = written(tmp_path, {"x": pa.array(moments)}, use_deprecated_int96_timestamps=True)
    assert rows_of(table, "x < '1970-01-01'") == [0, 1]
    assert rows_of(table, "x = '2024-01-01'") == [3]
    assert rows_of(table, "date(x) = '1969-12-31'") == [1]
    assert kept_row_groups(table, "x > '2020-01-01'") == (2, 2)  # their statistics have no order


def test_T4_literals_wider_than_the_column(tmp_path):
    table = written(tmp_path, {"x": pa.array([-128, 5, 6, 127, None, 7], pa.int8())})
    assert rows_of(table, "x = 300") == []
    assert rows_of(table, "x < 300") == [0, 1, 2, 3, 5]
    assert rows_of(table, "x <> 300") == [0, 1, 2, 3, 5]
    assert rows_of(table, "NOT (x = 300)") == [0, 1, 2, 3, 5]
    assert rows_of(table, "(x = 300) IS NULL") == [4]
    assert rows_of(table, "x < 5.5") == [0, 1]
    assert rows_of(table, "x > 5.5") == [2, 3, 5]
    assert rows_of(table, "x = 5.5") == []
    assert rows_of(table, "x <= 9223372036854775807") == [0, 1, 2, 3, 5]
    assert rows_of(table, "x IN (5, 300, 5.5)") == [1]
    assert rows_of(table, "x NOT IN (5, 300)") == [0, 2, 3, 5]
    assert table.scan(tamis.col("x") > 126.5).to_arrow()["row"].to_pylist() == [3]
    assert kept_row_groups(table, "x = 300") == (0, 3)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
def test_T5_T6_T7_timestamps_of_every_unit_and_zone(tmp_path, unit, zone, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    counts = [-86_401, -1, 0, 1, 86_399, 86_400]
    table = written(tmp_path, {"x": pa.array([each * per_second for each in counts], pa.timestamp(unit, zone))})
    assert rows_of(table, "x < '1970-01-01'") == [0, 1]
    assert rows_of(table, "x < TIMESTAMP '1970-01-01 00:00:00.000001'") == [0, 1, 2]
    assert rows_of(table, "x > '1970-01-01 00:00:00.5'") == [3, 4, 5]
    assert rows_of(table, "x = '1970-01-01T02:00:00+02:00'") == [2]
    assert rows_of(table, "date(x) = '1970-01-01'") == [2, 3, 4]
    assert rows_of(table, "date(x) = '1969-12-31'") == [1]
    assert rows_of(table, "year(x) = 1969") == [0, 1]
    assert rows_of(table, "hour(x) = 23") == [0, 1, 4]
    assert rows_of(table, "hour(x) % 24 = 23") == [0, 1, 4]
    assert rows_of(table, "x >= DATE '1970-01-02'") == [5]
    assert rows_of(table, "x + INTERVAL 1 DAY < '1970-01-01'") == [0]
    assert rows_of(table, "date_trunc('day', x) = TIMESTAMP '1969-12-31'") == [1]
    assert kept_row_groups(table, "date(x) = '1969-12-31'") == (1, 3)


def test_T6_dates_before_1970(tmp_path):
    days = [
        date(1, 1, 1),
        date(1900, 2, 28),
        date(1969, 12, 31),
        date(1970, 1, 1),
        date(2024, 2, 29),
        date(9999, 12, 31),
    ]
    table = written(tmp_path, {"x": pa.array(days)})
    assert rows_of(table, "x < '1970-01-01'") == [0, 1, 2]
    assert rows_of(table, "year(x) < 1970") == [0, 1, 2]
    assert rows_of(table, "trunc(x, 'month') = DATE '1969-12-01'") == [2]
    assert rows_of(table, "x + 1 = DATE '1970-01-01'") == [2]
    assert rows_of(table, "x - INTERVAL 1 MONTH < DATE '1900-02-01'") == [0, 1]
    assert rows_of(table, "month(x) = 2") == [1, 4]
    assert kept_row_groups(table, "year(x) = 2024") == (1, 3)


def test_T6_infinities_of_duckdb(tmp_path):
    path = tmp_path / "f.parquet"
    duckdb.sql(
        "COPY (SELECT * FROM (VALUES (0, 'infinity'::TIMESTAMP, '-infinity'::DATE, 'infinity'::TIMESTAMP_MS), "
        "(1, '2024-03-03 10:00:00', '2024-03-03', '2024-03-03 10:00:00'), (2, '-infinity', 'infinity', '-infinity')) "
        f"t(row, us, day, ms)) TO '{path}'"
    )
    table = tamis.open(path)
    assert rows_of(table, "year(us) = 2024") == [1]
    assert rows_of(table, "year(day) = 2024") == [1]
    assert rows_of(table, "year(ms) = 2024") == [1]
    assert rows_of(table, "date(us) = '2024-03-03'") == [1]
    assert rows_of(table, "us > '2024-01-01'") == [0, 1]
    assert rows_of(table, "day < '2024-01-01'") == [0]


def test_T9_intervals_have_no_order(tmp_path):
    path = tmp_path / "f.parquet"
    duckdb.sql(f"COPY (SELECT i AS row, CASE WHEN i > 1 THEN INTERVAL (i) DAY END AS x FROM range(4) t(i)) TO '{path}'")
    table = tamis.open(path)
    assert rows_of(table, "x IS NULL") == [0, 1]
    assert rows_of(table, "x IS NOT NULL AND row < 3") == [2]


def test_T10_bounds_the_wrong_way_round(tmp_path):
    table = written(tmp_path, {"x": pa.array([0x11223344, 0x55667788, 5, 6], pa.int32())})
    low, high = struct.pack("<i", 0x11223344), struct.pack("<i", 0x55667788)
    swapped = patched(table, mark=(low, b"MARK"), low=(high, low), high=(b"MARK", high))
    for where in ("x = 287454020", "x < 1000000000", "x > 1000000000", "x <> 5", "x BETWEEN 287454020 AND 287454021"):
        assert rows_of(swapped, where) == rows_of(table, where)
        assert rows_of(table, where)
    assert kept_row_groups(swapped, "x = 300000000") == (1, 2)


@pytest.mark.parametrize(
    ("table_type", "file_type", "values", "wheres"),
    [
        (pa.int64(), pa.int32(), [1, 7], ["x = 7", "x > 5", "x IN (7, 8)", "x < 5.5", "x = 4294967303"]),
        (pa.int64(), pa.uint32(), [1, 2**31 + 7], ["x > 2147483647", "x = 2147483655", "x < 0"]),
        (pa.float64(), pa.float32(), [0.1, 7.5], ["x = 7.5", "x = 0.1", "x > 0.1", "x <= 0.1", "x < 5"]),
        (pa.float64(), pa.int32(), [1, 7], ["x = 7", "x > 6.5", "x <> 1", "x = double('NaN')"]),
        (pa.timestamp("us"), pa.timestamp("ms"), [0, 7], ["x > '1970-01-01'", "x = '1970-01-01 00:00:00.007'", "x < '1970-01-01 00:00:00.0065'"]),
        (pa.timestamp("us"), pa.date32(), [0, 7], ["x > '1970-01-01'", "x = '1970-01-08'", "date(x) = '1970-01-08'"]),
        (pa.decimal128(12, 4), pa.decimal128(5, 2), [Decimal("1.5"), Decimal("7.25")], ["x = 7.25", "x > 1.5001", "x < 1.5001"]),
        (pa.decimal128(12, 2), pa.int32(), [1, 7], ["x = 7", "x > 1.01", "x <> 1"]),
        (pa.large_string(), pa.string(), ["a", "z"], ["x = 'z'", "x LIKE 'z%'", "x > 'b'"]),
    ],
)  # fmt: skip
def test_T11_columns_that_the_table_promoted(tmp_path, table_type, file_type, values, wheres):
    """The first file makes the table's type, the second was written before it was widened."""
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
        found = rows_of(table, where)
        assert [row - 2 for row in found if row >= 2] == [row for row in found if row < 2], where
        assert table.scan(where).to_arrow().schema.field("x").type == table_type


def test_columns_that_a_file_does_not_have_are_null(tmp_path):
    folder = tmp_path / "t"
    folder.mkdir()
    pq.write_table(pa.table({"row": pa.array([0]), "x": pa.array([7.5])}), folder / "a.parquet")
    pq.write_table(pa.table({"row": pa.array([1])}), folder / "b.parquet")
    table = tamis.open(folder)
    assert rows_of(table, "x IS NULL") == [1]
    assert rows_of(table, "x > 5") == [0]
    assert rows_of(table, "NOT (x > 9)") == [0]
    assert rows_of(table, "x <=> NULL OR x > 5") == [0, 1]


# --- Names and rest -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest", ["", " AND row % 1 = 0", " OR row % 7 = 9"])
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("`A` = 1", [1]),
        ("a = 1", [0]),
        ("`a.b` = 3", [2]),
        ("`a``b` = 4", [3]),
        ('`a"b;--` = 2', [1]),
        ("s.f = 2 AND `A` = 1", [1]),
    ],
)
def test_X10_names_that_only_quotes_keep_apart(tmp_path, where, expected, rest):
    columns = {
        "a": pa.array([1, 2, 3, 4]),
        "A": pa.array([2, 1, 4, 3]),
        "a.b": pa.array([1, 2, 3, 4]),
        "a`b": pa.array([1, 2, 3, 4]),
        'a"b;--': pa.array([1, 2, 3, 4]),
        "s": pa.array([{"f": each} for each in (1, 2, 3, 4)]),
    }
    assert rows_of(written(tmp_path, columns), f"({where}){rest}") == expected


@pytest.mark.parametrize(
    "where",
    [
        r"s LIKE 'A\\%'", "substr(s, 0, 1) = 'a'", "u = 18446744073709551615", "u8 + 1 = 256", "year(ns) = 1969",
        "ns = '1969-12-31 23:59:59.999999999'", "f IN (1.5, double('NaN'))", "f <> double('NaN')", "money * 2 = 3",
        "b = X'FF'", "i < 5.5", "CAST(i AS DECIMAL(5,2)) = 1", "date(ts) = '1969-12-31'", "trunc(ts, 'MM') < DATE '1970-01-01'",
        "i IN (1, NULL)", "NOT (i IN (1, NULL))", "(i > 1) IS NULL", "i <=> NULL", "s = 5", "ms < ns", "st.x = 1",
    ],
)  # fmt: skip
def test_a_predicate_means_the_same_beside_what_the_embedded_engine_computes(tmp_path, where):
    """`row % 2 = 5` is never TRUE, and needs the engine: joined by OR it must change nothing."""
    columns = {
        "s": pa.array(["a", "A%", "ab", None, "5", ""]),
        "u": pa.array([0, 2**64 - 1, 2**63, None, 5, 6], pa.uint64()),
        "u8": pa.array([0, 255, 128, None, 5, 6], pa.uint8()),
        "i": pa.array([0, 1, 5, None, 6, -1], pa.int32()),
        "f": pa.array([0.0, 1.5, NAN, None, OTHER_NAN, -0.0]),
        "ns": pa.array([0, -1, 10**18, None, 1, -(10**18)], pa.timestamp("ns")),
        "ms": pa.array([0, -1, 10**12, None, 1, -(10**12)], pa.timestamp("ms")),
        "ts": pa.array([0, -1, 10**15, None, 1, -(10**15)], pa.timestamp("us", "UTC")),
        "money": pa.array([Decimal(0), Decimal("1.5"), Decimal("9.99"), None, Decimal("-1.5"), Decimal("2")], pa.decimal128(5, 2)),
        "b": pa.array([b"", b"\xff", b"a", None, b"\x80", b"b"]),
        "st": pa.array([{"x": 1}, None, {"x": None}, {"x": 2}, {"x": 1}, {"x": 0}], pa.struct([("x", pa.int64())])),
    }  # fmt: skip
    table = written(tmp_path, columns)
    plain = rows_of(table, where)
    assert rows_of(table, f"row % 2 = 5 OR ({where})") == plain
    assert rows_of(table, f"row % 2 < 5 AND ({where})") == plain
    assert rows_of(table, f"NOT (row % 2 = 5) AND NOT ({where})") == rows_of(table, f"NOT ({where})")


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
    try:
        table = written(tmp_path, {"x": column})
    except pa.ArrowNotImplementedError as error:
        pytest.skip(f"pyarrow does not write {name}: {error}")
    nulls = [row for row, value in enumerate(column.to_pylist()) if value is None]
    assert rows_of(table, "x IS NULL") == nulls
    assert rows_of(table, "x IS NULL OR row % 2 = 5") == nulls
    assert rows_of(table, "row >= 2") == [2, 3]
    assert table.scan("row >= 2").to_arrow().num_rows == 2


@pytest.mark.parametrize(
    "column", [pa.array(["a", "b", "c", None]), pa.array([3, 1, 2, None]), pa.array([1.5, NAN, 2.5, None])]
)
def test_dictionary_columns_are_compared_by_their_values(tmp_path, column):
    plain, coded = column, column.dictionary_encode()
    tables = []
    for name, each in (("plain", plain), ("coded", coded)):
        (tmp_path / name).mkdir()
        tables.append(written(tmp_path / name, {"x": each}))
    literals = ["'b'", "'x'"] if pa.types.is_string(column.type) else ["2", "2.5", "9"]
    for literal in literals:
        for operator in ("=", "<>", "<", ">=", "<=>"):
            where = f"x {operator} {literal}"
            assert rows_of(tables[0], where) == rows_of(tables[1], where), where
        assert rows_of(tables[0], f"x NOT IN ({literal})") == rows_of(tables[1], f"x NOT IN ({literal})")
    assert rows_of(tables[1], "x IS NULL") == [3]


def test_a_row_group_of_no_rows_and_a_file_of_no_rows(tmp_path):
    schema = pa.schema([("row", pa.int64()), ("x", pa.float64())])
    with pq.ParquetWriter(tmp_path / "f.parquet", schema) as writer:
        writer.write_table(pa.table({"row": [0], "x": [1.0]}, schema), row_group_size=1)
        writer.write_table(schema.empty_table())
        writer.write_table(pa.table({"row": [1], "x": [9.0]}, schema))
    assert rows_of(tamis.open(tmp_path / "f.parquet"), "x > 5") == [1]
    pq.write_table(schema.empty_table(), tmp_path / "g.parquet")
    assert rows_of(tamis.open(tmp_path / "g.parquet"), "x > 5 OR x IS NULL") == []


def test_an_error_of_a_value_names_the_expression(tmp_path):
    table = written(tmp_path, {"x": pa.array([1, 2**62, 3, 4])})
    with pytest.raises(TamisError, match="x \\* 4"):
        table.scan("x * 4 = 4").to_arrow()
    assert rows_of(written(tmp_path, {"x": pa.array([1, 2, 3, 4])}), "x * 4 = 4") == [0]
