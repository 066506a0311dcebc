"""Dates, timestamps and intervals, parsed from text and formatted as text exactly.

Values are integer counts (days, seconds, nanoseconds) in the proleptic Gregorian calendar, so that every year is
supported and nothing is rounded. The text forms are Spark's: `2024`, `2024-3`, `2024-03-05`,
`2024-03-05T7:08:09.123456789+01:00`; a year beyond 9999 or before 0 has a sign, as in `+12024-01-01`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from fractions import Fraction
from functools import partial
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.types import UNITS_PER_SECOND

NANOSECONDS = 1_000_000_000
SECONDS_PER_DAY = 86_400

_DAY = r"(?P<year>[0-9]{4}|[+-][0-9]{4,12})(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})(?P<rest>[ T].*)?)?)?"
_DATE = re.compile(_DAY, re.DOTALL)
_TIME = re.compile(
    r"(?P<hour>[0-9]{1,2})(?::(?P<minute>[0-9]{1,2})(?::(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]{0,9}))?)?"
    r"\s*(?P<zone>\S.*)?)?"
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?")
_UTC_NAMES = frozenset({"Z", "z", "UTC", "GMT", "UT"})
_LARGEST_OFFSET = 18 * 3600


def days_from_date(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 of a date in the proleptic Gregorian calendar, for any year.

    >>> days_from_date(1970, 1, 1), days_from_date(2000, 3, 1), days_from_date(-1, 12, 31)
    (0, 11017, -719529)
    """
    # Years start in March here, so that the leap day is the last day and the lengths of months need no table.
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def date_from_days(days: int) -> tuple[int, int, int]:
    """Return the year, month and day of a count of days since 1970-01-01: the inverse of `days_from_date`.

    >>> date_from_days(0), date_from_days(-719529)
    ((1970, 1, 1), (-1, 12, 31))
    """
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    year = era * 400 + year_of_era + (month <= 2)
    return year, month, day_of_year - (153 * month_from_march + 2) // 5 + 1


def parse_date(text: str, *, allow_time: bool = False) -> int | None:
    """Parse a date into days since the epoch, or None; `allow_time` ignores all text after a space or a `T`.

    >>> parse_date("1970-1-2"), parse_date("1970-01-02 10:00"), parse_date("1970-01-02 10:00", allow_time=True)
    (1, None, 1)
    """
    match = _DATE.fullmatch(text.strip())
    if match is None or (match["rest"] is not None and not allow_time):
        return None
    return _to_valid_days(match)


def parse_timestamp(text: str) -> tuple[int, bool] | None:
    """Parse a timestamp into nanoseconds since the epoch, and whether the text has a time zone; None if it is invalid.

    Without a zone the time is in UTC. In a region zone, as in Java, a local time in a gap is read with the offset
    from before the gap, and a local time that occurs twice is the earlier of the two.

    >>> parse_timestamp("1970-01-01 00:00:01.5"), parse_timestamp("1970-01-01T01:00:00+01:00")
    ((1500000000, False), (0, True))
    """
    match = _DATE.fullmatch(text.strip())
    days = _to_valid_days(match) if match is not None else None
    if match is None or days is None:
        return None
    if match["rest"] is None:
        return days * SECONDS_PER_DAY * NANOSECONDS, False
    clock = _TIME.fullmatch(match["rest"][1:])
    time = _to_valid_time(clock) if clock is not None else None
    if clock is None or time is None:
        return None
    found = days * SECONDS_PER_DAY * NANOSECONDS + time
    zone = clock["zone"]
    if zone is None:
        return found, False
    offset = _parse_zone_offset(zone.strip(), found // NANOSECONDS)
    return None if offset is None else (found - offset * NANOSECONDS, True)


def parse_time(text: str) -> int | None:
    """Parse a time of day, at least hours and minutes, into nanoseconds since midnight; None if it is invalid.

    >>> parse_time("03:04"), parse_time("23:59:59.5"), parse_time("24:00"), parse_time("03:04Z")
    (11040000000000, 86399500000000, None, None)
    """
    clock = _TIME.fullmatch(text.strip())
    if clock is None or clock["minute"] is None or clock["zone"] is not None:
        return None
    return _to_valid_time(clock)


def has_nanosecond_digits(text: str) -> bool:
    """Return whether a timestamp has more fractional digits than the six of microseconds."""
    return re.search(r"\.[0-9]{7}", text) is not None


def _to_valid_days(match: re.Match[str]) -> int | None:
    year, month, day = int(match["year"]), int(match["month"] or 1), int(match["day"] or 1)
    if not 1 <= month <= 12 or day < 1:
        return None
    days = days_from_date(year, month, day)
    # A day that does not exist, as the 31st of April, became a day of the next month.
    return days if date_from_days(days) == (year, month, day) else None


def _to_valid_time(clock: re.Match[str]) -> int | None:
    hour, minute, second = (int(clock[part] or 0) for part in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        return None
    return (hour * 3600 + minute * 60 + second) * NANOSECONDS + int((clock["fraction"] or "").ljust(9, "0"))


def _parse_zone_offset(zone: str, wall_seconds: int) -> int | None:
    """Return the seconds by which a zone is ahead of UTC at the local time `wall_seconds`, or None if it is invalid."""
    if zone in _UTC_NAMES:
        return 0
    if match := _OFFSET.fullmatch(zone):
        hours, minutes, seconds = (int(match[group] or 0) for group in (2, 3, 4))
        offset = hours * 3600 + minutes * 60 + seconds
        if minutes > 59 or seconds > 59 or offset > _LARGEST_OFFSET:
            return None
        return -offset if match[1] == "-" else offset
    try:
        # datetime raises for years out of range. Invalid names raise several errors, as OSError for a directory.
        clock = datetime(1970, 1, 1, tzinfo=ZoneInfo(zone)) + timedelta(seconds=wall_seconds)
    except (ValueError, KeyError, OSError, OverflowError):
        return None
    offset_now = clock.utcoffset()
    return None if offset_now is None else offset_now // timedelta(seconds=1)


def format_date(days: int) -> str:
    """Format a count of days since the epoch as a date.

    >>> format_date(0), format_date(3_000_000), format_date(-800_000)
    ('1970-01-01', '+10183-09-21', '-0221-09-04')
    """
    year, month, day = date_from_days(days)
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04}-{month:02}-{day:02}"


def format_timestamp(value: int, unit: str, *, digits: int | None = None) -> str:
    """Format a count of units since the epoch, with as many fractional digits as needed, or with `digits`.

    >>> format_timestamp(-1, "ns"), format_timestamp(1500, "ms")
    ('1969-12-31 23:59:59.999999999', '1970-01-01 00:00:01.5')
    """
    seconds, part = divmod(value, UNITS_PER_SECOND[unit])
    days, second_of_day = divmod(seconds, SECONDS_PER_DAY)
    return f"{format_date(days)} {format_time(second_of_day * UNITS_PER_SECOND[unit] + part, unit, digits=digits)}"


def format_time(value: int, unit: str, *, digits: int | None = None) -> str:
    """Format a count of units since midnight as a time of day.

    >>> format_time(3_723_004, "ms")
    '01:02:03.004'
    """
    second_of_day, part = divmod(value, UNITS_PER_SECOND[unit])
    minute_of_day, second = divmod(second_of_day, 60)
    fraction = f"{part * (NANOSECONDS // UNITS_PER_SECOND[unit]):09}"
    fraction = fraction.rstrip("0") if digits is None else fraction[:digits]
    clock = f"{minute_of_day // 60:02}:{minute_of_day % 60:02}:{second:02}"
    return f"{clock}.{fraction}" if fraction else clock


# --- Intervals ------------------------------------------------------------------------------------------------------

Interval = tuple[int, int, int]
"""Months, days and nanoseconds: three counts that cannot be converted into each other."""

INTERVAL_UNITS: dict[str, Interval] = {
    "year": (12, 0, 0),
    "quarter": (3, 0, 0),
    "month": (1, 0, 0),
    "week": (0, 7, 0),
    "day": (0, 1, 0),
    "hour": (0, 0, 3600 * NANOSECONDS),
    "minute": (0, 0, 60 * NANOSECONDS),
    "second": (0, 0, NANOSECONDS),
    "millisecond": (0, 0, 1_000_000),
    "microsecond": (0, 0, 1_000),
    "nanosecond": (0, 0, 1),
}
_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_PART = re.compile(rf"\s*({_NUMBER})\s*([A-Za-z]+)")


def parse_interval(text: str) -> Interval | None:
    """Parse an interval with units inside of the text.

    >>> parse_interval("3 DAYS"), parse_interval("2 days -1.5 seconds"), parse_interval("2 days ago")
    ((0, 3, 0), (0, 2, -1500000000), None)
    """
    # Text between the parts makes the interval invalid.
    if not text.strip() or _PART.sub("", text).strip():
        return None
    parts = [_parse_interval_part(match[1], match[2].lower().removesuffix("s")) for match in _PART.finditer(text)]
    known = [part for part in parts if part is not None]
    months, days, nanoseconds = map(sum, zip(*known, strict=True)) if known else (0, 0, 0)
    total = months, days, nanoseconds
    return total if len(known) == len(parts) and _is_in_range(total) else None


def _parse_interval_part(number: str, unit: str) -> Interval | None:
    sizes = INTERVAL_UNITS.get(unit)
    if sizes is None or re.fullmatch(_NUMBER, number) is None:
        return None
    amounts = [Fraction(number) * size for size in sizes]
    # Only seconds and their parts may have a fraction, and only down to nanoseconds.
    if any(amount.denominator != 1 for amount in amounts) or ("." in number and not unit.endswith("second")):
        return None
    months, days, nanoseconds = (int(amount) for amount in amounts)
    return months, days, nanoseconds


def _is_in_range(interval: Interval) -> bool:
    months, days, nanoseconds = interval
    return -(2**31) <= months < 2**31 and -(2**31) <= days < 2**31 and -(2**63) <= nanoseconds < 2**63


def format_interval(interval: Interval) -> str:
    """Format an interval as the text inside the quotes of `INTERVAL '…'`.

    >>> format_interval((14, -3, 4_500_000_000)), format_interval((0, 0, 0))
    ('14 months -3 days 4.5 seconds', '0 days')
    """
    months, days, nanoseconds = interval
    whole, part = divmod(abs(nanoseconds), NANOSECONDS)
    fraction = f".{part:09}".rstrip("0") if part else ""
    parts = (
        f"{months} months" if months else "",
        f"{days} days" if days else "",
        f"{'-' if nanoseconds < 0 else ''}{whole}{fraction} seconds" if nanoseconds else "",
    )
    return " ".join(part for part in parts if part) or "0 days"


# --- Vectorised parsing of dates and timestamps in partition values and statistics ------------------------------------
#
# Arrow parses the common forms. Texts that it does not accept (years beyond 9999 or before 0, offsets with seconds,
# digits beyond the microsecond) are parsed one by one in Python, each distinct text once.

_LONG_YEAR = re.compile(r"[0-9]{5,}-")
_NANOSECONDS_PER_MICROSECOND = 1_000
_LONG_SMALLEST, _LONG_LARGEST = types.get_integer_range(types.LONG)
_INT_SMALLEST, _INT_LARGEST = types.get_integer_range(pa.int32())


def parse_dates(texts: pa.StringArray) -> pa.Date32Array:
    """Parse dates; null where a text is invalid.

    >>> parse_dates(pa.array(["1970-01-02", "+12024-01-01", "12024-01-01", "soon"])).cast(pa.int32()).to_pylist()
    [1, 3672148, 3672148, None]
    """
    try:
        return pc.cast(texts, types.DATE)
    except pa.ArrowInvalid:
        return _parse_distinct(texts, _parse_days, pa.int32()).cast(types.DATE)


def parse_timestamps(texts: pa.StringArray, target: pa.TimestampType) -> pa.TimestampArray:
    """Parse timestamps in microseconds, and truncate finer digits; null where a text is invalid.

    For a type with a time zone, a text without one is in UTC. For a type without one, texts are not shifted: `Z` is
    ignored, and a text with another zone is invalid.

    >>> texts = pa.array(["1970-01-01 00:00:01", "1970-01-01T01:00:00.5+01:00", "soon"])
    >>> parse_timestamps(texts, types.TIMESTAMP).cast(pa.int64()).to_pylist()
    [1000000, 500000, None]
    """
    is_zoned = target.tz is not None
    try:
        return pc.cast(texts, target)
    except pa.ArrowInvalid:
        pass
    try:
        # Another common form: no text has a zone, or all texts are in UTC.
        if is_zoned:
            return pc.cast(texts, types.TIMESTAMP_NTZ).cast(types.LONG).cast(target)
        if pc.all(pc.ends_with(texts, "Z"), min_count=0).as_py():
            return pc.cast(texts, types.TIMESTAMP).cast(types.LONG).cast(target)
    except pa.ArrowInvalid:
        pass
    return _parse_distinct(texts, partial(_parse_microseconds, is_zoned=is_zoned), types.LONG).cast(target)


def _parse_distinct(texts: pa.StringArray, read: Callable[[str], int | None], data_type: pa.DataType) -> pa.Array:
    encoded = pc.dictionary_encode(texts)
    values = [read(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(values, data_type).take(encoded.indices)


def _add_year_sign(text: str) -> str:
    """Add the sign of a year with more than four digits, which SQL requires and some writers omit."""
    return f"+{text}" if _LONG_YEAR.match(text) else text


def _parse_days(text: str) -> int | None:
    days = parse_date(_add_year_sign(text))
    return days if days is not None and _INT_SMALLEST <= days <= _INT_LARGEST else None


def _parse_microseconds(text: str, *, is_zoned: bool) -> int | None:
    found = parse_timestamp(_add_year_sign(text))
    # In UTC the local time is the time in the text.
    if found is None or (found[1] and not is_zoned and not text.endswith("Z")):
        return None
    count = found[0] // _NANOSECONDS_PER_MICROSECOND
    return count if _LONG_SMALLEST <= count <= _LONG_LARGEST else None
