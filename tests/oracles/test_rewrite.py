"""The skipping rewrite against the judge, over random units: O3 to O6 for the rewrite itself.

Each example is a column layout, a few units of rows, and a predicate. The judge says for every row what the predicate
is; the metadata of the units is computed here from the rows, then widened or partly removed.
"""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.judge import truth
from builders.predicates import PRIMITIVES, Said, array_of, predicates, values
from tamis.expr.bind import bind
from tamis.expr.evaluate import Evaluator
from tamis.expr.nodes import and_
from tamis.expr.normalise import normalise
from tamis.expr.ordering import sort_key
from tamis.skipping.metadata import metadata_name
from tamis.skipping.prune import prune
from tamis.skipping.rewrite import rewrite

Rows = dict[str, list[Any]]


@st.composite
def cases(draw: st.DrawFn) -> tuple[pa.Schema, list[Rows], Said]:
    types = draw(st.lists(st.sampled_from(PRIMITIVES), min_size=1, max_size=3))
    schema = pa.schema([(f"c{index}", each) for index, each in enumerate(types)])
    units = []
    for _ in range(draw(st.integers(1, 4))):
        count = draw(st.integers(0, 4))
        units.append(
            {
                field.name: draw(
                    st.one_of(
                        st.lists(st.one_of(values(field.type), st.none()), min_size=count, max_size=count),
                        values(field.type).map(lambda value, count=count: [value] * count),
                    )
                )
                for field in schema
            }
        )
    said = draw(predicates({(field.name,): field.type for field in schema}))
    return schema, units, said


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def metadata_of(schema: pa.Schema, units: list[Rows], removed: set[str] = frozenset()) -> pa.RecordBatch:
    """What a perfect writer would say of the units, less the removed columns."""
    columns: dict[str, pa.Array] = {
        "row_count": pa.array([len(next(iter(unit.values()))) for unit in units], pa.int64())
    }
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
    return pa.record_batch({name: array for name, array in columns.items() if name not in removed})


def judged(schema: pa.Schema, units: list[Rows], said: Said) -> list[list[bool | None]]:
    """The judge's answer for every row of every unit."""
    rows = pa.table(
        [array_of(field.type, [v for unit in units for v in unit[field.name]]) for field in schema], schema=schema
    )
    answers = truth(rows, said.sql)
    found, start = [], 0
    for unit in units:
        count = len(unit[schema.names[0]])
        found.append(answers[start : start + count])
        start += count
    return found


def check(metadata: pa.RecordBatch, answers: list[list[bool | None]], expr: Any) -> list[bool]:
    conjuncts = rewrite(expr)
    pruned = prune(metadata, conjuncts)
    for kept, rows in zip(pruned.selection.to_pylist(), answers, strict=True):
        assert kept or True not in rows, "a unit with a matching row was skipped"
    remaining = [rows for kept, rows in zip(pruned.selection.to_pylist(), answers, strict=True) if kept]
    for index, rows in enumerate(remaining):
        if all(matched[index].as_py() for matched in pruned.matched):
            assert all(answer is True for answer in rows), "a unit that matches whole has another row"
    return pruned.selection.to_pylist()


@settings(deadline=None)
@given(cases())
def test_O3_O4_no_unit_with_a_match_is_skipped_and_whole_means_whole(case: tuple[pa.Schema, list[Rows], Said]) -> None:
    schema, units, said = case
    answers = judged(schema, units, said)
    check(metadata_of(schema, units), answers, normalise(bind(said.expr, schema)))


@settings(deadline=None)
@given(cases(), st.data())
def test_O5_removing_statistics_never_removes_a_unit(
    case: tuple[pa.Schema, list[Rows], Said], data: st.DataObject
) -> None:
    schema, units, said = case
    answers = judged(schema, units, said)
    expr = normalise(bind(said.expr, schema))
    full = metadata_of(schema, units)
    removed = data.draw(st.sets(st.sampled_from(full.schema.names[1:])))
    before = check(full, answers, expr)
    after = check(metadata_of(schema, units, removed), answers, expr)
    assert all(later or not earlier for earlier, later in zip(before, after, strict=True))


@settings(deadline=None)
@given(cases())
def test_O5_widening_statistics_never_removes_a_unit(case: tuple[pa.Schema, list[Rows], Said]) -> None:
    """Two units made one have wider bounds than each: where one of them is kept, their union is."""
    schema, units, said = case
    expr = normalise(bind(said.expr, schema))
    union = [{name: [v for unit in units for v in unit[name]] for name in schema.names}]
    apart = check(metadata_of(schema, units), judged(schema, units, said), expr)
    together = check(metadata_of(schema, union), judged(schema, union, said), expr)
    assert together[0] or not any(apart)


@settings(deadline=None)
@given(cases())
def test_O6_p_and_not_p_are_both_skipped_only_where_p_is_null(case: tuple[pa.Schema, list[Rows], Said]) -> None:
    schema, units, said = case
    answers = judged(schema, units, said)
    metadata = metadata_of(schema, units)
    negated = Said(normalise_not(said), f"NOT ({said.sql})")
    kept = check(metadata, answers, normalise(bind(said.expr, schema)))
    kept_not = check(metadata, judged(schema, units, negated), normalise(bind(negated.expr, schema)))
    for one, other, rows in zip(kept, kept_not, answers, strict=True):
        assert one or other or all(answer is None for answer in rows)


def normalise_not(said: Said) -> Any:
    from tamis.expr.nodes import not_

    return not_(said.expr)


@settings(deadline=None)
@given(cases())
def test_rows_evaluate_as_the_judge_says(case: tuple[pa.Schema, list[Rows], Said]) -> None:
    """The bound expression has the judge's three values; the normalised one the judge's TRUE."""
    schema, units, said = case
    batch = pa.record_batch(
        [array_of(field.type, [v for unit in units for v in unit[field.name]]) for field in schema], schema=schema
    )
    expected = [answer for rows in judged(schema, units, said) for answer in rows]
    bound = bind(said.expr, schema)
    assert Evaluator(bound)(batch).to_pylist() == expected
    assert [answer is True for answer in Evaluator(and_(normalise(bound)))(batch).to_pylist()] == [
        answer is True for answer in expected
    ]
