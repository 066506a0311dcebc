"""Generated columns of Delta tables, their values by plain Python, and predicates on the columns they are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pyarrow as pa
from hypothesis import strategies as st

SOURCES = {
    "ts": pa.timestamp("us", "UTC"),
    "ntz": pa.timestamp("us"),
    "d": pa.date32(),
    "s": pa.string(),
    "i": pa.int32(),
    "x": pa.float64(),
    "b": pa.binary(),
    "other": pa.int64(),
}
PARTITIONS = {
    "p_date": pa.date32(),
    "y": pa.int32(),
    "m": pa.int32(),
    "dd": pa.int32(),
    "h": pa.int32(),
    "t": pa.string(),
    "long": pa.int64(),
    "instant": pa.timestamp("us", "UTC"),
    "clock": pa.timestamp("us"),
    "x2": pa.float64(),
    "b2": pa.binary(),
}
SCHEMA = pa.schema(list((SOURCES | PARTITIONS).items()))

ZONES: dict[str, tzinfo] = {
    "UTC": UTC,
    "-18": timezone(-timedelta(hours=18)),
    "+18": timezone(timedelta(hours=18)),
    **{name: ZoneInfo(name) for name in ("America/Los_Angeles", "Asia/Kolkata", "Pacific/Apia", "Africa/Monrovia")},
}

TIMES = [
    datetime(2024, 3, 10, 2, 30),
    datetime(2024, 3, 10, 10, 0, 0, 1),
    datetime(2023, 12, 31, 23, 59, 59, 999_999),
    datetime(2024, 1, 1),
    datetime(2024, 2, 29, 5, 45),
    datetime(2011, 12, 30, 5),
    datetime(2011, 12, 29, 23, 59),
    datetime(1969, 12, 31, 23),
    datetime(1900, 1, 1),
    datetime(102, 3, 4),
    datetime(9998, 12, 31, 1),
]
TEXTS = ["", "a", "ab", "abc", "abcd", "abcdé", "äöü", "b", "zz", "\U0010ffff", "0", "+"]
NUMBERS = [-(2**31), -1, 0, 1, 5, 6, 7, 2**31 - 1]


def to_local(value: datetime, zone: tzinfo) -> datetime:
    return value.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)


def to_instant(clock: datetime, zone: tzinfo) -> datetime:
    return clock.replace(tzinfo=zone).astimezone(UTC).replace(tzinfo=None)


def round_trip(clock: datetime, zone: tzinfo) -> datetime:
    return to_local(to_instant(clock, zone), zone)


def make_midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day)


def truncate_to_month(clock: datetime) -> datetime:
    return datetime(clock.year, clock.month, 1)


def format_clock(clock: datetime, pattern: str) -> str:
    parts = {"yyyy": f"{clock.year:04}", "MM": f"{clock.month:02}", "dd": f"{clock.day:02}", "HH": f"{clock.hour:02}"}
    for name, text in parts.items():
        pattern = pattern.replace(name, text)
    return pattern


@dataclass(frozen=True)
class Generated:
    column: str
    sql: str
    source: str
    make: Callable[..., object]
    """Of a value of the source and the zone of the session that writes it."""


GENERATED = [
    Generated("p_date", "CAST(ts AS DATE)", "ts", lambda v, z: to_local(v, z).date()),
    Generated("y", "YEAR(ts)", "ts", lambda v, z: to_local(v, z).year),
    Generated("m", "MONTH(ts)", "ts", lambda v, z: to_local(v, z).month),
    Generated("dd", "DAY(ts)", "ts", lambda v, z: to_local(v, z).day),
    Generated("h", "HOUR(ts)", "ts", lambda v, z: to_local(v, z).hour),
    Generated(
        "t", "date_format(ts, 'yyyy-MM-dd-HH')", "ts", lambda v, z: format_clock(to_local(v, z), "yyyy-MM-dd-HH")
    ),
    Generated("t", "date_format(ts, 'yyyy-MM')", "ts", lambda v, z: format_clock(to_local(v, z), "yyyy-MM")),
    Generated(
        "instant", "date_trunc('MONTH', ts)", "ts", lambda v, z: to_instant(truncate_to_month(to_local(v, z)), z)
    ),
    Generated("p_date", "trunc(ts, 'YEAR')", "ts", lambda v, z: date(to_local(v, z).year, 1, 1)),
    Generated("clock", "CAST(ts AS TIMESTAMP_NTZ)", "ts", lambda v, z: to_local(v, z)),
    Generated("instant", "ts", "ts", lambda v, z: v),
    Generated("p_date", "date(ntz)", "ntz", lambda v, z: v.date()),
    Generated("y", "year(ntz)", "ntz", lambda v, z: v.year),
    Generated("m", "month(ntz)", "ntz", lambda v, z: v.month),
    Generated("dd", "day(ntz)", "ntz", lambda v, z: v.day),
    Generated("h", "hour(ntz)", "ntz", lambda v, z: v.hour),
    Generated("t", "date_format(ntz, 'yyyy-MM-dd')", "ntz", lambda v, z: format_clock(round_trip(v, z), "yyyy-MM-dd")),
    Generated("instant", "date_trunc('day', ntz)", "ntz", lambda v, z: to_instant(make_midnight(round_trip(v, z)), z)),
    Generated("instant", "CAST(ntz AS TIMESTAMP)", "ntz", lambda v, z: to_instant(v, z)),
    Generated("p_date", "trunc(d, 'MM')", "d", lambda v, z: v.replace(day=1)),
    Generated("p_date", "d", "d", lambda v, z: v),
    Generated("y", "year(d)", "d", lambda v, z: v.year),
    Generated("m", "month(d)", "d", lambda v, z: v.month),
    Generated("t", "CAST(d AS STRING)", "d", lambda v, z: format_clock(make_midnight(v), "yyyy-MM-dd")),
    Generated(
        "t", "date_format(d, 'yyyyMM')", "d", lambda v, z: format_clock(round_trip(make_midnight(v), z), "yyyyMM")
    ),
    Generated("instant", "CAST(d AS TIMESTAMP)", "d", lambda v, z: to_instant(make_midnight(v), z)),
    Generated("t", "substring(s, 1, 3)", "s", lambda v, z: v[:3]),
    Generated("t", "left(s, 1)", "s", lambda v, z: v[:1]),
    Generated("t", "s", "s", lambda v, z: v),
    Generated("long", "CAST(i AS BIGINT)", "i", lambda v, z: v),
]


def format_literal(source: str, value: object) -> str:
    match source:
        case "ts":
            return f"TIMESTAMP '{value:%H:%M:%S.%f}Z'".replace("'", f"'{value.date().isoformat()} ", 1)  # type: ignore
        case "ntz":
            return f"TIMESTAMP_NTZ '{value}'"
        case "d":
            return f"DATE '{value}'"
        case "s":
            return f"'{value}'"
        case _:
            return str(value)


VALUES: dict[str, list[object]] = {
    "ts": [*TIMES],
    "ntz": [*TIMES],
    "d": [each.date() for each in TIMES],
    "s": [*TEXTS],
    "i": [*NUMBERS],
}


@st.composite
def leaves(draw: st.DrawFn, source: str) -> str:
    values = [
        format_literal(source, value)
        for value in draw(st.lists(st.sampled_from(VALUES[source]), min_size=1, max_size=3))
    ]
    kinds = ["compare", "compare", "in", "null", "not null", "equal null"]
    kinds += ["like", "startswith", "prefix"] if source == "s" else ["year", "in years", "day"] if source != "i" else []
    operator = draw(st.sampled_from(["=", "<", "<=", ">", ">=", "<>", "<=>"]))
    match draw(st.sampled_from(kinds)):
        case "compare":
            return f"{source} {operator} {values[0]}"
        case "in":
            return f"{source} {draw(st.sampled_from(['IN', 'NOT IN']))} ({', '.join(values)})"
        case "null":
            return f"{source} IS NULL"
        case "not null":
            return f"{source} IS NOT NULL"
        case "equal null":
            return f"{source} <=> NULL"
        case "like":
            return f"{source} LIKE '{draw(st.sampled_from(['a%', 'ab_d%', '%', 'abc', 'abcd%é', 'ä%']))}'"
        case "startswith":
            return f"startswith({source}, {values[0]})"
        case "prefix":
            return f"left({source}, {draw(st.integers(1, 3))}) {operator} left({values[0]}, 2)"
        case "year":
            return f"year({source}) {operator} {draw(st.sampled_from([1969, 2011, 2023, 2024, 20000, -4]))}"
        case "in years":
            return f"year({source}) IN (1969, 2011, {draw(st.integers(2022, 2025))})"
        case _:
            return f"date({source}) {operator} {format_literal('d', draw(st.sampled_from(VALUES['d'])))}"


@st.composite
def predicates(draw: st.DrawFn, source: str) -> str:
    parts = draw(st.lists(st.one_of(leaves(source), leaves(source), st.just("other = 1")), min_size=1, max_size=4))
    text = parts[0]
    for part in parts[1:]:
        text = f"({text}) {draw(st.sampled_from(['AND', 'OR']))} ({part})"
    return f"NOT ({text})" if draw(st.integers(0, 5)) == 0 else text
