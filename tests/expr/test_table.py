"""A function is one row: with it, the function works in filters, in SQL, in Python and in databases, and skips data."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import tamis
from builders.values.functions import add_direction
from tamis import col, types
from tamis.errors import InvalidArgument
from tamis.expr.functions.table import (
    FUNCTIONS,
    Function,
    find_arithmetic_operator,
    find_nondeterministic_function,
    find_spark_function,
    register_function,
)
from tamis.expr.sql.parse import parse_sql

VALUES = [-3, -2, -1, 0, 1, 2, None, 7]


@pytest.fixture(autouse=True)
def direction() -> Iterator[None]:
    with add_direction():
        yield


@pytest.fixture
def table(tmp_path: Path) -> tamis.Table:
    """Row groups of -3 to 0 and of 1 to 7."""
    rows = pa.table({"x": VALUES, "f": pa.array(VALUES, pa.float64())})
    pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=4)
    return tamis.open(tmp_path)


def read(table: tamis.Table, where: object) -> list[object]:
    found: list[object] = table.scan(where).to_arrow()["x"].to_pylist()
    return found


def test_a_filter_has_its_rows_and_skips_data(table: tamis.Table) -> None:
    scan = table.scan("direction(x) > 0")
    assert scan.to_arrow()["x"].to_pylist() == [1, 2, 7]
    assert scan.report.level("row_groups").kept == 1
    assert read(table, "direction(x) < 0") == [-3, -2, -1]
    assert read(table, "heading(x) = 0") == [0]


def test_the_embedded_engine_computes_what_the_kernel_does_not(table: tamis.Table) -> None:
    assert read(table, "direction(f) > 0") == [1, 2, 7]


def test_python_and_pyarrow_have_it(table: tamis.Table) -> None:
    assert read(table, col("x").direction() == -1) == [-3, -2, -1]
    assert read(table, pc.equal(pc.sign(pc.field("x")), 1)) == [1, 2, 7]


def test_sql_has_it(table: tamis.Table) -> None:
    session = tamis.connect()
    session.register("t", table)
    found = session.sql("SELECT direction(x) AS d, count(*) AS n FROM t WHERE direction(x) <= 0 GROUP BY 1 ORDER BY 1")
    assert found.to_arrow().to_pylist() == [{"d": -1, "n": 3}, {"d": 0, "n": 1}]
    assert session.sql("SELECT heading(f + 1) AS d FROM t WHERE x = 2").to_arrow().to_pylist() == [{"d": 1}]


def test_a_filter_goes_to_a_database_in_its_own_sql(tmp_path: Path) -> None:
    pytest.importorskip("adbc_driver_sqlite", reason="adbc-driver-sqlite is not installed")
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("CREATE TABLE t (x BIGINT)")
        connection.executemany("INSERT INTO t VALUES (?)", [(value,) for value in VALUES])
    connection.close()
    session = tamis.connect()
    session.attach("db", tmp_path / "shop.db")
    query = "SELECT x FROM db.t WHERE direction(x + 0) > 0 OR direction(x) = 0 ORDER BY x"
    assert session.sql(query).to_arrow()["x"].to_pylist() == [0, 1, 2, 7]
    pushed = "SELECT x FROM db.t WHERE direction(x) >= 0 ORDER BY x"
    assert '> 0) - ("t1"."x" < 0)' in session.explain(pushed)
    assert session.sql(pushed).to_arrow()["x"].to_pylist() == [0, 1, 2, 7]


def test_a_function_without_sql_for_a_database_stays_here(tmp_path: Path) -> None:
    pytest.importorskip("adbc_driver_sqlite", reason="adbc-driver-sqlite is not installed")
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("CREATE TABLE t (s TEXT)")
        connection.executemany("INSERT INTO t VALUES (?)", [("a",), ("bcd",), (None,)])
    connection.close()
    session = tamis.connect()
    session.attach("db", tmp_path / "shop.db")
    query = "SELECT s FROM db.t WHERE length(s) > 1"
    assert "LENGTH" not in session.explain(query)
    assert session.sql(query).to_arrow()["s"].to_pylist() == ["bcd"]


@pytest.mark.parametrize("name", ["direction", "heading", "nvl", "year"])
def test_a_name_is_taken_once(name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"there is a function '{name}' already"):
        register_function(Function(name, ("any",), types.LONG, 1, 1))


def test_a_name_is_in_lower_case() -> None:
    with pytest.raises(InvalidArgument, match="must be in lower case, found 'Direction2'"):
        register_function(Function("Direction2", ("any",), types.LONG, 1, 1))


@pytest.fixture
def larger() -> Iterator[None]:
    """Register a function whose two values have a common type, after the name of what they are."""
    row = Function("larger", ("literal", "any"), lambda args, given: None, 3, 3, alike=lambda count: range(1, count),
                   duckdb="CASE WHEN {0} IS NULL THEN NULL ELSE greatest({1}, {2}) END")  # fmt: skip
    register_function(row)
    yield
    del FUNCTIONS[row.name]


@pytest.mark.usefixtures("larger")
@pytest.mark.parametrize("beside", ["", ", row_number() OVER (ORDER BY x) AS n"])
def test_engines_find_the_common_type_of_its_arguments(tmp_path: Path, beside: str) -> None:
    # The common type of a float and a decimal is a double in Spark, and a float in DuckDB.
    rows = pa.table({"x": [1, 2], "f": pa.array([0.1, 5.0], pa.float32()), "unit": ["a", "b"]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    session = tamis.connect()
    session.register("t", tamis.open(tmp_path))
    # Its first argument is a text in double quotes, and not the column of this name.
    found = session.sql(f'SELECT larger("unit", f, 0.2) AS y{beside} FROM t ORDER BY x').to_arrow()
    assert found["y"].to_pylist() == [0.2, 5.0]
    assert tamis.open(tmp_path).scan("larger('unit', f, 0.2) = 0.2D").count() == 1


def test_a_function_of_engines_has_a_row() -> None:
    assert all(find_spark_function(name) is FUNCTIONS["coalesce"] for name in ("nvl", "IfNull", "coalesce"))
    assert [find_arithmetic_operator(name) for name in ("try_add", "MOD", "div", "-", "abs", "sqrt")] == [
        "+", "%", "div", "-", None, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rand() < 0.5", "rand"),
        ("xs[UUID()] = 1", "uuid"),
        ("exists(xs, x -> x < `rand`())", "rand"),
        ("xs[0] = 'rand()'", None),
        ("exists(xs, x -> x < random_name(1))", None),
        ("day < now()", None),
    ],
)
def test_functions_that_return_another_value_for_each_call_are_found_in_any_syntax(
    text: str, expected: str | None
) -> None:
    for parsed in (parse_sql(text), pickle.loads(pickle.dumps(parse_sql(text)))):
        assert find_nondeterministic_function(parsed) == expected


@pytest.mark.parametrize(
    ("function", "field"), [(row.name, field) for row in FUNCTIONS.values() for field in row.extracted_as]
)
def test_extract_is_the_function_of_its_field(function: str, field: str) -> None:
    for text in (f"extract({field} FROM t) = 1", f"date_part('{field}', t) = 1"):
        assert parse_sql(text) == parse_sql(f"{function}(t) = 1")
