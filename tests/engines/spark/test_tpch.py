"""All queries of TPC-H on Spark, over tables of three formats in turn, equal DuckDB's results over the plain files."""

from __future__ import annotations

from typing import Any

import pytest

from builders.query import sql_tables, tpch
from builders.query.tpch_tables import FORMATS, World

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(tpch.find_generator() is None, reason="tpchgen-cli is not installed: pip install 'tamis[test]'"),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("tpch"), 0.1)


@pytest.mark.parametrize("number", tpch.QUERIES)
def test_results_equal_duckdb(world: World, spark: Any, number: int) -> None:
    format = tuple(FORMATS)[number % len(FORMATS)]
    found = world.session(format, spark).sql(tpch.QUERIES[number]).toArrow()
    expected = world.answer(number)
    assert found.column_names == expected.column_names
    # The scale of decimals after a division differs between engines.
    assert [[_round(value) for value in row] for row in sql_tables.list_rows(found)] == [
        [_round(value) for value in row] for row in sql_tables.list_rows(expected)
    ]


def _round(value: object) -> object:
    return float(f"{value:.5g}") if isinstance(value, float) else value
