"""Predicates that Arrow cannot evaluate run on the embedded engine, with the same semantics."""

from __future__ import annotations

import math
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from builders.parquet.files import find_rows, write_table
from tamis.engines.duckdb.run.evaluate import open_isolated_connection, to_duckdb_sql
from tamis.errors import EvaluationError
from tamis.expr.bind import bind
from tamis.expr.sql.parse import parse_sql

NAN = math.nan
OTHER_NAN = float(np.array([0xFFF8_0000_0000_0001], np.uint64).view(np.float64)[0])


# --- Names -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest", ["", " OR row % 7 = 9"])
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("`A` = 1", [1]),
        ("`a` = 1", [0]),
        ("`a.b` = 3", [2]),
        ("`a``b` = 4", [3]),
        ('`a"b;--` = 2', [1]),
        ("s.f = 2 AND `A` = 1", [1]),
    ],
)
def test_X10_column_names_that_need_quotes(tmp_path, where, expected, rest):
    columns = {
        "a": pa.array([1, 2, 3, 4]),
        "A": pa.array([2, 1, 4, 3]),
        "a.b": pa.array([1, 2, 3, 4]),
        "a`b": pa.array([1, 2, 3, 4]),
        'a"b;--': pa.array([1, 2, 3, 4]),
        "s": pa.array([{"f": each} for each in (1, 2, 3, 4)]),
    }
    assert find_rows(write_table(tmp_path, columns), f"({where}){rest}") == expected


@pytest.mark.parametrize(
    "where",
    [
        r"s LIKE 'A\\%'", "substr(s, 0, 1) = 'a'", "u = 18446744073709551615", "u8 + 1 = 256", "year(ns) = 1969",
        "ns = '1969-12-31 23:59:59.999999999'", "f IN (1.5, double('NaN'))", "f <> double('NaN')", "money * 2 = 3",
        "b = X'FF'", "i < 5.5", "CAST(i AS DECIMAL(5,2)) = 1", "date(ts) = '1969-12-31'", "i <=> NULL", "s = 5",
        "i IN (1, NULL)", "NOT (i IN (1, NULL))", "(i > 1) IS NULL", "trunc(ts, 'MM') < DATE '1970-01-01'", "ms < ns",
        "st.x = 1",
    ],
)  # fmt: skip
def test_a_predicate_beside_an_engine_predicate_keeps_its_result(tmp_path, where):
    """`row % 2 = 5` is never TRUE, and needs the engine: OR with it must not change the result."""
    columns = {
        "s": pa.array(["a", "A%", "ab", None, "5", ""]),
        "u": pa.array([0, 2**64 - 1, 2**63, None, 5, 6], pa.uint64()),
        "u8": pa.array([0, 255, 128, None, 5, 6], pa.uint8()),
        "i": pa.array([0, 1, 5, None, 6, -1], pa.int32()),
        "f": pa.array([0.0, 1.5, NAN, None, OTHER_NAN, -0.0]),
        "ns": pa.array([0, -1, 10**18, None, 1, -(10**18)], pa.timestamp("ns")),
        "ms": pa.array([0, -1, 10**12, None, 1, -(10**12)], pa.timestamp("ms")),
        "ts": pa.array([0, -1, 10**15, None, 1, -(10**15)], pa.timestamp("us", "UTC")),
        "money": pa.array([Decimal(0), Decimal("1.5"), Decimal("9.99"), None, Decimal("-1.5"), Decimal("2")]),
        "b": pa.array([b"", b"\xff", b"a", None, b"\x80", b"b"]),
        "st": pa.array([{"x": 1}, None, {"x": None}, {"x": 2}, {"x": 1}, {"x": 0}], pa.struct([("x", pa.int64())])),
    }  # fmt: skip
    table = write_table(tmp_path, columns)
    plain = find_rows(table, where)
    assert find_rows(table, f"row % 2 = 5 OR ({where})") == plain
    assert find_rows(table, f"NOT (row % 2 = 5 OR ({where}))") == find_rows(table, f"NOT ({where})")


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("`A` % 2 = `a` % 2", []),  # DuckDB ignores the case of names
        ("`A` % 5 - `a` % 5 = 1", [0, 2]),
        ("year(ns) % 10 = 9", [0]),  # DuckDB truncates nanoseconds towards 1970
        ("hour(zoned) % 24 = 23", [0]),  # DuckDB has no hours of nanoseconds with a zone
        ("text LIKE pattern", [0, 2, 3]),  # a backslash in a pattern escapes, in a column of patterns too
        ("startswith(bytes, X'FF')", [0]),
    ],
)
def test_engine_predicates_have_the_semantics_of_the_language(tmp_path, where, expected):
    columns = {
        "a": pa.array([1, 2, 3, 4]),
        "A": pa.array([2, 1, 4, 3]),
        "ns": pa.array([-1, 0, 10**18, 1], pa.timestamp("ns")),
        "zoned": pa.array([-1, 0, 10**18, 1], pa.timestamp("ns", "UTC")),
        "text": pa.array(["a%", "ab", "a\\", "x"]),
        "pattern": pa.array(["a\\%", "a\\%", "a\\\\", "_"]),
        "bytes": pa.array([b"\xff", b"a", b"", None]),
    }
    assert find_rows(write_table(tmp_path, columns), where) == expected


@pytest.mark.parametrize(
    ("where", "fragments"),
    [
        ("lenght(text) = 5", ["(at: where, character 1)", "there is no function lenght", "Did you mean length?"]),
        ("row = 0 AND\n foo_bar(text)", ["(at: where, line 2, character 2)", "there is no function foo_bar"]),
        ("read_text('secret') = 'x'", ["there is no function read_text"]),
        ("CASE WHEN row > 5 THEN 'a' ELSE row END = 'a'", ["branches of CASE are of two types, a string and a bigint"]),
        ("coalesce(row, text) = 'a'", ["the arguments of coalesce are of two types"]),
    ],
)  # fmt: skip
def test_engine_errors_name_the_cause_the_location_and_the_remedy(tmp_path, where, fragments):
    table = write_table(tmp_path, {"text": pa.array(["a"]), "ns": pa.array([0], pa.timestamp("ns"))})
    with pytest.raises(EvaluationError) as caught:
        find_rows(table, where)
    assert all(fragment in str(caught.value) for fragment in fragments), caught.value


def test_the_engine_cannot_read_files(tmp_path):
    (tmp_path / "secret").write_text("x")
    query = to_duckdb_sql(bind(parse_sql("row % 2 = 1"), pa.schema([("row", pa.int64())])))
    with pytest.raises(duckdb.PermissionException):
        open_isolated_connection(query).sql(f"SELECT * FROM read_text('{tmp_path / 'secret'}')").fetchall()
