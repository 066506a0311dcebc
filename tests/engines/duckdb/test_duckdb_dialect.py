"""`c.sql(text, dialect="duckdb")`: DuckDB SQL with DuckDB's semantics, over tables of the session."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import tamis
from builders.query.duckdb_conditions import ROWS, draw_condition, write_rows
from tamis import errors
from tamis.cli.application import program
from tamis.query.query import Query

ORDERS = pa.table({
    "id": range(100),
    "customer": [number % 7 for number in range(100)],
    "Amount": [number / 4 for number in range(100)],
    "region": [("eu", "us", "ap", None)[number % 4] for number in range(100)],
    "day": [date(2024, 1, 1 + number // 10) for number in range(100)],
    "spot": [{"city": f"c{number % 3}", "zip": number} for number in range(100)],
})  # fmt: skip
CUSTOMERS = pa.table({"customer": range(7), "name": [f"name {number}" for number in range(7)], "id": range(70, 77)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tables")
    pq.write_table(ORDERS, root / "orders.parquet", row_group_size=10)
    pq.write_table(CUSTOMERS, root / "customers.parquet")
    return root


@pytest.fixture
def session(folder: Path) -> tamis.Session:
    c = tamis.connect()
    c.register("orders", str(folder / "orders.parquet"))
    c.register("customers", str(folder / "customers.parquet"))
    c.register("sales.orders", str(folder / "orders.parquet"))
    c.register("lake.shop.orders", str(folder / "orders.parquet"))
    return c


@pytest.fixture(scope="module")
def oracle() -> Any:
    """DuckDB itself, over the same rows."""
    with closing(duckdb.connect()) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for schema in ("sales", "lake.shop"):
            if "." in schema:
                connection.execute("ATTACH ':memory:' AS lake")
            connection.execute(f"CREATE SCHEMA {schema}")
        connection.register("orders_rows", ORDERS)
        connection.register("customers_rows", CUSTOMERS)
        for name in ("orders", "sales.orders", "lake.shop.orders"):
            connection.execute(f"CREATE TABLE {name} AS FROM orders_rows")
        connection.execute("CREATE TABLE customers AS FROM customers_rows")
        yield connection


def format_rows(table: pa.Table) -> list[str]:
    return sorted(repr(row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True))


QUERIES = (
    "SELECT count(*) FROM orders",
    "FROM orders",
    "FROM orders SELECT id WHERE region = 'eu' AND day >= '2024-01-05'",
    "SELECT ID, amount FROM Orders WHERE \"AMOUNT\" > 20.25",
    "SELECT sales.orders.id FROM sales.orders WHERE sales.orders.id < 3",
    "SELECT lake.shop.orders.id, o.id FROM lake.shop.orders JOIN orders o USING (id) WHERE o.id = 5",
    "SELECT * FROM orders o LEFT JOIN customers c ON o.id = c.id WHERE c.name IS NULL AND o.id < 12",
    "SELECT count(*) FROM orders o LEFT JOIN customers c ON o.id = c.id AND c.customer = 3 WHERE o.id > 60",
    "SELECT * FROM customers c RIGHT JOIN orders o ON o.id = c.id WHERE o.id BETWEEN 65 AND 72",
    "SELECT count(*) FROM orders o FULL JOIN customers c ON o.id = c.id + 50 WHERE o.id > 40 OR o.id IS NULL",
    "SELECT customer, count(*) FROM orders JOIN customers USING (customer) WHERE customer = 3 GROUP BY ALL",
    "SELECT * FROM orders NATURAL JOIN customers",
    "SELECT * FROM orders SEMI JOIN customers USING (customer) WHERE id < 5",
    "SELECT * FROM orders ANTI JOIN customers ON orders.id = customers.id WHERE orders.id > 68",
    "SELECT a.id, b.id FROM orders a POSITIONAL JOIN customers b WHERE a.id = 3",
    "SELECT a.id, b.id FROM orders a, orders b WHERE a.id = 3 AND b.id = a.id + 40 AND b.region IS NULL",
    "SELECT id FROM orders WHERE id = 1 UNION ALL SELECT id FROM orders WHERE id = 98",
    "SELECT id FROM orders WHERE id = 1 UNION ALL SELECT count(*) FROM orders",
    "SELECT count(*) FROM orders WHERE id > (SELECT avg(id) FROM orders)",
    "SELECT count(*) FROM orders o WHERE EXISTS (SELECT * FROM customers c WHERE c.id = o.id AND c.customer > 2)",
    "SELECT count(*) FROM orders WHERE id NOT IN (SELECT id FROM customers WHERE customer = 2)",
    "WITH orders AS (SELECT id FROM orders WHERE id < 4) SELECT * FROM orders WHERE id > 1",
    "WITH big AS (SELECT * FROM orders WHERE id > 90), orders AS (SELECT 1 AS id) SELECT count(*) FROM big, orders",
    "WITH RECURSIVE up(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up, customers WHERE n < 3 AND customer = 1) FROM up",
    "SELECT id + 1 AS id FROM orders WHERE id = 5",
    "SELECT id + 1 AS double FROM orders WHERE double = 5",
    "SELECT customer AS id FROM orders WHERE id = 5",
    "SELECT o FROM orders o WHERE o.id = 7",
    "SELECT orders.spot.city, \"spot\".zip FROM orders WHERE spot.zip < 3",
    "SELECT spot.city FROM orders AS spot WHERE spot.id = 4",
    "SELECT * EXCLUDE (spot, day) REPLACE (id * 2 AS id) FROM orders WHERE id < 3",
    "SELECT COLUMNS('.*d') FROM orders WHERE id < 3",
    "SELECT #1 FROM orders WHERE id = 9",
    "SELECT q FROM orders AS o(q) WHERE q = 9",
    "SELECT max_by(id, Amount), list(id ORDER BY id DESC)[1:2], arg_min(region, id) FROM orders WHERE region <> 'eu'",
    "SELECT region, quantile_cont(id, 0.5) FROM orders GROUP BY region HAVING count(*) > 1",
    "SELECT id, row_number() OVER (ORDER BY id DESC) AS r FROM orders WHERE id < 30 QUALIFY r <= 2",
    "SELECT id / 2, id // 2, id % 7, '1' || id FROM orders WHERE id IN (7, 9)",
    "SELECT id FROM orders WHERE region = ANY(['eu', 'us']) AND id < 10",
    "SELECT list_transform([id, customer], lambda x: x + 1) FROM orders WHERE id = 3",
    "SELECT region, id FROM orders ORDER BY region, id DESC LIMIT 3",
    "SELECT sum(id) FILTER (WHERE region = 'eu') FROM orders",
    "PIVOT (SELECT region, customer, id FROM orders WHERE id < 50) ON region IN ('eu', 'us') USING sum(id)",
    "PIVOT (SELECT region, customer, id FROM orders WHERE region IS NOT NULL) ON region USING sum(id)",
    "UNPIVOT (SELECT id, customer FROM orders WHERE id < 3) ON id, customer",
    "DESCRIBE orders",
    "FROM query_table('orders') SELECT count(*)",
    "SELECT count(*) FROM orders, query_table('orders') AS q WHERE orders.id = 3",
    "SELECT * FROM range(3) AS r(i) JOIN orders ON orders.id = i WHERE orders.id > 0",
    "SELECT u FROM orders, unnest([id, customer]) AS t(u) WHERE id = 20",
    "SELECT (SELECT max(c.id) FROM customers c WHERE c.customer = orders.customer) FROM orders WHERE id < 3",
    "SELECT l.m FROM orders o, LATERAL (SELECT max(id) AS m FROM customers WHERE customer < o.id) l WHERE o.id = 2",
    "VALUES (1, 'a'), (2, 'b')",
    "SELECT 1 -- a comment\n;",
    "TABLE customers",
)  # fmt: skip


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_has_the_result_of_duckdb(session: tamis.Session, oracle: Any, query: str) -> None:
    found = session.sql(query, dialect="duckdb").to_arrow()
    wanted = oracle.sql(query).to_arrow_table()
    assert found.column_names == wanted.column_names
    assert format_rows(found) == format_rows(wanted)


def test_random_conditions_return_the_rows_of_duckdb(tmp_path: Path) -> None:
    c = tamis.connect()
    c.register("t", str(write_rows(tmp_path / "t.parquet")))
    chance = random.Random(16)
    pushed = 0
    with closing(duckdb.connect()) as oracle:
        oracle.execute("SET TimeZone = 'UTC'")
        oracle.register("t", ROWS)
        for _ in range(40):
            query = f"SELECT n, s, day FROM t WHERE {draw_condition(chance)}"
            try:
                wanted = oracle.sql(query).to_arrow_table()
            except duckdb.Error:
                with pytest.raises(errors.TamisError):
                    c.sql(query, dialect="duckdb").to_arrow()
                continue
            found = c.sql(query, dialect="duckdb")
            assert format_rows(found.to_arrow()) == format_rows(wanted), query
            pushed += "where" in explain_scans(found)
    assert pushed > 15


def explain_scans(query: Any) -> str:
    return str(query.explain().split("Scans\n")[1])


# --- Filters and columns of scans -------------------------------------------------------------------------------------


def list_pushed(c: tamis.Session, query: str, args: Any = None) -> list[tuple[list[str], str]]:
    """Return the columns and the filter of each scan."""
    scans = json.loads(c.explain(query, args, format="json", dialect="duckdb"))["scans"]
    found = []
    for each in scans:
        description = each["reads"] if "reads" in each else each["scan"]
        columns = (
            description.split("columns ")[1].split(";")[0].split(" (")[0].split(", ")
            if "columns " in description
            else []
        )
        found.append((sorted(columns), description.split("; where ")[1] if "; where " in description else ""))
    return found


CONDITIONS = (
    ("id = 5", "`id` = 5"),
    ("5 < id", "`id` > 5"),
    ("id IN (1, 2)", "`id` IN (1, 2)"),
    ("region LIKE 'e%'", "`region` LIKE 'e%'"),
    ("region ^@ 'e'", "startswith(`region`, 'e')"),
    ("day BETWEEN '2024-01-02' AND DATE '2024-01-03'", "`day` >= DATE '2024-01-02' AND `day` <= DATE '2024-01-03'"),
    ("day BETWEEN DATE '2024-01-02' AND DATE '2024-01-02' + INTERVAL 3 DAY", "`day` >= DATE '2024-01-02'"),
    ("Amount < 0.25", "`Amount` < 0.25"),
    ("region IS NULL", "`region` IS NULL"),
    ("NOT (id = 5 OR region = 'eu')", "NOT (`id` = 5 OR `region` = 'eu')"),
    ("(id = 5 AND lower(region) = 'eu') OR id = 7", "`id` = 5 OR `id` = 7"),
    # Conditions that may differ in meaning, or that compare more than a column with a constant.
    ("id = '5'", ""),
    ("region = 5", ""),
    ("region BETWEEN '5' AND 10", ""),
    ("region LIKE 'e\\%'", ""),
    ("region ILIKE 'E%'", ""),
    ("region COLLATE NOCASE = 'EU'", ""),
    ("region IN ('eu', NULL)", ""),
    ("day = '2024-1-2'", ""),
    ("id + 1 = 5", ""),
    ("id = customer", ""),
    ("id = 5 OR lower(region) = 'eu'", ""),
    ("NOT (id = 5 AND lower(region) = 'eu')", ""),
    ("id = 5e0", ""),
    ("id::TEXT = '5'", ""),
    ("spot.zip = 5", ""),
)


@pytest.mark.parametrize(("condition", "wanted"), CONDITIONS)
def test_equivalent_conditions_are_pushed_into_the_scan(session: tamis.Session, condition: str, wanted: str) -> None:
    try:
        ((_, found),) = list_pushed(session, f"SELECT id FROM orders WHERE {condition}")
    except errors.ExpressionError:
        # DuckDB 2 does not compare these at all.
        assert condition in ("region = 5", "region BETWEEN '5' AND 10")
        return
    assert found == wanted


def test_only_the_named_columns_are_read(session: tamis.Session) -> None:
    assert [columns for columns, _ in list_pushed(session, "SELECT max(ID) FROM orders")] == [["id"]]
    query = "SELECT * FROM (SELECT id, rank() OVER (ORDER BY amount) AS r FROM orders) WHERE r < 3"
    assert [columns for columns, _ in list_pushed(session, query)] == [["Amount", "id"]]
    assert list_pushed(
        session, "SELECT count(*) FROM orders WHERE EXISTS (SELECT * FROM customers WHERE customer = 1)"
    )[1][0] == ["customer"]
    assert len(list_pushed(session, "SELECT * FROM orders")[0][0]) == len(ORDERS.column_names)
    assert len(list_pushed(session, "SELECT orders FROM orders")[0][0]) == len(ORDERS.column_names)


def test_a_table_with_two_references_is_filtered_by_either_condition(session: tamis.Session) -> None:
    ((_, found),) = list_pushed(
        session, "SELECT * FROM orders WHERE id = 1 UNION ALL SELECT * FROM orders WHERE id = 98"
    )
    assert found.startswith(("`id` = 1 OR `id` = 98", "`id` = 98 OR `id` = 1"))
    ((_, found),) = list_pushed(session, "SELECT * FROM orders WHERE id = 1 UNION ALL SELECT * FROM orders")
    assert found == ""


@pytest.mark.parametrize(
    "query",
    [
        "SELECT o.id FROM customers c LEFT JOIN orders o ON o.id = c.id WHERE o.id > 70",
        "SELECT o.id FROM customers c FULL JOIN orders o ON o.id = c.id WHERE o.id > 70",
        "SELECT a.id FROM customers b POSITIONAL JOIN orders a WHERE a.id = 3",
        "SELECT id FROM orders TABLESAMPLE 5 ROWS WHERE id = 3",
        "SELECT id FROM orders WHERE id = 3 USING SAMPLE 5",
        "WITH orders AS (SELECT id FROM orders) SELECT id FROM orders WHERE id = 3",
        "SELECT id + 1 AS day FROM orders WHERE day = DATE '2024-01-01'",
        "SELECT o.x FROM orders AS o(x) WHERE x = 3",
        "SELECT orders.id FROM orders, query_table('orders') q WHERE orders.id = 3",
    ],
)
def test_conditions_that_would_change_the_result_are_not_pushed_down(session: tamis.Session, query: str) -> None:
    assert all(found == "" for columns, found in list_pushed(session, query) if "Amount" in columns or "id" in columns)


def test_row_groups_are_skipped(session: tamis.Session) -> None:
    found = session.sql("SELECT id FROM orders WHERE day = '2024-01-03'", dialect="duckdb")
    assert sorted(found.to_arrow()["id"].to_pylist()) == list(range(20, 30))
    assert "day" in explain_scans(found)


# --- Parameters -------------------------------------------------------------------------------------------------------


def test_duckdb_parameters_prune(session: tamis.Session) -> None:
    query = "SELECT id FROM orders WHERE id > $low AND day < $day AND region = $region"
    values = {"low": 3, "day": date(2024, 1, 2), "region": "eu"}
    assert session.sql(query, values, dialect="duckdb").to_arrow()["id"].to_pylist() == [4, 8]
    ((_, found),) = list_pushed(session, query, values)
    assert "`id` > 3" in found
    assert "DATE '2024-01-02'" in found
    numbered = session.sql("SELECT id FROM orders WHERE id = ? OR id = ?", [5, 6], dialect="duckdb")
    assert sorted(numbered.to_arrow()["id"].to_pylist()) == [5, 6]
    swapped = session.sql("SELECT $2 - $1 AS n", [5, 6], dialect="duckdb")
    assert swapped.to_arrow().to_pylist() == [{"n": 1}]
    listed = session.sql("SELECT count(*) AS n FROM orders WHERE id = ANY($ids)", {"ids": [1, 2]}, dialect="duckdb")
    assert listed.to_arrow().to_pylist() == [{"n": 2}]


@pytest.mark.parametrize("value", ["5", 5.0, Decimal("5.0"), True, datetime(2024, 1, 1), None])
def test_a_parameter_of_another_type_is_compared_as_in_duckdb(
    session: tamis.Session, oracle: Any, value: object
) -> None:
    query = "SELECT id FROM orders WHERE id = $1 OR Amount = $1"
    try:
        wanted = oracle.sql(query, params=[value]).to_arrow_table()
    except duckdb.Error:
        with pytest.raises(errors.TamisError):
            session.sql(query, [value], dialect="duckdb").to_arrow()
        return
    assert format_rows(session.sql(query, [value], dialect="duckdb").to_arrow()) == format_rows(wanted)


def test_parameters_without_values_and_values_without_parameters(session: tamis.Session) -> None:
    for query, values, message in (
        ("SELECT $a", None, "parameter \\$a"),
        ("SELECT ?", [], "parameter \\$1"),
        ("SELECT 1", {"a": 1}, "args= has a value for \\$a"),
        ("SELECT ?", "x", "a mapping"),
    ):
        with pytest.raises(errors.InvalidArgument, match=message):
            session.sql(query, values, dialect="duckdb")  # type: ignore[arg-type]


# --- Names ------------------------------------------------------------------------------------------------------------


def test_tables_by_location_and_of_databases(folder: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("CREATE TABLE people (id INTEGER, name TEXT)")
        database.executemany("INSERT INTO people VALUES (?, ?)", [(1, "ann"), (2, "bo")])
        database.commit()
    with tamis.connect() as c:
        c.attach("shop", f"sqlite:///{tmp_path / 'shop.db'}")
        c.register("memory_rows", pa.table({"id": [1, 2], "k": ["x", "y"]}))
        query = f"""
            SELECT p.name, m.k, o.region FROM shop.people p JOIN memory_rows m USING (id)
            JOIN parquet."{folder / "orders.parquet"}" o ON o.id = p.id WHERE p.id = 2
        """
        assert c.sql(query, dialect="duckdb").to_arrow().to_pylist() == [{"name": "bo", "k": "y", "region": "ap"}]


def test_names_that_duckdb_cannot_distinguish_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "A": [2], "b": [3]}), tmp_path / "t.parquet")
    c = tamis.connect()
    c.register("t", str(tmp_path / "t.parquet"))
    assert c.sql("SELECT b FROM t", dialect="duckdb").to_arrow().to_pylist() == [{"b": 3}]
    with pytest.raises(errors.AmbiguousColumn, match="'a' and 'A'"):
        c.sql("SELECT a FROM t", dialect="duckdb")


def test_a_generated_name_does_not_shadow_a_table(folder: Path) -> None:
    c = tamis.connect()
    c.register("tamis_scan_1", str(folder / "customers.parquet"))
    c.register("orders", str(folder / "orders.parquet"))
    query = "SELECT count(*) AS n FROM orders, tamis_scan_1"
    assert c.sql(query, dialect="duckdb").to_arrow().to_pylist() == [{"n": 700}]


# --- Mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "kind", "message"),
    [
        ("SELECT nope FROM orders", errors.UnknownColumn, "nope"),
        ("SELECT nope(id) FROM orders", errors.ExpressionError, "nope"),
        ("FROM ordes", errors.TableNotFound, "Did you mean 'orders'"),
        ("FROM zzz", errors.TableNotFound, 'or write delta."path", iceberg."path", hive."path" or parquet."path"$'),
        ("INSERT INTO orders VALUES (1)", errors.ParseError, "SELECT, FROM, WITH, VALUES, PIVOT, DESCRIBE, SUMMARIZE"),
        ("SELEC 1", errors.ParseError, "SELEC"),
        ("", errors.ParseError, "one query"),
        ("SELECT 1; SELECT 2", errors.ParseError, "2 statements"),
        ("SHOW TABLES", errors.UnsupportedFeature, "c.tables"),
        ("FROM orders AT (VERSION => 3)", errors.UnsupportedFeature, "version=3"),
        ("FROM a.b.c.d", errors.TamisError, "."),
        ("FROM temp.x", errors.TamisError, "temp"),
        ("SELECT " + "(" * 3000 + "1" + ")" * 3000, errors.TamisError, "."),
        ("SELECT " + " + ".join(["1"] * 20_000), errors.TamisError, "."),
    ],
)
def test_wrong_queries_raise_tamis_errors_at_creation(
    session: tamis.Session, query: str, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        session.sql(query, dialect="duckdb")


def test_a_failing_value_raises_a_tamis_error(session: tamis.Session) -> None:
    with pytest.raises(errors.EvaluationError, match="could not finish"):
        session.sql("SELECT region::INTEGER FROM orders", dialect="duckdb").to_arrow()


def test_an_unknown_dialect_and_other_engines_are_refused(session: tamis.Session) -> None:
    with pytest.raises(errors.InvalidArgument, match="Dialects: spark, duckdb"):
        session.sql("SELECT 1", dialect="mysql")
    with pytest.raises(errors.InvalidArgument, match="embedded engine only"):
        session.sql("SELECT 1", dialect="duckdb").to_spark(object())


def test_spark_is_the_default(session: tamis.Session) -> None:
    query = 'SELECT 7 / 2 AS q, "a" AS s'
    assert session.sql(query, dialect="spark").to_arrow() == session.sql(query).to_arrow()
    with pytest.raises(errors.UnknownColumn):
        session.sql(query, dialect="duckdb")


def test_a_query_runs_repeatedly_and_exports_to_arrow_consumers(session: tamis.Session) -> None:
    query = session.sql("SELECT id FROM orders WHERE id < 3", dialect="duckdb")
    assert query.schema.names == ["id"]
    assert query.to_arrow() == query.to_arrow() == pa.table(query)
    assert [batch.num_rows for batch in query.to_batches()] == [3]
    assert query.to_reader().read_all().num_rows == 3
    assert query.to_polars().shape == query.to_pandas().shape == (3, 1)
    assert isinstance(query, Query)


def test_rules_are_switched_off(session: tamis.Session) -> None:
    query = "SELECT id FROM orders WHERE id = 3"
    off = session.sql(query, dialect="duckdb", rules=False)
    assert off.to_arrow() == session.sql(query, dialect="duckdb").to_arrow()


# --- Nothing but the tables of the session ----------------------------------------------------------------------------

SECRET = "not for queries"

HOSTILE = (
    "FROM read_text('{file}')",
    "FROM read_csv('{file}')",
    "FROM read_blob('{file}')",
    "FROM read_parquet('{other}')",
    "FROM '{other}'",
    "FROM glob('{folder}/*')",
    "SELECT * FROM orders, read_text('{file}')",
    "FROM query('FROM read_text(''{file}'')')",
    "FROM query_table('{other}')",
    "FROM sniff_csv('{file}')",
    "FROM parquet_metadata('{other}')",
    "FROM sqlite_scan('{other}', 'x')",
    "FROM read_duckdb('{other}')",
    "SELECT getenv('HOME')",
    "SELECT content FROM read_text(['{file}'])",
    "COPY orders TO '{written}'",
    "COPY (FROM orders) TO '{written}'",
    "COPY (PIVOT orders ON region USING sum(id)) TO '{written}'",
    "CREATE TABLE x AS (PIVOT orders ON region USING sum(id))",
    "EXPORT DATABASE '{written}'",
    "ATTACH '{written}' AS a",
    "ATTACH '{written}' AS a; SELECT 1",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "SET allowed_directories = ['/']; FROM read_text('{file}')",
    "RESET enable_external_access",
    "PRAGMA enable_logging",
    "CALL enable_logging()",
    "CREATE TABLE x (a INT)",
    "CREATE MACRO f() AS 1",
    "INSERT INTO orders VALUES (1)",
    "DELETE FROM orders",
    "DROP VIEW orders",
    "CHECKPOINT",
    "EXPLAIN ANALYZE SELECT 1",
    "PREPARE x AS SELECT 1",
    "USE temp",
    "BEGIN",
    "SELECT 1) AS x; COPY (SELECT 1) TO '{written}'; SELECT * FROM (SELECT 1",
    "FROM json_execute_serialized_sql('{{\"a\": 1}}')",
)  # fmt: skip


@pytest.mark.parametrize("query", HOSTILE)
def test_a_query_can_read_only_its_tables(session: tamis.Session, tmp_path: Path, query: str) -> None:
    (tmp_path / "secret.txt").write_text(SECRET)
    pq.write_table(pa.table({"a": [SECRET]}), tmp_path / "other.parquet")
    text = query.format(
        file=tmp_path / "secret.txt", other=tmp_path / "other.parquet", folder=tmp_path, written=tmp_path / "written"
    )
    with pytest.raises(errors.TamisError) as caught:
        session.sql(text, dialect="duckdb").to_arrow()
    assert SECRET not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.parquet", "secret.txt"]


def test_python_variables_and_other_queries_are_out_of_reach(session: tamis.Session) -> None:
    secret_rows = pa.table({"a": [SECRET]})
    assert secret_rows.num_rows == 1
    with pytest.raises(errors.TableNotFound):
        session.sql("FROM secret_rows", dialect="duckdb")
    session.sql("FROM enable_logging()", dialect="duckdb").to_arrow()
    session.sql(f"SELECT '{SECRET}'", dialect="duckdb").to_arrow()
    seen = session.sql("FROM duckdb_logs() SELECT message", dialect="duckdb").to_arrow()
    assert SECRET not in str(seen.to_pylist())
    with pytest.raises(errors.TamisError):
        session.sql("FROM duckdb_secrets()", dialect="duckdb").to_arrow()


@pytest.mark.parametrize("query", ["SELECT id FROM orders", "SELECT 1", "FROM query_table('orders')", "FROM open_one"])
def test_A1_a_session_with_policies_refuses_the_dialect(folder: Path, query: str) -> None:
    c = tamis.connect(policies={"tables": {"orders": [{"principals": ["*"], "rows": "id < 3"}]}})
    c.register("orders", str(folder / "orders.parquet"))
    c.register("open_one", str(folder / "customers.parquet"))
    for each in (c, c.as_principal("ann")):
        with pytest.raises(errors.AccessDenied, match="dialect='duckdb'"):
            each.sql(query, dialect="duckdb")
        with pytest.raises(errors.AccessDenied, match="dialect='duckdb'"):
            each.explain(query, dialect="duckdb")


# --- Command line -----------------------------------------------------------------------------------------------------


def test_the_command_line_accepts_the_dialect(folder: Path) -> None:
    query = "FROM orders SELECT max_by(region, id) AS r, count(*) AS n WHERE id < 9"
    found = CliRunner().invoke(
        program, ["sql", query, "--dialect", "duckdb", "--table", f"orders={folder}/orders.parquet"]
    )
    assert (found.exit_code, found.stdout) == (0, "r\tn\neu\t9\n")
    shown = CliRunner().invoke(
        program, ["sql", query, "--dialect", "duckdb", "--explain", "--table", f"orders={folder}/orders.parquet"]
    )
    assert "`id` < 9" in shown.stdout
