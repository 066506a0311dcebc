"""Push a limit below a projection, so that only the rows of the result are computed.

Limit(Project(x, …), n)  ─▶  Project(Limit(x, n), …)
"""

from __future__ import annotations

from dataclasses import replace

from tamis.query.plan.nodes import Limit, Node, Project
from tamis.query.plan.optimizer import Context


class PushLimitThroughProject:
    name = "push_limit_through_project"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Limit(Project() as project):
                return replace(project, source=replace(node, source=project.source))
            case _:
                return None
