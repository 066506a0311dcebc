"""Whether a data file may hold a row that an equality delete has.

It may not where the bounds of some compared column lie apart, and at most one of the two may have NULL in it.
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
from tamis.tables.arrays import one_array
from tamis.tables.iceberg.partition_bounds import in_order
from tamis.tables.iceberg.single_values import decode_values

Indices = npt.NDArray[np.int32]
Bits = npt.NDArray[np.bool_]


class Overlap:
    """Data files and equality deletes, of which pairs are looked at."""

    def __init__(self, data: pa.Table, deletes: pa.Table, chosen: Indices, columns: Mapping[int, Column]) -> None:
        """`chosen` are the equality deletes among the deletes."""
        every = one_array(deletes["equality_ids"])
        ids = pc.unique(every.take(pa.array(chosen)).flatten()).to_pylist()
        known = [each for each in ids if each in columns and _has_useful_bounds(columns[each].type)]
        owners = pc.list_parent_indices(every).to_numpy()
        values = every.flatten().to_numpy(zero_copy_only=False)
        self._columns: list[tuple[Bits, _Facts, _Facts]] = []
        for each in known:
            of_data, of_deletes = _facts(data, deletes, each, columns[each])
            is_compared = np.zeros(deletes.num_rows, bool)
            is_compared[owners[values == each]] = True
            is_compared &= of_deletes.has_bounds
            if is_compared.any() and of_data.has_bounds.any():
                self._columns.append((is_compared, of_data, of_deletes))
        self._gone = _GoneKeys.of(data, deletes) if "gone_key" in data.column_names else None

    def of(self, files: Indices, deletes: Indices, *, across_partitions: bool) -> Bits:
        """For pairs of a data file and an equality delete, by their indices: whether some value may be in both."""
        may_meet = np.ones(len(files), bool)
        if self._gone is not None and not across_partitions:
            may_meet &= self._gone.may_be_same(files, deletes)
        for is_compared, of_data, of_deletes in self._columns:
            asked = np.flatnonzero(may_meet & is_compared[deletes])
            may_meet[asked] = ~of_data.is_apart(files[asked], of_deletes, deletes[asked])
        return may_meet


@dataclass(frozen=True)
class _GoneKeys:
    """Values of partition fields whose column is gone, as numbers; -1 where they are not known, and may be any."""

    of_data: Indices
    of_deletes: Indices

    @staticmethod
    def of(data: pa.Table, deletes: pa.Table) -> _GoneKeys:
        both = pa.concat_arrays([one_array(each["gone_key"]) for each in (data, deletes)])
        codes = pc.fill_null(pc.dictionary_encode(both).indices, -1).to_numpy()
        return _GoneKeys(codes[: data.num_rows], codes[data.num_rows :])

    def may_be_same(self, files: Indices, deletes: Indices) -> Bits:
        one, other = self.of_data[files], self.of_deletes[deletes]
        may_be: Bits = (one == other) | (one < 0) | (other < 0)
        return may_be


@dataclass(frozen=True)
class _Facts:
    """Bounds of a column, as numbers in their order, and what is known of NULL."""

    lower: Indices
    upper: Indices
    has_bounds: Bits
    may_be_null: Bits

    def is_apart(self, rows: Indices, other: _Facts, of_other: Indices) -> Bits:
        """Whether no value of the one, NULL included, can be one of the other."""
        is_apart = self.upper[rows] < other.lower[of_other]
        is_apart |= self.lower[rows] > other.upper[of_other]
        is_apart &= self.has_bounds[rows] & other.has_bounds[of_other]
        is_apart &= ~(self.may_be_null[rows] & other.may_be_null[of_other])
        return is_apart


def _has_useful_bounds(data_type: pa.DataType) -> bool:
    # NaN is in no bounds.
    return types.is_ordered(data_type) and not pa.types.is_floating(data_type)


def _facts(data: pa.Table, deletes: pa.Table, field_id: int, column: Column) -> tuple[_Facts, _Facts]:
    """Of data files and of deletes, their bounds numbered together: pairs are many, and their bounds may be long."""
    bounds = [_bounds(files, field_id, column) for files in (data, deletes)]
    values = pa.concat_arrays([each for pair in bounds for each in pair])
    encoded = pc.dictionary_encode(values)
    ranks = np.zeros(len(encoded.dictionary) + 1, np.int32)
    ranks[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(encoded.dictionary))
    numbers = ranks[pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy()]
    ends = np.cumsum([len(each) for pair in bounds for each in pair])
    low, high, low_of_deletes, high_of_deletes = np.split(numbers, ends[:-1])
    known = [np.asarray(pc.and_(low.is_valid(), high.is_valid())) for low, high in bounds]
    nulls = [_may_be_null(files, field_id, column) for files in (data, deletes)]
    return _Facts(low, high, known[0], nulls[0]), _Facts(low_of_deletes, high_of_deletes, known[1], nulls[1])


def _bounds(files: pa.Table, field_id: int, column: Column) -> tuple[pa.Array, pa.Array]:
    data_type = column.type
    assert data_type is not None
    low, high = (
        decode_values(one_array(files[name]), data_type)
        if (name := f"{kind}:{field_id}") in files.column_names
        else pa.nulls(files.num_rows, data_type)
        for kind in ("lower", "upper")
    )
    return in_order(low, high)


def _may_be_null(files: pa.Table, field_id: int, column: Column) -> Bits:
    nulls, values = (_counts(files, f"{kind}:{field_id}") for kind in ("nulls", "values"))
    may_be: Bits = np.asarray(pc.fill_null(pc.not_equal(nulls, 0), True))
    if len(column.path) == 1:
        return may_be
    # Where a struct is NULL, so is what is inside: some writers do not count it then.
    is_counted = pc.equal(values, one_array(files["record_count"]))
    may_be |= ~np.asarray(pc.fill_null(is_counted, False))
    return may_be


def _counts(files: pa.Table, name: str) -> pa.Array:
    return one_array(files[name]) if name in files.column_names else pa.nulls(files.num_rows, types.LONG)
