"""All rules together: they reach a plan that none of them changes, and do not undo each other."""

from __future__ import annotations

import pyarrow as pa

from builders.query.plans import FakeHandle, column, context, expr, get_predicates, keep, scan, select, where
from tamis import types
from tamis.expr.nodes import Call, Column, Literal
from tamis.query.plan.nodes import (
    Aggregate,
    AggregateCall,
    Join,
    Limit,
    Named,
    Node,
    Output,
    Project,
    SortKey,
    TableScan,
    TopN,
    Union,
    Values,
    get_outputs,
    walk_plan,
)
from tamis.query.plan.optimizer import optimize
from tamis.query.rules import ALL

T, U = scan("t"), scan("u")
LONG = types.LONG
ON = ((column("t.a"), column("u.a")),)
LARGE, SMALL = scan("t", rows=10_000), scan("u", rows=10)


def test_the_rules_together_push_fields_below_operations_that_stay() -> None:
    plan = select(where(T, "`t.b` > `t.f`"), y="`t.n`.x")
    found = optimize(plan, ALL, context()).plan
    (scanned,) = (node for node in walk_plan(found) if isinstance(node, TableScan))
    assert [output.name for output in scanned.columns] == ["t.b", "t.n.x", "t.f"]


def test_a_filter_on_keys_is_pushed_before_the_aggregation() -> None:
    groups = Aggregate(T, (Named("k", column("t.a")),), (AggregateCall("n", "count", type=LONG),))
    plan = where(select(groups, k2="k", n="n"), "k2 > 5")
    found = optimize(plan, ALL, context()).plan
    assert isinstance(found, Project)
    assert isinstance(found.source, TableScan)
    assert isinstance(found.source.handle, FakeHandle)
    assert found.source.handle.predicate == Call(">", (Column(("a",), LONG), Literal(5, LONG)))


def test_no_rule_fires_on_the_optimized_plan() -> None:
    join = Join(LARGE, where(SMALL, "`u.s` = 'x'"), "left", ON, expr("`u.b` > 1", T, U))
    groups = Aggregate(
        where(join, "`t.b` = 1 AND `u.f` > `t.f`"),
        (Named("k", column("t.n/x")),),
        (AggregateCall("n", "count", type=LONG),),
    )
    plan: Node = Project(
        TopN(groups, (SortKey(Column(("n",), type=LONG)),), 3), (Named("k", Column(("k",), type=LONG)),)
    )
    values = Values(pa.table({"k": [1]}), (Output("v", LONG),))
    plan = Limit(Union((plan, values), (Output("w", LONG),)), 5)
    done = optimize(plan, ALL, context()).plan
    assert get_outputs(done) == get_outputs(plan)
    assert not [each.name for each in optimize(done, ALL, context()).rule_metrics if each.applied]


def test_A1_no_rule_undoes_another_on_filters_of_a_protected_table() -> None:
    hidden = scan("t", protects=True)
    policy = where(hidden, "`t.a` < `t.b`", protects=True)
    masks = select(policy, protects=True, t__a="`t.a`", t__b="CAST(NULL AS BIGINT)", t__s="`t.s`")
    plan = keep(where(masks, "`t.a` = 1 AND `t.b` = 2"), "t.s")
    done = optimize(plan, ALL, context()).plan
    assert not [each.name for each in optimize(done, ALL, context()).rule_metrics if each.applied]
    assert get_predicates(done) == [Call("=", (Column(("a",), LONG), Literal(1, LONG)))]
    (scanned,) = (node for node in walk_plan(done) if isinstance(node, TableScan))
    assert [output.name for output in scanned.columns] == ["t.a", "t.b", "t.s"]
