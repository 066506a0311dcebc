"""Dates, times and intervals in queries and filters have Spark's values, in ANSI mode and the zone UTC."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis import TamisError


def _at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


def _read_value(query: str) -> Any:
    rows = tamis.connect().sql(query).to_arrow().to_pylist()
    assert len(rows) == 1
    values = list(rows[0].values())
    return values[0] if len(values) == 1 else values


_TS = "(SELECT TIMESTAMP '2020-01-03 00:00:00' AS ts, array(1) AS xs) AS t"
_SUMS = {
    "ts - INTERVAL 1 DAY 2 HOURS": _at(2020, 1, 1, 22),
    "ts - INTERVAL '1 02:03:04' DAY TO SECOND": _at(2020, 1, 1, 21, 56, 56),
    "-INTERVAL 1 DAY 2 HOURS + ts": _at(2020, 1, 1, 22),
    "ts + INTERVAL 1 DAY 2 HOURS * 2": _at(2020, 1, 5, 4),
    "ts - 2 * INTERVAL 1 DAY 2 HOURS": _at(2019, 12, 31, 20),
    "ts - INTERVAL '1 day 2 hours'": _at(2020, 1, 1, 22),
    "ts - INTERVAL '1-2' YEAR TO MONTH": _at(2018, 11, 3),
}


@pytest.mark.parametrize("expression", _SUMS)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT {} FROM " + _TS,
        "SELECT v FROM (SELECT {} AS v, row_number() OVER (ORDER BY ts) FROM " + _TS + ")",
        "SELECT {} FROM " + _TS + " LATERAL VIEW explode(xs) e AS x",
        "SELECT max({}) FROM " + _TS + " GROUP BY GROUPING SETS ((ts))",
        "SELECT CASE WHEN ts IS NULL THEN ts ELSE {} END FROM " + _TS,
    ],
)
def test_Q2_intervals_of_several_units_mean_the_same_in_every_context(query: str, expression: str) -> None:
    assert _read_value(query.format(expression)) == _SUMS[expression]


def test_Q2_intervals_of_several_units_without_from_and_in_a_correlated_exists() -> None:
    assert _read_value("SELECT TIMESTAMP '2020-01-03 00:00:00' - INTERVAL 1 DAY 2 HOURS") == _at(2020, 1, 1, 22)
    found = _read_value(
        f"SELECT count(*) FROM {_TS} WHERE EXISTS (SELECT 1 FROM (SELECT TIMESTAMP '2020-01-01 22:00:00' AS u) b "
        "WHERE b.u = t.ts - INTERVAL 1 DAY 2 HOURS)"
    )
    assert found == 1


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("INTERVAL '3-1' YEAR TO MONTH", "INTERVAL '3-1' YEAR TO MONTH"),
        ("INTERVAL '3' HOUR", "INTERVAL '03' HOUR"),
        ("INTERVAL '4.5' SECOND", "INTERVAL '04.5' SECOND"),
        ("INTERVAL -'1 02:03' DAY TO MINUTE", "INTERVAL '-1 02:03' DAY TO MINUTE"),
        ("INTERVAL 100 HOURS 3 SECONDS", "INTERVAL '100:00:03' HOUR TO SECOND"),
        ("INTERVAL -0.000001 SECONDS", "INTERVAL '-00.000001' SECOND"),
        ("INTERVAL 2 WEEKS 5 MILLISECONDS", "INTERVAL '14 00:00:00.005' DAY TO SECOND"),
        ("-INTERVAL -1 DAY 1 HOUR", "INTERVAL '0 23' DAY TO HOUR"),
        ("INTERVAL '1' MONTH * 1.5", "INTERVAL '0-2' YEAR TO MONTH"),
        ("INTERVAL '3' MONTH / 2", "INTERVAL '0-2' YEAR TO MONTH"),
        ("INTERVAL '1' DAY / 3", "INTERVAL '0 08:00:00' DAY TO SECOND"),
        ("INTERVAL '1-2' YEAR TO MONTH + INTERVAL '3' MONTH", "INTERVAL '1-5' YEAR TO MONTH"),
        ("DATE '2020-01-03' - DATE '2020-01-01'", "INTERVAL '2' DAY"),
        ("abs(INTERVAL '-1' DAY)", "INTERVAL '1' DAY"),
        ("CAST('1-2' AS INTERVAL YEAR TO MONTH)", "INTERVAL '1-2' YEAR TO MONTH"),
        ("CAST(5 AS INTERVAL DAY)", "INTERVAL '5' DAY"),
        ("make_dt_interval(1, 2, 3, 4.5)", "INTERVAL '1 02:03:04.5' DAY TO SECOND"),
    ],
)
def test_Q2_an_interval_has_the_text_of_its_fields(expression: str, text: str) -> None:
    assert _read_value(f"SELECT CAST({expression} AS STRING)") == text


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("DATE '2011-11-11' + INTERVAL '2' DAY", date(2011, 11, 13)),
        ("DATE '2011-11-11' + INTERVAL '2' HOUR", _at(2011, 11, 11, 2)),
        ("DATE '2011-11-11' + INTERVAL '1 00' DAY TO HOUR", _at(2011, 11, 12)),
        ("DATE '2020-01-31' + INTERVAL 1 MONTH", date(2020, 2, 29)),
        ("DATE '2020-01-01' + INTERVAL '1' DAY * 2", _at(2020, 1, 3)),
        ("DATE '2020-01-01' - (DATE '2020-01-03' - DATE '2020-01-01')", date(2019, 12, 30)),
        ("'2011-11-11 11:11:11' - INTERVAL '2' HOUR", "2011-11-11 09:11:11"),
        ("INTERVAL 1 DAY > INTERVAL 23 HOURS", True),
        ("TIME '10:00:00' + INTERVAL 1 HOUR", time(11)),
        ("CAST(INTERVAL '1 2' DAY TO HOUR AS INT)", 26),
        ("CAST(INTERVAL '2.5' SECOND AS DECIMAL(10, 3))", Decimal("2.500")),
        ("signum(INTERVAL -1 DAY)", -1.0),
        ("INTERVAL '1 06' DAY TO HOUR DIV INTERVAL '-1' HOUR", -30),
        ("extract(DAYS FROM INTERVAL '3 04:05:06.7' DAY TO SECOND)", 3),
        ("extract(S FROM INTERVAL '3 04:05:06.7' DAY TO SECOND)", Decimal("6.700000")),
        ("DATE '2020-01-01' :: STRING", "2020-01-01"),
    ],
)
def test_Q2_the_fields_of_an_interval_decide_the_type_of_a_sum(expression: str, expected: Any) -> None:
    assert _read_value(f"SELECT {expression}") == expected


@pytest.mark.parametrize(
    "expression",
    [
        "INTERVAL 1 FAKE_UNIT",
        "INTERVAL 1 NANOSECOND",
        "INTERVAL 1 MONTH 1 DAY",
        "INTERVAL '1 day' DAY",
        "INTERVAL 1.5 DAYS",
        "INTERVAL '1-13' YEAR TO MONTH",
        "INTERVAL '12:11:10' HOUR TO SECOND '1' YEAR",
        "INTERVAL '1' MONTH TO DAY",
        "INTERVAL 1 MONTH = INTERVAL 30 DAYS",
        "INTERVAL 1 DAY + INTERVAL 1 MONTH",
        "INTERVAL 1 SECOND + 1",
        "INTERVAL '2 seconds' / 0",
        "'2011-11-11' - INTERVAL '2' YEAR",
        "extract(YEAR FROM INTERVAL '14' DAY)",
        "extract(EPOCH FROM DATE '2020-01-01')",
        "TIME '23:00:00' + INTERVAL 1 HOUR",
        "CAST(TIMESTAMP '2020-01-01 12:34:56' AS TIME(0))",
        "CAST(DATE '2020-01-01' AS TIME)",
        "date_add(DATE '2020-01-01', 1L)",
        "date_add(DATE '2020-01-01', 1.0)",
        "date_add(DATE '2020-01-01', '1.2')",
        "dateadd('DAY', 1, DATE '2020-01-01')",
        "dateadd(FAKE, 1, DATE '2020-01-01')",
        "TIMESTAMP '2011-11-11 11:11:11' + '1'",
        "next_day('2020-01-01', 'xx')",
        "hour('soon')",
        "trunc(DATE '2020-01-01', 'fortnight')",
        "make_timestamp(2020, 1, 1, 1, 1, 60.1)",
        "timestamp_seconds(1.1234567)",
        "to_date('1', 'yy')",
        "to_timestamp('2020-1-1', 'yyyy-MM-dd')",
        "date_format(DATE '2020-01-01', 'YYYY')",
        "date_format(DATE '2020-01-01', 'EEEEE')",
    ],
)
def test_Q12_datetime_expressions_that_spark_rejects_are_errors(expression: str) -> None:
    with pytest.raises(TamisError):
        tamis.connect().sql(f"SELECT {expression}").to_arrow()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("to_date('16', 'dd')", date(1970, 1, 16)),
        ("to_date('12', 'MM')", date(1970, 12, 1)),
        ("to_timestamp('10', 'HH')", _at(1970, 1, 1, 10)),
        ("to_date('99', 'yy')", date(2099, 1, 1)),
        ("to_timestamp('009999', 'yyyyyy')", _at(9999, 1, 1)),
        ("to_timestamp('9', 'D')", _at(1970, 1, 9)),
        ("to_timestamp('100', 'DD')", _at(1970, 4, 10)),
        ("to_timestamp('2020-12-31-366', 'yyyy-MM-dd-DDD')", _at(2020, 12, 31)),
        ("to_timestamp('12:30 PM', 'hh:mm a')", _at(1970, 1, 1, 12, 30)),
        ("to_timestamp('2020-01-01+01:00', 'yyyy-MM-ddXXX')", _at(2019, 12, 31, 23)),
        ("to_timestamp('Jan 5 2020', 'MMM d yyyy')", _at(2020, 1, 5)),
        ("to_timestamp('2020-01-01', 'yyyy-MM-dd[ HH:mm]')", _at(2020, 1, 1)),
        ("to_timestamp('2020-01-01 12:34:56.5', 'yyyy-MM-dd HH:mm:ss.SSS')", _at(2020, 1, 1, 12, 34, 56, 500_000)),
        ("try_to_timestamp('2020-02-30')", None),
        ("try_to_date('x', 'yyyy')", None),
        ("to_time('10:11', 'HH:mm')", time(10, 11)),
        ("date_format('2020-01-05 03:04:05.006', 'y yy MMM d D E a h kk K S G QQQQ F')",
         "2020 20 Jan 5 5 Sun AM 3 03 3 0 AD 1st quarter 5"),
        ("date_format(DATE '2020-01-01', 'X x Z VV')", "Z +00 +0000 UTC"),
        ("from_unixtime(86400, 'yyyy-MM-dd')", "1970-01-02"),
        ("to_char(TIME '12:13:14', 'HH:mm:ss')", "12:13:14"),
    ],
)  # fmt: skip
def test_Q9_datetime_patterns(expression: str, expected: Any) -> None:
    assert _read_value(f"SELECT {expression}") == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("hour('2016-12-31 00:12:00.123')", 0),
        ("minute('12:34:56')", 34),
        ("second('2016-12-31T00:12:59Z')", 59),
        ("hour('2020-01-01 10:00:00+02:00')", 8),
        ("year(' 2016-12-31T01')", 2016),
        ("CAST('2020' AS DATE)", date(2020, 1, 1)),
        ("CAST('2020-01-01 00:00:00 Europe/Berlin' AS TIMESTAMP)", _at(2019, 12, 31, 23)),
        ("CAST('2020-01-01 00:00:00 PST' AS TIMESTAMP)", _at(2020, 1, 1, 8)),
        ("TRY_CAST('2020-13-01' AS DATE)", None),
        ("date_trunc('week', '2020-01-05')", _at(2019, 12, 30)),
        ("trunc('2020-05-05', 'quarter')", date(2020, 4, 1)),
        ("next_day('2020-01-01', 'Thursday')", date(2020, 1, 2)),
        ("add_months('2020-02-29', 12)", date(2021, 2, 28)),
        ("last_day('2020-02')", date(2020, 2, 29)),
        ("make_timestamp(2020, 1, 1, 1, 1, 60)", _at(2020, 1, 1, 1, 2)),
        ("try_make_timestamp(2020, 13, 1, 1, 1, 1)", None),
        ("timestampdiff(MONTH, TIMESTAMP '2020-01-31 00:00:00', TIMESTAMP '2020-02-29 00:00:00')", 0),
        ("timestampadd(HOUR, 25, TIMESTAMP '2020-01-01 00:00:00')", _at(2020, 1, 2, 1)),
        ("datediff('2020-01-05', '2020-01-01')", 4),
        ("unix_timestamp(TIMESTAMP '1969-12-31 23:59:59.5')", 0),
        ("unix_millis(TIMESTAMP '1969-12-31 23:59:59.9995')", -1),
        ("from_utc_timestamp('2020-01-01', '+01:00')", _at(2020, 1, 1, 1)),
        ("convert_timezone('Europe/Amsterdam', TIMESTAMP_NTZ '2021-12-06 00:00:00')", datetime(2021, 12, 6, 1)),
        ("extract(DOW_ISO FROM DATE '2020-01-05')", 7),
        ("date_part('SECS', TIMESTAMP '2020-01-01 00:00:01.5')", Decimal("1.500000")),
        ("hour(TIME '12:34:56')", 12),
        ("CAST(TIME '12:34:56.789' AS TIME(2))", time(12, 34, 56, 780_000)),
        ("TIME '12:34:56' :: INT", 45_296),
        ("time_trunc('HOUR', TIME '09:32:05.359')", time(9)),
        ("time_diff('HOUR', TIME '20:30:29', TIME '21:30:28')", 0),
        ("make_time(1, 2, 3.5)", time(1, 2, 3, 500_000)),
    ],
)
def test_datetime_functions_cast_texts_as_spark_does(expression: str, expected: Any) -> None:
    assert _read_value(f"SELECT {expression}") == expected


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 40 row groups with a day each."""
    path = tmp_path_factory.mktemp("days") / "days.parquet"
    stamps = pa.array([_at(2020, 1, 1 + day // 2, 12 * (day % 2)) for day in range(40)], pa.timestamp("us", "UTC"))
    table = pa.table({"id": range(40), "ts": stamps, "d": stamps.cast(pa.date32())})
    pq.write_table(table, path, row_group_size=1)
    return path


@pytest.mark.parametrize(
    "condition",
    [
        "ts - INTERVAL 1 DAY 2 HOURS > TIMESTAMP '2020-01-10 00:00:00'",
        "ts > TIMESTAMP '2020-01-10 00:00:00' + INTERVAL 1 DAY 2 HOURS",
        "ts < TIMESTAMP '2020-01-10 00:00:00' - 2 * INTERVAL 1 DAY 2 HOURS",
        "ts + -INTERVAL 1 DAY 2 HOURS <= TIMESTAMP '2020-01-03 10:00:00'",
        "d + INTERVAL '1' MONTH >= DATE '2020-02-15'",
        "d + INTERVAL 36 HOURS > TIMESTAMP '2020-01-15 00:00:00'",
        "d - DATE '2020-01-05' = INTERVAL '3' DAY",
        "hour(ts) = 12 AND d = DATE '2020-01-10'",
        "extract(DAY FROM d) BETWEEN 5 AND 7",
        "date_format(ts, 'dd HH') = '05 12'",
        "to_date('16', 'dd') < d AND d < DATE '2020-01-03'",
    ],
)
def test_Q2_a_filter_with_intervals_keeps_the_rows_of_the_query(days: Path, condition: str) -> None:
    table = tamis.open(days)
    pruned = sorted(table.scan(condition).to_arrow()["id"].to_pylist())
    session = tamis.connect()
    session.register("t", pq.read_table(days))
    rows = session.sql(f"SELECT id, {condition} AS is_kept, count(*) OVER () FROM t").to_arrow().to_pylist()
    assert pruned == sorted(row["id"] for row in rows if row["is_kept"])
    assert 0 < len(pruned) < 40


def test_Q12_an_unknown_unit_is_an_error_of_the_filter(days: Path) -> None:
    with pytest.raises(TamisError, match="FAKE_UNIT is not a unit"):
        tamis.open(days).scan("ts > now() - INTERVAL 1 FAKE_UNIT")
