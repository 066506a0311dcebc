"""Statistics of files as metadata of units: bounds and counts of the columns that a filter is about.

Bounds are bounds: texts and bytes are cut off at 16 by default, the upper ones rounded up. Counts may be missing, and
what is missing is unknown. A count of nulls means something only where as many values were counted as the file has
rows: a column inside of a list counts its elements.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.nodes import Column
from tamis.skipping.metadata import metadata_name
from tamis.tables.iceberg.partition_bounds import in_order, ordered_floats
from tamis.tables.iceberg.single_values import decode_values


def bounds_of_statistics(files: pa.Table, columns: Mapping[int, Column], row_count: pa.Array) -> dict[str, pa.Array]:
    """The metadata of files, from the entries of their statistics for columns, by the ids of those."""
    found: dict[str, pa.Array] = {}
    for field_id, column in columns.items():
        if column.type is None or pa.types.is_nested(column.type):
            continue
        found |= _bounds(files, field_id, column.type, column)
        nulls = _counts(files, "nulls", field_id)
        if nulls is not None:
            counted = _counts(files, "values", field_id)
            if counted is not None:
                is_other = pc.fill_null(pc.not_equal(counted, row_count), False)
                nulls = pc.if_else(is_other, pa.scalar(None, types.LONG), nulls)
            found[metadata_name("null_count", column.path)] = nulls
        nans = _counts(files, "nans", field_id)
        if nans is not None and pa.types.is_floating(column.type):
            found[metadata_name("nan_count", column.path)] = nans
    return found


def _bounds(files: pa.Table, field_id: int, data_type: pa.DataType, column: Column) -> dict[str, pa.Array]:
    names = [f"{kind}:{field_id}" for kind in ("lower", "upper")]
    given = [
        decode_values(files[name].combine_chunks(), data_type) if name in files.column_names else None for name in names
    ]
    low, high = (pa.nulls(len(files), data_type) if each is None else each for each in given)
    if pa.types.is_floating(data_type):
        low, high = ordered_floats(low, high)
    low, high = in_order(low, high)
    return {metadata_name("lower", column.path): low, metadata_name("upper", column.path): high}


def _counts(files: pa.Table, kind: str, field_id: int) -> pa.Array | None:
    name = f"{kind}:{field_id}"
    if name not in files.column_names:
        return None
    counts = files[name].combine_chunks().cast(types.LONG)
    # A negative number of nulls was seen in the wild, and means that nobody knows.
    return pc.if_else(pc.fill_null(pc.less(counts, 0), False), pa.scalar(None, types.LONG), counts)
