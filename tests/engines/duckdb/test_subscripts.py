"""Items of lists and values of maps in all clauses of a query are those of Spark 4.2."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.errors import TamisError

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int32()),
        "m": pa.array([[(1, "one"), (2, "two")], [(0, "zero")], None], pa.map_(pa.int32(), pa.string())),
        "ms": pa.array([[("1", 1)], [("b", 2)], []], pa.map_(pa.string(), pa.int32())),
        "am": pa.array([[[(1, "p")], [(1, "q")]], [[]], [None]], pa.list_(pa.map_(pa.int32(), pa.string()))),
        "d": pa.array([Decimal("1.90"), Decimal("-0.05"), None], pa.decimal128(10, 2)),
        "v": pa.array([2.9, 0.0, 7.0]),
        "s": pa.array([" 1 ", "0", None]),
        "b": pa.array([True, False, None]),
    }
)

SUBSCRIPTS = [
    ("am[0]", [[(1, "p")], [], None]),
    ("am[0][1]", ["p", None, None]),
    ("element_at(am, -1)", [[(1, "q")], [], None]),
    ("try_element_at(am, 2)[1]", ["q", None, None]),
    ("transform(am, x -> x[1])", [["p", "q"], [None], [None]]),
    ("m[1.5e0]", ["one", None, None]),
    ("m[d]", ["one", "zero", None]),
    ("m[v]", ["two", "zero", None]),
    ("m['1']", ["one", None, None]),
    ("m[s]", ["one", "zero", None]),
    ("m[1L]", ["one", None, None]),
    ("ms[1]", [1, None, None]),
    ("ms['b']", [None, 2, None]),
    ("ms[b]", [None, None, None]),
    ("transform(array('1', '2'), x -> m[x])", [["one", "two"], [None, None], [None, None]]),
    ("array(map(1, 'a'), map(2, 'b'))[1]", [[(2, "b")]] * 3),
    ("map('k', array(map(1, 'a')))['k'][0][1]", ["a"] * 3),
    ("array(array(map(1, 2)))[0][0][1]", [2] * 3),
    ("named_struct('a', array(map(1, 2))).a[0][1]", [2] * 3),
    ("map(1.23456, 'a')['1.23456']", ["a"] * 3),
    ("map(1L, 'a')[1.7]", ["a"] * 3),
    ("map(DATE '2024-01-01', 'a')[TIMESTAMP '2024-01-01 10:00:00']", ["a"] * 3),
    ("map(DATE '2024-01-01', 'a')['2024-1-1']", ["a"] * 3),
    ("map(true, 'a')['yes']", ["a"] * 3),
    ("map(X'41', 'a')['A']", ["a"] * 3),
    ("element_at(map(1.5, 'a'), 1.5)", ["a"] * 3),
    ("element_at(map(1, 'a'), 1.5e0)", [None] * 3),
    ("element_at(map(1L, 'a'), 1)", ["a"] * 3),
]


@pytest.fixture(scope="module")
def session():
    found = tamis.connect()
    found.register("t", ROWS)
    return found


@pytest.mark.parametrize(("expression", "values"), SUBSCRIPTS, ids=[each for each, _ in SUBSCRIPTS])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT {} AS v FROM t ORDER BY id",
        "SELECT {} AS v, row_number() OVER (ORDER BY id) AS n FROM t ORDER BY id",
        "SELECT {} AS v, y FROM t LATERAL VIEW explode(array(1)) e AS y ORDER BY id",
        "SELECT v FROM (SELECT id, {} AS v FROM t) ORDER BY id",
    ],
    ids=["plain", "window", "lateral view", "subquery"],
)
def test_a_subscript_supports_lists_of_maps_and_casts_keys(session, query, expression, values):
    assert session.sql(query.format(expression)).to_arrow()["v"].to_pylist() == values


@pytest.mark.parametrize(
    ("query", "value"),
    [
        ("SELECT collect_list(m)[0][1] FROM t", "one"),
        ("SELECT first(am)[0][1] FROM t", "p"),
        ("SELECT max(m['1']) FROM t", "one"),
        ("SELECT array(map(1, 'a'), map(2, 'b'))[1][2]", "b"),
        ("SELECT id FROM t x WHERE x.m[1] = (SELECT max(y.m['1']) FROM t y WHERE y.id = x.id)", 1),
    ],
)
def test_a_subscript_of_aggregates_and_in_subqueries(session, query, value):
    assert session.sql(query).to_arrow().column(0).to_pylist() == [value]


@pytest.mark.parametrize(
    ("where", "ids"),
    [("am[0][1] = 'p'", [1]), ("m[d] = 'one'", [1]), ("m['1'] = 'one'", [1]), ("ms[1] = 1", [1])],
)
def test_a_subscript_in_a_filter_casts_keys_too(tmp_path, session, where, ids):
    pq.write_table(ROWS, tmp_path / "part.parquet")
    assert tamis.open(str(tmp_path)).scan(where).to_arrow()["id"].to_pylist() == ids
    assert session.sql(f"SELECT id FROM t WHERE {where}").to_arrow()["id"].to_pylist() == ids


@pytest.mark.parametrize(
    "expression",
    [
        "m[3000000000]", "m[true]", "m[b]", "m[DATE '2024-01-01']", "m['x']", "map(true, 'a')[1]",
        "array(1, 2)[1.5]", "array(1, 2)['1']", "array(1, 2)[true]", "element_at(map(1, 'a'), 1.0)",
        "element_at(map('1', 'a'), 1)", "element_at(map(1.5, 'a'), 2)",
        "element_at(map(DATE '2024-01-01', 'a'), '2024-01-01')",
    ],
)  # fmt: skip
def test_a_key_that_spark_does_not_cast_is_an_error(session, expression):
    with pytest.raises(TamisError):
        session.sql(f"SELECT {expression} FROM t").to_arrow()
