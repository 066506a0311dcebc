"""The connector of a database: what the rules push into a scan becomes a query that the database runs.

A handle is a `Query`. Every call makes a larger one and tries to write it in the dialect of the database; where that
fails because the database would mean something else, the call says no and the operation stays above the scan.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import TypeGuard

import pyarrow as pa

from tamis.errors import AmbiguousColumn, UnsupportedFeature
from tamis.expr.functions import type_of
from tamis.expr.nodes import TRUE, Call, Column, Expr, Literal, and_, columns_of, conjuncts_of, fold
from tamis.pushdown.connector import (
    Connector,
    Handle,
    Properties,
    PushedAggregation,
    PushedFilter,
    PushedJoin,
    PushedProjection,
    PushedRows,
)
from tamis.pushdown.nodes import AggregateCall, JoinKind, Named, Output, SortKey
from tamis.tables.database.connection import Database
from tamis.tables.database.expressions import MOST_ITEMS
from tamis.tables.database.query import (
    Aggregated,
    DatabaseColumn,
    DatabaseTable,
    JoinOf,
    Ordered,
    Query,
    Selected,
    over,
)
from tamis.tables.database.select import can_select, can_test, select
from tamis.types import not_read

DEEPEST = 100
"""The deepest condition that is written into a query: databases take no deeper ones gladly."""


class DatabaseConnector(Connector):
    """The tables of one database, under the name that a session gives it."""

    def __init__(self, name: str, database: Database) -> None:
        self.name = name
        self.database = database
        self._rows: dict[DatabaseTable, int | None] = {}

    # --- Tables -------------------------------------------------------------------------------------------------------

    def table(self, name: tuple[str, ...]) -> Query | None:
        found = self.database.find_table(name)
        if found is None:
            return None
        folded = [column.name.casefold() for column in found.columns]
        if len(set(folded)) < len(folded):
            raise AmbiguousColumn(
                f"the table {found.name!r} in {self.database.place} has columns that differ only by case: "
                "read it through a view that names them otherwise"
            )
        return over(found)

    def table_names(self) -> Sequence[str]:
        return self.database.table_names()

    def names(self, handle: Handle) -> Sequence[str]:
        table = _query(handle).source
        return (table.name, f"{table.schema}.{table.name}") if isinstance(table, DatabaseTable) else ()

    def close(self) -> None:
        """Let go of the database."""
        self.database.close()

    def identity(self) -> Hashable:
        return self.database.identity()

    def columns(self, handle: Handle) -> pa.Schema:
        return pa.schema([pa.field(column.name, column.type) for column in _query(handle).columns])

    def properties(self, handle: Handle) -> Properties:
        query = _query(handle)
        rows = 1 if query.is_grouped and not query.selected else query.limit
        if rows is None and isinstance(query.source, DatabaseTable):
            if query.source not in self._rows:
                self._rows[query.source] = self.database.rows_of(query.source)
            rows = self._rows[query.source]
        is_whole = isinstance(query.source, DatabaseTable) and query.where == TRUE and not query.is_final
        return Properties(rows=rows, satisfied=self.satisfied(handle), is_filtered=not is_whole)

    def satisfied(self, handle: Handle) -> Expr:
        query = _query(handle)
        return TRUE if query.is_final else query.where

    def describe(self, handle: Handle) -> str:
        return f"{self.database.place}: {self._text(_query(handle))}"

    # --- Pushdown -----------------------------------------------------------------------------------------------------

    def push_filter(self, handle: Handle, predicate: Expr) -> PushedFilter | None:
        query = _query(handle)
        if query.limit is not None:
            return None
        if query.is_grouped:
            query = over(query)
        known = set(conjuncts_of(query.where))
        taken: list[Expr] = []
        remaining: list[Expr] = []
        for conjunct in conjuncts_of(predicate):
            if self._can_test(query, conjunct):
                taken += [] if conjunct in known else [conjunct]
                continue
            remaining.append(conjunct)
            taken += [bound for bound in _bounds(conjunct) if bound not in known and self._can_test(query, bound)]
        if not taken and len(remaining) == len(conjuncts_of(predicate)):
            return None
        where = and_(*(each for each in (*conjuncts_of(query.where), *taken) if each != TRUE))
        return PushedFilter(replace(query, where=where), and_(*remaining))

    def _can_test(self, query: Query, condition: Expr) -> bool:
        is_shallow = fold(condition, lambda node, depths: 1 + max(depths, default=0)) <= DEEPEST
        return is_shallow and can_test(query, condition, self.database.dialect)

    def push_pruning(self, handle: Handle, predicate: Expr) -> Query | None:
        pushed = self.push_filter(handle, predicate)
        return None if pushed is None else _query(pushed.handle)

    def push_projection(self, handle: Handle, outputs: Sequence[Named]) -> PushedProjection | None:
        query = _query(handle)
        needed = frozenset(column.path[0] for output in outputs for column in columns_of(output.expr))
        if len(needed) == len(query.columns):
            return None
        narrowed = query.taking(needed)
        return PushedProjection(narrowed, _outputs(narrowed), tuple(outputs))

    def push_aggregation(
        self, handle: Handle, partial: bool, keys: Sequence[Named], aggregates: Sequence[AggregateCall]
    ) -> PushedAggregation | None:
        if partial or not (keys or aggregates):
            return None
        query = _query(handle)
        source = over(query) if query.is_final else query
        selected = [_key(each, source) for each in keys]
        called = [_aggregate(each) for each in aggregates]
        found_keys = tuple(each for each in selected if each is not None)
        found_calls = tuple(each for each in called if each is not None)
        if len(found_keys) < len(selected) or len(found_calls) < len(called):
            return None
        grouped = replace(source, selected=found_keys, aggregates=found_calls, is_grouped=True, order=())
        return PushedAggregation(grouped, _outputs(grouped)) if self._can_run(grouped) else None

    def push_limit(self, handle: Handle, count: int) -> PushedRows | None:
        query = _query(handle)
        if query.limit is not None and query.limit <= count:
            return None
        return PushedRows(replace(query, limit=count), guaranteed=True)

    def push_top_n(self, handle: Handle, keys: Sequence[SortKey], count: int) -> PushedRows | None:
        query = _query(handle)
        source = over(query) if query.is_final else query
        order = tuple(Ordered(key.expr, key.descending, key.nulls_first) for key in keys)
        if query.order == order and query.limit == count:
            return None
        sorted_query = replace(source, order=order, limit=count)
        return PushedRows(sorted_query, guaranteed=True) if self._can_run(sorted_query) else None

    def push_join(
        self, left: Handle, right: Handle, kind: JoinKind, criteria: Sequence[tuple[Expr, Expr]]
    ) -> PushedJoin | None:
        if kind not in ("inner", "left", "right", "full") or not criteria:
            return None
        pairs = [(one.path[0], other.path[0]) for one, other in criteria if _is_column(one) and _is_column(other)]
        if len(pairs) < len(criteria):
            return None
        one, other = _query(left), _query(right)
        names = _distinct([column.name for column in (*one.columns, *other.columns)])
        joined = over(JoinOf(one, other, kind, tuple(pairs), names))
        if not self._can_run(joined):
            return None
        given = [*(column.name for column in one.columns), *(column.name for column in other.columns)]
        mapping = dict(zip(given, names, strict=True))
        return PushedJoin(joined, _outputs(joined), mapping)

    # --- Reading ------------------------------------------------------------------------------------------------------

    def read(self, handle: Handle) -> Iterator[pa.RecordBatch]:
        query = _query(handle)
        self._refuse_not_read(query)
        self.database.check(query)
        yield from self.database.run(self._text(query), query.columns)

    def _refuse_not_read(self, query: Query) -> None:
        found = not_read(pa.schema([pa.field(column.name, column.type) for column in query.columns]))
        if found is not None:
            name, kind = found
            raise UnsupportedFeature(
                f"the column {name!r} in {self.database.place} is {kind}, a type that is not read: leave it out, or "
                "read it through a view that casts it"
            )

    def _can_run(self, query: Query) -> bool:
        return can_select(query, self.database.dialect)

    def _text(self, query: Query) -> str:
        text = select(query, self.database.dialect)
        assert text is not None  # every handle was written before it was returned
        return text


def _query(handle: Handle) -> Query:
    assert isinstance(handle, Query)
    return handle


def _outputs(query: Query) -> tuple[Output, ...]:
    return tuple(Output(column.name, column.type) for column in query.columns)


def _is_column(expr: Expr) -> TypeGuard[Column]:
    return isinstance(expr, Column) and len(expr.path) == 1


def _key(key: Named, query: Query) -> Selected | None:
    match key.expr:
        case Column(path=(name,)):
            found = next((each.column for each in query.selected if each.column.name == name), None)
            return None if found is None else Selected(replace(found, name=key.name), key.expr)
        case _:
            data_type = type_of(key.expr)
            return None if data_type is None else Selected(DatabaseColumn(key.name, data_type, compares=True), key.expr)


def _aggregate(call: AggregateCall) -> Aggregated | None:
    data_type = pa.int64() if call.function == "count" else call.type
    if data_type is None:
        return None
    column = DatabaseColumn(call.name, data_type, compares=True)
    return Aggregated(column, call.function, call.args, call.distinct, call.filter)


def _bounds(condition: Expr) -> list[Expr]:
    """What holds wherever a list that is too long to be written has the value: that it lies between its ends."""
    match condition:
        case Call("in", (Column() as column, *items)) if len(items) > MOST_ITEMS:
            values = [item.value for item in items if isinstance(item, Literal) and not item.is_null]
            if len(values) < len(items) or any(value != value for value in values):
                return []
            data_type = items[0].type  # type: ignore[union-attr]
            ends = (("<=", max(values)), (">=", min(values)))
            return [Call(sign, (column, Literal(end, data_type))) for sign, end in ends]
        case _:
            return []


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """The names, with numbers behind those that are there already, with whatever case."""
    found: list[str] = []
    taken: set[str] = set()
    for name in names:
        number, distinct = 1, name
        while distinct.casefold() in taken:
            number += 1
            distinct = f"{name}_{number}"
        taken.add(distinct.casefold())
        found.append(distinct)
    return tuple(found)
