"""How metadata of units (partitions, files, row groups, pages) is laid out: one flat Arrow batch, a row a unit.

| column                | type              | meaning                                                       |
|-----------------------|-------------------|---------------------------------------------------------------|
| `row_count`           | int64             | rows of the unit                                              |
| `lower:a.b`           | the column's type | no value is smaller (NaN and NULL do not count)               |
| `upper:a.b`           | the column's type | no value is larger (NaN and NULL do not count)                |
| `null_count:a.b`      | int64             | rows in which the column is NULL                              |
| `nan_count:a.b`       | int64             | rows in which it is NaN                                       |
| `lower_exact:a.b`     | boolean           | the lower bound is the value of some row (`upper_exact` alike)|
| `true:0`              | boolean           | an answer to a question: see `tamis.skipping.membership`      |

A null, or a column that is absent, means *unknown*, and what is unknown keeps the unit.
Whatever can produce such a batch is a level of pruning; there is nothing else to implement.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.nodes import Column

ROW_COUNT = Column(("row_count",), type=types.LONG)
"""A column of metadata. A table may have one of the same name, so never compare it with columns of tables."""

KINDS = ("lower", "upper", "null_count", "nan_count", "lower_exact", "upper_exact")


def metadata_name(kind: str, path: tuple[str, ...]) -> str:
    """The name of a metadata column.

    >>> metadata_name("lower", ("a", "b")), metadata_name("upper", ("a.b",))
    ('lower:a.b', 'upper:`a.b`')
    """
    return f"{kind}:" + ".".join(_quoted(part) for part in path)


def metadata_names(columns: Iterable[Column], among: Container[str]) -> list[str]:
    """The names of what is known of columns, those that are there."""
    names = (metadata_name(kind, column.path) for column in columns for kind in KINDS)
    return [name for name in names if name in among]


def _quoted(part: str) -> str:
    return "`" + part.replace("`", "``") + "`" if "." in part or "`" in part else part


def lower(column: Column) -> Column:
    return Column((metadata_name("lower", column.path),), type=column.type)


def upper(column: Column) -> Column:
    return Column((metadata_name("upper", column.path),), type=column.type)


def null_count(column: Column) -> Column:
    return Column((metadata_name("null_count", column.path),), type=types.LONG)


def nan_count(column: Column) -> Column:
    return Column((metadata_name("nan_count", column.path),), type=types.LONG)


def constant_bounds(column: Column, values: pa.Array, row_count: pa.Array) -> dict[str, pa.Array]:
    """The metadata columns of units in which a column has one value throughout, as in partitions.

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
