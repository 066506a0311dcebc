"""Remove columns that are not read.

    Project(Join(x, y), a)  ─▶  Project(Join(Project(x, a, key), Project(y, key)), a)

Projections move down node by node until they are pushed into a scan. Projections without effect are removed.
"""

from __future__ import annotations

from dataclasses import replace

from tamis.expr.nodes import Column, find_columns
from tamis.query.plan.column_ids import substitute
from tamis.query.plan.nodes import Aggregate, Join, Named, Node, Project, Sql, get_expressions, get_outputs
from tamis.query.plan.optimizer import Context
from tamis.query.rules.columns.narrowing import narrow_project, narrow_source


class PruneColumns:
    name = "prune_columns"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Project():
                return _remove_identity(node) or _merge_projections(node) or narrow_project(node, nested=False)
            case Aggregate():
                found = narrow_source(node.source, get_expressions(node), nested=False)
                return None if found is None else replace(node, source=found.node)
            case Join(kind="semi" | "anti"):
                exprs = [right for _, right in node.criteria]
                if node.filter is not None:
                    names = {output.name for output in get_outputs(node.right)}
                    exprs += [each for each in find_columns(node.filter) if each.path[0] in names]
                found = narrow_source(node.right, exprs, nested=False)
                return None if found is None else replace(node, right=found.node)
            case _:
                return None


def _remove_identity(project: Project) -> Node | None:
    """Return the source of a projection that returns exactly its source's columns; else None."""
    source = project.source
    if project.protects or (isinstance(source, Sql) and not source.columns):
        return None
    names = [output.name for output in get_outputs(source)]
    is_same = [each.name for each in project.outputs] == names and all(each.is_forwarded for each in project.outputs)
    return source if is_same else None


def _merge_projections(project: Project) -> Node | None:
    """Merge two projections if the lower one only forwards columns; else return None."""
    match project:
        case Project(Project(source, inner, protects=False), outer) if all(
            isinstance(each.expr, Column) for each in inner
        ):
            meanings = {each.name: each.expr for each in inner}
            outputs = tuple(Named(each.name, substitute(each.expr, meanings)) for each in outer)
            return Project(source, outputs, project.protects)
        case _:
            return None
