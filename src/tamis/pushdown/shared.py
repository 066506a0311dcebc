"""Common subplans: parts of a plan that occur several times, up to their column ids, and run once.

A common table expression is planned for each of its uses. If two of them are still equal after the rules, running both
would be a waste.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tamis.expr.nodes import Column, Expr
from tamis.pushdown.connectors.lake_sums import is_sum_scan
from tamis.pushdown.nodes import (
    Aggregate,
    Filter,
    Join,
    Limit,
    Named,
    Node,
    Output,
    Project,
    Sort,
    SortKey,
    Sql,
    TableScan,
    TopN,
    Union,
    Values,
    get_sources,
    walk_plan,
)
from tamis.pushdown.symbols import is_deterministic, substitute


def find_common_subplans(plan: Node) -> dict[int, int]:
    """Return a number for each node of a common subplan, by the node's `id()`. Equal subplans share a number."""
    scans = [(node.connector, node.handle) for node in walk_plan(plan) if isinstance(node, TableScan)]
    if len(set(scans)) == len(scans):
        return {}
    numbers: dict[Node, list[int]] = {}
    for node in walk_plan(plan):
        # A node that only filters or renames a scan streams through the engine; sharing would materialise it.
        if isinstance(node, Aggregate | Join | TopN | Limit) or is_sum_scan(node):
            named = _Renamer().node(node)
            if named is not None:
                numbers.setdefault(named, []).append(id(node))
    groups = [members for members in numbers.values() if len(members) > 1]
    return {member: number for number, members in enumerate(groups) for member in members}


class _Renamer:
    """Renames the columns of a subplan by their order, so that equal subplans compare equal."""

    def __init__(self) -> None:
        self._names: dict[str, Column] = {}

    def node(self, node: Node) -> Node | None:
        """Return the subplan with renamed columns; None if it contains SQL text, literal rows or random values."""
        sources = [self.node(source) for source in get_sources(node)]
        if None in sources or isinstance(node, Sql | Values):
            return None
        below = [source for source in sources if source is not None]
        match node:
            case TableScan():
                return replace(node, columns=self._rename_outputs(node.columns))
            case Union():
                return replace(node, sources=tuple(below), columns=self._rename_outputs(node.columns))
            case Filter(predicate=predicate):
                return (
                    None
                    if (kept := self._rename_expr(predicate)) is None
                    else replace(node, source=below[0], predicate=kept)
                )
            case Project():
                outputs = self._rename_named(node.outputs)
                return None if outputs is None else replace(node, source=below[0], outputs=outputs)
            case Aggregate():
                return self._rename_aggregate(node, below[0])
            case Join():
                return self._rename_join(node, below[0], below[1])
            case Sort() | TopN():
                keys = self._rename_keys(node.keys)
                return None if keys is None else replace(node, source=below[0], keys=keys)
            case Limit():
                return replace(node, source=below[0])

    def _new_name(self, column_id: str) -> str:
        found = self._names.setdefault(column_id, Column((f"c{len(self._names)}",)))
        return found.path[0]

    def _rename_outputs(self, outputs: Sequence[Output]) -> tuple[Output, ...]:
        return tuple(Output(self._new_name(each.name), each.type) for each in outputs)

    def _rename_expr(self, expr: Expr) -> Expr | None:
        return substitute(expr, self._names) if is_deterministic(expr) else None

    def _rename_named(self, given: Sequence[Named]) -> tuple[Named, ...] | None:
        values = [self._rename_expr(each.expr) for each in given]
        if None in values:
            return None
        pairs = zip(given, values, strict=True)
        return tuple(Named(self._new_name(each.name), value) for each, value in pairs if value is not None)

    def _rename_keys(self, keys: Sequence[SortKey]) -> tuple[SortKey, ...] | None:
        values = [self._rename_expr(key.expr) for key in keys]
        if None in values:
            return None
        return tuple(replace(key, expr=value) for key, value in zip(keys, values, strict=True) if value is not None)

    def _rename_aggregate(self, node: Aggregate, source: Node) -> Node | None:
        aggregates = []
        for call in node.aggregates:
            args = [self._rename_expr(arg) for arg in call.args]
            kept = None if call.filter is None else self._rename_expr(call.filter)
            if None in args or (kept is None) is not (call.filter is None):
                return None
            known = tuple(arg for arg in args if arg is not None)
            aggregates.append(replace(call, name="", args=known, filter=kept))
        keys = self._rename_named(node.keys)
        if keys is None:
            return None
        named = [
            replace(each, name=self._new_name(call.name))
            for each, call in zip(aggregates, node.aggregates, strict=True)
        ]
        return Aggregate(source, keys, tuple(named))

    def _rename_join(self, node: Join, left: Node, right: Node) -> Node | None:
        sides = [self._rename_expr(each) for pair in node.criteria for each in pair]
        kept = None if node.filter is None else self._rename_expr(node.filter)
        if None in sides or (kept is None) is not (node.filter is None):
            return None
        known = [each for each in sides if each is not None]
        criteria = tuple(zip(known[::2], known[1::2], strict=True))
        return replace(node, left=left, right=right, criteria=criteria, filter=kept)
