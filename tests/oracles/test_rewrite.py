"""The skipping rewrite against the judge, over random units: O3 to O6 for the rewrite itself.

Each example is a column layout, a few units of rows, and a few predicates. The judge says for every row what a
predicate is; the metadata of the units is computed here from the rows, then widened or partly removed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.answers.judge import truths
from builders.values.by_type import array_of, neighbours, values_of
from builders.values.choices import Choices
from builders.values.predicates import Said, negated
from builders.values.random_rows import random_column, random_predicates, random_schema, random_values, subject_of
from tamis.expr.bind import bind
from tamis.expr.evaluate import Evaluator
from tamis.expr.nodes import Expr, and_
from tamis.expr.normalise import normalise, sort_key
from tamis.skipping.metadata import metadata_name
from tamis.skipping.prune import prune
from tamis.skipping.rewrite import rewrite

MANY = settings(max_examples=3 * settings().max_examples)
"""Units cost little beside whole scans, so there can be more of them."""

Rows = dict[str, list[Any]]
Verdicts = list[list[bool | None]]
"""For every unit, what a predicate is for each of its rows."""


@dataclass(frozen=True)
class Case:
    schema: pa.Schema
    units: list[Rows]
    said: list[Said]
    choices: Choices
    """For what a test chooses beyond that."""

    def normalised(self, said: Said) -> Expr:
        return normalise(bind(said.expr, self.schema))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    choices = Choices(draw)
    schema = random_schema(choices)
    values = {field.name: random_values(choices, field.type) for field in schema}
    units = []
    for _ in range(choices.number(1, 4)):
        count = choices.one_of([1, 2, 3, 4, 0])
        units.append({field.name: random_column(choices, values[field.name], count) for field in schema})
    subjects = [
        subject_of((field.name,), field.type, (row for unit in units for row in unit[field.name])) for field in schema
    ]
    return Case(schema, units, random_predicates(choices, subjects), choices)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


Metadata = dict[str, pa.Array]


def metadata_of(schema: pa.Schema, units: list[Rows]) -> Metadata:
    """What a perfect writer would say of the units."""
    columns: Metadata = {"row_count": pa.array([len(next(iter(unit.values()))) for unit in units], pa.int64())}
    for field in schema:
        path = (field.name,)
        plain = [
            sorted((v for v in unit[field.name] if v is not None and not _is_nan(v)), key=sort_key) for unit in units
        ]
        columns[metadata_name("lower", path)] = array_of(field.type, [each[0] if each else None for each in plain])
        columns[metadata_name("upper", path)] = array_of(field.type, [each[-1] if each else None for each in plain])
        columns[metadata_name("null_count", path)] = pa.array(
            [sum(v is None for v in unit[field.name]) for unit in units], pa.int64()
        )
        if pa.types.is_floating(field.type):
            columns[metadata_name("nan_count", path)] = pa.array(
                [sum(_is_nan(v) for v in unit[field.name]) for unit in units], pa.int64()
            )
    return columns


def partly_removed(metadata: Metadata, choices: Choices) -> Metadata:
    """The metadata without some columns, and with gaps in others."""
    found = {}
    for name, array in metadata.items():
        if name.startswith("nan_count:") and choices.flag():
            continue  # as nearly all writers do
        match choices.number(0, 3):
            case 0:
                found[name] = array
            case 1 if name != "row_count":
                continue
            case _:
                gaps = pa.array([choices.flag() for _ in range(len(array))], pa.bool_())
                found[name] = pa.array(
                    [None if gap else value for gap, value in zip(gaps.to_pylist(), array, strict=True)], array.type
                )
    return found


def widened(schema: pa.Schema, units: list[Rows], choices: Choices) -> Metadata:
    """The metadata with bounds that lie further out than the values, as cut texts do, or after deletes."""
    found = metadata_of(schema, units)
    for field in schema:
        present = [[v for v in unit[field.name] if v is not None and not _is_nan(v)] for unit in units]
        for kind, sign in (("lower", -1), ("upper", 1)):
            bounds: list[Any] = []
            for values in present:
                own = sorted(values, key=sort_key)[0 if sign < 0 else -1] if values else None
                outside = [
                    each
                    for each in (*values_of(field.type), *([] if own is None else neighbours(own, field.type)))
                    if not _is_nan(each) and (own is None or (each <= own if sign < 0 else each >= own))
                ]
                bounds.append(own if own is None else choices.one_of([own, own, *outside]))
            found[metadata_name(kind, (field.name,))] = array_of(field.type, bounds)
    return found


def judged(schema: pa.Schema, units: list[Rows], said: list[Said]) -> list[Verdicts]:
    """The judge's answer for every predicate, for every row of every unit."""
    rows = pa.table(
        [array_of(field.type, [v for unit in units for v in unit[field.name]]) for field in schema], schema=schema
    )
    counts = [len(unit[schema.names[0]]) for unit in units]
    found = []
    for answers in truths(rows, [each.sql for each in said]):
        remaining = iter(answers)
        found.append([[next(remaining) for _ in range(count)] for count in counts])
    return found


def check(metadata: Metadata, answers: Verdicts, expr: Expr) -> list[bool]:
    """Which units are kept, once it is sure that no row is lost and that whole means whole."""
    pruned = prune(pa.record_batch(metadata), rewrite(expr))
    selection: list[bool] = pruned.selection.to_pylist()
    for kept, rows in zip(selection, answers, strict=True):
        assert kept or True not in rows, f"a unit with a matching row was skipped: {expr}, {metadata}"
    remaining = [rows for kept, rows in zip(selection, answers, strict=True) if kept]
    for index, rows in enumerate(remaining):
        if all(matched[index].as_py() for matched in pruned.fully_matched):
            assert all(answer is True for answer in rows), f"a unit that matches whole has another row: {expr}"
    return selection


@MANY
@given(cases())
def test_O3_O4_no_unit_with_a_match_is_skipped_and_whole_means_whole(case: Case) -> None:
    metadata = metadata_of(case.schema, case.units)
    for said, answers in zip(case.said, judged(case.schema, case.units, case.said), strict=True):
        check(metadata, answers, case.normalised(said))


@MANY
@given(cases())
def test_O5_removing_statistics_never_removes_a_unit(case: Case) -> None:
    full = metadata_of(case.schema, case.units)
    less = partly_removed(full, case.choices)
    for said, answers in zip(case.said, judged(case.schema, case.units, case.said), strict=True):
        expr = case.normalised(said)
        before, after = check(full, answers, expr), check(less, answers, expr)
        assert all(later or not earlier for earlier, later in zip(before, after, strict=True)), f"{expr}: {less}"


@MANY
@given(cases())
def test_O5_widening_statistics_never_removes_a_unit(case: Case) -> None:
    """Bounds further out, and two units made one: where one of them is kept, their union is."""
    full, wide = metadata_of(case.schema, case.units), widened(case.schema, case.units, case.choices)
    union = metadata_of(
        case.schema, [{name: [v for unit in case.units for v in unit[name]] for name in case.schema.names}]
    )
    for said, answers in zip(case.said, judged(case.schema, case.units, case.said), strict=True):
        expr = case.normalised(said)
        before, after = check(full, answers, expr), check(wide, answers, expr)
        assert all(later or not earlier for earlier, later in zip(before, after, strict=True)), f"{expr}: {wide}"
        (together,) = check(union, [[answer for rows in answers for answer in rows]], expr)
        assert together or not any(before), f"{expr}: {union}"


@MANY
@given(cases())
def test_O6_p_and_not_p_are_both_skipped_only_where_p_is_null(case: Case) -> None:
    metadata = metadata_of(case.schema, case.units)
    both = [*case.said, *map(negated, case.said)]
    answers = judged(case.schema, case.units, both)
    kept = [check(metadata, each, case.normalised(said)) for said, each in zip(both, answers, strict=True)]
    half = len(case.said)
    for of_p, of_not_p, rows_of_units in zip(kept[:half], kept[half:], answers[:half], strict=True):
        for one, other, rows in zip(of_p, of_not_p, rows_of_units, strict=True):
            assert one or other or all(answer is None for answer in rows)


@MANY
@given(cases())
def test_rows_evaluate_as_the_judge_says(case: Case) -> None:
    """The bound expression has the judge's three values; the normalised one the judge's TRUE."""
    batch = pa.record_batch(
        [array_of(field.type, [v for unit in case.units for v in unit[field.name]]) for field in case.schema],
        schema=case.schema,
    )
    for said, answers in zip(case.said, judged(case.schema, case.units, case.said), strict=True):
        expected = [answer for rows in answers for answer in rows]
        bound = bind(said.expr, case.schema)
        assert Evaluator(bound)(batch).to_pylist() == expected, said
        filtered = Evaluator(and_(normalise(bound)))(batch).to_pylist()
        assert [answer is True for answer in filtered] == [answer is True for answer in expected], said
