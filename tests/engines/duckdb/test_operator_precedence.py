"""Operators keep their operands in DuckDB's SQL: random nested expressions have the values of parenthesised ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tamis
from builders.query.duckdb_text import translate_to_duckdb

ROWS = pa.table(
    {
        "id": pa.array(range(4), pa.int32()),
        "g": pa.array([1, 1, 2, 2], pa.int32()),
        "i": pa.array([1, 2, None, 4], pa.int32()),
        "j": pa.array([-1, 0, 3, None], pa.int32()),
        "p": pa.array([None, True, False, None]),
        "q": pa.array([False, False, None, True]),
        "s": pa.array(["a", None, "ab", ""]),
    }
)


@pytest.fixture(scope="module")
def session() -> tamis.Session:
    return tamis.connect().register("t", ROWS)


@pytest.fixture(scope="module")
def peer() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    connection.register("t", ROWS)
    yield connection
    connection.close()


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("(sum(i) + 1) * 2", 16),
        ("(max(i) - 1) * (min(i) + 2)", 9),
        ("max(i) - (min(i) - 1)", 4),
        ("-(max(i) - 9)", 5),
        ("~max(i) + 1", -4),
        ("~(max(i) + 1)", -6),
        ("(max(i) & 6) + 1", 5),
        ("(max(p) OR max(q)) = (count(*) > 9)", False),
        ("(max(i) > 1) = (min(i) > 1)", False),
        ("(max(i) > 9) <=> (max(i) IS NULL)", True),
        ("(max(i) > 1) IS NULL", False),
        ("(max(i) IN (4, 5)) = (min(i) = 1)", True),
        ("count(p OR q, i)", 2),
        ("collect_list(p OR q)", [True, True]),
        ("sort_array(collect_set(NOT p))", [False, True]),
        ("array_agg(NOT p)", [False, True]),
        ("last(p OR q) IGNORE NULLS", True),
        ("equal_null(max(p) OR max(q), max(i) > 5)", False),
        ("isnull(max(p) AND max(j) > 9)", False),
    ],
)
def test_operands_beside_aggregates_keep_their_parentheses(
    session: tamis.Session, expression: str, value: object
) -> None:
    assert session.sql(f"SELECT {expression} AS v FROM t").to_arrow()["v"].to_pylist() == [value]


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        ("(max(i) OVER () + 1) * 2", [10, 10, 10, 10]),
        ("(i > max(i) OVER ()) = p", [None, False, None, None]),
        ("(SELECT (max(i) + 1) * 2 FROM t)", [10, 10, 10, 10]),
        ("equal_null(p OR q, p)", [True, True, False, False]),
        ("equal_null(p, q) = (p IS NULL)", [False, True, True, False]),
        ("equal_null((max(i) OVER () > 1) = (j > 0), p)", [False, False, False, True]),
        ("nvl2(NOT p, 1, 2)", [2, 1, 1, 2]),
        ("isnull(p OR q)", [True, False, True, False]),
        ("isnotnull(NOT p)", [False, True, True, False]),
    ],
)
def test_operands_in_rows_keep_their_parentheses(session: tamis.Session, expression: str, values: list[object]) -> None:
    assert session.sql(f"SELECT {expression} AS v FROM t").to_arrow()["v"].to_pylist() == values


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("sum(a) - 1 + 2", "SUM(a) - CAST(1 AS INT) + CAST(2 AS INT)"),
        ("a AND b OR c AND NOT d IS NULL", "a AND b OR c AND NOT d IS NULL"),
        ("a OR b OR c", "a OR b OR c"),
        ("sum(a) + 1 > 2", "SUM(a) + CAST(1 AS INT) > 2"),
        ("a LIKE 'x' AND b", "SPARK_TEXT(a) LIKE 'x' ESCAPE '\\' AND b"),
    ],
)
def test_operands_that_bind_more_tightly_get_no_parentheses(text: str, printed: str) -> None:
    assert translate_to_duckdb(text) == printed


# --- Random expressions -----------------------------------------------------------------------------------------------


class Text(NamedTuple):
    """An expression for Tamis, and for DuckDB with parentheses around each operand and argument."""

    spark: str
    duckdb: str
    is_operator: bool = False


Leaves = Callable[[str], st.SearchStrategy[Text]]

OPERATORS = {
    "bool": (
        *(("{} " + sign + " {}", kind + " " + kind) for sign in ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM",
                                                                "IS NOT DISTINCT FROM") for kind in ("int", "bool")),
        ("{} = {}", "text text"), ("{} AND {}", "bool bool"), ("{} OR {}", "bool bool"), ("NOT {}", "bool"),
        ("{} IS NULL", "bool"), ("{} IS NOT NULL", "int"), ("{} IS TRUE", "bool"), ("{} IS NOT FALSE", "bool"),
        ("{} BETWEEN {} AND {}", "int int int"), ("{} NOT BETWEEN {} AND {}", "bool bool bool"),
        ("{} IN (1, 2)", "int"), ("{} NOT IN (1, NULL)", "int"),
    ),
    "int": (
        ("{} + {}", "int int"), ("{} - {}", "int int"), ("{} * {}", "int int"), ("{} % 3", "int"), ("- {}", "int"),
        ("~ {}", "int"), ("{} & {}", "int int"), ("{} | {}", "int int"),
    ),
    "text": (("{} || {}", "text text"),),
}  # fmt: skip
"""Operators with the same meaning in both dialects, and the kinds of their operands."""
CALLS = {
    "bool": (
        ("isnull({})", "({} IS NULL)", "bool"), ("equal_null({}, {})", "({} IS NOT DISTINCT FROM {})", "bool bool"),
        ("nvl2({}, {}, {})", "CASE WHEN {} IS NOT NULL THEN {} ELSE {} END", "bool bool bool"),
    ),
    "int": (
        ("CAST({} AS INT)", "CAST({} AS INT)", "bool"), ("length({})", "length({})", "text"),
        ("CASE WHEN {} THEN {} ELSE {} END", "CASE WHEN {} THEN {} ELSE {} END", "bool int int"),
    ),
    "text": (("CAST({} AS STRING)", "CAST({} AS VARCHAR)", "bool"),),
}  # fmt: skip
"""Calls for Tamis and for DuckDB, and the kinds of their arguments."""
COLUMNS = {"int": ("i", "j", "2", "-1"), "bool": ("p", "q"), "text": ("s", "'a'")}


def pick_column(kind: str) -> st.SearchStrategy[Text]:
    return st.sampled_from([Text(name, name) for name in COLUMNS[kind]])


def write_aggregate(kind: str) -> st.SearchStrategy[Text]:
    inner = write_expression(kind, 1, pick_column)
    return inner.map(lambda value: Text(f"max({value.spark})", f"max({value.duckdb})"))


def write_window(kind: str) -> st.SearchStrategy[Text]:
    made = write_aggregate(kind).map(lambda value: Text(f"{value.spark} OVER ()", f"{value.duckdb} OVER ()"))
    return pick_column(kind) | made


@st.composite
def write_expression(draw: st.DrawFn, kind: str, depth: int, leaves: Leaves) -> Text:
    """Return an expression of a kind, with the operators nested up to a depth."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(leaves(kind))
    if draw(st.integers(0, 3)) == 0:
        spark, other, kinds = draw(st.sampled_from(CALLS[kind]))
        parts = [draw(write_expression(each, depth - 1, leaves)) for each in kinds.split()]
        return Text(
            spark.format(*(part.spark for part in parts)), other.format(*(f"({part.duckdb})" for part in parts))
        )
    form, kinds = draw(st.sampled_from(OPERATORS[kind]))
    parts = [draw(write_expression(each, depth - 1, leaves)) for each in kinds.split()]
    operands = (f"({part.spark})" if part.is_operator else part.spark for part in parts)
    return Text(form.format(*operands), form.format(*(f"({part.duckdb})" for part in parts)), is_operator=True)


@settings(suppress_health_check=[*HealthCheck])
@given(data=st.data())
@pytest.mark.parametrize(
    ("query", "leaves"),
    [
        ("SELECT id, {} AS v FROM t ORDER BY id", pick_column),
        ("SELECT id, {} AS v FROM t ORDER BY id", write_window),
        ("SELECT g, {} AS v FROM t GROUP BY g ORDER BY g", write_aggregate),
    ],
    ids=["rows", "windows", "aggregates"],
)
def test_nested_operators_have_the_values_of_parenthesised_ones(
    session: tamis.Session, peer: duckdb.DuckDBPyConnection, query: str, leaves: Leaves, data: st.DataObject
) -> None:
    kind = data.draw(st.sampled_from(("bool", "bool", "int", "text")))
    text = data.draw(write_expression(kind, 3, leaves))
    expected = peer.sql(query.format(text.duckdb)).to_arrow_table().to_pylist()
    assert session.sql(query.format(text.spark)).to_arrow().to_pylist() == expected, text
