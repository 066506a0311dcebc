"""Drop the sort of a query whose scan returns rows in that order.

    Sort(TableScan(t), by day)  ─▶  TableScan(t, in the order of day)

Only filters, projections and limits may be between the sort, the result and the scan: see `scan_order`.
"""

from __future__ import annotations

from dataclasses import replace

from tamis.query.plan.nodes import Filter, Limit, Node, Project, Sort
from tamis.query.plan.optimizer import Context
from tamis.query.rules.sorts.scan_order import keeps_order, sort_source


class DropSort:
    name = "drop_sort"
    is_final = True
    is_of_root = True

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Sort(source, keys):
                return sort_source(source, keys, context, may_push=True)
            case Project() | Filter() | Limit() if keeps_order(node):
                below = self.apply(node.source, context)
                return None if below is None else replace(node, source=below)
            case _:
                return None
