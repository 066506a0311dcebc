"""A user who may run any query tries to learn what policies hide, from rows, errors and EXPLAIN output.

`ana` sees the rows of `eu`: of `y` the numbers from 10 to 15, of `card` the last digits, of `salary` nothing.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.delta.log import DeltaLog
from builders.delta.tables import data_file
from builders.query.protected import EU, POLICIES, ROWS, open_session, write_orders
from tamis.errors import AccessDenied, CorruptFile, ParseError, TamisError
from tamis.io import ranges
from tamis.query.policies import load_policies
from tamis.session import Session

VISIBLE = pa.table(
    {
        "id": EU,
        "region": ["eu"] * 6,
        "y": [10, 11, 12, 13, 14, 15],
        "card": [f"****{number:04}" for number in EU],
        "salary": pa.array([None] * 6, pa.float64()),
        "owner": ["ana"] * 6,
    }
)
"""All that there is to ana."""


@pytest.fixture(scope="module", params=["hive", "delta"])
def ana(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Session:
    return open_session(tmp_path_factory.mktemp(request.param), request.param).as_principal("ana")


def run_query(connection: Session, query: str) -> tuple[type[TamisError] | None, list[str]]:
    """Return what a user learns from a query: its rows, or the messages of its error."""
    try:
        return None, sorted(map(repr, connection.sql(query).to_arrow().to_pylist()))
    except TamisError as error:
        return type(error), [str(error), *map(str, _list_causes(error))]


@cache
def run_on_visible_rows(query: str) -> tuple[type[TamisError] | None, list[str]]:
    """Return the result of a query in a session that contains only the rows that ana sees."""
    connection = tamis.connect()
    connection.register("orders", VISIBLE)
    return run_query(connection, query)


# Each query fails or returns other rows if it reads a hidden row or a raw value.
PROBES = [
    # A1: errors of conditions on hidden rows
    "SELECT id FROM orders WHERE y = 20 AND 1 / (y - 20) = 0",
    "SELECT id FROM orders WHERE 1 / (y - 20) < 2",
    "SELECT id FROM orders WHERE (y - 20) % (y - 20) = 0",
    "SELECT id FROM orders WHERE CAST(card AS INT) = 1",
    "SELECT id FROM orders WHERE CAST(concat('x', card) AS INT) = 1 AND region = 'us'",
    "SELECT id FROM orders WHERE CASE WHEN y > 15 THEN CAST('a' AS INT) ELSE 1 END = 1",
    "SELECT id FROM orders WHERE IF(region = 'us', raise_error('found'), TRUE)",
    "SELECT id FROM orders WHERE y * 600000000000000000 > 0",
    "SELECT id FROM orders WHERE y > 15 AND y * 600000000000000000 > 0",
    "SELECT id FROM orders WHERE 10 % (y - 20) >= 0",
    "SELECT id FROM orders WHERE CAST(CASE WHEN y > 15 THEN owner ELSE '1' END AS INT) = 1",
    "SELECT count(*) FROM orders WHERE CAST(concat('1', substring(region, 3)) AS INT) = 1",
    "SELECT max(y * 600000000000000000) FROM orders",
    "SELECT id FROM orders ORDER BY y * 600000000000000000 DESC LIMIT 1",
    "SELECT sum(CASE WHEN y > 15 THEN CAST(card AS INT) ELSE 0 END) FROM orders",
    "SELECT max(1 / (y - 20)) FROM orders",
    "SELECT a.id FROM orders a JOIN orders b ON 1 / (a.y - 20) = 1 / (b.y - 20)",
    "SELECT id FROM orders WHERE y IN (20, 21) OR 1 / (y - 20) > 100",
    "SELECT id, 1 / (y - 20) AS q FROM orders ORDER BY q LIMIT 3",
    "SELECT y, count(*) FROM orders GROUP BY y HAVING max(1 / (y - 20)) > -1",
    "SELECT id FROM (SELECT id, y FROM orders WHERE region <> 'eu') WHERE 1 / (y - 20) > 0",
    "SELECT id FROM orders WHERE date_trunc('nonsense', current_timestamp()) IS NULL AND y > 15",
    # A2: masked columns by their raw values and their statistics
    "SELECT id FROM orders WHERE card = 'card-0002'",
    "SELECT id FROM orders WHERE card LIKE 'card%'",
    "SELECT id FROM orders WHERE card >= 'card-0000' AND card <= 'card-9999'",
    "SELECT id FROM orders WHERE card IN ('card-0000', '****0000')",
    "SELECT id FROM orders WHERE salary > 150",
    "SELECT id FROM orders WHERE salary IS NULL",
    "SELECT id FROM orders WHERE NOT (salary < 150) OR card <> 'card-0000'",
    "SELECT count(salary), min(salary), max(salary), sum(salary), count(*) FROM orders",
    "SELECT min(card), max(card), count(DISTINCT card) FROM orders",
    "SELECT card FROM orders ORDER BY card DESC LIMIT 2",
    "SELECT id FROM orders ORDER BY salary DESC, id LIMIT 3",
    "SELECT a.id FROM orders a JOIN (SELECT 'card-0002' AS card) b ON a.card = b.card",
    "SELECT a.id FROM orders a JOIN (SELECT 200.0D AS s) b ON a.salary = b.s",
    # A4: aggregates that metadata could answer
    "SELECT count(*) FROM orders",
    "SELECT count(*), min(y), max(y), min(id), max(id) FROM orders",
    "SELECT count(*) FROM orders WHERE y >= 20",
    "SELECT max(y) FROM orders WHERE y < 24",
    "SELECT region, count(*), max(y) FROM orders GROUP BY region",
    "SELECT DISTINCT region FROM orders",
    "SELECT count(*) FROM orders WHERE region = 'us'",
    "SELECT count(*) FROM orders WHERE region <> 'eu' OR owner = 'ben'",
    "SELECT count(DISTINCT region), approx_count_distinct(y) FROM orders",
    # limits, top-n, orders
    "SELECT y FROM orders ORDER BY y DESC LIMIT 1",
    "SELECT y FROM orders ORDER BY y DESC LIMIT 3",
    "SELECT id FROM (SELECT id, region FROM orders LIMIT 12) WHERE region <> 'eu'",
    "SELECT count(*) FROM (SELECT * FROM orders LIMIT 7)",
    "SELECT id FROM orders WHERE region = 'us' LIMIT 1",
    "SELECT id FROM orders ORDER BY region DESC, id LIMIT 2",
    # A8: joins, and the keys of one side on the other
    "SELECT a.id FROM orders a JOIN orders b ON a.y = b.y + 9",
    "SELECT a.id FROM orders a LEFT JOIN orders b ON b.y = 20 WHERE b.id IS NOT NULL",
    "SELECT id FROM orders WHERE id IN (SELECT id FROM orders WHERE region = 'us')",
    "SELECT id FROM orders a WHERE NOT EXISTS (SELECT 1 FROM orders b WHERE b.id = a.id + 1)",
    "SELECT x FROM (SELECT 20 AS x UNION ALL SELECT 10) k WHERE x IN (SELECT y FROM orders)",
    "SELECT k.x, o.id FROM (SELECT explode(sequence(0, 30)) AS x) k LEFT JOIN orders o ON o.y = k.x",
    "SELECT count(*) FROM orders a, orders b WHERE a.y < b.y",
    # set operations, windows, subqueries
    "SELECT id FROM orders EXCEPT SELECT id FROM orders WHERE region = 'eu'",
    "SELECT y FROM orders INTERSECT SELECT 20",
    "SELECT id, lead(y) OVER (ORDER BY id) AS following FROM orders",
    "SELECT id, count(*) OVER () AS n, max(y) OVER (PARTITION BY region) AS m FROM orders",
    "SELECT (SELECT max(y) FROM orders) AS m",
    "SELECT id FROM orders WHERE y = (SELECT max(y) FROM orders)",
    "WITH o AS (SELECT * FROM orders WHERE region <> 'eu' OR TRUE) SELECT count(*), max(card) FROM o",
    "SELECT collect_list(y) AS all FROM (SELECT y FROM orders ORDER BY y)",
    "SELECT count(*) FROM orders GROUP BY GROUPING SETS ((region), ())",
    "SELECT id, region, y, card, salary, owner FROM orders ORDER BY id",
    "SELECT owner, current_date() IS NULL AS d FROM orders WHERE owner = 'ben' OR id = 0",
]


@pytest.mark.parametrize("query", PROBES)
def test_a_query_returns_only_visible_rows_and_names_nothing_hidden(ana: Session, query: str) -> None:
    failure, texts = run_query(ana, query)
    assert failure is run_on_visible_rows(query)[0]
    if failure is None:
        assert texts == run_on_visible_rows(query)[1]
        texts.append(ana.explain(query))
    for text in texts:
        # The text of the query is known to its author.
        others = text.replace(query, "").replace(" ".join(query.split()), "")
        for secret in _list_secrets() - set(re.findall(r"[\w-]+", query)):
            assert not re.search(rf"(?<![\w-]){re.escape(secret)}(?![\w-])", others), (secret, text)


# Each condition is TRUE or FALSE for visible rows, and fails for a hidden one.
FAILING = [
    "y * 600000000000000000 > 0",
    "y > 15 AND y * 600000000000000000 > 0",
    "10 % (y - 20) >= 0 OR y < 30",
    "CAST(CASE WHEN y > 15 THEN owner ELSE '1' END AS INT) = 1",
    "CAST(concat('1', substring(region, 3)) AS INT) = 1",
    "IF(y < 16, TRUE, raise_error(card))",
]
# Filters that are pushed into a scan, and filters with functions that only an engine supports.
FILTERS = ["region = 'eu'", "reverse(region) = 'ue'", "reverse(region) = 'ue' AND y % 7 >= 0"]


@pytest.mark.parametrize("rows", FILTERS)
@pytest.mark.parametrize("condition", FAILING)
@pytest.mark.parametrize("form", ["SELECT id FROM orders WHERE {}", "SELECT count(*) FROM orders WHERE {}"])
def test_A1_a_condition_is_never_evaluated_on_a_hidden_row(shared: Path, rows: str, condition: str, form: str) -> None:
    connection = tamis.connect(policies=lambda table, principal: {"rows": rows})
    connection.register("orders", tamis.open(shared))
    with_visible = tamis.connect()
    with_visible.register("orders", ROWS.take(EU))
    query = form.format(condition)
    assert run_query(connection.as_principal("ana"), query) == run_query(with_visible, query)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_orders(tmp_path_factory.mktemp("shared"), "delta")


def _list_secrets() -> set[str]:
    hidden = [row for row in ROWS.to_pylist() if row["region"] != "eu"]
    secrets = {str(row[name]) for row in hidden for name in ("region", "card")}
    return secrets | {row["card"] for row in ROWS.to_pylist()} | {"parquet", "region=us", "part-0"}


def _list_causes(error: BaseException) -> Iterator[BaseException]:
    while (cause := error.__cause__ or (None if error.__suppress_context__ else error.__context__)) is not None:
        yield cause
        error = cause


def test_A5_explain_shows_no_counts_no_files_and_no_rules(ana: Session) -> None:
    explained = ana.explain("SELECT count(*) FROM orders WHERE y >= 20")
    assert "not shown" in explained
    assert not any(word in explained for word in ("Rules", "Scans", "bytes", "parquet", "'eu'", "region", "****"))
    assert set(json.loads(ana.explain("SELECT id FROM orders", format="json"))) == {
        "query",
        "returns",
        "before",
        "note",
    }
    # The output does not depend on whether hidden rows match.
    assert explained.replace("20", "99") == ana.explain("SELECT count(*) FROM orders WHERE y >= 99")


def test_rules_that_are_switched_off_change_nothing(ana: Session) -> None:
    for query in ("SELECT * FROM orders ORDER BY id", "SELECT count(*), max(y) FROM orders WHERE y > 10"):
        assert ana.sql(query, rules=False).to_arrow().to_pylist() == ana.sql(query).to_arrow().to_pylist()


def test_files_cannot_be_read_past_the_policy(tmp_path: Path) -> None:
    path = write_orders(tmp_path, "delta")
    connection = tamis.connect(policies={**POLICIES, "default": "allow"})
    connection.register("orders", tamis.open(path))
    ana = connection.as_principal("ana")
    (file,) = [*path.glob("*.parquet")][:1]
    orders = tamis.open(path).scan().to_arrow()
    for source in (
        f"delta.`{path}`", f"parquet.`{file}`", f"read_parquet('{file}')", f"parquet_scan('{file}')", f"'{file}'",
        f"`{file}`", f"glob('{path}/*')", f"read_text('{file}')", "orders_raw", "VISIBLE", "ROWS", "lake.orders",
    ):  # fmt: skip
        with pytest.raises(TamisError):
            ana.sql(f"SELECT * FROM {source}").to_arrow()
    assert orders.num_rows == 12
    for statement in (
        "ATTACH ':memory:' AS m", "COPY orders TO 'x'", "SET s = 1", "INSTALL httpfs", "PRAGMA version", "SHOW TABLES",
        "EXPLAIN ANALYZE SELECT * FROM orders", "SUMMARIZE orders", "CREATE TABLE x AS SELECT 1", "DESCRIBE orders",
        "SELECT 1; DROP TABLE x", "INSERT INTO orders SELECT * FROM orders", "DELETE FROM orders",
    ):  # fmt: skip
        with pytest.raises(TamisError):
            ana.sql(statement).to_arrow()


@pytest.mark.parametrize(
    "query",
    [
        # Functions of either engine that read or run something without a policy.
        "SELECT * FROM IDENTIFIER('parquet.`/lake/orders`')",
        "SELECT * FROM orders o JOIN IDENTIFIER('others') USING (id)",
        "SELECT * FROM IDENTIFIER('parquet').`/lake/orders`",
        "SELECT * FROM identifier('par' || 'quet.`/lake/orders`') AS t",
        "SELECT id FROM orders WHERE id IN (SELECT id FROM TABLE(others))",
        "WITH w AS (SELECT * FROM STREAM(others)) SELECT * FROM w",
        "SELECT reflect('java.lang.System', 'getenv', 'HOME') FROM orders",
        "SELECT `Reflect`('java.lang.System', 'getenv', 'HOME') FROM orders",
        "SELECT system.builtin.java_method('java.lang.System', 'getenv', 'HOME') FROM orders",
        "SELECT id FROM orders WHERE try_reflect('java.lang.System', 'exit') IS NULL",
        "SELECT * FROM orders LATERAL VIEW explode(split(reflect('a', 'b'), ',')) t AS x",
        # Functions that show or change the engine, which other sessions share.
        "SELECT * FROM enable_logging('QueryLog')",
        "SELECT * FROM query('SELECT 1')",
        "SELECT * FROM orders, LATERAL read_text('/etc/hosts')",
        "SELECT current_setting('temp_directory')",
        "SELECT current_query()",
        "SELECT stats(id) FROM orders",
    ],
)
def test_functions_that_read_more_than_tables_of_the_session_are_denied(ana: Session, query: str) -> None:
    with pytest.raises(AccessDenied, match="more than the tables of the session"):
        ana.sql(query)
    with pytest.raises(AccessDenied):
        ana.explain(query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM duckdb_logs()",
        "SELECT * FROM main.duckdb_views()",
        "SELECT * FROM orders, LATERAL DuckDB_Settings()",
        "SELECT * FROM `duckdb_secrets`()",
        "SELECT id FROM orders WHERE duckdb_current_setting('temp_directory') = ''",
        "SELECT id FROM orders WHERE duckdb_getenv('HOME') = ''",
        "SELECT * FROM orders LATERAL VIEW explode(duckdb_getvariable('x')) t AS x",
        "SELECT spark_error(region) FROM orders",
    ],
)
def test_functions_of_the_engine_cannot_be_called_in_queries(ana: Session, query: str) -> None:
    for ask in (ana.sql, ana.explain):
        with pytest.raises((AccessDenied, ParseError)) as raised:
            ask(query)
        message = str(raised.value)
        assert "there is no function" in message or "more than the tables of the session" in message


def test_functions_that_make_rows_of_their_arguments_are_allowed(ana: Session) -> None:
    for query, rows in (
        ("SELECT id, x AS `a name` FROM orders, unnest(array(1, 2)) AS t(x)", 12),
        ("SELECT `orders`.`id` AS `an id -- of it`, 'it''s `' FROM `orders` -- `no` name", 6),
        ("SELECT id, x FROM orders LATERAL VIEW explode(array(1, 2)) t AS x", 12),
        ("SELECT * FROM range(3)", 3),
        ("SELECT o.id, l.m FROM orders o JOIN LATERAL (SELECT max(p.y) AS m FROM orders p WHERE p.y > o.y) l", 6),
    ):
        assert ana.sql(query).to_arrow().num_rows == rows


@pytest.mark.parametrize("kind", ["hive", "delta", "iceberg"])
def test_A5_damage_is_not_reported_when_a_table_is_opened_refreshed_or_planned(tmp_path: Path, kind: str) -> None:
    connection = open_session(tmp_path, kind)
    ana, admin = connection.as_principal("ana"), connection.as_principal("admin")
    path = tmp_path / "orders"
    opened = ana.open(path)
    for file in path.rglob("*"):
        if file.is_file() and (kind == "hive" or file.suffix in (".json", ".avro")):
            file.write_bytes(b"no such thing" * 9)
    attempts = [lambda: ana.open(path), lambda: ana.sql("SELECT count(*) FROM orders a JOIN orders b ON a.y = b.y")]
    attempts += [] if kind == "hive" else [opened.refresh]
    attempts += [lambda: ana.explain("SELECT a.id FROM orders a JOIN orders b ON a.y = b.y")]
    messages = []
    for attempt in attempts:
        try:
            attempt()
        except TamisError as error:
            messages += [str(error), *map(str, _list_causes(error))]
    assert messages
    assert all("reason is not shown" in text for text in messages)
    # A principal who sees the whole table gets the reason.
    with pytest.raises(CorruptFile, match="orders"):
        admin.open(path)


def test_row_filters_prune_and_so_do_leakproof_conditions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ana = open_session(tmp_path).as_principal("ana")
    opened: list[str] = []
    before = ranges.RangedFile.__init__

    def record(self: object, *args: object, **options: object) -> None:
        opened.append(str(args))
        before(self, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(ranges.RangedFile, "__init__", record)
    assert ana.sql("SELECT id FROM orders WHERE y = 12").to_arrow()["id"].to_pylist() == [4]
    assert opened
    assert not any("region=us" in each or "region=apac" in each for each in opened)


def test_A4_metadata_is_used_under_a_policy_only_if_its_row_filter_fully_matches_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = DeltaLog(
        tmp_path / "orders", {"id": "long", "owner": "string", "region": "string"}, partition_columns=["region"]
    )
    for region, ids in (("eu", [1, 2, 3]), ("us", [4, 5])):
        rows = pa.table({"id": ids, "owner": ["ana", "ben", "ana"][: len(ids)]})
        log.commit(data_file(log, f"region={region}/1.parquet", rows, {"region": region}))
    rules = [
        {"principals": ["ana"], "rows": "region = 'eu'", "masks": {"owner": "'someone'"}},
        {"principals": ["ben"], "rows": "owner = 'ben'"},
    ]
    shared = tamis.connect(policies={"tables": {"orders": rules}})
    opened: list[str] = []
    before = ranges.RangedFile.__init__

    def record(self: object, *args: object, **options: object) -> None:
        opened.extend(each for each in args if isinstance(each, str) and each.endswith("1.parquet"))
        before(self, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(ranges.RangedFile, "__init__", record)
    for who, expected, reads_files in (("ana", (3, 1, 3), False), ("ben", (2, 2, 5), True)):
        connection = shared.as_principal(who)
        connection.register("orders", tmp_path / "orders")
        opened.clear()
        found = connection.sql("SELECT count(*), min(id), max(id) FROM orders").to_arrow()
        assert tuple(column[0].as_py() for column in found.columns) == expected
        assert bool(opened) == reads_files, who


def test_similar_names_do_not_find_a_policy() -> None:
    found = load_policies({"tables": {"a.b": [{"principals": ["ana"], "rows": "TRUE"}]}})
    assert found is not None
    for name in ("axb", "a.b.c", "a", "b", "a.b ", "a.b\n", "x.a.b", "a.b%"):
        with pytest.raises(AccessDenied):
            found.find_policy([name], "ana")


@pytest.mark.parametrize(
    "query",
    [
        # A name that is not a common table expression in its scope can only be a table of the session.
        "WITH RECURSIVE a AS (SELECT name, 1 n FROM duckdb_columns UNION ALL SELECT name, n + 1 FROM a WHERE n < 1), "
        "duckdb_columns AS (SELECT 1 AS name) SELECT * FROM a",
        "WITH RECURSIVE sqlite_master AS (SELECT name FROM (WITH z AS (SELECT * FROM sqlite_master) SELECT * FROM z) "
        "UNION ALL SELECT name FROM sqlite_master WHERE FALSE) SELECT * FROM sqlite_master",
        "WITH `duckdb_table\ufb06` AS (SELECT rand() AS r) SELECT * FROM duckdb_tablest, `duckdb_table\ufb06` b, "
        "`duckdb_table\ufb06` c WHERE (SELECT count(*) FROM duckdb_tables) > 0",
    ],
)
def test_names_of_common_table_expressions_do_not_reach_tables_of_the_engine(ana: Session, query: str) -> None:
    with pytest.raises(TamisError):
        ana.sql(query).to_arrow()


def test_a_column_may_have_the_name_of_a_raw_column_in_plans(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "id": [1, 2, 3],
            "region": ["eu", "us", "us"],
            "region (raw)": ["eu", "eu", "eu"],
            "region (raw)_2": ["eu", "eu", "eu"],
        }
    )
    policies = {"tables": {"t": [{"principals": ["ana"], "rows": "region = 'eu'", "masks": {"region": "'x'"}}]}}
    ana = tamis.connect(policies=policies).register("t", rows).as_principal("ana")
    assert ana.sql("SELECT * FROM t").to_arrow().to_pylist() == [
        {"id": 1, "region": "x", "region (raw)": "eu", "region (raw)_2": "eu"}
    ]
    assert ana.sql("SELECT count(*) AS n FROM t").to_arrow()["n"].to_pylist() == [1]


def test_a_table_under_two_names_is_under_the_policies_of_both(tmp_path: Path) -> None:
    path = write_orders(tmp_path, "delta")
    policies = {"default": "allow", "tables": {"a": [{"principals": ["ana"], "rows": "region = 'eu'"}]}}
    connection = tamis.connect(policies=policies).register("b", path).register("a", path)
    assert run_query(connection.as_principal("ana"), "SELECT count(*) AS n FROM b") == (None, ["{'n': 6}"])

    asked: list[str] = []

    def find_policy(table: str, principal: str | None) -> dict[str, str] | None:
        asked.append(table)
        return {"rows": "region = 'eu'"} if table == "a" else {"rows": "TRUE"}

    connection = tamis.connect(policies=find_policy).register("b", path).register("a", path)
    assert run_query(connection.as_principal("ana"), "SELECT count(*) AS n FROM b") == (None, ["{'n': 6}"])
    assert set(asked) == {"a", "b"}


def test_system_tables_of_a_database_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with contextlib.closing(sqlite3.connect(path)) as shop:
        shop.executescript(
            "CREATE TABLE orders (id INTEGER, region TEXT, z); INSERT INTO orders VALUES (1, 'eu', 1), (2, 'us', 2);"
            "CREATE INDEX i ON orders (region); ANALYZE"
        )
    policies = {"default": "allow", "tables": {"s.orders": [{"principals": ["ana"], "rows": "region = 'eu'"}]}}
    ana = tamis.connect(policies=policies).attach("s", f"sqlite:///{path}").as_principal("ana")
    assert run_query(ana, "SELECT id FROM s.orders") == (None, ["{'id': 1}"])
    with pytest.raises(AccessDenied, match="is a system table"):
        ana.sql("SELECT * FROM s.sqlite_stat1")
    assert tamis.connect().attach("s", f"sqlite:///{path}").sql("SELECT * FROM s.sqlite_stat1").to_arrow().num_rows


def test_values_of_hidden_rows_are_not_reported_if_a_database_has_no_types(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with contextlib.closing(sqlite3.connect(path)) as shop:
        shop.executescript(
            "CREATE TABLE orders (id INTEGER, region TEXT, z); "
            "INSERT INTO orders VALUES (1, 'eu', 1), (2, 'us', 'SECRET');"
        )
    policies = {"default": "deny", "tables": {"s.orders": [{"principals": ["ana"], "rows": "region = 'eu'"}]}}
    session = tamis.connect(policies=policies).attach("s", f"sqlite:///{path}")
    ana, stranger = session.as_principal("ana"), session.as_principal("nobody")
    # A column with values of another type in hidden rows is an error only for queries that read all its values.
    assert run_query(ana, "SELECT id FROM s.orders") == (None, ["{'id': 1}"])
    assert run_query(ana, "SELECT * FROM s.orders") == (None, ["{'id': 1, 'region': 'eu', 'z': 1}"])
    for principal, query in (
        (stranger, "SELECT id FROM s.orders"),
        (stranger, "SELECT id FROM s.orders WHERE z > 0"),
        (ana, "SELECT id FROM s.orders WHERE z > 0"),
        (ana, "SELECT id FROM s.orders WHERE z = 1"),
    ):
        kind, messages = run_query(principal, query)
        assert kind is not None
        assert not any("z" in text.split() or "'z'" in text or str(tmp_path) in text for text in messages)
        assert not any("SECRET" in text for text in messages)
    assert run_query(ana, "SELECT max(z) AS m FROM s.orders WHERE CAST(z AS STRING) > 'A'") == (None, ["{'m': None}"])


def test_the_reason_why_a_policy_denies_is_only_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(table: str, principal: str | None) -> dict[str, str]:
        raise LookupError("the directory of principals is down")

    caplog.set_level("INFO", logger="tamis")
    path = write_orders(tmp_path, "delta")
    for policies, reason in (
        (fail, "LookupError: the directory of principals is down"),
        ({"tables": {"orders": [{"principals": ["*"], "rows": "regoin = 'eu'"}]}}, "regoin"),
    ):
        connection = tamis.connect(policies=policies).register("orders", path)
        with pytest.raises(AccessDenied) as raised:
            connection.sql("SELECT * FROM orders")
        assert reason not in str(raised.value)
        assert reason in caplog.text


INJECTED = (
    "SELECT DISTINCT ON (id) region AS `t AS x) AS _t UNION ALL SELECT region FROM duckdb_views --` FROM orders "
    "LATERAL VIEW explode(array(1)) `t AS x) AS _t UNION ALL SELECT region FROM duckdb_views --` AS y",
    "SELECT id FROM orders LATERAL VIEW explode(array(1)) `t AS x UNION ALL SELECT y FROM orders --` AS z WHERE id IN "
    "(SELECT id FROM orders)",
    "SELECT id FROM orders LATERAL VIEW explode(array(1)) `t AS x UNION ALL SELECT count(*) FROM duckdb_views() "
    "LATERAL VIEW explode(array(1)) k` AS `v`",
    "SELECT CAST(NULL AS STRUCT<a: `INT>) AS x, (SELECT count(*) FROM duckdb_views()) AS y, CAST(NULL AS STRUCT<a: "
    "INT`>) FROM orders",
    "SELECT EXTRACT(`year FROM current_date()), (SELECT count(*) FROM duckdb_views) AS y, extract(year` FROM "
    "current_date()) FROM orders",
    "SELECT CAST(id AS DECIMAL(`9), (SELECT current_setting('home_directory')), CAST(id AS DECIMAL(9`)) FROM orders",
)


@pytest.mark.parametrize("query", INJECTED)
def test_text_between_back_ticks_is_a_name_and_not_sql(ana: Session, query: str) -> None:
    try:
        found = ana.sql(query).to_arrow()
    except TamisError:
        return
    # The text was read as an unusual name.
    assert found.num_rows == len(EU)
    assert {*found[0].to_pylist()} in ({*EU}, {"eu"})


def test_a_failing_policy_does_not_reveal_which_rows_match(tmp_path: Path) -> None:
    """If a row filter or a mask fails on a hidden row, the error must not depend on the condition of the query."""
    rows = pa.table({"id": [1, 2], "level": ["5", "secret"], "salary": [10, 73_421]})
    pq.write_table(rows, tmp_path / "t.parquet", row_group_size=1)
    for policy in ({"rows": "CAST(level AS INT) > 4"}, {"masks": {"level": "CAST(CAST(level AS INT) AS STRING)"}}):
        policies = {
            "tables": {"t": [{"principals": ["ana"], **policy}], "keys": [{"principals": ["ana"], "rows": "TRUE"}]}
        }
        ana = tamis.connect(policies=policies).register("t", tmp_path / "t.parquet").as_principal("ana")
        ana.register("keys", pa.table({"salary": [10]}))
        asked = [f"SELECT level FROM t WHERE salary {test}" for test in ("= 10", "<= 80000", "> 80000", "= 73421")]
        asked.append("SELECT t.level FROM t JOIN keys ON t.salary = keys.salary")
        learned = {run_query(ana, query)[0] for query in asked}
        assert len(learned) == 1
        assert None not in learned
