"""Vectorised parsing of dates and timestamps in partition values and statistics.

Arrow parses the common forms. Texts that it does not accept (years beyond 9999 or before 0, offsets with seconds,
digits beyond the microsecond) are parsed one by one with `tamis.expr.temporal`, each distinct text once.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.temporal import parse_date, parse_timestamp

_LONG_YEAR = re.compile(r"[0-9]{5,}-")
_NANOSECONDS_PER_MICROSECOND = 1_000
_LONG_SMALLEST, _LONG_LARGEST = types.integer_range(types.LONG)
_INT_SMALLEST, _INT_LARGEST = types.integer_range(pa.int32())


def parse_dates(texts: pa.StringArray) -> pa.Date32Array:
    """Parse dates; null where a text is invalid.

    >>> read_dates(pa.array(["1970-01-02", "+12024-01-01", "12024-01-01", "soon"])).cast(pa.int32()).to_pylist()
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
    >>> read_timestamps(texts, types.TIMESTAMP).cast(pa.int64()).to_pylist()
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
    return _parse_distinct(texts, _parse_instant if is_zoned else _parse_wall_clock, types.LONG).cast(target)


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


def _parse_instant(text: str) -> int | None:
    found = parse_timestamp(_add_year_sign(text))
    return None if found is None else _to_microseconds(found[0])


def _parse_wall_clock(text: str) -> int | None:
    found = parse_timestamp(_add_year_sign(text))
    # In UTC the local time is the time in the text.
    return None if found is None or (found[1] and not text.endswith("Z")) else _to_microseconds(found[0])


def _to_microseconds(nanoseconds: int) -> int | None:
    count = nanoseconds // _NANOSECONDS_PER_MICROSECOND
    return count if _LONG_SMALLEST <= count <= _LONG_LARGEST else None
