"""Positions of values on an axis, and its labels."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis.scan.report.page_ranges_svg import MAX_TICKS, make_row_ticks, make_value_axis


def make_axis(ranges: list[tuple[Any, Any]], data_type: pa.DataType | None = None) -> Any:
    lower, upper = (pa.array(bounds, data_type) for bounds in zip(*ranges, strict=True))
    return make_value_axis(lower, upper)


def make_labels(ranges: list[tuple[Any, Any]], data_type: pa.DataType | None = None) -> list[str]:
    return [text for _, text in make_axis(ranges, data_type).ticks]


@pytest.mark.parametrize(
    ("ranges", "data_type", "expected"),
    [
        ([(0, 100)], pa.int64(), ["0", "20", "40", "60", "80", "100"]),
        ([(-5, 5)], pa.int8(), ["-4", "-2", "0", "2", "4"]),
        ([(1_000_000, 1_000_003)], pa.int32(), ["1,000,000", "1,000,001", "1,000,002", "1,000,003"]),
        ([(0.0, 1.0)], pa.float64(), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        ([(-0.001, 0.001)], pa.float32(), ["-0.0010", "-0.0005", "0.0000", "0.0005", "0.0010"]),
        ([(Decimal("0.5"), Decimal("3.5"))], pa.decimal128(9, 2), ["0.5", "1.0", "1.5", "2.0", "2.5", "3.0", "3.5"]),
        ([(False, True)], pa.bool_(), ["false", "true"]),
        ([("b", "d"), ("a", "c")], pa.string(), ["a", "b", "c", "d"]),
        ([(b"\x00", b"\xff")], pa.binary(), ["00", "ff"]),
        ([(0, 86_400 * 7)], pa.timestamp("s"), [f"1970-01-0{day}" for day in range(1, 9)]),
        ([(0, 6 * 3_600_000)], pa.timestamp("ms", "UTC"), [f"1970-01-01 0{hour}:00" for hour in range(7)]),
        ([(0, 5_000_000)], pa.time64("us"), ["00:00:00", "00:00:01", "00:00:02", "00:00:03", "00:00:04", "00:00:05"]),
        ([(0, 40)], pa.duration("ms"), ["0 ms", "10 ms", "20 ms", "30 ms", "40 ms"]),
        ([(0, 2)], pa.timestamp("ns"), ["1970-01-01 00:00:00", "1970-01-01 00:00:00.000000001",
                                       "1970-01-01 00:00:00.000000002"]),
    ],
    ids=lambda given: str(given) if isinstance(given, pa.DataType) else "",
)  # fmt: skip
def test_ticks_are_round_values(ranges: list[tuple[Any, Any]], data_type: pa.DataType, expected: list[str]) -> None:
    assert make_labels(ranges, data_type) == expected


def test_dates_have_ticks_at_months_and_years() -> None:
    days = [(datetime.date(2024, 1, 15), datetime.date(2024, 6, 20))]
    assert make_labels(days) == ["2024-02", "2024-03", "2024-04", "2024-05", "2024-06"]
    years = [(datetime.date(1990, 1, 1), datetime.date(2020, 1, 1))]
    assert make_labels(years) == ["1990", "1995", "2000", "2005", "2010", "2015", "2020"]


@pytest.mark.parametrize(
    ("ranges", "data_type"),
    [
        ([(-(2**63), 2**63 - 1)], pa.int64()),
        ([(0, 2**64 - 1)], pa.uint64()),
        ([(2**63 - 5, 2**63 - 1)], pa.int64()),
        ([(-1.7e308, 1.7e308)], pa.float64()),
        ([(5e-324, 1e-323)], pa.float64()),
        ([(1.0, 1.0000000000000002)], pa.float64()),
        ([(-(2**31), 2**31 - 1)], pa.date32()),
        ([(-(2**63) + 1, 2**63 - 1)], pa.timestamp("s")),
        ([(-(2**63) + 1, 2**63 - 1)], pa.timestamp("ns")),
        ([(2**62, 2**62 + 3)], pa.timestamp("us", "UTC")),
        ([(2**62, 2**62 + 3)], pa.timestamp("s")),
        ([(float("-inf"), float("inf"))], pa.float64()),
        ([(float("-inf"), 1.0), (2.0, float("inf"))], pa.float32()),
        ([("", "\U0010ffff" * 100)], pa.string()),
        ([(7, 7)], pa.int64()),
        ([(7.5, 7.5)], pa.float64()),
        ([("x", "x")], pa.string()),
        ([(3, 3)], pa.timestamp("us")),
    ],
    ids=str,
)
def test_extremes_are_inside_of_the_axis_and_have_few_ticks(
    ranges: list[tuple[Any, Any]], data_type: pa.DataType
) -> None:
    axis = make_axis(ranges, data_type)
    for positions in (axis.lower, axis.upper):
        assert ((positions >= 0) & (positions <= 1)).all()
    assert (axis.lower <= axis.upper).all()
    assert len(axis.ticks) <= MAX_TICKS + 2
    assert all(-1e-9 <= position <= 1 + 1e-9 for position, _ in axis.ticks)
    assert all(len(text) <= 40 for _, text in axis.ticks)


def test_numbers_are_placed_by_size_and_texts_by_rank() -> None:
    numbers = make_axis([(0, 10), (5, 100)], pa.int64())
    assert np.asarray(numbers.lower).tolist() == pytest.approx([0, 0.05])
    assert np.asarray(numbers.upper).tolist() == pytest.approx([0.1, 1])
    texts = make_axis([("a", "b"), ("b", "zzz")], pa.string())
    assert np.asarray(texts.lower).tolist() == pytest.approx([0, 0.5])
    assert np.asarray(texts.upper).tolist() == pytest.approx([0.5, 1])


def test_neighbouring_large_numbers_are_distinguished() -> None:
    axis = make_axis([(2**62, 2**62 + 1), (2**62 + 1, 2**62 + 2)], pa.int64())
    assert np.asarray(axis.lower).tolist() == pytest.approx([0, 0.5])


def test_rows_have_ticks_from_the_first_to_the_last() -> None:
    assert make_row_ticks(1_000)[0] == (0.0, "0")
    assert make_row_ticks(1_000)[-1] == (1.0, "1,000")
    assert make_row_ticks(0) == []
