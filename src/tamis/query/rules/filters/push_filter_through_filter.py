"""Push leakproof conjuncts of the user below the row filter of a policy: they cannot reveal the rows that it hides.

Filter(Filter(x, visible, protects), a = 5 AND 1 / a = 0)  ─▶  Filter(Filter(Filter(x, a = 5), visible, …), 1 / a = 0)
"""

from __future__ import annotations

from dataclasses import replace

from tamis.query.plan.nodes import Filter, Node
from tamis.query.plan.optimizer import Context
from tamis.query.policies.leakproof import is_leakproof, policy_may_fail
from tamis.query.rules.scan_expressions import add_filter, list_conjuncts


class PushFilterThroughFilter:
    name = "push_filter_through_filter"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Filter(Filter(protects=True) as policy, predicate, protects=False):
                # The error of a row filter that fails would reveal which rows it was evaluated on.
                if policy_may_fail(policy.predicate):
                    return None
                conjuncts = list_conjuncts(predicate)
                below = [conjunct for conjunct in conjuncts if is_leakproof(conjunct)]
                if not below:
                    return None
                moved = replace(policy, source=add_filter(policy.source, below))
                return add_filter(moved, (conjunct for conjunct in conjuncts if conjunct not in below))
            case _:
                return None
