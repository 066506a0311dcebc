"""What may be shown of a plan under policies: what the user asked for, and nothing of what they hide.

Which rules applied and what scans would read follows from statistics of all rows, hidden ones included: that a filter
could be dropped tells that all rows satisfy it. So of a query over a table under a policy only the plan as it was asked
for is shown, without the policies' own conditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tamis.pushdown.connector import Connector
from tamis.pushdown.nodes import Filter, Node, Project, TableScan, outputs_of, transform_up, walk_plan

SILENCE = "A table is under a policy: what is read of it, and which rules apply, is not told."


@dataclass(frozen=True, slots=True)
class HiddenHandle:
    """In place of a handle that would tell what a policy makes it read."""

    def __repr__(self) -> str:
        return "under a policy"


def is_silent(plan: Node) -> bool:
    """Whether a plan reads a table under a policy."""
    return any(isinstance(node, TableScan) and node.protects for node in walk_plan(plan))


def visible_plan(plan: Node) -> Node:
    """A plan, as it was before the rules, without the policies that are in it."""

    def shown(node: Node) -> Node:
        match node:
            case TableScan(protects=True):
                return replace(node, handle=HiddenHandle())
            case Filter(protects=True):
                return node.source
            case Project(protects=True, source=TableScan() as scan):
                return replace(scan, columns=outputs_of(node))
            case _:
                return node

    return transform_up(plan, shown)


def describe_scan(scan: TableScan, connectors: Mapping[str, Connector]) -> str:
    """What a scan reads, in a line for people, where that may be told."""
    return repr(HiddenHandle()) if scan.protects else connectors[scan.connector].describe(scan.handle)
