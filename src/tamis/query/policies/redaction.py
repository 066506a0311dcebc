"""Redacted plans: what the user asked for, without what policies hide.

The rules that applied, and what scans would read, follow from the statistics of all rows, hidden rows included: a
filter that was dropped reveals that all rows satisfy it. So only the plan before the rules is shown for a query over a
table under a policy, without the conditions of the policies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tamis.query.plan.nodes import Filter, Node, Project, TableScan, get_outputs, transform_up, walk_plan

REDACTED_PLAN_NOTE = "A table is under a policy: what is read of it, and which rules apply, is not shown."


@dataclass(frozen=True, slots=True)
class HiddenHandle:
    """Replaces a handle, whose description would reveal a policy."""

    def __repr__(self) -> str:
        return "under a policy"


def is_redacted(plan: Node) -> bool:
    """Whether a plan reads a table under a policy."""
    return any(isinstance(node, TableScan) and node.is_protected for node in walk_plan(plan))


def redact_plan(plan: Node) -> Node:
    """Return a plan from before the rules without its policies."""

    def redact(node: Node) -> Node:
        match node:
            case TableScan(is_protected=True):
                return replace(node, handle=HiddenHandle())
            case Filter(protects=True):
                return node.source
            case Project(protects=True, source=TableScan() as scan):
                return replace(scan, columns=get_outputs(node))
            case _:
                return node

    return transform_up(plan, redact)
