"""The database connector: operations that the rules push into a scan become a SQL query that the database runs.

A handle is a `Query`. Each call extends it and generates its SQL in the dialect of the database. If the dialect cannot
express an operation with the same semantics, the call returns None and the operation stays above the scan.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import TypeGuard

import pyarrow as pa

from tamis.errors import AmbiguousColumn, UnsupportedFeature
from tamis.expr.functions.table import type_of
from tamis.expr.nodes import TRUE, Call, Column, Expr, Literal, and_, find_columns, fold, split_conjuncts
from tamis.formats.database.connection import Database
from tamis.formats.database.database_query import (
    AggregatedColumn,
    DatabaseColumn,
    DatabaseTable,
    Query,
    QueryJoin,
    SelectedColumn,
    SortTerm,
    select_all,
)
from tamis.formats.database.select_text import MAX_IN_LIST_ITEMS, can_push_filter, can_select, render_select
from tamis.query.connectors.connector import (
    Connector,
    Handle,
    Properties,
    PushedAggregation,
    PushedFilter,
    PushedJoin,
    PushedProjection,
    PushedRows,
)
from tamis.query.plan.column_ids import ColumnIds
from tamis.query.plan.nodes import AggregateCall, JoinKind, Named, Output, SortKey
from tamis.types import find_unsupported_field

MAX_DEPTH = 100
"""The maximum depth of a condition in a query: databases have trouble with deeper ones."""


class DatabaseConnector(Connector):
    """A connector for the tables of one database."""

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
                f"the table {found.name!r} in {self.database.location} has columns that differ only by case: "
                "read it through a view that renames them"
            )
        return select_all(found)

    def table_names(self) -> Sequence[str]:
        return self.database.list_tables()

    def names(self, handle: Handle) -> Sequence[str]:
        table = _as_query(handle).source
        return (table.name, f"{table.schema}.{table.name}") if isinstance(table, DatabaseTable) else ()

    def close(self) -> None:
        self.database.close()

    def identity(self) -> Hashable:
        return self.database.identity()

    def columns(self, handle: Handle) -> pa.Schema:
        return pa.schema([pa.field(column.name, column.type) for column in _as_query(handle).columns])

    def properties(self, handle: Handle) -> Properties:
        query = _as_query(handle)
        rows = 1 if query.is_grouped and not query.selected else query.limit
        if rows is None and isinstance(query.source, DatabaseTable):
            if query.source not in self._rows:
                self._rows[query.source] = self.database.estimate_row_count(query.source)
            rows = self._rows[query.source]
        is_whole = isinstance(query.source, DatabaseTable) and query.where == TRUE and not query.is_final
        keys = (tuple(each.column.name for each in query.selected),) if query.is_grouped else ()
        return Properties(
            rows=rows, enforced_predicate=self.enforced_predicate(handle), is_filtered=not is_whole, unique_keys=keys
        )

    def enforced_predicate(self, handle: Handle) -> Expr:
        query = _as_query(handle)
        return TRUE if query.is_final else query.where

    def describe(self, handle: Handle) -> str:
        return f"{self.database.location}: {self._to_sql(_as_query(handle))}"

    # --- Pushdown -----------------------------------------------------------------------------------------------------

    def push_filter(self, handle: Handle, predicate: Expr) -> PushedFilter | None:
        query = _as_query(handle)
        if query.limit is not None:
            return None
        if query.is_grouped:
            query = select_all(query)
        known = set(split_conjuncts(query.where))
        pushed: list[Expr] = []
        remaining: list[Expr] = []
        for conjunct in split_conjuncts(predicate):
            if self._can_test(query, conjunct):
                pushed += [] if conjunct in known else [conjunct]
                continue
            remaining.append(conjunct)
            bounds = _derive_bounds(conjunct)
            pushed += [bound for bound in bounds if bound not in known and self._can_test(query, bound)]
        if not pushed and len(remaining) == len(split_conjuncts(predicate)):
            return None
        where = and_(*(each for each in (*split_conjuncts(query.where), *pushed) if each != TRUE))
        return PushedFilter(replace(query, where=where), and_(*remaining))

    def _can_test(self, query: Query, condition: Expr) -> bool:
        is_shallow = fold(condition, lambda node, depths: 1 + max(depths, default=0)) <= MAX_DEPTH
        return is_shallow and can_push_filter(query, condition, self.database.dialect)

    def push_pruning(self, handle: Handle, predicate: Expr) -> Query | None:
        pushed = self.push_filter(handle, predicate)
        return None if pushed is None else _as_query(pushed.handle)

    def push_projection(self, handle: Handle, outputs: Sequence[Named]) -> PushedProjection | None:
        query = _as_query(handle)
        needed = frozenset(column.path[0] for output in outputs for column in find_columns(output.expr))
        if len(needed) == len(query.columns):
            return None
        narrowed = query.keep_columns(needed)
        return PushedProjection(narrowed, _to_outputs(narrowed), tuple(outputs))

    def push_aggregation(
        self, handle: Handle, partial: bool, keys: Sequence[Named], aggregates: Sequence[AggregateCall]
    ) -> PushedAggregation | None:
        if partial or not (keys or aggregates):
            return None
        query = _as_query(handle)
        source = select_all(query) if query.is_final else query
        selected = [_select_key(each, source) for each in keys]
        called = [_to_aggregated(each) for each in aggregates]
        found_keys = tuple(each for each in selected if each is not None)
        found_calls = tuple(each for each in called if each is not None)
        if len(found_keys) < len(selected) or len(found_calls) < len(called):
            return None
        grouped = replace(source, selected=found_keys, aggregates=found_calls, is_grouped=True, order=())
        return PushedAggregation(grouped, _to_outputs(grouped)) if self._can_run(grouped) else None

    def push_limit(self, handle: Handle, count: int) -> PushedRows | None:
        query = _as_query(handle)
        if query.limit is not None and query.limit <= count:
            return None
        return PushedRows(replace(query, limit=count), guaranteed=True)

    def push_top_n(self, handle: Handle, keys: Sequence[SortKey], count: int) -> PushedRows | None:
        query = _as_query(handle)
        source = select_all(query) if query.is_final else query
        order = tuple(SortTerm(key.expr, key.descending, key.nulls_first) for key in keys)
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
        one, other = _as_query(left), _as_query(right)
        given = [column.name for column in (*one.columns, *other.columns)]
        names = tuple(map(ColumnIds().allocate, given))
        joined = select_all(QueryJoin(one, other, kind, tuple(pairs), names))
        if not self._can_run(joined):
            return None
        mapping = dict(zip(given, names, strict=True))
        return PushedJoin(joined, _to_outputs(joined), mapping)

    # --- Reading ------------------------------------------------------------------------------------------------------

    def read(self, handle: Handle) -> Iterator[pa.RecordBatch]:
        query = _as_query(handle)
        self._check_types(query)
        self.database.check(query)
        yield from self.database.run(self._to_sql(query), query.columns)

    def _check_types(self, query: Query) -> None:
        found = find_unsupported_field(pa.schema([pa.field(column.name, column.type) for column in query.columns]))
        if found is not None:
            name, kind = found
            raise UnsupportedFeature(
                f"the column {name!r} in {self.database.location} has the unsupported type {kind}: leave it out, or "
                "read "
                "it through a view that casts it"
            )

    def _can_run(self, query: Query) -> bool:
        return can_select(query, self.database.dialect)

    def _to_sql(self, query: Query) -> str:
        text = render_select(query, self.database.dialect)
        assert text is not None  # each handle was tested with can_select before it was returned
        return text


def _as_query(handle: Handle) -> Query:
    assert isinstance(handle, Query)
    return handle


def _to_outputs(query: Query) -> tuple[Output, ...]:
    return tuple(Output(column.name, column.type) for column in query.columns)


def _is_column(expr: Expr) -> TypeGuard[Column]:
    return isinstance(expr, Column) and len(expr.path) == 1


def _select_key(key: Named, query: Query) -> SelectedColumn | None:
    match key.expr:
        case Column(path=(name,)):
            found = next((each.column for each in query.selected if each.column.name == name), None)
            return None if found is None else SelectedColumn(replace(found, name=key.name), key.expr)
        case _:
            data_type = type_of(key.expr)
            return (
                None
                if data_type is None
                else SelectedColumn(DatabaseColumn(key.name, data_type, is_comparable=True), key.expr)
            )


def _to_aggregated(call: AggregateCall) -> AggregatedColumn | None:
    data_type = pa.int64() if call.function == "count" else call.type
    if data_type is None:
        return None
    column = DatabaseColumn(call.name, data_type, is_comparable=True)
    return AggregatedColumn(column, call.function, call.args, call.distinct, call.filter)


def _derive_bounds(condition: Expr) -> list[Expr]:
    """Return the bounds that an IN list implies, if it is too long for a query: its minimum and maximum."""
    match condition:
        case Call("in", (Column() as column, *items)) if len(items) > MAX_IN_LIST_ITEMS:
            values = [item.value for item in items if isinstance(item, Literal) and not item.is_null]
            if len(values) < len(items) or any(value != value for value in values):
                return []
            data_type = items[0].type  # type: ignore[union-attr]
            ends = (("<=", max(values)), (">=", min(values)))
            return [Call(sign, (column, Literal(end, data_type))) for sign, end in ends]
        case _:
            return []
