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

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tamis.expr.functions.aggregates import find_aggregate
from tamis.expr.functions.table import type_of
from tamis.expr.nodes import Call, Column, Expr, Literal, find_columns
from tamis.query.connectors.connector import PushedAggregation
from tamis.query.plan.column_ids import is_deterministic, substitute
from tamis.query.plan.nodes import Aggregate, AggregateCall, Named, Node, Output, Project, TableScan
from tamis.query.plan.optimizer import Context
from tamis.query.rules.scan_expressions import ScanNames, rename_columns
from tamis.types import LONG, STRING


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
            case Aggregate(Project(TableScan() as scan, outputs, protects)) if not protects or _is_forwarding(outputs):
                return _push_into_scan(node, scan, {each.name: each.expr for each in outputs}, context)
            case _:
                return None


def _is_forwarding(outputs: tuple[Named, ...]) -> bool:
    """Return whether all outputs forward columns, so that none of them is a mask."""
    return all(each.is_forwarded for each in outputs)


def _push_into_scan(aggregate: Aggregate, scan: TableScan, meanings: dict[str, Expr], context: Context) -> Node | None:
    names = ScanNames.of(scan, context)

    def to_handle(expr: Expr) -> Expr:
        return names.to_handle_expr(substitute(expr, meanings))

    keys = [Named(each.name, to_handle(each.expr)) for each in aggregate.keys]
    calls = [call.map(to_handle) for call in aggregate.aggregates]
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
    columns = {one.name: other.column for one, other in zip(pushed.columns, new_scan.columns, strict=True)}
    forwarded = (Named(output.name, output.column) for output in new_scan.columns[: len(keys)])
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
    values = {column.path[0]: output.column for column, output in zip(columns, given, strict=False)}
    above = [Named(key.name, substitute(key.expr, values)) for key in keys]
    values_by_call = dict(zip((call.name for call in calls), given[len(finer) :], strict=True))
    return combine_finer_groups(new_scan, above, calls, values_by_call)


def _combine_groups(aggregate: Aggregate, scan: TableScan, pushed: PushedAggregation) -> Node:
    """Return an aggregation that combines the rows that the scan returns for each group."""
    count = len(aggregate.keys)
    # Other names, because each output has the name of the part that it combines.
    names = [f"part of {column.name}" for column in scan.columns]
    parts = replace(scan, columns=rename_columns(scan.columns, names))
    keys = [Named(key.name, part.column) for key, part in zip(aggregate.keys, parts.columns, strict=False)]
    calls = aggregate.aggregates
    values = {call.name: part for call, part in zip(calls, parts.columns[count:], strict=True)}
    functions = {call.name: function for call, function in zip(calls, pushed.combined_by, strict=True)}
    return combine_finer_groups(parts, keys, calls, values, functions)


# --- Finer groups ---------------------------------------------------------------------------------------------------
#
# Groups computed from finer groups: counts are added, minima and maxima compared again.


def can_combine(call: AggregateCall) -> bool:
    """Return whether an aggregate can be computed from its values for finer groups."""
    return not call.distinct and _find_combining_function(call) is not None


def _find_combining_function(call: AggregateCall) -> str | None:
    row = find_aggregate(call.function)
    return None if row is None else row.combined_by


def combine_finer_groups(
    source: Node,
    keys: Sequence[Named],
    calls: Sequence[AggregateCall],
    parts: Mapping[str, Output],
    functions: Mapping[str, str] | None = None,
) -> Node:
    """Return the groups by some keys of a node with finer groups.

    `parts` has the outputs of the node with the values of calls, by their names. Other calls are made as they are.
    `functions` has the functions that combine these values; the default is that of `can_combine`.
    """
    if functions is None:
        functions = {call.name: name for call in calls if (name := _find_combining_function(call)) is not None}
    combined = [
        _combine(call, parts[call.name], functions[call.name]) if call.name in parts else call for call in calls
    ]
    groups = Aggregate(source, tuple(keys), tuple(combined))
    counts = {call.name for call in calls if call.function == "count" and call.name in parts}
    if not counts:
        return groups
    # The sum of counts is a count: engines return a wider type for sums.
    outputs = [Named(key.name, Column((key.name,), type=type_of(key.expr))) for key in keys]
    for each in combined:
        value: Expr = Column((each.name,), type=each.type)
        if each.name in counts:
            value = Call("cast", (value, Literal("bigint", STRING)))
            # Without keys there is one group, even if there are no finer ones.
            value = value if keys else Call("coalesce", (value, Literal(0, LONG)))
        outputs.append(Named(each.name, value))
    return Project(groups, tuple(outputs))


def _combine(call: AggregateCall, part: Output, function: str) -> AggregateCall:
    return AggregateCall(call.name, function, (part.column,), type=part.type)
