"""Rules that push filters down, and the cases in which filters stay."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from builders.plans import FakeHandle, apply, column, expr, keep, scan, select, where
from tamis.expr.nodes import TRUE
from tamis.query.plan.nodes import Aggregate, AggregateCall, Filter, Join, JoinKind, Limit, Named, Output, Union
from tamis.query.rules.filters.drop_residual import DropResidual
from tamis.query.rules.filters.merge_filters import MergeFilters
from tamis.query.rules.filters.push_filter_into_scan import PushFilterIntoScan
from tamis.query.rules.filters.push_filter_through_aggregate import PushFilterThroughAggregate
from tamis.query.rules.filters.push_filter_through_filter import PushFilterThroughFilter
from tamis.query.rules.filters.push_filter_through_join import PushFilterThroughJoin
from tamis.query.rules.filters.push_filter_through_project import PushFilterThroughProject
from tamis.query.rules.filters.push_filter_through_union import PushFilterThroughUnion

T, U = scan("t"), scan("u")
HIDDEN = scan("t", protects=True)


# --- merge_filters ----------------------------------------------------------------------------------------------------


def test_two_filters_become_one() -> None:
    found = apply(MergeFilters(), where(where(T, "`t.a` > 5"), "`t.b` = 1 AND `t.a` > 5"))
    assert found == where(T, "`t.a` > 5 AND `t.b` = 1")


def test_a_true_filter_is_removed() -> None:
    assert apply(MergeFilters(), Filter(T, TRUE)) == T


def test_a_row_filter_is_not_merged() -> None:
    policy = where(T, "`t.a` > 5", protects=True)
    assert apply(MergeFilters(), where(policy, "`t.b` = 1")) is None
    assert apply(MergeFilters(), where(where(T, "`t.b` = 1"), "`t.a` > 5", protects=True)) is None
    assert apply(MergeFilters(), Filter(T, TRUE, protects=True)) is None
    assert apply(MergeFilters(), where(T, "`t.b` = 1")) is None


# --- push_filter_through_project --------------------------------------------------------------------------------------


def test_a_filter_is_pushed_with_computed_columns_substituted() -> None:
    project = select(T, y="`t.a` + 1", z="`t.n`")
    found = apply(PushFilterThroughProject(), where(project, "y > 5 AND z.x = 2"))
    assert found == replace(project, source=where(T, "`t.a` + 1 > 5 AND `t.n`.x = 2"))


def test_a_nondeterministic_expression_is_not_computed_twice() -> None:
    project = select(T, y="rand()", z="`t.a`")
    assert apply(PushFilterThroughProject(), where(project, "y > 0.5")) is None
    assert apply(PushFilterThroughProject(), where(project, "rand() > z")) is None
    assert apply(PushFilterThroughProject(), where(T, "`t.a` > 5")) is None
    found = apply(PushFilterThroughProject(), where(project, "y > 0.5 AND z = 1"))
    assert found == where(replace(project, source=where(T, "`t.a` = 1")), "y > 0.5")


def test_A2_filters_on_masked_columns_are_not_pushed() -> None:
    masks = select(T, protects=True, t__a="`t.a`", t__b="CAST(NULL AS BIGINT)", t__s="`t.a`")
    rule = PushFilterThroughProject()
    assert apply(rule, where(masks, "`t.b` = 5")) is None
    assert apply(rule, where(masks, "`t.s` = 5")) is None
    assert apply(rule, where(masks, "`t.a` + 1 = 5")) is None
    found = apply(rule, where(masks, "`t.a` = 5 AND `t.b` = 5"))
    assert found == where(replace(masks, source=where(T, "`t.a` = 5")), "`t.b` = 5")


# --- push_filter_through_filter ---------------------------------------------------------------------------------------


def test_A1_only_leakproof_conjuncts_pass_a_row_filter() -> None:
    policy = where(T, "`t.b` = 1", protects=True)
    rule = PushFilterThroughFilter()
    found = apply(rule, where(policy, "`t.a` = 20 AND 1 / (`t.a` - 20) = 0"))
    assert found == where(replace(policy, source=where(T, "`t.a` = 20")), "1 / (`t.a` - 20) = 0")
    assert apply(rule, where(policy, "1 / (`t.a` - 20) = 0")) is None
    assert apply(rule, where(where(T, "`t.b` = 1"), "`t.a` = 20")) is None


# --- push_filter_through_union ----------------------------------------------------------------------------------------


def test_a_filter_of_a_union_is_pushed_into_each_source() -> None:
    columns = (Output("c", pa.int64()), Output("d", pa.string()))
    union = Union((keep(T, "t.a", "t.s"), keep(U, "u.b", "u.s")), columns)
    found = apply(PushFilterThroughUnion(), where(union, "c > 5 AND d LIKE 'x%'"))
    parts = (
        where(union.sources[0], "`t.a` > 5 AND `t.s` LIKE 'x%'"),
        where(union.sources[1], "`u.b` > 5 AND `u.s` LIKE 'x%'"),
    )
    assert found == Union(parts, columns)


def test_a_filter_on_a_column_that_a_union_converts_stays() -> None:
    columns = (Output("c", pa.float64()),)
    union = Union((keep(T, "t.a"), keep(U, "u.f")), columns)
    assert apply(PushFilterThroughUnion(), where(union, "c > 5")) is None
    plain = Union((keep(T, "t.a"), keep(U, "u.a")), (Output("c", pa.int64()),))
    assert apply(PushFilterThroughUnion(), where(plain, "c > rand()")) is None


# --- push_filter_through_aggregate ------------------------------------------------------------------------------------


def test_a_filter_on_keys_is_pushed_below_the_aggregation() -> None:
    count = AggregateCall("n", "count", type=pa.int64())
    groups = Aggregate(T, (Named("k", expr("`t.a` + 1", T)),), (count,))
    found = apply(PushFilterThroughAggregate(), where(groups, "k > 5 AND n > 1"))
    assert found == where(replace(groups, source=where(T, "`t.a` + 1 > 5")), "n > 1")


def test_a_filter_on_aggregates_stays() -> None:
    count = AggregateCall("n", "count", type=pa.int64())
    groups = Aggregate(T, (Named("k", column("t.a")),), (count,))
    rule = PushFilterThroughAggregate()
    assert apply(rule, where(groups, "n > 1")) is None
    assert apply(rule, where(groups, "n > k")) is None
    assert apply(rule, Filter(groups, expr("1 = 2"))) is None
    assert apply(rule, where(Aggregate(T, (), (count,)), "n > 1")) is None
    assert apply(rule, Filter(Aggregate(T, (), (count,)), expr("1 = 2"))) is None


# --- push_filter_through_join -----------------------------------------------------------------------------------------

ON = ((column("t.a"), column("u.a")),)


def joined(kind: JoinKind, on: str | None = None) -> Join:
    return Join(T, U, kind, () if kind == "cross" else ON, None if on is None else expr(on, T, U))


@pytest.mark.parametrize(
    ("kind", "text", "left", "right", "stays"),
    [
        ("inner", "`t.b` = 1 AND `u.b` = 2 AND `t.b` < `u.b`", "`t.b` = 1", "`u.b` = 2", "`t.b` < `u.b`"),
        ("cross", "`t.b` = 1 AND `u.b` = 2", "`t.b` = 1", "`u.b` = 2", None),
        ("left", "`t.b` = 1 AND `u.b` IS NULL", "`t.b` = 1", None, "`u.b` IS NULL"),
        ("right", "`u.b` = 1 AND `t.b` IS NULL", None, "`u.b` = 1", "`t.b` IS NULL"),
    ],
)
def test_a_where_is_pushed_to_its_side(
    kind: JoinKind, text: str, left: str | None, right: str | None, stays: str | None
) -> None:
    join = joined(kind)
    expected: Join | Filter = replace(
        join, left=T if left is None else where(T, left), right=U if right is None else where(U, right)
    )
    if stays is not None:
        expected = where(expected, stays)
    assert apply(PushFilterThroughJoin(), where(join, text)) == expected


@pytest.mark.parametrize("kind", ["semi", "anti"])
def test_a_where_above_a_semi_or_anti_join_is_pushed_left(kind: JoinKind) -> None:
    join = joined(kind)
    assert apply(PushFilterThroughJoin(), where(join, "`t.b` = 1")) == replace(join, left=where(T, "`t.b` = 1"))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("full", "`t.b` IS NULL"),
        ("left", "`u.b` IS NULL"),
        ("left", "coalesce(`u.b`, 1) = 1"),
        ("left", "`u.b` <=> NULL"),
        ("left", "`u.b` = 1 OR `t.b` = 1"),
        ("right", "`t.b` IS NULL"),
        ("full", "coalesce(`t.b`, `u.b`) = 1"),
        ("inner", "`t.b` + `u.b` = 3"),
        ("inner", "`t.b` > rand()"),
    ],
)
def test_a_where_that_belongs_to_no_side_stays(kind: JoinKind, text: str) -> None:
    assert apply(PushFilterThroughJoin(), where(joined(kind), text)) is None


@pytest.mark.parametrize(
    ("kind", "text", "becomes"),
    [
        ("left", "`u.b` = 1", "inner"),
        ("left", "`u.b` = 1 OR `u.b` > 5", "inner"),
        ("right", "`t.b` IN (1, 2)", "inner"),
        ("full", "`t.b` = 1", "left"),
        ("full", "`u.b` = 1", "right"),
        ("full", "`t.b` = `u.b`", "inner"),
        ("left", "`u.s` LIKE 'a%'", "inner"),
        ("left", "`u.n`.x IS NOT NULL", "inner"),
    ],
)
def test_an_outer_join_whose_padded_rows_are_dropped_is_reduced(kind: JoinKind, text: str, becomes: JoinKind) -> None:
    found = apply(PushFilterThroughJoin(), where(joined(kind), text))
    while isinstance(found, Filter):
        found = found.source  # type: ignore[assignment]
    assert isinstance(found, Join)
    assert found.kind == becomes


@pytest.mark.parametrize(
    ("kind", "left", "right", "stays"),
    [
        ("inner", True, True, False),
        ("left", False, True, True),
        ("right", True, False, True),
        ("semi", True, True, False),
        ("anti", False, True, True),
    ],
)
def test_an_on_is_pushed_to_its_side(kind: JoinKind, left: bool, right: bool, stays: bool) -> None:
    join = joined(kind, "`t.b` = 1 AND `u.b` = 2")
    on_stays = [text for text, is_pushed in (("`t.b` = 1", left), ("`u.b` = 2", right)) if not is_pushed]
    expected = replace(
        join,
        left=where(T, "`t.b` = 1") if left else T,
        right=where(U, "`u.b` = 2") if right else U,
        filter=expr(" AND ".join(on_stays), T, U) if stays else None,
    )
    assert apply(PushFilterThroughJoin(), join) == expected


def test_the_on_of_a_full_join_stays() -> None:
    assert apply(PushFilterThroughJoin(), joined("full", "`t.b` = 1 AND `u.b` = 2")) is None
    assert apply(PushFilterThroughJoin(), joined("inner")) is None


def test_an_equality_makes_a_cross_join_an_inner_one() -> None:
    found = apply(PushFilterThroughJoin(), where(joined("cross"), "`u.a` = `t.a` AND `t.b` < `u.b`"))
    assert found == where(joined("inner"), "`t.b` < `u.b`")


@pytest.mark.parametrize("kind", ["inner", "left", "semi", "anti"])
def test_a_filter_on_a_key_also_applies_to_the_equal_key(kind: JoinKind) -> None:
    found = apply(PushFilterThroughJoin(), where(joined(kind), "`t.a` > 5"))
    assert found == replace(joined(kind), left=where(T, "`t.a` > 5"), right=where(U, "`u.a` > 5"))


def test_an_on_filter_on_a_key_of_an_outer_join_does_not_apply_to_the_preserved_side() -> None:
    found = apply(PushFilterThroughJoin(), joined("left", "`u.a` > 5"))
    assert found == replace(joined("left"), right=where(U, "`u.a` > 5"))


# --- push_filter_into_scan --------------------------------------------------------------------------------------------


def handle(predicate: str) -> FakeHandle:
    return FakeHandle("t", predicate=expr(predicate.replace("t.", ""), _plain()))


def _plain() -> Union:
    return Union((), tuple(Output(name, kind) for name, kind in FakeHandle("t").columns))


def test_supported_conjuncts_are_pushed_into_the_scan() -> None:
    found = apply(PushFilterIntoScan(), where(T, "`t.a` > 5 AND `t.a` < `t.b`"))
    assert found == where(replace(T, handle=handle("`t.a` > 5")), "`t.a` < `t.b`")
    assert apply(PushFilterIntoScan(), where(T, "`t.a` > 5")) == replace(T, handle=handle("`t.a` > 5"))


def test_unsupported_conjuncts_stay() -> None:
    rule = PushFilterIntoScan()
    assert apply(rule, where(T, "`t.a` < `t.b`")) is None
    assert apply(rule, where(T, "`t.a` < rand()")) is None
    assert apply(rule, where(replace(T, handle=FakeHandle("t", limit=3)), "`t.a` > 5")) is None
    assert apply(rule, where(Limit(T, 3), "`t.a` > 5")) is None


def test_A1_only_leakproof_conjuncts_are_pushed_into_a_protected_scan() -> None:
    rule = PushFilterIntoScan()
    found = apply(rule, where(HIDDEN, "`t.a` = 20 AND 1 / (`t.a` - 20) = 0"))
    assert found == where(replace(HIDDEN, handle=handle("`t.a` = 20")), "1 / (`t.a` - 20) = 0")
    assert apply(rule, where(HIDDEN, "1 / (`t.a` - 20) = 0")) is None
    # The row filter is trusted, and its residual filter still protects.
    policy = where(HIDDEN, "`t.a` = 3 AND `t.a` < `t.b`", protects=True)
    found = apply(rule, policy)
    assert found == where(replace(HIDDEN, handle=handle("`t.a` = 3")), "`t.a` < `t.b`", protects=True)
    # A row filter that may fail is not pushed, so that it is evaluated on all rows, regardless of the user's filter.
    fails = where(HIDDEN, "`t.a` + 1 = 3", protects=True)
    assert apply(rule, fails) is None
    assert apply(PushFilterThroughFilter(), where(fails, "`t.a` = 20")) is None


# --- drop_residual ----------------------------------------------------------------------------------------------------


def test_conjuncts_that_the_scan_guarantees_are_dropped() -> None:
    filtered = replace(T, handle=handle("`t.a` > 5"))
    assert apply(DropResidual(), where(filtered, "`t.a` > 5 AND `t.a` < `t.b`")) == where(filtered, "`t.a` < `t.b`")
    assert apply(DropResidual(), where(filtered, "`t.a` > 5")) == filtered
    assert apply(DropResidual(), where(filtered, "`t.a` > 6")) is None
