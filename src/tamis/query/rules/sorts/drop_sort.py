"""Drop the sort of a query whose scan returns rows in that order.

    Sort(TableScan(t), by day)  ─▶  TableScan(t, in the order of day)

Only filters, projections and limits may be between the sort, the result and the scan: see `scan_order`.
"""

from __future__ import annotations

from tamis.query.plan.nodes import Node, Sort
from tamis.query.plan.optimizer import Context
from tamis.query.rules.sorts.scan_order import apply_below, sort_source


class DropSort:
    name = "drop_sort"
    is_final = True
    is_of_root = True

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Sort(source, keys):
                return sort_source(source, keys, context, may_push=True)
            case _:
                return apply_below(self, node, context)
