"""Queries over tables of three formats return the rows of DuckDB over the same data, with and without rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import tamis
from builders.query import sql_tables

QUERIES = {
    "star": "SELECT * FROM customers",
    "columns of one of two": "SELECT c.*, o.id FROM customers c JOIN orders o ON o.customer = c.id",
    "star without some": "SELECT * EXCEPT (note, created_at) FROM orders WHERE id < 5",
    "names in any case": "SELECT ID, C.NAME FROM Customers C WHERE c.iD > 3",
    "same column twice": "SELECT id, id, id AS again FROM orders WHERE id < 3",
    "expressions": "SELECT id * 2 + 1 AS odd, upper(note), amount / 2 FROM orders WHERE id % 10 = 3",
    "earlier alias": "SELECT id + 1 AS next, next * 2 AS twice FROM orders WHERE id < 4",
    "null logic": "SELECT id FROM orders WHERE NOT (amount > 100) OR note IS NULL",
    "in and between":
    "SELECT id FROM orders WHERE customer IN (1, 2, NULL) AND day BETWEEN '2024-01-03' AND '2024-01-09'",
    "not in with null": "SELECT id FROM orders WHERE customer NOT IN (1, 2)",
    "like": "SELECT id FROM orders WHERE note LIKE 'note 1%' OR note LIKE '%5'",
    "case": "SELECT CASE WHEN amount > 100 THEN 'big' WHEN amount IS NULL THEN 'none' ELSE 'small' END AS size "
    "FROM orders",
    "casts": "SELECT CAST(amount AS INT), CAST(id AS STRING), CAST('2024-01-05' AS DATE) FROM orders WHERE id < 9",
    "timestamps": "SELECT id, CAST(year(created_at) AS INT), CAST(hour(created_at) AS INT), "
    "created_at + INTERVAL '1' DAY FROM orders WHERE created_at >= TIMESTAMP '2024-01-05 10:00:00'",
    "struct fields": "SELECT address.city, c.address.zip FROM customers c WHERE c.address.zip > 4",
    "count": "SELECT count(*), count(amount), count(DISTINCT customer) FROM orders",
    "count with filter": "SELECT count(*) FROM orders WHERE region = 'eu' AND id < 100",
    "count of none": "SELECT count(*), sum(amount), min(id) FROM orders WHERE id < 0",
    "extremes": "SELECT min(id), max(id), min(day), max(day), min(note), max(amount) FROM orders WHERE region = 'us'",
    "extremes of floats": "SELECT min(value), max(value), count(value) FROM events",
    "sums": "SELECT sum(id), avg(id), sum(amount), avg(amount), sum(price), avg(price) FROM orders",
    "groups": "SELECT region, count(*), sum(amount) FROM orders GROUP BY region",
    "groups by number and alias": "SELECT region AS r, CAST(year(day) AS INT) AS y, count(*) FROM orders GROUP BY 1, y",
    "groups by expression": "SELECT id % 3, id % 3 + 1, max(id) FROM orders GROUP BY id % 3",
    "groups by one of two names": "SELECT a.id, count(*) FROM orders a FULL JOIN (SELECT * FROM customers "
    "WHERE Id > 3) b ON a.id = b.Id GROUP BY a.id HAVING count(*) > 0",
    "groups with null": "SELECT customer, count(*) FROM orders GROUP BY customer",
    "groups of floats": "SELECT value, count(*) FROM events GROUP BY value",
    "having": "SELECT customer, count(*) AS n FROM orders GROUP BY customer HAVING n > 20 AND sum(amount) > 10",
    "having without groups": "SELECT max(id) FROM orders HAVING count(*) > 10000",
    "filtered aggregates":
    "SELECT count(*) FILTER (WHERE id < 10), sum(amount) FILTER (WHERE region = 'eu') FROM orders",
    "aggregates of aggregates": "SELECT max(n) FROM (SELECT region, count(*) AS n FROM orders GROUP BY region)",
    "distinct": "SELECT DISTINCT region, customer FROM orders",
    "inner join": "SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id WHERE c.region = 'eu'",
    "comma join": "SELECT o.id, e.kind FROM orders o, events e WHERE o.id = e.order_id AND o.region = 'us'",
    "left join": "SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id AND c.region = 'eu'",
    "left join, null side tested":
    "SELECT o.id FROM orders o LEFT JOIN customers c ON o.customer = c.id WHERE c.id IS NULL",
    "right join": "SELECT o.id, c.id FROM orders o RIGHT JOIN customers c ON o.customer = c.id AND o.id < 20",
    "full join": "SELECT o.id, c.id FROM (SELECT * FROM orders WHERE id < 20) o FULL JOIN customers c ON o.customer = "
    "c.id",
    "semi join": "SELECT c.name FROM customers c LEFT SEMI JOIN orders o ON o.customer = c.id AND o.id > 200",
    "anti join": "SELECT c.name FROM customers c LEFT ANTI JOIN orders o ON o.customer = c.id",
    "cross join": "SELECT c.id, e.kind FROM customers c CROSS JOIN (SELECT DISTINCT kind FROM events) e",
    "join on inequality": "SELECT count(*) FROM orders o JOIN events e ON o.id < e.order_id AND o.region = 'eu'",
    "self join":
    "SELECT a.id, b.id FROM orders a JOIN orders b ON a.id = b.id + 1 WHERE a.region = 'eu' AND b.id < 50",
    "three tables": "SELECT c.name, count(*) FROM orders o JOIN customers c ON o.customer = c.id "
    "JOIN events e ON e.order_id = o.id WHERE e.kind = 'buy' GROUP BY c.name",
    "using": "SELECT id, o.amount FROM orders o JOIN (SELECT order_id AS id, kind FROM events) e USING (id) WHERE "
    "kind = 'view'",
    "union all": "SELECT id FROM orders WHERE id < 3 UNION ALL SELECT id FROM customers WHERE id < 3",
    "union": "SELECT region FROM orders UNION SELECT region FROM customers",
    "intersect": "SELECT region FROM orders INTERSECT SELECT region FROM customers",
    "except": "SELECT region FROM customers EXCEPT SELECT region FROM orders",
    "with": "WITH eu AS (SELECT * FROM orders WHERE region = 'eu') SELECT a.id FROM eu a JOIN eu b ON a.id = b.id "
    "+ 3",
    "with groups, used twice": "WITH g AS (SELECT region, sum(amount) AS s, count(*) AS n FROM orders GROUP BY region) "
    "SELECT a.region, a.s, b.n FROM g a JOIN g b ON a.n = b.n AND a.region < b.region",
    "with groups, used for their maximum": "WITH g AS (SELECT customer, sum(id) AS s FROM orders GROUP BY customer) "
    "SELECT customer FROM g WHERE s = (SELECT max(s) FROM g)",
    "with a join, used twice": "WITH j AS (SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id) "
    "SELECT a.name, count(*) FROM j a JOIN j b ON a.id = b.id + 9 GROUP BY a.name",
    "with that hides a table": "WITH orders AS (SELECT 1 AS id) SELECT * FROM orders",
    "with columns": "WITH c (key, label) AS (SELECT id, name FROM customers) SELECT label FROM c WHERE key = 5",
    "values": "SELECT * FROM VALUES (1, 'a'), (2, 'b') AS t(x, y) WHERE x > 1",
    "no table": "SELECT 1 AS one, 'x' AS text",
    "scalar subquery": "SELECT id FROM orders WHERE amount > (SELECT avg(amount) FROM orders WHERE region = 'eu')",
    "subquery in select": "SELECT id, (SELECT max(id) FROM customers) AS most FROM orders WHERE id < 3",
    "correlated subquery":
    "SELECT c.id, (SELECT count(*) FROM orders o WHERE o.customer = c.id AND o.id < 100) FROM customers c",
    "exists": "SELECT c.id FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id AND "
    "o.region = 'us')",
    "not exists": "SELECT c.id FROM customers c WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id)",
    "in subquery": "SELECT id FROM orders WHERE customer IN (SELECT id FROM customers WHERE region = 'eu') "
    "AND region = "
    "'us'",
    "not in subquery with null": "SELECT id FROM customers WHERE id NOT IN (SELECT customer FROM orders)",
    "windows": "SELECT id, rank() OVER (PARTITION BY region ORDER BY amount DESC NULLS LAST, id) AS r FROM orders "
    "WHERE id < 40",
    "windows over a join": "SELECT o.id, sum(o.id) OVER (PARTITION BY c.region) AS s FROM orders o JOIN customers c "
    "ON o.customer = c.id WHERE o.region = 'eu' AND c.name LIKE 'customer 1%'",
    "window in a subquery": "SELECT region, id FROM (SELECT region, id, row_number() OVER (PARTITION BY region ORDER "
    "BY id) AS n "
    "FROM orders WHERE amount > 10) WHERE n <= 2",
    "rollup": "SELECT region, customer, count(*) FROM orders GROUP BY ROLLUP (region, customer)",
    "grouping sets":
    "SELECT region, customer, count(*) FROM orders GROUP BY GROUPING SETS ((region), (customer), ())",
    "other aggregates": "SELECT region, stddev(amount), median(id), max_by(id, amount) FROM orders GROUP BY region",
    "recursion": "WITH RECURSIVE n(i) AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 5) "
    "SELECT o.id FROM orders o JOIN n ON o.id = n.i WHERE o.region = 'eu'",
    "outer join in text": "SELECT o.id, c.name, rank() OVER (ORDER BY o.id) FROM orders o LEFT JOIN customers c "
    "ON o.customer = c.id WHERE o.id < 30 AND (c.region = 'eu' OR c.region IS NULL)",
    "condition on all of one side":
    "SELECT count(*) FROM orders o LEFT JOIN customers c ON o.customer = c.id WHERE c.name IS NULL",
    "constant conditions": "SELECT id FROM orders WHERE TRUE AND 1 = 1 AND id = 7",
    "nothing": "SELECT id FROM orders WHERE FALSE",
    "deep subqueries": "SELECT n FROM (SELECT n + 1 AS n FROM (SELECT id AS n FROM orders WHERE id < 9) WHERE n > "
    "2) WHERE n "
    "< 8",
}  # fmt: skip

ORDERED = {
    "order": "SELECT id, amount FROM orders WHERE region = 'eu' ORDER BY amount DESC NULLS LAST, id LIMIT 7",
    "order by nulls first": "SELECT id, amount FROM orders ORDER BY amount NULLS FIRST, id LIMIT 20",
    "order by what is not selected": "SELECT note FROM orders WHERE id > 100 ORDER BY id DESC LIMIT 5",
    "order by alias": "SELECT -id AS id FROM orders ORDER BY id LIMIT 3",
    "order by position": "SELECT region, id FROM orders ORDER BY 1, 2 DESC LIMIT 4",
    "order by expression": "SELECT id FROM orders ORDER BY id % 7, id LIMIT 12",
    "order by aggregate": "SELECT region FROM orders GROUP BY region ORDER BY sum(id) DESC",
    "offset": "SELECT id FROM orders ORDER BY id LIMIT 5 OFFSET 17",
    "offset alone": "SELECT id FROM orders ORDER BY id OFFSET 235",
    "order of union": "SELECT id FROM customers UNION ALL SELECT id FROM orders WHERE id < 4 ORDER BY id DESC LIMIT 6",
    "order of distinct": "SELECT DISTINCT region FROM orders ORDER BY region DESC",
    "order of floats": "SELECT value, order_id FROM events WHERE value < 9 OR value > 9 "
    "ORDER BY value DESC, order_id LIMIT 30",
    "limit in a subquery": "SELECT count(*) FROM (SELECT id FROM orders WHERE region = 'us' LIMIT 11)",
    "limit none": "SELECT id FROM orders LIMIT 0",
    "order of text": "SELECT id, row_number() OVER (ORDER BY id DESC) AS n FROM orders WHERE id < 5 ORDER BY n",
}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tamis.Session:
    return sql_tables.open_session(sql_tables.write_tables(tmp_path_factory.mktemp("tables")))


@pytest.fixture(scope="module")
def peer() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = sql_tables.open_duckdb()
    yield connection
    connection.close()


def to_duckdb(query: str) -> str:
    """Return a query with the few functions that DuckDB spells differently replaced."""
    words = {
        "LEFT SEMI": "SEMI",
        "LEFT ANTI": "ANTI",
        "EXCEPT (": "EXCLUDE (",
        "CAST(amount AS INT)": "CAST(trunc(amount) AS INT)",
        "FROM VALUES (1, 'a'), (2, 'b') AS": "FROM (VALUES (1, 'a'), (2, 'b')) AS",
    }
    for spark, own in words.items():
        query = query.replace(spark, own)
    return query


@pytest.fixture(autouse=True)
def runs_as_planned(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that the engine accepts the plans of these queries."""
    caplog.set_level("INFO", logger="tamis")
    yield
    assert "does not accept the plan" not in caplog.text


@pytest.mark.parametrize("name", QUERIES)
def test_rows_equal_those_of_duckdb(session: tamis.Session, peer: duckdb.DuckDBPyConnection, name: str) -> None:
    query = QUERIES[name]
    expected = peer.sql(to_duckdb(query)).to_arrow_table()
    found = session.sql(query).to_arrow()
    assert sql_tables.has_same_rows(found, expected), session.explain(query)
    assert sql_tables.has_types_of_duckdb(found, expected), query
    without = session.sql(query, rules=False).to_arrow()
    assert sql_tables.has_same_rows(without, expected), session.explain(query, rules=False)


@pytest.mark.parametrize("name", ORDERED)
def test_rows_in_order_equal_those_of_duckdb(
    session: tamis.Session, peer: duckdb.DuckDBPyConnection, name: str
) -> None:
    query = ORDERED[name]
    ordered = "ORDER BY" in query
    nulls = query.replace("ORDER BY region DESC", "ORDER BY region DESC NULLS LAST")
    expected = peer.sql(nulls).to_arrow_table()
    for rules in (True, False):
        found = session.sql(query, rules=rules).to_arrow()
        assert sql_tables.has_same_rows(found, expected, ordered=ordered), session.explain(query, rules=rules)


def test_column_names_are_those_of_the_query(session: tamis.Session) -> None:
    found = session.sql("SELECT O.ID, o.amount AS Total, address.city FROM orders o, customers LIMIT 1")
    assert found.to_arrow().column_names == ["id", "Total", "city"]
    grouped = session.sql("SELECT region AS Where_, sum(amount), count(*) FROM orders GROUP BY region")
    assert grouped.to_arrow().column_names == ["Where_", "sum(amount)", "count(*)"]


def test_a_query_converts_to_every_result_type(session: tamis.Session, tmp_path: Path) -> None:
    query = session.sql("SELECT id, region FROM orders WHERE id < 10 ORDER BY id")
    assert sum(batch.num_rows for batch in query.to_batches()) == 10
    assert query.to_pandas()["id"].tolist() == list(range(10))
    assert query.to_polars()["id"].to_list() == list(range(10))
    relation = query.to_duckdb()
    assert relation.aggregate("count(*)").fetchall() == [(10,)]
    assert relation.aggregate("max(id)").fetchall() == [(9,)]
