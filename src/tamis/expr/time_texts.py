"""Dates and timestamps as tables spell them, in partition values and in statistics, whole columns at a time.

Arrow reads the common forms at once. What it does not take (years beyond 9999 or before 0, offsets with seconds, digits
beyond the microsecond) is read text by text, each distinct one once, as far as `tamis.expr.temporal` can.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.temporal import parse_date, parse_timestamp

_LONG_YEAR = re.compile(r"[0-9]{5,}-")
_NANOSECONDS_A_MICROSECOND = 1_000
_LONG_SMALLEST, _LONG_LARGEST = types.integer_range(types.LONG)
_INT_SMALLEST, _INT_LARGEST = types.integer_range(pa.int32())


def read_dates(texts: pa.StringArray) -> pa.Date32Array:
    """The dates that texts spell; null where a text is none.

    >>> read_dates(pa.array(["1970-01-02", "+12024-01-01", "12024-01-01", "soon"])).cast(pa.int32()).to_pylist()
    [1, 3672148, 3672148, None]
    """
    try:
        return pc.cast(texts, types.DATE)
    except pa.ArrowInvalid:
        return _each_distinct(texts, _days, pa.int32()).cast(types.DATE)


def read_timestamps(texts: pa.StringArray, target: pa.TimestampType) -> pa.TimestampArray:
    """The timestamps, in microseconds, that texts spell; null where a text is none. What is finer is cut off.

    For a type with a zone, a text without one is UTC. For one without, no text is shifted: `Z` is left out, and a
    text with another zone is not read.

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
        # The other form of the texts, all of them without a zone or all of them in UTC.
        if is_zoned:
            return pc.cast(texts, types.TIMESTAMP_NTZ).cast(types.LONG).cast(target)
        if pc.all(pc.ends_with(texts, "Z"), min_count=0).as_py():
            return pc.cast(texts, types.TIMESTAMP).cast(types.LONG).cast(target)
    except pa.ArrowInvalid:
        pass
    return _each_distinct(texts, _instant if is_zoned else _wall_clock, types.LONG).cast(target)


def _each_distinct(texts: pa.StringArray, read: Callable[[str], int | None], data_type: pa.DataType) -> pa.Array:
    encoded = pc.dictionary_encode(texts)
    values = [read(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(values, data_type).take(encoded.indices)


def _signed(text: str) -> str:
    """A text with the sign that years beyond four digits have in SQL, and that not every writer writes."""
    return f"+{text}" if _LONG_YEAR.match(text) else text


def _days(text: str) -> int | None:
    days = parse_date(_signed(text))
    return days if days is not None and _INT_SMALLEST <= days <= _INT_LARGEST else None


def _instant(text: str) -> int | None:
    found = parse_timestamp(_signed(text))
    return None if found is None else _microseconds(found[0])


def _wall_clock(text: str) -> int | None:
    found = parse_timestamp(_signed(text))
    # In UTC the clock shows what the text says.
    return None if found is None or (found[1] and not text.endswith("Z")) else _microseconds(found[0])


def _microseconds(nanoseconds: int) -> int | None:
    count = nanoseconds // _NANOSECONDS_A_MICROSECOND
    return count if _LONG_SMALLEST <= count <= _LONG_LARGEST else None
