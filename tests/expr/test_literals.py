from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis import types
from tamis.errors import TypeMismatch
from tamis.expr.datetime_text import date_from_days, days_from_date, format_interval, parse_interval
from tamis.expr.literals import cast_literal, format_date, format_timestamp, literal, parse_date, parse_timestamp
from tamis.expr.nodes import Literal

SECOND = 1_000_000_000
DAY = 86_400 * SECOND


@pytest.mark.parametrize(
    ("value", "expected", "data_type"),
    [
        (None, None, types.NULL),
        (True, True, types.BOOLEAN),
        (5, 5, types.LONG),
        (2**63 - 1, 2**63 - 1, types.LONG),
        (2**63, Decimal(2**63), pa.decimal128(19, 0)),
        (-(10**40), Decimal(-(10**40)), pa.decimal256(41, 0)),
        (1.5, 1.5, types.DOUBLE),
        (Decimal("1.50"), Decimal("1.50"), pa.decimal128(3, 2)),
        (Decimal("0.05"), Decimal("0.05"), pa.decimal128(2, 2)),
        (Decimal(0), Decimal(0), pa.decimal128(1, 0)),
        (Decimal("1E+2"), Decimal(100), pa.decimal128(3, 0)),
        (Decimal("1." + "3" * 37), Decimal("1." + "3" * 37), pa.decimal128(38, 37)),
        ("x", "x", types.STRING),
        (b"x", b"x", types.BINARY),
        (bytearray(b"x"), b"x", types.BINARY),
        (date(1970, 1, 2), 1, types.DATE),
        (date(1, 1, 1), -719_162, types.DATE),
        (datetime(1970, 1, 1, 0, 0, 1, 5), 1_000_005, types.TIMESTAMP_NTZ),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999), -1, types.TIMESTAMP_NTZ),
        (datetime(1970, 1, 1, tzinfo=UTC), 0, types.TIMESTAMP),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0, types.TIMESTAMP),
        (datetime(9999, 12, 31, tzinfo=timezone(timedelta(hours=-5))), 253_402_232_400_000_000, types.TIMESTAMP),
        (time(1, 2, 3, 4), 3_723_000_004, pa.time64("us")),
        (timedelta(days=2, seconds=3, microseconds=4), (0, 2, 3_000_004_000), types.INTERVAL),
        (np.bool_(True), True, types.BOOLEAN),
        (np.int8(-5), -5, pa.int8()),
        (np.uint64(2**64 - 1), 2**64 - 1, pa.uint64()),
        (np.float32(0.1), float(np.float32(0.1)), pa.float32()),
        (np.float16(0.5), 0.5, pa.float32()),
        (np.float64(0.1), 0.1, types.DOUBLE),
        (np.str_("x"), "x", types.STRING),
        (np.datetime64("1970-01-02"), 1, types.DATE),
        (np.datetime64("1970-02"), 31, types.DATE),
        (np.datetime64("1970-01-01T00:00:01", "ns"), SECOND, pa.timestamp("ns")),
        (np.datetime64("1970-01-01T01", "h"), 3600, pa.timestamp("s")),
        (np.datetime64("NaT", "ms"), None, pa.timestamp("ms")),
        (np.timedelta64(90, "s"), (0, 0, 90 * SECOND), types.INTERVAL),
        (np.timedelta64(2, "Y"), (24, 0, 0), types.INTERVAL),
        (pd.Timestamp("1970-01-01 00:00:00.000000005"), 5, pa.timestamp("ns")),
        (pd.Timestamp("1970-01-01", tz="Europe/Paris").as_unit("ns"), -3600 * SECOND, pa.timestamp("ns", "UTC")),
        (pd.Timedelta(days=1, nanoseconds=7), (0, 1, 7), types.INTERVAL),
        (pa.scalar(5, pa.int16()), 5, pa.int16()),
        (pa.scalar(None, pa.int16()), None, pa.int16()),
        (pa.scalar(None), None, types.NULL),
        (pa.scalar("x", pa.large_string()), "x", types.STRING),
        (pa.scalar("x", pa.string_view()), "x", types.STRING),
        (pa.scalar(b"xy", pa.binary(2)), b"xy", types.BINARY),
        (pa.scalar(1.5, pa.float16()), 1.5, pa.float32()),
        (pa.scalar(7, pa.date32()), 7, types.DATE),
        (pa.scalar(date(1970, 1, 8), pa.date64()), 7, types.DATE),
        (pa.scalar(7, pa.timestamp("s")), 7, pa.timestamp("s")),
        (pa.scalar(7, pa.timestamp("ns", "Europe/Paris")), 7, pa.timestamp("ns", "UTC")),
        (pa.scalar(7, pa.time32("ms")), 7, pa.time32("ms")),
        (pa.scalar(7, pa.duration("us")), 7, pa.duration("us")),
        (pa.scalar((1, 2, 3), types.INTERVAL), (1, 2, 3), types.INTERVAL),
        (pa.scalar(Decimal("1.5"), pa.decimal128(10, 2)), Decimal("1.50"), pa.decimal128(10, 2)),
        (pa.scalar(Decimal("1.5"), pa.decimal32(5, 1)), Decimal("1.5"), pa.decimal128(5, 1)),
        (pa.array(["x"]).dictionary_encode()[0], "x", types.STRING),
        (pa.array([None, "x"]).dictionary_encode()[0], None, types.STRING),
        (pa.scalar(b"\x01" * 16, pa.uuid()), b"\x01" * 16, types.BINARY),
    ],
)  # fmt: skip
def test_literal_keeps_value_and_type(value: Any, expected: Any, data_type: pa.DataType) -> None:
    found = literal(value)
    assert (found.value, found.type) == (expected, data_type)
    assert type(found.value) is type(expected)


@pytest.mark.parametrize(
    "value",
    [
        object(), [1], (1, 2), {1}, {"a": 1}, 1j, Decimal("NaN"), Decimal("Infinity"), Decimal("1e-100"), 10**80,
        time(1, tzinfo=UTC), np.datetime64(1, "ps"), np.datetime64(2**62, "Y"), np.longdouble(1),
        pa.scalar([1]), pa.scalar({"a": 1}), int,
    ],
)  # fmt: skip
def test_an_unsupported_value_is_a_clear_error(value: Any) -> None:
    with pytest.raises(TypeMismatch):
        literal(value)


def test_the_error_names_the_kind_of_value() -> None:
    with pytest.raises(TypeMismatch, match=r"a list cannot be a literal: \[1, 2\]"):
        literal([1, 2])


def test_every_nan_is_the_same_literal() -> None:
    assert literal(float("nan")) == literal(np.float64("nan")) == Literal(math.nan, types.DOUBLE)


@pytest.mark.parametrize(
    ("value", "target", "expected"),
    [
        (5, pa.int8(), 5),
        (Decimal("5.0"), pa.int8(), 5),
        (5.0, pa.int8(), 5),
        (5, types.DOUBLE, 5.0),
        (Decimal("0.1"), types.DOUBLE, 0.1),
        (0.1, pa.float32(), float(np.float32(0.1))),
        (5, pa.decimal128(10, 2), Decimal("5.00")),
        ("1.50", pa.decimal128(3, 2), Decimal("1.50")),
        ("NaN", types.DOUBLE, math.nan),
        ("-inf", pa.float32(), -math.inf),
        ("2024-01-01 10:00", types.DATE, 19_723),
        (date(1970, 1, 2), types.TIMESTAMP, 86_400_000_000),
        (datetime(1970, 1, 1, 0, 0, 1), pa.timestamp("s"), 1),
        ("1970-01-01 00:00:01Z", pa.timestamp("s"), 1),
        (None, pa.int8(), None),
        ("x", pa.large_string(), "x"),
    ],
)  # fmt: skip
def test_literal_of_a_type_holds_the_same_value(value: Any, target: pa.DataType, expected: Any) -> None:
    found = literal(value, target)
    assert found == Literal(expected, found.type)
    assert type(found.value) is type(expected)


@pytest.mark.parametrize(
    ("value", "target"),
    [
        (300, pa.int8()), (-1, pa.uint64()), (5.5, pa.int64()), (math.nan, pa.int64()), (math.inf, pa.int64()),
        (10**400 // 10**330, pa.float32()), (Decimal("1.55"), pa.decimal128(3, 1)), (1000, pa.decimal128(4, 2)),
        (0.1, pa.decimal128(3, 1)), (True, pa.int8()), ("5", pa.int8()), ("1.5", types.DOUBLE), ("x", types.DATE),
        ("2024-02-30", types.DATE), ("2024-01-01 00:00:00Z", types.TIMESTAMP_NTZ), (5, types.STRING),
        (datetime(1970, 1, 1, 0, 0, 0, 1), pa.timestamp("s")), (datetime(1970, 1, 1, tzinfo=UTC), types.TIMESTAMP_NTZ),
        (5, types.BINARY), (5, types.INTERVAL),
    ],
)  # fmt: skip
def test_T4_literal_that_a_type_cannot_hold_is_refused(value: Any, target: pa.DataType) -> None:
    assert cast_literal(literal(value), target) is None
    with pytest.raises(TypeMismatch, match=r"cannot be converted to .* without loss"):
        literal(value, target)


def test_type_may_be_a_name() -> None:
    assert literal(5, "tinyint") == Literal(5, pa.int8())


# --- Dates and times ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("1970", 0), ("1970-2", 31), ("1970-01-02", 1), ("1970-1-2", 1), (" 1970-01-02 ", 1), ("1969-12-31", -1),
        ("0001-01-01", -719_162), ("9999-12-31", 2_932_896), ("2024-02-29", 19_782), ("0000-01-01", -719_528),
        ("+10000-01-01", 2_932_897), ("-0001-12-31", -719_529),
        ("", None), ("197", None), ("19700", None), ("1970-13-01", None), ("1970-00-01", None), ("1970-02-29", None),
        ("1970-01-32", None), ("1970-01-00", None), ("1970/01/01", None), ("1970-01-02x", None), ("٢٠٢٤", None),
        ("1970-01-02 10:00", None), ("20240101", None),
    ],
)  # fmt: skip
def test_T6_parse_date(text: str, days: int | None) -> None:
    assert parse_date(text) == days


def test_parse_date_ignores_the_time_only_with_allow_time() -> None:
    assert parse_date("1970-01-02T10:00:00", allow_time=True) == 1
    assert parse_date("1970-01-02 anything", allow_time=True) == 1
    assert parse_date("1970-01 10:00", allow_time=True) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01", (0, False)),
        ("1970", (0, False)),
        ("1970-01-01 00:00:01", (SECOND, False)),
        ("1970-1-1T0:0:1", (SECOND, False)),
        ("1970-01-01 01:02", (3_720 * SECOND, False)),
        ("1970-01-01 01", (3_600 * SECOND, False)),
        ("1970-01-01 00:00:00.", (0, False)),
        ("1970-01-01 00:00:00.5", (500_000_000, False)),
        ("1970-01-01 00:00:00.123456789", (123_456_789, False)),
        ("1969-12-31 23:59:59.999999999", (-1, False)),
        ("0001-01-01 00:00:00", (-719_162 * DAY, False)),
        ("9999-12-31 23:59:59.999999999", (2_932_897 * DAY - 1, False)),
        ("1970-01-01 00:00:00Z", (0, True)),
        ("1970-01-01 00:00:00 UTC", (0, True)),
        ("1970-01-01T01:00:00+01:00", (0, True)),
        ("1970-01-01T01:00:00+01", (0, True)),
        ("1970-01-01T01:00:00+0100", (0, True)),
        ("1970-01-01T00:00:00-1:30", (5_400 * SECOND, True)),
        ("1970-01-01T01:00:00 GMT+1", (0, True)),
        ("1970-01-01 01:00:00 Europe/Paris", (0, True)),
        ("2024-07-01 02:00:00Europe/Paris", (19_905 * DAY, True)),
        ("1970-01-01 00:00:00.25+00:00:01", (-750_000_000, True)),
        ("1970-01-01 24:00:00", None),
        ("1970-01-01 00:60:00", None),
        ("1970-01-01 00:00:60", None),
        ("1970-01-01 00:00:00.1234567890", None),
        ("1970-01-01 00:00:00+19:00", None),
        ("1970-01-01 00:00:00+01:60", None),
        ("1970-01-01 00:00:00 Nowhere/Land", None),
        ("1970-01-01 00:00:00 ../etc/passwd", None),
        ("1970-01-01 00:00:00 Europe", None),
        ("1970-01-01Z", None),
        ("10:00:00", None),
        ("now", None),
        ("", None),
    ],
)  # fmt: skip
def test_T7_parse_timestamp(text: str, expected: tuple[int, bool] | None) -> None:
    assert parse_timestamp(text) == expected


def test_T8_zones_with_seconds_in_their_offset_are_exact() -> None:
    # Paris was 9 minutes and 21 seconds ahead of UTC.
    parsed = parse_timestamp("1900-01-01 00:00:00 Europe/Paris")
    start = parse_timestamp("1900-01-01 00:00:00")
    assert parsed is not None
    assert start is not None
    assert start[0] - parsed[0] == 561 * SECOND


def test_local_times_in_gaps_and_overlaps() -> None:
    skipped = parse_timestamp("2024-03-31 02:30:00 Europe/Paris")
    repeated = parse_timestamp("2024-10-27 02:30:00 Europe/Paris")
    assert skipped == parse_timestamp("2024-03-31 01:30:00Z")
    assert repeated == parse_timestamp("2024-10-27 00:30:00Z")


@given(st.integers(-(10**10), 10**10))
def test_any_day_round_trips_through_its_date(days: int) -> None:
    assert days_from_date(*date_from_days(days)) == days
    assert parse_date(format_date(days)) == days


@given(st.dates())
def test_days_agree_with_the_calendar_of_python(day: date) -> None:
    days = day.toordinal() - date(1970, 1, 1).toordinal()
    assert date_from_days(days) == (day.year, day.month, day.day)
    assert format_date(days) == day.isoformat()


@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from(["s", "ms", "us", "ns"]))
def test_any_timestamp_round_trips_through_text(value: int, unit: str) -> None:
    parsed = parse_timestamp(format_timestamp(value, unit))
    assert parsed == (value * (SECOND // types.UNITS_PER_SECOND[unit]), False)


def test_format_timestamp_writes_the_given_number_of_digits() -> None:
    assert format_timestamp(1_500, "ms") == "1970-01-01 00:00:01.5"
    assert format_timestamp(1_500, "ms", digits=9) == "1970-01-01 00:00:01.500000000"
    assert format_timestamp(-1, "ns") == "1969-12-31 23:59:59.999999999"
    assert format_timestamp(2**63 - 1, "s").startswith("+292277026596-12-04")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 DAY", (0, 1, 0)),
        ("-2 months", (-2, 0, 0)),
        ("3 week", (0, 21, 0)),
        ("1.5 second", (0, 0, 1_500_000_000)),
        ("0.5 millisecond", (0, 0, 500_000)),
        ("2 days 3 hours", (0, 2, 10_800 * SECOND)),
        ("1 year -3 months", (9, 0, 0)),
        ("1.5 day", None),
        ("0.5 nanosecond", None),
        ("x day", None),
        ("1 fortnight", None),
        ("1 day 1 fortnight", None),
        ("2 days and 3 hours", None),
        ("3", None),
        ("", None),
        ("99999999999 month", None),
    ],
)
def test_parse_interval(text: str, expected: Any) -> None:
    assert parse_interval(text) == expected


@given(st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)))
def test_any_interval_round_trips_through_text(interval: tuple[int, int, int]) -> None:
    assert parse_interval(format_interval(interval)) == interval
