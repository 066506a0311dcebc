"""DuckDB databases: the types of values, and Tamis errors for invalid ones."""

from __future__ import annotations

from datetime import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import tamis
from tamis.errors import TableError, UnsupportedFeature

DIALECTS = ("spark", "duckdb")
WIDE = pa.decimal128(38, 0)
TOO_WIDE = 2**127 - 1


def attach_duckdb(*statements: str) -> tamis.Session[Any]:
    connection = duckdb.connect()
    for statement in statements:
        connection.execute(statement)
    return tamis.connect().attach("db", connection)


def read_rows(session: tamis.Session[Any], query: str, dialect: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = session.sql(query, dialect=dialect).to_arrow().to_pylist()
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", ["HUGEINT", "UHUGEINT", "BIGNUM"])
def test_wide_integers_are_numbers(kind: str, dialect: str) -> None:
    session = attach_duckdb(f"CREATE TABLE t AS SELECT unnest([9, 10])::{kind} AS h")
    assert read_rows(session, "SELECT max(h) AS h FROM db.t", dialect) == [{"h": Decimal(10)}]
    assert read_rows(session, "SELECT h FROM db.t WHERE h > 9.5", dialect) == [{"h": Decimal(10)}]
    assert read_rows(session, "SELECT sum(h) AS h FROM db.t", dialect) == [{"h": Decimal(19)}]
    joined = "SELECT a.h FROM db.t a JOIN db.t b ON a.h = b.h ORDER BY a.h"
    assert read_rows(session, joined, dialect) == [{"h": Decimal(9)}, {"h": Decimal(10)}]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_integer_of_more_than_38_digits_is_an_error_that_names_the_column(dialect: str) -> None:
    session = attach_duckdb(
        f"CREATE TABLE t AS SELECT {TOO_WIDE}::HUGEINT AS h, {2**128 - 1}::UHUGEINT AS u, "
        f"repeat('9', 50)::BIGNUM AS b, [{{'x': {TOO_WIDE}::HUGEINT}}] AS l, 1 AS one"
    )
    for name in ("h", "u", "b", "l"):
        with pytest.raises(TableError, match=f"column '{name}' .* more than 38 digits.* through a view"):
            read_rows(session, f"SELECT {name} FROM db.t", dialect)
    with pytest.raises(TableError, match=r"column 'h' .* more than 38 digits"):
        read_rows(session, "SELECT one FROM db.t WHERE h < 5", dialect)
    assert read_rows(session, "SELECT one FROM db.t", dialect) == [{"one": 1}]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("value", "data_type", "expected"),
    [
        ("INTERVAL '1 month 2 days'", pa.month_day_nano_interval(), pa.MonthDayNano([1, 2, 0])),
        ("TIME '10:00:00.5'", pa.time64("us"), time(10, 0, 0, 500_000)),
        ("'00000000-0000-0000-0000-0000000000ff'::UUID", pa.string(), "00000000-0000-0000-0000-0000000000ff"),
        ("'101'::BIT", pa.string(), "101"),
        ("'b'::ENUM('b', 'a')", pa.string(), "b"),
        ("'{}'::JSON", pa.string(), "{}"),
        ("1::UBIGINT", pa.uint64(), 1),
        ("[9::HUGEINT]", pa.list_(WIDE), [Decimal(9)]),
        ("[9::BIGNUM]", pa.list_(WIDE), [Decimal(9)]),
        ("array_value(9::HUGEINT, 10)", pa.list_(WIDE, 2), [Decimal(9), Decimal(10)]),
        ("MAP {'a': 9::HUGEINT}", pa.map_(pa.string(), WIDE), [("a", Decimal(9))]),
        (
            """{'a "b': 9::HUGEINT, 'c': ['101'::BIT], 'd': 9::BIGNUM, 'e': 1::UTINYINT}""",
            pa.struct([('a "b', WIDE), ("c", pa.list_(pa.string())), ("d", WIDE), ("e", pa.uint8())]),
            {'a "b': Decimal(9), "c": ["101"], "d": Decimal(9), "e": 1},
        ),
    ],
    ids=str,
)
def test_values_have_their_natural_types(value: str, data_type: pa.DataType, expected: Any, dialect: str) -> None:
    session = attach_duckdb(f"CREATE TABLE t AS SELECT {value} AS x UNION ALL SELECT NULL")
    found = session.sql("SELECT x FROM db.t", dialect=dialect).to_arrow()
    assert found["x"].type == data_type
    assert sorted(found["x"].to_pylist(), key=lambda each: each is None) == [expected, None]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_intervals_compare_as_intervals(dialect: str) -> None:
    session = attach_duckdb("CREATE TABLE t AS SELECT unnest([INTERVAL '9 days', INTERVAL '10 days']) AS i")
    assert read_rows(session, "SELECT max(i) AS i FROM db.t", dialect) == [{"i": pa.MonthDayNano([0, 10, 0])}]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "value", ["'10:00:00+02'::TIMETZ", "['10:00:00+02'::TIMETZ]", "union_value(a := 1)", "1::VARIANT"]
)
def test_a_column_of_an_unsupported_type_is_rejected_by_name(value: str, dialect: str) -> None:
    session = attach_duckdb(f"CREATE TABLE t AS SELECT {value} AS x, 1 AS one")
    assert read_rows(session, "SELECT one FROM db.t", dialect) == [{"one": 1}]
    for query in ("SELECT x FROM db.t", "SELECT max(x) FROM db.t", "SELECT one FROM db.t ORDER BY x"):
        with pytest.raises(
            UnsupportedFeature, match=r"the column 'x' in .* has the unsupported type .* through a view"
        ):
            read_rows(session, query, dialect)


def test_uuids_and_enums_are_filtered_as_strings() -> None:
    session = attach_duckdb("CREATE TABLE t AS SELECT unnest(['b', 'a'])::ENUM('b', 'a') AS e")
    query = "SELECT e FROM db.t WHERE e >= 'b'"
    assert read_rows(session, query, "spark") == [{"e": "b"}]
    assert """WHERE (CAST("t1"."e" AS VARCHAR) COLLATE "C") >= 'b'""" in session.explain(query)


def test_a_view_of_a_dropped_table_is_an_error_that_names_the_database(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS x; CREATE VIEW v AS SELECT x FROM t; DROP TABLE t")
    session = tamis.connect().attach("shop", f"duckdb:///{path}")
    with pytest.raises(TableError, match=r"shop\.duckdb did not answer a query"):
        session.sql("SELECT * FROM shop.v")
