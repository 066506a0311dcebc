"""Scalar subqueries: the names of columns with them, and the syntax around them."""

from __future__ import annotations

from datetime import date
from typing import Any

import pyarrow as pa
import pytest

import tamis


@pytest.fixture
def session() -> tamis.Session[Any]:
    return tamis.connect().register("t", pa.table({"id": [1, 2]})).register("u", pa.table({"id": [3]}))


@pytest.mark.parametrize(
    "column",
    [
        "(SELECT max(id) FROM u)",
        "(SELECT max(id) FROM u) - id",
        "CASE WHEN (SELECT max(id) FROM u) > 1 THEN 1 END",
        "(SELECT max(id) FROM u WHERE id > (SELECT 1)) + 1",
        "CAST((SELECT max(id) FROM u) AS STRING)",
        "(SELECT max(u.id) FROM u WHERE u.id > t.id) - id",
        "EXISTS(SELECT 1 FROM u) AND id = 1",
        "id + (SELECT 2)",
    ],
)
def test_a_column_with_a_subquery_is_named_by_its_text(session: tamis.Session[Any], column: str) -> None:
    for query in (f"SELECT {column} FROM t", f"SELECT * FROM (SELECT {column} FROM t)"):
        found = session.sql(query)
        assert found.schema.names == found.to_arrow().column_names == [column]


def test_an_aggregated_column_with_a_subquery_is_named_by_its_text(session: tamis.Session[Any]) -> None:
    found = session.sql("SELECT count(*) + (SELECT max(id) FROM u), (SELECT max(id) FROM u) AS m FROM t").to_arrow()
    assert found.to_pylist() == [{"count(*) + (SELECT max(id) FROM u)": 5, "m": 3}]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("(SELECT 5) - 2", 3),
        ("5 - (SELECT 2)", 3),
        ("(SELECT 5) - (SELECT 2)", 3),
        ("CAST((SELECT '2024-03-01') AS DATE)", date(2024, 3, 1)),
        ("date_add((SELECT DATE '2024-03-01'), (SELECT 1))", date(2024, 3, 2)),
    ],
)
def test_a_subquery_keeps_its_brackets_in_calls_of_macros(
    session: tamis.Session[Any], value: str, expected: object
) -> None:
    assert session.sql(f"SELECT {value} AS x").to_arrow()["x"].to_pylist() == [expected]
