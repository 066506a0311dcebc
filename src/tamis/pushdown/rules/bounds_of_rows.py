"""How many rows a node returns at most, as far as its plan tells."""

from __future__ import annotations

from tamis.pushdown.nodes import Aggregate, Filter, Limit, Node, Project, Sort, TableScan, TopN, Values
from tamis.pushdown.optimizer import Context


def most_rows(node: Node, context: Context) -> int | None:
    """None where it is not known."""
    while True:
        match node:
            case TableScan():
                return context.properties(node).rows
            case Values():
                return int(node.rows.num_rows)
            case Limit() | TopN():
                below = most_rows(node.source, context) if not isinstance(node.source, TableScan) else None
                return node.count if below is None else min(node.count, below)
            case Aggregate(keys=()):
                return 1
            case Filter() | Project() | Sort() | Aggregate():
                node = node.source
            case _:
                return None
