"""Push the conjuncts that a connector supports into the scan; the residual filter stays above it.

    Filter(TableScan(t), a > 5 AND f(b))  ─▶  Filter(TableScan(t where a > 5), f(b))

If the table has a policy, only leakproof conjuncts of the user are pushed: those that cannot reveal a hidden row. The
policy's own predicates are trusted.
"""

from __future__ import annotations

from dataclasses import replace

from tamis.expr.functions.table import type_of
from tamis.expr.nodes import Expr, and_
from tamis.query.connectors.connector import PushedFilter
from tamis.query.plan.column_ids import ColumnIds, is_deterministic
from tamis.query.plan.nodes import Filter, Named, Node, Output, Project, TableScan
from tamis.query.plan.optimizer import Context
from tamis.query.policies.leakproof import is_leakproof, policy_may_fail
from tamis.query.rules.scan_expressions import ScanNames, add_filter, list_conjuncts


class PushFilterIntoScan:
    name = "push_filter_into_scan"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Filter(TableScan() as scan, predicate, protects):
                conjuncts = list_conjuncts(predicate)
                pushable = [each for each in conjuncts if _may_push(each, scan, context, protects)]
                if not pushable:
                    return None
                names = ScanNames.of(scan, context)
                connector = context.connector(scan.connector)
                asked = names.to_handle_expr(and_(*pushable))
                pushed = connector.push_filter(scan.handle, asked)
                if pushed is None or (pushed.handle == scan.handle and pushed.remaining == asked):
                    return None
                others = [conjunct for conjunct in conjuncts if conjunct not in pushable]
                return _rebuild(scan, pushed, others, names, protects)
            case _:
                return None


def _may_push(conjunct: Expr, scan: TableScan, context: Context, of_policy: bool) -> bool:
    if not is_deterministic(conjunct):
        return False
    if of_policy:
        # If a row filter fails, the error shows which rows it saw. Above the scan it sees all rows, so the error
        # reveals nothing about the user's filter.
        return not policy_may_fail(conjunct)
    return context.is_equivalent_on_engine(conjunct) and (not scan.is_protected or is_leakproof(conjunct))


def _rebuild(scan: TableScan, pushed: PushedFilter, others: list[Expr], names: ScanNames, protects: bool) -> Node:
    """Return the scan with the pushed filter, below the residual filter and the conjuncts that were not pushed."""
    if not pushed.projections:
        new_scan = replace(scan, handle=pushed.handle)
        remaining = [names.to_plan_expr(conjunct) for conjunct in list_conjuncts(pushed.remaining)]
        return add_filter(new_scan, (*remaining, *others), protects=protects)
    # The scan returns extra columns, which only the residual filter reads.
    column_ids = ColumnIds(column.name for column in scan.columns)
    # No other scan has ids that start as those of this one.
    prefix = f"{scan.columns[0].name}." if scan.columns else ""
    added = [Output(column_ids.allocate(f"{prefix}{each.name}"), type_of(each.expr)) for each in pushed.projections]
    to_plan = dict(names.to_plan)
    to_plan |= {each.name: output.column for each, output in zip(pushed.projections, added, strict=True)}
    wider = replace(scan, handle=pushed.handle, columns=(*scan.columns, *added))
    remaining = [
        ScanNames(names.to_handle, to_plan).to_plan_expr(conjunct) for conjunct in list_conjuncts(pushed.remaining)
    ]
    kept = add_filter(wider, (*remaining, *others), protects=protects)
    return Project(kept, tuple(Named(column.name, column.column) for column in scan.columns))
