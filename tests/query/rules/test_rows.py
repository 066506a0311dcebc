"""Rules that push limits, top-n, aggregations and joins into scans, and dynamic filters."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from builders.plans import FakeConnector, FakeHandle, apply, column, context, expr, keep, scan, select, where
from tamis import types
from tamis.expr.nodes import FALSE, Call, Column, Literal
from tamis.query.plan.nodes import (
    Aggregate,
    AggregateCall,
    Join,
    JoinKind,
    Limit,
    Named,
    Node,
    Output,
    Project,
    Sort,
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
from tamis.query.rules.aggregates.push_aggregation_into_scan import PushAggregationIntoScan
from tamis.query.rules.joins.prune_with_dynamic_filters import (
    MAX_KEY_RANGES,
    MAX_LISTED_KEYS,
    PruneWithDynamicFilters,
    build_key_predicate,
    push_dynamic_filters,
)
from tamis.query.rules.joins.push_join_into_scan import PushJoinIntoScan
from tamis.query.rules.limits.push_limit_into_scan import PushLimitIntoScan
from tamis.query.rules.limits.push_limit_through_project import PushLimitThroughProject
from tamis.query.rules.limits.push_limit_through_union import PushLimitThroughUnion
from tamis.query.rules.limits.push_top_n_into_scan import PushTopNIntoScan

T, U = scan("t"), scan("u")
LONG = types.LONG
NO_PROMISE = FakeConnector(guarantees=False)


def limited(node: TableScan, count: int) -> TableScan:
    assert isinstance(node.handle, FakeHandle)
    return replace(node, handle=replace(node.handle, limit=count))


# --- Limits -----------------------------------------------------------------------------------------------------------


def test_a_limit_is_pushed_below_a_projection() -> None:
    project = select(T, y="`t.a` + 1")
    assert apply(PushLimitThroughProject(), Limit(project, 3, 2)) == replace(project, source=Limit(T, 3, 2))
    assert apply(PushLimitThroughProject(), Limit(where(T, "`t.a` > 1"), 3)) is None


def test_a_limit_is_pushed_into_each_source_of_a_union() -> None:
    union = Union((T, scan("u", rows=4)), T.columns)
    found = apply(PushLimitThroughUnion(), Limit(union, 3, 2))
    assert found == Limit(replace(union, sources=(Limit(T, 5), scan("u", rows=4))), 3, 2)
    assert apply(PushLimitThroughUnion(), Limit(Union((Limit(T, 5), limited(U, 2)), T.columns), 5)) is None
    assert apply(PushLimitThroughUnion(), Limit(T, 5)) is None


def test_a_limit_is_pushed_into_a_scan() -> None:
    rule = PushLimitIntoScan()
    assert apply(rule, Limit(T, 3)) == limited(T, 3)
    assert apply(rule, Limit(T, 3, 2)) == Limit(limited(T, 5), 3, 2)
    assert apply(rule, Limit(limited(T, 5), 3, 2)) is None
    assert apply(rule, Limit(limited(T, 2), 3)) == limited(T, 2)
    assert apply(rule, Limit(T, 3), NO_PROMISE) == Limit(limited(T, 3), 3)
    assert apply(rule, Limit(limited(T, 3), 3), NO_PROMISE) is None
    assert apply(rule, Limit(where(T, "`t.a` > 1"), 3)) is None


def test_a_top_n_is_pushed_into_a_scan() -> None:
    rule = PushTopNIntoScan()
    top = TopN(T, (SortKey(column("t.a"), descending=True),), 3)
    key = SortKey(Column(("a",)), descending=True)
    made = replace(T, handle=replace(FakeHandle("t"), top=(key,), limit=3))
    assert apply(rule, top) == made
    assert apply(rule, top, NO_PROMISE) == replace(top, source=made)
    assert apply(rule, replace(top, source=made), NO_PROMISE) is None
    assert apply(rule, replace(top, keys=(SortKey(expr("`t.a` + 1", T)),))) is None
    assert apply(rule, replace(top, source=where(T, "`t.a` > 1"))) is None


def test_a_top_n_is_pushed_through_a_forwarding_projection() -> None:
    project = select(T, y="`t.a`", z="`t.b` + 1")
    top = TopN(project, (SortKey(Column(("y",), type=LONG)),), 3)
    made = replace(T, handle=replace(FakeHandle("t"), top=(SortKey(Column(("a",))),), limit=3))
    assert apply(PushTopNIntoScan(), top, NO_PROMISE) == replace(top, source=replace(project, source=made))


# --- Groups -----------------------------------------------------------------------------------------------------------


def test_an_aggregation_is_pushed_into_a_scan() -> None:
    call = AggregateCall("n", "count", (column("t.b"),), type=LONG)
    groups = Aggregate(T, (Named("k", column("t.a")),), (call,))
    found = apply(PushAggregationIntoScan(), groups)
    assert isinstance(found, TableScan)
    assert [output.name for output in found.columns] == ["k", "n"]
    assert isinstance(found.handle, FakeHandle)
    assert found.handle.groups == (
        (Named("k", Column(("a",))),),
        (AggregateCall("n", "count", (Column(("b",)),)),),
    )


def test_an_aggregation_of_projected_expressions_is_pushed() -> None:
    groups = Aggregate(select(T, y="`t.a` + 1"), (), (AggregateCall("m", "max", (Column(("y",), type=LONG),)),))
    found = apply(PushAggregationIntoScan(), groups)
    assert isinstance(found, TableScan)
    assert isinstance(found.handle, FakeHandle)
    assert found.handle.groups is not None


def test_an_average_is_computed_from_partial_results_of_the_scan() -> None:
    calls = (AggregateCall("m", "avg", (column("t.b"),)), AggregateCall("c", "count", (column("t.b"),), type=LONG))
    groups = Aggregate(T, (Named("k", column("t.a")),), calls)
    found = apply(PushAggregationIntoScan(), groups, FakeConnector(averages=False))
    assert isinstance(found, Project)
    total, count = Column(("total of m",)), Column(("n of m",))
    assert found.outputs == (Named("k", Column(("k",))), Named("m", Call("/", (total, count))), Named("c", count))
    assert isinstance(found.source, TableScan)
    assert [output.name for output in found.source.columns] == ["k", "total of m", "n of m"]
    assert [output.name for output in get_outputs(found)] == [output.name for output in get_outputs(groups)]


@pytest.mark.parametrize("function", ["sum", "avg"])
def test_sums_are_not_pushed_if_workers_read_the_rows(function: str) -> None:
    rule = PushAggregationIntoScan()
    sums = Aggregate(T, (), (AggregateCall("n", "count"), AggregateCall("m", function, (column("t.b"),))))
    counts = Aggregate(T, (), (AggregateCall("n", "count"),))
    reading, other = (context(FakeConnector(sums=reads)) for reads in (True, False))
    assert rule.apply(sums, replace(reading, has_workers=True)) is None
    assert isinstance(rule.apply(sums, reading), TableScan)
    # A database computes the sums itself.
    assert isinstance(rule.apply(sums, replace(other, has_workers=True)), TableScan)
    assert isinstance(rule.apply(counts, replace(reading, has_workers=True)), TableScan)


def test_an_aggregation_stays_above_operations_outside_of_the_scan() -> None:
    rule = PushAggregationIntoScan()
    assert apply(rule, Aggregate(T, (), ())) is None
    count = (AggregateCall("n", "count"),)
    assert apply(rule, Aggregate(where(T, "`t.a` < `t.b`"), (), count)) is None
    assert apply(rule, Aggregate(Limit(T, 3), (), count)) is None
    assert apply(rule, Aggregate(limited(T, 3), (), count)) is None
    assert apply(rule, Aggregate(T, (), count), FakeConnector(aggregates=False)) is None
    random = (AggregateCall("n", "max", (expr("rand()"),)),)
    assert apply(rule, Aggregate(T, (), random)) is None
    hidden = scan("t", protects=True)
    failing = (AggregateCall("n", "max", (expr("1 / `t.a`", hidden),)),)
    assert apply(rule, Aggregate(hidden, (), failing)) is None


def test_a_filter_on_keys_is_pushed_before_the_aggregation() -> None:
    groups = Aggregate(T, (Named("k", column("t.a")),), (AggregateCall("n", "count", type=LONG),))
    plan = where(select(groups, k2="k", n="n"), "k2 > 5")
    found = optimize(plan, ALL, context()).plan
    assert isinstance(found, Project)
    assert isinstance(found.source, TableScan)
    assert isinstance(found.source.handle, FakeHandle)
    assert found.source.handle.predicate == Call(">", (Column(("a",)), Literal(5, LONG)))


# --- Joins ------------------------------------------------------------------------------------------------------------

ON = ((column("t.a"), column("u.a")),)


def test_tables_of_one_connector_are_joined_in_the_scan() -> None:
    join = Join(T, U, "inner", ON)
    found = apply(PushJoinIntoScan(), join)
    assert isinstance(found, TableScan)
    assert [output.name for output in found.columns] == [output.name for output in get_outputs(join)]
    assert isinstance(found.handle, FakeHandle)
    assert found.handle.joined == ("inner", ((Column(("a",)), Column(("a",))),))


@pytest.mark.parametrize(
    "join",
    [
        Join(T, replace(U, connector="other"), "inner", ON),
        Join(T, U, "inner", ON, expr("`t.b` < `u.b`", T, U)),
        Join(T, U, "full", ON),
        Join(T, scan("u", protects=True), "inner", ON),
        Join(where(T, "`t.a` < `t.b`"), U, "inner", ON),
    ],
)
def test_other_joins_stay(join: Join) -> None:
    assert apply(PushJoinIntoScan(), join) is None


# --- Dynamic filters --------------------------------------------------------------------------------------------------

LARGE, SMALL = scan("t", rows=10_000), scan("u", rows=10)


@pytest.mark.parametrize(
    ("kind", "prunes_large", "prunes_when_swapped"),
    [
        ("inner", True, True),
        ("left", False, True),
        ("right", True, False),
        ("full", False, False),
        ("semi", True, True),
        ("anti", False, True),
    ],
)
def test_the_larger_side_is_pruned_unless_the_join_preserves_its_rows(
    kind: JoinKind, prunes_large: bool, prunes_when_swapped: bool
) -> None:
    join = Join(LARGE, SMALL, kind, ON)
    found = PruneWithDynamicFilters().apply(join, context())
    assert found == (replace(join, dynamic_filter_side="left") if prunes_large else None)
    swapped = Join(SMALL, LARGE, kind, ((column("u.a"), column("t.a")),))
    found = PruneWithDynamicFilters().apply(swapped, context())
    assert found == (replace(swapped, dynamic_filter_side="right") if prunes_when_swapped else None)


def test_joins_without_a_small_side_or_a_scan_are_not_marked() -> None:
    rule = PruneWithDynamicFilters()
    large = scan("t", rows=10_000_000)
    assert rule.apply(Join(large, scan("u", rows=9_000_000), "inner", ON), context()) is None
    assert rule.apply(Join(scan("t", rows=None), scan("u", rows=None), "inner", ON), context()) is None
    assert rule.apply(Join(Limit(LARGE, 5000), SMALL, "inner", ON), context()) is None
    assert rule.apply(Join(LARGE, SMALL, "cross"), context()) is None
    computed = select(LARGE, y="`t.a` + 1")
    assert rule.apply(Join(computed, SMALL, "inner", ((Column(("y",)), column("u.a")),)), context()) is None


def keys(*values: int | None) -> pa.Table:
    return pa.table({"key": pa.array(values, pa.int64())})


def predicates(node: Node) -> list[object]:
    scans = [each for each in walk_plan(node) if isinstance(each, TableScan)]
    return [each.handle.predicate for each in scans]  # type: ignore[attr-defined]


def in_list(name: str, *items: int) -> Call:
    return Call("in", (Column((name,)), *(Literal(item, LONG) for item in items)))


def test_dynamic_filters_reach_scans_through_nodes_that_preserve_the_key() -> None:
    inner = Join(select(where(LARGE, "`t.a` < `t.b`"), y="`t.b`", z="`t.a`"), scan("v"), "left", ())
    side = Sort(inner, ())
    join = Join(side, SMALL, "inner", ((Column(("z",), type=LONG), column("u.a")),), dynamic_filter_side="left")
    found = push_dynamic_filters(join, keys(3, 1, None, 3), context())
    assert predicates(found) == [in_list("a", 1, 3), predicates(scan("v"))[0]]
    assert get_outputs(found) == get_outputs(side)


def test_an_empty_key_set_prunes_everything() -> None:
    join = Join(LARGE, SMALL, "inner", ON, dynamic_filter_side="left")
    assert predicates(push_dynamic_filters(join, keys(None), context())) == predicates(LARGE)
    assert build_key_predicate(column("t.a"), pa.array([None], LONG)) == FALSE


def test_dynamic_filters_do_not_pass_a_limit_or_the_padded_side_of_an_outer_join() -> None:
    for side in (Limit(LARGE, 5), Join(scan("v"), LARGE, "left", ()), TopN(LARGE, (SortKey(column("t.b")),), 3)):
        join = Join(side, SMALL, "inner", ON, dynamic_filter_side="left")
        assert push_dynamic_filters(join, keys(1), context()) == side


def test_A8_dynamic_filters_pass_masks_only_on_unmasked_columns() -> None:
    hidden = scan("t", protects=True)
    masks = select(where(hidden, "`t.b` = 1", protects=True), protects=True, t__a="`t.a`", t__b="CAST(NULL AS BIGINT)")
    join = Join(masks, SMALL, "inner", ON, dynamic_filter_side="left")
    assert predicates(push_dynamic_filters(join, keys(1), context())) == [Call("=", (Column(("a",)), Literal(1, LONG)))]
    masked = Join(masks, SMALL, "inner", ((Column(("t.b",), type=LONG), column("u.a")),), dynamic_filter_side="left")
    assert push_dynamic_filters(masked, keys(1), context()) == masks


def test_many_keys_become_ranges() -> None:
    near, far = pa.array(range(MAX_LISTED_KEYS)), pa.array([10**9 + each for each in range(5)])
    found = build_key_predicate(column("t.a"), pa.concat_arrays([near, far]))
    expected = expr("(`t.a` >= 0 AND `t.a` <= 999) OR (`t.a` >= 1000000000 AND `t.a` <= 1000000004)", T)
    assert found == expected
    apart = build_key_predicate(column("t.a"), pa.array(range(0, 10 * MAX_LISTED_KEYS + 10, 10)))
    assert isinstance(apart, Call)
    assert len(apart.args) == MAX_KEY_RANGES


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (pa.int32(), pa.array([1, 2**40], LONG), "`k` = 1"),
        (LONG, pa.array([1, 1], pa.int32()), "`k` = 1"),
        (types.STRING, pa.array(["a"], pa.large_string()), "`k` = 'a'"),
        (types.DATE, pa.array([1], pa.int32()).cast(types.DATE), "`k` = DATE '1970-01-02'"),
        (types.DOUBLE, pa.array([1.0]), None),
        (LONG, pa.array([1.0]), None),
        (pa.bool_(), pa.array([True]), None),
    ],
)
def test_keys_of_other_types(kind: pa.DataType, given: pa.Array, said: str | None) -> None:
    found = build_key_predicate(Column(("k",), type=kind), given)
    assert found == (None if said is None else expr(said, Union((), (Output("k", kind),))))


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
    assert predicates(done) == [Call("=", (Column(("a",)), Literal(1, LONG)))]
    (scanned,) = (node for node in walk_plan(done) if isinstance(node, TableScan))
    assert [output.name for output in scanned.columns] == ["t.a", "t.b", "t.s"]
