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
from tamis.query.catalog import VisibleTables
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
        ("SELECT id FROM orders WHERE region = ‘eu’", UnknownColumn, "Use straight quotes for a text: 'eu'."),
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
         "upper? The reference of expressions lists the supported functions"),
        ("SELECT upper(region, 5) FROM orders", ExpressionError,
         "upper takes 1 argument, not 2 (at: query, character 8)"),
        ("SELECT CAST(id AS foo) FROM orders", ParseError, "no type 'foo'"),
        ("SELECT id FROM orders WHERE id = 1 AND day = 'x'", TypeMismatch,
         "cannot compare in orders.day = 'x' (at: query, character 40): 'x' is not a valid date. Write a value such as "
         "DATE '2024-01-31'"),
        ("SELECT id FROM orders WHERE 'x' < amount", TypeMismatch, "(at: query, character 35): 'x' is not a valid"),
        ("SELECT rank() OVER (ORDER BY id) FROM orders WHERE day >= 'x'", TypeMismatch, "'x' is not a valid date"),
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
        ("SELECT sum(day) FROM orders", ParseError, "sum takes numbers, not a date or time (character 12). Write min"),
        ("SELECT sum(shape) FROM orders", ParseError, "sum takes numbers, not a list, map or struct (character 12). "),
        ("SELECT sum(array(1)) FROM orders", TypeMismatch, "sum does not take array<int>, only numbers (at: query, "),
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
        ("SELECT 1/0", "division by zero in 1 / 0 (at: query, character 8). "
         "Leave such rows out, or make them NULL, as in a / nullif(b, 0)"),
        ("SELECT id % 0 FROM orders", "division by zero in id % 0 (at: query, character 8). "
         "Leave such rows out, or make them NULL, as in a % nullif(b, 0)"),
        ("SELECT 7 div 0", "division by zero in 7 DIV 0 (at: query, character 8). "
         "Leave such rows out, or make them NULL, as in a DIV nullif(b, 0)"),
        ("SELECT pmod(id, 0), id % 2 FROM orders", "division by zero in pmod(id, 0) (at: query, character 8). "
         "Leave such rows out, or make them NULL, as in pmod(a, nullif(b, 0))"),
        ("SELECT id / (id - 1), id % (id - 1) FROM orders", "division by zero. Leave such rows out, or make them"),
        ("SELECT CAST(CAST('NaN' AS DOUBLE) AS INT)", "nan is out of the range of int in CAST(CAST('NaN' AS "
         "DOUBLE) AS INT) (at: query, character 18). Leave such values out, or make them NULL with TRY_CAST"),
        ("SELECT CAST(1e300 AS BIGINT) FROM orders", "1e+300 is out of the range of bigint in CAST(1e300 AS"),
        ("SELECT CAST(id + 3000000000 AS INT) FROM orders", "is out of the range of int in CAST(id + 3000000000"),
        ("SELECT CAST(id + 300 AS DECIMAL(2, 0)) FROM orders", "301 is out of the range of decimal(2,0) in CAST("),
        ("SELECT id + 9223372036854775807 FROM orders", " + 9223372036854775807 is out of the range of bigint. "
         "Cast an operand, as in CAST(a AS DECIMAL(38, 0)), or make such values NULL with try_add(a, b)"),
        ("SELECT CAST(id AS INT) * 2147483647 FROM orders", "is out of the range of int. "
         "Cast an operand, as in CAST(a AS BIGINT), or make such values NULL with try_multiply(a, b)"),
        ("SELECT sum(CAST('9e37' AS DECIMAL(38, 0))) FROM orders", "a sum of decimals has more than 38 digits. "
         "Sum doubles, as in sum(CAST(x AS DOUBLE))"),
        ("SELECT avg(CAST('9e37' AS DECIMAL(38, 0))) FROM orders", "a sum of decimals has more than 38 digits"),
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
        ("SELECT * FROM read_parquet('one.parquet')", "Spark's SQL has no read_parquet (character 15). Write "
         "parquet.`one.parquet`, or register the table with c.register(name, table)"),
        ("SELECT * FROM read_csv('one.csv')", "Spark's SQL has no read_csv (character 15). Register the table with"),
        ("SELECT id FROM orders WHERE region ~ '^e'", "Spark's SQL has no operator ~ (character 36). Write RLIKE"),
        ("SELECT id FROM orders WHERE amount IS NAN", "Spark's SQL has no IS NAN (character 29). Write isnan(x)"),
        ("SELECT id FROM orders WHERE region = ‘e u’", "Use straight quotes for a text, as in 'a'"),
        ("SELECT max(id) OVER FROM orders", "OVER needs a window (character 8). Write OVER () for all rows"),
        ("SELECT id FROM orders QUALIFY max(id) OVER = 1", "OVER needs a window"),
    ],
)  # fmt: skip
def test_misspelt_or_missing_keywords(
    session: tamis.Session, caplog: pytest.LogCaptureFixture, query: str, message: str
) -> None:
    with pytest.raises(ParseError, match=re.escape(message)):
        session.sql(query)
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("SELECT id FROM orders WHERE \"region\" = 'eu'", "region"),
        ("SELECT id FROM orders WHERE \"Region\" = 'eu'", "region"),
        ('SELECT count(*) FROM orders GROUP BY "region"', "region"),
        ('SELECT id FROM orders ORDER BY "id" DESC', "id"),
        ('SELECT id AS n FROM orders ORDER BY "n"', "n"),
        ('SELECT "id" FROM orders', "id"),
        ('SELECT "id" AS x FROM orders', "id"),
        ('SELECT id FROM orders WHERE "region" IS NULL', "region"),
        ("SELECT id FROM orders WHERE id IN ('x', \"region\")", "region"),
        ('SELECT upper("region") FROM orders', "region"),
        ("SELECT id FROM orders WHERE length(concat(\"region\", 'x')) = 3", "region"),
        ('SELECT max("id") OVER (PARTITION BY region) FROM orders', "id"),
        ('SELECT count(*) FROM orders GROUP BY ALL HAVING max("id") > 1', "id"),
        ("SELECT o.id FROM orders o JOIN customers c ON o.customer = c.id AND \"name\" = 'x'", "name"),
        ('SELECT n FROM (SELECT id AS n FROM orders) WHERE "n" > 1', "n"),
        ('WITH a AS (SELECT id AS n FROM orders) SELECT "n" FROM a', "n"),
        ('SELECT id FROM customers WHERE EXISTS (SELECT 1 FROM orders WHERE "name" = region)', "name"),
        ('SELECT id FROM orders UNION ALL SELECT "id" FROM customers', "id"),
        ('SELECT id, x FROM orders LATERAL VIEW explode(array("region")) AS x', "region"),
        ('FROM orders |> WHERE "region" IS NULL', "region"),
    ],
)
def test_a_column_in_double_quotes_is_an_error(session: tamis.Session, query: str, name: str) -> None:
    written = re.search(f'"{name}"', query, re.IGNORECASE)
    assert written is not None
    message = (
        f"{written[0]} is a text, not the column of that name (at: query, character {written.start() + 1}): in Spark's "
        f"SQL double quotes delimit a text. Write `{name}` for the column, or '{written[0][1:-1]}' for the text"
    )
    for ask in (session.sql, session.explain):
        with pytest.raises(ExpressionError, match=f"^{re.escape(message)}$"):
            ask(query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 'region', id FROM orders GROUP BY id",
        "SELECT id FROM orders WHERE region = 'id'",
        "SELECT id FROM orders WHERE 'region' = 'eu'",
        'SELECT id FROM orders WHERE region = "eu"',
        'SELECT "total" AS total FROM orders',
        'SELECT "name" FROM orders',
        'SELECT named_struct("id", id) AS s FROM orders',
        "SELECT date_trunc(\"day\", TIMESTAMP '2024-01-01 00:00:00') AS d FROM orders",
    ],
)
def test_other_texts_are_texts(session: tamis.Session, caplog: pytest.LogCaptureFixture, query: str) -> None:
    session.sql(query).to_arrow()
    assert caplog.messages == []


@pytest.mark.parametrize("operator", ["=", "<", ">", "<=", ">=", "<>", "!=", "<=>"])
@pytest.mark.parametrize(
    ("value", "kind"),
    [("DATE '2024-01-01'", "date"), ("TIMESTAMP '2024-01-01 00:00:00'", "timestamp"), ("TRUE", "boolean"),
     ("TIMESTAMP_NTZ '2024-01-01 00:00:00'", "timestamp_ntz"), ("1.5", r"decimal\(2,1\)"), ("1.5D", "double")],
)  # fmt: skip
def test_a_text_that_is_not_a_value_of_the_type_is_an_error_before_running(
    operator: str, value: str, kind: str
) -> None:
    made = tamis.connect()
    made.register("t", made.sql(f"SELECT {value} AS a"))
    for where in (f"a {operator} 'x'", f"'x' {operator} a"):
        with pytest.raises(TypeMismatch, match=rf"\(at: query, character \d+\): 'x' is not a valid {kind}\. "):
            made.sql(f"SELECT a FROM t WHERE {where}")


@pytest.mark.parametrize(
    ("value", "text", "rows"),
    [
        ("TRUE", "yes", 1),
        ("TRUE", " 1 ", 1),
        ("TRUE", "0", 0),
        ("1.0D", "1d", 1),
        ("1.0", "1d", 1),
        ("1.0D", "1e400", 0),
    ],
)
def test_a_text_that_the_engine_can_cast_is_no_error(value: str, text: str, rows: int) -> None:
    made = tamis.connect()
    made.register("t", made.sql(f"SELECT {value} AS a"))
    assert made.sql(f"SELECT a FROM t WHERE a = '{text}'").count() == rows


def test_spark_accepts_a_column_in_double_quotes_as_a_text(
    session: tamis.Session, caplog: pytest.LogCaptureFixture
) -> None:
    tables = VisibleTables(session._catalog, None, None)
    CompiledQuery('SELECT upper("region") FROM orders', tables, session._catalog.connectors, on_spark=True)
    assert [message[:40] for message in caplog.messages] == ['"region" is a text, not the column of th']


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
