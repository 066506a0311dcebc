"""Functions and syntax of queries on the embedded engine return the values of Spark 4.2."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

import tamis
from tamis.errors import EvaluationError, UnknownColumn

ROWS = pa.table(
    {
        "id": [1, 2, 3, 4],
        "i": pa.array([5, -7, 0, None], pa.int32()),
        "l": [12345678901, -3, 17, None],
        "d": [1.5, -2.5, float("nan"), None],
        "f": pa.array([0.1, 1e10, -0.0, None], pa.float32()),
        "m": pa.array([Decimal("12.345"), Decimal("-0.005"), Decimal("2.500"), None], pa.decimal128(10, 3)),
        "s": ["Hello World", "éa", "", None],
        "bin": [b"abc", b"\xff", b"", None],
        "dt": [datetime.date(2024, 2, 29), datetime.date(1969, 12, 31), datetime.date(2023, 1, 1), None],
        "ts": pa.array([1709210096789000, -500000, 1672531200000000, None], pa.timestamp("us", "UTC")),
        "xs": pa.array([[3, 1, None, 2], [], [5, 5], None], pa.list_(pa.int32())),
        "mp": pa.array([[("x", 1), ("y", 2)], [], [("z", None)], None], pa.map_(pa.string(), pa.int64())),
        "st": [{"a": 1, "c": "u"}, {"a": None, "c": None}, {"a": 3, "c": "w"}, None],
        "js": ['{"a":{"b":1},"c":[1,2]}', "{bad", '{"a":null}', None],
    }
)

VALUES = [
    ("substring(s, 0, 3)", ["Hel", "éa", "", None]),
    ("isnull(s)", [False, False, False, True]),
    ("NOT isnotnull(s)", [False, False, False, True]),
    ("concat(s, d)", ["Hello World1.5", "éa-2.5", "NaN", None]),
    ("concat(f, '|', l)", ["0.1|12345678901", "1.0E10|-3", "-0.0|17", None]),
    ("concat(ts, 'x')", ["2024-02-29 12:34:56.789x", "1969-12-31 23:59:59.5x", "2023-01-01 00:00:00x", None]),
    ("concat(d * 2, '!')", ["3.0!", "-5.0!", "NaN!", None]),
    ("concat(1e10, 'x')", ["1.0E10x"] * 4),
    ("concat_ws(',', s, d)", ["Hello World,1.5", "éa,-2.5", ",NaN", ""]),
    ("s || d || f", ["Hello World1.50.1", "éa-2.51.0E10", "NaN-0.0", None]),
    ("concat(xs, array(9))", [[3, 1, None, 2, 9], [9], [5, 5, 9], None]),
    ("octet_length(s)", [11, 3, 0, None]),
    ("length(bin)", [3, 1, 0, None]),
    ("size(mp)", [2, 0, 1, None]),
    ("size(xs) - 5", [-1, -5, -3, None]),
    ("get_json_object(js, '$.a')", ['{"b":1}', None, None, None]),
    ("get_json_object(js, '$.c[1]')", ["2", None, None, None]),
    ("extract(DAY FROM ts - TIMESTAMP '2024-01-01 00:00:00')", [59, -19723, -365, None]),
    ("day(dt - 1)", [28, 30, 31, None]),
    ("pmod(i, 3)", [2, 2, 0, None]),
    ("pmod(l, -3)", [1, 0, 2, None]),
    ("pmod(m, 2)", [Decimal("0.345"), Decimal("1.995"), Decimal("0.500"), None]),
    ("coalesce(nanvl(d, NULL), 9)", [1.5, -2.5, 9.0, 9.0]),
    ("bround(m, 1)", [Decimal("12.3"), Decimal("0.0"), Decimal("2.5"), None]),
    ("bround(i, -1)", [0, -10, 0, None]),
    ("format_number(m, 1)", ["12.3", "-0.0", "2.5", None]),
    ("format_number(l, 0)", ["12,345,678,901", "-3", "17", None]),
    ("format_number(d, 2)", ["1.50", "-2.50", "NaN", None]),
    ("unix_timestamp(ts)", [1709210096, 0, 1672531200, None]),
    ("unix_timestamp(dt)", [1709164800, -86400, 1672531200, None]),
    ("exists(xs, x -> x > 2)", [True, False, True, None]),
    ("exists(xs, x -> x > 3)", [None, False, True, None]),
    ("forall(xs, x -> x > 0)", [None, True, True, None]),
    ("negative(i)", [-5, 7, 0, None]),
    ("try_add(i, 2147483647)", [None, 2147483640, 2147483647, None]),
    ("arrays_overlap(xs, array(5, 9))", [None, False, True, None]),
    ("array_union(xs, array(1, 9))", [[3, 1, None, 2, 9], [1, 9], [5, 1, 9], None]),
    ("array_repeat(i, 2)", [[5, 5], [-7, -7], [0, 0], [None, None]]),
    ("get(xs, 0)", [3, None, 5, None]),
    ("map_contains_key(mp, 'x')", [True, False, False, None]),
    ("substring_index(s, 'o', -1)", ["rld", "éa", "", None]),
    ("btrim(s, 'Hd')", ["ello Worl", "éa", "", None]),
    ("trunc(dt, 'MM')", [datetime.date(2024, 2, 1), datetime.date(1969, 12, 1), datetime.date(2023, 1, 1), None]),
    # One of DuckDB's functions does not change the semantics of the others.
    ("if(typeof(id) = 'x', 0, dayofweek(dt))", [5, 4, 1, None]),
]


@pytest.fixture(scope="module")
def session() -> tamis.Session:
    made = tamis.connect()
    made.register("t", ROWS)
    made.register("many", pa.table({"id": range(300)}))
    return made


def read_rows(session: tamis.Session, query: str) -> list[tuple[object, ...]]:
    found = session.sql(query).to_arrow()
    return [tuple(row) for row in zip(*(column.to_pylist() for column in found.columns), strict=True)]


@pytest.mark.parametrize(("expression", "expected"), VALUES, ids=[expression for expression, _ in VALUES])
def test_a_function_returns_the_value_of_spark(session: tamis.Session, expression: str, expected: list[object]) -> None:
    planned = session.sql(f"SELECT {expression} AS v FROM t ORDER BY id").to_arrow()
    in_text = session.sql(f"SELECT {expression} AS v, count(*) OVER () AS n FROM t ORDER BY id").to_arrow()
    assert planned["v"].to_pylist() == in_text["v"].to_pylist() == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT reverse(xs), bround(d), bround(f * 1D) FROM t WHERE id = 1", [([2, None, 1, 3], 2.0, 0.0)]),
        ("SELECT count(i, l), count(i, s, l) FILTER (WHERE id > 1) FROM t", [(3, 2)]),
        ("SELECT max_by(i, id), min_by(s, l), max_by(i, d) FROM t", [(None, "éa", 0)]),
        ("SELECT first(i, true), last(l, true), first_value(s), last_value(s, true) FROM (SELECT * FROM t ORDER BY id)",
         [(5, 17, "Hello World", "")]),
        ("SELECT id, x FROM t, LATERAL explode(xs) AS v(x) WHERE x > 1 ORDER BY id, x",
         [(1, 2), (1, 3), (3, 5), (3, 5)]),
        ("SELECT id, x FROM t LEFT JOIN LATERAL explode(xs) AS v(x) ON true WHERE id > 1 ORDER BY id",
         [(2, None), (3, 5), (3, 5), (4, None)]),
        ("SELECT id, x FROM t, LATERAL explode_outer(xs) AS v(x) WHERE id > 1 ORDER BY id",
         [(2, None), (3, 5), (3, 5), (4, None)]),
        ("SELECT id, k, v FROM t, LATERAL explode(mp) AS e(k, v) ORDER BY id, k",
         [(1, "x", 1), (1, "y", 2), (3, "z", None)]),
        ("SELECT id, explode(mp) AS (k, v) FROM t ORDER BY id, k", [(1, "x", 1), (1, "y", 2), (3, "z", None)]),
        ("SELECT explode_outer(xs) AS x, id FROM t WHERE id > 1 ORDER BY id",
         [(None, 2), (5, 3), (5, 3), (None, 4)]),
        ("SELECT id, posexplode_outer(xs) AS (p, x) FROM t WHERE id > 1 ORDER BY id, p",
         [(2, None, None), (3, 0, 5), (3, 1, 5), (4, None, None)]),
        ("SELECT u.k, u.a, u.b FROM (SELECT id, i, l, get(xs, 0) AS q FROM t) "
         "UNPIVOT ((a, b) FOR k IN ((i, l) AS x, (q, i) AS y)) AS u ORDER BY id, k",
         [("x", 5, 12345678901), ("y", 3, 5), ("x", -7, -3), ("y", None, -7), ("x", 0, 17), ("y", 5, 0)]),
        ("SELECT o.st.*, o.id FROM t o ORDER BY o.id LIMIT 2", [(1, "u", 1), (None, None, 2)]),
        ("SELECT o.st.*, count(*) OVER () FROM t o ORDER BY o.id LIMIT 1", [(1, "u", 4)]),
        ("SELECT o.id, (SELECT max(substring(p.s, 0, 2)) FROM t p WHERE p.id <= o.id AND isnotnull(p.s)) FROM t o "
         "WHERE o.id < 3 ORDER BY 1", [(1, "He"), (2, "éa")]),
    ],
)  # fmt: skip
def test_a_query_returns_the_rows_of_spark(
    session: tamis.Session, query: str, expected: list[tuple[object, ...]]
) -> None:
    assert read_rows(session, query) == expected


def test_a_sample_consists_of_single_rows(session: tamis.Session) -> None:
    [(count,)] = read_rows(session, "SELECT count(*) FROM many TABLESAMPLE (30 PERCENT) REPEATABLE (7)")
    assert isinstance(count, int)
    assert 0 < count < 300


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT sha2(s, 512) FROM t", "sha2 supports only 256 bits here"),
        # Spark reads both as far as they are JSON.
        ("""SELECT get_json_object('{"a":1} x', '$.a') FROM t""", "Spark would read some of it"),
        ("""SELECT get_json_object("{'a':1}", '$.a') FROM t""", "Spark would read some of it"),
        ("SELECT to_date(s), count(*) OVER () FROM t", "Hello World"),
    ],
)
def test_a_value_that_would_differ_from_spark_is_an_error(session: tamis.Session, query: str, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        session.sql(query).to_arrow()


def test_a_star_of_an_unknown_name_is_an_error_that_names_it(session: tamis.Session) -> None:
    with pytest.raises(UnknownColumn, match=r"nope\.\*"):
        session.sql("SELECT nope.* FROM t o").to_arrow()
