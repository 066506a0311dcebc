"""Calendar arithmetic on dates and timestamps: extracting parts, truncating to periods, adding intervals.

Arrow supports the years -32767 to 32767 and wraps around silently outside of them, so that a bound of "infinity", as
DuckDB writes it, would turn into some ordinary year. numpy computes such values, because it has no such limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import EvaluationError
from tamis.types import UNITS_PER_SECOND

Value: TypeAlias = pa.Array | pa.Scalar
Counts: TypeAlias = np.ndarray[Any, Any]

NANOSECONDS_PER_DAY = 86_400_000_000_000
_LARGEST = 2**63 - 1
_ARROW_RANGE = 30_000 * 365
"""Days from the epoch within which Arrow's calendar is correct."""
_LONGEST_PERIOD = 366
_OUT_OF_RANGE = "a date or timestamp is out of the range of 64 bits"


# --- Parts and periods ----------------------------------------------------------------------------------------------


def extract_part(value: Value, part: str) -> Value:
    """Extract the year, month, day of the month, hour or minute as int64."""
    by_arrow, by_numpy = _PARTS[part]
    if not _is_beyond_arrow(value):
        return pc.cast(by_arrow(value), pa.int64())
    per_day = _get_units_per_day(value.type)
    return _apply_to_counts(value, lambda counts: by_numpy(*np.divmod(counts, per_day), per_day), pa.int64())


def truncate_to_unit(value: Value, unit: str) -> Value:
    if not _is_beyond_arrow(value):
        return pc.floor_temporal(value, unit=unit)
    per_day = _get_units_per_day(value.type)
    first_day = _FIRST_DAYS.get(unit)
    if first_day is not None:
        return _apply_to_counts(value, lambda counts: _multiply(first_day(counts // per_day), per_day), value.type)
    step = max(1, per_day // _PERIODS_PER_DAY[unit])
    return _apply_to_counts(value, lambda counts: _multiply(counts // step, step), value.type)


def cast_to_date(value: Value) -> Value:
    if not _is_beyond_arrow(value):
        return pc.cast(value, pa.date32())
    return _apply_to_counts(value, lambda counts: counts // _get_units_per_day(value.type), pa.date32())


def cast_to_unit(value: Value, unit: str) -> Value:
    """Return timestamps in another unit, rounded towards the past and not towards 1970."""
    ratio, rest = divmod(UNITS_PER_SECOND[value.type.unit], UNITS_PER_SECOND[unit])
    target = pa.timestamp(unit)
    return pc.cast(value, target) if rest else _apply_to_counts(value, lambda counts: counts // ratio, target)


def _is_beyond_arrow(value: Value) -> bool:
    """Return whether some value, or the start of its year, may be out of the range of Arrow's calendar."""
    per_day = _get_units_per_day(value.type)
    limit = min(_ARROW_RANGE, _LARGEST // per_day - _LONGEST_PERIOD) * per_day
    if isinstance(value, pa.Scalar):
        return value.is_valid and not -limit <= int(value.value) <= limit
    extremes = pc.min_max(value.view(_choose_integer_type(value.type))).as_py()
    return extremes["min"] is not None and not (-limit <= extremes["min"] and extremes["max"] <= limit)


def _to_years(days: Counts) -> Counts:
    return days.astype("datetime64[D]").astype("datetime64[Y]").astype(np.int64)


def _to_months(days: Counts) -> Counts:
    return days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def _find_first_day_of_month(months: Counts) -> Counts:
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


# Each part as Arrow computes it, and as numpy computes it from the day, the time of day and the length of a day.
_PARTS: dict[str, tuple[Callable[[Value], Value], Callable[[Counts, Counts, int], Counts]]] = {
    "year": (pc.year, lambda days, time, per_day: _to_years(days) + 1970),
    "month": (pc.month, lambda days, time, per_day: _to_months(days) % 12 + 1),
    "day": (pc.day, lambda days, time, per_day: days - _find_first_day_of_month(_to_months(days)) + 1),
    "hour": (pc.hour, lambda days, time, per_day: time // (per_day // 24)),
    "minute": (pc.minute, lambda days, time, per_day: time // (per_day // 1440) % 60),
}

# The epoch was a Thursday, three days after a Monday.
_FIRST_DAYS: dict[str, Callable[[Counts], Counts]] = {
    "year": lambda days: _find_first_day_of_month(_to_years(days) * 12),
    "quarter": lambda days: _find_first_day_of_month(_to_months(days) // 3 * 3),
    "month": lambda days: _find_first_day_of_month(_to_months(days)),
    "week": lambda days: (days + 3) // 7 * 7 - 3,
    "day": lambda days: days,
}

_PERIODS_PER_DAY = {"hour": 24, "minute": 1440, "second": 86_400} | {
    name: 86_400 * UNITS_PER_SECOND[unit] for name, unit in (("millisecond", "ms"), ("microsecond", "us"))
}


# --- Intervals ------------------------------------------------------------------------------------------------------


def add_interval(value: Value, interval: pa.Scalar, sign: int) -> Value:
    """Add an interval to dates or timestamps, or subtract it; the 31st plus a month is the last day of a shorter month.

    Months differ in length, so they are added before days and time.
    """
    months, days, nanoseconds = (sign * part for part in interval.as_py())
    data_type = value.type
    per_day = _get_units_per_day(data_type)
    step, rest = divmod(days * NANOSECONDS_PER_DAY + nanoseconds, NANOSECONDS_PER_DAY // per_day)
    if abs(step) > _LARGEST:
        raise EvaluationError(f"an interval of {days} days is longer than {data_type} can hold")
    if rest:
        raise EvaluationError(f"an interval of {nanoseconds} nanoseconds is finer than {data_type} can hold")

    def shift(counts: Counts) -> Counts:
        before = _add_months(counts, per_day, months) if months else counts
        after: Counts = before + step
        if step and ((after > before) != (step > 0)).any():
            raise EvaluationError(f"adding an interval leaves the range of {data_type}")
        return after

    return _apply_to_counts(value, shift, data_type)


def _add_months(counts: Counts, per_day: int, months: int) -> Counts:
    days, time = np.divmod(counts, per_day)
    month = _to_months(days)
    first_day, next_first_day = _find_first_day_of_month(month + months), _find_first_day_of_month(month + months + 1)
    day_of_month = days - _find_first_day_of_month(month)
    midnight = _multiply(first_day + np.minimum(day_of_month, next_first_day - first_day - 1), per_day)
    if (midnight > _LARGEST - time).any():
        raise EvaluationError(_OUT_OF_RANGE)
    return midnight + time


# --- Numbers --------------------------------------------------------------------------------------------------------


def _get_units_per_day(data_type: pa.DataType) -> int:
    return 1 if pa.types.is_date(data_type) else 86_400 * UNITS_PER_SECOND[data_type.unit]


def _choose_integer_type(data_type: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_date32(data_type) else pa.int64()


def _apply_to_counts(value: Value, compute: Callable[[Counts], Counts], target: pa.DataType) -> Value:
    """Apply a function to the counts of units since the epoch, which represent dates and timestamps."""
    if isinstance(value, pa.Scalar):
        counts = pa.array([value.value if value.is_valid else None], _choose_integer_type(value.type))
        return _apply_to_counts(counts.view(value.type), compute, target)[0]
    valid = value.is_valid().to_numpy(zero_copy_only=False)
    counts = np.asarray(pc.fill_null(value.view(_choose_integer_type(value.type)), 0)).astype(np.int64)
    # The cast raises for values that do not fit in 32 bits.
    return pa.array(compute(counts), pa.int64(), mask=~valid).cast(_choose_integer_type(target)).view(target)


def _multiply(numbers: Counts, factor: int) -> Counts:
    if (np.abs(numbers) > _LARGEST // factor).any():
        raise EvaluationError(_OUT_OF_RANGE)
    product: Counts = numbers * factor
    return product
