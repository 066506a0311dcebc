"""Datetime rebase: dates and timestamps of writers that use the Julian calendar up to 4 October 1582.

Spark before 3.0 writes this hybrid calendar, and so do later versions if `…RebaseModeInWrite` is `LEGACY`; key-value
metadata in the footer records it. Such a file stores 1 January 1200 as the day that the proleptic Gregorian calendar
calls 8 January. Spark reads it as 1 January, and so must every comparison with a literal or with bounds from a log.

| stored as                | values before 15 October 1582                               | bounds                  |
|--------------------------|-------------------------------------------------------------|-------------------------|
| DATE                     | the day of the same name                                    | the same: order is kept |
| TIMESTAMP of UTC, INT96  | the time of the same name, if the writer's zone was UTC;    | unknown before 1900     |
|                          | else an error, because the zone is needed                   |                         |
| TIMESTAMP without a zone | unchanged: legacy writers do not have this type             | unchanged               |

Before 1900 the time zones of such writers differ from today's by minutes, and Spark shifts instants by that difference.
Here instants are not shifted, so bounds before 1900 are unusable.

Bounds that a log stores apart from the file
--------------------------------------------
The calendar is recorded in the file. Bounds from elsewhere (the statistics of a Delta log) may use one calendar while
the rows of the file are read in the other. A Databricks runtime of 2020 stored 1 January 100 as the day that the
Gregorian calendar calls 30 December 99, wrote '0100-01-01' to the log, and recorded nothing in the footer, so every
reader gets 30 December 99. Let d be the stored day and h(d) = `rebase_days(d)` the Gregorian day of the same name.
Then h keeps the order, h(d) = d from 15 October 1582 on, h(d) < 15 October 1582 exactly when d is, and from the
year 1 on

    d - 10 <= h(d) <= d + 2

A bound may be d or h(d), and rows may be read as d or h(d). The two differ by less than 12 days, and only before 15
October 1582. So an earlier bound holds if it is widened by 12 days (`widen_legacy_bounds`), and any other bound holds
unchanged. Instants before 1900 may also differ by the writer's zone, by at most a day and some hours: they are widened
by 14 days.
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
_LEGACY_DATES, _LEGACY_INT96 = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"
_ZONE = b"org.apache.spark.timeZone"
_UTC = frozenset((b"UTC", b"Etc/UTC", b"Z", b"GMT", b"Etc/GMT", b"UCT", b"Etc/UCT", b"Zulu", b"Universal"))

FIRST_GREGORIAN_DAY = -141_427
"""15 October 1582, the first day of the Gregorian calendar, from which both calendars agree."""

_DAY_1900 = -25_567
_YEAR_ONE = -719_162
_DATE_SLACK, _INSTANT_SLACK = 12, 14
"""The number of days by which an old bound is widened: see the derivation above."""


@dataclass(frozen=True, slots=True)
class LegacyCalendar:
    """The parts of a file that use the hybrid Julian/Gregorian calendar."""

    dates: bool
    """Whether this includes dates and 64-bit timestamps."""
    int96: bool
    is_utc: bool
    """Whether the writer's time zone was UTC."""

    def covers(self, column: pq.ColumnSchema) -> bool:
        """Return whether the old values of a column are in the Julian calendar."""
        if column.physical_type == "INT96":
            return self.int96
        logical = column.logical_type
        is_instant = logical.type == "TIMESTAMP" and bool(json.loads(logical.to_json())["isAdjustedToUTC"])
        return self.dates and (logical.type == "DATE" or is_instant)


def detect_legacy_calendar(key_values: Mapping[bytes, bytes] | None) -> LegacyCalendar | None:
    """Return the legacy calendar that a footer's key-value metadata implies by Spark's rules; None if there is none.

    >>> detect_legacy_calendar({b"org.apache.spark.version": b"2.4.8"})
    LegacyCalendar(dates=True, int96=True, is_utc=False)
    """
    version = (key_values or {}).get(_VERSION)
    if key_values is None or version is None:
        return None
    dates, int96 = version < b"3.0.0" or _LEGACY_DATES in key_values, version < b"3.1.0" or _LEGACY_INT96 in key_values
    return LegacyCalendar(dates, int96, key_values.get(_ZONE) in _UTC) if dates or int96 else None


def rebase_days(days: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the Gregorian days of the same names as these Julian days, counted from 1970.

    In years that begin in March, the Julian calendar has a leap day at the end of every fourth year; the Gregorian
    calendar omits three of them in 400 years. An omitted leap day becomes 1 March, so the order is kept.
    """
    years = (4 * (days + 719_470) + 3) // 1461  # 719,470 days before 1970 was 1 March of the year 0, the Julian one
    return np.where(days < FIRST_GREGORIAN_DAY, days + 2 - years // 100 + years // 400, days)


def get_rebase_limit(data_type: pa.DataType) -> int:
    """Return the first stored value that needs no rebase, in bounds and in lookups."""
    return FIRST_GREGORIAN_DAY if pa.types.is_date(data_type) else _DAY_1900 * _get_ticks_per_day(data_type)


def widen_legacy_bounds(values: pa.Array, *, up: bool) -> tuple[pa.Array, pa.BooleanArray]:
    """Return bounds that hold in either calendar, and a mask of those that were changed.

    Lower bounds are lowered; with `up`, upper bounds are raised. Bounds before the year 1 become unknown.
    """
    is_date = pa.types.is_date32(values.type)
    ticks = 1 if is_date else _get_ticks_per_day(values.type)
    counts = values.view(pa.int32() if is_date else pa.int64())
    is_old = pc.fill_null(pc.less(counts, pa.scalar(get_rebase_limit(values.type), counts.type)), False)
    if not pc.any(is_old, min_count=0).as_py():
        return values, is_old
    slack = (_DATE_SLACK if is_date else _INSTANT_SLACK) * ticks
    is_beyond = pc.less(counts, pa.scalar(_YEAR_ONE * ticks, counts.type))
    near = pc.if_else(is_beyond, pa.scalar(None, counts.type), counts)
    moved = pc.add(near, pa.scalar(slack if up else -slack, counts.type))
    return pc.if_else(is_old, moved, counts).view(values.type), is_old


def rebase_batch(
    batch: pa.RecordBatch, calendar: LegacyCalendar, is_old: Iterable[bool], location: str
) -> pa.RecordBatch:
    """Rebase rows to the Gregorian calendar. `is_old` tells for each leaf, in order, whether it needs a rebase."""
    each = iter(is_old)
    arrays = [
        _rebase(array, calendar, each, f"column {name!r} of '{location}'")
        for name, array in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def rebase_array(array: pa.Array, calendar: LegacyCalendar, what: str) -> pa.Array:
    """Rebase the values of one leaf, within their nested structure, to the Gregorian calendar."""
    return _rebase(array, calendar, iter((True,)), what)


def _rebase(array: pa.Array, calendar: LegacyCalendar, is_old: Iterator[bool], what: str) -> pa.Array:
    """Rebase an array; return the same array if nothing in it is old."""
    data_type = array.type
    if isinstance(array, pa.ExtensionArray):
        storage = array.storage
        rebased = _rebase(storage, calendar, is_old, what)
        return array if rebased is storage else pa.ExtensionArray.from_storage(data_type, rebased)
    if not pa.types.is_nested(data_type):
        return _rebase_leaf(array, calendar, what) if next(is_old) else array
    if pa.types.is_struct(data_type):
        before = [array.field(number) for number in range(data_type.num_fields)]
    else:
        before = [array.keys, array.items] if pa.types.is_map(data_type) else [array.values]
    after = [_rebase(child, calendar, is_old, what) for child in before]
    if all(one is other for one, other in zip(before, after, strict=True)):
        return array
    if not pa.types.is_struct(data_type):
        raise UnsupportedFeature(f"{what} has {_OLD}, inside a list or a map: {_REMEDY}")
    return pa.StructArray.from_arrays(after, fields=list(data_type), mask=array.is_null())


_OLD = "dates before 1582-10-15 in the Julian calendar, as Spark 2 wrote them"
_REMEDY = "write the file again with Spark 3 or newer"


def _rebase_leaf(array: pa.Array, calendar: LegacyCalendar, what: str) -> pa.Array:
    is_date = pa.types.is_date32(array.type)
    if not (is_date or pa.types.is_timestamp(array.type)):
        raise UnsupportedFeature(f"{what} has {_OLD}, as {types.type_name(array.type)}: {_REMEDY}")
    ticks = 1 if is_date else _get_ticks_per_day(array.type)
    values = array.view(pa.int32() if is_date else pa.int64())
    smallest = pc.min(values).as_py()
    # In another zone than UTC, the 15th began up to a day earlier or later.
    if smallest is None or smallest >= (FIRST_GREGORIAN_DAY + (0 if is_date or calendar.is_utc else 1)) * ticks:
        return array
    if not (is_date or calendar.is_utc):
        raise UnsupportedFeature(f"{what} has {_OLD}, and no recorded time zone: {_REMEDY}")
    days, rest = np.divmod(np.asarray(pc.fill_null(values, 0), np.int64), ticks)
    mask = np.asarray(array.is_null()) if array.null_count else None
    return pa.array(rebase_days(days) * ticks + rest, values.type, mask=mask).view(array.type)


def _get_ticks_per_day(data_type: pa.DataType) -> int:
    return 86_400 * types.UNITS_PER_SECOND[data_type.unit]
