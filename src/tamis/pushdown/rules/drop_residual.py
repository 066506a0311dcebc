"""What every row of a scan satisfies already need not be tested again.

    Filter(TableScan(t where a > 5), a > 5 AND f(b))  ─▶  Filter(TableScan(t where a > 5), f(b))

Within a scan the same is done file by file and row group by row group: those that match whole are not tested at all.
"""

from __future__ import annotations

from tamis.pushdown.nodes import Filter, Node, TableScan
from tamis.pushdown.optimizer import Context
from tamis.pushdown.rules.conjuncts import filtered, parts_of
from tamis.pushdown.rules.scan_names import ScanNames


class DropResidual:
    name = "drop_residual"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Filter(TableScan() as scan, predicate, protects):
                satisfied = context.connector(scan.connector).satisfied(scan.handle)
                names = ScanNames.of(scan, context)
                known = {names.in_plan(part) for part in parts_of(satisfied)}
                parts = parts_of(predicate)
                left = [part for part in parts if part not in known]
                return None if len(left) == len(parts) else filtered(scan, left, protects=protects)
            case _:
                return None
