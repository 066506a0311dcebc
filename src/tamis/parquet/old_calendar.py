"""Dates and times that their writer counted by two calendars: up to 4 October 1582 by the Julian one.

So did Spark before 3.0, and so does every later one that is told to (`…RebaseModeInWrite` is `LEGACY`); notes in the
footer tell. Such a file has 1 January 1200 as the day that the calendar of today calls 8 January. Spark reads it as 1
January, and so must everybody who compares it with a literal, or with the bounds that a log noted.

| stored as                | values before 15 October 1582                               | bounds                  |
|--------------------------|-------------------------------------------------------------|-------------------------|
| DATE                     | the day of the same name                                    | the same: order is kept |
| TIMESTAMP of UTC, INT96  | the time of the same name, if the writer's zone was UTC;    | unknown before 1900     |
|                          | else an error, since it takes the zone to know              |                         |
| TIMESTAMP without a zone | as they are: no writer of such files had them               | as they are             |

Before 1900 the zones of such writers differ from those of today by minutes, and Spark moves instants by that; here they
stay what they are, which is why bounds of that time say nothing.

Bounds that a log keeps apart from the file
-------------------------------------------
Who wrote the file is in the file. Where bounds come from elsewhere (the statistics of a Delta log), they may name a day
by one calendar while the rows of the file are read by the other. A runtime of Databricks of 2020 stored 1 January 100
as the day that today's calendar calls 30 December 99, noted '0100-01-01' in the log, and left no note in the footer,
so that the row is 30 December 99 to every reader. Let d be the stored day and h(d) = `new_days(d)` the day of the same
name. Then h keeps the order, h(d) = d from 15 October 1582 on, h(d) < 15 October 1582 exactly when d is, and from the
year 1 on

    d - 10 <= h(d) <= d + 2

Whichever of d and h(d) a bound names, and whichever of both the rows are read as, they differ by less than 12 days, and
only where both are before 15 October 1582. So an old bound moved out by 12 days holds (`beyond_old`), and any other
holds as it is. Instants before 1900 may differ by the zone of the writer too, which is at most a day and some hours:
they are moved by 14 days.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tamis import types
from tamis.errors import UnsupportedFeature

_VERSION = b"org.apache.spark.version"
_OLD_DATES, _OLD_INT96 = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"
_ZONE = b"org.apache.spark.timeZone"
_UTC = frozenset((b"UTC", b"Etc/UTC", b"Z", b"GMT", b"Etc/GMT", b"UCT", b"Etc/UCT", b"Zulu", b"Universal"))

FIRST_DAY = -141_427
"""15 October 1582, the first day on which both calendars agree."""

_DAY_1900 = -25_567
_YEAR_ONE = -719_162
_SLACK_OF_DATES, _SLACK_OF_INSTANTS = 12, 14
"""How many days an old bound is moved out by: see the derivation above."""


@dataclass(frozen=True, slots=True)
class OldCalendar:
    """What of a file is counted by two calendars."""

    dates: bool
    """Dates, and timestamps of 64 bits."""
    int96: bool
    is_utc: bool
    """Whether the clocks of the writer were those of UTC."""

    def covers(self, column: pq.ColumnSchema) -> bool:
        """Whether the old values of a column are counted so."""
        if column.physical_type == "INT96":
            return self.int96
        logical = column.logical_type
        is_instant = logical.type == "TIMESTAMP" and bool(json.loads(logical.to_json())["isAdjustedToUTC"])
        return self.dates and (logical.type == "DATE" or is_instant)


def old_calendar(notes: Mapping[bytes, bytes] | None) -> OldCalendar | None:
    """What the notes in a footer say, by the rules of Spark's own reader; None where nothing is old.

    >>> old_calendar({b"org.apache.spark.version": b"2.4.8"})
    OldCalendar(dates=True, int96=True, is_utc=False)
    """
    version = (notes or {}).get(_VERSION)
    if notes is None or version is None:
        return None
    dates, int96 = version < b"3.0.0" or _OLD_DATES in notes, version < b"3.1.0" or _OLD_INT96 in notes
    return OldCalendar(dates, int96, notes.get(_ZONE) in _UTC) if dates or int96 else None


def new_days(days: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The days of the same names in the calendar of today, counted from 1970.

    In years that begin in March the Julian calendar has a leap day at the end of every fourth; today's leaves out three
    of them in 400 years. A leap day that is left out becomes 1 March, so that the order stays.
    """
    years = (4 * (days + 719_470) + 3) // 1461  # 719,470 days before 1970 was 1 March of the year 0, the Julian one
    return np.where(days < FIRST_DAY, days + 2 - years // 100 + years // 400, days)


def first_new(data_type: pa.DataType) -> int:
    """From which value on what is stored is beyond doubt, as bounds and in questions."""
    return FIRST_DAY if pa.types.is_date(data_type) else _DAY_1900 * _ticks_of_a_day(data_type)


def beyond_old(values: pa.Array, *, up: bool) -> tuple[pa.Array, pa.BooleanArray]:
    """Return bounds that hold whichever calendar old ones are in, and which of them are others than given.

    Lower bounds go down and, with `up`, upper bounds go up. What is before the year 1 becomes unknown.
    """
    is_date = pa.types.is_date32(values.type)
    ticks = 1 if is_date else _ticks_of_a_day(values.type)
    counts = values.view(pa.int32() if is_date else pa.int64())
    is_old = pc.fill_null(pc.less(counts, pa.scalar(first_new(values.type), counts.type)), False)
    if not pc.any(is_old, min_count=0).as_py():
        return values, is_old
    slack = (_SLACK_OF_DATES if is_date else _SLACK_OF_INSTANTS) * ticks
    is_beyond = pc.less(counts, pa.scalar(_YEAR_ONE * ticks, counts.type))
    near = pc.if_else(is_beyond, pa.scalar(None, counts.type), counts)
    moved = pc.add(near, pa.scalar(slack if up else -slack, counts.type))
    return pc.if_else(is_old, moved, counts).view(values.type), is_old


def batch_in_new_calendar(
    batch: pa.RecordBatch, calendar: OldCalendar, is_old: Iterable[bool], place: str
) -> pa.RecordBatch:
    """Rows in the calendar of today. `is_old` tells of each leaf, in their order, whether it is in the old one."""
    each = iter(is_old)
    arrays = [
        _mended(array, calendar, each, f"column {name!r} of '{place}'")
        for name, array in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def in_new_calendar(array: pa.Array, calendar: OldCalendar, what: str) -> pa.Array:
    """The values of one leaf that is in the old calendar, with what is around them, in the one of today."""
    return _mended(array, calendar, iter((True,)), what)


def _mended(array: pa.Array, calendar: OldCalendar, is_old: Iterator[bool], what: str) -> pa.Array:
    """The same array where nothing in it is old."""
    data_type = array.type
    if isinstance(array, pa.ExtensionArray):
        storage = array.storage
        mended = _mended(storage, calendar, is_old, what)
        return array if mended is storage else pa.ExtensionArray.from_storage(data_type, mended)
    if not pa.types.is_nested(data_type):
        return _mended_leaf(array, calendar, what) if next(is_old) else array
    if pa.types.is_struct(data_type):
        before = [array.field(number) for number in range(data_type.num_fields)]
    else:
        before = [array.keys, array.items] if pa.types.is_map(data_type) else [array.values]
    after = [_mended(child, calendar, is_old, what) for child in before]
    if all(one is other for one, other in zip(before, after, strict=True)):
        return array
    if not pa.types.is_struct(data_type):
        raise UnsupportedFeature(f"{what} has {_OLD}, inside of a list or a map: {_WAY_OUT}")
    return pa.StructArray.from_arrays(after, fields=list(data_type), mask=array.is_null())


_OLD = "dates before 1582-10-15 in the calendar of that time, as Spark 2 wrote them"
_WAY_OUT = "write the file again with Spark 3 or newer"


def _mended_leaf(array: pa.Array, calendar: OldCalendar, what: str) -> pa.Array:
    is_date = pa.types.is_date32(array.type)
    if not (is_date or pa.types.is_timestamp(array.type)):
        raise UnsupportedFeature(f"{what} has {_OLD}, as {types.type_name(array.type)}: {_WAY_OUT}")
    ticks = 1 if is_date else _ticks_of_a_day(array.type)
    values = array.view(pa.int32() if is_date else pa.int64())
    smallest = pc.min(values).as_py()
    # By the clocks of another zone than UTC the 15th began up to a day sooner or later.
    if smallest is None or smallest >= (FIRST_DAY + (0 if is_date or calendar.is_utc else 1)) * ticks:
        return array
    if not (is_date or calendar.is_utc):
        raise UnsupportedFeature(f"{what} has {_OLD}, and does not tell in which time zone: {_WAY_OUT}")
    days, rest = np.divmod(np.asarray(pc.fill_null(values, 0), np.int64), ticks)
    mask = np.asarray(array.is_null()) if array.null_count else None
    return pa.array(new_days(days) * ticks + rest, values.type, mask=mask).view(array.type)


def _ticks_of_a_day(data_type: pa.DataType) -> int:
    return 86_400 * types.UNITS_PER_SECOND[data_type.unit]
