"""What is asked of a database, as a value: a SELECT over a table, over another SELECT, or over a join of two.

Queries compare by what they say. Expressions are those of `tamis.expr` over the columns of the source; SQL text in the
dialect of the database is made of them when they are run.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal as OneOf
from typing import TypeAlias

import pyarrow as pa

from tamis.expr.nodes import TRUE, Column, Expr, columns_of

JoinKind: TypeAlias = OneOf["inner", "left", "right", "full"]


@dataclass(frozen=True, slots=True)
class DatabaseColumn:
    """A column of a table or of a query, and what may be asked about it there."""

    name: str
    type: pa.DataType = field(compare=False)
    """The type that its values have here."""
    compares: bool = field(default=False, compare=False)
    """Whether values are equal, and ordered, in the database as they are here."""
    reads_as_text: bool = field(default=False, compare=False)
    """Whether values are fetched as the texts that the database has for them."""
    is_bytewise: bool = field(default=False, compare=False)
    """Of a text: whether it equals only what has the same bytes, without anything being said in the query."""
    is_checked: bool = field(default=True, compare=False)
    """Whether the database holds values to the type; else it must be looked up before anybody relies on it."""
    casts: tuple[str, ...] = field(default=(), compare=False)
    """Of a column of a table: types of the database that it is cast to, one after the other, wherever it is named."""


@dataclass(frozen=True, slots=True)
class DatabaseTable:
    """A table of a database, by its name there. `columns` are all of them."""

    schema: str
    name: str
    columns: tuple[DatabaseColumn, ...]


@dataclass(frozen=True, slots=True)
class JoinOf:
    """Two queries side by side. Their columns get names of their own: `names` are those of the left, then the right."""

    left: Query
    right: Query
    kind: JoinKind
    criteria: tuple[tuple[str, str], ...]
    """Pairs of columns, of the left and of the right, that must be equal."""
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Selected:
    """A column of a query: an expression over its source."""

    column: DatabaseColumn
    expr: Expr


@dataclass(frozen=True, slots=True)
class Aggregated:
    """An aggregate over the rows of a group: `count`, `min`, `max` or `sum`."""

    column: DatabaseColumn
    function: str
    args: tuple[Expr, ...] = ()
    distinct: bool = False
    filter: Expr | None = None


@dataclass(frozen=True, slots=True)
class Ordered:
    expr: Expr
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Query:
    """A SELECT. With `aggregates`, or where it `is_grouped`, the `selected` are the keys of its groups."""

    source: DatabaseTable | Query | JoinOf
    selected: tuple[Selected, ...]
    where: Expr = TRUE
    is_grouped: bool = False
    aggregates: tuple[Aggregated, ...] = ()
    order: tuple[Ordered, ...] = ()
    limit: int | None = None

    @property
    def columns(self) -> tuple[DatabaseColumn, ...]:
        """The columns that it returns."""
        return (*(each.column for each in self.selected), *(each.column for each in self.aggregates))

    @property
    def is_final(self) -> bool:
        """Whether what is asked in addition goes around it: its rows are groups, or a limited number."""
        return self.is_grouped or self.limit is not None

    def taking(self, names: frozenset[str]) -> Query:
        """The same rows with some of the columns."""
        query = over(self) if self.is_grouped else self
        return replace(query, selected=tuple(each for each in query.selected if each.column.name in names))


def source_columns(source: DatabaseTable | Query | JoinOf) -> tuple[DatabaseColumn, ...]:
    """The columns that expressions over a source may name."""
    if isinstance(source, JoinOf):
        both = (*source.left.columns, *source.right.columns)
        return tuple(replace(column, name=name) for column, name in zip(both, source.names, strict=True))
    return source.columns


def over(source: DatabaseTable | Query | JoinOf) -> Query:
    """All rows and columns of a source."""
    return Query(
        source,
        tuple(Selected(column, Column((column.name,), type=column.type)) for column in source_columns(source)),
    )


def relied_columns(query: Query) -> set[tuple[str, str]]:
    """The columns, by table and name, whose values decide what a query returns: all but those that are only fetched."""
    found: set[tuple[str, str]] = set()
    waiting: list[tuple[DatabaseTable | Query | JoinOf, set[str]]] = [(query, set())]
    while waiting:
        source, names = waiting.pop()
        match source:
            case DatabaseTable():
                found |= {(source.name, name) for name in names}
            case Query():
                waiting.append((source.source, _names_below(source, names)))
            case JoinOf():
                both = [(source.left, each.name) for each in source.left.columns]
                both += [(source.right, each.name) for each in source.right.columns]
                asked = [each for each, name in zip(both, source.names, strict=True) if name in names]
                for side, index in ((source.left, 0), (source.right, 1)):
                    compared = {pair[index] for pair in source.criteria}
                    waiting.append((side, compared | {name for owner, name in asked if owner is side}))
    return found


def _names_below(query: Query, names: set[str]) -> set[str]:
    """The columns of its source that decide about the rows of a query, and about some of its columns."""
    relied: list[Expr] = [query.where, *(each.expr for each in query.order)]
    relied += [each.expr for each in query.selected if query.is_grouped or each.column.name in names]
    for each in query.aggregates:
        relied += [*each.args, *(() if each.filter is None else (each.filter,))]
    return {column.path[0] for expr in relied for column in columns_of(expr)}
