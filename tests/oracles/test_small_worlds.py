"""All small units against all simple predicates, without a random choice. The admitted values decide."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from builders.answers.oracle import evaluate_predicates
from builders.skipping.small_worlds import Statistics, Units, World, make_units_of_one, make_units_of_two
from builders.values.by_type import make_decimal, to_oracle_literal
from builders.values.predicates import (
    CONSTANTS,
    OPERATORS,
    OraclePredicate,
    combine_predicates,
    compare_with_boolean,
    make_column_comparison,
    make_comparison,
    make_known_test,
    make_like_test,
    make_list_test,
    make_null_test,
    make_prefix_test,
    make_unknown_test,
    negate_predicate,
)
from tamis import types
from tamis.expr.bind import bind
from tamis.expr.evaluate import Evaluator
from tamis.expr.nodes import Call, Literal, Name
from tamis.expr.normalise import normalise
from tamis.skipping.prune import prune
from tamis.skipping.rewrite import rewrite

X, Y = ("x",), ("y",)

WORLDS = {
    "double": World(types.DOUBLE, (-math.inf, -1.0, 0.0, 0.5, 1.0, 2.0**53, math.inf)),
    "float": World(pa.float32(), (-1.0, -1e-45, 0.0, 0.10000000149011612, 0.5, 1.0)),
    "tinyint": World(pa.int8(), (-128, -127, 0, 1, 2, 126, 127)),
    "ubigint": World(pa.uint64(), (0, 1, 2**63 - 1, 2**63, 2**64 - 1)),
    "bigint": World(pa.int64(), (-(2**63), -1, 0, 2**53, 2**53 + 1, 2**63 - 1)),
    "boolean": World(types.BOOLEAN, (False, True)),
    "decimal": World(pa.decimal128(3, 1), tuple(make_decimal(each, 1) for each in (-999, -5, 0, 1, 5, 999))),
    "date": World(types.DATE, (-366, -1, 0, 1, 31)),
    "timestamp": World(pa.timestamp("ms"), (-86_400_001, -1000, -1, 0, 1, 86_400_000)),
    "string": World(types.STRING, ("", "a", "a\nb", "a%", "ab", "abc", "ac", "b", "\ud7ff", "\ue000", "\U0010ffff")),
    "binary": World(types.BINARY, (b"", b"a", b"a\xff", b"a\xff\x00", b"b", b"\xff", b"\xff\xff")),
}  # fmt: skip

FOREIGN: dict[str, list[tuple[Any, pa.DataType]]] = {
    "double": [(Decimal("0.5"), pa.decimal128(2, 1)), (1, types.LONG), (2**53 + 1, types.LONG)],
    "float": [(0.1, types.DOUBLE), (-0.1, types.DOUBLE), (1e300, types.DOUBLE), (-1e300, types.DOUBLE),
              (5e-324, types.DOUBLE), (math.nextafter(3.4028234663852886e38, math.inf), types.DOUBLE),
              (1, types.LONG), (Decimal("0.5"), pa.decimal128(2, 1))],
    "tinyint": [(Decimal("1.5"), pa.decimal128(2, 1)), (Decimal("-0.5"), pa.decimal128(2, 1)), (300, types.LONG),
                (-129, types.LONG), (128, types.LONG), (127, types.LONG), (0.5, types.DOUBLE), (127.5, types.DOUBLE),
                (-128.5, types.DOUBLE), *((each, types.DOUBLE) for each in (math.nan, math.inf, -math.inf))],
    "ubigint": [(-1, types.LONG), (2**63 - 1, types.LONG), (Decimal(2**64), pa.decimal128(20, 0)),
                (Decimal("0.5"), pa.decimal128(2, 1))],
    "bigint": [(Decimal(2**63), pa.decimal128(20, 0)), (2.0**53, types.DOUBLE), (math.nan, types.DOUBLE)],
    "decimal": [(Decimal("0.25"), pa.decimal128(3, 2)), (Decimal("-0.05"), pa.decimal128(3, 2)), (0, types.LONG),
                (100, types.LONG), (0.5, types.DOUBLE), (0.25, types.DOUBLE), (math.nan, types.DOUBLE)],
    "date": [(-1, pa.timestamp("us")), (86_400, pa.timestamp("s")), (86_400_001, pa.timestamp("ms"))],
    "timestamp": [(-1, pa.timestamp("us")), (1_000_001, pa.timestamp("ns")), (-1, pa.timestamp("s")), (1, types.DATE)],
}  # fmt: skip
"""Literals of other types: between two values of the column, outside them, or equal to one."""


@cache
def make_units(name: str) -> Units:
    return make_units_of_one(WORLDS[name])


def list_literals(name: str) -> list[tuple[Any, pa.DataType]]:
    world = WORLDS[name]
    signed = [-0.0] if pa.types.is_floating(world.type) else []
    return [*((cell, world.type) for cell in (*world.cells, *signed)), *FOREIGN.get(name, [])]


def list_comparisons(name: str) -> list[OraclePredicate]:
    own = WORLDS[name].type
    return [
        make_comparison(X, own, operator, value, kind) for operator in OPERATORS for value, kind in list_literals(name)
    ]


def make_lists(name: str) -> list[OraclePredicate]:
    """Return lists of every second value, so that there is an unlisted value between any two."""
    world = WORLDS[name]
    second = [(cell, world.type) for cell in (*world.values[::2], *world.cells[len(world.values) :])]
    several = [*itertools.combinations(second, 2), *((each,) for each in second), second[::-1], second[-2::-1]]
    return [make_list_test(X, world.type, items) for items in several]


def make_lists_without_gaps(name: str) -> list[OraclePredicate]:
    """Return lists of neighbours and of other types. Bounds cannot show that no value is between neighbours."""
    own = WORLDS[name].type
    return [make_list_test(X, own, pair) for pair in itertools.combinations(list_literals(name), 2)]


def make_null_tests(name: str) -> list[OraclePredicate]:
    return [make_null_test(X, is_null=True), make_null_test(X, is_null=False)]


def make_text_tests(name: str) -> tuple[list[OraclePredicate], list[OraclePredicate]]:
    """Return the tests that bounds decide, and those that they cannot decide."""
    if name == "binary":
        return [make_prefix_test(X, each) for each in (b"", b"a", b"a\xff", b"b", b"\xff", b"\xff\xff")], []
    if name != "string":
        return [], []
    prefixes = ("", "a", "ab", "b", "\ud7ff", "\U0010ffff")
    sharp = [*(make_prefix_test(X, each) for each in prefixes), *(make_like_test(X, each + "%") for each in prefixes)]
    sharp += [make_like_test(X, "ab"), make_like_test(X, ""), make_like_test(X, "a\\%"), make_like_test(X, "a!%", "!")]
    return sharp, [
        make_like_test(X, each) for each in ("a%c", "a_", "%b", "_", "a\\%%", "%b%", "a_%", "a!%%", "ab_", "a%b", "a_b")
    ]


def check(found: Units, schema: pa.Schema, predicate: Sequence[OraclePredicate], *, sharp: bool) -> None:
    """Check that no matching unit is skipped, fully matched units match, and rows evaluate alike.

    If `sharp`, check too that no unit is kept in vain."""
    for each, answers in zip(predicate, evaluate_predicates(found.rows, [each.sql for each in predicate]), strict=True):
        bound = bind(each.expr, schema)
        (rows,) = found.rows.to_batches()
        assert Evaluator(bound)(rows).to_pylist() == answers, each
        conjuncts = rewrite(normalise(bound))
        pruned = prune(found.batch, conjuncts)
        kept = pruned.selection.to_numpy(zero_copy_only=False)
        fully_matched = np.ones(int(kept.sum()), dtype=bool)
        for matched in pruned.fully_matched:
            fully_matched &= matched.to_numpy(zero_copy_only=False)
        may_match = found.some([answer is True for answer in answers])
        may_fail = found.some([answer is not True for answer in answers])[kept]
        _expect(found, kept | ~may_match, each, "was skipped, though a row may match")
        _expect_kept(found, kept, ~(fully_matched & may_fail), each, "is fully matched, though a row may not match")
        if sharp and conjuncts:
            # A predicate that is always TRUE has no conjunct, and keeps empty units too.
            _expect(found, ~kept | may_match | ~found.known, each, "was kept, though no row can match")
            _expect_kept(
                found,
                kept,
                fully_matched | may_fail | ~found.known[kept],
                each,
                "is not fully matched, though all rows match",
            )


def _expect_kept(found: Units, kept: Any, holds: Any, predicate: OraclePredicate, what: str) -> None:
    everywhere = np.ones(len(kept), dtype=bool)
    everywhere[kept] = holds
    _expect(found, everywhere, predicate, what)


def _expect(found: Units, holds: Any, predicate: OraclePredicate, what: str) -> None:
    wrong = np.flatnonzero(~holds)
    if len(wrong):
        pytest.fail(
            f"{predicate.sql}: unit {found.batch.slice(int(wrong[0]), 1).to_pylist()} {what} ({len(wrong)} such)"
        )


@pytest.mark.parametrize("name", WORLDS)
def test_O3_O4_simple_predicates_skip_and_match_exactly_what_the_metadata_decides(name: str) -> None:
    schema = pa.schema([("x", WORLDS[name].type)])
    sharp, blunt = make_text_tests(name)
    simple = [*list_comparisons(name), *make_null_tests(name), *make_lists(name), *sharp]
    if name == "boolean":
        simple.append(OraclePredicate(Name(X), '"x"'))
        blunt = [make(each) for each in CONSTANTS for make in (negate_predicate, make_unknown_test, make_known_test)]
    check(make_units(name), schema, simple, sharp=True)
    check(make_units(name), schema, [*blunt, *make_lists_without_gaps(name)], sharp=False)


@pytest.mark.parametrize("name", WORLDS)
def test_O6_negations_skip_and_match_exactly_what_the_metadata_decides(name: str) -> None:
    schema = pa.schema([("x", WORLDS[name].type)])
    sharp, blunt = make_text_tests(name)
    simple = [*list_comparisons(name), *make_null_tests(name), *make_lists(name), *sharp]
    check(
        make_units(name),
        schema,
        [make(each) for each in simple for make in (negate_predicate, make_unknown_test)],
        sharp=True,
    )
    check(
        make_units(name),
        schema,
        [negate_predicate(each) for each in (*blunt, *make_lists_without_gaps(name)[::3])],
        sharp=False,
    )


@pytest.mark.parametrize("name", ["double", "tinyint", "string"])
def test_O4_O6_two_predicates_of_one_column_joined(name: str) -> None:
    world = WORLDS[name]
    schema = pa.schema([("x", world.type)])
    some = [world.values[1], world.values[3], *world.cells[len(world.values) : -1]]
    parts = [make_comparison(X, world.type, operator, value) for operator in OPERATORS for value in some]
    parts += [
        make_null_test(X, is_null=True),
        CONSTANTS[2],
        make_list_test(X, world.type, [(each, world.type) for each in some]),
    ]
    pairs = [
        combine_predicates(junction, pair) for pair in itertools.combinations(parts, 2) for junction in ("and", "or")
    ]
    wrapped = [make(each) for index, each in enumerate(pairs) for make in _choose_wrappers(index)]
    check(make_units(name), schema, [*pairs, *wrapped], sharp=False)


def _choose_wrappers(index: int) -> list[Any]:
    """Return one wrapper in turn, since all of them for every pair would take long."""
    every = [
        negate_predicate,
        make_unknown_test,
        make_known_test,
        lambda part: compare_with_boolean(part, "<=>", False),
        lambda part: compare_with_boolean(part, "<=>", True),
        lambda part: compare_with_boolean(part, "=", False),
        lambda part: compare_with_boolean(part, "<>", True),
    ]
    return [every[index % len(every)]]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (World(types.DOUBLE, (-1.0, 1.0)), World(types.DOUBLE, (-1.0, 1.0))),
        (World(pa.int8(), (-1, 0, 1)), World(pa.int8(), (-1, 0, 1))),
        (World(types.STRING, ("a", "ab")), World(types.STRING, ("a", "ab"))),
        (World(types.BOOLEAN, (False, True)), World(types.BOOLEAN, (False, True))),
    ],
    ids=["double", "tinyint", "string", "boolean"],
)
def test_O3_O4_two_columns_compare_exactly_as_their_metadata_decides(left: World, right: World) -> None:
    schema = pa.schema([("x", left.type), ("y", right.type)])
    pairs = [make_column_comparison(X, operator, Y) for operator in OPERATORS]
    found = make_units_of_two(left, right)
    check(found, schema, [*pairs, *map(negate_predicate, pairs), *map(make_unknown_test, pairs)], sharp=True)


def test_O4_O6_two_predicates_of_two_columns_joined() -> None:
    world = World(types.DOUBLE, (-1.0, 1.0))
    schema = pa.schema([("x", world.type), ("y", world.type)])
    found = make_units_of_two(world, world)
    of_x = [
        *(make_comparison(X, world.type, each, 1.0) for each in ("<", ">=", "<>", "<=>")),
        make_null_test(X, is_null=True),
    ]
    of_y = [
        *(make_comparison(Y, world.type, each, -1.0) for each in ("<=", ">", "=")),
        make_comparison(Y, world.type, "<", math.nan),
    ]
    pairs = [combine_predicates(junction, pair) for pair in itertools.product(of_x, of_y) for junction in ("and", "or")]
    check(found, schema, [*pairs, *map(negate_predicate, pairs), *map(make_unknown_test, pairs)], sharp=False)


def test_O3_O4_functions_skip_nothing_that_the_metadata_admits() -> None:
    """Monotone functions skip by bounds, the others only if a unit has a single value."""
    world = World(pa.int8(), (-128, -2, -1, 0, 1, 2, 127))
    found, schema, column = make_units_of_one(world), pa.schema([("x", world.type)]), Name(X)
    number = '"x"::HUGEINT'
    values = [
        (Call("+", (column, Literal(2, types.LONG))), f"{number} + 2"),
        (Call("-", (Literal(2, types.LONG), column)), f"2 - {number}"),
        (Call("*", (column, Literal(-3, types.LONG))), f"{number} * -3"),
        (Call("negate", (column,)), f"-({number})"),
        (Call("abs", (column,)), f"abs({number})"),
        (Call("coalesce", (column, Literal(1, world.type))), f"coalesce({number}, 1)"),
        (Call("cast", (column, Literal("double", types.STRING))), number),
        (
            Call("case", (Call("is_null", (column,)), Literal(1, types.LONG), Literal(2, types.LONG))),
            'CASE WHEN "x" IS NULL THEN 1 ELSE 2 END',
        ),
    ]
    predicate = [
        OraclePredicate(Call(operator, (expr, Literal(number, types.LONG))), f"({sql}) {theirs} {number}")
        for expr, sql in values
        for operator, theirs in OPERATORS.items()
        for number in (-3, -1, 0, 1, 2, 4)
    ]
    check(
        found, schema, [*predicate, *map(negate_predicate, predicate), *map(make_unknown_test, predicate)], sharp=False
    )


def test_O3_O4_F1_functions_of_floats_skip_nothing_that_the_metadata_admits() -> None:
    world = World(types.DOUBLE, (-math.inf, -1.0, 0.0, 1.0, math.inf))
    found, schema, column = make_units_of_one(world, (None, 0, 1)), pa.schema([("x", world.type)]), Name(X)
    values = [
        (Call("+", (column, Literal(2.0, types.DOUBLE))), '"x" + 2::DOUBLE'),
        (Call("-", (Literal(2.0, types.DOUBLE), column)), '2::DOUBLE - "x"'),
        (Call("*", (column, Literal(-0.5, types.DOUBLE))), '"x" * (-0.5)::DOUBLE'),
        (Call("*", (column, Literal(0.0, types.DOUBLE))), '"x" * 0::DOUBLE'),
        (Call("-", (column, Literal(math.inf, types.DOUBLE))), "\"x\" - CAST('inf' AS DOUBLE)"),
        (Call("negate", (column,)), '-"x"'),
    ]
    predicate = [
        OraclePredicate(
            Call(operator, (expr, Literal(number, types.DOUBLE))),
            f"({sql}) {theirs} {to_oracle_literal(number, types.DOUBLE)}",
        )
        for expr, sql in values
        for operator, theirs in OPERATORS.items()
        for number in (-1.0, 0.5, math.inf, math.nan)
    ]
    check(found, schema, [*predicate, *map(negate_predicate, predicate)], sharp=False)


def test_F7_a_cast_that_fails_on_NaN_is_not_fully_matched() -> None:
    """The rows must be read, so that the cast fails: `CAST(x AS BIGINT) > 5` is an error for NaN."""
    schema = pa.schema([("x", types.DOUBLE)])
    cast = Call("cast", (Name(X), Literal("bigint", types.STRING)))
    (conjunct,) = rewrite(normalise(bind(Call(">", (cast, Literal(5, types.LONG))), schema)))
    world = World(types.DOUBLE, (6.0, 7.0))
    found = [Statistics(6.0, 7.0, 0, nans) for nans in (0, 1, None)]
    batch = pa.record_batch({"row_count": pa.array([2, 2, 2], pa.int64()), **world.columns("x", found)})
    pruned = prune(batch, [conjunct])
    assert pruned.selection.to_pylist() == [True, True, True]
    assert pruned.fully_matched[0].to_pylist() == [True, False, False]


def test_a_bound_on_which_the_predicate_fails_proves_nothing() -> None:
    """The rows may be far from a wide bound on which `x + 1` overflows."""
    schema = pa.schema([("x", types.LONG)])
    world = World(types.LONG, (0, 2**63 - 1))
    found = [Statistics(0, 2**63 - 1, 0, 0), Statistics(0, 3, 0, 0)]
    batch = pa.record_batch({"row_count": pa.array([2, 2], pa.int64()), **world.columns("x", found)})
    moved = Call("+", (Name(X), Literal(1, types.LONG)))
    for operator in ("<", ">"):
        pruned = prune(batch, rewrite(normalise(bind(Call(operator, (moved, Literal(2, types.LONG))), schema))))
        assert pruned.selection.to_pylist() == [True, True]
        assert pruned.fully_matched[0].to_pylist() == [False, False]


def test_O3_O4_functions_of_two_columns_skip_nothing_that_the_metadata_admits() -> None:
    """Bounds decide nothing, except in a unit in which each column has a single value."""
    world = World(pa.int8(), (-1, 0, 1))
    schema, x, y = pa.schema([("x", world.type), ("y", world.type)]), Name(X), Name(Y)
    values = [
        (Call("+", (x, y)), '"x"::HUGEINT + "y"'),
        (Call("coalesce", (x, y)), 'coalesce("x", "y")'),
        (Call("case", (Call("<", (x, y)), x, y)), 'CASE WHEN "x" < "y" THEN "x" ELSE "y" END'),
    ]
    predicate = [
        OraclePredicate(Call(operator, (expr, Literal(number, types.LONG))), f"({sql}) {theirs} {number}")
        for expr, sql in values
        for operator, theirs in OPERATORS.items()
        for number in (-1, 0)
    ]
    check(
        make_units_of_two(world, world),
        schema,
        [*predicate, *map(negate_predicate, predicate), *map(make_unknown_test, predicate)],
        sharp=False,
    )
