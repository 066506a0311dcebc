"""Logical plans: what a query means, as a tree of values.

Every node has named outputs. Names are unique within a plan, so that an expression means the same wherever it stands:
a scan of `orders` that is read twice has `orders.id` once and `orders_2.id` once. Nodes are immutable and compare by
value, which is how the driver of the rules knows that it is done. An expression is one of `tamis.expr`, in which a
column is an output of the node below, or a field inside of one.

    TableScan ─▶ Filter ─▶ Aggregate ─▶ TopN ─▶ Project
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal as OneOf
from typing import TypeAlias

import pyarrow as pa

from tamis.expr.functions import type_of
from tamis.expr.nodes import Expr

UNLIMITED = 2**62
"""The count of a limit that has only an offset: as many rows as there may be."""

JoinKind: TypeAlias = OneOf["inner", "left", "right", "full", "semi", "anti", "cross"]


@dataclass(frozen=True, slots=True)
class Output:
    """A column of what a node returns. The type is None where only the engine knows it."""

    name: str
    type: pa.DataType | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Named:
    """An expression, and the output that it becomes."""

    name: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate function over the rows of a group."""

    name: str
    function: str
    """`count`, `min`, `max`, `sum`, `avg`, or any other that the engine knows."""
    args: tuple[Expr, ...] = ()
    """None for `count(*)`."""
    distinct: bool = False
    filter: Expr | None = None
    type: pa.DataType | None = field(default=None, compare=False)
    """Of the result, where it is known."""


@dataclass(frozen=True, slots=True)
class SortKey:
    expr: Expr
    descending: bool = False
    nulls_first: bool = True
    """As in Spark: NULL comes first unless the order is descending."""


@dataclass(frozen=True, slots=True)
class TableScan:
    """Rows of a table, through the connector that owns the handle. `columns` are in the order of the handle."""

    connector: str
    """The name under which the session has the connector."""
    handle: object
    """What to read; a value that only the connector understands, and that compares by what it says."""
    columns: tuple[Output, ...]
    protects: bool = False
    """Whether a policy covers the table: of the user's filters only leakproof ones go in, and nothing is told of it."""


@dataclass(frozen=True, slots=True)
class Filter:
    source: Node
    predicate: Expr
    """Rows for which it is TRUE stay."""
    protects: bool = False
    """Whether it is a row filter of a policy: nothing that could tell of hidden rows goes below it."""


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
    """Pairs that must be equal, the first of the left side, the second of the right."""
    filter: Expr | None = None
    """What else must be TRUE of a pair of rows."""
    prunes: OneOf["left", "right"] | None = None
    """The side that is read last, pruned by the keys of the other one."""


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
    """All rows of several nodes, duplicates included; the outputs of each in the same order."""

    sources: tuple[Node, ...]
    columns: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class Values:
    """Rows that stand in the query."""

    rows: pa.Table
    columns: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class Sql:
    """A part of a query that is not modelled: text in Spark's dialect over the plans that it reads from.

    In the text a plan is a table of the name that `inputs` gives it, with the outputs of the plan as its columns.
    """

    text: str
    inputs: tuple[tuple[str, Node], ...]
    columns: tuple[Output, ...]


Node: TypeAlias = TableScan | Filter | Project | Aggregate | Join | Sort | Limit | TopN | Union | Values | Sql


def sources_of(node: Node) -> tuple[Node, ...]:
    """The nodes that a node reads from."""
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


def with_sources(node: Node, sources: tuple[Node, ...]) -> Node:
    """The node over other nodes; itself where they are the same."""
    if all(one is other for one, other in zip(sources, sources_of(node), strict=True)):
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
    """The plan with `change` applied to every node, sources first."""
    results: list[Node] = []
    waiting: list[tuple[Node, bool]] = [(node, False)]
    while waiting:
        current, is_ready = waiting.pop()
        sources = sources_of(current)
        if is_ready or not sources:
            count = len(sources)
            changed = tuple(results[len(results) - count :])
            del results[len(results) - count :]
            results.append(change(with_sources(current, changed)))
        else:
            waiting.append((current, True))
            waiting += [(source, False) for source in reversed(sources)]
    (result,) = results
    return result


def walk_plan(node: Node) -> Iterator[Node]:
    """All nodes of a plan, a node before its sources."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting += reversed(sources_of(current))


def outputs_of(node: Node) -> tuple[Output, ...]:
    """The columns that a node returns."""
    match node:
        case TableScan() | Union() | Values() | Sql():
            return node.columns
        case Project():
            return tuple(Output(each.name, type_of(each.expr)) for each in node.outputs)
        case Aggregate():
            keys = (Output(each.name, type_of(each.expr)) for each in node.keys)
            return (*keys, *(Output(each.name, each.type) for each in node.aggregates))
        case Join(kind="semi" | "anti"):
            return outputs_of(node.left)
        case Join():
            return (*outputs_of(node.left), *outputs_of(node.right))
        case _:
            return outputs_of(node.source)
