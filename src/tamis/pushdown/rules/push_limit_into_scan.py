"""A scan stops when it has as many rows as are wanted.

    Limit(TableScan(t), n)  ─▶  TableScan(t, at most n)

An OFFSET without a LIMIT wants all rows, so there is nothing to push. With an offset, and where a connector does not
promise to return no more, the limit stays above.
"""

from __future__ import annotations

from dataclasses import replace

from tamis.pushdown.nodes import UNLIMITED, Limit, Node, TableScan
from tamis.pushdown.optimizer import Context


class PushLimitIntoScan:
    name = "push_limit_into_scan"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Limit(TableScan() as scan, count, offset) if count < UNLIMITED:
                pushed = context.connector(scan.connector).push_limit(scan.handle, count + offset)
                if pushed is None:
                    return None
                made = replace(scan, handle=pushed.handle)
                if pushed.guaranteed and not offset:
                    return made
                return None if made == scan else replace(node, source=made)
            case _:
                return None
