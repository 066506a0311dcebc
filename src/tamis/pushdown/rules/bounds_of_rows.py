"""Upper bounds of the number of rows that a node returns."""

from __future__ import annotations

from tamis.pushdown.nodes import Aggregate, Filter, Limit, Node, Project, Sort, TableScan, TopN, Values
from tamis.pushdown.optimizer import Context


def find_row_bound(node: Node, context: Context) -> int | None:
    """Return an upper bound of the number of rows of a node; None if it is unknown."""
    while True:
        match node:
            case TableScan():
                return context.properties(node).rows
            case Values():
                return int(node.rows.num_rows)
            case Limit() | TopN():
                below = find_row_bound(node.source, context) if not isinstance(node.source, TableScan) else None
                return node.count if below is None else min(node.count, below)
            case Aggregate(keys=()):
                return 1
            case Filter() | Project() | Sort() | Aggregate():
                node = node.source
            case _:
                return None
