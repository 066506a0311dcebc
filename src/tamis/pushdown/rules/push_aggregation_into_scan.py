"""Groups are made by whoever has the rows, if it can: a table tells the number of its rows without being read.

    Aggregate(TableScan(t), keys day, count(*))  ─▶  TableScan(t by day: day, count)

All of the aggregates go in, or none. Where a connector returns several rows of a group, what it returns is combined.
"""

from __future__ import annotations

from dataclasses import replace

from tamis.expr.nodes import Column, Expr
from tamis.pushdown.connector import PushedAggregation
from tamis.pushdown.nodes import Aggregate, AggregateCall, Named, Node, Output, Project, TableScan
from tamis.pushdown.optimizer import Context
from tamis.pushdown.rules.scan_names import ScanNames, renamed
from tamis.pushdown.symbols import is_deterministic, substitute


class PushAggregationIntoScan:
    name = "push_aggregation_into_scan"
    is_final = True

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Aggregate(TableScan() as scan):
                return _pushed_into(node, scan, {}, context)
            case Aggregate(Project(TableScan() as scan, outputs, protects)) if not protects or _only_passes(outputs):
                return _pushed_into(node, scan, {each.name: each.expr for each in outputs}, context)
            case _:
                return None


def _only_passes(outputs: tuple[Named, ...]) -> bool:
    """Whether no output is a mask."""
    return all(each.expr == Column((each.name,)) for each in outputs)


def _pushed_into(aggregate: Aggregate, scan: TableScan, meanings: dict[str, Expr], context: Context) -> Node | None:
    names = ScanNames.of(scan, context)
    keys = [Named(each.name, names.in_handle(substitute(each.expr, meanings))) for each in aggregate.keys]
    calls = [_in_handle(call, meanings, names) for call in aggregate.aggregates]
    exprs = [*(each.expr for each in keys), *(arg for call in calls for arg in call.args)]
    exprs += [call.filter for call in calls if call.filter is not None]
    if not all(is_deterministic(expr) for expr in exprs):
        return None
    if scan.protects and not all(isinstance(expr, Column) for expr in exprs):
        # What may fail must not meet rows that are hidden.
        return None
    pushed = context.connector(scan.connector).push_aggregation(scan.handle, False, keys, calls)
    if pushed is None:
        return None
    outputs = [*(each.name for each in aggregate.keys), *(each.name for each in aggregate.aggregates)]
    made = replace(scan, handle=pushed.handle, columns=renamed(pushed.columns, outputs))
    return _combined(aggregate, made, pushed) if pushed.is_partial else made


def _in_handle(call: AggregateCall, meanings: dict[str, Expr], names: ScanNames) -> AggregateCall:
    return replace(
        call,
        args=tuple(names.in_handle(substitute(arg, meanings)) for arg in call.args),
        filter=None if call.filter is None else names.in_handle(substitute(call.filter, meanings)),
    )


def _combined(aggregate: Aggregate, scan: TableScan, pushed: PushedAggregation) -> Node:
    """One row for each group, of the rows that the scan returns for it."""
    columns = {column.name: column for column in scan.columns}
    keys = tuple(Named(each.name, _column(columns[each.name])) for each in aggregate.keys)
    calls = tuple(
        AggregateCall(each.name, function, (_column(columns[each.name]),), type=each.type)
        for each, function in zip(aggregate.aggregates, pushed.combined_by, strict=True)
    )
    return Aggregate(scan, keys, calls)


def _column(output: Output) -> Column:
    return Column((output.name,), type=output.type)
