"""A database query as a value: a SELECT over a table, over another SELECT, or over a join of two.

Queries compare by value. Their expressions are those of `tamis.expr` over the columns of the source; `select_text`
writes them as SQL text in the database's dialect when the query runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal as OneOf
from typing import TypeAlias

import pyarrow as pa

from tamis.expr.nodes import TRUE, Column, Expr, find_columns

JoinKind: TypeAlias = OneOf["inner", "left", "right", "full"]


@dataclass(frozen=True, slots=True)
class DatabaseColumn:
    """A column of a table or of a query, and how the database handles its values."""

    name: str
    type: pa.DataType = field(compare=False)
    """The Arrow type of its values in Tamis."""
    is_comparable: bool = field(default=False, compare=False)
    """Whether the database compares and orders its values as Tamis does."""
    reads_as_text: bool = field(default=False, compare=False)
    """Whether values are fetched in the database's text representation."""
    is_bytewise: bool = field(default=False, compare=False)
    """Whether two strings are equal only if their bytes are, without a COLLATE in the query."""
    is_type_enforced: bool = field(default=True, compare=False)
    """Whether the database enforces the type; otherwise values must be checked before a query evaluates them."""
    casts: tuple[str, ...] = field(default=(), compare=False)
    """Database types that a table column is cast to wherever a query names it, one after the other."""


@dataclass(frozen=True, slots=True)
class DatabaseTable:
    """A table of a database: its schema, its name and all of its columns."""

    schema: str
    name: str
    columns: tuple[DatabaseColumn, ...]


@dataclass(frozen=True, slots=True)
class QueryJoin:
    """A join of two queries. `names` renames the columns of the left, then those of the right."""

    left: Query
    right: Query
    kind: JoinKind
    criteria: tuple[tuple[str, str], ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SelectedColumn:
    """A column of a query: an expression over its source."""

    column: DatabaseColumn
    expr: Expr


@dataclass(frozen=True, slots=True)
class AggregatedColumn:
    """An aggregate over the rows of a group: `count`, `min`, `max` or `sum`."""

    column: DatabaseColumn
    function: str
    args: tuple[Expr, ...] = ()
    distinct: bool = False
    filter: Expr | None = None


@dataclass(frozen=True, slots=True)
class SortTerm:
    """A sort key of ORDER BY."""

    expr: Expr
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Query:
    """A SELECT. With `aggregates`, or if it `is_grouped`, the `selected` columns are its group keys."""

    source: DatabaseTable | Query | QueryJoin
    selected: tuple[SelectedColumn, ...]
    where: Expr = TRUE
    is_grouped: bool = False
    aggregates: tuple[AggregatedColumn, ...] = ()
    order: tuple[SortTerm, ...] = ()
    limit: int | None = None

    @property
    def columns(self) -> tuple[DatabaseColumn, ...]:
        """The columns that the query returns."""
        return (*(each.column for each in self.selected), *(each.column for each in self.aggregates))

    @property
    def is_final(self) -> bool:
        """Return whether a further operation needs an outer query, because the rows are groups or limited in number."""
        return self.is_grouped or self.limit is not None

    def keep_columns(self, names: frozenset[str]) -> Query:
        """Return a query for the same rows with only these columns."""
        query = select_all(self) if self.is_grouped else self
        return replace(query, selected=tuple(each for each in query.selected if each.column.name in names))


def list_source_columns(source: DatabaseTable | Query | QueryJoin) -> tuple[DatabaseColumn, ...]:
    """Return the columns that expressions over a source may name."""
    if isinstance(source, QueryJoin):
        both = (*source.left.columns, *source.right.columns)
        return tuple(replace(column, name=name) for column, name in zip(both, source.names, strict=True))
    return source.columns


def select_all(source: DatabaseTable | Query | QueryJoin) -> Query:
    """Return a query for all rows and columns of a source."""
    return Query(
        source,
        tuple(
            SelectedColumn(column, Column((column.name,), type=column.type)) for column in list_source_columns(source)
        ),
    )


def find_evaluated_columns(query: Query) -> set[tuple[str, str]]:
    """Return the columns, by table and name, that a query evaluates: all except those that it only fetches."""
    found: set[tuple[str, str]] = set()
    pending: list[tuple[DatabaseTable | Query | QueryJoin, set[str]]] = [(query, set())]
    while pending:
        source, names = pending.pop()
        match source:
            case DatabaseTable():
                found |= {(source.name, name) for name in names}
            case Query():
                pending.append((source.source, _find_evaluated_names(source, names)))
            case QueryJoin():
                both = [(source.left, each.name) for each in source.left.columns]
                both += [(source.right, each.name) for each in source.right.columns]
                asked = [each for each, name in zip(both, source.names, strict=True) if name in names]
                for side, index in ((source.left, 0), (source.right, 1)):
                    compared = {pair[index] for pair in source.criteria}
                    pending.append((side, compared | {name for owner, name in asked if owner is side}))
    return found


def _find_evaluated_names(query: Query, names: set[str]) -> set[str]:
    """Return the source columns that determine a query's rows and the given ones of its columns."""
    evaluated: list[Expr] = [query.where, *(each.expr for each in query.order)]
    evaluated += [each.expr for each in query.selected if query.is_grouped or each.column.name in names]
    for each in query.aggregates:
        evaluated += [*each.args, *(() if each.filter is None else (each.filter,))]
    return {column.path[0] for expr in evaluated for column in find_columns(expr)}
