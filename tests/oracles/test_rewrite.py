"""The skipping rewrite and evaluation against the oracle, where the frame has no property for them."""

from __future__ import annotations

import pyarrow as pa

from builders.answers.oracle import evaluate_predicates
from builders.values.choices import Choices
from oracles.formats.metadata import METADATA, DescribedUnits
from oracles.frame import Format
from tamis.expr.bind import bind
from tamis.expr.evaluate import Evaluator
from tamis.expr.nodes import and_
from tamis.expr.normalise import normalise


def check_union(format: Format, choices: Choices, units: DescribedUnits) -> None:
    together = units.union
    (rows,) = together.list_units().values()
    for predicate, answers in zip(
        units.predicates, evaluate_predicates(units.oracle_rows, [each.sql for each in units.predicates]), strict=True
    ):
        kept = together.prune(predicate)
        assert kept or not units.prune(predicate), predicate
        assert kept or not any(answers[row] is True for row in rows), predicate
        assert not any(kept.values()) or all(answers[row] is True for row in rows), predicate


def test_O5_the_union_of_units_is_kept_where_one_of_them_is() -> None:
    METADATA.check("O5", check_union)


def check_evaluation(format: Format, choices: Choices, units: DescribedUnits) -> None:
    """Check that the bound expression has the oracle's three values, and the normalised one its TRUE."""
    rows = units.oracle_rows
    columns = [
        rows[name].combine_chunks() if rows.num_rows else pa.array([], rows[name].type) for name in rows.column_names
    ]
    batch = pa.record_batch(columns, schema=units.schema)
    for predicate, expected in zip(
        units.predicates, evaluate_predicates(units.oracle_rows, [each.sql for each in units.predicates]), strict=True
    ):
        bound = bind(predicate.expr, units.schema)
        assert Evaluator(bound)(batch).to_pylist() == expected, predicate
        filtered = Evaluator(and_(normalise(bound)))(batch).to_pylist()
        assert [answer is True for answer in filtered] == [answer is True for answer in expected], predicate


def test_rows_evaluate_as_in_the_oracle() -> None:
    METADATA.check("O3", check_evaluation)
