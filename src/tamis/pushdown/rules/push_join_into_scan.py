"""Push the join of two tables of one connector into the scan.

    Join(TableScan(t), TableScan(u), t.id = u.id)  ─▶  TableScan(t join u)

Only equi-joins without further conditions are pushed. Joins of tables with policies stay above their scans.
"""

from __future__ import annotations

from dataclasses import replace

from tamis.expr.nodes import Call
from tamis.pushdown.nodes import Join, Node, TableScan, outputs_of
from tamis.pushdown.optimizer import Context
from tamis.pushdown.rules.scan_names import ScanNames, renamed


class PushJoinIntoScan:
    name = "push_join_into_scan"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Join(TableScan() as left, TableScan() as right, kind, criteria, filter=None):
                if left.connector != right.connector or left.protects or right.protects:
                    return None
                if not context.means_the_same(*(Call("=", pair) for pair in criteria)):
                    return None
                names = [ScanNames.of(side, context) for side in (left, right)]
                pairs = [(names[0].in_handle(one), names[1].in_handle(other)) for one, other in criteria]
                pushed = context.connector(left.connector).push_join(left.handle, right.handle, kind, pairs)
                if pushed is None:
                    return None
                outputs = outputs_of(node)
                if len(pushed.columns) != len(outputs):
                    return None
                columns = renamed(pushed.columns, [output.name for output in outputs])
                return replace(left, handle=pushed.handle, columns=columns)
            case _:
                return None
