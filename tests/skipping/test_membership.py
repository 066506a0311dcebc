"""Questions about the values of a column, and what their answers skip."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.answers.oracle import evaluate_predicate
from builders.skipping.units import BIG, DOUBLE, TEXT, Unit, make_batch
from builders.values.predicates import PRIMITIVES, OraclePredicate, make_array, predicates, values
from tamis.expr.bind import bind
from tamis.expr.nodes import TRUE, Call, Column, Expr, Literal, split_conjuncts
from tamis.expr.normalise import normalise
from tamis.expr.sql.printer import to_display_sql
from tamis.skipping.membership import Question, QuestionedPredicate, collect_questions, find_skippable_units
from tamis.skipping.metadata import metadata_name
from tamis.skipping.predicate import make_predicate
from tamis.skipping.prune import prune
from tamis.skipping.rewrite import rewrite

SCHEMA = pa.schema({"x": BIG, "y": BIG, "s": TEXT, "f": DOUBLE})
WIDE = Unit(0, 100, null_count=None)


def collect(where: str) -> QuestionedPredicate:
    return collect_questions(make_predicate(where, SCHEMA, "t").expr)


def format_questions(questioned: QuestionedPredicate) -> list[str]:
    return [to_display_sql(question.predicate) for question in questioned.questions]


def make_units(x: Unit = WIDE, y: Unit = WIDE, **answers: list[bool | None]) -> pa.RecordBatch:
    """Return one unit, or a unit for each answer; `true_0` is the column `true:0`."""
    count = max((len(each) for each in answers.values()), default=1)
    batch = make_batch({"x": (BIG, [x] * count), "y": (BIG, [y] * count)})
    for name, each in answers.items():
        batch = batch.append_column(name.replace("_", ":"), pa.array(each, pa.bool_()))
    return batch


def find_kept(questioned: QuestionedPredicate, batch: pa.RecordBatch) -> list[bool]:
    return prune(batch, questioned.conjuncts).selection.to_pylist()


def find_matched(questioned: QuestionedPredicate, batch: pa.RecordBatch) -> list[bool]:
    """Return whether the units, all of them kept, are fully matched."""
    pruned = prune(batch, questioned.conjuncts)
    assert all(pruned.selection.to_pylist())
    return [all(each[index].as_py() for each in pruned.fully_matched) for index in range(batch.num_rows)]


# --- Questions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("x = 5", ["x = 5"]),
        ("x = 5 AND y = 6", ["x = 5", "y = 6"]),
        ("x = 5 OR y = 6", ["x = 5", "y = 6"]),
        ("x = 5 OR x IS NULL", ["x = 5 OR x IS NULL", "x = 5"]),
        ("x > 3 AND x <> 5", ["x > 3", "x <> 5", "x > 3 AND x <> 5"]),
        ("x > y", []),
        ("x > y OR x = 1", ["x = 1"]),
        ("year(x) = 1", []),
        ("length(s) = 3 AND x = 1", ["length(s) = 3", "x = 1"]),
        ("(x > 3 AND x < 8 AND y = 1) OR y = 2", ["x > 3", "x < 8", "x > 3 AND x < 8", "y = 1", "y = 2"]),
    ],
)
def test_questions_are_the_largest_parts_on_one_column_and_their_equalities(where: str, expected: list[str]) -> None:
    assert sorted(format_questions(collect(where))) == sorted(expected)


def test_duplicate_predicates_are_one_question() -> None:
    assert format_questions(collect("(x = 5 OR y = 1) AND (x = 5 OR y = 2)")).count("x = 5") == 1


@pytest.mark.parametrize(
    ("where", "items"),
    [
        ("x = 5", [5]),
        ("x <=> 5", [5]),
        ("x IN (7, 5, NULL)", [5, 7]),
        ("s LIKE 'abc'", ["abc"]),
        ("s LIKE 'ab%'", None),
        ("x < 5", None),
        ("x <=> NULL", None),
        ("x <> 5", None),
        ("x + 1 = 5", None),
    ],
)
def test_items_are_those_of_equalities_and_lists(where: str, items: list[Any] | None) -> None:
    questions = collect(where).questions
    found = questions[0].items if questions else None
    assert (None if found is None else [item.value for item in found]) == items


def test_items_have_the_type_of_the_column() -> None:
    schema = pa.schema({"t": pa.timestamp("us", "UTC"), "h": pa.float16()})
    for where, expected in (
        ("t = TIMESTAMP '2020-01-01 00:00:00'", pa.timestamp("us", "UTC")),
        ("h IN (1.5, 2)", pa.float16()),
    ):
        (question,) = collect_questions(make_predicate(where, schema, "t").expr).questions
        assert question.values.type == expected


# --- Answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["x = 5", "x <=> 5", "x IN (5, 6)", "x IN (5, 6, NULL)"])
def test_a_unit_without_the_items_is_skipped(where: str) -> None:
    assert find_kept(collect(where), make_units(true_0=[False, True, None])) == [False, True, True]


def test_B4_under_or_both_sides_are_absent_or_nothing_is_skipped() -> None:
    questioned = collect("x = 5 OR y = 6")
    answers = make_units(true_0=[False, False, False, True, None], true_1=[False, True, None, False, False])
    assert find_kept(questioned, answers) == [False, True, True, True, True]
    assert find_kept(questioned, make_units(y=Unit(10, 20), true_0=[False])) == [False], (
        "the bounds of y answer the other side"
    )
    assert find_kept(collect("x = 5 OR y > 6"), make_units(true_0=[False])) == [True]


def test_B4_a_boolean_column_beside_a_question_is_answered_by_its_bounds() -> None:
    predicate = make_predicate("flag OR x = 5", SCHEMA.append(pa.field("flag", pa.bool_())), "t").expr
    flags = [Unit(False, False), Unit(False, True), Unit(True, True), Unit(False, False)]
    batch = make_batch({"x": (BIG, [WIDE] * 4), "flag": (pa.bool_(), flags)})
    batch = batch.append_column("true:0", pa.array([False, False, False, True]))
    assert find_kept(collect_questions(predicate), batch) == [False, True, True, True]


def test_B4_under_and_one_side_suffices() -> None:
    assert find_kept(collect("x = 5 AND y = 6"), make_units(true_0=[False, True], true_1=[None, False])) == [
        False,
        False,
    ]


@pytest.mark.parametrize("where", ["x <> 5", "NOT (x = 5)", "x NOT IN (5, 6)", "NOT (x = 5 AND y = 6)"])
def test_absence_does_not_skip_the_negation(where: str) -> None:
    questioned = collect(where)
    absent = {question.true_name.replace(":", "_"): [False] for question in questioned.questions if question.items}
    assert find_kept(questioned, make_units(**absent)) == [True]


def test_N6_rows_with_null_are_not_skipped_by_absence() -> None:
    assert find_kept(collect("x = 5 OR x IS NULL"), make_units(true_0=[False], true_1=[False])) == [True]
    without_nulls = make_units(Unit(0, 100, null_count=0), true_0=[False], true_1=[False])
    assert find_kept(collect("x = 5 OR x IS NULL"), without_nulls) == [False]


def test_values_decide_a_range_that_bounds_cannot() -> None:
    """Neither 1 nor 9 is in (3, 8), although some value is above 3 and some value is below 8."""
    questioned = collect("x > 3 AND x < 8")
    batch = make_units()
    for question in questioned.questions:
        batch = add_answers(batch, question, [pa.array([1, 9])])
    assert find_kept(questioned, batch) == [False]
    assert find_kept(collect("x > 3 AND x < 8"), make_units()) == [True]


def test_values_of_a_part_decide_within_a_disjunction() -> None:
    questioned = collect("(x > 3 AND x < 8 AND y = 1) OR y = 2")
    batch = make_units(x=Unit(0, 100, null_count=0), y=Unit(0, 100, null_count=0))
    for question in questioned.questions:
        given = pa.array([1, 9]) if question.column.name == "x" else pa.array([1])
        batch = add_answers(batch, question, [given])
    assert find_kept(questioned, batch) == [False]


def make_answered_unit(
    where: str, x: list[int], y: list[int] | None, nulls: int = 0
) -> tuple[QuestionedPredicate, pa.RecordBatch]:
    """Return the metadata of a unit with the answers for the values of x and y, where known."""
    questioned = collect(where)
    batch = make_units(Unit(0, 100, null_count=nulls), Unit(0, 100, null_count=0))
    for question in questioned.questions:
        given = x if question.column.name == "x" else y
        if given is not None:
            batch = add_answers(batch, question, [pa.array(given, pa.int64())])
    return questioned, batch


def test_a_disjunction_is_weaker_than_its_combined_parts_on_one_column() -> None:
    where = "x < 3 OR x > 8 OR y = 2"
    assert find_kept(*make_answered_unit(where, [5], [2])) == [True], "no value of x fits, but one of y does"
    assert find_kept(*make_answered_unit(where, [5], [4])) == [False]
    assert find_kept(*make_answered_unit(where, [5], None)) == [True]
    assert find_matched(*make_answered_unit(where, [1, 9], None)) == [True]
    assert find_matched(*make_answered_unit(where, [1, 5], None)) == [False]


def test_N6_a_null_safe_equality_is_FALSE_for_NULL() -> None:
    assert find_kept(*make_answered_unit("NOT (x <=> 5)", [5], None, nulls=1)) == [True]
    assert find_kept(*make_answered_unit("NOT (x <=> 5)", [5], None, nulls=0)) == [False]
    assert find_matched(*make_answered_unit("x <=> 5", [5], None, nulls=0)) == [True]
    assert find_matched(*make_answered_unit("x <=> 5", [5], None, nulls=1)) == [False]
    assert find_matched(*make_answered_unit("NOT (x <=> 5)", [4], None, nulls=1)) == [True]


def test_a_predicate_that_is_FALSE_for_NULL_does_not_match_units_with_NULL() -> None:
    assert find_matched(*make_answered_unit("x IS NOT NULL AND x > 3", [5], None, nulls=0)) == [True]
    assert find_matched(*make_answered_unit("coalesce(x > 3, false)", [5], None, nulls=0)) == [True]
    assert find_matched(*make_answered_unit("coalesce(x > 3, false)", [5], None, nulls=1)) == [False]


def test_a_unit_is_fully_matched_if_no_value_is_false_or_null() -> None:
    questioned = collect("x % 2 = 0 OR length(s) = 2")  # a function that Arrow lacks has no question
    assert format_questions(questioned) == ["length(s) = 2"]
    even = collect("x IN (2, 4, 6)")
    answers: dict[str, list[bool | None]] = {"true_0": [True], "false_0": [False], "null_0": [False]}
    assert find_matched(even, make_units(Unit(0, 100, null_count=0), **answers)) == [True]
    assert find_matched(even, make_units(Unit(0, 100, null_count=1), **answers)) == [False]
    assert find_matched(even, make_units(Unit(0, 100, null_count=0), **(answers | {"false_0": [True]}))) == [False]


def test_NaN_and_functions_are_evaluated_for_the_values() -> None:
    (question,) = collect("f > 3").questions
    assert question.evaluate_values(pa.array([1.0, math.nan, None])) == (True, True, False)
    (question,) = collect("x IN (1, NULL)").questions
    assert question.evaluate_values(pa.array([3])) == (False, False, True)


def test_a_value_for_which_the_predicate_fails_makes_the_answers_unknown() -> None:
    (question,) = collect("cast(s AS int) = 5").questions
    assert question.evaluate_values(pa.array(["5", "x"])) is None
    assert question.evaluate_values(pa.array(["5", "6"])) == (True, True, False)


# --- Units that need answers ------------------------------------------------------------------------------------------


def test_only_units_that_answers_could_skip_need_answers() -> None:
    questioned = collect("x = 5 OR y > 6")
    (conjunct,) = questioned.conjuncts
    (equality,) = [question for question in questioned.questions if question.items]
    batch = make_batch({"x": (BIG, [WIDE, WIDE]), "y": (BIG, [Unit(0, 100), Unit(0, 5)])})
    assert find_skippable_units(batch, conjunct, [equality.true_name]).to_pylist() == [False, True]
    assert questioned.asked == (questioned.questions,)


def test_X11_questions_of_deep_and_long_predicates_are_found_in_time() -> None:
    column, other = Column(("x",), type=BIG), Column(("y",), type=BIG)
    nested: Expr = Call("=", (column, Literal(0, BIG)))
    for index in range(1, 2_000):
        part = Call("=", (column if index % 3 else other, Literal(index, BIG)))
        nested = Call("and" if index % 2 else "or", (nested, part))
    assert len(collect_questions(nested).questions) >= 2_000
    listed = Call("in", (column, *(Literal(index, BIG) for index in range(100_000))))
    (question,) = collect_questions(listed).questions
    assert len(question.values) == 100_000


# --- Oracles ----------------------------------------------------------------------------------------------------------

Rows = dict[str, list[Any]]


@st.composite
def cases(draw: st.DrawFn) -> tuple[pa.Schema, list[Rows], OraclePredicate]:
    types = draw(st.lists(st.sampled_from(PRIMITIVES), min_size=1, max_size=2))
    schema = pa.schema([(f"c{index}", each) for index, each in enumerate(types)])
    found = []
    for _ in range(draw(st.integers(1, 3))):
        count = draw(st.integers(0, 4))
        column = {each.name: st.one_of(values(each.type), st.none()) for each in schema}
        found.append({name: draw(st.lists(each, min_size=count, max_size=count)) for name, each in column.items()})
    return schema, found, draw(predicates({(field.name,): field.type for field in schema}))


def add_answers(
    batch: pa.RecordBatch, question: Question, given: list[pa.Array], known: list[list[bool]] | None = None
) -> pa.RecordBatch:
    """Return the batch with the answers for the values of each unit; unknown answers are NULL."""
    found = [question.evaluate_values(each) or (None, None, None) for each in given]
    for index, name in enumerate((question.true_name, question.names[1], question.names[2])):
        answers = [answer[index] if known is None or known[unit][index] else None for unit, answer in enumerate(found)]
        batch = batch.append_column(name, pa.array(answers, pa.bool_()))
    return batch


def count_rows(schema: pa.Schema, found: list[Rows]) -> pa.RecordBatch:
    """Return counts only: other tests cover bounds."""
    columns = {"row_count": pa.array([len(unit[schema.names[0]]) for unit in found], pa.int64())}
    for name in schema.names:
        nulls = [sum(value is None for value in unit[name]) for unit in found]
        columns[metadata_name("null_count", (name,))] = pa.array(nulls, pa.int64())
    return pa.record_batch(columns)


@settings(deadline=None)
@given(cases(), st.data())
def test_O3_O4_O5_answers_skip_no_matching_row_and_fully_match_only_matching_units(
    case: tuple[pa.Schema, list[Rows], OraclePredicate], data: st.DataObject
) -> None:
    schema, found, said = case
    expr = normalise(bind(said.expr, schema))
    questioned = collect_questions(expr)
    assert [each.predicate for each in questioned.conjuncts] == [part for part in split_conjuncts(expr) if part != TRUE]
    plain = count_rows(schema, found)
    tables = [pa.table({field.name: make_array(field.type, unit[field.name]) for field in schema}) for unit in found]
    rows = [evaluate_predicate(table, said.sql) for table in tables]
    unanswered = prune(plain, questioned.conjuncts).selection.to_pylist()
    assert unanswered == prune(plain, rewrite(expr)).selection.to_pylist()
    full, partial = plain, plain
    for question in questioned.questions:
        given = [table[question.column.name].combine_chunks() for table in tables]
        known = data.draw(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=3, max_size=3))
        full = add_answers(full, question, given)
        partial = add_answers(partial, question, given, known)
    outcome = [prune(batch, questioned.conjuncts) for batch in (full, partial)]
    for pruned in outcome:
        selected = pruned.selection.to_pylist()
        for keeps, answers in zip(selected, rows, strict=True):
            assert keeps or True not in answers, "a unit with a matching row was skipped"
        remaining = [answers for keeps, answers in zip(selected, rows, strict=True) if keeps]
        for index, answers in enumerate(remaining):
            if all(each[index].as_py() for each in pruned.fully_matched):
                assert all(answer is True for answer in answers), "a fully matched unit has another row"
    for more, less, none in zip(*(each.selection.to_pylist() for each in outcome), unanswered, strict=True):
        assert less or not more, "an answer that is missing removed a unit"
        assert none or not less, "answers that are missing removed a unit"
