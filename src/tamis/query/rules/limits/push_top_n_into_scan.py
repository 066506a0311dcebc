"""Push a top-n into the scan, which prunes everything that cannot contain one of the first rows.

    TopN(TableScan(t), by a, n)  ─▶  TopN(TableScan(t, about the first n by a), by a, n)

The node is removed if the connector guarantees exactly these rows in this order.
"""

from __future__ import annotations

from dataclasses import replace

from tamis.expr.nodes import Column, Expr
from tamis.query.plan.column_ids import is_deterministic, substitute
from tamis.query.plan.nodes import Node, Project, SortKey, TableScan, TopN
from tamis.query.plan.optimizer import Context
from tamis.query.rules.scan_expressions import ScanNames


class PushTopNIntoScan:
    name = "push_top_n_into_scan"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case TopN(TableScan() as scan, keys, count):
                pushed = _push_into_scan(scan, keys, count, {}, context)
                return None if pushed is None else pushed[0] if pushed[1] else replace(node, source=pushed[0])
            case TopN(Project(TableScan() as scan, outputs) as project, keys, count):
                pushed = _push_into_scan(scan, keys, count, {each.name: each.expr for each in outputs}, context)
                if pushed is None:
                    return None
                narrowed = replace(project, source=pushed[0])
                return narrowed if pushed[1] else replace(node, source=narrowed)
            case _:
                return None


def _push_into_scan(
    scan: TableScan, keys: tuple[SortKey, ...], count: int, meanings: dict[str, Expr], context: Context
) -> tuple[TableScan, bool] | None:
    names = ScanNames.of(scan, context)
    handle_keys = [replace(key, expr=names.to_handle_expr(substitute(key.expr, meanings))) for key in keys]
    if not all(is_deterministic(key.expr) for key in handle_keys):
        return None
    if scan.is_protected and not all(isinstance(key.expr, Column) for key in handle_keys):
        return None
    pushed = context.connector(scan.connector).push_top_n(scan.handle, handle_keys, count)
    if pushed is None:
        return None
    new_scan = replace(scan, handle=pushed.handle)
    # A rule that returns an unchanged plan would fire forever.
    return None if new_scan == scan and not pushed.guaranteed else (new_scan, pushed.guaranteed)
