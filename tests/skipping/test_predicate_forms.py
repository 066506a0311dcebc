"""Every form of predicate with a unit that it skips, one that it keeps, and one that it fully matches."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from builders.skipping.units import (
    ALL_NULL,
    BIG,
    DATE,
    DOUBLE,
    FULLY_MATCHED,
    INT,
    KEPT,
    SKIPPED,
    TEXT,
    TIMESTAMP,
    WALL_CLOCK,
    Unit,
    find_outcome,
    find_outcomes,
    make_batch,
)
from tamis.expr.nodes import Call, Column, Expr, Literal, Name, not_
from tamis.skipping.handler import ARROW
from tamis.skipping.predicate import make_predicate
from tamis.skipping.prune import prune
from tamis.skipping.rewrite import rewrite

BOOLEAN = pa.bool_()
DECIMAL = pa.decimal128(5, 2)
NO_TRUTH = Literal(None, BOOLEAN)


def money(text: str) -> Decimal:
    return Decimal(text)


def at(*parts: int) -> datetime:
    return datetime(*parts)


@pytest.mark.parametrize(
    ("data_type", "where", "skipped", "kept", "whole"),
    [
        # --- Comparisons with a constant
        (INT, "x = 5", Unit(6, 9), Unit(1, 9), Unit(5, 5)),
        (INT, "x <> 5", Unit(5, 5), Unit(1, 9), Unit(6, 9)),
        (INT, "x < 5", Unit(5, 9), Unit(4, 9), Unit(1, 4)),
        (INT, "x <= 5", Unit(6, 9), Unit(5, 9), Unit(1, 5)),
        (INT, "x > 5", Unit(1, 5), Unit(1, 6), Unit(6, 9)),
        (INT, "x >= 5", Unit(1, 4), Unit(1, 5), Unit(5, 9)),
        (INT, "5 < x", Unit(1, 5), Unit(1, 6), Unit(6, 9)),
        (INT, "5 >= x", Unit(6, 9), Unit(5, 9), Unit(1, 5)),
        (INT, "NOT (x < 5)", Unit(1, 4), Unit(1, 5), Unit(5, 9)),
        (INT, "x <=> 5", Unit(6, 9, 3), Unit(5, 5, 3), Unit(5, 5)),
        (INT, "NOT (x <=> 5)", Unit(5, 5), Unit(5, 5, 3), Unit(6, 9, 3)),
        (INT, "x IS NOT DISTINCT FROM 5", Unit(6, 9, 3), Unit(5, 5, 3), Unit(5, 5)),
        (INT, "x IS DISTINCT FROM 5", Unit(5, 5), Unit(5, 6), Unit(6, 9, 3)),
        (INT, "x BETWEEN 3 AND 7", Unit(8, 9), Unit(1, 5), Unit(3, 7)),
        (INT, "x NOT BETWEEN 3 AND 7", Unit(3, 7), Unit(1, 5), Unit(8, 9)),
        # --- Lists
        (INT, "x IN (1, 5, 9)", Unit(2, 4), Unit(4, 6), Unit(5, 5)),
        (INT, "x IN (1, 5, 9)", Unit(10, 20), Unit(9, 20), Unit(9, 9)),
        (INT, "x IN (1, 5, 9)", Unit(-5, 0), Unit(-5, 1), Unit(1, 1)),
        (INT, "x NOT IN (1, 5, 9)", Unit(5, 5), Unit(4, 6), Unit(2, 4)),
        (TEXT, "x IN ('a', 'é', 'z')", Unit("b", "d"), Unit("b", "é"), Unit("é", "é")),
        (DATE, "x IN ('2024-01-01', '2024-03-01')", Unit(date(2024, 1, 2), date(2024, 2, 29)),
         Unit(date(2024, 1, 2), date(2024, 3, 1)), Unit(date(2024, 3, 1), date(2024, 3, 1))),
        (DECIMAL, "x IN (1.5, 2.5)", Unit(money("1.51"), money("2.49")), Unit(money("1.50"), money("2.00")),
         Unit(money("2.50"), money("2.50"))),
        # --- NULL tests
        (INT, "x IS NULL", Unit(1, 9, 0), Unit(1, 9, 3), ALL_NULL),
        (INT, "x IS NOT NULL", ALL_NULL, Unit(1, 9, 3), Unit(1, 9, 0)),
        (INT, "x <=> NULL", Unit(1, 9, 0), Unit(1, 9, 3), ALL_NULL),
        (INT, "(x > 5) IS NULL", Unit(1, 9, 0), Unit(1, 9, 3), ALL_NULL),
        (INT, "(x > 5) IS NOT NULL", ALL_NULL, Unit(1, 9, 3), Unit(1, 9, 0)),
        (INT, "x + 1 IS NULL", Unit(1, 9, 0), Unit(1, 9, 3), ALL_NULL),
        # --- Texts
        (TEXT, "x LIKE 'ab%'", Unit("ac", "b"), Unit("a", "abz"), Unit("ab", "abz")),
        (TEXT, "x LIKE 'abc'", Unit("abd", "b"), Unit("ab", "b"), Unit("abc", "abc")),
        (TEXT, "x NOT LIKE 'ab%'", Unit("ab", "abz"), Unit("a", "abz"), Unit("ac", "b")),
        (TEXT, "x NOT LIKE 'abc'", Unit("abc", "abc"), Unit("ab", "b"), Unit("abd", "b")),
        (TEXT, "startswith(x, 'ab')", Unit("ac", "b"), Unit("a", "abz"), Unit("ab", "abz")),
        (TEXT, "NOT startswith(x, 'ab')", Unit("ab", "abz"), Unit("a", "abz"), Unit("ac", "b")),
        (pa.large_string(), "x LIKE 'ab%'", Unit("ac", "b"), Unit("a", "abz"), Unit("ab", "abz")),
        # --- Booleans
        (BOOLEAN, "x", Unit(False, False), Unit(False, True), Unit(True, True)),
        (BOOLEAN, "NOT x", Unit(True, True), Unit(False, True), Unit(False, False)),
        (BOOLEAN, "x = true", Unit(False, False), Unit(False, True), Unit(True, True)),
        (BOOLEAN, "x <> true", Unit(True, True), Unit(False, True), Unit(False, False)),
        (BOOLEAN, "x IN (true)", Unit(False, False), Unit(False, True), Unit(True, True)),
        (BOOLEAN, "x <=> false", Unit(True, True, 3), Unit(False, False, 3), Unit(False, False)),
        (BOOLEAN, "x OR x IS NULL", Unit(False, False), Unit(False, True), Unit(True, True)),
        # --- Casts that keep order
        (INT, "CAST(x AS BIGINT) > 5", Unit(1, 5), Unit(1, 6), Unit(6, 9)),
        (INT, "CAST(x AS DOUBLE) = 5.0D", Unit(6, 9), Unit(5, 6), Unit(5, 5)),
        (INT, "CAST(x AS DOUBLE) > 5.5D", Unit(1, 5), Unit(5, 6), Unit(6, 9)),
        (INT, "CAST(CAST(x AS BIGINT) AS DECIMAL(20,0)) IN (5, 7)", Unit(8, 9), Unit(5, 6), Unit(7, 7)),
        (INT, "CAST(x AS BIGINT) < 5000000000", None, None, Unit(1, 5)),
        (DOUBLE, "CAST(x AS INT) = 5", Unit(6.0, 9.0, 0, 0), Unit(4.9, 5.0, 0, 0), Unit(5.0, 5.9, 0, 0)),
        (INT, "CAST(x AS DECIMAL(12,2)) < 5.5", Unit(6, 9), Unit(5, 6), Unit(1, 5)),
        (DATE, "CAST(x AS TIMESTAMP) < '2024-03-03 12:00:00'", Unit(date(2024, 3, 4), date(2024, 4, 1)),
         Unit(date(2024, 3, 3), date(2024, 4, 1)), Unit(date(2024, 1, 1), date(2024, 3, 3))),
        (TIMESTAMP, "CAST(x AS DATE) = '2024-03-03'", Unit(at(2024, 3, 4), at(2024, 3, 5)),
         Unit(at(2024, 3, 3, 23), at(2024, 3, 5)), Unit(at(2024, 3, 3), at(2024, 3, 3, 23, 59, 59))),
        # --- Dates some days later or earlier
        (DATE, "date_add(x, 2) > '2024-03-03'", Unit(date(2024, 1, 1), date(2024, 3, 1)),
         Unit(date(2024, 1, 1), date(2024, 3, 2)), Unit(date(2024, 3, 2), date(2024, 4, 1))),
        (TIMESTAMP, "date_sub(x, 2) < '2024-03-01'", Unit(at(2024, 3, 3), at(2024, 4, 1)),
         Unit(at(2024, 3, 2, 23), at(2024, 4, 1)), Unit(at(2024, 1, 1), at(2024, 3, 2, 23))),
        # --- Parts of dates and timestamps
        (TIMESTAMP, "date(x) = '2024-03-03'", Unit(at(2024, 3, 1), at(2024, 3, 2, 23, 59, 59, 999_999)),
         Unit(at(2024, 3, 1), at(2024, 3, 3)), Unit(at(2024, 3, 3), at(2024, 3, 3, 23))),
        (WALL_CLOCK, "to_date(x) IN ('2024-03-03', '2024-03-09')", Unit(at(2024, 3, 4), at(2024, 3, 8)),
         Unit(at(2024, 3, 4), at(2024, 3, 9)), Unit(at(2024, 3, 9), at(2024, 3, 9, 23))),
        (TIMESTAMP, "year(x) = 2024", Unit(at(2025, 1, 1), at(2025, 2, 1)), Unit(at(2023, 1, 1), at(2024, 1, 1)),
         Unit(at(2024, 1, 1), at(2024, 12, 31, 23, 59, 59, 999_999))),
        (DATE, "year(x) >= 2024", Unit(date(2022, 1, 1), date(2023, 12, 31)), Unit(date(2022, 1, 1), date(2024, 1, 1)),
         Unit(date(2024, 1, 1), date(2030, 1, 1))),
        (TIMESTAMP, "date_trunc('month', x) = TIMESTAMP '2024-03-01 00:00:00'", Unit(at(2024, 4, 1), at(2024, 5, 1)),
         Unit(at(2024, 3, 1), at(2024, 4, 1)), Unit(at(2024, 3, 1), at(2024, 3, 31, 23))),
        (TIMESTAMP, "date_trunc('WEEK', x) = TIMESTAMP '2024-03-04 00:00:00'", Unit(at(2024, 3, 1), at(2024, 3, 3, 23)),
         Unit(at(2024, 3, 3), at(2024, 3, 4)), Unit(at(2024, 3, 4), at(2024, 3, 10, 23))),
        (DATE, "trunc(x, 'year') = DATE '2024-01-01'", Unit(date(2023, 1, 1), date(2023, 12, 31)),
         Unit(date(2023, 1, 1), date(2024, 1, 1)), Unit(date(2024, 2, 1), date(2024, 12, 31))),
        (DATE, "trunc(x, 'MM') <= DATE '2024-02-01'", Unit(date(2024, 3, 1), date(2024, 3, 9)),
         Unit(date(2024, 2, 29), date(2024, 3, 9)), Unit(date(2024, 1, 1), date(2024, 2, 29))),
        # --- Prefixes
        (TEXT, "substr(x, 1, 2) = 'ab'", Unit("ac", "b"), Unit("a", "abz"), Unit("ab", "abz")),
        (TEXT, "substring(x, 0, 2) > 'ab'", Unit("a", "abz"), Unit("ab", "ac"), Unit("ac", "b")),
        (TEXT, "left(x, 1) IN ('a', 'c')", Unit("b", "bzz"), Unit("bzz", "c"), Unit("c", "czz")),
        (TEXT, "left(x, 0) = 'a'", Unit("a", "b"), None, None),
        # --- Arithmetic with a constant
        (INT, "x + 1 = 5", Unit(5, 9), Unit(1, 4), Unit(4, 4)),
        (INT, "1 + x = 5", Unit(5, 9), Unit(1, 4), Unit(4, 4)),
        (INT, "x - 1 > 5", Unit(1, 6), Unit(1, 7), Unit(7, 9)),
        (INT, "10 - x > 5", Unit(5, 9), Unit(4, 9), Unit(1, 4)),
        (INT, "x * 2 = 10", Unit(6, 9), Unit(4, 6), Unit(5, 5)),
        (INT, "x * 2 = 11", Unit(6, 9), Unit(4, 6), None),
        (INT, "x * -2 < -10", Unit(1, 5), Unit(1, 6), Unit(6, 9)),
        (INT, "-x <= -5", Unit(1, 4), Unit(1, 5), Unit(5, 9)),
        (INT, "-(x + 1) * 2 >= -10", Unit(5, 9), Unit(4, 9), Unit(1, 4)),
        (DECIMAL, "x + 0.5 > 2", Unit(money("1.00"), money("1.50")), Unit(money("1.00"), money("1.51")),
         Unit(money("1.51"), money("9.00"))),
        (DECIMAL, "x * 2 <= 3", Unit(money("1.51"), money("9.00")), Unit(money("1.50"), money("9.00")),
         Unit(money("1.00"), money("1.50"))),
        (DOUBLE, "x + 0.5 < 2", Unit(1.5, 9.0, 0, 0), Unit(1.0, 9.0, 0, 0), Unit(0.0, 1.0, 0, 0)),
        (DOUBLE, "x * -1.5 < 0", Unit(-3.0, 0.0, 0, 0), Unit(-3.0, 1.0, 0, 0), Unit(1.0, 3.0, 0, 0)),
        # --- Dates and timestamps plus constants
        (DATE, "x + 1 = DATE '2024-03-01'", Unit(date(2024, 3, 1), date(2024, 4, 1)),
         Unit(date(2024, 2, 28), date(2024, 2, 29)), Unit(date(2024, 2, 29), date(2024, 2, 29))),
        (DATE, "x - 1 < DATE '2024-03-01'", Unit(date(2024, 3, 2), date(2024, 4, 1)),
         Unit(date(2024, 3, 1), date(2024, 4, 1)), Unit(date(2024, 2, 1), date(2024, 3, 1))),
        (DATE, "x + INTERVAL 1 MONTH = DATE '2024-02-29'", Unit(date(2024, 2, 1), date(2024, 3, 1)),
         Unit(date(2024, 1, 1), date(2024, 1, 31)), Unit(date(2024, 1, 29), date(2024, 1, 31))),
        (TIMESTAMP, "x + INTERVAL 1 DAY > TIMESTAMP '2024-03-02 00:00:00'", Unit(at(2024, 2, 1), at(2024, 3, 1)),
         Unit(at(2024, 2, 1), at(2024, 3, 2)), Unit(at(2024, 3, 1, 0, 0, 1), at(2024, 4, 1))),
        (TIMESTAMP, "x - INTERVAL 1 HOUR < TIMESTAMP '2024-03-02 00:00:00'", Unit(at(2024, 3, 2, 1), at(2024, 3, 3)),
         Unit(at(2024, 3, 2), at(2024, 3, 3)), Unit(at(2024, 3, 1), at(2024, 3, 2, 0, 59))),
    ],
)  # fmt: skip
def test_a_form_skips_keeps_and_fully_matches(data_type, where, skipped, kept, whole):
    given = {SKIPPED: skipped, KEPT: kept, FULLY_MATCHED: whole}
    units = {expected: unit for expected, unit in given.items() if unit is not None}
    assert find_outcomes(where, {"x": (data_type, list(units.values()))}) == list(units)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("true", FULLY_MATCHED),
        ("1 = 1", FULLY_MATCHED),
        ("x = x OR true", FULLY_MATCHED),
        ("false", SKIPPED),
        ("1 = 2", SKIPPED),
        ("NULL", SKIPPED),
        ("x = NULL", SKIPPED),
        ("x <> NULL", SKIPPED),
        ("x IN (NULL)", SKIPPED),
        ("x NOT IN (1, NULL)", SKIPPED),
        ("x > 5 AND x < 3", SKIPPED),
        ("x = 1 AND x = 2", SKIPPED),
        ("x BETWEEN 7 AND 3", SKIPPED),
    ],
)
def test_constants_and_contradictions_decide_without_bounds(where, expected):
    assert find_outcome(where, INT, Unit(None, None, None, None, 10)) == expected


@pytest.mark.parametrize(
    ("where", "a", "b", "expected"),
    [
        ("a < b", Unit(5, 9), Unit(1, 5), SKIPPED),
        ("a < b", Unit(5, 9), Unit(1, 6), KEPT),
        ("a < b", Unit(1, 4), Unit(5, 9), FULLY_MATCHED),
        ("a <= b", Unit(6, 9), Unit(1, 5), SKIPPED),
        ("a <= b", Unit(1, 5), Unit(5, 9), FULLY_MATCHED),
        ("a > b", Unit(1, 5), Unit(5, 9), SKIPPED),
        ("a >= b", Unit(5, 9), Unit(1, 5), FULLY_MATCHED),
        ("a = b", Unit(1, 4), Unit(5, 9), SKIPPED),
        ("a = b", Unit(1, 5), Unit(5, 9), KEPT),
        ("a = b", Unit(5, 5), Unit(5, 5), FULLY_MATCHED),
        ("a <> b", Unit(5, 5), Unit(5, 5), SKIPPED),
        ("a <> b", Unit(1, 4), Unit(5, 9), FULLY_MATCHED),
        ("a < b", Unit(1, 4), Unit(5, 9, 1), KEPT),
        ("a < b", ALL_NULL, Unit(5, 9), SKIPPED),
        ("a <=> b", ALL_NULL, ALL_NULL, FULLY_MATCHED),
        ("a <=> b", ALL_NULL, Unit(5, 9), SKIPPED),
        ("a <=> b", Unit(1, 4, 1), Unit(5, 9, 1), KEPT),
        ("a <=> b", Unit(1, 4, 1), Unit(5, 9), SKIPPED),
        ("a IS DISTINCT FROM b", Unit(5, 5), Unit(5, 5), SKIPPED),
        ("a IS DISTINCT FROM b", Unit(1, 4, 1), Unit(5, 9), FULLY_MATCHED),
        ("a < b", Unit(None, None), Unit(5, 9), KEPT),
        ("a + 1 < b", Unit(4, 9), Unit(1, 5), SKIPPED),
        ("a + 1 < b * 2", Unit(1, 2), Unit(2, 9), FULLY_MATCHED),
    ],
)
@pytest.mark.parametrize("types", [(INT, INT), (pa.int8(), BIG), (pa.uint32(), pa.int16()), (INT, DECIMAL)])
def test_column_against_column_is_decided_by_both_ranges(where, a, b, expected, types):
    assert find_outcomes(where, {"a": (types[0], [a]), "b": (types[1], [b])}) == [expected]


@pytest.mark.parametrize(
    ("where", "a", "b", "expected"),
    [
        ("a = 5 AND b = 5", Unit(1, 9), Unit(6, 9), SKIPPED),
        ("a = 5 AND b = 5", Unit(5, 5), Unit(1, 9), KEPT),
        ("a = 5 AND b = 5", Unit(5, 5), Unit(5, 5), FULLY_MATCHED),
        ("a = 5 OR b = 5", Unit(6, 9), Unit(6, 9), SKIPPED),
        ("a = 5 OR b = 5", Unit(6, 9), Unit(1, 9), KEPT),
        ("a = 5 OR b = 5", Unit(5, 5), Unit(None, None, None), FULLY_MATCHED),
        ("NOT (a = 5 AND b = 5)", Unit(5, 5), Unit(5, 5), SKIPPED),
        ("NOT (a = 5 AND b = 5)", Unit(6, 9), Unit(None, None, None), FULLY_MATCHED),
        ("NOT (a = 5 OR b = 5)", Unit(5, 5), Unit(None, None, None), SKIPPED),
        ("(a = 5 AND b = 5) OR (a = 7 AND b = 7)", Unit(5, 5), Unit(7, 7), SKIPPED),
        ("(a = 5) = (b = 5)", Unit(5, 5), Unit(6, 6), SKIPPED),
        ("(a = 5) = (b = 5)", Unit(5, 5), Unit(5, 5), FULLY_MATCHED),
        ("(a = 5) = (b = 5)", Unit(5, 6), Unit(6, 6), KEPT),
        ("(a = 5 AND b = 5) IS NULL", Unit(6, 9), ALL_NULL, SKIPPED),
        ("(a = 5 AND b = 5) IS NULL", Unit(5, 5), ALL_NULL, FULLY_MATCHED),
        ("(a = 5 OR b = 5) IS NULL", Unit(5, 5), ALL_NULL, SKIPPED),
        ("(a = 5 OR b = 5) IS NOT NULL", Unit(5, 5), ALL_NULL, FULLY_MATCHED),
    ],
)
def test_and_or_not_compose_three_values(where, a, b, expected):
    assert find_outcomes(where, {"a": (INT, [a]), "b": (INT, [b])}) == [expected]


@pytest.mark.parametrize(
    "where", ["x = 5", "x IS NULL", "x IS NOT NULL", "x <=> NULL", "NOT (x = 5)", "x % 2 = 0", "x IS NULL OR x > 0"]
)
@pytest.mark.parametrize("nulls", [0, None])
def test_a_unit_without_rows_is_skipped(where, nulls):
    assert find_outcome(where, INT, Unit(None, None, nulls, None, 0)) == SKIPPED


@pytest.mark.parametrize("predicate", [NO_TRUTH, not_(NO_TRUTH), not_(not_(NO_TRUTH))], ids=str)
def test_a_null_as_a_predicate_is_neither_true_nor_false(predicate: Expr) -> None:
    """Normalisation gives the same result, but the rewrite does not rely on it."""
    pruned = prune(make_batch({"x": (INT, [Unit(1, 2)])}), rewrite(predicate))
    assert pruned.selection.to_pylist() == [False]


@pytest.mark.parametrize("where", ["month(x) = 3", "day(x) = 3", "month(x) IN (3, 4)", "month(x) <> 4"])
def test_a_unit_with_one_value_is_decided_by_that_value(where):
    in_march, in_april = Unit(date(2024, 3, 3), date(2024, 3, 3)), Unit(date(2024, 4, 4), date(2024, 4, 4))
    assert find_outcome(where, DATE, in_march) == FULLY_MATCHED
    assert find_outcome(where.replace("(3, 4)", "(3, 5)"), DATE, in_april) == SKIPPED
    assert find_outcome(where, DATE, Unit(date(2024, 3, 3), date(2024, 3, 3), 1)) == KEPT
    assert find_outcome(where, DATE, Unit(date(2024, 3, 3), date(2024, 3, 4))) == KEPT
    assert find_outcome(where, DATE, Unit(date(2024, 3, 3), date(2024, 3, 3), None)) == KEPT


@pytest.mark.parametrize(
    "where", ["x + 1 > 5", "x - 1 < 5", "5 - x > 1", "x * 2 > 5", "-x > 5", "x + 1 = 5 OR x = 3", "x * 3 IN (9, 12)"]
)
def test_bounds_whose_sum_overflows_prove_nothing(where):
    batch = make_batch({"x": (BIG, [Unit(-(2**63), 2**63 - 1)])})
    pruned = prune(batch, make_predicate(where, pa.schema([("x", BIG)]), "t").conjuncts)
    assert pruned.selection.to_pylist() == [True]
    assert pruned.fully_matched[0].to_pylist() == [False]
    assert "not computable" in pruned.outcomes[0].unused_because


def test_X11_a_predicate_of_ten_thousand_levels_is_rewritten():
    flag = Column(("x",), type=pa.bool_())
    deep: Expr = flag
    for level in range(5_000):
        number = Call("=", (Column(("n",), type=pa.int64()), Literal(level, pa.int64())))
        deep = Call("or", (Call("and", (deep, number)), flag))
    (conjunct,) = rewrite(deep)
    batch = make_batch({"x": (pa.bool_(), [Unit(False, False), Unit(False, True), Unit(True, True)])})
    assert conjunct.evaluate(conjunct.keeps, batch, ARROW).to_pylist() == [False, True, True]


def test_X11_a_case_of_fifteen_hundred_levels_is_rewritten():
    number = Column(("n",), type=BIG)
    deep: Expr = Literal(True, BOOLEAN)
    for level in range(1_500):
        deep = Call("case", (Call(">=", (number, Literal(level, BIG))), deep, Literal(False, BOOLEAN)))
    (conjunct,) = rewrite(deep)
    batch = make_batch({"n": (BIG, [Unit(1_499, 1_499), Unit(1_498, 1_498), Unit(1, 9), ALL_NULL])})
    assert conjunct.evaluate(conjunct.keeps, batch, ARROW).to_pylist() == [True, False, True, False]
    assert conjunct.evaluate(conjunct.fully_matches, batch, ARROW).to_pylist() == [True, False, False, False]


def test_X11_a_list_of_a_hundred_thousand_items_is_searched():
    items = tuple(Literal(value, pa.int64()) for value in range(0, 200_000, 2))
    batch = make_batch({"x": (INT, [Unit(1, 1), Unit(2, 3), Unit(199_999, 300_000), Unit(4, 4)])})
    pruned = prune(batch, make_predicate(Call("in", (Name(("x",)), *items)), pa.schema([("x", INT)]), "t").conjuncts)
    assert pruned.selection.to_pylist() == [False, True, False, True]
    assert pruned.fully_matched[0].to_pylist() == [False, True]
