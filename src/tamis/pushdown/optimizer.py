"""The driver of the rules: again and again over the plan until none of them changes anything.

A rule is given a node, and returns what to put in its place, or None. It must make progress of a kind that cannot be
undone by another: operations only move towards scans, and handles only take in more. Should a rule or a connector
break that promise, the driver stops after so many rounds as no honest plan needs, with an error that names the rule.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tamis.errors import InvalidArgument, TamisError
from tamis.expr.nodes import Expr
from tamis.pushdown.connector import Connector, Properties
from tamis.pushdown.nodes import Node, TableScan, transform_up, walk_plan
from tamis.pushdown.policies.reading import silence
from tamis.pushdown.spark_meaning import is_as_on_spark
from tamis.pushdown.zones import depends_on_zone

ROUNDS_PER_NODE = 4
"""How many rounds there may be for each node of a plan: an operation sinks one step a round."""

FEWEST_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Context:
    """What rules may look at besides the plan."""

    connectors: Mapping[str, Connector]
    """By the names that scans give."""
    has_workers: bool = False
    """Whether the engine reads in workers of its own, which sum what they read."""
    is_utc: bool = True
    """Whether the engine computes in UTC, as tables do."""
    is_ansi: bool = True
    """Whether what overflows, or does not fit, is an error of the engine."""

    def means_the_same(self, *exprs: Expr) -> bool:
        """Whether a table would make of expressions what the engine makes of them."""
        if not self.is_utc and any(map(depends_on_zone, exprs)):
            return False
        return not self.has_workers or all(is_as_on_spark(expr, ansi=self.is_ansi) for expr in exprs)

    def connector(self, name: str) -> Connector:
        return self.connectors[name]

    def properties(self, scan: TableScan) -> Properties:
        """What is known of a scan. To find out may fail, and then says nothing of a table under a policy."""
        connector = self.connectors[scan.connector]
        if not scan.protects:
            return connector.properties(scan.handle)
        with silence():
            return connector.properties(scan.handle)

    def lies_together(self, scan: TableScan, column: Expr) -> bool | None:
        """Whether some values of a column of a handle lie in little of what a scan reads; None: not known.

        Nobody looks where the values of a table lie that is under a policy.
        """
        return None if scan.protects else self.connectors[scan.connector].lies_together(scan.handle, column)


class Rule(Protocol):
    """One way to improve a plan. `name` is what `explain` shows and what switches it off."""

    name: str

    def apply(self, node: Node, context: Context) -> Node | None:
        """What to put in the place of a node; None where the rule has nothing to do there."""
        ...


def is_final(rule: Rule) -> bool:
    """Whether a rule waits until the others have nothing left to do: `is_final = True` in its class says so."""
    return bool(getattr(rule, "is_final", False))


@dataclass(slots=True)
class RuleAccount:
    """What a rule did to one plan."""

    name: str
    applied: int = 0
    seconds: float = 0.0
    changes: list[tuple[Node, Node]] = field(default_factory=list)
    """Each node that it changed, before and after."""


@dataclass(frozen=True, slots=True)
class Optimized:
    """A plan after the rules, and what each of them did, in the order in which they run."""

    plan: Node
    accounts: tuple[RuleAccount, ...]


def optimize(plan: Node, rules: Sequence[Rule], context: Context, *, switched_off: Collection[str] = ()) -> Optimized:
    """The plan with every rule applied wherever it can be."""
    unknown = sorted(set(switched_off) - {rule.name for rule in rules})
    if unknown:
        known = ", ".join(rule.name for rule in rules)
        raise InvalidArgument(f"no rule {unknown[0]!r}; there are {known}")
    accounts = {rule.name: RuleAccount(rule.name) for rule in rules}
    used = [rule for rule in rules if rule.name not in switched_off]
    first = [rule for rule in used if not is_final(rule)]
    last = [rule for rule in used if is_final(rule)]
    most = FEWEST_ROUNDS + ROUNDS_PER_NODE * sum(1 for _ in walk_plan(plan))
    for _ in range(most):
        before = plan
        for rule in first:
            plan = _apply_everywhere(rule, plan, context, accounts[rule.name])
        if plan is before or plan == before:
            for rule in last:
                plan = _apply_everywhere(rule, plan, context, accounts[rule.name])
            if plan is before or plan == before:
                return Optimized(plan, tuple(accounts.values()))
    busiest = max(accounts.values(), key=lambda account: account.applied)
    raise TamisError(
        f"the rule {busiest.name!r} finds something to change in every round: switch it off with "
        f"rules={{{busiest.name!r}: False}}, and report the query"
    )


def _apply_everywhere(rule: Rule, plan: Node, context: Context, account: RuleAccount) -> Node:
    started = time.perf_counter()

    def change(node: Node) -> Node:
        changed = rule.apply(node, context)
        if changed is None:
            return node
        account.applied += 1
        account.changes.append((node, changed))
        return changed

    try:
        return transform_up(plan, change)
    finally:
        account.seconds += time.perf_counter() - started
