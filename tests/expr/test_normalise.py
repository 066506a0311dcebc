"""The normal form: the case file `cases/normalise.txt`, and what holds for every predicate.

`TAMIS_UPDATE_CASES=1 python -m pytest tests/expr/test_normalise.py` writes what `normalise` returns today.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest

from builders.case_files import Case, Fields, check_case, parametrize_cases, read_cases
from tamis import types
from tamis.expr.bind import bind
from tamis.expr.evaluate import Evaluator
from tamis.expr.nodes import FALSE, Call, Column, Expr, Literal, not_, split_conjuncts
from tamis.expr.normalise import normalise
from tamis.expr.sql.parse import parse_sql
from tamis.expr.sql.printer import to_sql

CASES = Path(__file__).parent / "cases"

SCHEMA = pa.schema(
    [
        ("a", pa.int64()), ("b", pa.int64()), ("c", pa.int64()), ("f", pa.float64()), ("s", pa.string()),
        ("p", pa.bool_()), ("q", pa.bool_()), ("r", pa.bool_()), ("d", pa.date32()), ("t", pa.int8()),
    ]
)  # fmt: skip


def to_normal_form(where: str) -> Expr:
    return normalise(bind(parse_sql(where), SCHEMA))


def rewrite_lines(given: Fields) -> Fields:
    """Return the lines with the normal form of each predicate after its arrow."""
    found = []
    for line in given["rewrites"].splitlines():
        before = line.split(" →")[0]
        normal = to_normal_form(before)
        assert normalise(normal) == normal, before
        after = to_sql(normal)
        found.append(f"{before} → {'unchanged' if after == before else after}")
    return {"rewrites": "\n".join(found)}


@parametrize_cases(CASES)
def test_the_normal_form_of_a_predicate(case: Case) -> None:
    check_case(case, rewrite_lines)


def list_contradictions() -> list[str]:
    (case,) = (case for case in read_cases(CASES / "normalise.txt")[1] if case.title == "Contradictions are FALSE")
    return [line.split(" → ")[0] for line in case.fields["rewrites"].splitlines()]


@pytest.mark.parametrize("contradiction", list_contradictions())
def test_a_contradiction_makes_an_and_false_and_leaves_the_rest_of_an_or(contradiction: str) -> None:
    assert to_normal_form(f"b = 1 AND ({contradiction})") == FALSE
    assert to_normal_form(f"b = 1 OR ({contradiction})") == to_normal_form("b = 1")


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


def make_column(name: str) -> Column:
    return Column((name,), type=SCHEMA.field(name).type)


def test_X11_ten_thousand_nots_become_zero_or_one():
    deep: Expr = make_column("p")
    for _ in range(10_000):
        deep = not_(deep)
    assert normalise(deep) == make_column("p")
    assert normalise(not_(deep)) == not_(make_column("p"))


def test_X11_ten_thousand_nested_ands_become_one_range():
    deep: Expr = Call(">", (make_column("a"), Literal(0, types.LONG)))
    for level in range(10_000):
        deep = Call("and", (deep, Call(">", (make_column("a"), Literal(level, types.LONG)))))
    assert to_sql(normalise(deep)) == "a > 9999"


def test_X11_ten_thousand_nested_ors_become_one_list():
    deep: Expr = Call("=", (make_column("a"), Literal(0, types.LONG)))
    for level in range(10_000):
        deep = Call("or", (Call("=", (make_column("a"), Literal(level, types.LONG))), deep))
    found = normalise(deep)
    assert isinstance(found, Call)
    assert [item.value for item in found.args[1:]] == list(range(10_000))


def test_X11_ten_thousand_alternating_levels_with_not_complete():
    deep: Expr = make_column("p")
    for level in range(10_000):
        other = Call(">", (make_column("b" if level % 3 else "c"), Literal(level, types.LONG)))
        deep = not_(Call("and" if level % 2 else "or", (deep, other)))
    assert len(split_conjuncts(normalise(deep))) >= 1


def test_X11_a_hundred_thousand_repeated_items_become_their_distinct_ones():
    items = (Literal(value % 7, types.LONG) for value in range(100_000))
    assert to_sql(normalise(Call("in", (make_column("a"), *items)))) == "a IN (0, 1, 2, 3, 4, 5, 6)"
