"""Texts of doubles, listagg, shifts, booleans of NaN and SORT BY return the values of Spark 4.2."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.errors import TamisError

ROWS = pa.table(
    {
        "id": pa.array([3, 1, 2], pa.int32()),
        "ti": pa.array([127, -7, None], pa.int8()),
        "bi": pa.array([2**63 - 1, -8, None], pa.int64()),
        "v": pa.array([float("nan"), 1e20, None]),
        "dt": pa.array([datetime.date(2024, 1, 3), datetime.date(2024, 1, 1), None]),
        "bin": pa.array([b"a", b"b", None]),
    }
)

VALUES = [
    ("CAST(1e20 AS STRING)", "1.0E20"),
    ("CAST(1.5e10 AS STRING)", "1.5E10"),
    ("CAST(123456789.0e0 AS STRING)", "1.23456789E8"),
    ("CAST(0.00012e0 AS STRING)", "1.2E-4"),
    ("CAST(9999999e0 AS STRING)", "9999999.0"),
    ("string(1e20)", "1.0E20"),
    ("CAST(1.10 AS STRING)", "1.10"),
    ("CAST(CAST('NaN' AS DOUBLE) AS BOOLEAN)", True),
    ("TRY_CAST(CAST('NaN' AS FLOAT) AS BOOLEAN)", True),
    ("CAST(0.0e0 AS BOOLEAN)", False),
    ("1 << 33", 2),
    ("1 << -1", -(2**31)),
    ("-1 << 31", -(2**31)),
    ("2147483647 << 1", -2),
    ("-8 >> 33", -4),
    ("-8 >>> 1", 2147483644),
    ("-8 >>> 33", 2147483644),
    ("shiftleft(1L, 65)", 2),
    ("shiftright(-8L, 65)", -4),
    ("shiftrightunsigned(-8L, -1)", 1),
    ("shiftleft('1', 1)", 2),
    ("shiftleft(1.5, '1')", 2),
    ("shiftleft(NULL, 1)", None),
    ("typeof(CAST(1 AS TINYINT) << 2)", "int"),
]


@pytest.fixture(scope="module")
def session():
    found = tamis.connect()
    found.register("t", ROWS)
    return found


@pytest.mark.parametrize(("expression", "value"), VALUES, ids=[each for each, _ in VALUES])
def test_an_expression_returns_the_value_of_spark(session, expression, value):
    assert session.sql(f"SELECT {expression} AS v").to_arrow()["v"].to_pylist() == [value]
    beside = session.sql(f"SELECT {expression} AS v, row_number() OVER (ORDER BY id) AS n FROM t").to_arrow()
    assert beside["v"].to_pylist() == [value] * 3


@pytest.mark.parametrize(
    ("query", "values"),
    [
        ("SELECT ti << 2 FROM t", [508, -28, None]),
        ("SELECT ti >>> 1 FROM t", [63, 2147483644, None]),
        ("SELECT bi << 1 FROM t", [-2, -16, None]),
        ("SELECT shiftrightunsigned(bi, 1) FROM t", [4611686018427387903, 9223372036854775804, None]),
        ("SELECT CAST(v AS BOOLEAN) FROM t", [True, True, None]),
        ("SELECT listagg(v, ',') FROM t", ["NaN,1.0E20"]),
        ("SELECT listagg(v, ',') WITHIN GROUP (ORDER BY id) FROM t", ["1.0E20,NaN"]),
        ("SELECT listagg(DISTINCT id, ',') WITHIN GROUP (ORDER BY id) FROM t", ["1,2,3"]),
        ("SELECT listagg(id, 0) FROM t", ["30102"]),
        ("SELECT try_subtract(dt, DATE '2024-01-01') FROM t", [datetime.timedelta(2), datetime.timedelta(0), None]),
        ("SELECT id FROM t SORT BY id LIMIT 2", [1, 2]),
        ("SELECT id FROM t SORT BY id DESC LIMIT 1", [3]),
        ("SELECT id FROM t CLUSTER BY id LIMIT 1", [1]),
        ("SELECT v FROM t SORT BY bi LIMIT 1", [None]),
        ("SELECT id FROM (SELECT id FROM t SORT BY id DESC) LIMIT 1", [3]),
    ],
)
def test_a_query_returns_the_values_of_spark(session, query, values):
    found = session.sql(query).to_arrow().column(0).to_pylist()
    if any(isinstance(each, datetime.timedelta) for each in values):
        found = [None if each is None else datetime.timedelta(each.days) for each in found]
    assert [str(each) for each in found] == [str(each) for each in values]


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("CAST(v AS STRING) = '1.0E20'", [1]),
        ("CAST(1e20 AS STRING) = '1.0E20'", [3, 1, 2]),
        ("CAST(v AS BOOLEAN)", [3, 1]),
        ("id << 33 = 2", [1]),
        ("ti >> 1 = -4", [1]),
    ],
)
def test_an_expression_in_a_filter_keeps_the_same_rows(tmp_path, session, where, ids):
    pq.write_table(ROWS, tmp_path / "part.parquet")
    assert tamis.open(str(tmp_path)).scan(where).to_arrow()["id"].to_pylist() == ids
    assert session.sql(f"SELECT id FROM t WHERE {where}").to_arrow()["id"].to_pylist() == ids


@pytest.mark.parametrize(
    "query",
    [
        "SELECT listagg(bin) FROM t", "SELECT listagg(bin, X'2c') FROM t", "SELECT listagg(bin, ',') FROM t",
        "SELECT listagg(bin, X'2c') WITHIN GROUP (ORDER BY id) FROM t", "SELECT listagg(array(id), ',') FROM t",
    ],
)  # fmt: skip
def test_listagg_of_bytes_is_rejected_by_name(session, query):
    with pytest.raises(TamisError, match=r"listagg|lists, maps and structs"):
        session.sql(query).to_arrow()


def test_shifting_a_boolean_is_an_error(session):
    with pytest.raises(TamisError, match="boolean"):
        session.sql("SELECT shiftleft(true, 1)").to_arrow()


@pytest.mark.parametrize(
    ("expression", "days", "microseconds"),
    [
        ("INTERVAL 1 DAY * 16777216.0", 16777216, 0),
        ("INTERVAL 1 DAY * -2000000", -2000000, 0),
        ("INTERVAL '3000000' HOUR", 125000, 0),
        ("make_dt_interval(100000000, 1)", 100000000, 3_600_000_000),
        ("TIMESTAMP '9999-12-31 00:00:00' - TIMESTAMP '0001-01-01 00:00:00'", 3652058, 0),
    ],
)
def test_long_intervals_keep_their_days(session, expression, days, microseconds):
    (found,) = session.sql(f"SELECT {expression} AS v").to_arrow()["v"].to_pylist()
    assert (found.months, found.days * 86_400_000_000 + found.nanoseconds // 1000) == (
        0,
        days * 86_400_000_000 + microseconds,
    )


@pytest.mark.parametrize(
    "expression", ["array(1) + array(2)", "array('a') + array('b')", "try_add(array(1), array(2))"]
)
def test_adding_lists_is_an_error(session, expression):
    with pytest.raises(TamisError, match="lists cannot be added"):
        session.sql(f"SELECT {expression}").to_arrow()
