"""The normal form, before and after: constants, NOT, AND and OR, lists, contradictions."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from tamis import types
from tamis.expr.bind import bind
from tamis.expr.evaluate import Evaluator
from tamis.expr.nodes import FALSE, TRUE, Call, Column, Expr, Literal, not_, split_conjuncts
from tamis.expr.normalise import normalise
from tamis.expr.sql.parse import parse_sql
from tamis.expr.sql.printer import to_sql

SCHEMA = pa.schema(
    [
        ("a", pa.int64()), ("b", pa.int64()), ("c", pa.int64()), ("f", pa.float64()), ("s", pa.string()),
        ("p", pa.bool_()), ("q", pa.bool_()), ("r", pa.bool_()), ("d", pa.date32()), ("t", pa.int8()),
    ]
)  # fmt: skip


def to_normal_form(where: str) -> Expr:
    return normalise(bind(parse_sql(where), SCHEMA))


def changes(*pairs: tuple[str, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("before", "after"), pairs)


def check(before: str, after: str) -> None:
    assert to_sql(to_normal_form(before)) == after


@changes(
    ("NOT (a = 1)", "a <> 1"),
    ("NOT (a <> 1)", "a = 1"),
    ("NOT (a < 1)", "a >= 1"),
    ("NOT (a <= 1)", "a > 1"),
    ("NOT (a > 1)", "a <= 1"),
    ("NOT (a >= 1)", "a < 1"),
    ("NOT NOT (a = 1)", "a = 1"),
    ("NOT (NOT p)", "p"),
    ("NOT (a IS NULL)", "a IS NOT NULL"),
    ("NOT (a IS NOT NULL)", "a IS NULL"),
    ("NOT (p AND q)", "NOT p OR NOT q"),
    ("NOT (p OR q)", "NOT p AND NOT q"),
    ("NOT (p AND (q OR NOT r))", "NOT p OR NOT q AND r"),
    ("NOT (a > 1 AND b < 2)", "a <= 1 OR b >= 2"),
    ("NOT (a BETWEEN 1 AND 5)", "a < 1 OR a > 5"),
    ("(NOT (a = 1)) IS NULL", "(a <> 1) IS NULL"),
    # Functions without a negation keep their NOT.
    ("NOT (a IN (1, 2))", "a NOT IN (1, 2)"),
    ("NOT (s LIKE 'x%')", "s NOT LIKE 'x%'"),
    ("NOT startswith(s, 'x')", "NOT startswith(s, 'x')"),
    ("NOT (a <=> 1)", "a IS DISTINCT FROM 1"),
    ("a NOT IN (5)", "a <> 5"),
    ("a NOT IN (5, 5)", "a <> 5"),
    ("NOT (a NOT IN (5))", "a = 5"),
    ("a NOT IN (5) OR b NOT IN (1, 2)", "a <> 5 OR b NOT IN (1, 2)"),
    ("a NOT IN (5, NULL)", "a NOT IN (5, CAST(NULL AS BIGINT))"),
    ("NOT p", "NOT p"),
    ("NOT my_own(a)", "NOT my_own(a)"),
    ("NOT NOT my_own(a)", "my_own(a)"),
)
def test_not_moves_to_the_leaves_by_three_valued_rules(before, after):
    check(before, after)


@changes(
    ("p AND (q AND r)", "p AND q AND r"),
    ("(p AND q) AND (r AND p)", "p AND q AND r"),
    ("p OR (q OR (r OR p))", "p OR q OR r"),
    ("p AND p", "p"),
    ("p OR p", "p"),
    ("NOT (p OR (q OR r))", "NOT p AND NOT q AND NOT r"),
    # An AND in an OR is not flattened.
    ("p AND (q OR r)", "p AND (q OR r)"),
    ("p OR q AND r", "p OR q AND r"),
)
def test_and_and_or_are_flat_without_repetition(before, after):
    check(before, after)


@changes(
    ("1 = 1", "TRUE"),
    ("1 > 2", "FALSE"),
    ("NOT true", "FALSE"),
    ("1 + 1 = 2", "TRUE"),
    ("'x' < 'y'", "TRUE"),
    ("d >= date_add(DATE '2024-02-28', 2)", "d >= DATE '2024-03-01'"),
    ("d >= date_sub('2024-03-01', 1)", "d >= DATE '2024-02-29'"),
    ("date_add(d, 2) > DATE '2024-03-01'", "d + 2 > DATE '2024-03-01'"),
    ("CAST(a AS BIGINT) = 5", "a = 5"),
    ("DATE '2024-01-01' < DATE '2024-02-01'", "TRUE"),
    ("a > 1 + 2 * 3", "a > 7"),
    ("a > -(-7)", "a > 7"),
    ("d > DATE '2024-01-31' + INTERVAL 1 MONTH", "d > DATE '2024-02-29'"),
    ("d = CAST('2024-01-01' AS DATE)", "d = DATE '2024-01-01'"),
    ("a > length('abc')", "a > 3"),
    ("s = upper('x')", "s = 'X'"),
    ("a = year(DATE '2024-03-03')", "a = 2024"),
    ("p AND true", "p"),
    ("p OR false", "p"),
    ("p AND false", "FALSE"),
    ("p OR true", "TRUE"),
    ("p = true", "p = TRUE"),
    ("(a > 1) = true", "a > 1"),
    ("(a > 1) <> true", "a <= 1"),
    ("(a > 1) = false", "a <= 1"),
    ("NULL IS NULL", "TRUE"),
    ("5 IS NOT NULL", "TRUE"),
    ("t < 300", "t IS NOT NULL"),
    ("t > 300", "FALSE"),
    ("t = 5.5", "FALSE"),
    # Expressions with columns, or that would fail, are not folded.
    ("a + 1 > 5", "a + 1 > 5"),
    ("my_own(1) = 1", "my_own(1) = 1"),
    ("a > 9223372036854775807 + 1", "a > 9223372036854775807 + 1"),
    ("CAST('x' AS INT) = 1", "CAST('x' AS INT) = CAST(1 AS INT)"),
)
def test_constants_are_folded(before, after):
    check(before, after)


@changes(
    ("NULL", "FALSE"),
    ("a = NULL", "FALSE"),
    ("NOT (a = NULL)", "FALSE"),
    ("p AND NULL", "FALSE"),
    ("p OR NULL", "p"),
    ("a > 1 OR NULL", "a > 1"),
    ("a IN (NULL)", "FALSE"),
    ("a + NULL > 1", "FALSE"),
    ("s LIKE NULL", "FALSE"),
    ("NOT (p AND NULL)", "NOT p"),
    ("a <=> NULL", "a <=> NULL"),
    # Inside IS NULL, NULL and FALSE differ.
    ("(p AND NULL) IS NULL", "(p AND NULL) IS NULL"),
    ("(a > 1 OR NULL) IS NULL", "(a > 1 OR NULL) IS NULL"),
    ("(a = NULL) IS NULL", "TRUE"),
    ("(p OR NULL) <=> NULL", "(p OR NULL) <=> NULL"),
)
def test_null_is_false_only_as_a_filter(before, after):
    check(before, after)


@changes(
    ("a IN (3, 1, 2)", "a IN (1, 2, 3)"),
    ("a IN (3, 1, 3, 1)", "a IN (1, 3)"),
    ("a IN (5)", "a = 5"),
    ("a IN (5, 5)", "a = 5"),
    ("a IN (2, NULL, 1)", "a IN (1, 2, CAST(NULL AS BIGINT))"),
    ("a IN (5, NULL)", "a IN (5, CAST(NULL AS BIGINT))"),
    ("s IN ('b', 'Z', 'é', 'a')", "s IN ('Z', 'a', 'b', 'é')"),
    ("f IN (2, double('NaN'), 1, double('NaN'))", "f IN (1.0D, 2.0D, CAST('NaN' AS DOUBLE))"),
    ("f IN (0.0D, -0.0D, 1)", "f IN (0.0D, 1.0D)"),
    ("p IN (true, false)", "p IN (FALSE, TRUE)"),
    ("t IN (1, 300, 1.5)", "t = CAST(1 AS TINYINT)"),
    ("t NOT IN (300)", "t IS NOT NULL"),
    # A list of columns is not a list of constants.
    ("a IN (b, 1)", "a = b OR a = 1"),
)
def test_lists_are_sorted_without_repetition(before, after):
    check(before, after)


@changes(
    ("a > 3 AND a > 5", "a > 5"),
    ("a >= 5 AND a > 5", "a > 5"),
    ("a < 9 AND a <= 7", "a <= 7"),
    ("a > 3 AND a < 9 AND a > 5", "a > 5 AND a < 9"),
    ("a IN (1, 7, 9) AND a > 5", "a IN (7, 9)"),
    ("a IN (1, 7) AND a IN (7, 9)", "a = 7"),
    ("a IN (1, 7, 9) AND a <> 7", "a IN (1, 9)"),
    ("a <> 3 AND a > 5", "a > 5"),
    ("a > 5 AND a <> 7", "a > 5 AND a <> 7"),
    ("a = 5 AND b = 3 AND a < 9", "a = 5 AND b = 3"),
    ("a = 1 OR a = 2", "a IN (1, 2)"),
    ("a = 1 OR a IN (3, 2) OR a = 1", "a IN (1, 2, 3)"),
    ("a = 1 OR b = 2 OR a = 3", "a IN (1, 3) OR b = 2"),
    ("NOT (a <> 1 AND a <> 2)", "a IN (1, 2)"),
    ("f > 1 AND f > double('NaN')", "f > CAST('NaN' AS DOUBLE)"),
    # Constraints on different columns, or with functions, are not merged.
    ("a > 3 AND b > 5", "a > 3 AND b > 5"),
    ("a > 3 OR a > 5", "a > 3 OR a > 5"),
    ("a + 1 > 3 AND a > 5", "a + 1 > 3 AND a > 5"),
    ("a > b AND a > 5", "a > b AND a > 5"),
)
def test_constraints_on_one_column_are_merged(before, after):
    check(before, after)


@pytest.mark.parametrize(
    "contradiction",
    [
        "a > 5 AND a < 3", "a > 5 AND a < 5", "a > 5 AND a <= 5", "a >= 5 AND a < 5", "a = 1 AND a = 2",
        "a IN (1, 2) AND a IN (3, 4)", "a IN (1, 2) AND a > 5", "a = 5 AND a <> 5", "a IN (1, 2) AND a <> 1 AND a <> 2",
        "a BETWEEN 9 AND 1", "f > double('NaN') AND f < 5", "f = double('NaN') AND f < 5", "s >= 'b' AND s < 'b'",
        "b = 7 AND (a > 5 AND (c = 1 AND a < 3))", "d > '2024-01-02' AND d < '2024-01-01'",
    ],
)  # fmt: skip
def test_contradictions_are_false(contradiction):
    assert to_normal_form(contradiction) == FALSE
    assert to_normal_form(f"b = 1 AND ({contradiction})") == FALSE
    assert to_normal_form(f"b = 1 OR ({contradiction})") == to_normal_form("b = 1")


@pytest.mark.parametrize(
    "possible",
    ["a >= 5 AND a <= 5", "a > 5 AND a < 7", "a > 5 AND b < 3", "a > 5 OR a < 3", "f >= double('NaN') AND f > 5"],
)
def test_a_satisfiable_conjunction_is_not_a_contradiction(possible):
    assert to_normal_form(possible) not in (FALSE, TRUE)


def test_inside_is_null_a_contradiction_is_null_where_the_column_is():
    batch = pa.record_batch({"a": pa.array([1, None], pa.int64())})
    assert Evaluator(to_normal_form("(a > 5 AND a < 3) IS NULL"))(batch).to_pylist() == [False, True]
    assert Evaluator(to_normal_form("(a > 5 AND a < 3) IS NOT NULL"))(batch).to_pylist() == [True, False]
    assert Evaluator(to_normal_form("NOT (a > 5 AND a < 3)"))(batch).to_pylist() == [True, None]


LEAVES = [
    "p",
    "NOT q",
    "a > 1",
    "a <> 2",
    "a IN (1, NULL)",
    "a IS NULL",
    "NULL",
    "true",
    "f < double('NaN')",
    "t = 300",
]


@pytest.mark.parametrize("shape", ["{} AND {}", "{} OR {}", "NOT ({} AND {})", "NOT ({} OR {})", "({} AND {}) IS NULL",
                                   "({} OR {}) IS NOT NULL", "({}) <=> ({})", "NOT (({}) IS NULL) AND {}"])  # fmt: skip
def test_the_normal_form_is_true_for_the_same_rows(shape):
    rows = list(itertools.product([True, None, False], [1, 2, None], [1.0, float("nan"), None]))
    batch = pa.record_batch(
        {
            "p": pa.array([p for p, _, _ in rows]),
            "q": pa.array([not p if a == 1 else p for p, a, _ in rows]),
            "a": pa.array([a for _, a, _ in rows], pa.int64()),
            "f": pa.array([f for _, _, f in rows], pa.float64()),
            "t": pa.array([a for _, a, _ in rows], pa.int8()),
        }
    )
    for left, right in itertools.product(LEAVES, repeat=2):
        bound = bind(parse_sql(shape.format(left, right)), SCHEMA)
        before = [answer is True for answer in Evaluator(bound)(batch).to_pylist()]
        after = [answer is True for answer in Evaluator(normalise(bound))(batch).to_pylist()]
        assert after == before, shape.format(left, right)


@pytest.mark.parametrize(
    "where",
    ["a > 1 AND b < 2", "NOT (p OR q)", "a IN (3, 1, 2) OR s LIKE 'x%'", "(a > 1 OR NULL) IS NULL", "t < 300 AND p",
     "a = 1 OR a = 2 OR b = 3", "NOT (a IN (1, NULL))", "f <> double('NaN')"],
)  # fmt: skip
def test_the_normal_form_of_a_normal_form_is_itself(where):
    once = to_normal_form(where)
    assert normalise(once) == once


# --- X11 ------------------------------------------------------------------------------------------------------------


def column(name: str) -> Column:
    return Column((name,), type=SCHEMA.field(name).type)


def test_X11_ten_thousand_nots_become_zero_or_one():
    deep: Expr = column("p")
    for _ in range(10_000):
        deep = not_(deep)
    assert normalise(deep) == column("p")
    assert normalise(not_(deep)) == not_(column("p"))


def test_X11_ten_thousand_nested_ands_become_one_range():
    deep: Expr = Call(">", (column("a"), Literal(0, types.LONG)))
    for level in range(10_000):
        deep = Call("and", (deep, Call(">", (column("a"), Literal(level, types.LONG)))))
    assert to_sql(normalise(deep)) == "a > 9999"


def test_X11_ten_thousand_nested_ors_become_one_list():
    deep: Expr = Call("=", (column("a"), Literal(0, types.LONG)))
    for level in range(10_000):
        deep = Call("or", (Call("=", (column("a"), Literal(level, types.LONG))), deep))
    found = normalise(deep)
    assert isinstance(found, Call)
    assert [item.value for item in found.args[1:]] == list(range(10_000))


def test_X11_ten_thousand_alternating_levels_with_not_complete():
    deep: Expr = column("p")
    for level in range(10_000):
        other = Call(">", (column("b" if level % 3 else "c"), Literal(level, types.LONG)))
        deep = not_(Call("and" if level % 2 else "or", (deep, other)))
    assert len(split_conjuncts(normalise(deep))) >= 1


def test_X11_a_hundred_thousand_repeated_items_become_their_distinct_ones():
    items = (Literal(value % 7, types.LONG) for value in range(100_000))
    assert to_sql(normalise(Call("in", (column("a"), *items)))) == "a IN (0, 1, 2, 3, 4, 5, 6)"
