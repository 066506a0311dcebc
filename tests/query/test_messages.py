"""Messages of queries: what was expected, where, and what to write."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tamis
from tamis.errors import EvaluationError, ExpressionError, ParseError, TamisError, UnknownColumn
from tamis.session import Session


@pytest.fixture
def session() -> Session:
    connection = tamis.connect()
    return connection.register("u", pa.table({"x": [1, 2], "s": ["a", "b"]}))


@pytest.mark.parametrize(
    ("query", "position", "call"),
    [
        ("SELECT rank() FROM u", 8, "rank()"),
        ("SELECT x FROM u WHERE row_number() > 1", 23, "row_number()"),
        ("SELECT lag(x) IGNORE NULLS FROM u", 8, "lag(x)"),
        ("SELECT x FROM u ORDER BY ntile(2)", 26, "ntile(2)"),
        ("SELECT sum(x) FILTER (WHERE Rank() > 1) FROM u", 29, "Rank()"),
    ],
)
def test_a_window_function_requires_an_over_clause(session: Session, query: str, position: int, call: str) -> None:
    with pytest.raises(ParseError) as caught:
        session.sql(query)
    name = call.partition("(")[0]
    assert str(caught.value) == (
        f"the window function {name}() requires an OVER clause (character {position}). Write {call} OVER (ORDER BY …)"
    )


def test_window_functions_with_over_run(session: Session) -> None:
    query = "SELECT lag(x) IGNORE NULLS OVER (ORDER BY x) AS a, rank() OVER w AS b FROM u WINDOW w AS (ORDER BY x)"
    assert session.sql(query).to_arrow().to_pydict() == {"a": [None, 1], "b": [1, 2]}
    assert session.sql("SELECT first_value(x) AS a FROM u").to_arrow()["a"].to_pylist() == [1]


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        ("SELECT foo(x) FROM u", ExpressionError, "name foo does not exist! Did you mean .* character 8)"),
        ("SELEC x FROM u", ParseError, 'syntax error at or near "SELEC" (at: query, character 1)'),
        ("SELECT x FROM u WHERE", ParseError, '(at: query, character 17)'),
        ("SELECT x,\n  yy FROM u", UnknownColumn, "(at: query, line 2, character 3)"),
        ("SELECT x + s FROM u", ExpressionError, "need to add explicit type casts. (at: query, character 10)"),
        ("SELECT strptime(s, '%Y') FROM u", EvaluationError, 'according to format specifier "%Y"'),
    ],
)  # fmt: skip
def test_an_error_of_duckdb_is_its_first_line_and_the_position(
    session: Session, query: str, error: type[TamisError], message: str
) -> None:
    with pytest.raises(error) as caught:
        session.sql(query, dialect="duckdb").to_arrow()
    for part in message.split(" .* "):
        assert part in str(caught.value)
    assert str(caught.value).endswith(message[-12:])
    assert "Candidate functions" not in str(caught.value)
