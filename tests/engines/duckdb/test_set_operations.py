"""Columns of set operations, recursive queries and VALUES have the types of Spark 4.2, or the query is rejected."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from itertools import product

import pyarrow as pa
import pytest

import tamis
from tamis.errors import TamisError, TypeMismatch

D = Decimal

LITERALS = {
    "tinyint": "1Y", "smallint": "2S", "int": "3", "bigint": "4L", "float": "CAST(1.5 AS FLOAT)", "double": "2.5D",
    "decimal(3,2)": "1.25", "decimal(38,2)": "CAST(1.5 AS DECIMAL(38, 2))", "decimal(10,0)": "CAST(7 AS DECIMAL(10))",
    "string": "'10'", "boolean": "true", "date": "DATE'2024-01-31'", "timestamp": "TIMESTAMP'2024-02-29 12:34:56'",
    "timestamp_ntz": "TIMESTAMP_NTZ'2024-02-29 12:34:56'", "binary": "X'31'", "time": "TIME'12:00:00'",
    "array<int>": "array(1)", "array<bigint>": "array(2L)", "struct<a int>": "named_struct('a', 1)",
    "struct<b int>": "named_struct('b', 2)", "map<int, int>": "map(1, 2)", "map<int, bigint>": "map(1, 2L)",
    "interval": "INTERVAL '1' DAY",
}  # fmt: skip

# Spark's common type of each pair of different types, in either order; it rejects pairs that are not listed.
WHOLE = {"tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}
DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
COMMON: dict[frozenset[str], pa.DataType] = {}
for one, other in product(WHOLE, WHOLE):
    COMMON[frozenset((one, other))] = WHOLE[max(one, other, key=list(WHOLE).index)]
for name in WHOLE:
    COMMON[frozenset((name, "decimal(3,2)"))] = pa.decimal128(DIGITS[name] + 2, 2)
    COMMON[frozenset((name, "decimal(38,2)"))] = pa.decimal128(38, 2)
    COMMON[frozenset((name, "decimal(10,0)"))] = pa.decimal128(max(10, DIGITS[name]), 0)
    COMMON[frozenset((name, "string"))] = pa.int64()
DECIMALS = ("decimal(3,2)", "decimal(38,2)", "decimal(10,0)")
for name in (*WHOLE, *DECIMALS, "string", "float", "double"):
    COMMON[frozenset((name, "float"))] = pa.float64()
    COMMON[frozenset((name, "double"))] = pa.float64()
COMMON[frozenset(("float",))] = pa.float32()
for name in DECIMALS:
    COMMON[frozenset((name, "string"))] = pa.float64()
    COMMON[frozenset((name, "decimal(38,2)"))] = pa.decimal128(38, 2)
COMMON |= {
    frozenset(("decimal(3,2)", "decimal(10,0)")): pa.decimal128(12, 2),
    frozenset(("date", "timestamp")): pa.timestamp("us", "UTC"),
    frozenset(("timestamp_ntz", "timestamp")): pa.timestamp("us", "UTC"),
    frozenset(("date", "timestamp_ntz")): pa.timestamp("us"),
    frozenset(("string", "binary")): pa.binary(),
    frozenset(("array<int>", "array<bigint>")): pa.list_(pa.int64()),
    frozenset(("map<int, int>", "map<int, bigint>")): pa.map_(pa.int32(), pa.int64()),
}
READS_AS_DATE = {"boolean", "date", "timestamp", "timestamp_ntz", "time"}
PAIRS = [
    (one, other) for one, other in product(LITERALS, LITERALS)
    if one != other and not ("string" in (one, other) and {one, other} & READS_AS_DATE)
]  # fmt: skip


@pytest.fixture(scope="module")
def session() -> tamis.Session:
    connection = tamis.connect()
    connection.register(
        "o",
        pa.table({"id": pa.array([1, 2, 7, None], pa.int32()), "k": ["a", "b", None, "c"], "f": [0.5, 1.5, 2.5, 0]}),
    )
    return connection


def read_rows(session: tamis.Session, query: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in session.sql(query).to_arrow().to_pylist()]


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda name: name)
def test_a_union_has_the_common_type_of_spark(session: tamis.Session, one: str, other: str) -> None:
    query = f"SELECT {LITERALS[one]} AS x UNION ALL SELECT {LITERALS[other]}"
    expected = COMMON.get(frozenset((one, other)))
    if expected is None:
        with pytest.raises(TypeMismatch, match="no common type"):
            session.sql(query).to_arrow()
    else:
        found = session.sql(query).to_arrow()
        assert str(found.schema.types[0]).replace(": l ", ": element ") == str(expected).replace("item: ", "l: ")
        assert found.num_rows == 2


SPARK_VALUES: dict[str, list[tuple[object, ...]]] = {
    "SELECT max(x) FROM (SELECT 9 x UNION ALL SELECT '10')": [(10,)],
    "SELECT x + 1 FROM (SELECT 9 x UNION ALL SELECT '10') ORDER BY 1": [(10,), (11,)],
    "SELECT 1 x UNION SELECT '1'": [(1,)],
    "SELECT '1' x UNION SELECT 1": [(1,)],
    "SELECT 1 x INTERSECT SELECT '1'": [(1,)],
    "SELECT 1 x EXCEPT SELECT '1'": [],
    "SELECT '1' x EXCEPT SELECT 1.0": [],
    "SELECT '1.5' x INTERSECT SELECT 1.5": [(1.5,)],
    "SELECT 1 x INTERSECT ALL SELECT 1.0": [(D("1.0"),)],
    "SELECT 1 x EXCEPT ALL SELECT 1L": [],
    "SELECT DATE'2024-01-01' x UNION ALL SELECT '2024-01-02'": [(date(2024, 1, 1),), (date(2024, 1, 2),)],
    "SELECT '2024-01-02' x INTERSECT SELECT DATE'2024-01-02'": [(date(2024, 1, 2),)],
    "SELECT 'yes' x UNION ALL SELECT true": [(True,), (True,)],
    "SELECT X'31' x UNION ALL SELECT 'a'": [(b"1",), (b"a",)],
    "SELECT NULL x UNION ALL SELECT 1": [(None,), (1,)],
    "SELECT 1 x UNION ALL SELECT '2' UNION ALL SELECT 2.5": [(D("1.0"),), (D("2.0"),), (D("2.5"),)],
    "SELECT 5 x UNION ALL (SELECT '7' UNION ALL SELECT 1.5)": [(5.0,), (7.0,), (1.5,)],
    "(SELECT 5 x UNION ALL SELECT '7') UNION ALL SELECT 1.5": [(D("5.0"),), (D("7.0"),), (D("1.5"),)],
    "(SELECT 5 x LIMIT 1) UNION ALL (SELECT '7' ORDER BY 1)": [(5,), (7,)],
    "SELECT 5 x UNION ALL SELECT '7' ORDER BY x DESC LIMIT 1": [(7,)],
    "WITH t AS (SELECT 1 x) SELECT x FROM t UNION ALL SELECT '5'": [(1,), (5,)],
    "WITH t AS (SELECT 1 x UNION ALL SELECT '5') SELECT max(x) FROM t": [(5,)],
    "WITH t AS (SELECT 1 x UNION ALL SELECT '5') SELECT max(x) FROM (SELECT x FROM t UNION ALL SELECT 2.5)": [
        (D("5.0"),)
    ],
    "SELECT a.x FROM (SELECT 1 x UNION ALL SELECT '5') a JOIN (SELECT 5 y) b ON a.x = b.y": [(5,)],
    "SELECT max(x) FROM (SELECT id x FROM o UNION ALL SELECT '12' FROM o)": [(12,)],
    "SELECT max(x) FROM (SELECT id x FROM o UNION ALL SELECT f FROM o)": [(7.0,)],
    "SELECT id FROM o WHERE id IN (SELECT 1 UNION ALL SELECT '7')": [(1,), (7,)],
    "SELECT id FROM o WHERE EXISTS (SELECT 1 FROM o p WHERE p.id = o.id + 1 UNION ALL SELECT 2 WHERE o.id = 7)": [
        (1,),
        (7,),
    ],
    "SELECT CAST(1 AS DECIMAL(38, 20)) x UNION ALL SELECT CAST(2 AS DECIMAL(30))": [
        (D("1.00000000"),),
        (D("2.00000000"),),
    ],
    "SELECT named_struct('a', 1) x UNION ALL SELECT named_struct('A', 2L)": [({"a": 1},), ({"a": 2},)],
    "TABLE o |> WHERE id = 1 |> SELECT id |> UNION ALL (SELECT '5')": [(1,), (5,)],
    "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t WHERE x < 3) SELECT x FROM t": [(1,), (2,), (3,)],
    "WITH RECURSIVE t(x) AS (SELECT 1L UNION ALL SELECT 2 FROM t WHERE x < 2) SELECT x FROM t": [(1,), (2,)],
    "WITH RECURSIVE t(x) AS (SELECT 1D UNION ALL SELECT 5 FROM t WHERE x < 3) SELECT x FROM t": [(1.0,), (5.0,)],
    "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT NULL FROM t WHERE x > 0) SELECT x FROM t": [(1,), (None,)],
    "WITH RECURSIVE t(x) AS (SELECT TIMESTAMP_NTZ'2024-01-01 00:00:00' UNION ALL SELECT DATE'2024-01-02' FROM t "
    "WHERE x < TIMESTAMP_NTZ'2024-01-02 00:00:00') SELECT x FROM t": [(datetime(2024, 1, 1),), (datetime(2024, 1, 2),)],
    "SELECT * FROM VALUES (1), (2.5) t(x)": [(D("1.0"),), (D("2.5"),)],
    "SELECT * FROM VALUES (CAST(1.5 AS FLOAT)), (2) t(x)": [(1.5,), (2.0,)],
    "SELECT * FROM VALUES (1, NULL), (NULL, 'a') t(x, y)": [(1, None), (None, "a")],
}


@pytest.mark.parametrize("query", SPARK_VALUES)
def test_set_operations_return_the_values_of_spark(session: tamis.Session, query: str) -> None:
    found = read_rows(session, query)
    assert found == SPARK_VALUES[query]
    assert [type(value) for row in found for value in row] == [
        type(value) for row in SPARK_VALUES[query] for value in row
    ]
    assert read_rows(session, f"SELECT * FROM ({query})") == found


REJECTED = {
    "SELECT 1 x UNION ALL SELECT true": "a boolean in column 1",
    "SELECT 1 a, 2 b INTERSECT SELECT 1, DATE'2024-01-01'": "a date in column 2",
    "SELECT array(1) x UNION ALL SELECT array('5')": "array<string>",
    "SELECT id, (SELECT max(x) FROM (SELECT o.id x UNION ALL SELECT '7')) FROM o": "cannot find the types",
    "SELECT x FROM (SELECT 9 x UNION ALL SELECT '1.5')": "whole number",
    "SELECT '2' x UNION ALL SELECT '2.5' UNION ALL SELECT 1": "whole number",
    "SELECT id FROM o UNION ALL SELECT k FROM o": "'a'",
    "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 0.5 FROM t WHERE x < 3) SELECT x FROM t": "WITH RECURSIVE",
    "WITH RECURSIVE t(x) AS (SELECT 1Y UNION ALL SELECT x + 1 FROM t WHERE x < 3) SELECT x FROM t": "WITH RECURSIVE",
    "WITH RECURSIVE t(x) AS (SELECT '1' UNION ALL SELECT 5 FROM t WHERE x < 3) SELECT x FROM t": "WITH RECURSIVE",
    "WITH RECURSIVE t(x) AS (SELECT NULL UNION ALL SELECT 5 FROM t WHERE x IS NULL) SELECT x FROM t": "WITH RECURSIVE",
    "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT true FROM t WHERE x < 3) SELECT x FROM t": "WITH RECURSIVE",
    "SELECT * FROM VALUES (1), ('10') t(x)": "column 1 of VALUES",
    "SELECT * FROM VALUES (1, true), (2, 1) t(x, y)": "column 2 of VALUES",
    "VALUES (DATE'2024-01-01'), ('2024-01-02')": "column 1 of VALUES",
}


@pytest.mark.parametrize("query", REJECTED)
def test_set_operations_that_spark_rejects(session: tamis.Session, query: str) -> None:
    with pytest.raises(TamisError, match=REJECTED[query]):
        session.sql(query).to_arrow()
