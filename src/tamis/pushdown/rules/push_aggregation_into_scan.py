"""Groups are made by whoever has the rows, if it can: a table tells the number of its rows without being read.

    Aggregate(TableScan(t), keys day, count(*))  ─▶  TableScan(t by day: day, count)

All of the aggregates go in, or none. Where a connector returns several rows of a group, what it returns is combined.
It may also return parts of which aggregates are made:

    Aggregate(TableScan(t), avg(x))  ─▶  Project(TableScan(t: sum(x), count(x)), sum / count)

An engine with workers sums what they read: a connector that would read the rows for it is not asked then.
Groups by what is computed of columns are made of groups by those columns, if a connector has such:

    Aggregate(TableScan(t), keys year(day), count(*))
    ─▶  Aggregate(TableScan(t by day: day, count), keys year(day), sum(count))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tamis.expr.functions import type_of
from tamis.expr.nodes import Call, Column, Expr, Literal, columns_of
from tamis.pushdown.connector import PushedAggregation
from tamis.pushdown.nodes import Aggregate, AggregateCall, Named, Node, Output, Project, TableScan
from tamis.pushdown.optimizer import Context
from tamis.pushdown.rules.scan_names import ScanNames, renamed
from tamis.pushdown.symbols import is_deterministic, substitute
from tamis.types import STRING


class PushAggregationIntoScan:
    name = "push_aggregation_into_scan"
    is_final = True

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Aggregate(keys=(), aggregates=()):
                # One row without columns, whatever the table has: a scan without columns has as many as the table.
                return None
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
    if not all(is_deterministic(expr) for expr in exprs) or not context.means_the_same(*exprs):
        return None
    pushed = None
    if not scan.protects or all(isinstance(expr, Column) for expr in exprs):
        # What may fail must not meet rows that are hidden.
        if _is_for_workers(scan, calls, context):
            return None
        pushed = context.connector(scan.connector).push_aggregation(scan.handle, False, keys, calls)
    elif not all(isinstance(arg, Column) for call in calls for arg in call.args) or any(call.filter for call in calls):
        return None
    if pushed is None:
        return _of_finer_groups(aggregate, scan, keys, calls, context)
    if pushed.values:
        return _of_values(aggregate, scan, pushed)
    outputs = [*(each.name for each in aggregate.keys), *(each.name for each in aggregate.aggregates)]
    made = replace(scan, handle=pushed.handle, columns=renamed(pushed.columns, outputs))
    return _combined(aggregate, made, pushed) if pushed.is_partial else made


def _is_for_workers(scan: TableScan, calls: Sequence[AggregateCall], context: Context) -> bool:
    is_sum = any(call.function in ("sum", "avg") for call in calls)
    return is_sum and context.has_workers and context.connector(scan.connector).sums_rows(scan.handle)


def _of_values(aggregate: Aggregate, scan: TableScan, pushed: PushedAggregation) -> Node:
    """The aggregates, made of the parts that the scan returns."""
    keys = tuple(each.name for each in aggregate.keys)
    first = aggregate.aggregates[0].name
    parts = (f"{column.name} of {first}" for column in pushed.columns[len(keys) :])
    made = replace(scan, handle=pushed.handle, columns=renamed(pushed.columns, (*keys, *parts)))
    columns = {one.name: _column(other) for one, other in zip(pushed.columns, made.columns, strict=True)}
    passed = (Named(output.name, _column(output)) for output in made.columns[: len(keys)])
    pairs = zip(aggregate.aggregates, pushed.values, strict=True)
    values = (Named(call.name, substitute(value, columns)) for call, value in pairs)
    return Project(made, (*passed, *values))


_COMBINED_BY = {"count": "sum", "min": "min", "max": "max"}


def _of_finer_groups(
    aggregate: Aggregate, scan: TableScan, keys: Sequence[Named], calls: Sequence[AggregateCall], context: Context
) -> Node | None:
    """Groups by computed keys, made of the groups by the columns that they are computed of."""
    columns = list(dict.fromkeys(column for key in keys for column in columns_of(key.expr)))
    is_computed = bool(columns) and not all(isinstance(key.expr, Column) for key in keys)
    if not is_computed or any(call.function not in _COMBINED_BY or call.distinct for call in calls):
        return None
    if any(len(column.path) > 1 for column in columns):
        return None
    finer = [Named(f"{column.path[0]} of {aggregate.keys[0].name}", column) for column in columns]
    pushed = context.connector(scan.connector).push_aggregation(scan.handle, True, finer, calls)
    if pushed is None or pushed.is_partial:
        return None
    parts = [f"part of {call.name}" for call in calls]
    given = renamed(pushed.columns, [*(each.name for each in finer), *parts])
    made = replace(scan, handle=pushed.handle, columns=given)
    values = {column.path[0]: _column(output) for column, output in zip(columns, given, strict=False)}
    above = tuple(Named(key.name, substitute(key.expr, values)) for key in keys)
    combined = tuple(
        AggregateCall(call.name, _COMBINED_BY[call.function], (_column(part),), type=part.type)
        for call, part in zip(calls, given[len(finer) :], strict=True)
    )
    groups = Aggregate(made, above, combined)
    if not any(call.function == "count" for call in calls):
        return groups
    # The sum of counts is a count: engines make a wider number of it.
    outputs = [Named(key.name, Column((key.name,), type=type_of(key.expr))) for key in above]
    for call, each in zip(calls, combined, strict=True):
        value: Expr = Column((call.name,), type=each.type)
        is_count = call.function == "count"
        outputs.append(Named(call.name, Call("cast", (value, Literal("bigint", STRING))) if is_count else value))
    return Project(groups, tuple(outputs))


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
