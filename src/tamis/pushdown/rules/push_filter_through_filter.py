"""A user's conjunct passes below the row filter of a policy where it cannot tell of the rows that it hides.

Filter(Filter(x, visible, protects), a = 5 AND 1 / a = 0)  ─▶  Filter(Filter(Filter(x, a = 5), visible, …), 1 / a = 0)
"""

from __future__ import annotations

from dataclasses import replace

from tamis.pushdown.nodes import Filter, Node
from tamis.pushdown.optimizer import Context
from tamis.pushdown.policies.leakproof import is_leakproof, policy_may_fail
from tamis.pushdown.rules.conjuncts import filtered, parts_of


class PushFilterThroughFilter:
    name = "push_filter_through_filter"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Filter(Filter(protects=True) as policy, predicate, protects=False):
                # A row filter that fails tells which rows it was asked about.
                if policy_may_fail(policy.predicate):
                    return None
                parts = parts_of(predicate)
                below = [part for part in parts if is_leakproof(part)]
                if not below:
                    return None
                moved = replace(policy, source=filtered(policy.source, below))
                return filtered(moved, (part for part in parts if part not in below))
            case _:
                return None
