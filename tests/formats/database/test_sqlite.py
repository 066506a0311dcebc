"""SQLite, which does not enforce column types: values have the declared type, or reading them is an error."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from tamis import types
from tamis.errors import InvalidArgument, TableError, TableNotFound
from tamis.expr.bind import bind
from tamis.expr.nodes import Call, Column, Literal
from tamis.expr.sql.parse import parse_sql
from tamis.formats.database import open_database
from tamis.formats.database.select_text import MAX_IN_LIST_ITEMS
from tamis.query.connectors.database_connector import DatabaseConnector
from tamis.query.plan.nodes import AggregateCall, Named, SortKey

pytest.importorskip("adbc_driver_sqlite", reason="adbc-driver-sqlite is not installed")

Write = Callable[..., DatabaseConnector]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that runs statements in a new file and opens the file."""

    def run_statements(*statements: str) -> DatabaseConnector:
        with sqlite3.connect(tmp_path / "a file?.db") as connection:
            for statement in statements:
                connection.execute(statement)
        connection.close()
        return DatabaseConnector("db", open_database(tmp_path / "a file?.db"))

    return run_statements


def read(connector: DatabaseConnector, handle: object) -> pa.Table:
    return pa.Table.from_batches(connector.read(handle), connector.columns(handle))


def read_filtered(connector: DatabaseConnector, handle: object, text: str) -> pa.Table:
    pushed = connector.push_filter(handle, bind(parse_sql(text), connector.columns(handle)))
    assert pushed is not None
    return read(connector, pushed.handle)


def test_declarations_determine_types(write: Write) -> None:
    connector = write(
        "CREATE TABLE t (a BIGINT, b VARCHAR(5), c DOUBLE PRECISION, d BLOB, e BOOLEAN, f DATE, g DATETIME, "
        "h DECIMAL(9, 2))",
        "INSERT INTO t VALUES (1, 'x', 1, x'00ff', 1, '2024-02-29', '2024-02-29 10:00:00', 2.5)",
        "INSERT INTO t VALUES (NULL, NULL, NULL, NULL, NULL, NULL, NULL, 3)",
    )
    handle = connector.table(("t",))
    assert connector.columns(handle).types == [
        types.LONG, types.STRING, types.DOUBLE, types.BINARY, types.BOOLEAN, types.DATE, types.STRING, types.DOUBLE
    ]  # fmt: skip
    first = read(connector, handle).to_pylist()[0]
    assert list(first.values()) == [1, "x", 1.0, b"\x00\xff", True, date(2024, 2, 29), "2024-02-29 10:00:00", 2.5]


@pytest.mark.parametrize(
    ("declared", "value", "condition"),
    [
        ("INTEGER", "'a text'", "c > 5"),
        ("INTEGER", "2.5", "c < 5"),
        ("TEXT", "x'00'", "c >= 'a'"),
        ("REAL", "'a text'", "c > 1.5"),
        ("BOOLEAN", "7", "c = true"),
        ("DATE", "'2024-02-30'", "c < DATE '2025-01-01'"),
        ("DATE", "20240101", "c < DATE '2025-01-01'"),
        ("NUMERIC", "9007199254740993", "c > 1.5"),
    ],
)
def test_a_value_of_another_type_is_an_error_and_is_never_converted(
    write: Write, declared: str, value: str, condition: str
) -> None:
    connector = write(f"CREATE TABLE t (id INTEGER, c {declared})", f"INSERT INTO t VALUES (1, {value}), (2, NULL)")
    handle = connector.table(("t",))
    for query in (handle, connector.push_limit(handle, 5).handle):  # type: ignore[union-attr]
        if declared != "NUMERIC":
            with pytest.raises(TableError, match="'c'"):
                read(connector, query)
    # This also applies if the database only counts such rows.
    predicate = bind(parse_sql(condition), connector.columns(handle))
    pushed = connector.push_filter(handle, predicate)
    assert pushed is not None
    counted = connector.push_aggregation(pushed.handle, False, [], [AggregateCall("n", "count", ())])
    assert counted is not None
    with pytest.raises(TableError, match="'c'"):
        read(connector, counted.handle)
    # Queries without the column are not affected.
    narrow = connector.push_projection(handle, [Named("id", Column(("id",), None))])
    assert narrow is not None
    assert read(connector, narrow.handle)["id"].to_pylist() == [1, 2]


def test_a_changed_file_is_checked_again(write: Write, tmp_path: Path) -> None:
    connector = write("CREATE TABLE t (c INTEGER)", "INSERT INTO t VALUES (1), (9)")
    handle = connector.table(("t",))
    assert read_filtered(connector, handle, "c > 5")["c"].to_pylist() == [9]
    with sqlite3.connect(tmp_path / "a file?.db") as connection:
        connection.execute("INSERT INTO t VALUES ('a text'), ('and so on, so that the file grows')")
    connection.close()
    with pytest.raises(TableError):
        read_filtered(connector, handle, "c < 5")


def test_columns_without_a_type_have_the_common_type_of_their_values(write: Write) -> None:
    connector = write(
        "CREATE TABLE t (a, b, c, d)",
        "INSERT INTO t VALUES (1, 1, 'x', NULL), (2, 2.5, NULL, NULL)",
        "CREATE VIEW v AS SELECT a + 1 AS more, c || '!' AS louder FROM t",
    )
    assert connector.columns(connector.table(("t",))).types == [types.LONG, types.DOUBLE, types.STRING, types.LONG]
    assert read(connector, connector.table(("v",))).to_pylist() == [
        {"more": 2, "louder": "x!"},
        {"more": 3, "louder": None},
    ]


@pytest.mark.parametrize(
    "values", ["(1, 1), (2, 'x')", "(1, 'x'), (2, x'00')", "(1, 2.5), (2, '7')", "(1, x'00'), (2, 7)"]
)
def test_a_column_with_mixed_types_fails_only_queries_that_need_it(write: Write, values: str) -> None:
    connector = write("CREATE TABLE u (id INTEGER, a)", f"INSERT INTO u VALUES {values}")
    handle = connector.table(("u",))
    narrow = connector.push_projection(handle, [Named("id", Column(("id",), None))])
    assert narrow is not None
    assert read(connector, narrow.handle)["id"].to_pylist() == [1, 2]
    counted = connector.push_aggregation(handle, False, [], [AggregateCall("n", "count", ())])
    assert counted is not None
    assert read(connector, counted.handle)["n"].to_pylist() == [2]
    with pytest.raises(TableError, match="'a'"):
        read(connector, handle)
    with pytest.raises(TableError, match="'a'"):
        read_filtered(connector, handle, "a > 0")


def test_types_are_right_if_the_first_rows_are_all_null(write: Write) -> None:
    connector = write(
        "CREATE TABLE t (n INTEGER, s TEXT, x REAL, b BLOB)",
        "WITH RECURSIVE k(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < 3000) "
        "INSERT INTO t SELECT NULL, NULL, NULL, NULL FROM k",
        "INSERT INTO t VALUES (7, 'late', 0.5, x'01')",
    )
    found = read(connector, connector.table(("t",)))
    assert found.num_rows == 3001
    assert found.slice(3000).to_pylist() == [{"n": 7, "s": "late", "x": 0.5, "b": b"\x01"}]


def test_tables_and_columns_may_have_any_name(write: Write) -> None:
    name, column = "a\"b'; DROP TABLE x; --", 'c"d e'
    quoted = name.replace('"', '""'), column.replace('"', '""')
    connector = write(f'CREATE TABLE "{quoted[0]}" ("{quoted[1]}" TEXT, "select" INTEGER)',
                      f'INSERT INTO "{quoted[0]}" VALUES (\'it\'\'s\', 1)')  # fmt: skip
    handle = connector.table((name,))
    assert handle is not None
    predicate = Call("=", (Column((column,), type=types.STRING), Literal("it's", types.STRING)))
    pushed = connector.push_filter(handle, predicate)
    assert pushed is not None
    ordered = connector.push_top_n(pushed.handle, [SortKey(Column(("select",), type=types.LONG))], 5)
    assert ordered is not None
    assert read(connector, ordered.handle).to_pylist() == [{column: "it's", "select": 1}]


def test_a_long_list_is_pushed_as_a_range_and_tested_above(write: Write) -> None:
    connector = write("CREATE TABLE t (n INTEGER)", "INSERT INTO t VALUES (-5), (3), (99999)")
    handle = connector.table(("t",))
    items = [Literal(number, types.LONG) for number in range(MAX_IN_LIST_ITEMS + 1)]
    listed = Call("in", (Column(("n",), type=types.LONG), *items))
    pushed = connector.push_filter(handle, listed)
    assert pushed is not None
    assert pushed.remaining == listed
    assert read(connector, pushed.handle)["n"].to_pylist() == [3]
    # A filter that was pushed down is not pushed down again.
    assert connector.push_filter(pushed.handle, listed) is None


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "a\udfff"])
def test_strings_that_cannot_be_literals_are_tested_by_tamis(write: Write, text: str) -> None:
    connector = write("CREATE TABLE t (s TEXT)")
    handle = connector.table(("t",))
    for function in ("=", "in", "like", "startswith"):
        condition = Call(function, (Column(("s",), type=types.STRING), Literal(text, types.STRING)))
        assert connector.push_filter(handle, condition) is None


def test_pushdowns_without_effect_return_none(write: Write) -> None:
    connector = write("CREATE TABLE t (n INTEGER, s TEXT)")
    handle = connector.table(("t",))
    assert connector.push_filter(handle, bind(parse_sql("upper(s) = 'A'"), connector.columns(handle))) is None
    both = [Named("n", Column(("n",), None)), Named("s", Column(("s",), None))]
    assert connector.push_projection(handle, both) is None
    limited = connector.push_limit(handle, 5)
    assert limited is not None
    assert connector.push_limit(limited.handle, 5) is None
    assert connector.push_limit(limited.handle, 6) is None
    assert connector.push_filter(limited.handle, bind(parse_sql("n = 1"), connector.columns(handle))) is None
    key = SortKey(Column(("n",), type=types.LONG))
    first = connector.push_top_n(handle, [key], 3)
    assert first is not None
    assert connector.push_top_n(first.handle, [key], 3) is None
    assert connector.table(("t",)) == handle
    assert hash(connector.table(("t",))) == hash(handle)


@pytest.mark.parametrize(
    "function", [("avg", types.DOUBLE), ("sum", pa.decimal128(38, 0)), ("stddev", types.DOUBLE), ("first", types.LONG)]
)
def test_aggregates_that_may_differ_are_not_pushed_down(write: Write, function: tuple[str, pa.DataType]) -> None:
    connector = write("CREATE TABLE t (n INTEGER)")
    call = AggregateCall("a", function[0], (Column(("n",), type=types.LONG),), type=function[1])
    assert connector.push_aggregation(connector.table(("t",)), False, [], [call]) is None


def test_row_counts_are_estimated_without_reading(write: Write) -> None:
    connector = write(
        "CREATE TABLE t (n INTEGER)",
        "INSERT INTO t VALUES (1), (2), (3), (4)",
        "DELETE FROM t WHERE n = 2",
        "CREATE TABLE u (n INTEGER)",
        "CREATE TABLE w (n TEXT PRIMARY KEY) WITHOUT ROWID",
        "CREATE VIEW v AS SELECT n FROM t",
    )
    rows = {name: connector.properties(connector.table((name,))).rows for name in "tuwv"}
    assert rows == {"t": 3, "u": None, "w": None, "v": None}
    limited = connector.push_limit(connector.table(("t",)), 2)
    assert limited is not None
    assert connector.properties(limited.handle).rows == 2


def test_a_database_is_opened_by_path_or_uri(write: Write, tmp_path: Path) -> None:
    write("CREATE TABLE t (n INTEGER)")
    (tmp_path / "a file?.db").rename(tmp_path / "x.db")
    for location in (tmp_path / "x.db", f"sqlite:///{tmp_path}/x.db", f"sqlite:////{str(tmp_path)[1:]}/x.db"):
        assert open_database(location).find_table(("t",)) is not None
    with pytest.raises(TableNotFound, match=r"absent\.db"):
        open_database(tmp_path / "absent.db")
    with pytest.raises(InvalidArgument, match="postgresql://"):
        open_database("mysql://me:secret@host/x")
    with pytest.raises(InvalidArgument) as caught:
        open_database("mysql://me:secret@host/x")
    assert "secret" not in str(caught.value)
    with pytest.raises(InvalidArgument):
        open_database(5)


def test_many_rows_are_not_counted(write: Write) -> None:
    connector = write("CREATE TABLE t (id INTEGER PRIMARY KEY)", "INSERT INTO t VALUES (1), (100000), (1000000)")
    assert connector.properties(connector.table(("t",))).rows == 1_000_000
