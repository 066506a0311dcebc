"""The rows of aggregates, window functions and generators, and what filters and queries say by them."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tamis
from tamis import types
from tamis.errors import ParseError
from tamis.expr.functions.aggregates import AGGREGATES, Aggregate, Kind, find_aggregate, is_aggregate, is_of_kind
from tamis.expr.functions.table import find_spark_function
from tamis.expr.sql.parse import parse_sql


def test_no_function_is_both_scalar_and_an_aggregate() -> None:
    # An id depends on the position of a row, and is not deterministic.
    both = {name for name in AGGREGATES if find_spark_function(name) is not None}
    assert both == {"monotonically_increasing_id"}


def test_kinds() -> None:
    assert all(map(is_aggregate, ("COUNT", "grouping")))
    assert is_of_kind("explode", Kind.GENERATOR)
    assert not is_of_kind("grouping", Kind.AGGREGATE, Kind.GENERATOR)
    assert not is_aggregate("explode")
    assert find_aggregate("upper") is None


@pytest.mark.parametrize(
    ("name", "first", "expected"),
    [
        ("count", None, types.LONG),
        ("sum", pa.int8(), types.LONG),
        ("sum", pa.float32(), types.DOUBLE),
        ("sum", pa.decimal128(35, 2), pa.decimal128(38, 2)),
        ("sum", types.STRING, None),
        ("avg", pa.int32(), types.DOUBLE),
        ("max", types.DATE, types.DATE),
        ("median", types.LONG, None),
    ],
)
def test_types_of_results(name: str, first: pa.DataType | None, expected: pa.DataType | None) -> None:
    assert AGGREGATES[name].returns(first) == expected


@pytest.mark.parametrize("name", [row.name for row in AGGREGATES.values() if row.kind is Kind.WINDOW])
def test_a_window_function_needs_a_window(name: str) -> None:
    with pytest.raises(ParseError, match=f"the window function {name}.* cannot be part of a filter"):
        parse_sql(f"{name}() = 1")
    with tamis.connect() as session:
        session.register("t", pa.table({"a": [1]}))
        with pytest.raises(ParseError, match=f"the window function {name}.* requires an OVER clause"):
            session.sql(f"SELECT {name}(a, 1) FROM t").to_arrow()


@pytest.mark.parametrize("name", [row.name for row in AGGREGATES.values() if is_aggregate(row.name)])
def test_an_aggregate_is_no_part_of_a_filter(name: str) -> None:
    with pytest.raises(ParseError, match=f"{name} is an aggregate function"):
        parse_sql(f"{name}(a) = 1")


@pytest.mark.parametrize("row", [row for row in AGGREGATES.values() if row.takes == "number"], ids=lambda row: row.name)
def test_an_aggregate_of_numbers_refuses_other_values(row: Aggregate) -> None:
    name = row.name
    with tamis.connect() as session:
        session.register("t", pa.table({"b": [True]}))
        with pytest.raises(ParseError, match=f"{name} takes numbers, not a boolean"):
            session.sql(f"SELECT {name}(b) FROM t").to_arrow()
        with pytest.raises(ParseError, match=f"{name} takes 1 argument, not 2"):
            session.sql(f"SELECT {name}(1, 2) FROM t").to_arrow()
