"""Rules that prune columns and struct fields."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from builders.plans import STRUCT, FakeHandle, apply, column, context, expr, keep, scan, select, where
from tamis import types
from tamis.expr.nodes import Column
from tamis.query.plan.nodes import (
    Aggregate,
    AggregateCall,
    Join,
    Limit,
    Named,
    Output,
    Project,
    Sort,
    SortKey,
    TableScan,
    TopN,
    Union,
    walk_plan,
)
from tamis.query.plan.optimizer import optimize
from tamis.query.rules import ALL
from tamis.query.rules.columns.extract_dereferences import ExtractDereferences
from tamis.query.rules.columns.prune_columns import PruneColumns
from tamis.query.rules.columns.push_projection_into_scan import PushProjectionIntoScan

T, U = scan("t"), scan("u")
LONG = types.LONG


# --- prune_columns ----------------------------------------------------------------------------------------------------


def test_columns_of_a_filter_stay_below_it() -> None:
    found = apply(PruneColumns(), select(where(T, "`t.b` > `t.f`"), y="`t.a` + 1"))
    assert found == select(where(keep(T, "t.a", "t.b", "t.f"), "`t.b` > `t.f`"), y="`t.a` + 1")


def test_join_keys_stay_below_a_join() -> None:
    join = Join(T, U, "left", ((column("t.b"), column("u.b")),), expr("`t.f` < `u.f`", T, U))
    found = apply(PruneColumns(), keep(join, "t.a", "u.s"))
    narrow = replace(join, left=keep(T, "t.a", "t.b", "t.f"), right=keep(U, "u.b", "u.s", "u.f"))
    assert found == keep(narrow, "t.a", "u.s")


@pytest.mark.parametrize("kind", ["semi", "anti"])
def test_only_keys_of_the_right_side_of_a_semi_join_are_read(kind: str) -> None:
    join = Join(T, U, kind, ((column("t.b"), column("u.b")),), expr("`t.f` < `u.f`", T, U))  # type: ignore[arg-type]
    assert apply(PruneColumns(), join) == replace(join, right=keep(U, "u.b", "u.f"))


def test_sort_keys_stay_below_a_sort() -> None:
    keys = (SortKey(column("t.b")),)
    for node in (Sort(T, keys), TopN(T, keys, 3)):
        found = apply(PruneColumns(), keep(node, "t.a"))
        assert found == keep(replace(node, source=keep(T, "t.a", "t.b")), "t.a")
    assert apply(PruneColumns(), keep(Limit(T, 3), "t.a")) == keep(Limit(keep(T, "t.a"), 3), "t.a")


def test_an_aggregate_reads_what_it_aggregates() -> None:
    calls = (AggregateCall("n", "count", (column("t.b"),), filter=expr("`t.f` > 1", T)),)
    groups = Aggregate(T, (Named("k", column("t.a")),), calls)
    assert apply(PruneColumns(), groups) == replace(groups, source=keep(T, "t.a", "t.b", "t.f"))
    count = Aggregate(T, (), (AggregateCall("n", "count"),))
    assert apply(PruneColumns(), count) == replace(count, source=Project(T, ()))


def test_unread_aggregates_are_not_computed_but_their_groups_stay() -> None:
    calls = (AggregateCall("n", "count", type=LONG), AggregateCall("m", "max", (column("t.b"),), type=LONG))
    groups = Aggregate(T, (Named("k", column("t.a")),), calls)
    assert apply(PruneColumns(), keep(groups, "n")) == keep(replace(groups, aggregates=calls[:1]), "n")
    one = Aggregate(T, (), calls)
    assert apply(PruneColumns(), select(one, y="1")) == select(replace(one, aggregates=calls[:1]), y="1")


def test_sources_of_a_union_return_only_read_columns() -> None:
    union = Union((keep(T, "t.a", "t.s"), keep(U, "u.b", "u.s")), (Output("c", LONG), Output("d", types.STRING)))
    found = apply(PruneColumns(), keep(union, "d"))
    sources = (keep(union.sources[0], "t.s"), keep(union.sources[1], "u.s"))
    assert found == keep(Union(sources, (Output("d", types.STRING),)), "d")


def test_an_identity_projection_is_removed() -> None:
    whole = keep(T, *(output.name for output in T.columns))
    assert apply(PruneColumns(), whole) == T
    assert apply(PruneColumns(), replace(whole, protects=True)) is None
    assert apply(PruneColumns(), keep(T, "t.a")) is None


def test_projections_are_merged_if_the_lower_one_only_forwards() -> None:
    lower = select(T, y="`t.a`", z="`t.n`")
    assert apply(PruneColumns(), select(lower, v="y + z.x")) == select(T, v="`t.a` + `t.n`.x")
    computing = select(T, y="`t.a` + 1", z="`t.b`")
    assert apply(PruneColumns(), select(computing, v="y + y")) == select(select(T, y="`t.a` + 1"), v="y + y")
    masks = select(T, protects=True, t__a="`t.a`", t__b="CAST(NULL AS BIGINT)")
    assert apply(PruneColumns(), keep(masks, "t.a", "t.b")) is not None


def test_masks_of_unread_columns_are_removed() -> None:
    masks = select(T, protects=True, t__a="`t.a`", t__b="CAST(NULL AS BIGINT)")
    assert apply(PruneColumns(), keep(masks, "t.a")) == keep(select(T, protects=True, t__a="`t.a`"), "t.a")


# --- extract_dereferences ---------------------------------------------------------------------------------------------


def test_only_read_fields_of_a_struct_stay() -> None:
    found = apply(ExtractDereferences(), select(where(T, "`t.b` > `t.f`"), y="`t.n`.x + 1"))
    narrow = Project(T, (Named("t.b", column("t.b")), Named("t.n.x", column("t.n/x")), Named("t.f", column("t.f"))))
    assert found == select(where(narrow, "`t.b` > `t.f`"), y="`t.n.x` + 1")


def test_a_struct_that_is_read_whole_stays() -> None:
    assert apply(ExtractDereferences(), select(where(T, "`t.n` IS NULL"), y="`t.n`.x")) is None
    assert apply(ExtractDereferences(), select(where(T, "`t.b` > `t.f`"), y="`t.a`")) is None
    assert apply(ExtractDereferences(), select(where(T, "`t.b` > `t.f`"), y="`t.n`.x", z="`t.n`")) is None


def test_fields_of_both_sides_of_a_join() -> None:
    join = Join(T, U, "inner", ((column("t.n/x"), column("u.n/x")),))
    found = apply(ExtractDereferences(), select(join, y="`t.n`.y", z="`u.a`"))
    assert isinstance(found, Project)
    assert isinstance(found.source, Join)
    assert found.source.criteria == ((Column(("t.n.x",)), Column(("u.n.x",))),)
    assert found.outputs == (Named("y", Column(("t.n.y",))), Named("z", Column(("u.a",))))


# --- push_projection_into_scan ----------------------------------------------------------------------------------------


def narrowed(*columns: tuple[str, pa.DataType]) -> FakeHandle:
    return FakeHandle("t", columns=tuple(columns))


def test_a_scan_reads_what_a_projection_needs() -> None:
    found = apply(PushProjectionIntoScan(), select(T, y="`t.n`.x + `t.a`"))
    handle = narrowed(("n.x", LONG), ("a", LONG))
    scanned = replace(T, handle=handle, columns=(Output("t.n.x", LONG), Output("t.a", LONG)))
    assert found == select(scanned, y="`t.n.x` + `t.a`")


def test_a_scan_returns_the_outputs_if_nothing_is_computed() -> None:
    found = apply(PushProjectionIntoScan(), select(T, y="`t.n`", z="`t.a`"))
    handle = narrowed(("n", STRUCT), ("a", LONG))
    assert found == replace(T, handle=handle, columns=(Output("y", STRUCT), Output("z", LONG)))


def test_a_scan_without_unread_columns_does_not_change() -> None:
    everything = keep(T, *(output.name for output in T.columns))
    assert apply(PushProjectionIntoScan(), everything) is None
    assert apply(PushProjectionIntoScan(), keep(Limit(T, 3), "t.a")) is None


def test_expressions_that_may_fail_are_not_pushed_into_a_protected_scan() -> None:
    hidden = scan("t", protects=True)
    found = apply(PushProjectionIntoScan(), select(hidden, y="1 / `t.a`"))
    assert found == select(replace(hidden, handle=narrowed(("a", LONG)), columns=(Output("t.a", LONG),)), y="1 / `t.a`")
    assert apply(PushProjectionIntoScan(), select(T, y="rand()", z="`t.a`")) is not None


def test_the_rules_together_push_fields_below_operations_that_stay() -> None:
    plan = select(where(T, "`t.b` > `t.f`"), y="`t.n`.x")
    found = optimize(plan, ALL, context()).plan
    (scanned,) = (node for node in walk_plan(found) if isinstance(node, TableScan))
    assert [output.name for output in scanned.columns] == ["t.b", "t.n.x", "t.f"]
