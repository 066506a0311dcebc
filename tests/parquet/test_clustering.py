"""The overlap of ranges: for layouts with a known answer, and its distance from the true overlap."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.parquet.inspection.clustering import Clustering, measure_clustering, measure_overlap

PAGES, ROWS = 200, 500


def compute_overlap(ranges: list[tuple[Any, Any]], data_type: pa.DataType | None = None) -> float | None:
    lower, upper = (pa.array(bounds, data_type) for bounds in zip(*ranges, strict=True))
    return measure_overlap(lower, upper, np.zeros(len(ranges), np.bool_))


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([(1, 4), (4, 8), (9, 9)], 1 / 3),
        ([(1, 9), (2, 8), (1, 9)], 1),
        ([(1, 5), (3, 9), (7, 9)], 2 / 3),
        ([(5, 5)], 1),
        ([(5, 5), (5, 5)], 1),
        ([(1, 2), (3, 4)], 1 / 2),
        ([(3, 4), (1, 2)], 1 / 2),
        # Neighbours share the value 5: a search for 5 reads both.
        ([(5, 5), (5, 5), (6, 6), (6, 6)], 1 / 2),
        # A constant page is inside the range of the only other page.
        ([(1, 9), (5, 5)], 1),
        # One outlier adds one page to every value.
        ([(1, 2), (3, 4), (5, 6), (0, 9)], 2 / 4),
    ],
)
def test_overlap_of_simple_layouts(ranges: list[tuple[int, int]], expected: float) -> None:
    assert compute_overlap(ranges) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("ranges", "data_type"),
    [
        ([("a", "b"), ("b", "c"), ("x", "x")], pa.string()),
        ([(b"a", b"b"), (b"b", b"\xff"), (b"\xff\x00", b"\xff\x01")], pa.binary()),
        ([(b"ab", b"ac"), (b"ad", b"ae"), (b"af", b"ff")], pa.binary(2)),
        (
            [(Decimal("1.5"), Decimal("2")), (Decimal("2"), Decimal("3")), (Decimal("4"), Decimal("5"))],
            pa.decimal128(9, 2),
        ),
        ([(datetime.date(2024, 1, day), datetime.date(2024, 1, day)) for day in (3, 1, 2)], pa.date32()),
        ([(1, 2), (2, 3), (3, 4)], pa.timestamp("us", "UTC")),
        ([(1, 2), (2, 3), (3, 4)], pa.duration("ms")),
        ([(1, 2), (2, 3), (2**64 - 1, 2**64 - 1)], pa.uint64()),
        ([(1.5, 2.0), (2.0, float("inf")), (-float("inf"), 0.0)], pa.float32()),
    ],
    ids=lambda given: str(given) if isinstance(given, pa.DataType) else "",
)
def test_every_ordered_type_is_measured_by_its_order(ranges: list[tuple[Any, Any]], data_type: pa.DataType) -> None:
    assert compute_overlap(ranges, data_type) == pytest.approx(1 / 3)


def make_layouts() -> dict[str, npt.NDArray[Any]]:
    random = np.random.default_rng(7)
    count = PAGES * ROWS
    shuffled = random.normal(size=(PAGES, ROWS))
    late = np.arange(count) - random.pareto(1.5, count) * 50
    return {
        "sorted": np.sort(shuffled.ravel()).reshape(PAGES, ROWS),
        "sorted, few values": np.sort(random.integers(0, 5, count)).reshape(PAGES, ROWS),
        "shuffled": shuffled,
        "shuffled, skewed": random.zipf(1.5, (PAGES, ROWS)),
        "shuffled, few values": random.integers(0, 5, (PAGES, ROWS)),
        "eight sorted runs": np.sort(random.normal(size=(8, count // 8)), axis=1).reshape(PAGES, ROWS),
        "half of it sorted": np.concatenate([np.sort(shuffled[:100].ravel()), shuffled[100:].ravel()]).reshape(
            PAGES, ROWS
        ),
        "rows come late": late.reshape(PAGES, ROWS),
        "descending": np.sort(shuffled.ravel())[::-1].reshape(PAGES, ROWS),
    }


@pytest.mark.parametrize("name", make_layouts())
def test_estimate_is_near_the_share_of_pages_that_hold_a_value(name: str) -> None:
    pages = make_layouts()[name]
    lows, highs = pages.min(axis=1), pages.max(axis=1)
    values = np.random.default_rng(1).choice(pages.ravel(), 2_000)
    true = ((lows <= values[:, None]) & (values[:, None] <= highs)).mean()
    found = measure_overlap(pa.array(lows), pa.array(highs), np.zeros(PAGES, np.bool_))
    assert found == pytest.approx(true, rel=0.3)


def test_pages_of_unknown_bounds_count_as_holding_everything() -> None:
    lower, upper = pa.array([1, 3, None, 7]), pa.array([2, 4, 6, None])
    assert measure_overlap(lower, upper, np.zeros(4, np.bool_)) == pytest.approx(3 / 4)


def test_pages_without_values_do_not_count() -> None:
    lower, upper = pa.array([1, None, 3]), pa.array([2, None, 4])
    found = measure_clustering(lower, upper, np.array([False, True, False]), "pages")
    assert found == Clustering("pages", 2, 0.5)
    assert found.units_per_value == 1


def test_nothing_is_measured_without_bounds() -> None:
    nothing = pa.nulls(3, pa.int64())
    assert measure_clustering(nothing, nothing, np.zeros(3, np.bool_), "pages") is None
    assert measure_clustering(pa.nulls(0), pa.nulls(0), np.zeros(0, np.bool_), "row_groups") is None


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted).map(tuple), min_size=1, max_size=12))
def test_overlap_is_between_one_page_and_all_and_independent_of_page_order(ranges: list[tuple[int, int]]) -> None:
    found = compute_overlap(ranges)
    assert found is not None
    assert 1 / len(ranges) - 1e-9 <= found <= 1
    assert compute_overlap(ranges[::-1]) == pytest.approx(found)
    assert compute_overlap([(-high, -low) for low, high in ranges]) == pytest.approx(found)
    # The overlap is at most the share of pages that may hold the most common value.
    most = max(sum(low <= value <= high for low, high in ranges) for value in (v / 2 for v in range(42)))
    assert found <= most / len(ranges) + 1e-9
