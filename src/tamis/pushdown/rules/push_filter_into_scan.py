"""What a connector can test itself goes into the scan; the rest stays above it.

    Filter(TableScan(t), a > 5 AND f(b))  ─▶  Filter(TableScan(t where a > 5), f(b))

Into the scan of a table with a policy go, of what a user asks, only conjuncts that cannot tell of a hidden row. What
the policy itself asks is trusted.
"""

from __future__ import annotations

from dataclasses import replace

from tamis.expr.nodes import Column, Expr, and_
from tamis.pushdown.connector import PushedFilter
from tamis.pushdown.nodes import Filter, Named, Node, Output, Project, TableScan
from tamis.pushdown.optimizer import Context
from tamis.pushdown.policies.leakproof import is_leakproof, policy_may_fail
from tamis.pushdown.rules.conjuncts import filtered, parts_of
from tamis.pushdown.rules.scan_names import ScanNames
from tamis.pushdown.symbols import Symbols, is_deterministic


class PushFilterIntoScan:
    name = "push_filter_into_scan"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Filter(TableScan() as scan, predicate, protects):
                parts = parts_of(predicate)
                given = [part for part in parts if _may_go_in(part, scan, context, protects)]
                if not given:
                    return None
                names = ScanNames.of(scan, context)
                connector = context.connector(scan.connector)
                asked = names.in_handle(and_(*given))
                pushed = connector.push_filter(scan.handle, asked)
                if pushed is None or (pushed.handle == scan.handle and pushed.remaining == asked):
                    return None
                others = [part for part in parts if part not in given]
                return _pushed(scan, pushed, others, names, protects)
            case _:
                return None


def _may_go_in(conjunct: Expr, scan: TableScan, context: Context, of_policy: bool) -> bool:
    if not is_deterministic(conjunct):
        return False
    if of_policy:
        # A row filter that fails tells which rows it was asked about: above the scan it is asked about all.
        return not policy_may_fail(conjunct)
    return context.means_the_same(conjunct) and (not scan.protects or is_leakproof(conjunct))


def _pushed(scan: TableScan, pushed: PushedFilter, others: list[Expr], names: ScanNames, protects: bool) -> Node:
    if not pushed.projections:
        new_scan = replace(scan, handle=pushed.handle)
        remaining = [names.in_plan(part) for part in parts_of(pushed.remaining)]
        return filtered(new_scan, (*remaining, *others), protects=protects)
    # The scan returns further columns, which only the remaining filter sees.
    symbols = Symbols(column.name for column in scan.columns)
    added = [Output(symbols.fresh(each.name)) for each in pushed.projections]
    to_plan = dict(names.to_plan)
    to_plan |= {each.name: _column(output) for each, output in zip(pushed.projections, added, strict=True)}
    wider = replace(scan, handle=pushed.handle, columns=(*scan.columns, *added))
    remaining = [ScanNames(names.to_handle, to_plan).in_plan(part) for part in parts_of(pushed.remaining)]
    kept = filtered(wider, (*remaining, *others), protects=protects)
    return Project(kept, tuple(Named(column.name, _column(column)) for column in scan.columns))


def _column(output: Output) -> Expr:
    return Column((output.name,), type=output.type)
