"""Push the join of two tables of one connector into the scan.

    Join(TableScan(t), TableScan(u), t.id = u.id)  ─▶  TableScan(t join u)

Only equi-joins without further conditions are pushed. Joins of tables with policies stay above their scans.
"""

from __future__ import annotations

from dataclasses import replace

from tamis.expr.nodes import Call
from tamis.query.plan.nodes import Join, Node, TableScan, get_outputs
from tamis.query.plan.optimizer import Context
from tamis.query.rules.scan_expressions import ScanNames, rename_columns


class PushJoinIntoScan:
    name = "push_join_into_scan"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Join(TableScan() as left, TableScan() as right, kind, criteria, filter=None):
                if left.connector != right.connector or left.is_protected or right.is_protected:
                    return None
                if not context.is_equivalent_on_engine(*(Call("=", pair) for pair in criteria)):
                    return None
                names = [ScanNames.of(side, context) for side in (left, right)]
                pairs = [(names[0].to_handle_expr(one), names[1].to_handle_expr(other)) for one, other in criteria]
                pushed = context.connector(left.connector).push_join(left.handle, right.handle, kind, pairs)
                if pushed is None:
                    return None
                outputs = get_outputs(node)
                if len(pushed.columns) != len(outputs):
                    return None
                columns = rename_columns(pushed.columns, [output.name for output in outputs])
                return replace(left, handle=pushed.handle, columns=columns)
            case _:
                return None
