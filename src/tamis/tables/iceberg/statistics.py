"""Statistics of files as metadata of units: bounds and counts of the columns that a filter is about.

Bounds are bounds: texts and bytes are cut off at 16 by default, the upper ones rounded up. Counts may be missing, and
what is missing is unknown. So is what cannot be, which writers have written all the same:

| given                                     | unknown then                                                       |
|-------------------------------------------|--------------------------------------------------------------------|
| a negative count                          | the count                                                          |
| NULLs and NaN, more than there are rows   | both counts                                                        |
| as many values as there are not rows      | the count of NULLs, but for a field of structs of which all values |
|                                           | are NULL: where the struct is NULL, so is the field                |
| NULL or NaN in all rows, and bounds       | the counts and the bounds: one of them is wrong, nobody knows which|
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.nodes import Column
from tamis.skipping.metadata import metadata_name
from tamis.tables.arrays import one_array
from tamis.tables.iceberg.partition_bounds import in_order, ordered_floats
from tamis.tables.iceberg.single_values import decode_values


def bounds_of_statistics(files: pa.Table, columns: Mapping[int, Column], row_count: pa.Array) -> dict[str, pa.Array]:
    """The metadata of files, from the entries of their statistics for columns, by the ids of those."""
    found: dict[str, pa.Array] = {}
    for field_id, column in columns.items():
        if column.type is None or pa.types.is_nested(column.type):
            continue
        low, high = _bounds(files, field_id, column.type)
        is_float = pa.types.is_floating(column.type)
        nulls, nans, values = (_counts(files, kind, field_id) for kind in ("nulls", "nans", "values"))
        if len(column.path) > 1:
            # Fewer values than rows: the others are NULL, as a struct around them is. Where there are bounds, there
            # is a value.
            has_none = pc.and_kleene(pc.equal(nulls, values), pc.less(values, row_count))
            has_none = pc.and_(pc.fill_null(has_none, False), pc.and_(low.is_null(), high.is_null()))
            nulls, values = (pc.if_else(has_none, row_count, each) for each in (nulls, values))
        nulls = _unless(pc.not_equal(values, row_count), nulls)
        nulls, nans = (_unless(pc.greater(each, row_count), each) for each in (nulls, nans))
        others = pc.add(pc.fill_null(nulls, 0), pc.fill_null(nans, 0) if is_float else 0)
        nulls, nans = (_unless(pc.greater(others, row_count), each) for each in (nulls, nans))
        is_odd = pc.and_kleene(pc.or_(low.is_valid(), high.is_valid()), pc.equal(others, row_count))
        low, high, nulls, nans = (_unless(is_odd, each) for each in (low, high, nulls, nans))
        found |= {
            metadata_name("lower", column.path): low,
            metadata_name("upper", column.path): high,
            metadata_name("null_count", column.path): nulls,
        }
        if is_float:
            found[metadata_name("nan_count", column.path)] = nans
    return found


def _bounds(files: pa.Table, field_id: int, data_type: pa.DataType) -> tuple[pa.Array, pa.Array]:
    names = [f"{kind}:{field_id}" for kind in ("lower", "upper")]
    given = [decode_values(one_array(files[name]), data_type) if name in files.column_names else None for name in names]
    low, high = (pa.nulls(len(files), data_type) if each is None else each for each in given)
    if pa.types.is_floating(data_type):
        low, high = ordered_floats(low, high)
    return in_order(low, high)


def _counts(files: pa.Table, kind: str, field_id: int) -> pa.Array:
    name = f"{kind}:{field_id}"
    if name not in files.column_names:
        return pa.nulls(len(files), types.LONG)
    counts = one_array(files[name]).cast(types.LONG)
    return _unless(pc.less(counts, 0), counts)


def _unless(is_wrong: pa.Array, values: pa.Array) -> pa.Array:
    """The values, unknown where they are wrong. Whether they are may be unknown itself, and then they are believed."""
    if not pc.any(is_wrong, min_count=0).as_py():
        return values
    return pc.if_else(pc.fill_null(is_wrong, False), pa.scalar(None, values.type), values)
