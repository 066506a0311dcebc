"""Measures answered from the metadata of units that match whole, and units that cannot change an answer.

| measure  | answered where                                                                                    |
|----------|---------------------------------------------------------------------------------------------------|
| count(*) | the number of rows that are left after deletes is known                                           |
| count(c) | so it is, and c is NULL nowhere, or everywhere, or nothing was deleted and the NULLs are counted   |
| min(c)   | nothing was deleted, and the lower bound is the value of some row; or there is no value           |
| max(c)   | alike for the upper bound, and of floats it is known how many NaN there are                       |
| sum(c)   | nothing was deleted, both bounds are values, the same, and the NULLs are counted; or there is no   |
|          | value. Not of floats: a product is rounded otherwise than a sum                                   |

Bounds that were cut short, or that are a guess of a writer, are not exact and answer nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.nodes import Column
from tamis.scan.aggregation.measures import Measure
from tamis.skipping.metadata import ROW_COUNT, metadata_name

Bits = npt.NDArray[np.bool_]

_NONE = pa.scalar(0, types.LONG)


@dataclass(frozen=True)
class KnownUnits:
    """Files or row groups, and what metadata tells of them; one Arrow row each."""

    rows: pa.Array
    """The rows that are left after deletes; null where that is not known."""
    metadata: Mapping[str, pa.Array]
    """As `tamis.skipping.metadata` lays it out: of all rows, deleted ones included."""
    constants: Mapping[Column, pa.Array] = field(default_factory=dict)
    """The values of columns that have one throughout each unit, as partition columns do; deletes do not change them."""

    def get(self, kind: str, column: Column, data_type: pa.DataType) -> pa.Array:
        """A piece of metadata, null where it is not known."""
        constant = self._of_constant(kind, column)
        if constant is not None:
            return constant
        found = self.metadata.get(metadata_name(kind, column.path))
        return pa.nulls(len(self.rows), data_type) if found is None or found.type != data_type else found

    def _of_constant(self, kind: str, column: Column) -> pa.Array | None:
        values = self.constants.get(column)
        if values is None:
            return None
        is_nan = pc.fill_null(pc.is_nan(values), False) if pa.types.is_floating(values.type) else _never(values)
        match kind:
            case "null_count":
                return pc.if_else(values.is_null(), self.rows, _NONE)
            case "nan_count":
                return pc.if_else(is_nan, self.rows, _NONE)
            case "lower" | "upper":
                return pc.if_else(is_nan, pa.scalar(None, values.type), values)
            case _:
                return pc.and_not(values.is_valid(), is_nan)

    def _all_rows(self, column: Column) -> pa.Array:
        """The rows that metadata of a column is about."""
        if column in self.constants:
            return self.rows
        found = self.metadata.get(ROW_COUNT.name)
        return pa.nulls(len(self.rows), types.LONG) if found is None else found

    def _is_complete(self, column: Column) -> pa.BooleanArray:
        """Whether it is known that metadata is about the very rows that are left."""
        return pc.fill_null(pc.equal(self.rows, self._all_rows(column)), False)

    def answer(self, measure: Measure) -> tuple[dict[str, pa.Array], Bits]:
        """The values of a measure, with the NaN among them counted, and for which units they are the answer."""
        if measure.column is None:
            return {"value": self.rows}, _bits(self.rows.is_valid())
        if measure.function == "count":
            return self._count(measure.column)
        if measure.function == "sum":
            return self._sum(measure)
        return self._extreme(measure)

    def _count(self, column: Column) -> tuple[dict[str, pa.Array], Bits]:
        nulls = self.get("null_count", column, types.LONG)
        is_counted = pc.fill_null(pc.and_(self._is_complete(column), nulls.is_valid()), False)
        has_none = pc.fill_null(pc.equal(nulls, 0), False)
        values = pc.if_else(
            self._has_no_value(column),
            _NONE,
            pc.if_else(has_none, self.rows, pc.if_else(is_counted, pc.subtract(self.rows, nulls), None)),
        )
        return {"value": values}, _bits(values.is_valid())

    def _extreme(self, measure: Measure) -> tuple[dict[str, pa.Array], Bits]:
        assert measure.column is not None
        kind = "lower" if measure.function == "min" else "upper"
        bounds = self.get(kind, measure.column, measure.type)
        is_exact = pc.fill_null(self.get(f"{kind}_exact", measure.column, types.BOOLEAN), False)
        is_empty = self._has_no_value(measure.column)
        is_known = pc.and_(pc.and_(is_exact, bounds.is_valid()), self._is_complete(measure.column))
        values = pc.if_else(is_empty, pa.scalar(None, measure.type), bounds)
        if not measure.counts_nan:
            return {"value": values}, _bits(pc.or_(is_empty, is_known))
        nans = self.get("nan_count", measure.column, types.LONG)
        if measure.function == "max":
            is_known = pc.and_(is_known, nans.is_valid())
        # Where there is a number the smallest is one, however many NaN there are.
        counted = pc.if_else(is_empty, _NONE, pc.fill_null(nans, 0))
        return {"value": values, "nan": counted}, _bits(pc.or_(is_empty, is_known))

    def _sum(self, measure: Measure) -> tuple[dict[str, pa.Array], Bits]:
        """What the one value of a unit adds up to."""
        column = measure.column
        assert column is not None
        assert column.type is not None
        is_empty = self._has_no_value(column)
        nothing = pa.nulls(len(self.rows), measure.type)
        if pa.types.is_floating(measure.type):
            return {"value": nothing}, _bits(is_empty)
        lower, upper = (self.get(kind, column, column.type) for kind in ("lower", "upper"))
        count = self._count(column)[0]["value"]
        is_known = pc.and_(pc.fill_null(pc.equal(lower, upper), False), count.is_valid())
        for kind in ("lower_exact", "upper_exact"):
            is_known = pc.and_(is_known, pc.fill_null(self.get(kind, column, types.BOOLEAN), False))
        is_known = pc.and_(is_known, self._is_complete(column))
        product = pc.multiply(lower.cast(_wide(column.type)), count.cast(_wide(types.LONG)))
        values = pc.if_else(is_empty, nothing, product.cast(measure.type))
        return {"value": values}, _bits(pc.or_(is_empty, is_known))

    def _has_no_value(self, column: Column) -> pa.BooleanArray:
        """Whether a column is NULL in all rows; deletes do not change that."""
        nulls = self.get("null_count", column, types.LONG)
        all_null = pc.equal(nulls, self._all_rows(column))
        return pc.fill_null(pc.or_kleene(all_null, pc.equal(self.rows, 0)), False)

    def without_values(self, column: Column) -> Bits:
        """In which units a column is known to be NULL in all rows."""
        return _bits(self._has_no_value(column))

    def cannot_change(self, measures: Sequence[Measure], best: Sequence[pa.Scalar]) -> Bits:
        """Which units leave the smallest and largest values as they are, whatever rows of them count.

        `best` has what is found so far: NULL for nothing yet, NaN for a maximum that nothing exceeds.
        """
        found = np.ones(len(self.rows), bool)
        for measure, own in zip(measures, best, strict=True):
            found &= _bits(self._cannot_change(measure, own))
        return found

    def best_first(self, measures: Sequence[Measure]) -> npt.NDArray[np.int64]:
        """The units in an order in which those come first that may have the smallest, or the largest, of something."""
        places = np.full(len(self.rows), len(self.rows), np.int64)
        for measure in measures:
            assert measure.column is not None
            is_smallest = measure.function == "min"
            bounds = self.get("lower" if is_smallest else "upper", measure.column, measure.type)
            # What is not known may be anything, and what has no bound costs no more to look at later.
            order = pc.array_sort_indices(bounds, order="ascending" if is_smallest else "descending").to_numpy()
            own = np.empty(len(order), np.int64)
            own[order] = np.arange(len(order))
            places = np.minimum(places, own)
        return np.argsort(places, kind="stable")

    def _cannot_change(self, measure: Measure, best: pa.Scalar) -> pa.BooleanArray:
        assert measure.column is not None
        is_empty = self._has_no_value(measure.column)
        if not best.is_valid:
            return is_empty
        if measure.counts_nan and bool(np.isnan(best.as_py())):
            everything = pa.repeat(pa.scalar(measure.function == "max"), len(self.rows))
            return pc.or_(is_empty, everything)
        if measure.function == "min":
            is_beaten = pc.greater_equal(self.get("lower", measure.column, measure.type), best)
        else:
            is_beaten = pc.less_equal(self.get("upper", measure.column, measure.type), best)
            if measure.counts_nan:
                is_beaten = pc.and_kleene(is_beaten, pc.equal(self.get("nan_count", measure.column, types.LONG), 0))
        return pc.or_(is_empty, pc.fill_null(is_beaten, False))


def _wide(data_type: pa.DataType) -> pa.DataType:
    """The type of numbers whose product with another one has room in 76 digits."""
    return pa.decimal256(19, data_type.scale if pa.types.is_decimal(data_type) else 0)


def _never(values: pa.Array) -> pa.BooleanArray:
    return pa.repeat(pa.scalar(False), len(values))


def _bits(values: pa.BooleanArray) -> Bits:
    return np.asarray(values, bool) if len(values) else np.zeros(0, bool)
