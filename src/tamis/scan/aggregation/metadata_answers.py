"""Measures answered from the metadata of fully matched units, and units that cannot change an answer.

| measure  | answered if                                                                                       |
|----------|---------------------------------------------------------------------------------------------------|
| count(*) | the row count after deletes is known                                                              |
| count(c) | the same, and c is NULL in no row, or in all, or there are no deletes and the null count is known |
| min(c)   | there are no deletes, and the lower bound is exact; or all values are NULL                        |
| max(c)   | the same for the upper bound, and for floats the NaN count is known                               |
| sum(c)   | there are no deletes, both bounds are exact and equal, and the null count is known; or all values |
|          | are NULL. Not for floats: a product rounds differently than a sum                                 |

Bounds that are truncated, or that a writer estimated, are inexact and answer nothing.
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
from tamis.formats.source import FileListing
from tamis.scan.aggregation.measures import Measure
from tamis.scan.planning.row_groups import RowGroups
from tamis.skipping.metadata import ROW_COUNT, make_constant_bounds, metadata_name, metadata_names

Bits = npt.NDArray[np.bool_]

_ZERO = pa.scalar(0, types.LONG)


@dataclass(frozen=True)
class MetadataAnswers:
    """Metadata of files or row groups, one Arrow row each, that answers measures."""

    rows: pa.Array
    """The row counts after deletes; null if unknown."""
    metadata: Mapping[str, pa.Array]
    """In the layout of `tamis.skipping.metadata`, over all rows, deleted ones included."""
    constants: Mapping[Column, pa.Array] = field(default_factory=dict)
    """The values of columns that are constant in each unit, such as partition columns; deletes do not change them."""

    @staticmethod
    def of_files(listing: FileListing, columns: Sequence[Column]) -> MetadataAnswers:
        """Return what the metadata of a format says about columns in files."""
        files, rows = listing.files, listing.rows
        metadata = {name: files[name].combine_chunks() for name in metadata_names(columns, files.column_names)}
        if metadata:
            metadata[ROW_COUNT.name] = files["num_records"].combine_chunks()
        rows = pa.nulls(len(files), types.LONG) if rows is None else rows
        rows = rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows
        return MetadataAnswers(rows, metadata, _read_constants(listing, columns, np.arange(len(files))))

    @staticmethod
    def of_row_groups(
        listing: FileListing,
        row_groups: RowGroups,
        columns: Sequence[Column],
        rows: npt.NDArray[np.int64] | None = None,
    ) -> MetadataAnswers:
        """Return what footers say about columns in row groups; `rows` are their row counts after deletes (None: the
        same as before)."""
        units, batch = row_groups.units, row_groups.metadata
        metadata = dict(zip(batch.schema.names, batch.columns, strict=True))
        row_count = pa.array(units.row_count if rows is None else rows)
        return MetadataAnswers(row_count, metadata, _read_constants(listing, columns, units.file))

    def filter(self, chosen: Bits) -> MetadataAnswers:
        """Return the metadata of some of the units."""
        mask = pa.array(chosen)
        return MetadataAnswers(
            self.rows.filter(mask),
            {name: values.filter(mask) for name, values in self.metadata.items()},
            {column: values.filter(mask) for column, values in self.constants.items()},
        )

    def get(self, kind: str, column: Column, data_type: pa.DataType) -> pa.Array:
        """Return one kind of metadata of a column, null where unknown."""
        constant = self._get_constant(kind, column)
        if constant is not None:
            return constant
        found = self.metadata.get(metadata_name(kind, column.path))
        return pa.nulls(len(self.rows), data_type) if found is None or found.type != data_type else found

    def _get_constant(self, kind: str, column: Column) -> pa.Array | None:
        values = self.constants.get(column)
        if values is None:
            return None
        found = make_constant_bounds(column, values, self.rows)
        if kind.endswith("_exact"):
            return found[metadata_name(kind.removesuffix("_exact"), column.path)].is_valid()
        return found.get(metadata_name(kind, column.path), pa.repeat(_ZERO, len(values)))

    def find_constant(self, column: Column) -> tuple[pa.Array, Bits]:
        """Return the value of a column in each unit, and the units in which all rows are known to have it.

        Equal floats may be distinct zeros, so that bounds do not prove a value of floats.
        """
        assert column.type is not None
        values = self.constants.get(column)
        if values is not None:
            # A column may have been widened after its partition value was recorded.
            has_type = values.type == column.type
            values = values if has_type else pa.nulls(len(self.rows), column.type)
            return values, np.full(len(self.rows), has_type)
        lower, upper = (self.get(kind, column, column.type) for kind in ("lower", "upper"))
        is_null = self.has_no_value(column)
        if not types.is_ordered(column.type) or pa.types.is_floating(column.type):
            return pa.nulls(len(self.rows), column.type), _to_bits(is_null)
        has_no_null = pc.equal(self.get("null_count", column, types.LONG), 0)
        is_single = pc.fill_null(pc.and_kleene(pc.equal(lower, upper), has_no_null), False)
        return pc.if_else(is_single, lower, pa.scalar(None, column.type)), _to_bits(pc.or_(is_null, is_single))

    def _get_covered_rows(self, column: Column) -> pa.Array:
        """Return the number of rows that the metadata of a column covers."""
        if column in self.constants:
            return self.rows
        found = self.metadata.get(ROW_COUNT.name)
        return pa.nulls(len(self.rows), types.LONG) if found is None else found

    def _is_complete(self, column: Column) -> pa.BooleanArray:
        """Return whether the metadata covers exactly the rows that remain after deletes."""
        return pc.fill_null(pc.equal(self.rows, self._get_covered_rows(column)), False)

    def answer(self, measure: Measure) -> tuple[dict[str, pa.Array], Bits]:
        """Return the values of a measure with their NaN counts, and the units for which they are the answer."""
        if measure.column is None:
            return {"value": self.rows}, _to_bits(self.rows.is_valid())
        if measure.function == "count":
            return self._answer_count(measure.column)
        if measure.function == "sum":
            return self._answer_sum(measure)
        return self._answer_extreme(measure)

    def _answer_count(self, column: Column) -> tuple[dict[str, pa.Array], Bits]:
        nulls = self.get("null_count", column, types.LONG)
        is_counted = pc.fill_null(pc.and_(self._is_complete(column), nulls.is_valid()), False)
        has_none = pc.fill_null(pc.equal(nulls, 0), False)
        values = pc.if_else(
            self.has_no_value(column),
            _ZERO,
            pc.if_else(has_none, self.rows, pc.if_else(is_counted, pc.subtract(self.rows, nulls), None)),
        )
        return {"value": values}, _to_bits(values.is_valid())

    def _answer_extreme(self, measure: Measure) -> tuple[dict[str, pa.Array], Bits]:
        assert measure.column is not None
        kind = "lower" if measure.function == "min" else "upper"
        bounds = self.get(kind, measure.column, measure.type)
        is_exact = pc.fill_null(self.get(f"{kind}_exact", measure.column, types.BOOLEAN), False)
        is_empty = self.has_no_value(measure.column)
        is_known = pc.and_(pc.and_(is_exact, bounds.is_valid()), self._is_complete(measure.column))
        values = pc.if_else(is_empty, pa.scalar(None, measure.type), bounds)
        if not measure.counts_nan:
            return {"value": values}, _to_bits(pc.or_(is_empty, is_known))
        nans = self.get("nan_count", measure.column, types.LONG)
        if measure.function == "max":
            is_known = pc.and_(is_known, nans.is_valid())
        # If there is a number, the minimum is a number, however many NaN there are.
        counted = pc.if_else(is_empty, _ZERO, pc.fill_null(nans, 0))
        return {"value": values, "nan": counted}, _to_bits(pc.or_(is_empty, is_known))

    def _answer_sum(self, measure: Measure) -> tuple[dict[str, pa.Array], Bits]:
        """Return the sum of a unit that has one distinct value."""
        column = measure.column
        assert column is not None
        assert column.type is not None
        is_empty = self.has_no_value(column)
        nothing = pa.nulls(len(self.rows), measure.type)
        if pa.types.is_floating(measure.type):
            return {"value": nothing}, _to_bits(is_empty)
        lower, upper = (self.get(kind, column, column.type) for kind in ("lower", "upper"))
        count = self._answer_count(column)[0]["value"]
        is_known = pc.and_(pc.fill_null(pc.equal(lower, upper), False), count.is_valid())
        for kind in ("lower_exact", "upper_exact"):
            is_known = pc.and_(is_known, pc.fill_null(self.get(kind, column, types.BOOLEAN), False))
        is_known = pc.and_(is_known, self._is_complete(column))
        product = pc.multiply(lower.cast(_widen_type(column.type)), count.cast(_widen_type(types.LONG)))
        values = pc.if_else(is_empty, nothing, product.cast(measure.type))
        return {"value": values}, _to_bits(pc.or_(is_empty, is_known))

    def has_no_value(self, column: Column) -> pa.BooleanArray:
        """Return whether a column is NULL in all rows; deletes do not change that."""
        nulls = self.get("null_count", column, types.LONG)
        all_null = pc.equal(nulls, self._get_covered_rows(column))
        return pc.fill_null(pc.or_kleene(all_null, pc.equal(self.rows, 0)), False)

    def cannot_change(self, measures: Sequence[Measure], best: Sequence[pa.Scalar]) -> Bits:
        """Return the units that cannot change the minima and maxima, regardless of which of their rows match.

        `best` are the values so far: NULL for none yet, NaN for a maximum that no value exceeds.
        """
        found = np.ones(len(self.rows), bool)
        for measure, own in zip(measures, best, strict=True):
            found &= _to_bits(self._cannot_change(measure, own))
        return found

    def sort_best_first(self, measures: Sequence[Measure]) -> npt.NDArray[np.int64]:
        """Return the units in an order that starts with the units that may have the minimum or maximum of a measure."""
        ranks = np.full(len(self.rows), len(self.rows), np.int64)
        for measure in measures:
            assert measure.column is not None
            is_smallest = measure.function == "min"
            bounds = self.get("lower" if is_smallest else "upper", measure.column, measure.type)
            # Unknown bounds sort last: a unit without bounds costs no more to read later.
            order = pc.array_sort_indices(bounds, order="ascending" if is_smallest else "descending").to_numpy()
            own = np.empty(len(order), np.int64)
            own[order] = np.arange(len(order))
            ranks = np.minimum(ranks, own)
        return np.argsort(ranks, kind="stable")

    def _cannot_change(self, measure: Measure, best: pa.Scalar) -> pa.BooleanArray:
        assert measure.column is not None
        is_empty = self.has_no_value(measure.column)
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


def _read_constants(
    listing: FileListing, columns: Sequence[Column], files: npt.NDArray[np.int64]
) -> dict[Column, pa.Array]:
    """Return the values, in each of the files, of those columns that are partition columns: rows have no others."""
    indices, partitions = pa.array(files), listing.partitions
    return {
        column: partitions[column.path[0]].combine_chunks().take(indices)
        for column in columns
        if len(column.path) == 1 and column.path[0] in partitions.column_names
    }


def _widen_type(data_type: pa.DataType) -> pa.DataType:
    """Return a decimal type whose product with another one fits 76 digits."""
    return pa.decimal256(19, data_type.scale if pa.types.is_decimal(data_type) else 0)


def _to_bits(values: pa.BooleanArray) -> Bits:
    return np.asarray(values, bool) if len(values) else np.zeros(0, bool)
