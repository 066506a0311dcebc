"""The test whether an equality delete file may delete a row of a data file.

It cannot where the bounds of a compared column are disjoint, and not both files may contain NULL in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.nodes import Column
from tamis.tables.arrays import to_single_array
from tamis.tables.iceberg.partition_bounds import drop_inverted_bounds
from tamis.tables.iceberg.single_values import decode_values

Indices = npt.NDArray[np.int32]
Bits = npt.NDArray[np.bool_]


class BoundsOverlap:
    """The overlap test for pairs of data files and equality delete files."""

    def __init__(self, data: pa.Table, deletes: pa.Table, chosen: Indices, columns: Mapping[int, Column]) -> None:
        """Collect bounds; `chosen` are the indices of the equality deletes among the deletes."""
        every = to_single_array(deletes["equality_ids"])
        ids = pc.unique(every.take(pa.array(chosen)).flatten()).to_pylist()
        comparable = [each for each in ids if each in columns and _has_useful_bounds(columns[each].type)]
        owners = pc.list_parent_indices(every).to_numpy()
        values = every.flatten().to_numpy(zero_copy_only=False)
        self._columns: list[tuple[Bits, _ColumnBounds, _ColumnBounds]] = []
        for each in comparable:
            of_data, of_deletes = _collect_bounds(data, deletes, each, columns[each])
            is_compared = np.zeros(deletes.num_rows, bool)
            is_compared[owners[values == each]] = True
            is_compared &= of_deletes.has_bounds
            if is_compared.any() and of_data.has_bounds.any():
                self._columns.append((is_compared, of_data, of_deletes))
        self._dropped_keys = _DroppedKeys.of(data, deletes) if "dropped_key" in data.column_names else None

    def may_overlap(self, files: Indices, deletes: Indices, *, across_partitions: bool) -> Bits:
        """Return whether the files of each pair, given by their indices, may share a value."""
        may_overlap = np.ones(len(files), bool)
        if self._dropped_keys is not None and not across_partitions:
            may_overlap &= self._dropped_keys.may_be_same(files, deletes)
        for is_compared, of_data, of_deletes in self._columns:
            asked = np.flatnonzero(may_overlap & is_compared[deletes])
            may_overlap[asked] = ~of_data.is_disjoint(files[asked], of_deletes, deletes[asked])
        return may_overlap


@dataclass(frozen=True)
class _DroppedKeys:
    """Values of partition fields whose source column was dropped, as codes; -1 if unknown, which matches any value."""

    of_data: Indices
    of_deletes: Indices

    @staticmethod
    def of(data: pa.Table, deletes: pa.Table) -> _DroppedKeys:
        both = pa.concat_arrays([to_single_array(each["dropped_key"]) for each in (data, deletes)])
        codes = pc.fill_null(pc.dictionary_encode(both).indices, -1).to_numpy()
        return _DroppedKeys(codes[: data.num_rows], codes[data.num_rows :])

    def may_be_same(self, files: Indices, deletes: Indices) -> Bits:
        one, other = self.of_data[files], self.of_deletes[deletes]
        may_be: Bits = (one == other) | (one < 0) | (other < 0)
        return may_be


@dataclass(frozen=True)
class _ColumnBounds:
    """Bounds of a column as ranks, and whether it may contain NULL."""

    lower: Indices
    upper: Indices
    has_bounds: Bits
    may_be_null: Bits

    def is_disjoint(self, rows: Indices, other: _ColumnBounds, of_other: Indices) -> Bits:
        """Return whether the two cannot share any value, NULL included."""
        is_disjoint = self.upper[rows] < other.lower[of_other]
        is_disjoint |= self.lower[rows] > other.upper[of_other]
        is_disjoint &= self.has_bounds[rows] & other.has_bounds[of_other]
        is_disjoint &= ~(self.may_be_null[rows] & other.may_be_null[of_other])
        return is_disjoint


def _has_useful_bounds(data_type: pa.DataType) -> bool:
    # Bounds do not cover NaN.
    return types.is_ordered(data_type) and not pa.types.is_floating(data_type)


def _collect_bounds(
    data: pa.Table, deletes: pa.Table, field_id: int, column: Column
) -> tuple[_ColumnBounds, _ColumnBounds]:
    """Collect the bounds of data files and of deletes with common ranks: pairs are many, and bounds may be long."""
    bounds = [_decode_bounds(files, field_id, column) for files in (data, deletes)]
    values = pa.concat_arrays([each for pair in bounds for each in pair])
    encoded = pc.dictionary_encode(values)
    ranks = np.zeros(len(encoded.dictionary) + 1, np.int32)
    ranks[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(encoded.dictionary))
    numbers = ranks[pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy()]
    ends = np.cumsum([len(each) for pair in bounds for each in pair])
    low, high, low_of_deletes, high_of_deletes = np.split(numbers, ends[:-1])
    has_bounds = [np.asarray(pc.and_(low.is_valid(), high.is_valid())) for low, high in bounds]
    nulls = [_find_nullable(files, field_id, column) for files in (data, deletes)]
    return _ColumnBounds(low, high, has_bounds[0], nulls[0]), _ColumnBounds(
        low_of_deletes, high_of_deletes, has_bounds[1], nulls[1]
    )


def _decode_bounds(files: pa.Table, field_id: int, column: Column) -> tuple[pa.Array, pa.Array]:
    data_type = column.type
    assert data_type is not None
    low, high = (
        decode_values(to_single_array(files[name]), data_type)
        if (name := f"{kind}:{field_id}") in files.column_names
        else pa.nulls(files.num_rows, data_type)
        for kind in ("lower", "upper")
    )
    return drop_inverted_bounds(low, high)


def _find_nullable(files: pa.Table, field_id: int, column: Column) -> Bits:
    nulls, values = (_get_counts(files, f"{kind}:{field_id}") for kind in ("nulls", "values"))
    may_be: Bits = np.asarray(pc.fill_null(pc.not_equal(nulls, 0), True))
    if len(column.path) == 1:
        return may_be
    # A field of a NULL struct is NULL too, and some writers do not count it.
    is_counted = pc.equal(values, to_single_array(files["record_count"]))
    may_be |= ~np.asarray(pc.fill_null(is_counted, False))
    return may_be


def _get_counts(files: pa.Table, name: str) -> pa.Array:
    return to_single_array(files[name]) if name in files.column_names else pa.nulls(files.num_rows, types.LONG)
