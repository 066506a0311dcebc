"""PostgreSQL: unsupported types, names, schemas, and server errors."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

import tamis
from tamis import types
from tamis.errors import AccessDenied, InvalidArgument, StorageError, TableError, UnsupportedFeature
from tamis.expr.bind import bind
from tamis.expr.sql.parse import parse_sql
from tamis.formats.database import open_database
from tamis.formats.database.connection import redact_password
from tamis.query.connectors.database_connector import DatabaseConnector


def run(uri: str, *statements: str) -> None:
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def read(connector: DatabaseConnector, handle: object) -> pa.Table:
    return pa.Table.from_batches(connector.read(handle), connector.columns(handle))


def test_unsupported_types_are_read_as_text_and_not_pushed_down(postgresql: str) -> None:
    run(
        postgresql,
        "DROP TABLE IF EXISTS odd",
        "CREATE TABLE odd (u uuid, j jsonb, a int[], i interval, c char(3), n numeric, b bytea, t time)",
        "INSERT INTO odd VALUES ('00000000-0000-0000-0000-0000000000ff', '{\"a\": 1}', '{1,2}', '1 day', 'x', 1.5, "
        "'\\x00ff', '10:00')",
    )
    connector = DatabaseConnector("pg", open_database(postgresql))
    handle = connector.table(("odd",))
    assert read(connector, handle).to_pylist() == [
        {
            "u": "00000000-0000-0000-0000-0000000000ff",
            "j": '{"a": 1}',
            "a": "{1,2}",
            "i": pa.MonthDayNano([0, 1, 0]),
            "c": "x",
            "n": Decimal("1.500000000000000000"),
            "b": b"\x00\xff",
            "t": "10:00:00",
        }
    ]
    schema = connector.columns(handle)
    for text in ("u = '00000000-0000-0000-0000-0000000000ff'", "c = 'x'", "j LIKE '%a%'", "b = X'00FF'", "t > '2'"):
        assert connector.push_filter(handle, bind(parse_sql(text), schema)) is None, text
    pushed = connector.push_filter(handle, bind(parse_sql("u IS NOT NULL AND n > 1"), schema))
    assert pushed is not None
    assert read(connector, pushed.handle).num_rows == 1


def test_oid_and_money_are_numbers_and_timetz_is_unsupported(postgresql: str) -> None:
    run(
        postgresql,
        "DROP TABLE IF EXISTS amounts",
        "CREATE TABLE amounts (o oid, m money, i interval, z timetz)",
        "INSERT INTO amounts VALUES (9, 9, '9 days', '10:00+02'), (10, 10, '10 days', '09:00-05')",
    )
    session = tamis.connect().attach("pg", postgresql)
    largest = session.sql("SELECT max(o) AS o, max(m) AS m, max(i) AS i FROM pg.amounts").to_arrow().to_pylist()
    assert largest == [{"o": 10, "m": Decimal("10.000000000000000000"), "i": pa.MonthDayNano([0, 10, 0])}]
    assert session.sql("SELECT o FROM pg.amounts WHERE m > 9.5 AND o > 9").to_arrow().to_pylist() == [{"o": 10}]
    with pytest.raises(UnsupportedFeature, match=r"column 'z' in .* has the unsupported type timetz"):
        session.sql("SELECT z FROM pg.amounts").to_arrow()


def test_a_number_out_of_range_is_an_error(postgresql: str) -> None:
    run(postgresql, "DROP TABLE IF EXISTS wide", "CREATE TABLE wide (n numeric)", "INSERT INTO wide VALUES ('NaN')")
    connector = DatabaseConnector("pg", open_database(postgresql))
    with pytest.raises(TableError, match="'n'"):
        read(connector, connector.table(("wide",)))


@pytest.mark.parametrize("value", ["infinity", "-infinity", "294276-12-31 00:00:00"])
@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
def test_infinite_dates_and_timestamps_are_errors(postgresql: str, kind: str, value: str) -> None:
    run(
        postgresql,
        "DROP TABLE IF EXISTS ends",
        f"CREATE TABLE ends (n int, at {kind})",
        f"INSERT INTO ends VALUES (1, '{value}'), (2, '0044-03-15 BC'), (3, NULL)",
    )
    connector = DatabaseConnector("pg", open_database(postgresql))
    handle = connector.table(("ends",))
    if (kind, value[:3]) == ("date", "294"):
        assert read(connector, handle).num_rows == 3
        return
    with pytest.raises(TableError, match="'at'"):
        read(connector, handle)
    pushed = connector.push_filter(handle, bind(parse_sql("n > 1"), connector.columns(handle)))
    assert pushed is not None
    assert read(connector, pushed.handle)["n"].to_pylist() == [2, 3]


def test_schemas_and_names_of_any_case(postgresql: str) -> None:
    run(
        postgresql,
        'DROP SCHEMA IF EXISTS "My Schema" CASCADE',
        'CREATE SCHEMA "My Schema"',
        'CREATE TABLE "My Schema"."T""x" ("Id" int)',
        'INSERT INTO "My Schema"."T""x" VALUES (5)',
    )
    connector = DatabaseConnector("pg", open_database(postgresql))
    assert connector.table(('T"x',)) is None
    handle = connector.table(("my schema", 't"X'))
    assert handle is not None
    assert read(connector, handle).to_pylist() == [{"Id": 5}]
    assert connector.table(("nothing; DROP TABLE t; --'",)) is None


def test_connections_are_read_only_and_in_utc(postgresql: str) -> None:
    run(
        postgresql,
        "DROP TABLE IF EXISTS times",
        "CREATE TABLE times (at timestamptz)",
        "INSERT INTO times VALUES ('2024-03-01 12:00:00+02')",
    )
    database = open_database(postgresql)
    with pytest.raises(TableError, match="read-only"):
        list(database.run("INSERT INTO times SELECT now() RETURNING at", ()))
    connector = DatabaseConnector("pg", database)
    handle = connector.table(("times",))
    pushed = connector.push_filter(
        handle, bind(parse_sql("at = TIMESTAMP '2024-03-01T10:00:00Z'"), connector.columns(handle))
    )
    assert pushed is not None
    assert read(connector, pushed.handle)["at"].cast(types.LONG).to_pylist() == [1709287200000000]


def test_an_abandoned_query_does_no_harm(postgresql: str) -> None:
    run(postgresql, "DROP TABLE IF EXISTS many", "CREATE TABLE many AS SELECT generate_series(1, 300000) AS n")
    connector = DatabaseConnector("pg", open_database(postgresql))
    handle = connector.table(("many",))
    for _ in range(3):
        batches = connector.read(handle)
        assert next(batches).num_rows > 0
        batches.close()  # type: ignore[attr-defined]
    both = zip(connector.read(handle), connector.read(handle), strict=True)
    assert all(one.equals(other) for one, other in both)


def test_a_connection_closed_by_the_server_is_reopened(postgresql: str) -> None:
    run(postgresql, "DROP TABLE IF EXISTS one", "CREATE TABLE one AS SELECT 1 AS n")
    connector = DatabaseConnector("pg", open_database(postgresql))
    handle = connector.table(("one",))
    run(
        postgresql,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
    )
    assert read(connector, handle).to_pylist() == [{"n": 1}]


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("postgresql://me:hunter2@host:1/x", "postgresql://me@host:1/x"),
        ("postgresql://host/x?user=me&password=hunter2", "postgresql://host/x"),
        ("postgresql:///x", "postgresql:///x"),
        ("mysql://me:hunter2@host/x?password=hunter2", "mysql://me@host/x"),
        # A password with a character that must be escaped, and a query string that looks alike.
        ("postgresql://me:hunter2/3@host/x", "postgresql://…"),
        ("postgresql://me:hunter2?3@host/x", "postgresql://…"),
        ("postgresql://host/x?password=3@hunter2", "postgresql://…"),
        ("orders.db", "orders.db"),
    ],
)
def test_a_uri_is_shown_without_its_password(uri: str, shown: str) -> None:
    assert redact_password(uri) == shown


def test_the_message_on_an_unknown_scheme_names_no_password() -> None:
    with pytest.raises(InvalidArgument, match=r"unsupported database 'mysql://me@host/x'"):
        open_database("mysql://me:hunter2@host/x?password=hunter2")


def test_no_message_names_a_password() -> None:
    pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")
    with pytest.raises(StorageError) as caught:
        open_database("postgresql://me:hunter2@127.0.0.1:1/x?password=hunter2")
    assert "hunter2" not in str(caught.value)
    assert "postgresql://me@127.0.0.1:1/x" in str(caught.value)


def test_policies_follow_a_database_that_is_attached_with_another_search_path(postgresql: str) -> None:
    run(
        postgresql,
        "DROP SCHEMA IF EXISTS sales CASCADE",
        "CREATE SCHEMA sales",
        "CREATE TABLE sales.invoices AS SELECT * FROM (VALUES (1, 'eu'), (2, 'us')) AS t(id, region)",
    )
    policies = {"default": "allow", "tables": {"pg.invoices": [{"principals": ["ana"], "rows": "region = 'eu'"}]}}
    connection = tamis.connect(policies=policies).as_principal("ana")
    sign = "&" if "?" in postgresql else "?"
    connection.attach("pg", f"{postgresql}{sign}options=-csearch_path%3Dsales").attach("second", postgresql)
    for name in ("pg.invoices", "second.sales.invoices"):
        assert connection.sql(f"SELECT id FROM {name}").to_arrow().to_pylist() == [{"id": 1}], name


def test_tables_of_other_schemas_are_listed_with_their_schema(postgresql: str) -> None:
    run(
        postgresql,
        "CREATE SCHEMA elsewhere",
        "CREATE TABLE elsewhere.listed (id int)",
        "CREATE TABLE listed_here (id int)",
    )
    names = tamis.connect().attach("pg", postgresql).tables
    assert {"pg.elsewhere.listed", "pg.listed_here"} <= set(names)
    assert not any("pg_catalog" in name or "pg_toast" in name for name in names)


def test_statistics_of_the_server_are_not_read_under_policies(postgresql: str) -> None:
    run(
        postgresql,
        "CREATE TABLE cards (id int, card text)",
        "INSERT INTO cards VALUES (1, 'raw'), (2, 'raw')",
        "ANALYZE cards",
    )
    policies = {"default": "allow", "tables": {"pg.cards": [{"principals": ["ana"], "masks": {"card": "'x'"}}]}}
    ana = tamis.connect(policies=policies).attach("pg", postgresql).as_principal("ana")
    assert ana.sql("SELECT card FROM pg.cards").to_arrow()["card"].to_pylist() == ["x", "x"]
    for table in ("pg_stats", "pg_catalog.pg_class", "information_schema.tables", "pg_stat_activity"):
        with pytest.raises(AccessDenied):
            ana.sql(f"SELECT * FROM pg.{table}")


def test_sums_of_some_rows(postgresql: str) -> None:
    run(postgresql, "CREATE TABLE parts (k int, v int)", "INSERT INTO parts VALUES (1, 1), (1, 5), (2, 7)")
    session = tamis.connect().attach("pg", postgresql)
    query = "SELECT k, sum(v) FILTER (WHERE v > 4) AS s, count(*) FILTER (WHERE v < 4) AS n FROM pg.parts GROUP BY k"
    assert "FILTER" in session.explain(query).split("Scans")[1]
    assert sorted(tuple(row.values()) for row in session.sql(query).to_arrow().to_pylist()) == [(1, 5, 1), (2, 7, 0)]
