"""Dynamic filters during execution: which scans the keys of a join reach, and the predicate that keys become."""

from __future__ import annotations

import pyarrow as pa
import pytest

from builders.query.plans import column, context, expr, get_predicates, scan, select, where
from tamis import types
from tamis.expr.nodes import FALSE, Call, Column, Literal
from tamis.query.plan.nodes import Join, Limit, Output, Sort, SortKey, TopN, Union, get_outputs
from tamis.query.rules.joins.prune_with_dynamic_filters import build_key_predicate, push_dynamic_filters
from tamis.tuning import DEFAULT_TUNING, Tuning

T = scan("t")
LONG = types.LONG
ON = ((column("t.a"), column("u.a")),)
LARGE, SMALL = scan("t", rows=10_000), scan("u", rows=10)


def make_keys(*values: int | None) -> pa.Table:
    return pa.table({"key": pa.array(values, pa.int64())})


def make_in(name: str, *items: int) -> Call:
    return Call("in", (Column((name,), LONG), *(Literal(item, LONG) for item in items)))


def test_dynamic_filters_reach_scans_through_nodes_that_preserve_the_key() -> None:
    inner = Join(select(where(LARGE, "`t.a` < `t.b`"), y="`t.b`", z="`t.a`"), scan("v"), "left", ())
    side = Sort(inner, ())
    join = Join(side, SMALL, "inner", ((Column(("z",), type=LONG), column("u.a")),), dynamic_filter_side="left")
    found = push_dynamic_filters(join, make_keys(3, 1, None, 3), context())
    assert get_predicates(found) == [make_in("a", 1, 3), get_predicates(scan("v"))[0]]
    assert get_outputs(found) == get_outputs(side)


def test_an_empty_key_set_prunes_everything() -> None:
    join = Join(LARGE, SMALL, "inner", ON, dynamic_filter_side="left")
    assert get_predicates(push_dynamic_filters(join, make_keys(None), context())) == get_predicates(LARGE)
    assert build_key_predicate(column("t.a"), pa.array([None], LONG)) == FALSE


def test_dynamic_filters_do_not_pass_a_limit_or_the_padded_side_of_an_outer_join() -> None:
    for side in (Limit(LARGE, 5), Join(scan("v"), LARGE, "left", ()), TopN(LARGE, (SortKey(column("t.b")),), 3)):
        join = Join(side, SMALL, "inner", ON, dynamic_filter_side="left")
        assert push_dynamic_filters(join, make_keys(1), context()) == side


def test_A8_dynamic_filters_pass_masks_only_on_unmasked_columns() -> None:
    hidden = scan("t", protects=True)
    masks = select(where(hidden, "`t.b` = 1", protects=True), protects=True, t__a="`t.a`", t__b="CAST(NULL AS BIGINT)")
    join = Join(masks, SMALL, "inner", ON, dynamic_filter_side="left")
    assert get_predicates(push_dynamic_filters(join, make_keys(1), context())) == [
        Call("=", (Column(("a",), LONG), Literal(1, LONG)))
    ]
    masked = Join(masks, SMALL, "inner", ((Column(("t.b",), type=LONG), column("u.a")),), dynamic_filter_side="left")
    assert push_dynamic_filters(masked, make_keys(1), context()) == masks


def test_many_keys_become_ranges() -> None:
    most = DEFAULT_TUNING.max_listed_keys
    near, far = pa.array(range(most)), pa.array([10**9 + each for each in range(5)])
    found = build_key_predicate(column("t.a"), pa.concat_arrays([near, far]))
    expected = expr("(`t.a` >= 0 AND `t.a` <= 999) OR (`t.a` >= 1000000000 AND `t.a` <= 1000000004)", T)
    assert found == expected
    for tuning in (DEFAULT_TUNING, Tuning(max_key_ranges=3)):
        apart = build_key_predicate(column("t.a"), pa.array(range(0, 10 * most + 10, 10)), tuning)
        assert isinstance(apart, Call)
        assert len(apart.args) == tuning.max_key_ranges


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
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
def test_keys_of_other_types(kind: pa.DataType, given: pa.Array, expected: str | None) -> None:
    found = build_key_predicate(Column(("k",), type=kind), given)
    assert found == (None if expected is None else expr(expected, Union((), (Output("k", kind),))))
