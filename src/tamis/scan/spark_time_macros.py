"""Macros for dates, timestamps and times of day with Spark's semantics.

A macro has one overload for each type of its argument: a text is cast as in Spark, a date is midnight in UTC.
"""

from __future__ import annotations

from tamis.scan.spark_calls import Macro, Macros
from tamis.scan.spark_formats import MACROS as _FORMAT_MACROS
from tamis.scan.spark_interval_macros import MACROS as _INTERVAL_MACROS
from tamis.scan.spark_time_texts import BLANKS, OFFSET, TIME_TEXT
from tamis.scan.spark_time_texts import MACROS as _TEXT_MACROS


def _define_for_day(body: str) -> list[Macro]:
    """Return overloads of a macro for the day of a date, a timestamp or a text; `d` is the day."""
    return [
        (parameters, body.replace("(d)", f"({day})"))
        for parameters, day in (
            (("x DATE",), "x"),
            (("x TIMESTAMP",), "CAST(x AS DATE)"),
            (("x TIMESTAMPTZ",), "CAST(x AS DATE)"),
            (("x VARCHAR",), "spark_text_date(x)"),
        )
    ]


DAY, HOUR, MINUTE = 86_400_000_000, 3_600_000_000, 60_000_000
_MONTHS = "(CAST(datepart('year', x) AS BIGINT) * 12 + datepart('month', x))"


def _define_time_part(unit: str, of_interval: str) -> list[Macro]:
    """Return overloads for a part of the time of day, including that of a text without a date."""
    value = f"CAST({unit}(x) AS INTEGER)"
    return [
        (("x INTERVAL",), of_interval),
        (("x TIME",), value),
        (("x DATE",), "CASE WHEN x IS NOT NULL THEN 0 END"),
        (("x TIMESTAMP",), value),
        (("x TIMESTAMPTZ",), value),
        (
            ("x VARCHAR",),
            f"CASE WHEN regexp_matches(trim(x, {BLANKS}), {TIME_TEXT}) THEN "
            f"CAST({unit}(spark_text_time(x)) AS INTEGER) "
            f"ELSE CAST({unit}(spark_text_timestamp(x)) AS INTEGER) END",
        ),
    ]


_SECONDS = "CAST(CAST(microsecond(x) AS DECIMAL(18, 0)) * 0.000001 AS DECIMAL(8, 6))"

_PARTS: Macros = {
    "part_year": [(("x INTERVAL",), f"CAST({_MONTHS} // 12 AS INTEGER)"), *_define_for_day("CAST(year(d) AS INTEGER)")],
    "part_yearofweek": _define_for_day("CAST(isoyear(d) AS INTEGER)"),
    "part_quarter": _define_for_day("CAST(quarter(d) AS INTEGER)"),
    "part_month": [
        (("x INTERVAL",), f"CAST({_MONTHS} % 12 AS TINYINT)"),
        *_define_for_day("CAST(month(d) AS INTEGER)"),
    ],
    "part_week": _define_for_day("CAST(weekofyear(d) AS INTEGER)"),
    "part_day": [
        (("x INTERVAL",), f"CAST(epoch_us(x) // {DAY} AS INTEGER)"),
        *_define_for_day("CAST(day(d) AS INTEGER)"),
    ],
    "part_dayofweek": _define_for_day("CAST(dayofweek(d) + 1 AS INTEGER)"),
    "part_dayofweek_iso": _define_for_day("CAST(isodow(d) AS INTEGER)"),
    "part_doy": _define_for_day("CAST(dayofyear(d) AS INTEGER)"),
    "part_hour": _define_time_part("hour", f"CAST(epoch_us(x) % {DAY} // {HOUR} AS TINYINT)"),
    "part_minute": _define_time_part("minute", f"CAST(epoch_us(x) % {HOUR} // {MINUTE} AS TINYINT)"),
    "part_second": [
        (("x INTERVAL",), f"CAST(CAST(epoch_us(x) % {MINUTE} AS DECIMAL(18, 0)) * 0.000001 AS DECIMAL(8, 6))"),
        (("x TIME",), _SECONDS),
        (("x DATE",), "CASE WHEN x IS NOT NULL THEN CAST(0 AS DECIMAL(8, 6)) END"),
        (("x TIMESTAMP",), _SECONDS),
        (("x TIMESTAMPTZ",), _SECONDS),
        (("x VARCHAR",), _SECONDS.replace("(x)", "(spark_text_timestamp(x))")),
    ],
    "whole_second": _define_time_part("second", "error('second takes a timestamp, not an interval')"),
}
_TO_TIMESTAMP = [
    (("x DATE",), "CAST(x AS TIMESTAMPTZ)"),
    (("x TIMESTAMP",), "CAST(x AS TIMESTAMPTZ)"),
    (("x TIMESTAMPTZ",), "x"),
    (("x VARCHAR",), "spark_text_timestamp(x)"),
]
_TO_TIMESTAMP_NTZ = [
    (("x DATE",), "CAST(x AS TIMESTAMP)"),
    (("x TIMESTAMP",), "x"),
    (("x TIMESTAMPTZ",), "timezone('UTC', x)"),
    (("x VARCHAR",), "timezone('UTC', spark_text_timestamp(x))"),
]


_CAST_TO_INT = (
    "CASE WHEN typeof(n) = 'VARCHAR' AND NOT regexp_full_match(CAST(n AS VARCHAR), '\\s*[+-]?[0-9]+\\s*') "
    "THEN error('a text is not a whole number') WHEN typeof(n) LIKE 'DECIMAL%' OR typeof(n) IN ('DOUBLE', 'FLOAT') "
    "THEN CAST(trunc(CAST(n AS DOUBLE)) AS INTEGER) ELSE CAST(n AS INTEGER) END"
)
_FLOOR = "({0} - ({0} % {1} + {1}) % {1}) // {1}"
_MICROSECONDS_OF_SECONDS = "CAST(CAST(s AS DECIMAL(16, 6)) * 1000000 AS BIGINT)"
_TIMESTAMP_OF_PARTS = (
    "make_timestamp(spark_whole_int(y), spark_whole_int(mo), spark_whole_int(d), "
    "spark_whole_int(h), spark_whole_int(mi), 0) "
    f"+ to_microseconds(CASE WHEN {_MICROSECONDS_OF_SECONDS} BETWEEN 0 AND 60000000 THEN {_MICROSECONDS_OF_SECONDS} "
    "ELSE error('the seconds of a minute must be 0 to 59.999999, or 60') END)"
)
_TRY_TIMESTAMP_OF_PARTS = (
    f"CASE WHEN {_MICROSECONDS_OF_SECONDS} BETWEEN 0 AND 60000000 THEN "
    "TRY(make_timestamp(CAST(y AS INTEGER), CAST(mo AS INTEGER), CAST(d AS INTEGER), CAST(h AS INTEGER), "
    f"CAST(mi AS INTEGER), 0) + to_microseconds({_MICROSECONDS_OF_SECONDS})) END"
)
_SIX_PARTS = ("y", "mo", "d", "h", "mi", "s")


def _define_constructors(clock: str, prefix: str) -> Macros:
    """Return the variants of `make_timestamp`: of six numbers, or of a date and a time of day, also with a zone."""
    joined = "CAST(d AS DATE) + CAST(t AS TIME)"
    return {
        **{
            f"{prefix}{name}": [
                (_SIX_PARTS, f"timezone('UTC', {clock})"),
                ((*_SIX_PARTS, "zone"), f"spark_{prefix}at_zone({clock}, zone)"),
                (("d",), "CAST(CAST(d AS DATE) AS TIMESTAMPTZ)"),
                (("d", "t"), f"timezone('UTC', {joined})"),
                (("d", "t", "zone"), f"spark_{prefix}at_zone({joined}, zone)"),
            ]
            for name in ("make_timestamp", "make_timestamp_ltz")
        },
        f"{prefix}make_timestamp_ntz": [(_SIX_PARTS, clock), (("d", "t"), joined)],
    }


_WEEKDAYS = "['MO', 'TU', 'WE', 'TH', 'FR', 'SA', 'SU', 'MON', 'TUE', 'WED', 'THU', 'FRI', 'SAT', 'SUN', 'MONDAY', "
_WEEKDAYS += "'TUESDAY', 'WEDNESDAY', 'THURSDAY', 'FRIDAY', 'SATURDAY', 'SUNDAY']"
_DAYS = "CASE WHEN typeof(n) LIKE 'DECIMAL%' OR typeof(n) IN ('DOUBLE', 'FLOAT') "
_DAYS += "THEN error('days must be a whole number') ELSE spark_whole_int(n) END"

MACROS: Macros = {
    **_INTERVAL_MACROS,
    **_FORMAT_MACROS,
    **_TEXT_MACROS,
    **_PARTS,
    "whole_int": (("n",), _CAST_TO_INT),
    "as_printed": [*_TO_TIMESTAMP_NTZ, (("x TIME",), "TIMESTAMP '1970-01-01 00:00:00' + to_microseconds(epoch_us(x))")],
    "to_timestamp_of": [
        *_TO_TIMESTAMP,
        (("x BIGINT",), "make_timestamptz(CAST(CAST(x AS HUGEINT) * 1000000 AS BIGINT))"),
    ],
    "as_date": _define_for_day("(d)"),
    "as_timestamp": [*_TO_TIMESTAMP],
    "as_clock": [*_TO_TIMESTAMP_NTZ],
    "as_instant": [*_TO_TIMESTAMP[:3]],
    "as_timestamp_ntz": [
        (("x DATE",), "CAST(x AS TIMESTAMP)"),
        (("x TIMESTAMP",), "x"),
        (("x TIMESTAMPTZ",), "timezone('UTC', x)"),
        (("x VARCHAR",), "spark_text_timestamp_ntz(x)"),
    ],
    "as_time": [
        (("x TIME",), "x"),
        (("x VARCHAR",), "spark_text_time(x)"),
        *(
            (
                (f"x {kind}",),
                "CASE WHEN x IS NOT NULL THEN error('a date or a timestamp cannot be cast to a time of day') END",
            )
            for kind in ("DATE", "TIMESTAMP", "TIMESTAMPTZ")
        ),
    ],
    "try_as_date": [*_define_for_day("(d)")[:3], (("x VARCHAR",), "spark_try_text_date(x)")],
    "try_as_timestamp": [*_TO_TIMESTAMP[:3], (("x VARCHAR",), "spark_try_text_timestamp(x)")],
    "try_as_timestamp_ntz": [*_TO_TIMESTAMP_NTZ[:3], (("x VARCHAR",), "spark_try_text_timestamp_ntz(x)")],
    "try_as_time": [(("x TIME",), "x"), (("x VARCHAR",), "spark_try_text_time(x)")],
    "cut_time": (("x", "n"), "CAST(x - to_microseconds(epoch_us(x) % n) AS TIME)"),
    # Days
    "dayname": _define_for_day("strftime((d), '%a')"),
    "monthname": _define_for_day("strftime((d), '%b')"),
    "weekday": _define_for_day("CAST(isodow(d) - 1 AS INTEGER)"),
    "last_day": _define_for_day("last_day(d)"),
    "unix_date": _define_for_day("CAST(date_diff('day', DATE '1970-01-01', (d)) AS INTEGER)"),
    "add_months": (("x", "n"), "CAST(x + to_months(spark_whole_int(n)) AS DATE)"),
    "date_add": (("x", "n"), f"x + {_DAYS}"),
    "date_sub": (("x", "n"), f"x - {_DAYS}"),
    "date_from_unix_date": (("n",), "DATE '1970-01-01' + spark_whole_int(n)"),
    "days_between": (("a", "b"), "CAST(date_diff('day', b, a) AS INTEGER)"),
    "next_day": (
        ("x", "name"),
        "x + 1 + CAST((spark_weekday_of(name) - isodow(x) + 6) % 7 AS INTEGER)",
    ),
    "weekday_of": (
        ("name",),
        f"CASE WHEN name IS NULL THEN NULL WHEN list_position({_WEEKDAYS}, upper(name)) IS NULL "
        "THEN error('next_day takes the name of a day, as in ''MON'' or ''Monday''') "
        f"ELSE CAST((list_position({_WEEKDAYS}, upper(name)) - 1) % 7 + 1 AS INTEGER) END",
    ),
    "make_date": (("y", "m", "d"), "make_date(spark_whole_int(y), spark_whole_int(m), spark_whole_int(d))"),
    "months_between": (
        ("a", "b", "rounded"),
        "CASE WHEN rounded THEN round(spark_months(a, b), 8) ELSE spark_months(a, b) END",
    ),
    "truncated_date": [
        ((*parameters, "unit"), f"CAST(date_trunc(unit, {day}) AS DATE)")
        for parameters, day in (
            (("x DATE",), "x"),
            (("x TIMESTAMP",), "CAST(x AS DATE)"),
            (("x TIMESTAMPTZ",), "CAST(x AS DATE)"),
            (("x VARCHAR",), "spark_text_date(x)"),
        )
    ],
    "truncated": (("x", "unit"), "date_trunc(unit, x)"),
    # Timestamps
    "unix_micros": (("x",), "epoch_us(x)"),
    "unix_seconds": (("x",), _FLOOR.format("epoch_us(x)", 1_000_000)),
    "unix_millis": (("x",), _FLOOR.format("epoch_us(x)", 1_000)),
    "timestamp_seconds": (
        ("x",),
        "CASE WHEN typeof(x) IN ('DOUBLE', 'FLOAT') THEN CASE WHEN isfinite(CAST(x AS DOUBLE)) "
        "THEN make_timestamptz(CAST(trunc(CAST(x AS DOUBLE) * 1000000) AS BIGINT)) END "
        "WHEN typeof(x) LIKE 'DECIMAL%' AND CAST(x AS DECIMAL(38, 6)) <> x THEN error('a timestamp has "
        "at most 6 digits of a second: round the number') "
        "ELSE make_timestamptz(CAST(CAST(x AS DECIMAL(38, 6)) * 1000000 AS BIGINT)) END",
    ),
    "timestamp_millis": (("x",), "make_timestamptz(CAST(CAST(x AS HUGEINT) * 1000 AS BIGINT))"),
    "timestamp_micros": (("x",), "make_timestamptz(CAST(x AS BIGINT))"),
    "in_zone": (
        ("t", "zone"),
        "CASE WHEN zone IN ('Z', 'z', 'UTC', 'GMT', 'UT') THEN timezone('UTC', t) "
        f"WHEN regexp_full_match(zone, {OFFSET}) THEN timezone('UTC', t + spark_offset_of(zone)) "
        "ELSE timezone(zone, t) END",
    ),
    "of_zone": (
        ("t", "zone"),
        "CASE WHEN zone IN ('Z', 'z', 'UTC', 'GMT', 'UT') THEN timezone('UTC', t) "
        f"WHEN regexp_full_match(zone, {OFFSET}) THEN timezone('UTC', t - spark_offset_of(zone)) "
        "ELSE timezone(zone, t) END",
    ),
    "from_utc_timestamp": (("x", "zone"), "timezone('UTC', spark_in_zone(x, zone))"),
    "to_utc_timestamp": (("x", "zone"), "spark_of_zone(x, zone)"),
    "convert_timezone": [
        (("zone", "x"), "spark_in_zone(timezone('UTC', x), zone)"),
        (("source", "zone", "x"), "spark_in_zone(spark_of_zone(x, source), zone)"),
    ],
    **_define_constructors(_TIMESTAMP_OF_PARTS, ""),
    **_define_constructors(_TRY_TIMESTAMP_OF_PARTS, "try_"),
    "moved": [
        (("x DATE", "i"), "CAST(x AS TIMESTAMPTZ) + i"),
        (("x TIMESTAMP", "i"), "x + i"),
        (("x TIMESTAMPTZ", "i"), "x + i"),
        (("x VARCHAR", "i"), "spark_text_timestamp(x) + i"),
    ],
    "between_units": (
        ("a", "b", "n"),
        "(epoch_us(b) - epoch_us(a)) // n",
    ),
    "between_months": (("a", "b", "n"), "spark_whole_months(a, b) // n"),
    "whole_seconds": (("x",), "epoch_us(x) // 1000000"),
    "pick_timestamp": [
        ((*parameters, "parsed"), value if "VARCHAR" not in parameters[0] else "parsed")
        for parameters, value in _TO_TIMESTAMP
    ],
    "pick_clock": [
        ((*parameters, "parsed"), value if "VARCHAR" not in parameters[0] else "parsed")
        for parameters, value in _TO_TIMESTAMP_NTZ
    ],
    "time_bucket": (
        ("i", "x"),
        "time_bucket(i, x, TIMESTAMP '1970-01-01 00:00:00')",
    ),
    # Times of day
    "make_time": (
        ("h", "m", "s"),
        "CASE WHEN CAST(s AS DECIMAL(16, 6)) >= 0 AND CAST(s AS DECIMAL(16, 6)) < 60 AND "
        "spark_whole_int(h) BETWEEN 0 AND 23 "
        "AND spark_whole_int(m) BETWEEN 0 AND 59 "
        "THEN make_time(spark_whole_int(h), spark_whole_int(m), 0) + to_microseconds(CAST(CAST(s AS "
        "DECIMAL(16, 6)) * 1000000 AS BIGINT)) "
        "WHEN h IS NOT NULL AND m IS NOT NULL AND s IS NOT NULL THEN error('a time of day must be 00:00:00 "
        "to 23:59:59.999999') END",
    ),
    "time_to_micros": (("x",), "epoch_us(x)"),
    "time_to_millis": (("x",), "epoch_us(x) // 1000"),
    "time_to_seconds": (("x",), "CAST(CAST(epoch_us(x) AS DECIMAL(18, 0)) * 0.000001 AS DECIMAL(14, 6))"),
    "time_from_micros": (
        ("n",),
        "CASE WHEN n BETWEEN 0 AND 86399999999 THEN TIME '00:00:00' + to_microseconds(CAST(n AS BIGINT)) "
        "WHEN n IS NOT NULL THEN error('a time of day must be less than a day') END",
    ),
    "time_from_millis": (("n",), "spark_time_from_micros(CAST(n AS HUGEINT) * 1000)"),
    "time_from_seconds": (
        ("n",),
        "spark_time_from_micros(CAST(trunc(CAST(n AS DECIMAL(30, 9)) * 1000000) AS HUGEINT))",
    ),
    "time_between": (
        ("a", "b", "n"),
        "(epoch_us(b) - epoch_us(a)) // n",
    ),
}
