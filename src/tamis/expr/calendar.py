"""Dates and timestamps plus intervals. Months are of different length, so they are added before days and time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import EvaluationError
from tamis.types import UNITS_PER_SECOND

NANOSECONDS_PER_DAY = 86_400_000_000_000


def add_interval(value: pa.Array | pa.Scalar, interval: pa.Scalar, sign: int) -> pa.Array | pa.Scalar:
    """A date or a timestamp plus (or minus) an interval; the 31st plus a month is the last day of a shorter month."""
    months, days, nanoseconds = (sign * part for part in interval.as_py())
    if isinstance(value, pa.Scalar):
        return _add(pa.array([value.as_py()] if not value.is_valid else [_integer(value)], _integer_type(value.type)),
                    value.type, months, days, nanoseconds)[0]  # fmt: skip
    return _add(value.view(_integer_type(value.type)), value.type, months, days, nanoseconds)


def _integer_type(data_type: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_date32(data_type) else pa.int64()


def _integer(value: pa.Scalar) -> int:
    return int(value.value if isinstance(value, pa.TimestampScalar) else value.cast(pa.int32()).as_py())


def _add(counts: pa.Array, data_type: pa.DataType, months: int, days: int, nanoseconds: int) -> pa.Array:
    per_day = 1 if pa.types.is_date(data_type) else 86_400 * UNITS_PER_SECOND[data_type.unit]
    step, rest = divmod(days * NANOSECONDS_PER_DAY + nanoseconds, NANOSECONDS_PER_DAY // per_day)
    if rest:
        raise EvaluationError(f"an interval of {nanoseconds} nanoseconds is finer than {data_type} can hold")
    valid = counts.is_valid().to_numpy(zero_copy_only=False)
    numbers = np.asarray(pc.fill_null(counts, 0)).astype(np.int64)
    if months:
        numbers = _add_months(numbers, per_day, months)
    moved = numbers + step
    if ((moved > numbers) != (step > 0)).any() and step:
        raise EvaluationError(f"adding an interval leaves the range of {data_type}")
    return pa.array(moved, mask=~valid).cast(counts.type).view(data_type)


def _add_months(counts: np.ndarray[Any, Any], per_day: int, months: int) -> np.ndarray[Any, Any]:
    days, time = np.divmod(counts, per_day)
    dates = days.astype("datetime64[D]")
    month = dates.astype("datetime64[M]")
    day_of_month = (dates - month.astype("datetime64[D]")).astype(np.int64)
    target = month + np.timedelta64(months, "M")
    first_day = target.astype("datetime64[D]").astype(np.int64)
    length = (target + np.timedelta64(1, "M")).astype("datetime64[D]").astype(np.int64) - first_day
    moved: np.ndarray[Any, Any] = (first_day + np.minimum(day_of_month, length - 1)) * per_day + time
    return moved
