"""Drop the conjuncts of a residual filter that the scan below already guarantees.

    Filter(TableScan(t where a > 5), a > 5 AND f(b))  ─▶  Filter(TableScan(t where a > 5), f(b))

A scan does the same for each file and row group: the rows of fully matched ones are not tested.
"""

from __future__ import annotations

from tamis.query.plan.nodes import Filter, Node, TableScan
from tamis.query.plan.optimizer import Context
from tamis.query.rules.scan_expressions import ScanNames, add_filter, list_conjuncts


class DropResidual:
    name = "drop_residual"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Filter(TableScan() as scan, predicate, protects):
                satisfied = context.connector(scan.connector).enforced_predicate(scan.handle)
                names = ScanNames.of(scan, context)
                known = {names.to_plan_expr(conjunct) for conjunct in list_conjuncts(satisfied)}
                conjuncts = list_conjuncts(predicate)
                remaining = [conjunct for conjunct in conjuncts if conjunct not in known]
                return None if len(remaining) == len(conjuncts) else add_filter(scan, remaining, protects=protects)
            case _:
                return None
