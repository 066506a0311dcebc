"""Everything that a `where` may be, as one expression."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from tamis.errors import InvalidArgument, with_article
from tamis.expr.builder import Expression
from tamis.expr.clock import stop_clocks
from tamis.expr.from_pyarrow import from_pyarrow
from tamis.expr.from_pyiceberg import from_pyiceberg
from tamis.expr.from_pyspark import from_pyspark, is_pyspark_column
from tamis.expr.from_tuples import any_of_lists, from_condition, from_lists, is_condition, refuse_misspelled
from tamis.expr.nodes import Call, Column, Expr, Literal, and_
from tamis.expr.partition_filter import PartitionFilter

_KINDS = (
    "SQL text, a tamis expression such as col('a') > 5, a PartitionFilter, a pyarrow or pyiceberg expression, "
    "a PySpark Column, a condition such as ('a', '>', 5), or a list of these"
)


def to_expr(where: object) -> Expr | PartitionFilter | None:
    """The expression that a `where` means; None for no filter.

    A list means all of its items, and a list of lists of conditions (tuples) any of the lists, as pyarrow has it. A
    `PartitionFilter` stays what it is, because its meaning is not that of SQL; a list of them is their AND, and a list
    that mixes them with expressions is an error. The time that the filter asks for is that of this call.
    """
    lists = any_of_lists(where)
    if lists is not None:
        return stop_clocks(from_lists(lists))
    items = _flattened(where)
    filters = [item for item in items if isinstance(item, PartitionFilter)]
    expressions = [item for item in items if not isinstance(item, PartitionFilter)]
    if filters and expressions:
        raise InvalidArgument(
            "a where list mixes partition filters with expressions, which mean different things: "
            "write all of it as one or the other"
        )
    if filters:
        return filters[0] if len(filters) == 1 else PartitionFilter.and_(*filters)
    return stop_clocks(and_(*expressions)) if expressions else None


def _flattened(where: object) -> list[Expr | PartitionFilter]:
    found: list[Expr | PartitionFilter] = []
    stack = [where]
    while stack:
        item = stack.pop()
        if is_condition(item):
            found.append(from_condition(item))
        elif isinstance(item, list | tuple):
            refuse_misspelled(item)
            stack.extend(reversed(item))
        elif item is not None:
            found.append(_one(item))
    return found


def _one(where: object) -> Expr | PartitionFilter:
    match where:
        case str():
            # It imports sqlglot, which filters that are no text do without.
            from tamis.expr.sql import parse_sql

            return parse_sql(where)
        case Expression():
            return where.node
        case Column() | Literal() | Call() | PartitionFilter():
            return where
        case pc.Expression():
            return from_pyarrow(where)
        case bool() | np.bool_():
            raise InvalidArgument(
                f"where is the Python value {where}: a comparison was made in Python, not in an expression. "
                "Compare col('name'), as in col('name') == 5, and combine with &, | and ~"
            )
        case _ if _is_pyiceberg(where):
            return from_pyiceberg(where)
        case _ if is_pyspark_column(where):
            return from_pyspark(where)
        case _:
            kind = f"{type(where).__module__}.{type(where).__qualname__}"
            raise InvalidArgument(f"where cannot be {with_article(kind.removeprefix('builtins.'))}: give {_KINDS}")


def _is_pyiceberg(where: object) -> bool:
    """Whether it is a pyiceberg expression, found out by name so that pyiceberg need not be there."""
    return any(
        kind.__name__ == "BooleanExpression" and kind.__module__.partition(".")[0] == "pyiceberg"
        for kind in type(where).__mro__
    )
