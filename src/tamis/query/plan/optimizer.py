"""The optimizer: it applies the rules to a plan, round after round, until none of them changes anything.

A rule receives a node and returns its replacement, or None. No rule may undo the progress of another: operations only
move towards scans, and handles only accept more. If a rule or a connector breaks that contract, the optimizer stops
after more rounds than a correct rule needs, with an error that names the rule. Each replacement is checked: it returns
the same columns as the node before, and reads only columns that its sources return.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tamis.errors import TamisError
from tamis.expr.functions.spark_semantics import is_equivalent_on_spark
from tamis.expr.functions.table import depends_on_zone
from tamis.expr.nodes import Expr
from tamis.query.connectors.connector import Connector, Properties
from tamis.query.plan.column_ids import collect_column_ids
from tamis.query.plan.nodes import (
    Node,
    Sql,
    TableScan,
    get_expressions,
    get_outputs,
    get_sources,
    transform_up,
    walk_plan,
)
from tamis.query.policies.protected_reading import redact_errors
from tamis.tuning import DEFAULT_TUNING, Tuning

ROUNDS_PER_NODE = 4
"""The maximum number of rounds per node of a plan. An operation moves down one step per round."""

MIN_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Context:
    """What rules may use besides the plan."""

    connectors: Mapping[str, Connector]
    """The connectors by the names in scans."""
    has_workers: bool = False
    """Whether workers of the engine read the rows and pre-aggregate them."""
    is_utc: bool = True
    """Whether the engine's session time zone is UTC, as it is for tables."""
    is_ansi: bool = True
    """Whether overflows and invalid casts are errors in the engine."""
    tuning: Tuning = DEFAULT_TUNING
    """The thresholds of the session."""

    def is_equivalent_on_engine(self, *exprs: Expr) -> bool:
        """Return whether connectors evaluate all of the expressions as the engine does."""
        if not self.is_utc and any(map(depends_on_zone, exprs)):
            return False
        return not self.has_workers or all(is_equivalent_on_spark(expr, ansi=self.is_ansi) for expr in exprs)

    def connector(self, name: str) -> Connector:
        """Return the connector with a name."""
        return self.connectors[name]

    def properties(self, scan: TableScan) -> Properties:
        """Return a scan's statistics. For a table under a policy, errors are redacted."""
        connector = self.connectors[scan.connector]
        if not scan.is_protected:
            return connector.properties(scan.handle)
        with redact_errors():
            return connector.properties(scan.handle)

    def is_clustered(self, scan: TableScan, column: Expr) -> bool | None:
        """Return whether a scan's table is clustered by a column; None means unknown.

        It is always unknown for a table under a policy.
        """
        return None if scan.is_protected else self.connectors[scan.connector].is_clustered(scan.handle, column)


class Rule(Protocol):
    """One rewrite of a plan. `explain` shows its `name`, and users switch it off by that name."""

    @property
    def name(self) -> str:
        """Return the name by which the rule is reported and switched off."""

    def apply(self, node: Node, context: Context) -> Node | None:
        """Return the replacement of a node; None if the rule does not apply."""


def is_final(rule: Rule) -> bool:
    """Return whether a rule runs only when no other rule applies any more: its class sets `is_final = True`."""
    return bool(getattr(rule, "is_final", False))


def is_of_root(rule: Rule) -> bool:
    """Return whether a rule is about a whole plan, and not about any part of it: its class sets `is_of_root = True`."""
    return bool(getattr(rule, "is_of_root", False))


@dataclass(slots=True)
class RuleMetrics:
    """Metrics of a rule for one plan."""

    name: str
    applied: int = 0
    seconds: float = 0.0
    changes: list[tuple[Node, Node]] = field(default_factory=list)
    """Each changed node, before and after."""


@dataclass(frozen=True, slots=True)
class Optimized:
    """An optimized plan, with the metrics of each rule in the order in which the rules run."""

    plan: Node
    rule_metrics: tuple[RuleMetrics, ...]


def optimize(plan: Node, rules: Sequence[Rule], context: Context, *, switched_off: Collection[str] = ()) -> Optimized:
    """Apply every rule wherever it matches, until the plan no longer changes."""
    metrics_by_rule = {rule.name: RuleMetrics(rule.name) for rule in rules}
    used = [rule for rule in rules if rule.name not in switched_off]
    first = [rule for rule in used if not is_final(rule)]
    last = [rule for rule in used if is_final(rule)]
    most = MIN_ROUNDS + ROUNDS_PER_NODE * sum(1 for _ in walk_plan(plan))
    for _ in range(most):
        before = plan
        for rule in first:
            plan = _apply_everywhere(rule, plan, context, metrics_by_rule[rule.name])
        if plan is before or plan == before:
            for rule in last:
                plan = _apply_everywhere(rule, plan, context, metrics_by_rule[rule.name])
            if plan is before or plan == before:
                return Optimized(plan, tuple(metrics_by_rule.values()))
    busiest = max(metrics_by_rule.values(), key=lambda metrics: metrics.applied)
    raise TamisError(
        f"the rule {busiest.name!r} still changes the plan after {most} rounds: switch it off with "
        f"rules={{{busiest.name!r}: False}}, and report the query"
    )


def _apply_everywhere(rule: Rule, plan: Node, context: Context, metrics: RuleMetrics) -> Node:
    started = time.perf_counter()

    def change(node: Node) -> Node:
        changed = rule.apply(node, context)
        if changed is None:
            return node
        _check_change(rule, node, changed, context)
        metrics.applied += 1
        metrics.changes.append((node, changed))
        return changed

    try:
        return change(plan) if is_of_root(rule) else transform_up(plan, change)
    finally:
        metrics.seconds += time.perf_counter() - started


def _check_change(rule: Rule, before: Node, after: Node, context: Context) -> None:
    """Raise TamisError if a replacement returns other columns, or reads columns that its sources do not return."""
    expected, found = ([output.name for output in get_outputs(node)] for node in (before, after))
    if found != expected:
        raise _make_change_error(rule, f"expected the columns {', '.join(expected)}, found {', '.join(found)}")
    known = set(map(id, walk_plan(before)))
    for node in walk_plan(after):
        if id(node) in known:
            continue
        if isinstance(node, TableScan):
            columns = context.connector(node.connector).columns(node.handle)
            if len(columns) != len(node.columns):
                raise _make_change_error(
                    rule, f"a scan names {len(node.columns)} columns, its handle has {len(columns)}"
                )
        sources = get_sources(node)
        if any(isinstance(source, Sql) and not source.columns for source in sources):
            # Only the engine knows the columns of this text.
            continue
        returned = {output.name for source in sources for output in get_outputs(source)}
        missing = {name for expr in get_expressions(node) for name in collect_column_ids(expr)} - returned
        if missing:
            raise _make_change_error(
                rule, f"{type(node).__name__} reads {min(missing)!r}, which its source does not return"
            )


def _make_change_error(rule: Rule, reason: str) -> TamisError:
    return TamisError(
        f"the rule {rule.name!r} made a wrong plan: {reason}. Switch it off with rules={{{rule.name!r}: False}}, and "
        "report the query"
    )
