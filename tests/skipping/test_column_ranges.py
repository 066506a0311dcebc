"""The ranges of columns in a predicate hold the values of every row for which it is TRUE."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.values.by_type import list_values
from builders.values.choices import Choices
from builders.values.predicates import PRIMITIVES, OraclePredicate, Subject, draw_predicate, make_array
from tamis.connectors import Column, ColumnRanges, column_ranges
from tamis.errors import TamisError
from tamis.expr.bind import bind
from tamis.expr.sql.parse import parse_sql
from tamis.scan.reading.residual import Residual

SCHEMA = pa.schema(
    [
        ("a", pa.int32()),
        ("b", pa.int64()),
        ("s", pa.string()),
        ("f", pa.float64()),
        ("d", pa.date32()),
        ("ok", pa.bool_()),
    ]
)


def find_ranges(text: str) -> dict[str, str]:
    return {column.name: str(ranges) for column, ranges in column_ranges(bind(parse_sql(text), SCHEMA)).items()}


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        ("a > 5", {"a": "(5, )"}),
        ("5 >= a", {"a": "(, 5]"}),
        ("a > 5 AND a <= 9 OR a = 12", {"a": "(5, 9], [12, 12]"}),
        ("a BETWEEN 1 AND 5 OR a BETWEEN 4 AND 8", {"a": "[1, 8]"}),
        ("a <> 3", {"a": "(, 3), (3, )"}),
        ("a NOT IN (3, 7)", {"a": "(, 3), (3, 7), (7, )"}),
        ("NOT (a < 3 OR b > 1)", {"a": "[3, )", "b": "(, 1]"}),
        ("a = 1 OR b = 2", {}),
        ("a = 1 AND b = 2 OR a = 3", {"a": "[1, 1], [3, 3]"}),
        ("a IS NULL", {"a": "NULL"}),
        ("a IS NULL OR a > 5", {"a": "(5, ), NULL"}),
        ("a IS NOT NULL", {"a": "(, )"}),
        ("a <=> NULL OR a <=> 4", {"a": "[4, 4], NULL"}),
        ("a IN (1, NULL, 2)", {"a": "[1, 1], [2, 2]"}),
        ("a NOT IN (1, NULL)", {"a": "nothing"}),
        ("a > 5 AND a < 3", {"a": "nothing"}),
        ("a > 5 AND FALSE", {"a": "nothing"}),
        ("TRUE", {}),
        ("a + 1 > b", {"a": "(, )", "b": "(, )"}),
        ("a > b", {"a": "(, )", "b": "(, )"}),
        ("coalesce(a, 1) = 1", {}),
        ("s LIKE 'ab%'", {"s": "['ab', 'ac')"}),
        ("s LIKE 'ab'", {"s": "['ab', 'ab']"}),
        ("s LIKE 'ab_c'", {"s": "['ab', 'ac')"}),
        ("s LIKE '%ab'", {"s": "['', )"}),
        ("s LIKE 'a!_b%' ESCAPE '!'", {"s": "['a_b', 'a_c')"}),
        ("contains(s, 'ab')", {"s": "['', )"}),
        ("endswith(s, 'ab')", {"s": "['', )"}),
        ("startswith(s, 'ab') AND s > 'abc'", {"s": "('abc', 'ac')"}),
        ("NOT s LIKE 'ab%'", {"s": "(, )"}),
        ("f > 1.5", {"f": "(1.5, )"}),
        ("ok", {"ok": "[TRUE, TRUE]"}),
        ("NOT ok", {"ok": "[FALSE, FALSE]"}),
        ("a < 5.5", {"a": "(, 5]"}),
        ("d >= DATE '2024-03-01'", {"d": "[DATE '2024-03-01', )"}),
        ("year(d) = 2024", {"d": "[DATE '2024-01-01', DATE '2024-12-31']"}),
        (
            "year(d) IN (2023, 2025)",
            {"d": "[DATE '2023-01-01', DATE '2023-12-31'], [DATE '2025-01-01', DATE '2025-12-31']"},
        ),
        ("year(d) >= 2024 AND d < DATE '2024-03-01'", {"d": "[DATE '2024-01-01', DATE '2024-03-01')"}),
        ("a + 1 <= 5", {"a": "(, 4]"}),
    ],
)
def test_the_ranges_of_a_predicate(predicate: str, expected: dict[str, str]) -> None:
    assert find_ranges(predicate) == expected


def test_finitely_many_values_are_listed() -> None:
    def find_values(text: str) -> list[object] | None:
        values = column_ranges(bind(parse_sql(text), SCHEMA))[Column(("a",), pa.int32())].values
        return None if values is None else [each.value for each in values]

    assert find_values("a IN (3, 1) OR a = 2") == [1, 2, 3]
    assert find_values("a IN (3, 1) AND a > 1") == [3]
    assert find_values("a > 1") is None
    assert find_values("a IS NULL") == []


def test_long_lists_are_combined_without_comparing_all_pairs() -> None:
    items = ", ".join(map(str, range(0, 40_000, 2)))
    found = column_ranges(bind(parse_sql(f"a IN ({items}) AND a NOT IN ({items})"), SCHEMA))
    assert found == {Column(("a",), pa.int32()): ColumnRanges((), may_be_null=False)}


@settings(deadline=None)
@given(st.data())
def test_every_row_for_which_a_predicate_is_true_is_within_the_ranges(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    kinds = [choices.one_of(tuple(PRIMITIVES)) for _ in range(2)]
    columns = {("x",): kinds[0], ("y",): kinds[1]}
    predicate: OraclePredicate = draw_predicate(choices, [Subject(path, each) for path, each in columns.items()])
    schema = pa.schema([(path[0], each) for path, each in columns.items()])
    try:
        bound = bind(predicate.expr, schema)
    except TamisError:
        return
    found = column_ranges(bound)
    stored = [[*list_values(kind), None] for kind in kinds]
    pairs = [(one, other) for one in stored[0] for other in stored[1]]
    rows = pa.record_batch(
        [make_array(kind, [pair[index] for pair in pairs]) for index, kind in enumerate(kinds)], schema=schema
    )
    numbered = pa.RecordBatch.from_arrays([*rows.columns, pa.array(range(len(pairs)))], ["x", "y", "number"])
    try:
        kept = Residual([bound]).filter(numbered)
    except TamisError:
        return
    for number in kept.column("number").to_pylist():
        for column, ranges in found.items():
            value = pairs[number][0 if column.path == ("x",) else 1]
            assert ranges.contains(value), (predicate.sql, column, value, str(ranges))
