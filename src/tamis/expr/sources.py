"""Everything that a `where` may be, as one expression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TypeGuard, cast

import numpy as np
import pyarrow.compute as pc

from tamis.errors import InvalidArgument, with_article
from tamis.expr.builder import Expression
from tamis.expr.clock import stop_clocks
from tamis.expr.from_pyarrow import from_pyarrow
from tamis.expr.from_pyiceberg import from_pyiceberg
from tamis.expr.from_pyspark import from_pyspark, is_pyspark_column
from tamis.expr.from_tuples import from_condition, is_condition, refuse_misspelled
from tamis.expr.nodes import Call, Column, Expr, Literal, and_, or_
from tamis.expr.partition_filter import PartitionFilter

_KINDS = (
    "SQL text, a tamis expression such as col('a') > 5, a PartitionFilter, a pyarrow or pyiceberg expression, "
    "a PySpark Column, a condition such as ('a', '>', 5), or a list of these"
)


def to_expr(where: object) -> Expr | PartitionFilter | None:
    """Return the expression that a `where` means; None for no filter.

    A list means all of its items, and a list of lists any of the lists, as pyarrow has it. A `PartitionFilter` stays
    what it is, because its meaning is not that of SQL: a list of them is their AND, a list of lists of them the OR of
    those, and a list that mixes them with expressions is an error. The time that the filter asks for is that of this
    call.
    """
    groups = _groups(where)
    filters = [each for group in groups for each in group if isinstance(each, PartitionFilter)]
    if filters and len(filters) < sum(map(len, groups)):
        raise InvalidArgument(
            "a where list mixes partition filters with expressions, which mean different things: "
            "write all of it as one or the other"
        )
    if filters:
        return _join(PartitionFilter.or_, [_join(PartitionFilter.and_, group) for group in groups])
    found = [and_(*(each for each in group if not isinstance(each, PartitionFilter))) for group in groups]
    return stop_clocks(or_(*found)) if found else None


def _join(join: Callable[..., PartitionFilter], filters: Sequence[object]) -> PartitionFilter:
    (first, *others) = filters
    return join(*filters) if others else cast(PartitionFilter, first)


def _groups(where: object) -> list[list[Expr | PartitionFilter]]:
    """Return the filters in groups: a row must pass all filters of some group. No group at all is no filter."""
    items = _items(where)
    lists = [item for item in items if _is_list(item) and item]
    if not lists:
        group = [_one(item) for item in items if not _is_list(item)]
        return [group] if group else []
    if len(lists) < len(items):
        raise InvalidArgument(
            "a where list mixes lists of filters, of which any is enough, with other filters, of which all must hold: "
            "join them with | and &, as in (col('a') == 1) | (col('b') == 2), or write SQL text"
        )
    inner = [_items(each) for each in lists]
    if any(map(_is_list, chain(*inner))):
        raise InvalidArgument(
            "a where has lists inside of lists of lists: a list of lists means any of the lists, within a list all. "
            "Join filters with | and &, as in (col('a') == 1) | (col('b') == 2), or write SQL text"
        )
    return [[_one(item) for item in each] for each in inner if each]


def _items(where: object) -> list[object]:
    """Return the items of a list without None, which is no filter; a filter alone is a list of one."""
    if not _is_list(where):
        return [] if where is None else [where]
    refuse_misspelled(where)
    return [item for item in where if item is not None]


def _is_list(item: object) -> TypeGuard[list[object] | tuple[object, ...]]:
    return isinstance(item, list | tuple) and not is_condition(item)


def _one(where: object) -> Expr | PartitionFilter:
    match where:
        case tuple() if is_condition(where):
            return from_condition(where)
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
