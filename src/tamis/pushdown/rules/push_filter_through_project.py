"""A filter over computed columns tests what they are computed from.

    Filter(Project(x, a + 1 AS b), b > 5)  ─▶  Project(Filter(x, a + 1 > 5), a + 1 AS b)

What is random would be computed twice, so conjuncts over it stay. Through the masks of a policy go only conjuncts that
cannot tell of a row, over columns that are not masked: a masked column is compared by what the user sees of it.
"""

from __future__ import annotations

from tamis.expr.nodes import Column, Expr
from tamis.pushdown.nodes import Filter, Node, Project, Sql, TableScan, Values
from tamis.pushdown.optimizer import Context
from tamis.pushdown.paths import symbols_of
from tamis.pushdown.policies.leakproof import is_leakproof, policy_may_fail
from tamis.pushdown.rules.conjuncts import filtered, parts_of
from tamis.pushdown.symbols import is_deterministic, substitute


class PushFilterThroughProject:
    name = "push_filter_through_project"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Filter(Project() as project, predicate, protects=False) if not _is_extracted(project):
                parts = parts_of(predicate)
                below = [part for part in parts if _may_pass(part, project)]
                if not below:
                    return None
                meanings = {each.name: each.expr for each in project.outputs}
                source = filtered(project.source, (substitute(part, meanings) for part in below))
                moved = Project(source, project.outputs, project.protects)
                return filtered(moved, (part for part in parts if part not in below))
            case _:
                return None


def _is_extracted(project: Project) -> bool:
    """Whether a projection only takes fields out of structs, for a scan to take it in.

    `extract_dereferences` puts it below filters: if they went below it again, it would be put there for ever.
    """
    exprs = [each.expr for each in project.outputs]
    is_of_paths = all(isinstance(expr, Column) for expr in exprs) and not project.protects
    has_fields = any(isinstance(expr, Column) and len(expr.path) > 1 for expr in exprs)
    return is_of_paths and has_fields and isinstance(project.source, TableScan | Values | Sql)


def _may_pass(conjunct: Expr, project: Project) -> bool:
    if not is_deterministic(conjunct):
        return False
    symbols = symbols_of(conjunct)
    used = [each.expr for each in project.outputs if each.name in symbols]
    if project.protects:
        # Under its own name: what has another is a mask, even where it is another column as it is.
        passed = {each.name for each in project.outputs if each.expr == Column((each.name,))}
        # A mask that fails tells which rows it was asked about.
        fails = any(policy_may_fail(each.expr) for each in project.outputs)
        return symbols <= passed and is_leakproof(conjunct) and not fails
    return all(is_deterministic(expr) for expr in used)
