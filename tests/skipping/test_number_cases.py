"""T: numbers and time. Literals outside the column's type, time units, and dates before 1970."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from builders.skipping.units import (
    BIG,
    DATE,
    DOUBLE,
    FULLY_MATCHED,
    INT,
    KEPT,
    SKIPPED,
    TEXT,
    TIMESTAMP,
    WALL_CLOCK,
    Unit,
    explain_unused,
    find_outcome,
    find_outcomes,
    make_batch,
)
from tamis.skipping.predicate import make_predicate
from tamis.skipping.prune import prune

TINY = pa.int8()
LARGEST = 2**63 - 1
MANY = "9999999999999999999999999999"


@pytest.mark.parametrize(
    ("data_type", "where", "lower", "upper", "expected"),
    [
        (pa.uint8(), "x > 127", 128, 255, FULLY_MATCHED),
        (pa.uint8(), "x < 128", 128, 255, SKIPPED),
        (pa.uint16(), "x = 65535", 32768, 65535, KEPT),
        (pa.uint32(), "x >= 2147483648", 2147483648, 4294967295, FULLY_MATCHED),
        (pa.uint32(), "x IN (1, 4294967295)", 2, 4294967294, SKIPPED),
        (pa.uint64(), "x > 9223372036854775807", 9223372036854775808, 18446744073709551615, FULLY_MATCHED),
        (pa.uint64(), "x < 9223372036854775808", 9223372036854775808, 18446744073709551615, SKIPPED),
        (pa.uint64(), "x = 18446744073709551615", 1, 18446744073709551615, KEPT),
        (pa.uint64(), "x IN (0, 18446744073709551615)", 1, 18446744073709551614, SKIPPED),
        (pa.uint64(), "x IN (0, 18446744073709551615)", 1, 18446744073709551615, KEPT),
        (pa.uint64(), "x < 0", 0, 18446744073709551615, SKIPPED),
        (pa.uint64(), "x >= -1", 0, 18446744073709551615, FULLY_MATCHED),
        (pa.uint64(), "x = -1", 0, 18446744073709551615, SKIPPED),
        (pa.uint64(), "x <> -1", 0, 18446744073709551615, FULLY_MATCHED),
        (pa.uint64(), "x = 18446744073709551616", 0, 18446744073709551615, SKIPPED),
        (pa.uint8(), "x + 1 = 256", 255, 255, FULLY_MATCHED),  # sums are of 64 bits and do not wrap
        (pa.uint8(), "-x < 0", 1, 255, FULLY_MATCHED),
        (pa.uint32(), "x - 1 < 0", 0, 0, FULLY_MATCHED),
        (pa.uint64(), "x + 1 > 5", 1, 2, KEPT),  # the sum of a 64-bit unsigned number has no type of ours
    ],
)
def test_T1_unsigned_numbers_with_the_high_bit(data_type, where, lower, upper, expected):
    assert find_outcome(where, data_type, Unit(lower, upper)) == expected


@pytest.mark.parametrize(
    ("data_type", "where", "lower", "upper", "expected"),
    [
        (pa.decimal128(5, 2), "x < 0", "-0.01", "1.00", KEPT),
        (pa.decimal128(5, 2), "x < -0.01", "-0.01", "1.00", SKIPPED),
        (pa.decimal128(5, 2), "x = 1.5", "1.50", "1.50", FULLY_MATCHED),
        (pa.decimal128(5, 2), "x = 1.500000", "1.50", "1.50", FULLY_MATCHED),
        (pa.decimal128(5, 2), "x = 1.505", "1.50", "1.51", SKIPPED),
        (pa.decimal128(5, 2), "x < 1.505", "1.50", "1.51", KEPT),
        (pa.decimal128(5, 2), "x < 1.505", "1.00", "1.50", FULLY_MATCHED),
        (pa.decimal128(5, 2), "x > 1.505", "1.00", "1.50", SKIPPED),
        (pa.decimal128(5, 2), "x <> 1.505", "1.00", "1.50", FULLY_MATCHED),
        (pa.decimal128(5, 2), "x IN (1.505, 1.5)", "1.00", "1.49", SKIPPED),
        (pa.decimal128(5, 2), "x < 1000", "-999.99", "999.99", FULLY_MATCHED),
        (pa.decimal128(5, 2), "x >= 1000", "-999.99", "999.99", SKIPPED),
        (pa.decimal128(5, 2), "x > -99999999999999999999999999999999999999", "-999.99", "999.99", FULLY_MATCHED),
        (pa.decimal128(5, 2), "x = 2", "1.00", "1.99", SKIPPED),
        (pa.decimal128(5, 2), "x > 1.0D", "0.00", "1.00", SKIPPED),
        (pa.decimal128(5, 2), "x = 0.1D", "0.10", "0.10", FULLY_MATCHED),  # both are the same double
        (pa.decimal128(5, 2), "x = 0.105D", "0.10", "0.11", SKIPPED),
        (pa.decimal128(38, 0), f"x = {MANY}00D", "0", f"{MANY}01", KEPT),
        (pa.decimal128(38, 0), f"x > {MANY}00D", "0", f"{MANY}01", SKIPPED),
        (pa.decimal128(38, 10), f"x > {MANY}.9999999998", "0", f"{MANY}.9999999998", SKIPPED),
        (pa.decimal128(38, 10), f"x > {MANY}.9999999998", "0", f"{MANY}.9999999999", KEPT),
        (pa.decimal128(38, 0), f"x = {MANY}8901234567", "0", f"{MANY}8901234566", SKIPPED),
        (pa.decimal128(38, 0), f"x = {MANY}8901234567", "0", f"{MANY}8901234567", KEPT),
        (pa.decimal256(50, 2), "x > 5.5", "1.00", "5.50", SKIPPED),
        (pa.decimal256(50, 2), "x IN (5.5, 6)", "5.51", "5.99", SKIPPED),
    ],
)  # fmt: skip
def test_T2_decimals_of_other_scales(data_type, where, lower, upper, expected):
    assert find_outcome(where, data_type, Unit(Decimal(lower), Decimal(upper))) == expected


def test_T2_decimal_columns_of_different_scales_compare_exactly():
    small, wide = pa.decimal128(5, 2), pa.decimal128(12, 4)
    columns = {
        "a": (small, [Unit(Decimal("1.00"), Decimal("1.50"))]),
        "b": (wide, [Unit(Decimal("1.5001"), Decimal("2"))]),
    }
    assert find_outcomes("a < b", columns) == [FULLY_MATCHED]
    assert find_outcomes("a >= b", columns) == [SKIPPED]
    assert find_outcomes("a = b", columns) == [SKIPPED]


@pytest.mark.parametrize(
    ("data_type", "where", "lower", "upper", "expected"),
    [
        (TINY, "x = 300", 1, 9, SKIPPED),
        (TINY, "x <> 300", 1, 9, FULLY_MATCHED),
        (TINY, "x < 300", 1, 9, FULLY_MATCHED),
        (TINY, "x <= 300", 1, 9, FULLY_MATCHED),
        (TINY, "x > 300", 1, 9, SKIPPED),
        (TINY, "x >= -300", 1, 9, FULLY_MATCHED),
        (TINY, "x <=> 300", 1, 9, SKIPPED),
        (TINY, "x IS DISTINCT FROM 300", 1, 9, FULLY_MATCHED),
        (TINY, "x BETWEEN -300 AND 5", 1, 9, KEPT),
        (TINY, "x BETWEEN -300 AND 300", 1, 9, FULLY_MATCHED),
        (TINY, "x IN (300, 5)", 6, 9, SKIPPED),
        (TINY, "x IN (300, 400)", 6, 9, SKIPPED),
        (TINY, "x NOT IN (300, 400)", 6, 9, FULLY_MATCHED),
        (TINY, "x NOT IN (300, 7)", 7, 7, SKIPPED),
        (TINY, "x > 126.5", 1, 126, SKIPPED),
        (TINY, "x > 127.5", 1, 127, SKIPPED),
        (TINY, "x > -128.5", -128, 127, FULLY_MATCHED),
        (INT, "x < 5.5", 5, 9, KEPT),
        (INT, "x < 5.5", 6, 9, SKIPPED),
        (INT, "x < 5.5", 1, 5, FULLY_MATCHED),
        (INT, "x <= 5.5", 1, 5, FULLY_MATCHED),
        (INT, "x > 5.5", 1, 5, SKIPPED),
        (INT, "x >= 5.5", 5, 6, KEPT),
        (INT, "x > 5.5", 6, 9, FULLY_MATCHED),
        (INT, "x = 5.5", 5, 6, SKIPPED),
        (INT, "x <> 5.5", 5, 6, FULLY_MATCHED),
        (INT, "x = 5.0", 5, 5, FULLY_MATCHED),
        (INT, "x = 5e0", 5, 5, FULLY_MATCHED),
        (INT, "x < -5.5", -5, -5, SKIPPED),
        (INT, "x < -5.5", -6, -6, FULLY_MATCHED),
        (INT, "x IN (5.5, 7)", 5, 6, SKIPPED),
        (INT, "x < 1e300", 1, 9, FULLY_MATCHED),
        (INT, "x < double('NaN')", 1, 9, FULLY_MATCHED),
        (INT, "x = double('NaN')", 1, 9, SKIPPED),
        (INT, "x > double('NaN')", 1, 9, SKIPPED),
        (INT, "x < double('Infinity')", 1, 9, FULLY_MATCHED),
        (INT, "x > double('-Infinity')", 1, 9, FULLY_MATCHED),
        (INT, "x <= 9223372036854775807", 1, 9, FULLY_MATCHED),
        (INT, "x > 9223372036854775807", 1, 9, SKIPPED),
        (INT, "x < 2147483648", 2147483647, 2147483647, FULLY_MATCHED),
        (BIG, "x < 9223372036854775808", LARGEST, LARGEST, FULLY_MATCHED),
        (BIG, "x = 9223372036854775808", LARGEST, LARGEST, SKIPPED),
        (BIG, "x >= 9223372036854775807", LARGEST, LARGEST, FULLY_MATCHED),
        # A double of that size has no neighbours at distance one; the column has.
        (BIG, "x = 9007199254740993", 9007199254740992, 9007199254740992, SKIPPED),
        (BIG, "x > 9007199254740992.0D", 9007199254740993, 9007199254740993, SKIPPED),  # as doubles they are equal
        (BIG, "x = 9007199254740992.0D", 9007199254740993, 9007199254740993, FULLY_MATCHED),
        (BIG, "x > 9007199254740992.0D", 9007199254740994, 9007199254740994, FULLY_MATCHED),
        (BIG, "x IN (9007199254740993, 0.5D)", 9007199254740992, 9007199254740992, FULLY_MATCHED),
        (BIG, "x IN (9007199254740993, 0.5)", 9007199254740992, 9007199254740992, SKIPPED),
        (INT, "x = '5'", 5, 5, FULLY_MATCHED),
        (INT, "x < '5.5'", 1, 5, FULLY_MATCHED),
        (INT, "x > ' 7 '", 1, 7, SKIPPED),
    ],
)
def test_T4_literals_wider_than_the_column(data_type, where, lower, upper, expected):
    assert find_outcome(where, data_type, Unit(lower, upper)) == expected


@pytest.mark.parametrize("where", ["x < 300", "x <> 300", "x <> 5.5", "NOT (x = 300)", "x >= -300", "x NOT IN (300)"])
def test_T4_a_literal_out_of_range_leaves_null_what_is_null(where):
    assert find_outcome(where, TINY, Unit(1, 9, 3)) == KEPT
    assert find_outcome(where, TINY, Unit(None, None, 10)) == SKIPPED
    assert find_outcome(f"({where}) IS NULL", TINY, Unit(1, 9, 0)) == SKIPPED
    assert find_outcome(f"({where}) IS NULL", TINY, Unit(1, 9, 3)) == KEPT


@pytest.mark.parametrize(
    ("unit", "where", "lower", "upper", "expected"),
    [
        ("ms", "x > '1970-01-01 00:00:00.0005'", 0, 0, SKIPPED),
        ("ms", "x > '1970-01-01 00:00:00.0005'", 1, 5, FULLY_MATCHED),
        ("ms", "x = '1970-01-01 00:00:00.0005'", 0, 1, SKIPPED),
        ("ms", "x < '1970-01-01 00:00:00.0005'", 0, 1, KEPT),
        ("s", "x <= '1970-01-01 00:00:01.999'", 0, 1, FULLY_MATCHED),
        ("s", "x > '1970-01-01 00:00:01.999'", 2, 3, FULLY_MATCHED),
        ("s", "x IN ('1970-01-01 00:00:01', '1970-01-01 00:00:01.5')", 2, 9, SKIPPED),
        ("us", "x = '1970-01-01 00:00:00.000005'", 5, 5, FULLY_MATCHED),
        ("us", "x = '1970-01-01 00:00:00.000005001'", 5, 6, SKIPPED),
        ("ns", "x = '1970-01-01 00:00:00.000000005'", 5, 5, FULLY_MATCHED),
        ("ns", "x > '1970-01-01 00:00:00.000000005'", 1, 5, SKIPPED),
        ("ns", "x > '1970-01-01 00:00:00.000001'", 1000, 1001, KEPT),
        ("ns", "x < '9999-12-31'", 0, LARGEST, FULLY_MATCHED),  # beyond what 64 bits of nanoseconds can hold
        ("ns", "x > '9999-12-31'", 0, LARGEST, SKIPPED),
        ("ns", "x > '0001-01-01'", 0, LARGEST, FULLY_MATCHED),
        ("ms", "x < TIMESTAMP_NTZ '1970-01-01 00:00:00.001'", 0, 0, FULLY_MATCHED),
        ("us", "x >= DATE '1970-01-02'", 86_399_999_999, 86_400_000_000, KEPT),
        ("us", "x >= DATE '1970-01-02'", 0, 86_399_999_999, SKIPPED),
    ],
)
def test_T5_literals_of_another_unit(unit, where, lower, upper, expected):
    assert find_outcome(where, pa.timestamp(unit), Unit(lower, upper)) == expected


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (("ms", 1, 1), ("us", 1000, 1000), FULLY_MATCHED),
        (("ms", 1, 1), ("us", 1001, 1001), SKIPPED),
        (("s", 1, 1), ("ns", 10**9, 10**9), FULLY_MATCHED),
        (("us", 1, 1), ("ns", 1001, 1001), SKIPPED),
        (("s", -1, -1), ("ms", -1000, -1000), FULLY_MATCHED),
    ],
)
def test_T5_columns_of_different_units(left, right, expected):
    columns = {
        name: (pa.timestamp(unit), [Unit(lower, upper)]) for name, (unit, lower, upper) in (("a", left), ("b", right))
    }
    assert find_outcomes("a = b", columns) == [expected]


def before_1970(*parts: int) -> datetime:
    return datetime(*parts)


@pytest.mark.parametrize(
    ("data_type", "where", "lower", "upper", "expected"),
    [
        (DATE, "x < '1970-01-01'", date(1969, 12, 31), date(1969, 12, 31), FULLY_MATCHED),
        (DATE, "year(x) = 1969", date(1969, 12, 31), date(1969, 12, 31), FULLY_MATCHED),
        (DATE, "year(x) = 1970", date(1969, 1, 1), date(1969, 12, 31), SKIPPED),
        (DATE, "trunc(x, 'month') = DATE '1969-12-01'", date(1969, 12, 31), date(1969, 12, 31), FULLY_MATCHED),
        (DATE, "x = '0001-01-01'", date(1, 1, 1), date(1, 1, 1), FULLY_MATCHED),
        (WALL_CLOCK, "date(x) = '1969-12-31'", before_1970(1969, 12, 31, 23, 59, 59, 999_999),
         before_1970(1969, 12, 31, 23, 59, 59, 999_999), FULLY_MATCHED),
        (WALL_CLOCK, "date(x) = '1970-01-01'", before_1970(1969, 12, 31),
         before_1970(1969, 12, 31, 23, 59, 59, 999_999), SKIPPED),
        (WALL_CLOCK, "year(x) = 1969", before_1970(1969, 12, 31, 23, 59, 59, 999_999),
         before_1970(1969, 12, 31, 23, 59, 59, 999_999), FULLY_MATCHED),
        (WALL_CLOCK, "date_trunc('hour', x) = TIMESTAMP_NTZ '1969-12-31 23:00:00'",
         before_1970(1969, 12, 31, 23), before_1970(1969, 12, 31, 23, 59, 59, 999_999), FULLY_MATCHED),
        (WALL_CLOCK, "date_trunc('day', x) = TIMESTAMP_NTZ '1970-01-01 00:00:00'",
         before_1970(1969, 12, 31), before_1970(1969, 12, 31, 23, 59, 59, 999_999), SKIPPED),
        (WALL_CLOCK, "date_trunc('week', x) = TIMESTAMP_NTZ '1969-12-29 00:00:00'",
         before_1970(1969, 12, 31), before_1970(1970, 1, 4, 23), FULLY_MATCHED),
        (WALL_CLOCK, "date_trunc('quarter', x) = TIMESTAMP_NTZ '1969-10-01 00:00:00'",
         before_1970(1969, 10, 1), before_1970(1969, 12, 31, 23), FULLY_MATCHED),
        (WALL_CLOCK, "CAST(x AS TIMESTAMP_S) = TIMESTAMP_NTZ '1969-12-31 23:59:59'",
         before_1970(1969, 12, 31, 23, 59, 59, 1), before_1970(1969, 12, 31, 23, 59, 59, 999_999), FULLY_MATCHED),
        (WALL_CLOCK, "x + INTERVAL 1 DAY < TIMESTAMP_NTZ '1970-01-01 00:00:00'",
         before_1970(1969, 12, 31), before_1970(1970, 1, 1), SKIPPED),
    ],
)  # fmt: skip
def test_T6_before_1970(data_type, where, lower, upper, expected):
    assert find_outcome(where, data_type, Unit(lower, upper)) == expected


@pytest.mark.parametrize("infinity", [LARGEST, 2**62])
@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize(
    "where",
    [
        "year(x) = 2024",
        "date(x) = '2024-03-03'",
        "date_trunc('month', x) = TIMESTAMP_NTZ '2024-03-01 00:00:00'",
        "trunc(x, 'year') = DATE '2024-01-01'",
        "x + INTERVAL 1 DAY > TIMESTAMP_NTZ '2024-03-03 00:00:00'",
    ],
)
def test_T6_a_bound_beyond_the_calendar_loses_nothing(where, unit, infinity):
    """DuckDB writes its infinities as the extreme 64-bit integers, which Arrow interprets as ordinary years."""
    per_second = {"s": 1, "ms": 10**3, "us": 10**6}[unit]
    third_of_march = 1_709_424_000 * per_second
    for lower, upper in ((third_of_march, infinity), (-infinity, third_of_march), (-infinity, infinity)):
        asked = where.replace(">", "<") if upper == third_of_march else where
        conjuncts = make_predicate(asked, pa.schema([("x", pa.timestamp(unit))]), "t").conjuncts
        batch = make_batch({"x": (pa.timestamp(unit), [Unit(lower, upper)])})
        assert prune(batch, conjuncts).selection.to_pylist() == [True]


def test_T6_dates_beyond_the_calendar_keep_their_order():
    last = Unit(2**31 - 2, 2**31 - 1)
    first = Unit(-(2**31), -(2**31) + 1)
    assert find_outcomes("year(x) > 32767", {"x": (DATE, [last, first])}) == [FULLY_MATCHED, SKIPPED]
    assert find_outcomes("year(x) < -32768", {"x": (DATE, [last, first])}) == [SKIPPED, FULLY_MATCHED]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata", "+05:30", None])
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("date(x) = '1970-01-01'", FULLY_MATCHED),
        ("date(x) = '1969-12-31'", SKIPPED),
        ("year(x) = 1970", FULLY_MATCHED),
        ("hour(x) = 0", FULLY_MATCHED),
        ("x < '1970-01-01 00:00:01'", FULLY_MATCHED),
        ("x < '1970-01-01 01:00:01+01:00'", FULLY_MATCHED),
        ("x >= '1970-01-01 00:00:01'", SKIPPED),
    ],
)
def test_T7_no_zone_of_a_column_or_a_session_moves_timestamps(zone, where, expected, monkeypatch):
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    assert find_outcome(where, pa.timestamp("us", zone), Unit(0, 0)) == expected


def test_T9_intervals_have_no_order():
    data_type = pa.month_day_nano_interval()
    columns = {"x": (data_type, [Unit(None, None, 0), Unit(None, None, 10), Unit(None, None, None)])}
    assert find_outcomes("x = INTERVAL 1 DAY", columns) == [KEPT, SKIPPED, KEPT]
    assert find_outcomes("x IS NULL", columns) == [SKIPPED, FULLY_MATCHED, KEPT]
    assert find_outcomes("x IS NOT NULL", columns) == [FULLY_MATCHED, SKIPPED, KEPT]
    assert explain_unused("x = INTERVAL 1 DAY", data_type, Unit(None, None, 0)) is not None


@pytest.mark.parametrize(
    ("columns", "where", "expected"),
    [
        ({"a": (TINY, [Unit(1, 4)]), "b": (BIG, [Unit(2**40, 2**41)])}, "a < b", FULLY_MATCHED),
        ({"a": (pa.float32(), [Unit(0.5, 0.5, 0, 0)]), "b": (DOUBLE, [Unit(0.5, 0.5, 0, 0)])}, "a = b", FULLY_MATCHED),
        ({"a": (DATE, [Unit(date(1970, 1, 2), date(1970, 1, 3))]), "b": (WALL_CLOCK, [Unit(0, 86_399_999_999)])},
         "a > b", FULLY_MATCHED),
        ({"a": (DATE, [Unit(date(1970, 1, 1), date(1970, 1, 1))]), "b": (TIMESTAMP, [Unit(1, 5)])}, "a >= b", SKIPPED),
        ({"a": (pa.uint64(), [Unit(2**63, 2**64 - 1)]), "b": (BIG, [Unit(-5, LARGEST)])}, "a > b", FULLY_MATCHED),
        ({"a": (pa.uint64(), [Unit(2**63, 2**64 - 1)]), "b": (BIG, [Unit(-5, LARGEST)])}, "a = b", SKIPPED),
        (
            {"a": (INT, [Unit(5, 5)]), "b": (pa.decimal128(5, 2), [Unit(Decimal("5.01"), Decimal("6"))])},
            "a < b",
            FULLY_MATCHED,
        ),
        ({"a": (INT, [Unit(5, 5)]), "b": (DOUBLE, [Unit(5.5, 6.0, 0, 0)])}, "a < b", FULLY_MATCHED),
        ({"a": (TEXT, [Unit("5", "6")]), "b": (INT, [Unit(9, 9)])}, "a = b", KEPT),  # '50' as a number is beyond '6'
    ],
)  # fmt: skip
def test_T11_columns_of_different_types_compare_as_the_wider(columns, where, expected):
    assert find_outcomes(where, columns) == [expected]
