"""The order of rows: which plans keep the order of a scan, and whether a scan has an order.

SQL promises no order without ORDER BY. The embedded engine keeps the order of one scan through SELECT, WHERE and LIMIT
(its setting preserve_insertion_order, which is on), but not through joins, groups or unions. Spark keeps none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tamis.expr.nodes import Column, Expr, walk
from tamis.query.plan.column_ids import is_sql_text, substitute
from tamis.query.plan.nodes import Filter, Limit, Node, Project, SortKey, TableScan, get_expressions
from tamis.query.plan.optimizer import Context, Rule
from tamis.query.rules.scan_expressions import ScanNames


def keeps_order(node: Node) -> bool:
    """Return whether a node without policies returns rows in the order of its source, as far as its texts are known."""
    if isinstance(node, Filter | Project) and node.protects:
        return False
    # SQL text that is not parsed may be more than a function of one row.
    return not any(is_sql_text(part) for expr in get_expressions(node) for part in walk(expr))


def apply_below(rule: Rule, node: Node, context: Context) -> Node | None:
    """Return a node that keeps the order of its source, with a rule applied to the source; else None."""
    if not isinstance(node, Project | Filter | Limit) or not keeps_order(node):
        return None
    below = rule.apply(node.source, context)
    return None if below is None else replace(node, source=below)


def sort_source(source: Node, keys: Sequence[SortKey], context: Context, *, may_push: bool) -> Node | None:
    """Return a node with the same rows in the order of some keys; None if its scan cannot return them so.

    With `may_push`, the connector is asked for rows in this order, if they do not come so already.
    """
    if context.has_workers:
        return None
    match source:
        case Project(protects=False) if keeps_order(source):
            meanings: dict[str, Expr] = {each.name: each.expr for each in source.outputs}
            below = [replace(key, expr=substitute(key.expr, meanings)) for key in keys]
        case Filter(protects=False) if keeps_order(source):
            below = list(keys)
        case TableScan(is_protected=False):
            return _sort_scan(source, keys, context, may_push)
        case _:
            return None
    found = sort_source(source.source, below, context, may_push=may_push)
    return None if found is None else replace(source, source=found)


def _sort_scan(scan: TableScan, keys: Sequence[SortKey], context: Context, may_push: bool) -> TableScan | None:
    names = ScanNames.of(scan, context)
    wanted = tuple(replace(key, expr=names.to_handle_expr(key.expr)) for key in keys)
    if not wanted or not all(isinstance(key.expr, Column) for key in wanted):
        return None
    if context.properties(scan).sorted_by[: len(wanted)] == wanted:
        return scan
    pushed = context.connector(scan.connector).push_sort(scan.handle, wanted) if may_push else None
    return None if pushed is None else replace(scan, handle=pushed)
