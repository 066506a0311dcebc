"""Casts on the embedded engine, also within lists, maps and structs, return the values of Spark 4.2."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.errors import TamisError

UTC = datetime.UTC


def at(*parts: int) -> datetime.datetime:
    return datetime.datetime(*parts, tzinfo=UTC)


ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int32()),
        "ts": pa.array([at(2024, 2, 29, 12, 34, 56, 789123), at(1969, 12, 31, 23, 59, 59, 999999), None],
                       pa.timestamp("us", "UTC")),
        "d": pa.array([Decimal("1.10"), Decimal("-2.25"), None], pa.decimal128(10, 2)),
        "v": pa.array([1.7, float("nan"), None]),
        "st": pa.array([{"x": 1, "y": "2"}, {"x": None, "y": "3"}, None],
                       pa.struct([("x", pa.int32()), ("y", pa.string())])),
        "m": pa.array([[(1, 1.7)], [], None], pa.map_(pa.int32(), pa.float64())),
    }
)  # fmt: skip

VALUES = [
    # Nested values
    ("CAST(array(1.7e0, -1.7e0) AS array<int>)", [1, -1]),
    ("CAST(array(1.5, 2.5) AS array<int>)", [1, 2]),
    ("CAST(map(1.7e0, 1.7e0) AS map<int, int>)", [(1, 1)]),
    ("CAST(array(array(1.7e0)) AS array<array<int>>)", [[1]]),
    ("CAST(array(named_struct('a', 1.7e0)) AS array<struct<a: int>>)", [{"a": 1}]),
    ("CAST(named_struct('a', 1.7e0, 'b', '2') AS struct<x: int, y: int>)", {"x": 1, "y": 2}),
    ("TRY_CAST(array('1.7', '2') AS array<int>)", [None, 2]),
    ("CAST(array(1e20, 1.5e0) AS array<string>)", ["1.0E20", "1.5"]),
    ("CAST(array(TIMESTAMP '2024-01-01 00:00:00') AS array<string>)", ["2024-01-01 00:00:00"]),
    ("CAST(array(X'C3B1') AS array<string>)", ["ñ"]),
    ("CAST(array('2024', '2024-1-2') AS array<date>)", [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]),
    ("CAST(array('t', '0') AS array<boolean>)", [True, False]),
    ("CAST(array('1d') AS array<double>)", [1.0]),
    ("CAST(array(1.25) AS array<decimal(10, 1)>)", [Decimal("1.3")]),
    ("CAST(array(1) AS array<timestamp>)", [at(1970, 1, 1, 0, 0, 1)]),
    ("CAST(array() AS array<int>)", []),
    ("transform(array(array(1.7e0)), x -> CAST(x AS array<int>))", [[1]]),
    ("concat_ws(',', array(1, 2), array(true), 'x')", "1,2,true,x"),
    ("array_join(array(CAST(NULL AS INT)), ',')", ""),
    # Numbers and timestamps
    ("CAST(1.5e0 AS TIMESTAMP)", at(1970, 1, 1, 0, 0, 1, 500000)),
    ("CAST(-1.23456789 AS TIMESTAMP)", at(1969, 12, 31, 23, 59, 58, 765433)),
    ("CAST(-1 AS TIMESTAMP)", at(1969, 12, 31, 23, 59, 59)),
    ("TRY_CAST(CAST('NaN' AS DOUBLE) AS TIMESTAMP)", None),
    ("CAST(TIMESTAMP '1969-12-31 23:59:59.5' AS BIGINT)", -1),
    ("CAST(TIMESTAMP '1969-12-31 23:59:59.5' AS DOUBLE)", -0.5),
    ("TRY_CAST(TIMESTAMP '1500-01-01 00:00:00' AS INT)", None),
]  # fmt: skip


@pytest.fixture(scope="module")
def session():
    found = tamis.connect()
    found.register("t", ROWS)
    return found


@pytest.mark.parametrize(("expression", "value"), VALUES, ids=[each for each, _ in VALUES])
def test_a_cast_returns_the_value_of_spark(session, expression, value):
    assert session.sql(f"SELECT {expression} AS v").to_arrow()["v"].to_pylist() == [value]
    for query in (
        f"SELECT {expression} AS v, row_number() OVER (ORDER BY id) AS n FROM t",
        f"SELECT {expression} AS v FROM t LATERAL VIEW explode(array(1)) e AS y",
    ):
        assert session.sql(query).to_arrow()["v"].to_pylist() == [value] * 3


COLUMNS = [
    ("CAST(ts AS BIGINT)", [1709210096, -1, None]),
    ("CAST(ts AS DOUBLE)", [1709210096.789123, -1e-06, None]),
    ("CAST(ts AS DECIMAL(20, 6))", [Decimal("1709210096.789123"), Decimal("-0.000001"), None]),
    ("CAST(id AS TIMESTAMP)", [at(1970, 1, 1, 0, 0, second) for second in (1, 2, 3)]),
    ("CAST(d AS TIMESTAMP)", [at(1970, 1, 1, 0, 0, 1, 100000), at(1969, 12, 31, 23, 59, 57, 750000), None]),
    ("CAST(array(v) AS array<string>)", [["1.7"], ["NaN"], [None]]),
    ("CAST(st AS struct<a: bigint, b: int>)", [{"a": 1, "b": 2}, {"a": None, "b": 3}, None]),
    ("CAST(m AS map<string, int>)", [[("1", 1)], [], None]),
]


@pytest.mark.parametrize(("expression", "values"), COLUMNS, ids=[each for each, _ in COLUMNS])
def test_a_cast_of_a_column_returns_the_values_of_spark(session, expression, values):
    for query in (
        "SELECT {} AS v FROM t ORDER BY id",
        "SELECT {} AS v, row_number() OVER (ORDER BY id) AS n FROM t ORDER BY id",
        "SELECT {} AS v FROM t LATERAL VIEW explode(array(1)) e AS y ORDER BY id",
    ):
        assert session.sql(query.format(expression)).to_arrow()["v"].to_pylist() == values


@pytest.mark.parametrize(
    ("query", "value"),
    [
        ("SELECT CAST(max(ts) AS BIGINT) FROM t", 1709210096),
        ("SELECT CAST(count(*) AS TIMESTAMP) FROM t", at(1970, 1, 1, 0, 0, 3)),
        ("SELECT CAST(max(ts) OVER () AS DATE) FROM t LIMIT 1", datetime.date(2024, 2, 29)),
        ("SELECT CAST(collect_list(v) AS array<int>) FROM t WHERE id = 1", [1]),
        ("SELECT CAST(s AS DATE) FROM (VALUES ('2024') AS q(s))", datetime.date(2024, 1, 1)),
        ("SELECT CAST(s AS TIMESTAMP) FROM (VALUES ('2024-01-01T1:2') AS q(s))", at(2024, 1, 1, 1, 2)),
    ],
)
def test_a_cast_of_a_value_without_a_known_type(session, query, value):
    assert session.sql(query).to_arrow().column(0).to_pylist() == [value]


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("CAST(ts AS BIGINT) > 1700000000", [1]),
        ("CAST(ts AS DOUBLE) < 0", [2]),
        ("CAST(id AS TIMESTAMP) > TIMESTAMP '1970-01-01 00:00:02'", [3]),
        ("CAST(d AS TIMESTAMP) < TIMESTAMP '1970-01-01 00:00:00'", [2]),
        ("CAST(m AS map<int, int>)[1] = 1", [1]),
    ],
)
def test_a_cast_in_a_filter_keeps_the_same_rows(tmp_path, session, where, ids):
    pq.write_table(ROWS, tmp_path / "part.parquet")
    assert tamis.open(str(tmp_path)).scan(where).to_arrow()["id"].to_pylist() == ids
    assert session.sql(f"SELECT id FROM t WHERE {where}").to_arrow()["id"].to_pylist() == ids


@pytest.mark.parametrize(
    "expression",
    [
        "CAST(array('1.7') AS array<int>)", "CAST(array(300) AS array<tinyint>)", "CAST(array(1) AS array<date>)",
        "CAST(array('x') AS array<boolean>)", "CAST(1 AS array<int>)", "CAST(array(1) AS int)",
        "CAST(array(1) AS map<int, int>)", "CAST(named_struct('a', 1, 'b', 2) AS struct<x: int>)",
        "CAST(named_struct('a', 1) AS struct<x: int, y: int>)", "CAST(true AS TIMESTAMP)",
        "CAST(CAST('NaN' AS DOUBLE) AS TIMESTAMP)", "CAST(id AS DATE)", "CAST(id AS TIMESTAMP_NTZ)",
        "CAST(DATE '2024-01-01' AS INT)", "CAST(TIMESTAMP '1500-01-01 00:00:00' AS INT)",
        "CAST(s AS DATE) FROM (VALUES ('2024/01/01') AS q(s))", "CAST(s AS DATE) FROM (VALUES ('epoch') AS q(s))",
        "CAST(s AS TIMESTAMP) FROM (VALUES ('2024-01-01 24:00:00') AS q(s))",
    ],
)  # fmt: skip
def test_a_cast_that_spark_rejects_is_an_error(session, expression):
    with pytest.raises(TamisError):
        session.sql(f"SELECT {expression}{'' if ' FROM ' in expression else ' FROM t'}").to_arrow()
