"""Unit tests of small helpers of pruning."""

from __future__ import annotations

import pyarrow as pa

from tamis import types
from tamis.expr.nodes import FALSE, NULL, TRUE, Call, Column
from tamis.skipping.answers import negate
from tamis.skipping.metadata import metadata_names
from tamis.skipping.predicate import make_predicate

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
