"""Push a limit into each source of a union: none of them has to return more rows than the union.

Limit(Union(x, y), n)  ─▶  Limit(Union(Limit(x, n), Limit(y, n)), n)
"""

from __future__ import annotations

from dataclasses import replace

from tamis.query.plan import nodes
from tamis.query.plan.optimizer import Context


class PushLimitThroughUnion:
    name = "push_limit_through_union"

    def apply(self, node: nodes.Node, context: Context) -> nodes.Node | None:
        match node:
            case nodes.Limit(nodes.Union() as union, count, offset) if count < nodes.UNLIMITED:
                wanted = count + offset
                sources = tuple(_limit_source(source, wanted, context) for source in union.sources)
                if all(new is old for new, old in zip(sources, union.sources, strict=True)):
                    return None
                return replace(node, source=replace(union, sources=sources))
            case _:
                return None


def _limit_source(source: nodes.Node, count: int, context: Context) -> nodes.Node:
    known = find_row_bound(source, context)
    return source if known is not None and known <= count else nodes.Limit(source, count)


# --- Upper bounds of the number of rows that a node returns -----------------------------------------------------------


def find_row_bound(node: nodes.Node, context: Context) -> int | None:
    """Return an upper bound of the number of rows of a node; None if it is unknown."""
    while True:
        match node:
            case nodes.TableScan():
                return context.properties(node).rows
            case nodes.Values():
                return int(node.rows.num_rows)
            case nodes.Limit() | nodes.TopN():
                below = find_row_bound(node.source, context) if not isinstance(node.source, nodes.TableScan) else None
                return node.count if below is None else min(node.count, below)
            case nodes.Aggregate(keys=()):
                return 1
            case nodes.Filter() | nodes.Project() | nodes.Sort() | nodes.Aggregate():
                node = node.source
            case _:
                return None
