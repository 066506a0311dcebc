"""Axes: where values stand between 0 and 1, and the few that are written beside.

Numbers, dates and times stand where their size puts them. Texts and bytes have an order and no distances, so they stand
by their rank among all bounds that are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.parquet.clustering import rank_bounds

Positions = npt.NDArray[np.floating[Any]]
Tick = tuple[float, str]
"""A position and its label."""

MOST_TICKS = 7
LONGEST_LABEL = 24


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """The positions of the bounds of some ranges, and the ticks."""

    lower: Positions
    upper: Positions
    ticks: list[Tick]


def value_axis(lower: pa.Array, upper: pa.Array) -> Axis:
    """The axis for known bounds, of which there is at least one."""
    data_type = lower.type
    if types.is_text(data_type) or types.is_bytes(data_type):
        return _ranked(lower, upper)
    if pa.types.is_floating(data_type) or pa.types.is_decimal(data_type):
        return _floating(*(np.asarray(pc.cast(bounds, pa.float64(), safe=False)) for bounds in (lower, upper)))
    return _whole(lower, upper)


def row_ticks(rows: int) -> list[Tick]:
    """The ticks of an axis from the first row of a file to the end of the last."""
    return [(value / rows, f"{value:,}") for value in _whole_steps(0, rows)] if rows else []


# --- Texts -----------------------------------------------------------------------------------------------------------


def _ranked(lower: pa.Array, upper: pa.Array) -> Axis:
    first, last = rank_bounds(lower, upper)
    highest = int(last.max())
    scale = 1 / highest if highest else 1.0
    shift = 0.0 if highest else 0.5
    wanted = np.unique(np.linspace(0, highest, min(MOST_TICKS, highest + 1)).round().astype(np.int64))
    ranks, where = np.unique(np.concatenate([first, last]), return_index=True)
    bounds = pa.chunked_array([lower, upper]).combine_chunks()
    labels = bounds.take(pa.array(where[np.searchsorted(ranks, wanted)]))
    ticks = [(rank * scale + shift, _label(value)) for rank, value in zip(wanted.tolist(), labels, strict=True)]
    return Axis(first * scale + shift, last * scale + shift, ticks)


def _label(value: pa.Scalar) -> str:
    text = value.as_py()
    shown = text.hex() if isinstance(text, bytes) else text or "''"
    return shown if len(shown) <= LONGEST_LABEL else shown[: LONGEST_LABEL - 1] + "…"


# --- Fractions -------------------------------------------------------------------------------------------------------


def _floating(lower: Positions, upper: Positions) -> Axis:
    both = np.concatenate([lower, upper])
    finite = both[np.isfinite(both)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    # Halved, since the distance of the two may be more than there is.
    span = high / 2 - low / 2
    if not span > 0:
        # Infinities beside a single value.
        around = [(0.5, f"{low:g}")] if len(finite) else []
        sides = {-math.inf: 0.0, math.inf: 1.0}
        place = np.vectorize(lambda value: sides.get(value, 0.5), otypes=[np.float64])
        return Axis(place(lower), place(upper), around)

    def position(values: Positions) -> Positions:
        return np.clip((values / 2 - low / 2) / span, 0, 1)

    ticks = [(float(position(np.array([value]))[0]), text) for value, text in _fraction_steps(low, high)]
    return Axis(position(lower), position(upper), ticks)


def _fraction_steps(low: float, high: float) -> Iterator[tuple[float, str]]:
    rough = (high / MOST_TICKS) - (low / MOST_TICKS)
    if rough <= 0 or not math.isfinite(1 / rough):
        # So close together that nothing fits between.
        yield low, f"{low:g}"
        yield high, f"{high:g}"
        return
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    first = math.ceil(low / step)
    for number in range(first, first + MOST_TICKS + 2):
        value = number * step
        if value > high:
            return
        is_plain = digits <= 12 and abs(value) < 1e12
        yield value, f"{value + 0.0:,.{digits}f}" if is_plain else f"{value:.6g}"


# --- Whole numbers, dates, times -------------------------------------------------------------------------------------


def _whole(lower: pa.Array, upper: pa.Array) -> Axis:
    numbers = [_integers(bounds) for bounds in (lower, upper)]
    low, high = int(numbers[0].min()), int(numbers[1].max())
    if low == high:
        place = np.full(len(lower), 0.5)
        return Axis(place, place, [(0.5, text) for _, text in _ticks(low, high, lower.type)][:1])
    span = high - low

    def position(values: npt.NDArray[Any]) -> Positions:
        # A distance from the lowest always fits into 64 bits without a sign, and wraps around to it.
        lowest = np.array([low], values.dtype).view(np.uint64)
        return (values.view(np.uint64) - lowest).astype(np.float64) / span

    ticks = [((value - low) / span, text) for value, text in _ticks(low, high, lower.type)]
    return Axis(position(numbers[0]), position(numbers[1]), ticks)


def _integers(bounds: pa.Array) -> npt.NDArray[Any]:
    data_type = bounds.type
    if pa.types.is_temporal(data_type):
        bounds = bounds.view(pa.int32() if data_type.bit_width == 32 else pa.int64())
    kind = pa.uint64() if pa.types.is_unsigned_integer(data_type) else pa.int64()
    return np.asarray(pc.cast(bounds, kind))


def _ticks(low: int, high: int, data_type: pa.DataType) -> list[tuple[int, str]]:
    if pa.types.is_boolean(data_type):
        return [(value, str(bool(value)).lower()) for value in range(low, high + 1)]
    if pa.types.is_date(data_type):
        per_second = 1 / 86_400 if pa.types.is_date32(data_type) else 1_000
        return _time_ticks(low, high, "D" if pa.types.is_date32(data_type) else "ms", per_second)
    if pa.types.is_timestamp(data_type):
        return _time_ticks(low, high, data_type.unit, types.UNITS_PER_SECOND[data_type.unit])
    if pa.types.is_time(data_type):
        found = _time_ticks(low, high, data_type.unit, types.UNITS_PER_SECOND[data_type.unit])
        return [(value, text.rpartition(" ")[2]) for value, text in found]
    unit = f" {data_type.unit}" if pa.types.is_duration(data_type) else ""
    return [(value, f"{value:,}{unit}") for value in _whole_steps(low, high)]


def _whole_steps(low: int, high: int) -> list[int]:
    rough = max(1, -(-(high - low) // MOST_TICKS))
    power = 10 ** (len(str(rough)) - 1)
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first = -(-low // step) * step
    return list(range(first, high + 1, step)) or [low]


# --- The calendar ----------------------------------------------------------------------------------------------------

_STEPS = (
    *((10.0**-power * factor, 10 ** (9 - power) * factor, "ns") for power in range(9, 0, -1) for factor in (1, 2, 5)),
    *((count, count, "s") for count in (1, 2, 5, 10, 15, 30)),
    *((count * 60, count, "m") for count in (1, 2, 5, 10, 15, 30)),
    *((count * 3_600, count, "h") for count in (1, 2, 3, 6, 12)),
    *((count * 86_400, count, "D") for count in (1, 2, 5, 10)),
    *((count * 2_629_746, count, "M") for count in (1, 2, 3, 6)),
    *((10.0**power * factor * 31_556_952, 10**power * factor, "Y") for power in range(12) for factor in (1, 2, 5)),
)
"""How many seconds a step has, about, and what it is: a count of a unit of numpy's."""


def _time_ticks(low: int, high: int, unit: str, per_second: float) -> list[tuple[int, str]]:
    rough = (high - low) / per_second / MOST_TICKS
    _, count, step_unit = next((step for step in _STEPS if step[0] >= rough), _STEPS[-1])
    if low == high or not (_fits(low, unit, step_unit) and _fits(high, unit, step_unit)):
        return [(value, _time_text(value, unit)) for value in dict.fromkeys((low, high))]
    first, last = _recounted(low, unit, step_unit), _recounted(high, unit, step_unit)
    numbers = range(first // count * count, last + 1, count)
    ticks = [(_recounted(number, step_unit, unit), _time_text(number, step_unit)) for number in numbers]
    inside = [(value, text) for value, text in ticks if low <= value <= high]
    return inside or [(low, _time_text(low, unit))]


def _fits(value: int, unit: str, step_unit: str) -> bool:
    """Whether a time can be told in the unit of the steps: numpy counts in 64 bits and does not say where that ends."""
    if step_unit != "ns":
        return True
    nanoseconds = {"D": 86_400 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
    return abs(value) * nanoseconds < 2**63


def _recounted(value: int, unit: str, other_unit: str) -> int:
    """A count of a unit since 1970 as one of another unit, rounded down."""
    times = np.array([value], np.int64).astype(f"datetime64[{unit}]").astype(f"datetime64[{other_unit}]")
    return int(times.astype(np.int64)[0])


def _time_text(value: int, unit: str) -> str:
    shown = "m" if unit == "h" else unit
    time = np.array([value], np.int64).astype(f"datetime64[{unit}]").astype(f"datetime64[{shown}]")[0]
    text = str(time).replace("T", " ")
    return text.rstrip("0").rstrip(".") if "." in text else text
