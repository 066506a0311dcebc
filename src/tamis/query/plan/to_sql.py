"""A plan as one sqlglot tree in Spark's dialect, over named relations: its scans and literal rows.

Every column is named by its column id, which is unique in the plan, so nested queries need no table qualifiers.
Adjacent nodes become one SELECT where the meaning is the same:

    Project(TopN(Filter(TableScan)))   SELECT … FROM `tamis_scan_1` WHERE … ORDER BY … LIMIT …
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from sqlglot import exp

from tamis.expr.nodes import Column, Expr
from tamis.query.connectors.lake_handle import is_sum_scan
from tamis.query.plan import nodes
from tamis.query.plan.column_ids import is_deterministic, substitute
from tamis.types import type_name


@dataclass(frozen=True, slots=True)
class PlanTree:
    """A query, and by name the plan nodes that are its relations. Their columns are named by column ids."""

    tree: exp.Expr
    leaves: tuple[tuple[str, nodes.Node], ...]


def build_plan_tree(
    plan: nodes.Node,
    expression: Callable[[Expr], exp.Expr],
    *,
    is_leaf: Callable[[nodes.Node], bool] = lambda node: False,
) -> PlanTree:
    """Return the query of a plan, with the trees that `expression` makes of its expressions.

    `is_leaf` selects further nodes, besides scans and values, that are relations of the query.
    """
    trees = [node.tree for node in nodes.walk_plan(plan) if isinstance(node, nodes.Sql)]
    names = {each.name.lower() for tree in trees for each in tree.find_all(exp.Identifier)}
    prefix = "tamis"
    while any(prefix in name for name in names):
        # A query may define a table of any name, which would shadow a relation.
        prefix += "_"
    builder = _TreeBuilder(expression, is_leaf, prefix, find_common_subplans(plan))
    tree = builder.block(plan).to_tree()
    if builder.commons:
        # The query may have its own WITH.
        tree = tree if tree.find(exp.With) is None else _select([exp.Star()], _make_source(tree, "whole"))
        tree.set("with_", exp.With(expressions=builder.commons))
    return PlanTree(tree, tuple(builder.leaves))


@dataclass(frozen=True, slots=True)
class _Block:
    """An unfinished SELECT. Empty clauses can still be added."""

    source: exp.Expr
    columns: tuple[str, ...]
    """The column ids that it returns."""
    joins: tuple[exp.Join, ...] = ()
    where: tuple[exp.Expr, ...] = ()
    outputs: tuple[exp.Expr, ...] | None = None
    """The SELECT list; None for the unchanged columns."""
    order: exp.Order | None = None
    limit: tuple[int, int] | None = None
    """The number of rows, and the number of rows before them."""
    is_finished: bool = False
    """Whether the source is the whole query."""

    @property
    def is_bare(self) -> bool:
        """Return whether it only selects the columns of its source."""
        return self.is_open and not self.where

    @property
    def is_open(self) -> bool:
        """Return whether a WHERE can still be added."""
        return not self.is_finished and self.outputs is None and self.order is None and self.limit is None

    def to_tree(self) -> exp.Expr:
        if self.is_finished:
            return self.source
        outputs = self.outputs if self.outputs is not None else tuple(map(_name_column, self.columns))
        select = _select(list(outputs) or [_write_alias(exp.Literal.number(1), "nothing")], self.source)
        if self.joins:
            select.set("joins", list(self.joins))
        if self.where:
            select.set("where", exp.Where(this=_join_conditions(self.where)))
        if self.order is not None:
            select.set("order", self.order)
        count, offset = self.limit or (nodes.UNLIMITED, 0)
        if count < nodes.UNLIMITED:
            select.set("limit", exp.Limit(expression=exp.Literal.number(count)))
        if offset:
            select.set("offset", exp.Offset(expression=exp.Literal.number(offset)))
        return select


class _TreeBuilder:
    def __init__(
        self,
        expression: Callable[[Expr], exp.Expr],
        is_leaf: Callable[[nodes.Node], bool],
        prefix: str,
        shared: Mapping[int, int],
    ) -> None:
        self._expression = expression
        self._prefix = prefix
        self._shared = shared
        self._columns: dict[int, tuple[str, ...]] = {}
        self.commons: list[exp.CTE] = []
        """The common subplans as entries of a WITH clause."""
        self._is_leaf = is_leaf
        self._count = 0
        self.leaves: list[tuple[str, nodes.Node]] = []

    def block(self, node: nodes.Node) -> _Block:
        number = self._shared.get(id(node))
        return self._build_node(node) if number is None else self._reference_common(node, number)

    def _reference_common(self, node: nodes.Node, number: int) -> _Block:
        """Return a common subplan as a reference to its WITH entry, with the column ids of this use."""
        name = f"{self._prefix}_shared_{number}"
        columns = tuple(output.name for output in nodes.get_outputs(node))
        if number not in self._columns:
            tree = self._build_node(node).to_tree()
            self._columns[number] = columns
            self.commons.append(exp.CTE(this=tree, alias=exp.TableAlias(this=_quote(name))))
        pairs = zip(self._columns[number], columns, strict=True)
        return _Block(_name_table(name), columns, outputs=tuple(_rename(one, other) for one, other in pairs))

    def _build_node(self, node: nodes.Node) -> _Block:
        columns = tuple(output.name for output in nodes.get_outputs(node))
        if self._is_leaf(node):
            return self._add_leaf("scan", node, columns)
        match node:
            case nodes.TableScan():
                return self._add_leaf("scan", node, columns)
            case nodes.Values():
                return self._add_leaf("rows", node, columns)
            case nodes.Filter():
                below = self.block(node.source)
                below = below if below.is_open else self._wrap(below)
                return replace(below, where=(*below.where, exp.Paren(this=self._expression(node.predicate))))
            case nodes.Project():
                below = self.block(node.source)
                below = below if not below.is_finished and below.outputs is None else self._wrap(below)
                outputs = tuple(self._build_output(each.expr, each.name) for each in node.outputs)
                return replace(below, outputs=outputs, columns=columns)
            case nodes.Aggregate():
                return self._build_aggregate(node, columns)
            case nodes.Join():
                return self._build_join(node, columns)
            case nodes.Sort():
                return self._build_sort(node.source, node.keys)
            case nodes.TopN():
                return replace(self._build_sort(node.source, node.keys), limit=(node.count, 0))
            case nodes.Limit():
                below = self.block(node.source)
                below = below if not below.is_finished and below.limit is None else self._wrap(below)
                return replace(below, limit=(node.count, node.offset))
            case nodes.Union():
                return self._build_union(node, columns)
            case nodes.Sql():
                return self._build_sql(node, columns)

    def _add_leaf(self, kind: str, node: nodes.Node, columns: tuple[str, ...]) -> _Block:
        name = f"{self._prefix}_{kind}_{len(self.leaves) + 1}"
        self.leaves.append((name, node))
        return _Block(_name_table(name), columns)

    def _wrap(self, block: _Block) -> _Block:
        self._count += 1
        return _Block(_make_source(block.to_tree(), f"t{self._count}"), block.columns)

    def _build_output(self, expr: Expr, name: str) -> exp.Expr:
        if nodes.Named(name, expr).is_forwarded:
            return _name_column(name)
        return _write_alias(self._expression(expr), name)

    def _build_aggregate(self, node: nodes.Aggregate, columns: tuple[str, ...]) -> _Block:
        below = self.block(node.source)
        below = below if below.is_open else self._wrap(below)
        keys = [self._build_output(key.expr, key.name) for key in node.keys]
        calls = [_write_alias(self._build_call(each), each.name) for each in node.aggregates]
        # Without keys there is one group, and the query may use none of its values.
        outputs = (*keys, *calls) or (_write_alias(_call("count", exp.Star()), "nothing"),)
        tree = replace(below, outputs=outputs, columns=columns).to_tree()
        if node.keys:
            tree.set("group", exp.Group(expressions=[self._expression(key.expr) for key in node.keys]))
        return _Block(tree, columns, is_finished=True)

    def _build_call(self, call: nodes.AggregateCall) -> exp.Expr:
        args = [self._expression(arg) for arg in call.args] or [exp.Star()]
        found = _call(call.function, *([exp.Distinct(expressions=args)] if call.distinct else args))
        if call.filter is not None:
            found = exp.Filter(this=found, expression=exp.Where(this=self._expression(call.filter)))
        if call.function != "sum" or call.type is None or pa.types.is_floating(call.type):
            return found
        # An engine may have a wider type for sums.
        return exp.cast(found, type_name(call.type), dialect="spark")

    def _build_join(self, node: nodes.Join, columns: tuple[str, ...]) -> _Block:
        left, right = self.block(node.left), self.block(node.right)
        left = left if left.is_bare else self._wrap(left)
        right = right if right.is_bare and not right.joins else self._wrap(right)
        conditions: list[exp.Expr] = [
            exp.EQ(this=self._build_operand(one), expression=self._build_operand(other)) for one, other in node.criteria
        ]
        if node.filter is not None:
            conditions.append(exp.Paren(this=self._expression(node.filter)))
        join = exp.Join(this=right.source)
        match node.kind:
            case "inner" | "cross":
                join.set("kind", "INNER" if conditions else "CROSS")
            case "semi" | "anti":
                join.set("side", "LEFT")
                join.set("kind", node.kind.upper())
            case _:
                join.set("side", node.kind.upper())
        if join.args.get("kind") != "CROSS":
            join.set("on", _join_conditions(conditions or [exp.true()]))
        return _Block(left.source, columns, joins=(*left.joins, join))

    def _build_operand(self, expr: Expr) -> exp.Expr:
        tree = self._expression(expr)
        return tree if isinstance(expr, Column) else exp.Paren(this=tree)

    def _build_sort(self, source: nodes.Node, keys: Sequence[nodes.SortKey]) -> _Block:
        below = self.block(source)
        below = below if below.is_open else self._wrap(below)
        ordered = [
            exp.Ordered(this=self._build_operand(key.expr), desc=key.descending, nulls_first=key.nulls_first)
            for key in keys
        ]
        return replace(below, order=exp.Order(expressions=ordered))

    def _build_union(self, node: nodes.Union, columns: tuple[str, ...]) -> _Block:
        trees = []
        for source in node.sources:
            block = self.block(source)
            if block.columns != columns:
                names = zip(block.columns, columns, strict=True)
                block = replace(
                    self._wrap(block), outputs=tuple(_write_alias(_name_column(own), name) for own, name in names)
                )
            elif block.order is not None or block.limit is not None:
                block = self._wrap(block)
            trees.append(block.to_tree())
        tree, *others = trees
        for other in others:
            tree = exp.Union(this=tree, expression=other, distinct=False, by_name=False)
        return _Block(tree, columns, is_finished=True)

    def _build_sql(self, node: nodes.Sql, columns: tuple[str, ...]) -> _Block:
        inputs = {name: self.block(source).to_tree() for name, source in node.inputs}
        root = exp.Paren(this=node.tree.copy())
        for table in list(root.find_all(exp.Table)):
            if table.name in inputs:
                tree = inputs[table.name]
                sample = table.args.get("sample")
                # TABLESAMPLE precedes the alias, which is then optional.
                source = _make_source(tree if tree.parent is None else tree.copy(), None if sample else table.name)
                source.set("sample", sample)
                table.replace(source)
        return _Block(root.this.pop(), columns, is_finished=True)


def _quote(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def _name_column(name: str) -> exp.Expr:
    return exp.Column(this=_quote(name))


def _name_table(name: str) -> exp.Expr:
    return exp.Table(this=_quote(name))


def _write_alias(value: exp.Expr, name: str) -> exp.Expr:
    return exp.Alias(this=value, alias=_quote(name))


def _rename(name: str, new: str) -> exp.Expr:
    return _name_column(name) if name == new else _write_alias(_name_column(name), new)


def _call(function: str, *args: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=function, expressions=list(args))


def _select(outputs: Sequence[exp.Expr], source: exp.Expr) -> exp.Select:
    return exp.Select(expressions=list(outputs), from_=exp.From(this=source))


def _make_source(tree: exp.Expr, alias: str | None) -> exp.Expr:
    return exp.Subquery(this=tree, alias=None if alias is None else exp.TableAlias(this=_quote(alias)))


def _join_conditions(conditions: Sequence[exp.Expr]) -> exp.Expr:
    tree, *others = conditions
    for other in others:
        tree = exp.And(this=tree, expression=other)
    return tree


# --- Common subplans: parts of a plan that occur several times, up to their column ids, and run once ------------------
#
# A common table expression is planned for each of its uses. If two of them are still equal after the rules, running
# both would be a waste.


def find_common_subplans(plan: nodes.Node) -> dict[int, int]:
    """Return a number for each node of a common subplan, by the node's `id()`. Equal subplans share a number."""
    scans = [(node.connector, node.handle) for node in nodes.walk_plan(plan) if isinstance(node, nodes.TableScan)]
    if len(set(scans)) == len(scans):
        return {}
    numbers: dict[nodes.Node, list[int]] = {}
    for node in nodes.walk_plan(plan):
        # A node that only filters or renames a scan streams through the engine; sharing would materialise it.
        if isinstance(node, nodes.Aggregate | nodes.Join | nodes.TopN | nodes.Limit) or is_sum_scan(node):
            named = _rename_columns(node)
            if named is not None:
                numbers.setdefault(named, []).append(id(node))
    groups = [members for members in numbers.values() if len(members) > 1]
    return {member: number for number, members in enumerate(groups) for member in members}


def _rename_columns(plan: nodes.Node) -> nodes.Node | None:
    """Return a subplan with columns renamed by their order, so that equal subplans compare equal.

    Return None if it contains SQL text, literal rows or random values.
    """
    for node in nodes.walk_plan(plan):
        if isinstance(node, nodes.Sql | nodes.Values) or not all(map(is_deterministic, nodes.get_expressions(node))):
            return None
    names: dict[str, Column] = {}

    def name(column_id: str) -> str:
        return names.setdefault(column_id, Column((f"c{len(names)}",), None)).path[0]

    def name_outputs(given: Sequence[nodes.Named]) -> tuple[nodes.Named, ...]:
        return tuple(nodes.Named(name(each.name), each.expr) for each in given)

    def change(given: nodes.Node) -> nodes.Node:
        # An output may have the name of a column of the source: the expressions are renamed first.
        match node := nodes.map_expressions(given, lambda expr: substitute(expr, names)):
            case nodes.TableScan() | nodes.Union():
                return replace(node, columns=tuple(nodes.Output(name(each.name), each.type) for each in node.columns))
            case nodes.Project():
                return replace(node, outputs=name_outputs(node.outputs))
            case nodes.Aggregate():
                calls = tuple(replace(call, name=name(call.name)) for call in node.aggregates)
                return replace(node, keys=name_outputs(node.keys), aggregates=calls)
            case _:
                return node

    return nodes.transform_up(plan, change)
