"""All queries of TPC-H over Delta, Iceberg and Hive-style tables equal DuckDB's results over the plain files."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from builders.query import sql_tables, tpch
from builders.query.tpch_tables import FORMATS, World

pytestmark = pytest.mark.skipif(
    tpch.find_generator() is None, reason="tpchgen-cli is not installed: pip install 'tamis[test]'"
)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("tpch"), 0.01)


def is_answer(found: pa.Table, expected: pa.Table) -> bool:
    """Return whether the rows are the expected ones.

    Spark's averages and quotients of decimals have six digits after the point, where DuckDB's are doubles.
    """
    if found.num_rows != expected.num_rows:
        return False
    rows = zip(sql_tables.list_rows(found), sql_tables.list_rows(expected), strict=True)
    is_rounded = [pa.types.is_floating(each) for each in found.schema.types]
    return all(
        one == other or (may_be and one is not None and other is not None and math.isclose(one, other, rel_tol=2e-5))
        for mine, theirs in rows
        for one, other, may_be in zip(mine, theirs, is_rounded, strict=True)
    )


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("tpch"), 0.1)


def test_all_queries_of_the_benchmark_are_present() -> None:
    assert list(tpch.QUERIES) == list(range(1, 23))


@pytest.mark.parametrize("number", tpch.QUERIES)
def test_results_equal_duckdb(small: World, number: int) -> None:
    # Each query runs on one format, in turn, to save time. The next test runs each query on all formats.
    format = tuple(FORMATS)[number % len(FORMATS)]
    found = small.session(format).sql(tpch.QUERIES[number]).to_arrow()
    expected = small.answer(number)
    assert found.column_names == expected.column_names
    assert is_answer(found, expected)


@pytest.mark.interop
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("number", tpch.QUERIES)
def test_results_equal_duckdb_at_a_larger_scale(large: World, number: int, format: str) -> None:
    found = large.session(format).sql(tpch.QUERIES[number]).to_arrow()
    assert is_answer(found, large.answer(number))
    without = large.session(format).sql(tpch.QUERIES[number], rules=False).to_arrow()
    assert is_answer(without, large.answer(number))
