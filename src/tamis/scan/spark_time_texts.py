"""Macros that cast texts to dates, timestamps and times of day as Spark does, and resolve time zones.

An invalid text is an error, and NULL in the macros whose names start with `try_`.
"""

from __future__ import annotations

from collections.abc import Callable

from tamis.scan.spark_calls import Macros

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


MACROS: Macros = {
    **_define_text_casts("", _write_error, ""),
    **_define_text_casts("try_", lambda kind: "NULL", "TRY"),
    "short_zones": ((), f"MAP {{{', '.join(f'{name!r}: {zone!r}' for name, zone in SHORT_ZONES.items())}}}"),
}
