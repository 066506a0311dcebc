"""Errors in queries are reported in terms of the query when it is created, by `sql`, `explain` and the names alike."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.errors import AmbiguousColumn, EvaluationError, ExpressionError, ParseError, TypeMismatch, UnknownColumn
from tamis.query.query import CompiledQuery

ORDERS = pa.table(
    {
        "id": [1, 2, 3],
        "amount": [1.5, 2.5, None],
        "region": ["eu", "us", "eu"],
        "day": [date(2024, 3, 1)] * 3,
        "customer": [1, 1, 2],
        "shape": [{"w": 1, "h": 2}] * 3,
    }
)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tamis.Session:
    path = tmp_path_factory.mktemp("tables") / "orders.parquet"
    pq.write_table(ORDERS, path)
    made = tamis.connect()
    made.register("orders", path)
    made.register("customers", pa.table({"id": [1, 2], "name": ["Ana", "Ben"]}))
    return made


COLUMNS = "Columns: id, amount, region, day, customer, shape."


@pytest.mark.parametrize(
    ("query", "kind", "message"),
    [
        ("SELECT idd FROM orders", UnknownColumn,
         f"no column 'idd' in orders (at: query, character 8). Did you mean 'id'? {COLUMNS}"),
        ("SELECT 1\nFROM orders\nWHERE idd > 1", UnknownColumn, "(at: query, line 3, character 7)"),
        ("SELECT o.idd FROM orders o", UnknownColumn, "no column 'idd' in orders (at: query, character 8)"),
        ("SELECT x.id FROM orders o", UnknownColumn, "nothing in FROM is called 'x'. In FROM: o."),
        ("SELECT orders.id FROM orders o", UnknownColumn, "It has the alias o: write o.id"),
        ("SELECT id FROM orders WHERE region = eu", UnknownColumn, "Quote a text with single quotes: 'eu'."),
        ("SELECT rank() OVER (ORDER BY idd) FROM orders", UnknownColumn, "Did you mean 'id'?"),
        ("SELECT id FROM orders ORDER BY ammount LIMIT 1", UnknownColumn, "Did you mean 'amount'?"),
        ("SELECT * EXCEPT (idd) FROM orders", UnknownColumn, "no column 'idd' in orders"),
        ("SELECT shape.x FROM orders", UnknownColumn, "no field 'x' in struct 'shape' of orders"),
        ("SELECT o.id FROM orders o JOIN customers c ON o.customer = c.ident", UnknownColumn, "'ident' in customers"),
        ("SELECT o.id FROM orders o JOIN customers c USING (custmer)", UnknownColumn, "Did you mean 'customer'?"),
        ("WITH a AS (SELECT idd FROM orders) SELECT idd FROM a", UnknownColumn, "no column 'idd' in orders"),
        ("WITH a AS (SELECT id AS x FROM orders) SELECT y FROM a", UnknownColumn, "no column 'y' in a"),
        ("SELECT id FROM (SELECT id FROM orders) WHERE idd = 1", UnknownColumn, "no column 'idd' in the subquery"),
        ("SELECT id FROM orders WHERE EXISTS (SELECT 1 FROM customers c WHERE c.id = orders.customr)", UnknownColumn,
         "no column 'customr' in orders"),
        ("SELECT id FROM orders o JOIN customers c ON o.customer = c.id", AmbiguousColumn,
         "'id' is a column of o and c (at: query, character 8). Write o.id or c.id"),
        ("SELECT uper(region) FROM orders", EvaluationError,
         "there is no function uper with Spark's meaning on the embedded engine (at: query, character 8). Did you mean "
         "upper? docs/reference/expressions.md lists the supported functions"),
        ("SELECT upper(region, 5) FROM orders", ExpressionError,
         "upper takes 1 argument, not 2 (at: query, character 8)"),
        ("SELECT CAST(id AS foo) FROM orders", ParseError, "no type 'foo'"),
    ],
)  # fmt: skip
def test_sql_and_explain_report_errors_before_running(
    session: tamis.Session, query: str, kind: type[tamis.TamisError], message: str
) -> None:
    for ask in (session.sql, session.explain):
        with pytest.raises(kind, match=re.escape(message)) as raised:
            ask(query)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("query", "kind", "message"),
    [
        ("SELECT region, id FROM orders GROUP BY region", ExpressionError, "'id' is neither grouped by nor inside"),
        ("SELECT region FROM orders WHERE count(*) > 1", ExpressionError, "Filter groups with HAVING"),
        ("SELECT * FROM orders ORDER BY 17", ExpressionError, "there are 6 columns"),
        ("SELECT id FROM orders UNION SELECT id, region FROM orders", ExpressionError, "the sides of UNION"),
        ("SELECT sum(region) FROM orders", TypeMismatch, "sum does not take string (at: query, character 8)"),
        ("SELECT * orders", ExpressionError, "SELECT * needs a FROM clause"),
        ("SELECT strpos(region, 'e') FROM orders", EvaluationError,
         "there is no function strpos with Spark's meaning on the embedded engine (at: query, character 8)"),
        ("SELECT idd FROM range(3)", UnknownColumn,
         "no column 'idd' in the sources of the query (at: query, character 8)"),
    ],
)  # fmt: skip
def test_explain_reports_errors_that_only_the_engine_finds(
    session: tamis.Session, query: str, kind: type[tamis.TamisError], message: str
) -> None:
    for ask in (lambda: session.sql(query).to_arrow(), lambda: session.explain(query)):
        with pytest.raises(kind, match=re.escape(message)) as raised:
            ask()
        assert not re.search(r"Binder|LINE|Candidate|input_|tamis_scan|\x1b", str(raised.value))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT id FROM orders WHERE day = 2024-03-03", "Compare it with DATE '2024-01-31'"),
        ("SELECT id FROM orders WHERE id = 'x'", "'x' (at: query, character 29): 'x' is not a valid bigint"),
        ("SELECT id FROM orders WHERE day > '2024-13-45'", "'2024-13-45' is not a valid date"),
        ("SELECT DATE '2024-13-45'", "invalid date '2024-13-45' (at: query, character 13)"),
        ("SELECT CAST(region AS INT) FROM orders", "invalid int 'eu' in region"),
        ("SELECT CAST('x' AS INT)", "invalid int 'x' in CAST('x' AS INT) (at: query, character 13)"),
        ("SELECT (SELECT id FROM orders) AS x", "a scalar subquery returned several rows"),
        ("SELECT id % 0 FROM orders", "division by zero in id % 0 (at: query, character 8). Exclude"),
        ("SELECT 7 div 0", "division by zero in 7 DIV 0 (at: query, character 8). Exclude"),
        ("SELECT pmod(id, 0), id % 2 FROM orders", "division by zero in pmod(id, 0) (at: query, character 8). Exclude"),
        ("SELECT id / (id - 1), id % (id - 1) FROM orders", "division by zero. Exclude such rows, as in CASE"),
        ("SELECT count(*, id) FROM orders", "not accept the query: STAR expression"),
        ("SELECT regexp_extract(region, '(') FROM orders",
         "support this use of Spark's regexp_extract (at: query, character 8): the regular expression '(' has syntax"),
        ("SELECT date_trunc('fortnight', day) FROM orders", "'fortnight' is not a unit of time"),
    ],
)  # fmt: skip
def test_invalid_values_are_reported_with_a_remedy(session: tamis.Session, query: str, message: str) -> None:
    with pytest.raises((TypeMismatch, EvaluationError), match=re.escape(message)) as raised:
        session.sql(query).to_arrow()
    assert not re.search(r"Error: |SET |TRY\(", str(raised.value))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT orders FROM orders",
        "SELECT o.shape.w FROM orders o",
        "SELECT amount AS a, a + 1 AS b FROM orders",
        "SELECT transform(array(1, 2), x -> x + id) FROM orders",
        "SELECT e.x FROM orders LATERAL VIEW explode(array(1, 2)) e AS x",
        "SELECT id FROM orders JOIN customers USING (id)",
        "SELECT id FROM orders NATURAL JOIN customers",
        "SELECT id FROM orders o LEFT SEMI JOIN customers c ON o.customer = c.id",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r",
        "SELECT b.n FROM (SELECT count(*) FROM orders) AS b(n)",
        "SELECT x.b FROM (VALUES (1, 2)) AS x(a, b)",
        "SELECT region AS r, count(*) AS n FROM orders GROUP BY r HAVING n > 1 ORDER BY n, sum(amount)",
        "SELECT id FROM orders WHERE id IN (SELECT c.id FROM customers c WHERE c.id = customer)",
        "SELECT row_number() OVER w AS k FROM orders WINDOW w AS (ORDER BY id) QUALIFY k = 1",
        "SELECT * FROM (SELECT region, amount FROM orders) PIVOT (sum(amount) FOR region IN ('eu', 'us'))",
        "SELECT instr(region, 'e') FROM orders",
        "SELECT id FROM orders WHERE id LIKE '1%'",
        "SELECT id FROM orders WHERE id = '2'",
        "SELECT id FROM customers ORDER BY (SELECT max(o.id) FROM orders o WHERE o.customer = customers.id)",
    ],
)  # fmt: skip
def test_queries_that_the_engine_accepts_run(session: tamis.Session, query: str) -> None:
    session.explain(query)
    assert session.sql(query).to_arrow().num_rows


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("selct id FROM orders", "a query cannot start with 'selct' (character 1). Did you mean SELECT?"),
        ("SELECT id form orders", "unexpected 'orders' after 'form' (character 16). Did you mean FROM?"),
        ("SELECT id FROM orders wher id = 1", "Did you mean WHERE?"),
        ("SELECT top 5 id FROM orders", "write LIMIT at the end"),
        ("SELECT id FROM orders GROUP region", "Write GROUP BY"),
        ("SELECT * FROM", "nothing follows 'FROM' (character 10). FROM needs a table"),
        ("SELECT * FROM orders o JOIN", "nothing follows 'JOIN'"),
        ("SELECT COLUMNS('.*') FROM orders", "unknown function COLUMNS (character 8). Name the columns, or"),
        ("SELECT * FROM orders LIMIT 1.5", "LIMIT must be a whole number of rows, found 1.5 (character 28)"),
        ("SELECT * FROM (SELECT * FROM orders LIMIT -1)", "LIMIT must be a whole number of rows, found -1"),
        ("SELECT * FROM orders LIMIT 1 OFFSET '1'", "OFFSET must be a whole number of rows, found '1'"),
        ("SELECT * FROM orders LIMIT 99999999999999999999", "LIMIT must be a whole number of rows"),
        ("SELECT * FROM delta.", "the name of a table is missing after '.'"),
        ("SELECT id,, region FROM orders", "nothing follows ','"),
        ("SELECT id,\nFROM orders", "nothing follows ','"),
        ("SELECT id\nFROM orders\nWHERE", "nothing follows 'WHERE' (line 3, character 1)"),
        ("SELECT id FROM orders LIMIT", "Write a number there"),
        ("SELECT id FROM orders WHERE id = 1 && id = 2", "Write AND"),
        ("SHOW TABLES", "SHOW is not a query. Only queries run here: SELECT, WITH, VALUES; c.tables"),
        ("EXPLAIN SELECT 1", "EXPLAIN is not a query"),
        ("orders", "a query cannot start with 'orders'"),
    ],
)  # fmt: skip
def test_misspelt_or_missing_keywords(
    session: tamis.Session, caplog: pytest.LogCaptureFixture, query: str, message: str
) -> None:
    with pytest.raises(ParseError, match=re.escape(message)):
        session.sql(query)
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ("SELECT id FROM orders WHERE \"region\" = 'eu'", "'region' = 'eu'"),
        ('SELECT count(*) FROM orders GROUP BY "region"', "GROUP BY 'region'"),
        ('SELECT id FROM orders ORDER BY "id" DESC', "ORDER BY 'id' DESC"),
        ("SELECT 'region', id FROM orders GROUP BY id", None),
        ("SELECT id FROM orders WHERE region = 'id'", None),
    ],
)
def test_a_text_that_spells_a_column_is_a_warning(
    session: tamis.Session, caplog: pytest.LogCaptureFixture, query: str, part: str | None
) -> None:
    session.sql(query)
    assert caplog.messages == (
        []
        if part is None
        else [f"{part} uses a text, and not a column: double quotes make a text, so write a name as `name`"]
    )


def test_columns_may_have_the_names_of_clauses() -> None:
    session = tamis.connect().register("t", pa.table({"from": [1], "on": [2], "limit": [3], "join": [4]}))
    query = "SELECT t.from, t.on, limit, t.join FROM t"
    assert session.sql(query).to_arrow().to_pylist() == [{"from": 1, "on": 2, "limit": 3, "join": 4}]


def test_a_planned_query_is_not_checked_by_the_engine(session: tamis.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompiledQuery, "schema", property(lambda query: pytest.fail("the engine was asked")))
    session.sql("SELECT region, sum(amount) FROM orders WHERE id > 1 GROUP BY region")
    session.sql("SELECT rank() OVER (ORDER BY id) FROM orders")


def test_A5_errors_under_a_policy_reveal_nothing(tmp_path: Path) -> None:
    policies = {"tables": {"orders": [{"principals": ["ana"], "rows": "region = 'eu'", "masks": {"amount": "NULL"}}]}}
    session = tamis.connect(policies=policies).register("orders", ORDERS).as_principal("ana")
    for ask in (session.sql, session.explain):
        with pytest.raises(UnknownColumn, match=f"Did you mean 'id'\\? {COLUMNS}$"):
            ask("SELECT idd FROM orders")
        with pytest.raises(EvaluationError, match="there is no function uper"):
            ask("SELECT uper(region) FROM orders")


# --- The principal ----------------------------------------------------------------------------------------------------


def test_current_user_is_the_principal_in_queries_too(session: tamis.Session) -> None:
    session = tamis.connect().register("t", pa.table({"owner": ["ana", "ben", None]}))
    ana = session.as_principal("ana")
    for call in ("current_user()", "current_user", "session_user()", "user()"):
        query = f"SELECT {call} AS who, count(*) AS n FROM t WHERE owner = {call}"
        assert ana.sql(query).to_arrow().to_pylist() == [{"who": "ana", "n": 1}]
        assert session.sql(query).to_arrow().to_pylist() == [{"who": None, "n": 0}]
    assert ana.sql("SELECT current_user()").to_arrow().to_pylist() == [{"current_user()": "ana"}]
    assert ana.sql("SELECT rank() OVER (ORDER BY current_user()) AS r FROM t").to_arrow()["r"].to_pylist() == [1, 1, 1]


def test_X10_a_principal_with_quotes_is_a_value() -> None:
    session = tamis.connect().register("t", pa.table({"owner": ["o'ne", "x"]})).as_principal("o'ne")
    query = "SELECT owner, upper(current_user()) AS who FROM t WHERE owner = current_user()"
    assert session.sql(query).to_arrow().to_pylist() == [{"owner": "o'ne", "who": "O'NE"}]
