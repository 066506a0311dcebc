"""The layout of unit metadata (partitions, files, row groups, pages): one flat Arrow batch with a row per unit.

| column                | type              | meaning                                                       |
|-----------------------|-------------------|---------------------------------------------------------------|
| `row_count`           | int64             | the number of rows of the unit                                |
| `lower:a.b`           | the column's type | no value is smaller (NaN and NULL do not count)               |
| `upper:a.b`           | the column's type | no value is larger (NaN and NULL do not count)                |
| `null_count:a.b`      | int64             | the number of rows in which the column is NULL                |
| `nan_count:a.b`       | int64             | the number of rows in which it is NaN                         |
| `lower_exact:a.b`     | boolean           | the lower bound is the value of some row (`upper_exact` alike)|
| `true:0`              | boolean           | an answer to a question: see `tamis.skipping.membership`      |

A null, or a missing column, means *unknown*, and unknown metadata keeps the unit.
A pruning level only has to produce such a batch.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.nodes import Column

ROW_COUNT = Column(("row_count",), type=types.LONG)
"""A metadata column. A table may have a column of the same name, so never compare it with table columns."""

KINDS = ("lower", "upper", "null_count", "nan_count", "lower_exact", "upper_exact")


def metadata_name(kind: str, path: tuple[str, ...]) -> str:
    """Return the name of a metadata column.

    >>> metadata_name("lower", ("a", "b")), metadata_name("upper", ("a.b",))
    ('lower:a.b', 'upper:`a.b`')
    """
    return f"{kind}:" + ".".join(_quote(part) for part in path)


def metadata_names(columns: Iterable[Column], among: Container[str]) -> list[str]:
    """Return the names of the columns' metadata columns that exist in `among`."""
    names = (metadata_name(kind, column.path) for column in columns for kind in KINDS)
    return [name for name in names if name in among]


def _quote(part: str) -> str:
    return "`" + part.replace("`", "``") + "`" if "." in part or "`" in part else part


def lower(column: Column) -> Column:
    return Column((metadata_name("lower", column.path),), type=column.type)


def upper(column: Column) -> Column:
    return Column((metadata_name("upper", column.path),), type=column.type)


def null_count(column: Column) -> Column:
    return Column((metadata_name("null_count", column.path),), type=types.LONG)


def nan_count(column: Column) -> Column:
    return Column((metadata_name("nan_count", column.path),), type=types.LONG)


def make_constant_bounds(
    column: Column, values: pa.Array, row_count: pa.Array, *, or_null: bool = False
) -> dict[str, pa.Array]:
    """Return the metadata columns for units in which a column is constant, as in partitions.

    Its value is both bounds, and it is NULL (or NaN) in all rows or in none. With `or_null` a row may be NULL instead,
    as a field of a struct is where the struct is NULL.
    """
    none, unknown = pa.scalar(0, types.LONG), pa.scalar(None, types.LONG)
    nulls = pc.if_else(pc.is_null(values), row_count, unknown if or_null else none)
    found = {metadata_name("null_count", column.path): nulls}
    if pa.types.is_floating(values.type):
        is_nan = pc.fill_null(pc.is_nan(values), False)
        values = pc.if_else(is_nan, pa.scalar(None, values.type), values)
        nans = pc.if_else(is_nan, unknown if or_null else row_count, none)
        found[metadata_name("nan_count", column.path)] = nans
    found[metadata_name("lower", column.path)] = values
    found[metadata_name("upper", column.path)] = values
    return found


def drop_inverted_bounds(low: pa.Array, high: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Replace bounds by null where the lower one is above the upper one, since either may be wrong, or the type has no
    order."""
    if not types.is_ordered(low.type):
        return pa.nulls(len(low), low.type), pa.nulls(len(high), high.type)
    is_wrong = pc.fill_null(pc.greater(low, high), False)
    if not pc.any(is_wrong, min_count=0).as_py():
        return low, high
    none = pa.scalar(None, low.type)
    return pc.if_else(is_wrong, none, low), pc.if_else(is_wrong, none, high)


def concatenate_metadata(parts: Sequence[Mapping[str, pa.Array]], counts: Sequence[int]) -> dict[str, pa.Array]:
    """Concatenate the metadata columns of units; `counts` are the units of each part. What a part lacks is unknown."""
    if len(parts) == 1:
        return dict(parts[0])
    data_types = {name: array.type for part in parts for name, array in part.items()}
    return {
        name: pa.concat_arrays(
            [
                part[name] if name in part else pa.nulls(count, data_type)
                for part, count in zip(parts, counts, strict=True)
            ]
        )
        for name, data_type in data_types.items()
    }


def make_partition_bounds(
    partitions: pa.Table, names: Container[str], row_count: pa.Array, rows: pa.Array | None = None
) -> dict[str, pa.Array]:
    """Return the metadata columns for units in which some columns are constant; `rows` are their rows of the table."""
    found: dict[str, pa.Array] = {}
    for name in (name for name in partitions.column_names if name in names):
        values = partitions[name].combine_chunks()
        values = values if rows is None else values.take(rows)
        found |= make_constant_bounds(Column((name,), type=values.type), values, row_count)
    return found
