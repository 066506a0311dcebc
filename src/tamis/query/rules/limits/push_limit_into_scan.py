"""Push a limit into the scan, so that it stops as soon as it has enough rows.

    Limit(TableScan(t), n)  ─▶  TableScan(t, at most n)

An OFFSET without a LIMIT needs all rows, so nothing is pushed. The limit also stays above the scan if it has an offset,
or if the connector does not guarantee the number of rows.
"""

from __future__ import annotations

from dataclasses import replace

from tamis.query.plan.nodes import UNLIMITED, Limit, Node, TableScan
from tamis.query.plan.optimizer import Context


class PushLimitIntoScan:
    name = "push_limit_into_scan"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Limit(TableScan() as scan, count, offset) if count < UNLIMITED:
                pushed = context.connector(scan.connector).push_limit(scan.handle, count + offset)
                if pushed is None:
                    return None
                new_scan = replace(scan, handle=pushed.handle)
                if pushed.guaranteed and not offset:
                    return new_scan
                return None if new_scan == scan else replace(node, source=new_scan)
            case _:
                return None
