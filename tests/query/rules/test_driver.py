"""The driver of the rules: it terminates, and names a rule that never stops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders.query.plans import context, scan
from tamis.errors import TamisError
from tamis.query.plan.nodes import Limit, Node
from tamis.query.plan.optimizer import Context, optimize


class _NeverStops:
    name = "restless"

    def apply(self, node: Node, given: Context) -> Node | None:
        return replace(node, count=node.count + 1) if isinstance(node, Limit) else None


def test_a_rule_that_never_stops_is_named() -> None:
    plan = Limit(scan("t"), 1)
    with pytest.raises(TamisError, match="'restless' still changes the plan"):
        optimize(plan, [_NeverStops()], context())
    assert optimize(plan, [_NeverStops()], context(), switched_off=["restless"]).plan == plan
