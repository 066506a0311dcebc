"""Push a projection into the scan, so that it reads only the columns and struct fields that the projection uses.

    Project(TableScan(t: a, b, c), a.x + 1 AS y)  ─▶  Project(TableScan(t: a.x), a.x + 1 AS y)

A connector may compute expressions too. If the table has a policy, only columns and fields are pushed: an expression
that may fail must not be evaluated on hidden rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tamis.expr.nodes import Column, Expr
from tamis.query.connectors.connector import PushedProjection
from tamis.query.plan.column_ids import ColumnIds, collect_paths, is_deterministic, substitute
from tamis.query.plan.nodes import Named, Node, Output, Project, TableScan
from tamis.query.plan.optimizer import Context
from tamis.query.rules.scan_expressions import ScanNames


class PushProjectionIntoScan:
    name = "push_projection_into_scan"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Project(TableScan() as scan, outputs):
                names = ScanNames.of(scan, context)
                asked = names.to_handle_outputs(outputs)
                if _may_push(asked, scan):
                    pushed = context.connector(scan.connector).push_projection(scan.handle, asked)
                    return None if pushed is None else _rebuild(node, scan, names, pushed)
                return _push_columns(node, scan, names, context)
            case _:
                return None


def _may_push(asked: Sequence[Named], scan: TableScan) -> bool:
    if scan.is_protected:
        return all(isinstance(each.expr, Column) for each in asked)
    return all(is_deterministic(each.expr) for each in asked)


def _push_columns(project: Project, scan: TableScan, names: ScanNames, context: Context) -> Node | None:
    """Return the projection over a scan of only the columns that it reads; None if nothing changes."""
    wanted = {path[0] for path in collect_paths(each.expr for each in project.outputs)}
    kept = tuple(Named(column.name, column.column) for column in scan.columns if column.name in wanted)
    if len(kept) == len(scan.columns):
        return None
    pushed = context.connector(scan.connector).push_projection(scan.handle, names.to_handle_outputs(kept))
    if pushed is None:
        return None
    return replace(project, source=_rebuild(Project(scan, kept), scan, names, pushed))


def _rebuild(project: Project, scan: TableScan, names: ScanNames, pushed: PushedProjection) -> Node:
    returned = [each.expr.path if isinstance(each.expr, Column) else None for each in pushed.outputs]
    if returned == [(column.name,) for column in pushed.columns]:
        # The scan returns exactly the outputs, so the projection is not needed.
        columns = [Output(each.name, column.type) for each, column in zip(project.outputs, pushed.columns, strict=True)]
        return replace(scan, handle=pushed.handle, columns=tuple(columns))
    pairs = list(zip(pushed.columns, _choose_column_ids(scan, names, pushed.columns), strict=True))
    to_plan: dict[str, Expr] = {column.name: Column((column_id,), type=column.type) for column, column_id in pairs}
    columns = [Output(column_id, column.type) for column, column_id in pairs]
    outputs = tuple(
        Named(each.name, substitute(given.expr, to_plan))
        for each, given in zip(project.outputs, pushed.outputs, strict=True)
    )
    return Project(replace(scan, handle=pushed.handle, columns=tuple(columns)), outputs, project.protects)


def _choose_column_ids(scan: TableScan, names: ScanNames, columns: Sequence[Output]) -> list[str]:
    """Return column ids for the columns of a handle: their present ones, or new ones derived from those of the scan.

    Derived ids are unique, because no other scan has the ids that they start with.
    """
    fresh = ColumnIds(column.name for column in scan.columns)
    found = []
    for column in columns:
        known = names.to_plan.get(column.name)
        if isinstance(known, Column):
            found.append(known.path[0])
            continue
        # The name of a field usually starts with the name of its column.
        around = [name for name in names.to_plan if column.name.startswith(f"{name}.")]
        owner = names.to_plan[max(around, key=len)] if around else None
        if isinstance(owner, Column):
            found.append(fresh.allocate(owner.path[0] + column.name[len(max(around, key=len)) :]))
        else:
            found.append(fresh.allocate(f"{scan.columns[0].name}.{column.name}" if scan.columns else column.name))
    return found
