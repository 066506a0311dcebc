"""The case files of the skipping rewrite: a predicate, and the three questions about metadata that it becomes.

`TAMIS_UPDATE_CASES=1 python -m pytest tests/skipping/test_rewrite_cases.py` writes what the rewrite returns today. What
the answers are for units of known bounds is tested by the case tables beside this file.
"""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa

from builders.case_files import Case, Fields, check_case, parametrize_cases, read_cases
from tamis import types
from tamis.expr.bind import bind
from tamis.expr.functions.table import negate
from tamis.expr.nodes import FALSE, NULL, Call, Column, Expr, Literal, find_columns, transform
from tamis.expr.normalise import normalise
from tamis.expr.sql.parse import parse_sql
from tamis.expr.sql.printer import to_display_sql, to_sql
from tamis.skipping.answers import Answers, all_of, any_of
from tamis.skipping.metadata import ROW_COUNT, lower, null_count, upper
from tamis.skipping.rewrite import Conjunct, rewrite

CASES = Path(__file__).parent / "cases"

SCHEMA = pa.schema(
    [
        ("x", pa.int64()), ("y", pa.int64()), ("i", pa.int32()), ("f", pa.float64()), ("s", pa.string()),
        ("d", pa.date32()), ("t", pa.timestamp("us", "UTC")), ("p", pa.bool_()), ("q", pa.bool_()),
        ("n", pa.struct([("x", pa.int64())])), ("l", pa.list_(pa.int64())),
    ]
)  # fmt: skip


def describe_rewrite(given: Fields) -> Fields:
    found = {"predicate": given["predicate"]}
    answers: dict[Expr, Answers] = {}

    def record(node: Expr, answer: Answers) -> Answers:
        answers[node] = answer
        return answer

    conjuncts = rewrite(normalise(bind(parse_sql(given["predicate"]), SCHEMA)), record)
    for number, conjunct in enumerate(conjuncts, start=1):
        suffix = "" if len(conjuncts) == 1 else f" ({number})"
        if suffix:
            found[f"conjunct{suffix}"] = to_display_sql(conjunct.predicate)
        for name, text in _describe_conjunct(conjunct, answers[conjunct.predicate]).items():
            found[f"{name}{suffix}"] = text
    return found


def _describe_conjunct(conjunct: Conjunct, answers: Answers) -> Fields:
    columns = find_columns(conjunct.predicate)
    found = {
        "may be TRUE": _print(conjunct.may_be_true, columns),
        "may be FALSE": _print(conjunct.may_be_false, columns),
        "may be NULL": _print(answers.may_be_null, columns),
    }
    without_failures = Call("coalesce", (negate(any_of(conjunct.may_be_false, answers.may_be_null)), FALSE))
    if conjunct.fully_matches != without_failures:
        found["fully matches"] = _print(conjunct.fully_matches, columns)
    if conjunct.reason is not None:
        found["cannot skip"] = conjunct.reason
    return found


def _print(answer: Expr, columns: tuple[Column, ...]) -> str:
    """Return the SQL of an answer, with the long forms of `constant(x)` and `value(x)` abbreviated."""
    known = {_make_constant(column): Column((f"constant({'.'.join(column.path)})",), None) for column in columns}
    is_constant = all_of(*known.values())

    def abbreviate(node: Expr) -> Expr:
        match node:
            case Call("case", (condition, Column((name,)), Literal(value=None))) if condition == is_constant:
                return Column((name.replace("lower:", "value(") + ")",), None)
            case Literal(value=int()) if pa.types.is_integer(node.type):
                return Literal(node.value, types.LONG)
            case _:
                return known.get(node, node)

    return re.sub(r"`([^`]*)`", r"\1", to_sql(transform(answer, abbreviate)))


def _make_constant(column: Column) -> Expr:
    nulls, zero = null_count(column), Literal(0, types.LONG)
    return any_of(
        all_of(Call("=", (nulls, zero)), Call("=", (lower(column), upper(column)))),
        all_of(Call("=", (nulls, ROW_COUNT)), Call("is_null", (lower(column),))),
    )


@parametrize_cases(CASES)
def test_what_the_rewrite_makes_of_a_predicate(case: Case) -> None:
    check_case(case, describe_rewrite)


def test_some_predicates_can_skip_nothing() -> None:
    cases = [case for path in CASES.iterdir() for case in read_cases(path)[1]]
    unusable = [case for case in cases if case.fields.get("may be TRUE") == f"{to_sql(NULL)} AND row_count > 0"]
    assert unusable
