"""Statistics of files, aggregated from those of their row groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis.index.collect import FileAggregator
from tamis.index.spec import IndexedColumn

CASES: dict[str, tuple[list[tuple[int, int | None, Any, Any, bool | None]], tuple[Any, ...]]] = {
    # row groups: rows, NULLs, lower, upper, whether they are exact      of the file: the same
    "one": ([(3, 1, 2, 5, True)], (3, 1, 2, 5, True)),
    "smallest and largest": ([(3, 0, 2, 5, False), (3, 1, 1, 9, True)], (6, 1, 1, 9, True)),
    "N5 a row group of nothing but NULL has no bounds": (
        [(3, 3, None, None, None), (2, 0, 7, 8, True)],
        (5, 3, 7, 8, True),
    ),
    "all NULL": ([(3, 3, None, None, None), (2, 2, None, None, None)], (5, 5, None, None, None)),
    "P8 bounds of some row groups only": ([(3, 0, None, None, None), (2, 0, 7, 8, True)], (5, 0, None, None, None)),
    "N1 NULLs that were not counted": ([(3, None, 1, 2, True), (2, 0, 7, 8, True)], (5, None, 1, 8, True)),
    "no bounds, and who knows whether all is NULL": (
        [(3, None, None, None, None), (2, 0, 7, 8, True)],
        (5, None, None, None, None),
    ),
    "a row group without rows": ([(0, 0, None, None, None), (2, 0, 7, 8, True)], (2, 0, 7, 8, True)),
    "no row group": ([], (0, 0, None, None, None)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_file_is_described_by_its_row_groups(name: str) -> None:
    # Between two other files, whose statistics must not mix with it.
    around = [(4, 0, -100, 100, True)]
    groups, expected = CASES[name]
    described = [*around, *groups, *around]
    column = IndexedColumn(("v",), ("v",), pa.int64())
    found = FileAggregator(np.array([1, len(groups), 1])).aggregate(
        {
            "row_count": pa.array([each[0] for each in described], pa.int64()),
            "null_count:v": pa.array([each[1] for each in described], pa.int64()),
            "lower:v": pa.array([each[2] for each in described], pa.int64()),
            "upper:v": pa.array([each[3] for each in described], pa.int64()),
            "lower_exact:v": pa.array([each[4] for each in described], pa.bool_()),
            "upper_exact:v": pa.array([each[4] for each in described], pa.bool_()),
        },
        (column,),
    )
    kinds = ("row_count", "null_count:v", "lower:v", "upper:v", "lower_exact:v")
    assert tuple(found[kind][1].as_py() for kind in kinds) == expected
    assert [found["lower:v"][file].as_py() for file in (0, 2)] == [-100, -100]


def test_F3_nan_that_was_not_counted_in_one_row_group_is_not_counted() -> None:
    column = IndexedColumn(("v",), ("v",), pa.float64())
    groups = {
        "row_count": pa.array([2, 2, 2]),
        "null_count:v": pa.array([0, 0, 1]),
        "nan_count:v": pa.array([1, None, 1]),
        "lower:v": pa.array([1.0, -0.0, None]),
        "upper:v": pa.array([1.0, 0.0, None]),
    }
    found = FileAggregator(np.array([2, 1])).aggregate(groups, (column,))
    assert found["nan_count:v"].to_pylist() == [None, 1]
    assert found["lower:v"].to_pylist() == [-0.0, None]


@pytest.mark.parametrize("data_type", [pa.float16(), pa.decimal32(5, 2), pa.decimal64(12, 2), pa.binary(2)])
def test_types_that_arrow_cannot_sort_have_bounds_too(data_type: pa.DataType) -> None:
    values = (
        pa.array([b"bb", b"aa"], data_type)
        if pa.types.is_fixed_size_binary(data_type)
        else pa.array([2.0, 1.0]).cast(data_type)
    )
    groups = {"row_count": pa.array([1, 1]), "null_count:v": pa.array([0, 0]), "lower:v": values, "upper:v": values}
    found = FileAggregator(np.array([2])).aggregate(groups, (IndexedColumn(("v",), ("v",), data_type),))
    assert (found["lower:v"][0], found["upper:v"][0]) == (values[1], values[0])
