"""Push aggregations into the scan: a table can count its rows from metadata, without reading them.

    Aggregate(TableScan(t), keys day, count(*))  ─▶  TableScan(t by day: day, count)

All aggregates are pushed, or none. If a connector returns several rows for a group, they are combined above the scan.
A connector may also return partial results from which aggregates are computed:

    Aggregate(TableScan(t), avg(x))  ─▶  Project(TableScan(t: sum(x), count(x)), sum / count)

An engine with workers sums the rows that they read. Then sums are not pushed into a connector that would read the rows.
Groups by expressions are computed from groups by the columns of those expressions, if a connector supports these:

    Aggregate(TableScan(t), keys year(day), count(*))
    ─▶  Aggregate(TableScan(t by day: day, count), keys year(day), sum(count))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tamis.expr.nodes import Column, Expr, find_columns
from tamis.query.connectors.connector import PushedAggregation
from tamis.query.plan.column_ids import is_deterministic, substitute
from tamis.query.plan.nodes import Aggregate, AggregateCall, Named, Node, Output, Project, TableScan
from tamis.query.plan.optimizer import Context
from tamis.query.rules.aggregates.finer_groups import can_combine, combine_finer_groups
from tamis.query.rules.scan_expressions import ScanNames, rename_columns


class PushAggregationIntoScan:
    name = "push_aggregation_into_scan"
    is_final = True

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Aggregate(keys=(), aggregates=()):
                # This returns one row without columns, but a scan without columns returns as many rows as the table.
                return None
            case Aggregate(TableScan() as scan):
                return _push_into_scan(node, scan, {}, context)
            case Aggregate(Project(TableScan() as scan, outputs, protects)) if not protects or _only_forwards(outputs):
                return _push_into_scan(node, scan, {each.name: each.expr for each in outputs}, context)
            case _:
                return None


def _only_forwards(outputs: tuple[Named, ...]) -> bool:
    """Return whether all outputs forward columns, so that none of them is a mask."""
    return all(each.expr == Column((each.name,)) for each in outputs)


def _push_into_scan(aggregate: Aggregate, scan: TableScan, meanings: dict[str, Expr], context: Context) -> Node | None:
    names = ScanNames.of(scan, context)
    keys = [Named(each.name, names.to_handle_expr(substitute(each.expr, meanings))) for each in aggregate.keys]
    calls = [_to_handle(call, meanings, names) for call in aggregate.aggregates]
    exprs = [*(each.expr for each in keys), *(arg for call in calls for arg in call.args)]
    exprs += [call.filter for call in calls if call.filter is not None]
    if not all(is_deterministic(expr) for expr in exprs) or not context.is_equivalent_on_engine(*exprs):
        return None
    pushed = None
    if not scan.is_protected or all(isinstance(expr, Column) for expr in exprs):
        # An expression that may fail must not be evaluated on hidden rows.
        if _is_sum_for_workers(scan, calls, context):
            return None
        pushed = context.connector(scan.connector).push_aggregation(scan.handle, False, keys, calls)
    elif not all(isinstance(arg, Column) for call in calls for arg in call.args) or any(call.filter for call in calls):
        return None
    if pushed is None:
        return _push_finer_groups(aggregate, scan, keys, calls, context)
    if pushed.values:
        return _compute_from_parts(aggregate, scan, pushed)
    outputs = [*(each.name for each in aggregate.keys), *(each.name for each in aggregate.aggregates)]
    new_scan = replace(scan, handle=pushed.handle, columns=rename_columns(pushed.columns, outputs))
    return _combine_groups(aggregate, new_scan, pushed) if pushed.is_partial else new_scan


def _is_sum_for_workers(scan: TableScan, calls: Sequence[AggregateCall], context: Context) -> bool:
    is_sum = any(call.function in ("sum", "avg") for call in calls)
    return is_sum and context.has_workers and context.connector(scan.connector).must_read_rows(scan.handle)


def _compute_from_parts(aggregate: Aggregate, scan: TableScan, pushed: PushedAggregation) -> Node:
    """Return a projection that computes the aggregates from the partial results of the scan."""
    keys = tuple(each.name for each in aggregate.keys)
    first = aggregate.aggregates[0].name
    parts = (f"{column.name} of {first}" for column in pushed.columns[len(keys) :])
    new_scan = replace(scan, handle=pushed.handle, columns=rename_columns(pushed.columns, (*keys, *parts)))
    columns = {one.name: _to_column(other) for one, other in zip(pushed.columns, new_scan.columns, strict=True)}
    forwarded = (Named(output.name, _to_column(output)) for output in new_scan.columns[: len(keys)])
    pairs = zip(aggregate.aggregates, pushed.values, strict=True)
    values = (Named(call.name, substitute(value, columns)) for call, value in pairs)
    return Project(new_scan, (*forwarded, *values))


def _push_finer_groups(
    aggregate: Aggregate, scan: TableScan, keys: Sequence[Named], calls: Sequence[AggregateCall], context: Context
) -> Node | None:
    """Push groups by the columns of computed keys, and aggregate these groups above; None if that is not supported."""
    columns = list(dict.fromkeys(column for key in keys for column in find_columns(key.expr)))
    is_computed = bool(columns) and not all(isinstance(key.expr, Column) for key in keys)
    if not is_computed or not all(map(can_combine, calls)):
        return None
    if any(len(column.path) > 1 for column in columns):
        return None
    finer = [Named(f"{column.path[0]} of {aggregate.keys[0].name}", column) for column in columns]
    pushed = context.connector(scan.connector).push_aggregation(scan.handle, True, finer, calls)
    if pushed is None or pushed.is_partial:
        return None
    parts = [f"part of {call.name}" for call in calls]
    given = rename_columns(pushed.columns, [*(each.name for each in finer), *parts])
    new_scan = replace(scan, handle=pushed.handle, columns=given)
    values = {column.path[0]: _to_column(output) for column, output in zip(columns, given, strict=False)}
    above = [Named(key.name, substitute(key.expr, values)) for key in keys]
    values_by_call = dict(zip((call.name for call in calls), given[len(finer) :], strict=True))
    return combine_finer_groups(new_scan, above, calls, values_by_call)


def _to_handle(call: AggregateCall, meanings: dict[str, Expr], names: ScanNames) -> AggregateCall:
    return replace(
        call,
        args=tuple(names.to_handle_expr(substitute(arg, meanings)) for arg in call.args),
        filter=None if call.filter is None else names.to_handle_expr(substitute(call.filter, meanings)),
    )


def _combine_groups(aggregate: Aggregate, scan: TableScan, pushed: PushedAggregation) -> Node:
    """Return an aggregation that combines the rows that the scan returns for each group."""
    count = len(aggregate.keys)
    # Other names, because each output has the name of the part that it combines.
    names = [f"part of {column.name}" for column in scan.columns]
    parts = replace(scan, columns=rename_columns(scan.columns, names))
    keys = [Named(key.name, _to_column(part)) for key, part in zip(aggregate.keys, parts.columns, strict=False)]
    calls = aggregate.aggregates
    values = {call.name: part for call, part in zip(calls, parts.columns[count:], strict=True)}
    functions = {call.name: function for call, function in zip(calls, pushed.combined_by, strict=True)}
    return combine_finer_groups(parts, keys, calls, values, functions)


def _to_column(output: Output) -> Column:
    return Column((output.name,), type=output.type)
