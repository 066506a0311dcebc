"""Aggregate distinct values of partition columns partition by partition: metadata has these groups.

    Aggregate(TableScan(t), count(DISTINCT day), count(*))
    ─▶  Aggregate(Aggregate(TableScan(t), keys day, count(*)), count(DISTINCT day), sum(count))

The keys must be partition columns too. `push_aggregation_into_scan` then pushes the groups by partitions.
"""

from __future__ import annotations

from dataclasses import replace

from tamis.expr.nodes import Column, Expr
from tamis.query.plan.column_ids import substitute
from tamis.query.plan.nodes import Aggregate, Named, Node, Output, Project, TableScan
from tamis.query.plan.optimizer import Context
from tamis.query.rules.aggregates.drop_distinct import find_unique_keys
from tamis.query.rules.aggregates.push_aggregation_into_scan import can_combine, combine_finer_groups
from tamis.query.rules.scan_expressions import ScanNames


class GroupByPartitions:
    name = "group_by_partitions"
    is_final = True

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Aggregate(TableScan(is_protected=False) as scan):
                return _group(node, scan, context)
            case Aggregate(Project(TableScan(is_protected=False) as scan, outputs, protects=False)) if all(
                isinstance(each.expr, Column) for each in outputs
            ):
                return _group(node, scan, context)
            case _:
                return None


def _group(node: Aggregate, scan: TableScan, context: Context) -> Node | None:
    distinct = [call for call in node.aggregates if call.distinct]
    others = [call for call in node.aggregates if not call.distinct]
    if not distinct or not all(map(can_combine, others)) or any(call.filter is not None for call in distinct):
        return None
    exprs = [*(key.expr for key in node.keys), *(arg for call in distinct for arg in call.args)]
    columns = list(dict.fromkeys(expr for expr in exprs if isinstance(expr, Column) and len(expr.path) == 1))
    if len(columns) < len(set(exprs)) or not _are_partitions(columns, node.source, scan, context):
        return None
    names_of_columns = {column.path[0] for column in columns}
    if any(key <= names_of_columns for key in find_unique_keys(node.source, context)):
        # They are grouped already.
        return None
    prefix = node.aggregates[0].name
    names = {column.path[0]: f"{column.name} of {prefix}" for column in columns}
    finer = [Named(names[column.path[0]], column) for column in columns]
    parts = {call.name: Output(f"part of {call.name}", call.type) for call in others}
    groups = Aggregate(node.source, tuple(finer), tuple(replace(call, name=parts[call.name].name) for call in others))
    values: dict[str, Expr] = {column.path[0]: Column((names[column.path[0]],), type=column.type) for column in columns}
    keys = [Named(key.name, substitute(key.expr, values)) for key in node.keys]
    calls = [
        replace(call, args=tuple(substitute(arg, values) for arg in call.args)) if call.distinct else call
        for call in node.aggregates
    ]
    return combine_finer_groups(groups, keys, calls, parts)


def _are_partitions(columns: list[Column], source: Node, scan: TableScan, context: Context) -> bool:
    meanings = {each.name: each.expr for each in source.outputs} if isinstance(source, Project) else {}
    names = ScanNames.of(scan, context)
    known = context.properties(scan).partitioned_by
    found = [names.to_handle_expr(substitute(column, meanings)) for column in columns]
    return all(isinstance(each, Column) and len(each.path) == 1 and each.path[0] in known for each in found)
