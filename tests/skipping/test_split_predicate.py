"""The parts of a predicate: what partition values, statistics and only rows decide."""

from __future__ import annotations

import pyarrow as pa
import pytest

from builders.answers.oracle import evaluate_predicate
from builders.values.choices import SeededChoices
from builders.values.predicates import draw_predicate
from builders.values.random_rows import make_subject
from tamis.errors import TamisError
from tamis.expr.builder import col
from tamis.expr.evaluate import Evaluator
from tamis.expr.nodes import TRUE, and_, find_columns
from tamis.expr.sql.printer import to_display_sql, to_sql
from tamis.expr.wire.partition_filter import PartitionFilter
from tamis.skipping.predicate import is_partition_text, make_predicate, split_predicate

SCHEMA = pa.schema([("p", pa.int64()), ("q", pa.string()), ("x", pa.int64())])


@pytest.mark.parametrize(
    ("where", "partition", "data", "residual"),
    [
        ("p = 1", "p = 1", None, None),
        ("x > 1", None, "x > 1", None),
        ("x % 2 = 0", None, None, "x % 2 = 0"),
        ("p = 1 AND x > 1 AND x % 2 = 0", "p = 1", "x > 1", "x % 2 = 0"),
        ("p = 1 AND q LIKE 'a%'", "p = 1 AND q LIKE 'a%'", None, None),
        # One conjunct with columns of both kinds: statistics and partition values decide it together.
        ("p = 1 OR x > 1", None, "p = 1 OR x > 1", None),
        # No kernel evaluates it, so no partition value decides it.
        ("p / 2 = 1", None, None, "p / 2 = 1.0D"),
        # Conjuncts are as they were written.
        ("NOT (x < 5) AND NOT p > 1", "NOT (p > 1)", "NOT (x < 5)", None),
        ("x > 0 AND (x = 1 OR x = 2) AND x > 1", None, "x > 0 AND (x = 1 OR x = 2) AND x > 1", None),
        # Two parts decide it.
        ("NOT (p = 1 OR x > 1)", "p <> 1", "x <= 1", None),
        (None, None, None, None),
    ],
)
def test_each_conjunct_is_in_one_part(
    where: str | None, partition: str | None, data: str | None, residual: str | None
) -> None:
    found = split_predicate(where, SCHEMA, ["p", "q"])
    parts = [None if each == TRUE else to_sql(each) for each in (found.partition, found.data, found.residual)]
    assert parts == [partition, data, residual]


def test_a_conjunct_is_shown_as_it_was_written() -> None:
    found = split_predicate("x BETWEEN 1 AND 5 AND nvl(p, 1) = 1", SCHEMA, ["p"])
    assert to_display_sql(found.data) == "x BETWEEN 1 AND 5"
    assert to_display_sql(found.partition) == "nvl(p, 1) = 1"


P_IS_1 = PartitionFilter.eq("p", "1")


@pytest.mark.parametrize(
    ("where", "partition", "data", "residual"),
    [
        (P_IS_1, P_IS_1, None, None),
        (P_IS_1 & PartitionFilter.is_null("q"), P_IS_1 & PartitionFilter.is_null("q"), None, None),
        ([P_IS_1, "q = 'a' AND x > 1 AND x % 2 = 0"], [P_IS_1, "q = 'a'"], "x > 1", "x % 2 = 0"),
        ((col("x") > 1) & P_IS_1, P_IS_1, "x > 1", None),
        (P_IS_1 | (col("x") > 1), None, P_IS_1 | (col("x") > 1), None),
        ("partition_text('p') LIKE '1%' AND p = 1", "partition_text('p') LIKE '1%' AND p = 1", None, None),
    ],
)
def test_a_partition_filter_is_in_the_partition_part(
    where: object, partition: object, data: object, residual: object
) -> None:
    found = split_predicate(where, SCHEMA, ["p", "q"])
    for part, expected in zip((found.partition, found.data, found.residual), (partition, data, residual), strict=True):
        wanted = make_predicate(expected, SCHEMA, "t", ["p", "q"], partition_texts=["p", "q"])
        # A part is a filter of its own.
        assert make_predicate(part, SCHEMA, "t", ["p", "q"], partition_texts=["p", "q"]).expr == wanted.expr
        assert not any(map(is_partition_text, (column.path[0] for column in find_columns(part))))


def test_the_conjunction_of_the_parts_is_the_predicate() -> None:
    choices = SeededChoices(3)
    values = {"p": [1, 2, 3, None], "q": ["a", "b", None, "ab"], "x": [1, 5, None, 7]}
    rows = pa.table(values, SCHEMA)
    subjects = [make_subject((name,), SCHEMA.field(name).type, each) for name, each in values.items()]
    for _ in range(200):
        given = draw_predicate(choices, subjects, depth=3)
        found = split_predicate(given.expr, SCHEMA, ["p", "q"])
        assert all(column.path[0] in ("p", "q") for column in find_columns(found.partition))
        (batch,) = rows.to_batches()
        together = Evaluator(and_(found.partition, found.data, found.residual))(batch).to_pylist()
        assert [each is True for each in together] == [each is True for each in evaluate_predicate(rows, given.sql)]


@pytest.mark.parametrize(
    ("predicate", "columns", "message"),
    [
        ("x = 1", ["day"], "no partition column 'day' in the schema. Columns: p, q, x"),
        ("y = 1", ["p"], "no column 'y'"),
        (PartitionFilter.eq("x", "1"), ["p"], "no partition column 'x'"),
    ],
)
def test_what_cannot_be_split_is_an_error(predicate: object, columns: list[str], message: str) -> None:
    with pytest.raises(TamisError, match=message):
        split_predicate(predicate, SCHEMA, columns)
