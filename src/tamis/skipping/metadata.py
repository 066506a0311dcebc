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

from collections.abc import Container, Iterable

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


def make_constant_bounds(column: Column, values: pa.Array, row_count: pa.Array) -> dict[str, pa.Array]:
    """Return the metadata columns for units in which a column is constant, as in partitions.

    Its value is both bounds, and it is NULL (or NaN) in all rows or in none.
    """
    none = pa.scalar(0, types.LONG)
    found = {
        metadata_name("null_count", column.path): pc.if_else(pc.is_null(values), row_count, none),
    }
    if pa.types.is_floating(values.type):
        is_nan = pc.fill_null(pc.is_nan(values), False)
        values = pc.if_else(is_nan, pa.scalar(None, values.type), values)
        found[metadata_name("nan_count", column.path)] = pc.if_else(is_nan, row_count, none)
    found[metadata_name("lower", column.path)] = values
    found[metadata_name("upper", column.path)] = values
    return found


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
