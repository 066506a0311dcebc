"""Replace a top-n by a limit if the scan returns rows in that order: it stops after the first rows.

    TopN(TableScan(t, in the order of day), by day, n)  ─▶  Limit(TableScan(t, in the order of day), n)

A scan without this order is left to `push_top_n_into_scan`, which reads less than a sorted scan would.
"""

from __future__ import annotations

from tamis.query.plan.nodes import Limit, Node, TopN
from tamis.query.plan.optimizer import Context
from tamis.query.rules.sorts.scan_order import apply_below, sort_source


class ReplaceTopNByLimit:
    name = "replace_top_n_by_limit"
    is_final = True
    is_of_root = True

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case TopN(source, keys, count):
                found = sort_source(source, keys, context, may_push=False)
                return None if found is None else Limit(found, count)
            case _:
                return apply_below(self, node, context)
