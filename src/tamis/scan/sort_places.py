"""Where values stand in an order: segments of NULL, NaN and all others, and the n-th place so far.

| order             | segments, the first comes first  |
|-------------------|----------------------------------|
| ascending         | values, NaN                      |
| descending        | NaN, values from the largest     |
| NULL first, last  | NULL before, or after, all these |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis.expr.nodes import Column
from tamis.scan.known_units import KnownUnits

Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Order:
    """An order of the values of a column."""

    column: Column
    descending: bool
    nulls_first: bool

    @property
    def segments(self) -> dict[str, int]:
        values = ["nan", "value"] if self.descending else ["value", "nan"]
        names = ["null", *values] if self.nulls_first else [*values, "null"]
        return {name: place for place, name in enumerate(names)}

    @property
    def is_floating(self) -> bool:
        return bool(pa.types.is_floating(self.column.type))

    def is_nan(self, values: pa.Array) -> pa.BooleanArray:
        if not self.is_floating:
            return pa.repeat(pa.scalar(False), len(values))
        return pc.fill_null(pc.is_nan(values), False)

    def segment_of(self, values: pa.Array) -> npt.NDArray[np.int64]:
        """The segment in which each value is."""
        places = self.segments
        found = np.full(len(values), places["value"], np.int64)
        found[np.asarray(values.is_null(), bool)] = places["null"]
        found[np.asarray(self.is_nan(values), bool)] = places["nan"]
        return found

    def not_after(self, values: pa.Array, limit: pa.Scalar) -> Bits:
        """Which plain values stand at a value or before it; FALSE for NULL and NaN."""
        compare = pc.greater_equal if self.descending else pc.less_equal
        return np.asarray(pc.fill_null(pc.and_not(compare(values, limit), self.is_nan(values)), False), bool)

    def before(self, values: pa.Array, limit: pa.Scalar) -> Bits:
        """Which plain values stand before a value."""
        compare = pc.greater if self.descending else pc.less
        return np.asarray(pc.fill_null(pc.and_not(compare(values, limit), self.is_nan(values)), False), bool)


@dataclass(frozen=True, slots=True)
class Place:
    """A place in an order: a segment, and among plain values a value."""

    segment: int
    value: pa.Scalar | None


@dataclass(frozen=True)
class BestPlaces:
    """The best place that a row of each unit may have."""

    order: Order
    segments: npt.NDArray[np.int64]
    bounds: pa.Array
    """Among plain values; null where it is not known."""

    @staticmethod
    def of(order: Order, units: KnownUnits) -> BestPlaces:
        places = order.segments
        column = order.column
        kind = "upper" if order.descending else "lower"
        assert column.type is not None
        segments = np.full(len(units.rows), places["value"], np.int64)
        may_be_nan = _unless_none(units.get("nan_count", column, pa.int64())) if order.is_floating else None
        if may_be_nan is not None:
            segments[may_be_nan] = np.minimum(segments[may_be_nan], places["nan"])
        may_be_null = _unless_none(units.get("null_count", column, pa.int64()))
        segments[may_be_null] = np.minimum(segments[may_be_null], places["null"])
        segments[units.without_values(column)] = places["null"]
        return BestPlaces(order, segments, units.get(kind, column, column.type))

    def sorted(self) -> npt.NDArray[np.int64]:
        """The units, those with the best places first; unknown bounds may be the best."""
        direction = "descending" if self.order.descending else "ascending"
        is_known = self.bounds.is_valid().cast(pa.int8())
        table = pa.table({"segment": self.segments, "is_known": is_known, "bound": self.bounds})
        keys = [("segment", "ascending"), ("is_known", "ascending"), ("bound", direction)]
        found: npt.NDArray[np.int64] = pc.sort_indices(table, sort_keys=keys).to_numpy()
        return found.astype(np.int64)

    def may_reach(self, limit: Place | None, *, with_ties: bool) -> Bits:
        """Which units may have a row before a place, or with ties at it."""
        if limit is None:
            return np.ones(len(self.segments), bool)
        is_before: Bits = self.segments < limit.segment
        is_same: Bits = self.segments == limit.segment
        if limit.value is None:
            # All rows of such a segment are alike.
            return is_before | is_same if with_ties else is_before
        known = np.asarray(self.bounds.is_valid(), bool)
        compare = self.order.not_after if with_ties else self.order.before
        may_be_before: Bits = ~known | compare(self.bounds, limit.value)
        return is_before | (is_same & may_be_before)


class SmallestPlaces:
    """The best so many places of the rows that were seen."""

    def __init__(self, order: Order, count: int) -> None:
        self._order = order
        self._count = count
        self._values = pa.array([], order.column.type)
        self._others = {"nan": 0, "null": 0}

    def add(self, values: pa.Array) -> None:
        order = self._order
        is_nan = order.is_nan(values)
        self._others["null"] += values.null_count
        self._others["nan"] += is_nan.true_count
        plain = values.filter(pc.and_not(values.is_valid(), is_nan))
        direction = "descending" if order.descending else "ascending"
        both = pa.concat_arrays([self._values, plain])
        best = pc.array_sort_indices(both, order=direction).slice(0, self._count)
        self._values = both.take(best)

    def limit(self) -> Place | None:
        """The place of the last of them; None while there are fewer rows."""
        left = self._count
        for name, place in sorted(self._order.segments.items(), key=lambda each: each[1]):
            own = len(self._values) if name == "value" else self._others[name]
            if own >= left:
                return Place(place, self._values[left - 1] if name == "value" else None)
            left -= own
        return None

    def reaches(self, values: pa.Array) -> Bits:
        """Which rows stand before the last place, or at it."""
        limit = self.limit()
        if limit is None:
            return np.ones(len(values), bool)
        segments = self._order.segment_of(values)
        is_before: Bits = segments < limit.segment
        is_same: Bits = segments == limit.segment
        if limit.value is not None:
            is_same &= self._order.not_after(values, limit.value)
        return is_before | is_same


def _unless_none(counts: pa.Array) -> Bits:
    """Where there may be some: a count that is not known to be 0."""
    return ~np.asarray(pc.fill_null(pc.equal(counts, 0), False), bool)
