"""Every small unit: all combinations of bounds and counts of a few values, and the values that each one admits.

Metadata admits a value if some rows with exactly this metadata contain it. So a unit may be skipped only if the
predicate is TRUE for no admitted value, and is fully matched only if it is TRUE for all of them. With complete
metadata a comparison skips exactly in this case. That is the contract, tested without a random choice.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from builders.values.by_type import make_array
from tamis.skipping.metadata import metadata_name

Mask = npt.NDArray[np.bool_]


class Statistics(NamedTuple):
    """The statistics of one column in a unit; None is unknown."""

    lower: Any
    upper: Any
    null_count: int | None
    nan_count: int | None


@dataclass(frozen=True)
class World:
    """The possible values of a column in ascending order, and the units over them."""

    type: pa.DataType
    values: tuple[Any, ...]

    @property
    def cells(self) -> tuple[Any, ...]:
        """The possible cells of a row: values, NaN and NULL."""
        return (*self.values, *((math.nan,) if pa.types.is_floating(self.type) else ()), None)

    def statistics(self, row_count: int | None, counts: Sequence[int | None]) -> Iterator[Statistics]:
        """Yield all statistics of a unit of so many rows."""
        pairs = [
            *itertools.combinations_with_replacement(self.values, 2),
            *((value, None) for value in self.values),
            *((None, value) for value in self.values),
            (None, None),
        ]
        nan_counts = counts if pa.types.is_floating(self.type) else [0]
        for (lower, upper), nulls, nans in itertools.product(pairs, counts, nan_counts):
            if row_count is None or (nulls or 0) + (nans or 0) <= row_count:
                yield Statistics(lower, upper, nulls, nans)

    def admits(self, found: Statistics, row_count: int | None, cell: Any) -> bool:
        """Return whether a row of the unit may have this cell."""
        nulls, nans = found.null_count or 0, found.nan_count or 0
        has_room = row_count is None or nulls + nans < row_count
        if cell is None:
            return nulls > 0 or (found.null_count is None and has_room)
        if cell != cell:
            return nans > 0 or (found.nan_count is None and has_room)
        return (
            has_room and (found.lower is None or found.lower <= cell) and (found.upper is None or cell <= found.upper)
        )

    def is_known(self, found: Statistics, row_count: int | None) -> bool:
        """Return whether the statistics are complete. Bounds count only if there is a value."""
        if row_count is None or found.null_count is None or found.nan_count is None:
            return False
        has_values = found.null_count + found.nan_count < row_count
        return not has_values or (found.lower is not None and found.upper is not None)

    def columns(self, name: str, found: Sequence[Statistics]) -> dict[str, pa.Array]:
        arrays = {
            metadata_name("lower", (name,)): make_array(self.type, [each.lower for each in found]),
            metadata_name("upper", (name,)): make_array(self.type, [each.upper for each in found]),
            metadata_name("null_count", (name,)): pa.array([each.null_count for each in found], pa.int64()),
        }
        if pa.types.is_floating(self.type):
            arrays[metadata_name("nan_count", (name,))] = pa.array([each.nan_count for each in found], pa.int64())
        return arrays


@dataclass(frozen=True)
class Units:
    """Units of one or two columns, the possible rows, and which unit admits which row."""

    batch: pa.RecordBatch
    rows: pa.Table
    admitted: Mask
    """One line for each row, one column for each unit."""
    known: Mask

    def some(self, wanted: Sequence[bool]) -> Mask:
        """Return which units admit at least one of the wanted rows."""
        return np.asarray(self.admitted[np.array(wanted, dtype=bool)].any(axis=0))


def make_units_of_one(world: World, counts: Sequence[int | None] = (None, 0, 1, 2)) -> Units:
    """Return all units of a column `x` with up to two rows."""
    found = [(each, rows) for rows in counts for each in world.statistics(rows, counts)]
    statistics = [each for each, _ in found]
    arrays = {"row_count": pa.array([rows for _, rows in found], pa.int64()), **world.columns("x", statistics)}
    return Units(
        pa.record_batch(arrays),
        pa.table({"x": make_array(world.type, list(world.cells))}),
        np.array([[world.admits(each, rows, cell) for each, rows in found] for cell in world.cells]),
        np.array([world.is_known(each, rows) for each, rows in found]),
    )


def make_units_of_two(left: World, right: World, counts: Sequence[int | None] = (None, 0, 1)) -> Units:
    """Return all units of the columns `x` and `y` with one row or an unknown number of rows."""
    found = [
        (one, other, rows)
        for rows in (1, None)
        for one, other in itertools.product(left.statistics(rows, counts), right.statistics(rows, counts))
    ]
    arrays = {
        "row_count": pa.array([rows for _, _, rows in found], pa.int64()),
        **left.columns("x", [one for one, _, _ in found]),
        **right.columns("y", [other for _, other, _ in found]),
    }
    cells = list(itertools.product(left.cells, right.cells))
    of_left = {cell: np.array([left.admits(one, rows, cell) for one, _, rows in found]) for cell in left.cells}
    of_right = {cell: np.array([right.admits(other, rows, cell) for _, other, rows in found]) for cell in right.cells}
    return Units(
        pa.record_batch(arrays),
        pa.table(
            {"x": make_array(left.type, [x for x, _ in cells]), "y": make_array(right.type, [y for _, y in cells])}
        ),
        np.array([of_left[x] & of_right[y] for x, y in cells]),
        np.array([left.is_known(one, rows) and right.is_known(other, rows) for one, other, rows in found]),
    )
