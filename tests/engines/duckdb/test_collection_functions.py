"""Functions of lists, maps, structs, JSON and vectors on the embedded engine return the values of Spark 4.2."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.errors import TamisError

NAN = float("nan")
DAY = datetime.date

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int32()),
        "numbers": pa.array([[(1, "one"), (2, "two")], [(2, "zwei")], None], pa.map_(pa.int32(), pa.string())),
        "longs": pa.array([[(1, 10)], [(0, 20)], []], pa.map_(pa.int64(), pa.int64())),
        "texts": pa.array([[("a", [1, 2])], [("b", [3])], []], pa.map_(pa.string(), pa.list_(pa.int32()))),
        "days": pa.array([[(DAY(2024, 1, 1), 5)], [], None], pa.map_(pa.date32(), pa.int32())),
        "decimals": pa.array([[(Decimal("1.50"), 5)], [], None], pa.map_(pa.decimal128(5, 2), pa.int32())),
        "doubles": pa.array([[(1.0, 5)], [(NAN, 6)], None], pa.map_(pa.float64(), pa.int32())),
        "xs": pa.array([[7, 8], [9], None], pa.list_(pa.int32())),
        "nested": pa.array([[[1], [2, 3]], [[4]], None], pa.list_(pa.list_(pa.int32()))),
    }
)

SUBSCRIPTS = [
    ("numbers[1]", ["one", None, None]),
    ("numbers[id]", ["one", "zwei", None]),
    ("numbers[id + 1]", ["two", None, None]),
    ("numbers[2L]", ["two", "zwei", None]),
    ("numbers[CAST(NULL AS INT)]", [None, None, None]),
    ("longs[1]", [10, None, None]),
    ("longs[0]", [None, 20, None]),
    ("texts['a']", [[1, 2], None, None]),
    ("texts['a'][0]", [1, None, None]),
    ("texts['a'][id]", [2, None, None]),
    ("days[DATE '2024-01-01']", [5, None, None]),
    ("decimals[1.5]", [5, None, None]),
    ("doubles[1]", [5, None, None]),
    ("doubles[double('NaN')]", [None, 6, None]),
    ("xs[0]", [7, 9, None]),
    ("xs[size(xs) - 1]", [8, 9, None]),
    ("nested[0][0]", [1, 4, None]),
    ("element_at(numbers, 1)", ["one", None, None]),
    ("element_at(xs, 1)", [7, 9, None]),
    ("element_at(xs, -1)", [8, 9, None]),
    ("try_element_at(xs, 2)", [8, None, None]),
    ("try_element_at(numbers, 2)", ["two", "zwei", None]),
    ("get(xs, 1)", [8, None, None]),
    ("get(xs, -1)", [None, None, None]),
]


@pytest.fixture(scope="module")
def session():
    found = tamis.connect()
    found.register("t", ROWS)
    return found


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lake")
    pq.write_table(ROWS, folder / "part.parquet")
    return tamis.open(str(folder))


@pytest.mark.parametrize(("expression", "values"), SUBSCRIPTS)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT {} AS v FROM t ORDER BY id",
        "SELECT {} AS v, row_number() OVER (ORDER BY id) AS n FROM t ORDER BY id",
        "SELECT {} AS v, y FROM t LATERAL VIEW explode(array(1)) e AS y ORDER BY id",
        "SELECT CASE WHEN id > 0 THEN {} END AS v FROM t ORDER BY id",
        "SELECT v FROM (SELECT id, {} AS v FROM t) ORDER BY id",
    ],
    ids=["plain", "window", "lateral view", "case", "subquery"],
)
def test_Q1_a_subscript_is_a_lookup_in_maps_and_an_index_in_lists(session, query, expression, values):
    assert session.sql(query.format(expression)).to_arrow()["v"].to_pylist() == values


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("numbers[1] = 'one'", [1]),
        ("numbers[2] = 'zwei'", [2]),
        ("numbers[id] IS NOT NULL", [1, 2]),
        ("longs[0] = 20", [2]),
        ("longs[1] > 5", [1]),
        ("texts['a'][1] = 2", [1]),
        ("xs[0] = 9", [2]),
        ("nested[0][0] IN (1, 4)", [1, 2]),
        ("days[DATE '2024-01-01'] = 5", [1]),
        ("element_at(numbers, 2) = 'two'", [1]),
        ("element_at(xs, -1) = 8", [1]),
        ("aggregate(xs, 0, (a, x) -> a + x, a -> a * 10) = 150", [1]),
        ("array_sort(xs, (l, r) -> r - l) = array(8, 7)", [1]),
        ("exists(xs, x -> x > 8)", [2]),
        ("size(map_filter(longs, (k, v) -> v > 15)) = 1", [2]),
    ],
)
@pytest.mark.one_in(3)
def test_Q1_a_subscript_in_a_filter_is_a_lookup_too(table, session, where, ids):
    assert sorted(table.scan(where).to_arrow()["id"].to_pylist()) == ids
    assert session.sql(f"SELECT id FROM t WHERE {where} ORDER BY id").to_arrow()["id"].to_pylist() == ids


@pytest.mark.parametrize(
    "expression",
    [
        "xs[5]", "xs[-1]", "element_at(xs, 0)", "element_at(xs, 5)", "element_at(xs, -5)", "try_element_at(xs, 0)",
        "xs['1']", "xs[1.0]", "'abc'[0]", "element_at(numbers, '1')", "map_contains_key(numbers, '1')",
        "array_contains(xs, '7')", "map(1, 'a', 1, 'b')", "map(NULL, 1)", "map(1, 2, 3)", "map_concat(longs, longs)",
        "slice(xs, 0, 1)", "slice(xs, 1, -1)", "sequence(1, 5, -1)", "sequence(1, 2, 0)", "array_insert(xs, 0, 1)",
        "sequence(DATE '2018-01-05', DATE '2018-01-01', INTERVAL 1 DAY)",
        "sequence(DATE '2018-01-01', DATE '2018-01-02', INTERVAL 12 HOURS)",
        "transform_keys(numbers, (k, v) -> 1)", "map_from_arrays(array(1, 2), array(1))", "filter(xs, x -> x)",
        "array_sort(array(3, NULL, 2), (l, r) -> r - l)", "array_sort(xs, map('compare', 0))", "named_struct('a')",
        "str_to_map('a:1,a:2')", "to_json(1)", "size('a')", "vector_norm(array(1.0F), 3.0F)",
        "vector_inner_product(array(1.0F), array(1.0F, 2.0F))", "shuffle(xs)", "parse_json('1')",
        "from_csv('1', 'a INT')", "schema_of_json('{}')",
        # Spark computes these, and DuckDB computes them differently.
        "array_sort(array(struct(1, CAST(NULL AS INT)), struct(1, 2)))", "(1, CAST(NULL AS INT)) < (1, 2)",
        "array(1, NULL) < array(1, 2)", "to_json(named_struct('a', 1.5D))", "str_to_map('a:1|b:2', '[|]', ':')",
        "get_json_object('{\"a\":1}', '$[*]')", "from_json('{\"a\":\"NaN\"}', 'a DOUBLE')",
    ],
)  # fmt: skip
def test_what_spark_rejects_or_duckdb_computes_differently_is_an_error(session, expression):
    with pytest.raises(TamisError):
        session.sql(f"SELECT {expression} AS v FROM t").to_arrow()


VALUES = [
    # Functions that take lambda functions
    ("aggregate(array(1, 2), 0, (a, x) -> a + x, a -> a / 2)", 1.5),
    ("aggregate(CAST(NULL AS ARRAY<INT>), 0, (a, x) -> a + x, a -> coalesce(a, 7))", None),
    ("aggregate(array(1, 2), (0 AS s, 0 AS n), (a, x) -> (a.s + x, a.n + 1))", {"s": 3, "n": 2}),
    ("aggregate(array(1, 2), (0 AS s, 0 AS n), (a, x) -> (a.s + x, a.n + 1), a -> a.s / a.n)", 1.5),
    ("aggregate(array(1, 2), struct(0 AS s, 0 AS n), (a, x) -> struct(a.s + x, a.n + 1))", {"s": 3, "n": 2}),
    ("reduce(array(1, NULL), 0, (a, x) -> a + x)", None),
    ("aggregate(array(1, 2, 3), 0, 100)", 100),
    ("array_sort(array(3, 1, 2), (l, r) -> r - l)", [3, 2, 1]),
    ("array_sort(array(3, 1, 2), 1)", [3, 1, 2]),
    ("array_sort(array(3, 1, 2), -1)", [2, 1, 3]),
    ("array_sort(array(2, 3), (l, r) -> 0)", [2, 3]),
    ("transform(array_sort(array(struct(1, 'a'), struct(1, 'b'), struct(0, 'c')), "
     "(l, r) -> CASE WHEN l.col1 < r.col1 THEN -1 ELSE 1 END), x -> x.col2)", ["c", "a", "b"]),
    ("zip_with(array(1, 2), array(3), (x, y) -> x + y)", [4, None]),
    ("zip_with(array(1), array(3), (x, y) -> (y, x))", [{"y": 3, "x": 1}]),
    ("zip_with(array(1), array(3), (x, y) -> struct(x, y))", [{"x": 1, "y": 3}]),
    ("zip_with(array(1, 2), array('a', 'b'), (x, y) -> zip_with(array(x), array(y), (x, y) -> concat(x, y)))",
     [["1a"], ["2b"]]),
    ("transform(array(1, 2), (x, i) -> transform(array(x, i), (y, i) -> y + i))", [[1, 1], [2, 2]]),
    ("transform(array(1, 2), 42)", [42, 42]),
    ("filter(array(5, 6, 7), (x, i) -> i > 0)", [6, 7]),
    ("filter(array(1, 2, NULL), x -> x > 1)", [2]),
    ("exists(array(1, 2, NULL), x -> x > 5)", None),
    ("forall(array(), x -> x > 1)", True),
    ("map_filter(map(1, 0, 2, 2, 3, -1), (k, v) -> k > v)", [(1, 0), (3, -1)]),
    ("map_zip_with(map(1, 'a', 2, 'b'), map(1, 'x', 3, 'y'), (k, v1, v2) -> concat(v1, v2))",
     [(1, "ax"), (2, None), (3, None)]),
    ("transform_keys(map(1, 2, 3, 4), (k, v) -> k + v)", [(3, 2), (7, 4)]),
    ("transform_values(map(1, 2, 3, 4), (k, v) -> k + v)", [(1, 3), (3, 7)]),
    ("transform_values(CAST(NULL AS MAP<INT, INT>), (k, v) -> k + v)", None),
    # Lists
    ("arrays_zip(array(1, 2), array('a'))", [{"0": 1, "1": "a"}, {"0": 2, "1": None}]),
    ("arrays_zip(array(1), CAST(NULL AS ARRAY<INT>))", None),
    ("array_append(array(1), NULL)", [1, None]),
    ("array_append(CAST(NULL AS ARRAY<INT>), 1)", None),
    ("array_insert(array(2, 3, NULL, 4), -5, 1)", [1, 2, 3, None, 4]),
    ("array_insert(array(1), -4, 2)", [2, None, None, 1]),
    ("array_except(array(1, 2, 2, NULL), array(2))", [1, None]),
    ("array_intersect(array(1, 2), array(2D))", [2.0]),
    ("array_union(array(1, 2, 2, NULL), array(2, NULL, 3))", [1, 2, None, 3]),
    ("arrays_overlap(array(1, NULL), array(2))", None),
    ("array_max(array(1, NULL, 3))", 3),
    ("array_size(NULL)", None),
    ("size(NULL)", None),
    ("size(map())", 0),
    ("flatten(array(array(1), CAST(NULL AS ARRAY<INT>)))", None),
    ("slice(array(1, 2, 3, 4), -2, 2)", [3, 4]),
    ("slice(array(1, 2), -5, 1)", []),
    ("slice(array(1, 2, 3), -1, 5)", [3]),
    ("sort_array(array('b', NULL, 'a'))", [None, "a", "b"]),
    ("sort_array(array('b', NULL, 'a'), false)", ["b", "a", None]),
    ("sort_array(array(1, 2), CAST(NULL AS BOOLEAN))", None),
    ("array_sort(array('b', NULL, 'a'))", ["a", "b", None]),
    ("array_join(array('a', NULL, 'b'), ',', 'X')", "a,X,b"),
    ("array_join(array('a', NULL), ',', CAST(NULL AS STRING))", None),
    ("array_join(array(1.5D, 1e10D), ',')", "1.5,1.0E10"),
    ("array_join(array(TIMESTAMP '2020-01-01 01:02:03.5'), ',')", "2020-01-01 01:02:03.5"),
    ("trim_array(array(1, 2, 3), 2)", [1]),
    ("sequence(5, 1, -2)", [5, 3, 1]),
    ("sequence(DATE '2018-01-31', DATE '2018-04-01', INTERVAL 1 MONTH)",
     [DAY(2018, 1, 31), DAY(2018, 2, 28), DAY(2018, 3, 31)]),
    ("sequence(DATE '2018-01-03', DATE '2018-01-01')", [DAY(2018, 1, 3), DAY(2018, 1, 2), DAY(2018, 1, 1)]),
    ("size(sequence(TIMESTAMP '2018-01-01 00:00:00', TIMESTAMP '2018-01-01 01:00:00', INTERVAL 20 MINUTES))", 4),
    # Maps
    ("map_concat(map(1, 'a'), map(2, 'b'), map(3, 'c'))", [(1, "a"), (2, "b"), (3, "c")]),
    ("map_concat(map(1, 2), map(3L, 4L))", [(1, 2), (3, 4)]),
    ("map_concat(map(1, 'a'), CAST(NULL AS MAP<INT, STRING>))", None),
    ("map_from_entries(array(struct(1, 'a'), CAST(NULL AS STRUCT<col1: INT, col2: STRING>)))", None),
    ("str_to_map('a:1:2,b')", [("a", "1:2"), ("b", None)]),
    ("str_to_map('a=1&b=2', '&', '=')", [("a", "1"), ("b", "2")]),
    ("str_to_map('a:1', NULL, ':')", None),
    ("map_contains_key(map(1, 'a'), 1L)", True),
    # Structs are compared by position
    ("named_struct('a', 1, 'b', 2) = named_struct('b', 1, 'a', 2)", True),
    ("named_struct('a', 1, 'b', 2) IN (struct(1, 2), struct(3, 4))", True),
    ("named_struct('a', 1) IS DISTINCT FROM named_struct('b', 1)", False),
    ("struct(1, CAST(NULL AS INT)) <=> struct(1, CAST(NULL AS INT))", True),
    ("struct(1, 2) < named_struct('b', 1, 'a', 3)", True),
    # JSON
    ("get_json_object('{\"a\":{\"b c\":[5]}}', \"$.a['b c'][0]\")", "5"),
    ("get_json_object('{\"a\":1e5}', '$.a')", "100000.0"),
    ("get_json_object('{\"a\":1.50}', '$.a')", "1.5"),
    ("get_json_object('{\"a\":1}', 'a')", None),
    ("from_json('{\"a\":1, \"b\":\"x\"}', 'a INT, b STRING')", {"a": 1, "b": "x"}),
    ("from_json('{\"a\":\"1\"}', 'a INT')", {"a": None}),
    ("from_json('bad', 'a INT')", {"a": None}),
    ("from_json('', 'a INT')", None),
    ("to_json(named_struct('a', CAST(NULL AS INT), 'b', 'x\"y'))", '{"b":"x\\"y"}'),
    ("to_json(map(1, 'x'))", '{"1":"x"}'),
    ("to_json(array(named_struct('a', 1)))", '[{"a":1}]'),
    # Vectors: floats, added by eights
    ("vector_inner_product(array(1.0F, 2.0F, 3.0F), array(4.0F, 5.0F, 6.0F))", 32.0),
    ("vector_norm(array(3.0F, 4.0F))", 5.0),
    ("vector_normalize(array(0.0F))", None),
    ("vector_cosine_similarity(array(0.0F), array(0.4F))", None),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "value"), VALUES, ids=[expression for expression, _ in VALUES])
def test_a_function_returns_the_value_of_spark(session, expression, value):
    assert session.sql(f"SELECT {expression} AS v").to_arrow()["v"].to_pylist() == [value]
    beside = session.sql(f"SELECT {expression} AS v, row_number() OVER (ORDER BY id) AS n FROM t").to_arrow()
    assert beside["v"].to_pylist() == [value] * 3


@pytest.mark.parametrize(
    "query",
    [
        "SELECT arrays_zip(xs, nested) AS v FROM t WHERE id = 2",
        "SELECT arrays_zip(t.xs, nested) AS v, row_number() OVER (ORDER BY id) AS n FROM t WHERE id = 2",
        "SELECT arrays_zip(xs, nested) AS v, y FROM t LATERAL VIEW explode(array(1)) e AS y WHERE id = 2",
    ],
)
def test_zipped_lists_have_the_names_of_their_columns(session, query):
    assert session.sql(query).to_arrow()["v"].to_pylist() == [[{"xs": 9, "nested": [4]}]]
