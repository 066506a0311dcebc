"""Push filters below a projection, with computed columns replaced by their expressions.

    Filter(Project(x, a + 1 AS b), b > 5)  ─▶  Project(Filter(x, a + 1 > 5), a + 1 AS b)

Conjuncts over nondeterministic expressions stay, because these would be computed twice. Below the masks of a policy,
only leakproof conjuncts over columns that are not masked are pushed: a filter must see a column as the user sees it.
"""

from __future__ import annotations

from tamis.expr.nodes import Column, Expr
from tamis.query.plan.column_ids import collect_column_ids, is_deterministic, substitute
from tamis.query.plan.nodes import Filter, Node, Project, Sql, TableScan, Values
from tamis.query.plan.optimizer import Context
from tamis.query.policies.leakproof import is_leakproof, policy_may_fail
from tamis.query.rules.scan_expressions import add_filter, list_conjuncts


class PushFilterThroughProject:
    name = "push_filter_through_project"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Filter(Project() as project, predicate, protects=False) if not _is_extracted(project):
                conjuncts = list_conjuncts(predicate)
                below = [conjunct for conjunct in conjuncts if _may_push(conjunct, project)]
                if not below:
                    return None
                meanings = {each.name: each.expr for each in project.outputs}
                source = add_filter(project.source, (substitute(conjunct, meanings) for conjunct in below))
                moved = Project(source, project.outputs, project.protects)
                return add_filter(moved, (conjunct for conjunct in conjuncts if conjunct not in below))
            case _:
                return None


def _is_extracted(project: Project) -> bool:
    """Return whether a projection only extracts struct fields, to be pushed into the source.

    `extract_dereferences` places it below filters. Pushing those below it again would never end.
    """
    exprs = [each.expr for each in project.outputs]
    is_of_paths = all(isinstance(expr, Column) for expr in exprs) and not project.protects
    has_fields = any(isinstance(expr, Column) and len(expr.path) > 1 for expr in exprs)
    return is_of_paths and has_fields and isinstance(project.source, TableScan | Values | Sql)


def _may_push(conjunct: Expr, project: Project) -> bool:
    if not is_deterministic(conjunct):
        return False
    column_ids = collect_column_ids(conjunct)
    used = [each.expr for each in project.outputs if each.name in column_ids]
    if project.protects:
        # A column under another name is a mask, even if it only forwards that column.
        forwarded = {each.name for each in project.outputs if each.is_forwarded}
        # The error of a mask that fails would reveal which rows it was evaluated on.
        may_fail = any(policy_may_fail(each.expr) for each in project.outputs)
        return column_ids <= forwarded and is_leakproof(conjunct) and not may_fail
    return all(is_deterministic(expr) for expr in used)
