"""Logical plans: the meaning of a query as a tree of immutable nodes.

Every node has named outputs. Their names are column ids, unique within a plan, so that an expression means the same
anywhere in it: a plan that scans `orders` twice has `orders.id` once and `orders_2.id` once. Nodes compare by value,
which is how the optimizer detects its fixpoint. Expressions are those of `tamis.expr`; a column in one is an output of
the node below, or a field inside of it.

    TableScan ─▶ Filter ─▶ Aggregate ─▶ TopN ─▶ Project
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal as OneOf
from typing import TypeAlias

import pyarrow as pa
from sqlglot import exp

from tamis.expr.functions.table import type_of
from tamis.expr.nodes import Column, Expr

UNLIMITED = 2**62
"""The count of a limit that has only an offset."""

JoinKind: TypeAlias = OneOf["inner", "left", "right", "full", "semi", "anti", "cross"]


@dataclass(frozen=True, slots=True)
class Output:
    """An output column of a node. The type is None if only the engine knows it."""

    name: str
    type: pa.DataType | None = field(default=None, compare=False)

    @property
    def column(self) -> Column:
        """The column by which a node above refers to this output."""
        return Column((self.name,), self.type)


@dataclass(frozen=True, slots=True)
class Named:
    """An expression with the column id of its output."""

    name: str
    expr: Expr

    @property
    def is_forwarded(self) -> bool:
        """Return whether it is a column under its own name."""
        return isinstance(self.expr, Column) and self.expr.path == (self.name,)


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate function over the rows of a group."""

    name: str
    function: str
    """`count`, `min`, `max`, `sum`, `avg`, or another function of the engine."""
    args: tuple[Expr, ...] = ()
    """Empty for `count(*)`."""
    distinct: bool = False
    filter: Expr | None = None
    type: pa.DataType | None = field(default=None, compare=False)
    """The type of the result, if known."""

    def map(self, change: Callable[[Expr], Expr]) -> AggregateCall:
        """Return the call with `change` applied to its arguments and its filter."""
        kept = None if self.filter is None else change(self.filter)
        return replace(self, args=tuple(map(change, self.args)), filter=kept)


@dataclass(frozen=True, slots=True)
class SortKey:
    expr: Expr
    descending: bool = False
    nulls_first: bool = True
    """Spark's default is that NULL comes first unless the order is descending."""


@dataclass(frozen=True, slots=True)
class TableScan:
    """The rows of a table, read through the connector that owns the handle. `columns` are in the handle's order."""

    connector: str
    """The name of the connector in the session."""
    handle: object
    """What to read: a value that only the connector understands, compared by value."""
    columns: tuple[Output, ...]
    is_protected: bool = False
    """Whether a policy covers the table: only leakproof user filters are pushed into it, and reports redact it."""


@dataclass(frozen=True, slots=True)
class Filter:
    source: Node
    predicate: Expr
    """Rows for which it is TRUE are kept."""
    protects: bool = False
    """Whether it is a row filter of a policy: nothing that could reveal hidden rows is pushed below it."""


@dataclass(frozen=True, slots=True)
class Project:
    source: Node
    outputs: tuple[Named, ...]
    protects: bool = False
    """Whether it masks columns for a policy."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    source: Node
    keys: tuple[Named, ...]
    aggregates: tuple[AggregateCall, ...]


@dataclass(frozen=True, slots=True)
class Join:
    left: Node
    right: Node
    kind: JoinKind
    criteria: tuple[tuple[Expr, Expr], ...] = ()
    """Pairs of expressions that must be equal: the first over the left side, the second over the right side."""
    filter: Expr | None = None
    """A further condition on a pair of rows."""
    dynamic_filter_side: OneOf["left", "right"] | None = None
    """The side that gets a dynamic filter: it is read last, pruned by the join keys of the other side."""


@dataclass(frozen=True, slots=True)
class Sort:
    source: Node
    keys: tuple[SortKey, ...]


@dataclass(frozen=True, slots=True)
class Limit:
    source: Node
    count: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class TopN:
    source: Node
    keys: tuple[SortKey, ...]
    count: int


@dataclass(frozen=True, slots=True)
class Union:
    """All rows of several nodes, including duplicates. The outputs of all nodes are in the same order."""

    sources: tuple[Node, ...]
    columns: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class Values:
    """Literal rows."""

    rows: pa.Table
    columns: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class Sql:
    """Unsupported SQL: a part of a query without plan nodes, kept as a syntax tree over the plans it reads from.

    The tree refers to each plan as a table of the name in `inputs`, with the outputs of the plan as its columns.
    """

    tree: exp.Expr
    inputs: tuple[tuple[str, Node], ...]
    columns: tuple[Output, ...]


Node: TypeAlias = TableScan | Filter | Project | Aggregate | Join | Sort | Limit | TopN | Union | Values | Sql


def get_sources(node: Node) -> tuple[Node, ...]:
    match node:
        case TableScan() | Values():
            return ()
        case Join():
            return (node.left, node.right)
        case Union():
            return node.sources
        case Sql():
            return tuple(source for _, source in node.inputs)
        case _:
            return (node.source,)


def replace_sources(node: Node, sources: tuple[Node, ...]) -> Node:
    """Return the node with other sources; the same object if they are unchanged."""
    if all(one is other for one, other in zip(sources, get_sources(node), strict=True)):
        return node
    match node:
        case TableScan() | Values():
            return node
        case Join():
            left, right = sources
            return replace(node, left=left, right=right)
        case Union():
            return replace(node, sources=sources)
        case Sql():
            names = [name for name, _ in node.inputs]
            return replace(node, inputs=tuple(zip(names, sources, strict=True)))
        case _:
            (source,) = sources
            return replace(node, source=source)


def transform_up(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return the plan with `change` applied to every node, sources first."""
    results: list[Node] = []
    waiting: list[tuple[Node, bool]] = [(node, False)]
    while waiting:
        current, is_ready = waiting.pop()
        sources = get_sources(current)
        if is_ready or not sources:
            count = len(sources)
            changed = tuple(results[len(results) - count :])
            del results[len(results) - count :]
            results.append(change(replace_sources(current, changed)))
        else:
            waiting.append((current, True))
            waiting += [(source, False) for source in reversed(sources)]
    (result,) = results
    return result


def walk_plan(node: Node) -> Iterator[Node]:
    """Yield all nodes of a plan, each node before its sources."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting += reversed(get_sources(current))


def get_expressions(node: Node) -> tuple[Expr, ...]:
    """Return the expressions of a node, which read the outputs of its sources. Those in SQL text are not among them."""
    match node:
        case Filter():
            return (node.predicate,)
        case Project():
            return tuple(each.expr for each in node.outputs)
        case Aggregate():
            filters = (each.filter for each in node.aggregates if each.filter is not None)
            args = (arg for each in node.aggregates for arg in each.args)
            return (*(each.expr for each in node.keys), *args, *filters)
        case Join():
            pairs = (each for pair in node.criteria for each in pair)
            return (*pairs, *(() if node.filter is None else (node.filter,)))
        case Sort() | TopN():
            return tuple(key.expr for key in node.keys)
        case _:
            return ()


def map_expressions(node: Node, change: Callable[[Expr], Expr]) -> Node:
    """Return the node with `change` applied to its expressions, those of `get_expressions`."""
    match node:
        case Filter():
            return replace(node, predicate=change(node.predicate))
        case Project():
            return replace(node, outputs=tuple(Named(each.name, change(each.expr)) for each in node.outputs))
        case Aggregate():
            keys = tuple(Named(each.name, change(each.expr)) for each in node.keys)
            return replace(node, keys=keys, aggregates=tuple(each.map(change) for each in node.aggregates))
        case Join():
            criteria = tuple((change(left), change(right)) for left, right in node.criteria)
            return replace(node, criteria=criteria, filter=None if node.filter is None else change(node.filter))
        case Sort() | TopN():
            return replace(node, keys=tuple(replace(key, expr=change(key.expr)) for key in node.keys))
        case _:
            return node


def get_outputs(node: Node) -> tuple[Output, ...]:
    """Return the output columns of a node."""
    match node:
        case TableScan() | Union() | Values() | Sql():
            return node.columns
        case Project():
            return tuple(Output(each.name, type_of(each.expr)) for each in node.outputs)
        case Aggregate():
            keys = (Output(each.name, type_of(each.expr)) for each in node.keys)
            return (*keys, *(Output(each.name, each.type) for each in node.aggregates))
        case Join(kind="semi" | "anti"):
            return get_outputs(node.left)
        case Join():
            return (*get_outputs(node.left), *get_outputs(node.right))
        case _:
            return get_outputs(node.source)
