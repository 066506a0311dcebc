"""Row semantics: three-valued logic, NaN the largest, -0.0 equal to 0.0, casts as in Spark's ANSI mode."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from builders.answers.oracle import evaluate_predicate
from tamis import types
from tamis.errors import EvaluationError
from tamis.expr.bind import bind
from tamis.expr.evaluate import Evaluator, can_evaluate, evaluate_constant
from tamis.expr.nodes import Call, Column, Expr, Literal
from tamis.expr.sql.parse import parse_sql

NAN = math.nan
# 0.0 / 0.0 gives this NaN on common processors: it has other bits, but the same meaning.
OTHER_NAN = float(np.array([0xFFF8_0000_0000_0001], np.uint64).view(np.float64)[0])


def evaluate(sql: str, **columns: pa.Array) -> list[Any]:
    """Return the value of an expression for each row."""
    batch = pa.record_batch(columns)
    expr = bind(parse_sql(sql), batch.schema)
    assert can_evaluate(expr), sql
    return Evaluator(expr)(batch).to_pylist()


def are_equal(found: list[Any], expected: list[Any]) -> bool:
    return repr(found) == repr(expected)


# --- NaN and zeros --------------------------------------------------------------------------------------------------

FLOATS = [1.0, NAN, OTHER_NAN, None, -0.0, math.inf, -math.inf]


@pytest.mark.parametrize("data_type", [pa.float64(), pa.float32(), pa.float16()])
@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        ("x = double('NaN')", [0, 1, 1, None, 0, 0, 0]),
        ("x <> double('NaN')", [1, 0, 0, None, 1, 1, 1]),
        ("x < double('NaN')", [1, 0, 0, None, 1, 1, 1]),
        ("x <= double('NaN')", [1, 1, 1, None, 1, 1, 1]),
        ("x > double('NaN')", [0, 0, 0, None, 0, 0, 0]),
        ("x >= double('NaN')", [0, 1, 1, None, 0, 0, 0]),
        ("x <=> double('NaN')", [0, 1, 1, 0, 0, 0, 0]),
        ("x > 0", [1, 1, 1, None, 0, 1, 0]),
        ("x >= 0", [1, 1, 1, None, 1, 1, 0]),
        ("x < 0", [0, 0, 0, None, 0, 0, 1]),
        ("x <> 1", [0, 1, 1, None, 1, 1, 1]),
        ("x = 0", [0, 0, 0, None, 1, 0, 0]),
        ("x = -0.0D", [0, 0, 0, None, 1, 0, 0]),
        ("x > double('Infinity')", [0, 1, 1, None, 0, 0, 0]),
        ("x IN (1, double('NaN'))", [1, 1, 1, None, 0, 0, 0]),
        ("x NOT IN (1, double('NaN'))", [0, 0, 0, None, 1, 1, 1]),
        ("x IN (0, 7)", [0, 0, 0, None, 1, 0, 0]),
        ("x IN (1, NULL)", [1, None, None, None, None, None, None]),
        ("x IN (double('NaN'), NULL)", [None, 1, 1, None, None, None, None]),
        ("x = x", [1, 1, 1, None, 1, 1, 1]),
        ("x < x", [0, 0, 0, None, 0, 0, 0]),
    ],
)
def test_nan_is_the_largest_and_equal_to_itself(data_type, predicate, expected):
    halves = [value if value is None else np.float16(value) for value in FLOATS]
    column = pa.array(halves if data_type == pa.float16() else FLOATS, data_type)
    wanted = [None if each is None else bool(each) for each in expected]
    assert evaluate(predicate, x=column) == wanted
    # Without NaN among the rows, the results are the same.
    rest = [index for index, value in enumerate(FLOATS) if value is None or value == value]
    assert evaluate(predicate, x=column.take(pa.array(rest))) == [wanted[index] for index in rest]


@pytest.mark.parametrize("operator", ["=", "<>", "<", "<=", ">", ">=", "<=>"])
def test_float_columns_compare_as_the_oracle(operator):
    pairs = [(left, right) for left in FLOATS for right in FLOATS]
    x, y = (pa.array([pair[side] for pair in pairs], pa.float64()) for side in (0, 1))
    theirs = {"<=>": "IS NOT DISTINCT FROM"}.get(operator, operator)
    assert evaluate(f"x {operator} y", x=x, y=y) == evaluate_predicate(pa.table({"x": x, "y": y}), f"x {theirs} y")


def test_null_compared_with_nan_is_null_in_any_batch():
    nulls = pa.nulls(2, pa.float64())
    for operator in ("=", "<>", "<", "<=", ">", ">="):
        assert evaluate(f"x {operator} double('NaN')", x=nulls) == [None, None]
        assert evaluate(f"x {operator} y", x=nulls, y=pa.array([NAN, NAN])) == [None, None]
        assert evaluate(f"i {operator} y", i=pa.nulls(1, pa.int32()), y=pa.array([NAN])) == [None]


# --- NULL -----------------------------------------------------------------------------------------------------------

P = pa.array([True, True, True, False, False, False, None, None, None])
Q = pa.array([True, False, None, True, False, None, True, False, None])


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("p AND q", [1, 0, None, 0, 0, 0, None, 0, None]),
        ("p OR q", [1, 1, 1, 1, 0, None, 1, None, None]),
        ("NOT p", [0, 0, 0, 1, 1, 1, None, None, None]),
        ("p = q", [1, 0, None, 0, 1, None, None, None, None]),
        ("p <=> q", [1, 0, 0, 0, 1, 0, 0, 0, 1]),
        ("p IS DISTINCT FROM q", [0, 1, 1, 1, 0, 1, 1, 1, 0]),
        ("p IS NULL", [0, 0, 0, 0, 0, 0, 1, 1, 1]),
        ("(p AND q) IS NULL", [0, 0, 1, 0, 0, 0, 1, 0, 1]),
        ("p AND NULL", [None, None, None, 0, 0, 0, None, None, None]),
        ("p OR NULL", [1, 1, 1, None, None, None, None, None, None]),
        ("p IS TRUE", [1, 1, 1, 0, 0, 0, 0, 0, 0]),
        ("p IS NOT TRUE", [0, 0, 0, 1, 1, 1, 1, 1, 1]),
        ("coalesce(p, q)", [1, 1, 1, 0, 0, 0, 1, 0, None]),
        ("CASE WHEN p THEN q ELSE true END", [1, 0, None, 1, 1, 1, 1, 1, 1]),
        ("CASE WHEN p THEN q END", [1, 0, None, None, None, None, None, None, None]),
        ("p < q", [0, 0, None, 1, 0, None, None, None, None]),
    ],
)
def test_three_valued_logic(sql, expected):
    assert evaluate(sql, p=P, q=Q) == [None if each is None else bool(each) for each in expected]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("x IN (1, 2)", [True, False, None]),
        ("x NOT IN (1, 2)", [False, True, None]),
        ("x IN (1, NULL)", [True, None, None]),
        ("x NOT IN (1, NULL)", [False, None, None]),
        ("x = NULL", [None, None, None]),
        ("x <=> NULL", [False, False, True]),
        ("x IN (NULL)", [None, None, None]),
        ("x IN (1)", [True, False, None]),
    ],
)
def test_N3_lists_with_and_without_null(sql, expected):
    assert evaluate(sql, x=pa.array([1, 3, None], pa.int64())) == expected


# --- Texts ----------------------------------------------------------------------------------------------------------

TEXTS = ["abc", "ABC", "a%c", "a_c", "a\nc", "", None, "ac", "aéc", "a\\c", "日本語"]


@pytest.mark.parametrize(
    "data_type", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("x LIKE 'a%'", ["abc", "a%c", "a_c", "a\nc", "ac", "aéc", "a\\c"]),
        ("x LIKE 'a_c'", ["abc", "a%c", "a_c", "a\nc", "aéc", "a\\c"]),
        (r"x LIKE 'a\\_c'", ["a_c"]),
        (r"x LIKE 'a\\%c'", ["a%c"]),
        (r"x LIKE 'a\\\\c'", ["a\\c"]),
        ("x LIKE 'a!%c' ESCAPE '!'", ["a%c"]),
        ("x LIKE 'a!_%' ESCAPE '!'", ["a_c"]),
        ("x LIKE '%'", [text for text in TEXTS if text is not None]),
        ("x LIKE ''", [""]),
        ("x LIKE '%c'", ["abc", "a%c", "a_c", "a\nc", "ac", "aéc", "a\\c"]),
        ("x LIKE '%é%'", ["aéc"]),
        ("x LIKE '___'", ["abc", "ABC", "a%c", "a_c", "a\nc", "aéc", "a\\c", "日本語"]),
        ("x LIKE 'a.c'", []),
        ("x NOT LIKE 'a%'", ["ABC", "", "日本語"]),
        ("startswith(x, 'a')", ["abc", "a%c", "a_c", "a\nc", "ac", "aéc", "a\\c"]),
        ("endswith(x, '語')", ["日本語"]),
        ("contains(x, '%')", ["a%c"]),
        ("x >= 'b'", ["日本語"]),
        ("x < 'a'", ["ABC", ""]),
        ("x IN ('abc', '日本語', NULL)", ["abc", "日本語"]),
        ("substr(x, 1, 2) = 'aé'", ["aéc"]),
        ("substr(x, 0, 1) = 'a'", ["abc", "a%c", "a_c", "a\nc", "ac", "aéc", "a\\c"]),
        ("substr(x, 2) = 'c'", ["ac"]),
        ("left(x, 2) = '日本'", ["日本語"]),
        ("length(x) = 2", ["ac"]),
        ("upper(x) = 'ABC'", ["abc", "ABC"]),
        ("lower(x) = 'abc'", ["abc", "ABC"]),
    ],
)
def test_S7_text_predicates(data_type, sql, expected):
    column = pa.array(TEXTS, pa.string()).cast(data_type)
    answers = evaluate(sql, x=column)
    assert [text for text, answer in zip(TEXTS, answers, strict=True) if answer] == expected
    assert answers[TEXTS.index(None)] is None


# --- Numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "sql", "expected"),
    [
        (pa.array([255, None], pa.uint8()), "x + 1", [256, None]),
        (pa.array([-128], pa.int8()), "-x", [128]),
        (pa.array([-128], pa.int8()), "abs(x)", [128]),
        (pa.array([127], pa.int8()), "x * 3", [381]),
        (pa.array([5], pa.int32()), "10 - x", [5]),
        (pa.array([5], pa.int32()), "x + 0.5D", [5.5]),
        (pa.array([5], pa.int32()), "x + 0.5", [Decimal("5.5")]),
        (pa.array([2**63 - 1], pa.int64()), "x + 0.5", [Decimal("9223372036854775807.5")]),
        (pa.array([2**64 - 1], pa.uint64()), "x + 0.5", [Decimal("18446744073709551615.5")]),
        (pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)), "x * 2", [Decimal("3.00"), None]),
        (pa.array([Decimal("1.50")], pa.decimal128(5, 2)), "-x", [Decimal("-1.50")]),
        (pa.array([1.5, NAN, None]), "-x", [-1.5, NAN, None]),
        (pa.array([1.5, math.inf]), "x * -2", [-3.0, -math.inf]),
    ],
)
def test_arithmetic_does_not_overflow_small_types(column, sql, expected):
    assert are_equal(evaluate(sql, x=column), expected)


def test_a_decimal_times_a_small_number_needs_few_digits():
    wide, small = pa.array([Decimal("10") ** 28], pa.decimal128(31, 2)), pa.array([3], pa.int8())
    assert evaluate("x * y > 5", x=wide, y=small) == [True]
    assert evaluate("x + y IN (7, 8)", x=wide, y=small) == [False]


@pytest.mark.parametrize(
    ("column", "sql"),
    [
        (pa.array([2**63 - 1], pa.int64()), "x + 1 > 0"),
        (pa.array([-(2**63)], pa.int64()), "-x > 0"),
        (pa.array([2**62], pa.int64()), "x * 2 > 0"),
        (pa.array([300], pa.int32()), "CAST(x AS TINYINT) = 1"),
        (pa.array([NAN]), "CAST(x AS INT) = 1"),
        (pa.array([1e30]), "CAST(x AS BIGINT) = 1"),
        (pa.array(["x"]), "CAST(x AS INT) = 1"),
        (pa.array(["2024-02-30"]), "CAST(x AS DATE) = '2024-02-29'"),
        (pa.array([100000], pa.int32()), "CAST(x AS DECIMAL(5,2)) = 1"),
    ],
)
def test_overflow_is_an_error_that_names_the_expression(column, sql):
    with pytest.raises(EvaluationError, match="cannot evaluate"):
        evaluate(sql, x=column)


@pytest.mark.parametrize(
    ("column", "sql", "expected"),
    [
        (pa.array([5.9, -5.9, None]), "CAST(x AS INT)", [5, -5, None]),
        (pa.array([5, None], pa.int32()), "CAST(x AS DECIMAL(5,2))", [Decimal("5.00"), None]),
        (pa.array([5], pa.int64()), "CAST(x AS DECIMAL(38,30))", [Decimal("5." + "0" * 30)]),
        (pa.array([2**53 + 1], pa.int64()), "CAST(x AS DOUBLE)", [2.0**53]),
        (pa.array([5, None], pa.int32()), "CAST(x AS STRING)", ["5", None]),
        (pa.array([True, None]), "CAST(x AS INT)", [1, None]),
        (pa.array(["5", " 6 ", "+7", "-8", None]), "CAST(x AS INT)", [5, 6, 7, -8, None]),
        (pa.array(["5", "x", "", "300", "1.5", None]), "TRY_CAST(x AS TINYINT)", [5, None, None, None, None, None]),
        (pa.array(["1.5", "1e2", ".5", "x", None]), "TRY_CAST(x AS DOUBLE)", [1.5, 100.0, 0.5, None, None]),
        (pa.array(["2024-02-29", "2023-02-29", "2024-02-30", "2024-13-01", "1900-02-29", "2000-02-29"]),
         "TRY_CAST(x AS DATE)", [date(2024, 2, 29), None, None, None, None, date(2000, 2, 29)]),
        (pa.array(["2024-02-29 23:59:59", "2024-02-29T24:00:00", "2024-02-29 23:60:00", "2024-02-29"]),
         "TRY_CAST(x AS TIMESTAMP_NTZ)", [datetime(2024, 2, 29, 23, 59, 59), None, None, datetime(2024, 2, 29)]),
        (pa.array(["18446744073709551615", "18446744073709551616", "-1"]), "TRY_CAST(x AS UBIGINT)",
         [2**64 - 1, None, None]),
        (pa.array(["9223372036854775807", "9223372036854775808"]), "TRY_CAST(x AS BIGINT)", [2**63 - 1, None]),
    ],
)  # fmt: skip
def test_casts(column, sql, expected):
    assert are_equal(evaluate(sql, x=column), expected)


# --- Time -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_T6_T7_the_calendar_before_1970_in_every_unit_and_zone(unit, zone):
    per_second = types.UNITS_PER_SECOND[unit]
    column = pa.array([-1, 0, -86_400 * per_second, None], pa.timestamp(unit, zone))
    assert evaluate("year(x)", x=column) == [1969, 1970, 1969, None]
    assert evaluate("month(x)", x=column) == [12, 1, 12, None]
    assert evaluate("day(x)", x=column) == [31, 1, 31, None]
    assert evaluate("hour(x)", x=column) == [23, 0, 0, None]
    assert evaluate("minute(x)", x=column) == [59, 0, 0, None]
    assert evaluate("date(x)", x=column) == [date(1969, 12, 31), date(1970, 1, 1), date(1969, 12, 31), None]
    assert evaluate("trunc(x, 'month')", x=column) == [date(1969, 12, 1), date(1970, 1, 1), date(1969, 12, 1), None]
    started = evaluate("date_trunc('day', x) = date(x)", x=column)
    assert started == [True, True, True, None]


@pytest.mark.parametrize(
    ("unit", "value", "expected"),
    [
        ("year", datetime(2024, 8, 15, 13, 14, 15, 999_999), datetime(2024, 1, 1)),
        ("quarter", datetime(2024, 8, 15, 13, 14, 15, 999_999), datetime(2024, 7, 1)),
        ("MONTH", datetime(2024, 8, 15, 13, 14, 15, 999_999), datetime(2024, 8, 1)),
        ("week", datetime(2024, 8, 15, 13, 14, 15, 999_999), datetime(2024, 8, 12)),
        ("day", datetime(2024, 8, 15, 13, 14, 15, 999_999), datetime(2024, 8, 15)),
        ("hour", datetime(2024, 8, 15, 13, 14, 15, 999_999), datetime(2024, 8, 15, 13)),
        ("minute", datetime(2024, 8, 15, 13, 14, 15, 999_999), datetime(2024, 8, 15, 13, 14)),
        ("second", datetime(2024, 8, 15, 13, 14, 15, 999_999), datetime(2024, 8, 15, 13, 14, 15)),
        ("week", datetime(1969, 12, 28, 23), datetime(1969, 12, 22)),
        ("quarter", datetime(1, 2, 3), datetime(1, 1, 1)),
    ],
)
def test_date_trunc(unit, value, expected):
    column = pa.array([value, None], pa.timestamp("us"))
    assert evaluate(f"date_trunc('{unit}', x)", x=column) == [expected, None]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("x + INTERVAL 1 MONTH", date(2024, 2, 29)),
        ("x - INTERVAL 2 MONTH", date(2023, 11, 30)),
        ("x + INTERVAL 1 YEAR", date(2025, 1, 31)),
        ("x + INTERVAL 1 DAY", date(2024, 2, 1)),
        ("x - INTERVAL 31 DAY", date(2023, 12, 31)),
        ("x + 1", date(2024, 2, 1)),
        ("x - 31", date(2023, 12, 31)),
        ("INTERVAL 1 MONTH + x", date(2024, 2, 29)),
    ],
)
def test_dates_plus_intervals(sql, expected):
    assert evaluate(sql, x=pa.array([date(2024, 1, 31), None])) == [expected, None]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_plus_intervals(unit):
    column = pa.array([datetime(2024, 1, 31, 23, 30), datetime(1969, 12, 31, 23, 30), None], pa.timestamp(unit))
    for sql, expected in (
        ("x + INTERVAL 1 HOUR", [datetime(2024, 2, 1, 0, 30), datetime(1970, 1, 1, 0, 30), None]),
        ("x - INTERVAL 1 DAY", [datetime(2024, 1, 30, 23, 30), datetime(1969, 12, 30, 23, 30), None]),
        ("x + INTERVAL 1 MONTH", [datetime(2024, 2, 29, 23, 30), datetime(1970, 1, 31, 23, 30), None]),
    ):
        assert evaluate(sql, x=column) == expected


def test_an_interval_finer_than_the_column_is_an_error():
    with pytest.raises(EvaluationError, match="finer than"):
        evaluate("x + INTERVAL 1 MILLISECOND > '2024-01-01'", x=pa.array([0], pa.timestamp("s")))


FAR = 2**63 - 1
FAR_DAY = 2**31 - 1


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize(
    ("value", "sql"),
    [
        (FAR, "x + INTERVAL 1 SECOND IS NULL"),
        (FAR, "x + INTERVAL 1 DAY IS NULL"),
        (FAR, "x + INTERVAL 1 MONTH IS NULL"),
        (FAR, "x - INTERVAL -1 SECOND IS NULL"),
        (-FAR, "x - INTERVAL 2 SECOND IS NULL"),
        (-FAR, "x + INTERVAL -1 DAY IS NULL"),
        (-FAR, "x - INTERVAL 1 MONTH IS NULL"),
    ],
)
def test_a_timestamp_shifted_out_of_its_range_is_an_error(unit, value, sql):
    with pytest.raises(EvaluationError, match=r"cannot evaluate .*(leaves the range|out of the range)"):
        evaluate(sql, x=pa.array([0, value, None], pa.timestamp(unit)))


def test_an_interval_longer_than_the_range_of_the_column_is_an_error():
    with pytest.raises(EvaluationError, match="longer than"):
        evaluate("x + INTERVAL 100000000 DAY IS NULL", x=pa.array([0], pa.timestamp("ns")))


def test_a_timestamp_at_the_limit_is_in_range():
    column = pa.array([FAR - 10**9, -FAR + 10**9, None], pa.timestamp("ns"))
    assert evaluate("x + INTERVAL 1 SECOND < x", x=column) == [False, False, None]
    assert evaluate("x - INTERVAL 1 SECOND > x", x=column) == [False, False, None]


@pytest.mark.parametrize(
    ("day", "sql"),
    [
        (FAR_DAY, "x + INTERVAL 1 DAY IS NULL"),
        (FAR_DAY, "x + INTERVAL 1 MONTH IS NULL"),
        (FAR_DAY, "x + 1 IS NULL"),
        (-FAR_DAY, "x - INTERVAL 2 DAY IS NULL"),
        (-FAR_DAY, "x - 2 IS NULL"),
        (0, "x + 3000000000 IS NULL"),
    ],
)
def test_a_date_shifted_out_of_its_range_is_an_error(day, sql):
    with pytest.raises(EvaluationError, match="cannot evaluate"):
        evaluate(sql, x=pa.array([0, day, None], pa.date32()))


@pytest.mark.parametrize(("unit", "year"), [("s", 292_277_026_596), ("ms", 292_278_994), ("us", 294_247), ("ns", 2262)])
def test_T6_years_beyond_the_calendar_of_arrow(unit, year):
    column = pa.array([FAR, 0, None], pa.timestamp(unit))
    assert evaluate("year(x)", x=column) == [year, 1970, None]
    started = evaluate("date_trunc('year', x) <= x", x=column)
    assert started == [True, True, None]
    assert evaluate("date_trunc('month', x) > '2262-01-01'", x=column) == [True, False, None]


@pytest.mark.parametrize("sql", ["date_trunc('year', x) < '2000-01-01'", "x - INTERVAL 1 MONTH < '2000-01-01'"])
def test_truncation_before_the_first_timestamp_is_an_error_and_does_not_wrap(sql):
    with pytest.raises(EvaluationError, match="cannot evaluate"):
        evaluate(sql, x=pa.array([-FAR], pa.timestamp("ns")))


def test_T5_a_cast_to_a_coarser_unit_rounds_towards_the_past():
    column = pa.array([-1, 1, -1_000_000, None], pa.timestamp("us"))
    assert evaluate("CAST(x AS TIMESTAMP_S) = '1969-12-31 23:59:59'", x=column) == [True, False, True, None]
    extremes = pa.array([-FAR, FAR], pa.timestamp("ns"))
    assert evaluate("CAST(x AS TIMESTAMP_NTZ) < '1970-01-01'", x=extremes) == [True, False]


# --- Structs, constants, the program --------------------------------------------------------------------------------


def test_N9_a_null_struct_makes_its_fields_null():
    inner = pa.array([1, 2, 3], pa.int64())
    column = pa.StructArray.from_arrays([inner], names=["x"], mask=pa.array([False, True, False]))
    assert evaluate("s.x", s=column) == [1, None, 3]
    assert evaluate("s.x IS NULL", s=column) == [False, True, False]
    assert evaluate("NOT (s.x = 2)", s=column) == [True, None, True]
    assert evaluate("s IS NULL", s=column) == [False, True, False]


def test_a_literal_is_repeated_to_the_length_of_the_batch():
    batch = pa.record_batch({"x": pa.array([1, 2, 3])})
    assert Evaluator(Literal(5, types.LONG))(batch).to_pylist() == [5, 5, 5]
    assert Evaluator(Literal(5, types.LONG))(batch.slice(0, 0)).to_pylist() == []


def test_a_repeated_sub_expression_is_computed_once():
    column = Column(("x",), type=types.LONG)
    # Without sharing this would be 2 to the power of 60 steps.
    shared: Expr = Call("is_null", (Call("is_null", (column,)),))
    for _ in range(60):
        shared = Call("or", (shared, shared))
    assert Evaluator(shared)(pa.record_batch({"x": pa.array([1, None])})).to_pylist() == [False, False]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("1 + 2", Literal(3, types.LONG)),
        ("DATE '2024-01-31' + INTERVAL 1 MONTH", Literal(19782, types.DATE)),
        ("1.5 + 1", Literal(Decimal("2.5"), pa.decimal128(21, 1))),
        ("double('NaN') + 1", Literal(NAN, types.DOUBLE)),
        ("upper('x')", Literal("X", types.STRING)),
        ("NULL = 1", Literal(None, types.BOOLEAN)),
    ],
)
def test_constants_have_values_of_their_type(sql, expected):
    found = evaluate_constant(bind(parse_sql(sql), pa.schema([])))
    assert found == expected


@pytest.mark.parametrize(
    "sql",
    ["x / 2 = 1", "x % 2 = 1", "my_own(x) = 1", "concat(s, 'a') = 'b'", "s LIKE s", "CAST(f AS STRING) = '1'",
     "substr(s, -1) = 'a'", "x = x AND my_own(s)", "u + 1 = 5"],
)  # fmt: skip
def test_expressions_with_other_arrow_semantics_cannot_be_evaluated(sql):
    schema = pa.schema([("x", pa.int64()), ("s", pa.string()), ("f", pa.float64()), ("u", pa.uint64())])
    assert not can_evaluate(bind(parse_sql(sql), schema))


# --- X11 ------------------------------------------------------------------------------------------------------------


def test_X11_a_predicate_of_ten_thousand_levels_is_evaluated():
    x = Column(("x",), type=types.LONG)
    deep: Expr = Call(">", (x, Literal(0, types.LONG)))
    for level in range(10_000):
        deep = Call("not", (Call("or", (deep, Call("=", (x, Literal(-level - 1, types.LONG))))),))
    batch = pa.record_batch({"x": pa.array([5, 0, None])})
    assert can_evaluate(deep)
    assert Evaluator(deep)(batch).to_pylist() == [True, False, None]


def test_X11_a_list_of_a_hundred_thousand_items_is_one_step():
    x = Column(("x",), type=types.LONG)
    items = tuple(Literal(value, types.LONG) for value in range(0, 200_000, 2))
    batch = pa.record_batch({"x": pa.array([0, 1, 199_998, 199_999, None])})
    assert Evaluator(Call("in", (x, *items)))(batch).to_pylist() == [True, False, True, False, None]


def test_an_overflow_of_constants_has_a_hint():
    with pytest.raises(EvaluationError, match=r"overflow, the result does not fit into 64 bits.*DECIMAL\(38,0\)"):
        evaluate_constant(parse_sql("9223372036854775807 + 1"))
