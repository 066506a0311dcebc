"""Small plans for tests of rules, over a connector whose handles show what was pushed down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tamis import types
from tamis.expr.bind import bind
from tamis.expr.nodes import TRUE, Call, Column, Expr, and_, find_columns, split_conjuncts, transform, walk
from tamis.expr.sql.parse import parse_sql
from tamis.expr.sql.printer import to_display_sql
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
from tamis.query.plan.column_ids import collect_paths, replace_paths
from tamis.query.plan.explain import format_lines, plan_to_dict
from tamis.query.plan.nodes import (
    Aggregate,
    AggregateCall,
    Filter,
    JoinKind,
    Named,
    Node,
    Output,
    Project,
    Sort,
    SortKey,
    TableScan,
    TopN,
    Values,
    get_outputs,
    walk_plan,
)
from tamis.query.plan.optimizer import Context

STRUCT = pa.struct([("x", types.LONG), ("y", types.STRING)])
COLUMNS = {"a": types.LONG, "b": types.LONG, "s": types.STRING, "n": STRUCT, "f": types.DOUBLE}
"""The columns of every table."""


@dataclass(frozen=True)
class FakeHandle:
    """What a scan reads. `rows` is the row count in metadata, an upper limit."""

    table: str
    columns: tuple[tuple[str, pa.DataType], ...] = tuple(COLUMNS.items())
    predicate: Expr = TRUE
    limit: int | None = None
    top: tuple[SortKey, ...] | None = None
    groups: tuple[object, ...] | None = None
    rows: int | None = 1000
    joined: tuple[object, ...] = ()
    order: tuple[SortKey, ...] = ()


@dataclass
class FakeConnector(Connector):
    """Accepts comparisons with literals, columns, fields, and other pushdowns by option."""

    name: str = "fake"
    guarantees: bool = True
    aggregates: bool = True
    joins: bool = True
    averages: bool = True
    """Whether it computes averages. If not, it returns a sum and a count."""
    reads_rows: bool = False
    """Whether it reads rows to compute sums."""
    sorts: bool = False
    """Whether it returns rows in any order of columns."""
    has_unique_a: bool = False
    """Whether no two rows have the same `a`."""
    is_partitioned_by_a_and_s: bool = False
    is_partial: bool = False
    """Whether it returns several rows for a group."""
    stores_lengths: bool = False
    """Whether it has the length of `s` as a column of its own."""

    def columns(self, handle: Handle) -> pa.Schema:
        return pa.schema(list(fake(handle).columns))

    def properties(self, handle: Handle) -> Properties:
        own = fake(handle)
        names = {name for name, _ in own.columns}
        return Properties(
            rows=own.limit if own.limit is not None else own.rows,
            sorted_by=own.order,
            unique_keys=(("a",),) if self.has_unique_a and "a" in names else (),
            partitioned_by=("a", "s") if self.is_partitioned_by_a_and_s else (),
        )

    def enforced_predicate(self, handle: Handle) -> Expr:
        return fake(handle).predicate

    def describe(self, handle: Handle) -> str:
        """Return one line, which `builders.query.plan_text` can parse for plans before a rule."""
        own = fake(handle)
        text = own.table
        if own.joined:
            kind, criteria = own.joined
            assert isinstance(criteria, tuple)
            pairs = (f"{to_display_sql(one)} = {to_display_sql(other)}" for one, other in criteria)
            text += f", {kind} on {' and '.join(pairs)}"
        elif own.groups is None and own.columns != tuple(COLUMNS.items()):
            text += f" ({', '.join(name for name, _ in own.columns)})"
        if own.predicate != TRUE:
            text += f" where {to_display_sql(own.predicate)}"
        if own.groups is not None:
            keys, calls = own.groups
            node = Aggregate(Values(pa.table({}), ()), keys, calls)  # type: ignore[arg-type]
            text += f" grouped: {format_lines(plan_to_dict(node, {}))[0].removeprefix('Aggregate ')}"
        if own.order:
            text += f" ordered {format_lines(plan_to_dict(Sort(Values(pa.table({}), ()), own.order), {}))[0]}"
        if own.top is not None:
            node = TopN(Values(pa.table({}), ()), own.top, own.limit or 0)
            return f"{text} top {format_lines(plan_to_dict(node, {}))[0].removeprefix('TopN ')}"
        return text if own.limit is None else f"{text} limit {own.limit}"

    def push_filter(self, handle: Handle, predicate: Expr) -> PushedFilter | None:
        own = fake(handle)
        if own.limit is not None or own.top is not None or own.groups is not None:
            return None
        length = Call("length", (Column(("s",), types.STRING),))
        if self.stores_lengths and length in walk(predicate):
            made = replace(own, columns=(*own.columns, ("length", pa.int32())))
            stored = Column(("length",), type=pa.int32())
            remaining = transform(predicate, lambda node: stored if node == length else node)
            return PushedFilter(made, remaining, (Named("length", length),))
        taken = [part for part in split_conjuncts(predicate) if len(find_columns(part)) == 1]
        if not taken:
            return None
        before = [] if own.predicate == TRUE else split_conjuncts(own.predicate)
        remaining = and_(*(part for part in split_conjuncts(predicate) if part not in taken))
        return PushedFilter(replace(own, predicate=and_(*dict.fromkeys((*before, *taken)))), remaining)

    def push_projection(self, handle: Handle, outputs: Sequence[Named]) -> PushedProjection | None:
        own = fake(handle)
        types_by_name = dict(own.columns)
        columns = []
        for path in collect_paths(each.expr for each in outputs):
            data_type = types_by_name[path[0]]
            for name in path[1:]:
                data_type = data_type.field(name).type
            columns.append((".".join(path), data_type))
        if tuple(columns) == own.columns:
            return None
        replacements = {
            path: Column((name,), type=kind)
            for path, (name, kind) in zip(collect_paths(each.expr for each in outputs), columns, strict=True)
        }
        return PushedProjection(
            replace(own, columns=tuple(columns)),
            tuple(Output(name, kind) for name, kind in columns),
            tuple(Named(each.name, replace_paths(each.expr, replacements)) for each in outputs),
        )

    def push_aggregation(
        self, handle: Handle, partial: bool, keys: Sequence[Named], aggregates: Sequence[AggregateCall]
    ) -> PushedAggregation | None:
        own = fake(handle)
        if not self.aggregates or own.groups is not None or own.limit is not None:
            return None
        columns = [*((each.name, types.LONG) for each in keys), *((each.name, types.LONG) for each in aggregates)]
        values: tuple[Expr, ...] = ()
        if not self.averages:
            columns = [*columns[: len(keys)], ("total", types.DOUBLE), ("n", types.LONG)]
            total, count = (Column((name,), type=kind) for name, kind in columns[len(keys) :])
            values = tuple(Call("/", (total, count)) if each.function == "avg" else count for each in aggregates)
        made = replace(own, columns=tuple(columns), groups=(tuple(keys), tuple(aggregates)))
        combined_by = tuple({"count": "sum"}.get(each.function, each.function) for each in aggregates)
        return PushedAggregation(
            made,
            tuple(Output(name, kind) for name, kind in columns),
            is_partial=self.is_partial,
            combined_by=combined_by if self.is_partial else (),
            values=values,
        )

    def must_read_rows(self, handle: Handle) -> bool:
        return self.reads_rows

    def push_limit(self, handle: Handle, count: int) -> PushedRows | None:
        own = fake(handle)
        if own.limit is not None and own.limit <= count:
            return PushedRows(own, guaranteed=self.guarantees)
        return PushedRows(replace(own, limit=count), guaranteed=self.guarantees)

    def push_top_n(self, handle: Handle, keys: Sequence[SortKey], count: int) -> PushedRows | None:
        own = fake(handle)
        if own.top is not None or own.limit is not None or not all(isinstance(key.expr, Column) for key in keys):
            return None
        return PushedRows(replace(own, top=tuple(keys), limit=count), guaranteed=self.guarantees)

    def push_sort(self, handle: Handle, keys: Sequence[SortKey]) -> Handle | None:
        own = fake(handle)
        return replace(own, order=tuple(keys)) if self.sorts and not own.order and own.limit is None else None

    def push_join(
        self, left: Handle, right: Handle, kind: JoinKind, criteria: Sequence[tuple[Expr, Expr]]
    ) -> PushedJoin | None:
        one, other = fake(left), fake(right)
        if not self.joins or kind not in ("inner", "left"):
            return None
        columns = [(f"{own.table}_{name}", data_type) for own in (one, other) for name, data_type in own.columns]
        made = FakeHandle(f"{one.table} join {other.table}", tuple(columns), joined=(kind, tuple(criteria)))
        return PushedJoin(made, tuple(Output(name, kind) for name, kind in columns))


def fake(handle: Handle) -> FakeHandle:
    assert isinstance(handle, FakeHandle)
    return handle


def scan(table: str, *, protects: bool = False, rows: int | None = 1000) -> TableScan:
    """Return a scan of a table with all columns, whose column ids are `t.a`, `t.b`, …"""
    columns = tuple(Output(f"{table}.{name}", data_type) for name, data_type in COLUMNS.items())
    return TableScan("fake", FakeHandle(table, rows=rows), columns, protects)


def column(column_id: str) -> Column:
    name, *fields = column_id.split("/")
    data_type = COLUMNS.get(name.split(".")[-1], types.LONG)
    for each in fields:
        data_type = data_type.field(each).type
    return Column((name, *fields), type=data_type)


def expr(text: str, *nodes: Node) -> Expr:
    """Parse SQL text over the outputs of nodes. Column ids are in back-ticks."""
    outputs = [output for node in nodes for output in get_outputs(node)]
    schema = pa.schema([(output.name, output.type or types.LONG) for output in outputs])
    return bind(parse_sql(text), schema)


def where(source: Node, text: str, *, protects: bool = False) -> Filter:
    return Filter(source, expr(text, source), protects)


def select(source: Node, *, protects: bool = False, **outputs: str) -> Project:
    """Return a projection. `__` in the name of an output stands for a dot."""
    named = (Named(name.replace("__", "."), expr(text, source)) for name, text in outputs.items())
    return Project(source, tuple(named), protects)


def keep(source: Node, *column_ids: str) -> Project:
    """Return a projection to some of the outputs."""
    return Project(source, tuple(Named(column_id, column(column_id)) for column_id in column_ids))


def context(connector: FakeConnector | None = None) -> Context:
    return Context({"fake": connector or FakeConnector()})


def get_predicates(plan: Node) -> list[Expr]:
    """Return the predicates that were pushed into the scans of a plan."""
    return [fake(node.handle).predicate for node in walk_plan(plan) if isinstance(node, TableScan)]
