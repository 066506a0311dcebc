"""Macros for dates, timestamps and times of day with Spark's semantics.

A macro has one overload for each type of its argument: a text is cast as in Spark, a date is midnight in UTC.
"""

from __future__ import annotations

from collections.abc import Callable

from tamis.engines.duckdb.macros.define_macros import define_macros
from tamis.engines.duckdb.translate.calls import Macro, Macros

# --- Macros that cast texts to dates, timestamps and times of day as Spark does, and resolve time zones ---------------
#
# An invalid text is an error, and NULL in the macros whose names start with `try_`.

BLANKS = "' \t\n\r\x0b\x0c'"
_DATE_TEXT = r"'(?s)^([+-]?[0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?$'"
_TIMESTAMP_TEXT = (
    r"'(?s)^([+-]?[0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})"
    r"(?:\.([0-9]*))?)?\s*(\S.*)?)?)?)?)?$'"
)
TIME_TEXT = r"'^T?([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?)?(?: ?([AaPp][Mm]))?$'"
OFFSET = "'(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?(?::?([0-9]{2}))?'"
_FRACTION = "CAST(left(rpad(coalesce({}, ''), 6, '0'), 6) AS BIGINT)"


def _write_error(kind: str) -> str:
    """Write the error for an invalid text of a kind; for parts, it joins them to a text."""
    value = {"time zone": "zone", "time of day of parts": "g.h || ':' || g.mi || ':' || g.s"}.get(kind, "x")
    return f"error('''' || {value} || ''' is not a {kind.removesuffix(' of parts')}')"


def _to_int(text: str, otherwise: int) -> str:
    return f"CAST(coalesce(nullif({text}, ''), '{otherwise}') AS INTEGER)"


def _define_text_casts(prefix: str, bad: Callable[[str], str], attempt: str) -> Macros:
    """Return casts of texts; `bad` writes the result for an invalid text, `attempt` is TRY where that is NULL."""
    date = f"{attempt}(make_date({_to_int('g.y', 1)}, {_to_int('g.m', 1)}, {_to_int('g.d', 1)}))"
    clock = (
        f"{attempt}(make_timestamp({_to_int('g.y', 1)}, {_to_int('g.m', 1)}, {_to_int('g.d', 1)}, {_to_int('g.h', 0)}, "
        f"{_to_int('g.mi', 0)}, {_to_int('g.s', 0)}) + to_microseconds({_FRACTION.format('g.f')}))"
    )
    trimmed = f"trim(CAST(x AS VARCHAR), {BLANKS})"
    time = f"regexp_extract({trimmed}, {TIME_TEXT}, ['h', 'mi', 's', 'f', 'a'])"
    return {
        f"{prefix}text_date": (
            ("x",),
            "CASE WHEN x IS NULL THEN NULL "
            f"WHEN regexp_full_match(CAST(x AS VARCHAR), '[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}') "
            f"THEN {'TRY_CAST' if attempt else 'CAST'}(x AS DATE) "
            f"WHEN regexp_matches({trimmed}, {_DATE_TEXT}) "
            f"THEN spark_{prefix}date_of(regexp_extract({trimmed}, {_DATE_TEXT}, ['y', 'm', 'd'])) "
            f"ELSE {bad('date')} END",
        ),
        f"{prefix}date_of": (("g",), date),
        f"{prefix}text_timestamp": (
            ("x",),
            f"CASE WHEN x IS NULL THEN NULL WHEN regexp_matches({trimmed}, {_TIMESTAMP_TEXT}) "
            f"THEN spark_{prefix}timestamp_of("
            f"regexp_extract({trimmed}, {_TIMESTAMP_TEXT}, ['y', 'm', 'd', 'h', 'mi', 's', 'f', 'z'])) "
            f"ELSE {bad('timestamp')} END",
        ),
        f"{prefix}text_timestamp_ntz": (
            ("x",),
            f"CASE WHEN x IS NULL THEN NULL WHEN regexp_matches({trimmed}, {_TIMESTAMP_TEXT}) "
            f"THEN spark_{prefix}clock_of("
            f"regexp_extract({trimmed}, {_TIMESTAMP_TEXT}, ['y', 'm', 'd', 'h', 'mi', 's', 'f', 'z'])) "
            f"ELSE {bad('timestamp')} END",
        ),
        f"{prefix}clock_of": (
            ("g",),
            f"CASE WHEN {_to_int('g.h', 0)} > 23 OR {_to_int('g.s', 0)} > 59 THEN {bad('time of day of parts')} "
            f"ELSE {clock} END",
        ),
        f"{prefix}timestamp_of": (("g",), f"spark_{prefix}at_zone(spark_{prefix}clock_of(g), trim(coalesce(g.z, '')))"),
        f"{prefix}at_zone": (
            ("t", "zone"),
            "CASE WHEN zone IN ('', 'Z', 'z', 'UTC', 'GMT', 'UT') THEN timezone('UTC', t) "
            f"WHEN regexp_full_match(zone, {OFFSET}) THEN timezone('UTC', t - spark_{prefix}offset_of(zone)) "
            "WHEN regexp_full_match(zone, '[A-Za-z_]+/[A-Za-z0-9_/+-]+|CET|EET|WET|MET') "
            f"THEN {_write_zone_call(attempt)} "
            f"WHEN map_contains(spark_short_zones(), zone) THEN timezone(spark_short_zones()[zone], t) "
            f"ELSE {bad('time zone')} END",
        ),
        f"{prefix}offset_of": (
            ("zone",),
            f"CASE WHEN {_read_offset(2)} * 3600 + {_read_offset(3)} * 60 + {_read_offset(4)} > 64800 "
            f"OR {_read_offset(3)} > 59 OR {_read_offset(4)} > 59 THEN {bad('time zone')} "
            f"ELSE to_seconds(CASE WHEN regexp_extract(zone, {OFFSET}, 1) = '-' THEN -1 ELSE 1 END * "
            f"({_read_offset(2)} * 3600 + {_read_offset(3)} * 60 + {_read_offset(4)})) END",
        ),
        f"{prefix}text_time": (
            ("x",),
            f"CASE WHEN x IS NULL THEN NULL WHEN regexp_matches({trimmed}, {TIME_TEXT}) "
            f"THEN spark_{prefix}time_of({time}) ELSE {bad('time of day')} END",
        ),
        f"{prefix}time_of": (
            ("g",),
            f"CASE WHEN {_to_int('g.h', 0)} > 23 OR {_to_int('g.mi', 0)} > 59 OR {_to_int('g.s', 0)} > 59 "
            f"OR (g.a <> '' AND {_to_int('g.h', 0)} NOT BETWEEN 1 AND 12) THEN {bad('time of day of parts')} ELSE "
            f"make_time(CASE WHEN g.a = '' THEN {_to_int('g.h', 0)} ELSE {_to_int('g.h', 0)} % 12 "
            f"+ CASE WHEN upper(g.a) = 'PM' THEN 12 ELSE 0 END END, {_to_int('g.mi', 0)}, {_to_int('g.s', 0)}) "
            f"+ to_microseconds({_FRACTION.format('g.f')}) END",
        ),
    }


def _write_zone_call(attempt: str) -> str:
    # DuckDB's TRY does not accept an expression that may call `error`.
    if not attempt:
        return "timezone(zone, t)"
    return "CASE WHEN TRY(timezone(zone, TIMESTAMP '2000-01-01 00:00:00')) IS NOT NULL THEN timezone(zone, t) END"


SHORT_ZONES = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
"""Short names of time zones as in Java."""


def _read_offset(group: int) -> str:
    return f"CAST(coalesce(nullif(regexp_extract(zone, {OFFSET}, {group}), ''), '0') AS INTEGER)"


TEXT_CAST_MACROS: Macros = define_macros(
    rf"""
    short_zones(): MAP {{{", ".join(f"{name!r}: {zone!r}" for name, zone in SHORT_ZONES.items())}}}
    """
) | {**_define_text_casts("", _write_error, ""), **_define_text_casts("try_", lambda kind: "NULL", "TRY")}

# --- Macros for intervals: constructors, sums with dates and times, multiplication, division and their texts ----------

_ROUND = (
    "CASE WHEN typeof(n) IN ('DOUBLE', 'FLOAT', 'VARCHAR') "
    "THEN CAST(round(CAST({count} AS DOUBLE) {operator} CAST(n AS DOUBLE)) AS {kind}) "
    "ELSE CAST({exact} AS {kind}) END"
)


def _write_scaling(count: str, kind: str, made: str, *, is_division: bool) -> str:
    """Write SQL that multiplies or divides a count of months or microseconds by `n`, and rounds half up like Spark."""
    if is_division:
        # The remainder decides how a quotient of integers is rounded, so that no digit is lost.
        exact = (
            f"CASE WHEN typeof(n) IN ('TINYINT', 'SMALLINT', 'INTEGER', 'BIGINT') "
            f"THEN {count} // CAST(n AS BIGINT) + CASE WHEN 2 * abs({count} % CAST(n AS BIGINT)) >= "
            f"abs(CAST(n AS HUGEINT)) "
            f"THEN CAST(sign({count}) * sign(n) AS BIGINT) ELSE 0 END "
            f"ELSE round(CAST({count} AS DOUBLE) / CAST(n AS DOUBLE)) END"
        )
        body = _ROUND.format(count=count, operator="/", kind=kind, exact=exact)
        return (
            f"CASE WHEN CAST(n AS DOUBLE) = 0 THEN error('an interval is divided by zero') ELSE {made.format(body)} END"
        )
    exact = f"round(CAST({count} AS DECIMAL(19, 0)) * n)"
    return made.format(_ROUND.format(count=count, operator="*", kind=kind, exact=exact))


_MONTH_COUNT = "(CAST(datepart('year', i) AS BIGINT) * 12 + datepart('month', i))"
_MICROSECOND_COUNT = "epoch_us(i)"

INTERVAL_MACROS: Macros = define_macros(
    rf"""
    plus_months | plus_days(x DATE, i INTERVAL): CAST(x + i AS DATE)
    plus_times(x DATE, i INTERVAL): CAST(x AS TIMESTAMPTZ) + i
    plus_calendar(x DATE, i INTERVAL):
        CASE WHEN microsecond(i) <> 0 OR minute(i) <> 0 OR hour(i) <> 0
        THEN error('a date and an interval with a time cannot be added: cast the date to a timestamp')
        ELSE CAST(x + i AS DATE) END
    plus_months(x TIME, i INTERVAL): error('a time of day has no months')
    plus_days | plus_times(x TIME, i INTERVAL):
        CASE WHEN epoch_us(x) + epoch_us(i) BETWEEN 0 AND 86399999999 THEN x + i
        WHEN x IS NOT NULL AND i IS NOT NULL
        THEN error('a time of day plus an interval is not a time of the same day') END
    plus_months | plus_days | plus_times | plus_calendar(x TIMESTAMP | TIMESTAMPTZ, i INTERVAL): x + i
    plus_months(x VARCHAR, i INTERVAL):
        CASE WHEN x IS NOT NULL
        THEN error('a text and years or months cannot be added: cast the text to a date') END
    plus_days | plus_times | plus_calendar(x VARCHAR, i INTERVAL):
        regexp_replace(CAST(spark_text_timestamp(x) + i AS VARCHAR), '\+00$', '')
    plus_months | plus_days | plus_times | plus_calendar(x, i): x + i
    minus(a DATE, b DATE): to_days(CAST(date_diff('day', b, a) AS INTEGER))
    minus(a TIME, b TIME): to_microseconds(epoch_us(a) - epoch_us(b))
    minus(a DATE, b TIMESTAMP): spark_span(epoch_us(CAST(a AS TIMESTAMP)) - epoch_us(b))
    minus(a TIMESTAMP, b DATE): spark_span(epoch_us(a) - epoch_us(CAST(b AS TIMESTAMP)))
    minus(a DATE, b VARCHAR): to_days(CAST(date_diff('day', spark_text_date(b), a) AS INTEGER))
    minus(a VARCHAR, b DATE): to_days(CAST(date_diff('day', b, spark_text_date(a)) AS INTEGER))
    minus(a TIMESTAMP, b VARCHAR): spark_span(epoch_us(a) - epoch_us(spark_text_timestamp_ntz(b)))
    minus(a VARCHAR, b TIMESTAMP): spark_span(epoch_us(spark_text_timestamp_ntz(a)) - epoch_us(b))
    minus(a TIMESTAMPTZ, b VARCHAR): spark_span(epoch_us(a) - epoch_us(spark_text_timestamp(b)))
    minus(a VARCHAR, b TIMESTAMPTZ): spark_span(epoch_us(spark_text_timestamp(a)) - epoch_us(b))
    minus(a, b): a - b
    -- Arrow counts the nanoseconds of an interval in 64 bits, which is 292 years: longer intervals count days too.
    span(micros):
        CASE WHEN abs(CAST(micros AS HUGEINT)) <= {2**63 // 1000} THEN to_microseconds(micros)
        ELSE to_days(CAST(micros // 86400000000 AS INTEGER)) + to_microseconds(micros % 86400000000) END
    months_text(n, fields):
        CASE WHEN n IS NULL THEN NULL ELSE 'INTERVAL ''' || CASE WHEN n < 0 THEN '-' ELSE '' END ||
        CASE fields WHEN 'YEAR' THEN CAST(abs(n) // 12 AS VARCHAR) WHEN 'MONTH' THEN CAST(abs(n) AS VARCHAR)
        ELSE (abs(n) // 12) || '-' || (abs(n) % 12) END || ''' ' || fields END
    two_digits(n): CASE WHEN n < 10 THEN '0' || n ELSE CAST(n AS VARCHAR) END
    second_text(n):
        spark_two_digits(n // 1000000) || CASE WHEN n % 1000000 = 0 THEN ''
        ELSE '.' || rtrim(lpad(CAST(n % 1000000 AS VARCHAR), 6, '0'), '0') END
    make_dt_interval(d, h, m, s):
        spark_span(CAST(spark_whole_int(d) AS BIGINT) * 86400000000 + CAST(spark_whole_int(h) AS
        BIGINT) * 3600000000
        + CAST(spark_whole_int(m) AS BIGINT) * 60000000 + CAST(CAST(s AS DECIMAL(18, 6)) * 1000000 AS BIGINT))
    make_ym_interval(y, m): to_months(CAST(CAST(spark_whole_int(y) AS BIGINT) * 12 + spark_whole_int(m) AS INTEGER))
    make_interval(y, m, w, d, h, n, s):
        to_months(CAST(CAST(spark_whole_int(y) AS BIGINT) * 12 + spark_whole_int(m) AS INTEGER))
        + to_days(CAST(CAST(spark_whole_int(w) AS BIGINT) * 7 + spark_whole_int(d) AS INTEGER))
        + to_microseconds(CAST(spark_whole_int(h) AS BIGINT) * 3600000000 + CAST(spark_whole_int(n) AS
        BIGINT) * 60000000
        + CAST(CAST(s AS DECIMAL(18, 6)) * 1000000 AS BIGINT))
    try_make_interval(y, m, w, d, h, n, s):
        TRY(to_months(CAST(CAST(y AS BIGINT) * 12 + CAST(m AS BIGINT) AS INTEGER))
        + to_days(CAST(CAST(w AS BIGINT) * 7 + CAST(d AS BIGINT) AS INTEGER))
        + to_microseconds(CAST(h AS BIGINT) * 3600000000 + CAST(n AS BIGINT) * 60000000
        + CAST(CAST(s AS DECIMAL(18, 6)) * 1000000 AS BIGINT)))
    interval_div(a, b): CASE WHEN b = 0 THEN error('an interval is divided by zero') ELSE a // b END
    interval_sign(i): CAST(sign(epoch_us(i)) AS DOUBLE)
    interval_abs(i): CASE WHEN epoch_us(i) < 0 THEN -i ELSE i END
    """
) | {
    "times_months": (("i", "n"), _write_scaling(_MONTH_COUNT, "INTEGER", "to_months({})", is_division=False)),
    "times_times": (("i", "n"), _write_scaling(_MICROSECOND_COUNT, "BIGINT", "spark_span({})", is_division=False)),
    "share_months": (("i", "n"), _write_scaling(_MONTH_COUNT, "INTEGER", "to_months({})", is_division=True)),
    "share_times": (("i", "n"), _write_scaling(_MICROSECOND_COUNT, "BIGINT", "spark_span({})", is_division=True)),
    "interval_months": (("i",), _MONTH_COUNT),
    "interval_micros": (("i",), _MICROSECOND_COUNT),
}


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
_SIX_PARTS = "y, mo, d, h, mi, s"
_MAKE_TIMESTAMP = "make_timestamp | make_timestamp_ltz | try_make_timestamp | try_make_timestamp_ltz"
_WEEKDAYS = "['MO', 'TU', 'WE', 'TH', 'FR', 'SA', 'SU', 'MON', 'TUE', 'WED', 'THU', 'FRI', 'SAT', 'SUN', 'MONDAY', "
_WEEKDAYS += "'TUESDAY', 'WEDNESDAY', 'THURSDAY', 'FRIDAY', 'SATURDAY', 'SUNDAY']"
_DAYS = "CASE WHEN typeof(n) LIKE 'DECIMAL%' OR typeof(n) IN ('DOUBLE', 'FLOAT') "
_DAYS += "THEN error('days must be a whole number') ELSE spark_whole_int(n) END"

MACROS: Macros = define_macros(
    rf"""
    -- Casts
    as_timestamp | try_as_timestamp | to_timestamp_of | as_instant(x DATE | TIMESTAMP): CAST(x AS TIMESTAMPTZ)
    as_timestamp | try_as_timestamp | to_timestamp_of | as_instant(x TIMESTAMPTZ): x
    as_timestamp | to_timestamp_of(x VARCHAR): spark_text_timestamp(x)
    try_as_timestamp(x VARCHAR): spark_try_text_timestamp(x)
    to_timestamp_of(x BIGINT): make_timestamptz(CAST(CAST(x AS HUGEINT) * 1000000 AS BIGINT))
    as_clock | as_printed | as_timestamp_ntz | try_as_timestamp_ntz(x DATE): CAST(x AS TIMESTAMP)
    as_clock | as_printed | as_timestamp_ntz | try_as_timestamp_ntz(x TIMESTAMP): x
    as_clock | as_printed | as_timestamp_ntz | try_as_timestamp_ntz(x TIMESTAMPTZ): timezone('UTC', x)
    as_clock | as_printed(x VARCHAR): timezone('UTC', spark_text_timestamp(x))
    as_timestamp_ntz(x VARCHAR): spark_text_timestamp_ntz(x)
    try_as_timestamp_ntz(x VARCHAR): spark_try_text_timestamp_ntz(x)
    as_printed(x TIME): TIMESTAMP '1970-01-01 00:00:00' + to_microseconds(epoch_us(x))
    as_time | try_as_time(x TIME): x
    as_time(x VARCHAR): spark_text_time(x)
    as_time(x DATE | TIMESTAMP | TIMESTAMPTZ):
        CASE WHEN x IS NOT NULL THEN error('a date or a timestamp cannot be cast to a time of day') END
    try_as_time(x VARCHAR): spark_try_text_time(x)
    pick_timestamp(x DATE | TIMESTAMP, parsed): CAST(x AS TIMESTAMPTZ)
    pick_timestamp(x TIMESTAMPTZ, parsed): x
    pick_timestamp(x VARCHAR, parsed): parsed
    whole_int(n):
        CASE WHEN typeof(n) = 'VARCHAR' AND NOT regexp_full_match(CAST(n AS VARCHAR), '\s*[+-]?[0-9]+\s*')
        THEN error('a text is not a whole number') WHEN typeof(n) LIKE 'DECIMAL%' OR typeof(n) IN ('DOUBLE', 'FLOAT')
        THEN CAST(trunc(CAST(n AS DOUBLE)) AS INTEGER) ELSE CAST(n AS INTEGER) END
    -- Dates
    truncated_date(x DATE, unit): CAST(date_trunc(unit, x) AS DATE)
    truncated_date(x TIMESTAMP | TIMESTAMPTZ, unit): CAST(date_trunc(unit, CAST(x AS DATE)) AS DATE)
    truncated_date(x VARCHAR, unit): CAST(date_trunc(unit, spark_text_date(x)) AS DATE)
    cut_time(x, n): CAST(x - to_microseconds(epoch_us(x) % n) AS TIME)
    add_months(x, n): CAST(x + to_months(spark_whole_int(n)) AS DATE)
    date_add(x, n): x + {_DAYS}
    date_sub(x, n): x - {_DAYS}
    date_from_unix_date(n): DATE '1970-01-01' + spark_whole_int(n)
    days_between(a, b): CAST(date_diff('day', b, a) AS INTEGER)
    next_day(x, name): x + 1 + CAST((spark_weekday_of(name) - isodow(x) + 6) % 7 AS INTEGER)
    weekday_of(name):
        CASE WHEN name IS NULL THEN NULL WHEN list_position({_WEEKDAYS}, upper(name)) IS NULL
        THEN error('next_day takes the name of a day, as in ''MON'' or ''Monday''')
        ELSE CAST((list_position({_WEEKDAYS}, upper(name)) - 1) % 7 + 1 AS INTEGER) END
    make_date(y, m, d): make_date(spark_whole_int(y), spark_whole_int(m), spark_whole_int(d))
    months_between(a, b, rounded):
        list_transform([spark_months(a, b)], lambda m: CASE WHEN rounded THEN round(m, 8) ELSE m END)[1]
    truncated(x, unit): date_trunc(unit, x)
    -- Timestamps
    unix_micros(x): epoch_us(x)
    unix_seconds(x): {_FLOOR.format("epoch_us(x)", 1_000_000)}
    unix_millis(x): {_FLOOR.format("epoch_us(x)", 1_000)}
    -- `make_timestamp` takes six numbers, or a date and a time of day, also with a zone.
    make_timestamp | make_timestamp_ltz({_SIX_PARTS}): timezone('UTC', {_TIMESTAMP_OF_PARTS})
    make_timestamp | make_timestamp_ltz({_SIX_PARTS}, zone): spark_at_zone({_TIMESTAMP_OF_PARTS}, zone)
    try_make_timestamp | try_make_timestamp_ltz({_SIX_PARTS}): timezone('UTC', {_TRY_TIMESTAMP_OF_PARTS})
    try_make_timestamp | try_make_timestamp_ltz({_SIX_PARTS}, zone): spark_try_at_zone({_TRY_TIMESTAMP_OF_PARTS}, zone)
    {_MAKE_TIMESTAMP}(d): CAST(CAST(d AS DATE) AS TIMESTAMPTZ)
    {_MAKE_TIMESTAMP}(d, t): timezone('UTC', CAST(d AS DATE) + CAST(t AS TIME))
    make_timestamp | make_timestamp_ltz(d, t, zone): spark_at_zone(CAST(d AS DATE) + CAST(t AS TIME), zone)
    try_make_timestamp | try_make_timestamp_ltz(d, t, zone): spark_try_at_zone(CAST(d AS DATE) + CAST(t AS TIME), zone)
    make_timestamp_ntz({_SIX_PARTS}): {_TIMESTAMP_OF_PARTS}
    try_make_timestamp_ntz({_SIX_PARTS}): {_TRY_TIMESTAMP_OF_PARTS}
    make_timestamp_ntz | try_make_timestamp_ntz(d, t): CAST(d AS DATE) + CAST(t AS TIME)
    timestamp_seconds(x):
        CASE WHEN typeof(x) IN ('DOUBLE', 'FLOAT') THEN CASE WHEN isfinite(CAST(x AS DOUBLE))
        THEN make_timestamptz(CAST(trunc(CAST(x AS DOUBLE) * 1000000) AS BIGINT)) END
        WHEN typeof(x) LIKE 'DECIMAL%' AND CAST(x AS DECIMAL(38, 6)) <> x THEN error('a timestamp has
        at most 6 digits of a second: round the number')
        ELSE make_timestamptz(CAST(CAST(x AS DECIMAL(38, 6)) * 1000000 AS BIGINT)) END
    timestamp_millis(x): make_timestamptz(CAST(CAST(x AS HUGEINT) * 1000 AS BIGINT))
    timestamp_micros(x): make_timestamptz(CAST(x AS BIGINT))
    in_zone(t, zone):
        CASE WHEN zone IN ('Z', 'z', 'UTC', 'GMT', 'UT') THEN timezone('UTC', t)
        WHEN regexp_full_match(zone, {OFFSET}) THEN timezone('UTC', t + spark_offset_of(zone))
        ELSE timezone(zone, t) END
    of_zone(t, zone):
        CASE WHEN zone IN ('Z', 'z', 'UTC', 'GMT', 'UT') THEN timezone('UTC', t)
        WHEN regexp_full_match(zone, {OFFSET}) THEN timezone('UTC', t - spark_offset_of(zone))
        ELSE timezone(zone, t) END
    from_utc_timestamp(x, zone): timezone('UTC', spark_in_zone(x, zone))
    to_utc_timestamp(x, zone): spark_of_zone(x, zone)
    convert_timezone(zone, x): spark_in_zone(timezone('UTC', x), zone)
    convert_timezone(source, zone, x): spark_in_zone(spark_of_zone(x, source), zone)
    moved(x DATE, i): CAST(x AS TIMESTAMPTZ) + i
    moved(x TIMESTAMP, i): x + i
    moved(x TIMESTAMPTZ, i): x + i
    moved(x VARCHAR, i): spark_text_timestamp(x) + i
    between_units(a, b, n): (epoch_us(b) - epoch_us(a)) // n
    between_months(a, b, n): spark_whole_months(a, b) // n
    whole_seconds(x): epoch_us(x) // 1000000
    time_bucket(i, x): time_bucket(i, x, TIMESTAMP '1970-01-01 00:00:00')
    -- Times of day
    make_time(h, m, s):
        CASE WHEN CAST(s AS DECIMAL(16, 6)) >= 0 AND CAST(s AS DECIMAL(16, 6)) < 60 AND
        spark_whole_int(h) BETWEEN 0 AND 23
        AND spark_whole_int(m) BETWEEN 0 AND 59
        THEN make_time(spark_whole_int(h), spark_whole_int(m), 0) + to_microseconds(CAST(CAST(s AS
        DECIMAL(16, 6)) * 1000000 AS BIGINT))
        WHEN h IS NOT NULL AND m IS NOT NULL AND s IS NOT NULL THEN error('a time of day must be 00:00:00
        to 23:59:59.999999') END
    time_to_micros(x): epoch_us(x)
    time_to_millis(x): epoch_us(x) // 1000
    time_to_seconds(x): CAST(CAST(epoch_us(x) AS DECIMAL(18, 0)) * 0.000001 AS DECIMAL(14, 6))
    time_from_micros(n):
        CASE WHEN n BETWEEN 0 AND 86399999999 THEN TIME '00:00:00' + to_microseconds(CAST(n AS BIGINT))
        WHEN n IS NOT NULL THEN error('a time of day must be less than a day') END
    time_from_millis(n): spark_time_from_micros(CAST(n AS HUGEINT) * 1000)
    time_from_seconds(n): spark_time_from_micros(CAST(trunc(CAST(n AS DECIMAL(30, 9)) * 1000000) AS HUGEINT))
    """
) | {
    **INTERVAL_MACROS,
    **TEXT_CAST_MACROS,
    **_PARTS,
    "as_date": _define_for_day("(d)"),
    "try_as_date": [*_define_for_day("(d)")[:3], (("x VARCHAR",), "spark_try_text_date(x)")],
    # Days
    "dayname": _define_for_day("strftime((d), '%a')"),
    "monthname": _define_for_day("strftime((d), '%b')"),
    "weekday": _define_for_day("CAST(isodow(d) - 1 AS INTEGER)"),
    "last_day": _define_for_day("last_day(d)"),
    "unix_date": _define_for_day("CAST(date_diff('day', DATE '1970-01-01', (d)) AS INTEGER)"),
}
