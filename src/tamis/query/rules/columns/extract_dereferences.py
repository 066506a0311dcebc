"""Project struct fields directly above the scan, below operations that cannot be pushed into it.

Project(Filter(scan(a, b), f(b)), a.x)  ─▶  Project(Filter(Project(scan(a, b), a.x, b), f(b)), a.x)
"""

from __future__ import annotations

from tamis.query.plan.nodes import Aggregate, Node, Project, get_expressions
from tamis.query.plan.optimizer import Context
from tamis.query.rules.columns.narrowing import narrow_project, narrow_source


class ExtractDereferences:
    name = "extract_dereferences"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Project():
                return narrow_project(node, nested=True)
            case Aggregate():
                narrowed = narrow_source(node.source, get_expressions(node), nested=True)
                return None if narrowed is None else narrowed.put_below(node)
            case _:
                return None
