"""File statistics as metadata of units: bounds and counts of the columns of a filter.

Bounds may be inexact: strings and bytes are truncated to 16 by default, and upper bounds are then rounded up. Missing
counts are unknown. So are impossible statistics, which some writers produce:

| statistics                                | unknown                                                            |
|-------------------------------------------|--------------------------------------------------------------------|
| a negative count                          | the count                                                          |
| more NULLs and NaN than rows              | both counts                                                        |
| a value count that is not the row count   | the null count, except for a struct field whose values are all     |
|                                           | NULL: where the struct is NULL, so is the field                    |
| NULL or NaN in all rows, and bounds       | the counts and the bounds, because one of them is wrong            |
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.nodes import Column
from tamis.skipping.metadata import metadata_name
from tamis.tables.arrays import to_single_array
from tamis.tables.iceberg.partition_bounds import drop_inverted_bounds, normalize_float_bounds
from tamis.tables.iceberg.single_values import decode_values


def compute_statistics_bounds(
    files: pa.Table, columns: Mapping[int, Column], row_count: pa.Array
) -> dict[str, pa.Array]:
    """Return the bounds and counts of columns, given by field id, from the statistics of files."""
    found: dict[str, pa.Array] = {}
    for field_id, column in columns.items():
        if column.type is None or pa.types.is_nested(column.type):
            continue
        low, high = _decode_bounds(files, field_id, column.type)
        is_float = pa.types.is_floating(column.type)
        nulls, nans, values = (_read_counts(files, kind, field_id) for kind in ("nulls", "nans", "values"))
        if len(column.path) > 1:
            # With fewer values than rows, the others are NULL because a struct around them is. Bounds imply that there
            # is a non-null value.
            has_none = pc.and_kleene(pc.equal(nulls, values), pc.less(values, row_count))
            has_none = pc.and_(pc.fill_null(has_none, False), pc.and_(low.is_null(), high.is_null()))
            nulls, values = (pc.if_else(has_none, row_count, each) for each in (nulls, values))
        nulls = _null_where(pc.not_equal(values, row_count), nulls)
        nulls, nans = (_null_where(pc.greater(each, row_count), each) for each in (nulls, nans))
        others = pc.add(pc.fill_null(nulls, 0), pc.fill_null(nans, 0) if is_float else 0)
        nulls, nans = (_null_where(pc.greater(others, row_count), each) for each in (nulls, nans))
        is_contradictory = pc.and_kleene(pc.or_(low.is_valid(), high.is_valid()), pc.equal(others, row_count))
        low, high, nulls, nans = (_null_where(is_contradictory, each) for each in (low, high, nulls, nans))
        found |= {
            metadata_name("lower", column.path): low,
            metadata_name("upper", column.path): high,
            metadata_name("null_count", column.path): nulls,
        }
        if is_float:
            found[metadata_name("nan_count", column.path)] = nans
    return found


def _decode_bounds(files: pa.Table, field_id: int, data_type: pa.DataType) -> tuple[pa.Array, pa.Array]:
    names = [f"{kind}:{field_id}" for kind in ("lower", "upper")]
    given = [
        decode_values(to_single_array(files[name]), data_type) if name in files.column_names else None for name in names
    ]
    low, high = (pa.nulls(len(files), data_type) if each is None else each for each in given)
    if pa.types.is_floating(data_type):
        low, high = normalize_float_bounds(low, high)
    return drop_inverted_bounds(low, high)


def _read_counts(files: pa.Table, kind: str, field_id: int) -> pa.Array:
    name = f"{kind}:{field_id}"
    if name not in files.column_names:
        return pa.nulls(len(files), types.LONG)
    counts = to_single_array(files[name]).cast(types.LONG)
    return _null_where(pc.less(counts, 0), counts)


def _null_where(is_wrong: pa.Array, values: pa.Array) -> pa.Array:
    """Replace wrong values by null. A value whose check is unknown is kept."""
    if not pc.any(is_wrong, min_count=0).as_py():
        return values
    return pc.if_else(pc.fill_null(is_wrong, False), pa.scalar(None, values.type), values)
