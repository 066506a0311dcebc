"""SQL over databases: pushdown into them, equal rows, and joins with tables of a lake."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.servers.postgresql import find_programs, run_server
from tamis.errors import AccessDenied, TamisError
from tamis.session import Session

pytest.importorskip("adbc_driver_sqlite", reason="adbc-driver-sqlite is not installed")

TABLES = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, city TEXT, score REAL);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, amount INTEGER, note TEXT);
"""
CUSTOMERS = [(1, "Ana", "Oslo", 1.5), (2, "ben", "oslo", 2.5), (3, "Ça", None, None), (4, "dan", "Rome", -1.0)]
ORDERS = [(number, number % 5, number * 10, f"n{number % 3}" if number % 4 else None) for number in range(1, 41)]


@pytest.fixture(scope="module", params=["sqlite", "duckdb", "postgresql"])
def uri(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A database with customers and their orders."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "sqlite":
        with sqlite3.connect(folder / "shop.db") as sqlite:
            sqlite.executescript(TABLES)
            sqlite.executemany("INSERT INTO customers VALUES (?, ?, ?, ?)", CUSTOMERS)
            sqlite.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", ORDERS)
        sqlite.close()
        yield str(folder / "shop.db")
    elif request.param == "duckdb":
        connection = duckdb.connect(str(folder / "shop.duckdb"))
        connection.execute(TABLES.replace("REAL", "DOUBLE").replace("INTEGER", "BIGINT"))
        connection.executemany("INSERT INTO customers VALUES (?, ?, ?, ?)", CUSTOMERS)
        connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", ORDERS)
        connection.close()
        yield f"duckdb:///{folder / 'shop.duckdb'}"
    else:
        dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
        if find_programs() is None:
            pytest.skip("no PostgreSQL server is installed: scripts/ensure_postgresql.sh says how to get one")
        with run_server() as uri:
            with dbapi.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
                for table in TABLES.replace("REAL", "float8").replace("INTEGER", "bigint").strip().split("\n"):
                    cursor.execute(table.rstrip(";"))
                cursor.executemany("INSERT INTO customers VALUES ($1, $2, $3, $4)", CUSTOMERS)
                cursor.executemany("INSERT INTO orders VALUES ($1, $2, $3, $4)", ORDERS)
            yield uri


@pytest.fixture(scope="module")
def shop(uri: str) -> Session:
    return tamis.connect().attach("shop", uri)


@pytest.fixture(scope="module")
def in_memory() -> Session:
    """The same tables in memory. Nothing is pushed into a database."""
    connection = tamis.connect()
    names = (("id", "name", "city", "score"), ("id", "customer", "amount", "note"))
    for table, rows, columns in zip(("customers", "orders"), (CUSTOMERS, ORDERS), names, strict=True):
        connection.register(
            f"shop.{table}", pa.table(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True)))
        )
    return connection


# Each query with a word that the SQL for the database contains, and one that it does not contain.
QUERIES = {
    "SELECT id FROM shop.customers WHERE city = 'oslo'": ("WHERE", None),
    "SELECT name FROM shop.customers WHERE name > 'Z' OR city IS NULL": ("WHERE", None),
    "SELECT id FROM shop.customers WHERE name LIKE '%a%'": ("WHERE", None),
    "SELECT id FROM shop.customers WHERE upper(city) = 'OSLO'": (None, "WHERE"),
    "SELECT id FROM shop.orders WHERE amount / 3 > 50": (None, "WHERE"),
    "SELECT id FROM shop.orders WHERE amount + 1 > 50 AND customer = 2": ("WHERE", None),
    "SELECT count(*) FROM shop.orders": ("COUNT(*)", None),
    "SELECT count(note), min(note), max(amount) FROM shop.orders WHERE amount > 100": ("COUNT", None),
    "SELECT note, count(*), count(DISTINCT customer) FROM shop.orders GROUP BY note": ("GROUP BY", None),
    "SELECT customer, avg(amount) FROM shop.orders GROUP BY customer": (None, "GROUP BY"),
    "SELECT sum(score) FROM shop.customers": (None, "SUM"),
    "SELECT note, max(amount) FROM shop.orders GROUP BY note HAVING max(amount) > 380": ("GROUP BY", None),
    "SELECT name FROM shop.customers ORDER BY name LIMIT 2": ("ORDER BY", None),
    "SELECT city, id FROM shop.customers ORDER BY city DESC, id LIMIT 3": ("ORDER BY", None),
    "SELECT c.name, o.id FROM shop.orders o JOIN shop.customers c ON o.customer = c.id WHERE o.id > 30": ("JOIN", None),
    "SELECT o.id, c.name FROM shop.orders o LEFT JOIN shop.customers c ON o.customer = c.id": ("LEFT JOIN", None),
    "SELECT a.name, b.name AS other FROM shop.customers a JOIN shop.customers b ON a.id = b.id": ("JOIN", None),
    "SELECT DISTINCT note FROM shop.orders": ("GROUP BY", None),
    "SELECT id FROM shop.customers EXCEPT SELECT customer FROM shop.orders": (None, None),
    "SELECT id, row_number() OVER (ORDER BY amount DESC) AS place FROM shop.orders WHERE id < 5": ("WHERE", None),
    "SELECT year(DATE '2024-01-01') AS y, id FROM shop.customers WHERE score BETWEEN 0.1 AND 2.5": ("WHERE", None),
}  # fmt: skip


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_gives_the_same_rows_and_the_database_does_its_part(
    shop: Session, in_memory: Session, query: str
) -> None:
    found = shop.sql(query).to_arrow()
    expected = in_memory.sql(query).to_arrow()
    assert found.schema.names == expected.schema.names
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))
    assert found.schema.types == expected.schema.types
    if "ORDER BY" in query and "OVER" not in query:
        assert found.to_pylist() == expected.to_pylist()
    asked = shop.explain(query).split("Optimized plan")[1]
    wanted, unwanted = QUERIES[query]
    assert wanted is None or wanted in asked
    assert unwanted is None or unwanted not in asked
    assert shop.sql(query, rules=False).to_arrow().num_rows == expected.num_rows


def test_a_limit_runs_in_the_database(shop: Session) -> None:
    assert shop.sql("SELECT id FROM shop.orders LIMIT 3").to_arrow().num_rows == 3
    assert "LIMIT 3" in shop.explain("SELECT id FROM shop.orders LIMIT 3")


def test_sums_of_integers_run_in_the_database_if_they_cannot_overflow(
    shop: Session, in_memory: Session, uri: str
) -> None:
    query = "SELECT customer, sum(amount) AS total FROM shop.orders GROUP BY customer ORDER BY customer"
    assert shop.sql(query).to_arrow() == in_memory.sql(query).to_arrow()
    assert ("SUM" in shop.explain(query).split("Optimized plan")[1]) is not uri.endswith(".db")


def test_a_join_with_a_table_of_a_lake_prunes_it_by_the_rows_of_the_database(shop: Session, tmp_path: Path) -> None:
    for part in range(40):
        (tmp_path / "visits").mkdir(exist_ok=True)
        rows = pa.table({"customer": pa.array([part] * 50, pa.int64()), "n": pa.array(range(50), pa.int64())})
        pq.write_table(rows, tmp_path / "visits" / f"part-{part:02}.parquet")
    shop.register("visits", tamis.open(tmp_path / "visits"))
    query = (
        "SELECT c.name, count(*) AS visits FROM visits v JOIN shop.customers c ON v.customer = c.id "
        "WHERE c.city = 'Rome' GROUP BY c.name"
    )
    assert shop.sql(query).to_arrow().to_pylist() == [{"name": "dan", "visits": 50}]


def test_names_without_and_with_a_schema_and_in_any_case(shop: Session, uri: str) -> None:
    schema = "public" if uri.startswith("postgresql") else "main"
    for name in ("shop.Customers", f"shop.{schema}.customers", "SHOP.CUSTOMERS"):
        assert shop.sql(f"SELECT count(*) FROM {name}").to_arrow().column(0).to_pylist() == [4]
    with pytest.raises(TamisError, match="nothing"):
        shop.sql("SELECT * FROM shop.nothing").to_arrow()


def test_a_policy_function_gets_one_name_of_a_table_in_any_spelling(uri: str) -> None:
    schema = "public" if uri.startswith("postgresql") else "main"
    asked: set[str] = set()

    def find_policy(table: str, principal: str | None) -> dict[str, str]:
        asked.add(table)
        return {"rows": "city = 'Oslo'" if table == "shop.customers" else "TRUE"}

    for name in ("SHOP.Customers", f"shop.{schema}.customers", "shop.`CUSTOMERS`", f"shop.{schema.upper()}.Customers"):
        connection = tamis.connect(policies=find_policy).attach("shop", uri)
        assert connection.sql(f"SELECT id FROM {name}").to_arrow().to_pylist() == [{"id": 1}]
    assert asked == {"shop.customers"}


def test_policies_of_tables_of_a_database_apply_to_each_of_their_names(uri: str) -> None:
    schema = "public" if uri.startswith("postgresql") else "main"
    rule = {"principals": ["ana"], "rows": "city = 'Oslo'", "masks": {"name": "concat(substring(name, 1, 1), '…')"}}
    for entry in ("shop.customers", f"shop.{schema}.customers"):
        connection = tamis.connect(policies={"default": "allow", "tables": {entry: [rule]}}).attach("shop", uri)
        ana = connection.as_principal("ana")
        for name in ("shop.customers", f"shop.{schema}.customers"):
            assert ana.sql(f"SELECT id, name FROM {name}").to_arrow().to_pylist() == [{"id": 1, "name": "A…"}]
            assert ana.sql(f"SELECT id FROM {name} WHERE name = 'Ana'").to_arrow().num_rows == 0
            assert ana.sql(f"SELECT count(*), max(score) FROM {name}").to_arrow().to_pylist() == [
                {"count(*)": 1, "max(score)": 1.5}
            ]
            assert "Oslo" not in ana.explain(f"SELECT id FROM {name}")
        with pytest.raises(AccessDenied):
            connection.as_principal("ben").sql("SELECT * FROM shop.customers").to_arrow()
