"""Unit tests of small helpers of pruning."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tamis import col, types
from tamis.expr.functions.table import negate
from tamis.expr.nodes import FALSE, NULL, TRUE, Call, Column
from tamis.skipping.metadata import metadata_names
from tamis.skipping.metrics import MATCHED_BY_FILE, label_outcomes
from tamis.skipping.predicate import make_predicate
from tamis.skipping.prune import NO_STATISTICS, NO_UNITS_LEFT, OVERLAPS, ConjunctOutcome

A, B = Column(("a",), type=types.LONG), Column(("b", "c"), type=types.LONG)


def test_metadata_names_are_those_that_exist() -> None:
    there = {"row_count", "upper:a", "lower:a", "null_count:b.c", "upper:d"}
    assert metadata_names((A, B), there) == ["lower:a", "upper:a", "null_count:b.c"]
    assert metadata_names((B,), {"lower:a"}) == []


def test_a_negation_of_a_constant_is_a_constant() -> None:
    assert [negate(each) for each in (TRUE, FALSE, NULL)] == [FALSE, TRUE, NULL]
    assert negate(Call("<", (A, B))) == Call(">=", (A, B))
    assert negate(Call("like", (A, B))) == Call("not", (Call("like", (A, B)),))


def test_conjuncts_on_partitions_are_reported_with_the_text_of_the_filter() -> None:
    schema = pa.schema({"p": pa.int32(), "x": pa.int64()})
    predicate = make_predicate("p = x AND p > 1", schema, "t", ["p"])
    assert predicate.on_partitions != predicate.expr
    assert [each.text for each in predicate.partition_conjuncts] == ["CAST(p AS BIGINT) = x", "p > 1"]
    assert [predicate.labels[each.text] for each in predicate.partition_conjuncts] == ["p = x", "p > 1"]


@pytest.mark.parametrize(
    ("where", "labels"),
    [
        ("x BETWEEN 1 AND 9 AND p > 1.0", ["x BETWEEN 1 AND 9", "x BETWEEN 1 AND 9", "p > 1.0"]),
        ("NOT (x > 5 OR y = 1)", ["NOT (x > 5 OR y = 1)"] * 2),
        ("P NOT BETWEEN 1 AND 9 AND x >= 1 AND x <= 5", ["P NOT BETWEEN 1 AND 9", "x >= 1", "x <= 5"]),
        ("y > 7 AND x IN (3, 1, 2)", ["y > 7", "x IN (3, 1, 2)"]),
        ("y > 7 AND x IN (3, 1, 2) AND x < 3", ["y > 7", "x IN (3, 1, 2) AND x < 3"]),
        ("x > 3 AND x > 5 AND TRUE", ["x > 5"]),
        ("y = 1 AND x > 5 AND x < 3", ["y = 1 AND x > 5 AND x < 3"]),
        ("y = 1 AND p = 3000000000", ["p = 3000000000"]),
        ((col("x").between(1, 9)) & (col("y") > 7), ["x BETWEEN 1 AND 9", "x BETWEEN 1 AND 9", "y > 7"]),
    ],
)
def test_conjuncts_have_the_conditions_of_the_user_as_labels(where: object, labels: list[str]) -> None:
    schema = pa.schema({"p": pa.int32(), "x": pa.int64(), "y": pa.float64()})
    predicate = make_predicate(where, schema, "t")
    assert [predicate.labels[each.text] for each in predicate.conjuncts] == labels


def test_a_conjunction_of_predicates_has_the_labels_of_both() -> None:
    schema = pa.schema({"x": pa.int64(), "y": pa.float64()})
    one = make_predicate("x BETWEEN 1 AND 9", schema, "t")
    both = one.and_with(make_predicate("y > 7 AND x < 5", schema, "t"))
    assert [both.labels[each.text] for each in both.conjuncts] == [*["x BETWEEN 1 AND 9"] * 2, "y > 7", "x < 5"]
    assert both.text == "x BETWEEN 1 AND 9 AND y > 7 AND x < 5"


def test_the_text_of_a_filter_is_what_the_user_wrote() -> None:
    schema = pa.schema({"x": pa.int64(), "y": pa.float64()})
    given = "(x NOT BETWEEN 1 AND 2 + 3 OR Y > 10) AND x BETWEEN 1 AND 9 AND y <> 5"
    assert make_predicate(given, schema, "t").text == given
    assert make_predicate("x = x OR TRUE", schema, "t").text is None


def test_outcomes_of_one_condition_are_merged() -> None:
    labels = {"x >= 1": "x BETWEEN 1 AND 9", "x <= 9": "x BETWEEN 1 AND 9"}
    limit = ConjunctOutcome("limit 5", 4, None)

    def merge(one: tuple[int, str | None], other: tuple[int, str | None]) -> tuple[int, str | None]:
        given = [ConjunctOutcome("x >= 1", *one), ConjunctOutcome("y", 0, OVERLAPS), ConjunctOutcome("x <= 9", *other)]
        merged, *others = label_outcomes([*given, limit], labels, {})
        assert merged.predicate == "x BETWEEN 1 AND 9"
        assert others == [given[1], limit]
        return merged.skipped, merged.unused_because

    assert merge((3, None), (4, None)) == (7, None)
    assert merge((0, OVERLAPS), (4, None)) == (4, None)
    assert merge((0, OVERLAPS), (0, OVERLAPS)) == (0, OVERLAPS)
    assert merge((0, OVERLAPS), (0, NO_STATISTICS)) == (0, f"{OVERLAPS}; {NO_STATISTICS}")
    # Every unit matches one comparison, but not the other.
    assert merge((0, None), (0, OVERLAPS)) == (0, OVERLAPS)
    assert merge((0, MATCHED_BY_FILE), (0, OVERLAPS)) == (0, OVERLAPS)
    assert merge((0, MATCHED_BY_FILE), (0, None)) == (0, MATCHED_BY_FILE)
    assert merge((0, None), (0, None)) == (0, None)
    assert merge((0, NO_UNITS_LEFT), (0, OVERLAPS)) == (0, OVERLAPS)
