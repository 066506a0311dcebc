"""The syntax and structure of queries on the embedded engine: the expected rows are those of Spark 4.2.

Names of tests carry the ids of the catalogue of traps.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.errors import TamisError

T = pa.table({"x": pa.array([0, 1], pa.int32()), "y": ["abc", "def"]})
EMPTY = pa.table({"a": pa.array([], pa.int32())})
MAPS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int32()),
        "m": pa.array(
            [[("a", 1), ("b", 2)], [("b", 2), ("a", 1)], [("c", 3)]], pa.map_(pa.string(), pa.int32())
        ),
    }
)  # fmt: skip


@pytest.fixture(scope="module")
def session() -> tamis.Session:
    found = tamis.connect()
    for name, table in (("t", T), ("n", EMPTY), ("m", MAPS)):
        found.register(name, table)
    return found


def read_rows(session: tamis.Session, query: str) -> list[tuple[object, ...]]:
    table = session.sql(query).to_arrow()
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def sort_rows(rows: Iterable[tuple[object, ...]]) -> list[str]:
    return sorted(map(repr, rows))


def check(session: tamis.Session, query: str, expected: list[tuple[object, ...]]) -> None:
    found = [tuple(int(each) if str(each).isdecimal() else each for each in row) for row in read_rows(session, query)]
    wanted = [tuple(int(each) if str(each).isdecimal() else each for each in row) for row in expected]
    assert sort_rows(found) == sort_rows(wanted), query


# --- Q3: operators ----------------------------------------------------------------------------------------------------

OPERATORS = [
    ("8 | 1 & 0", 8),
    ("1 | 2 ^ 3", 1),
    ("1 & 2 >> 1", 1),
    ("1 + 2 << 3", 24),
    ("1 << 2 + 1 & 7", 0),
    ("6 & 3 ^ 1", 3),
    ("(8 | 1) & 0", 0),
    ("1 | 2 = 3", True),
    ("7 & 3 | 8 ^ 12", 7),
    ("2 * 3 & 4", 4),
    ("~1 & 3", 2),
    ("'a' || 1 || 2", "a12"),
    ("1 + 2 || 3", "33"),
]

CONTEXTS = {
    "without FROM": "SELECT {} AS v",
    "over a table": "SELECT v FROM (SELECT {} AS v, x FROM t WHERE x = 0)",
    "beside a window": "SELECT v FROM (SELECT {} AS v, row_number() OVER (ORDER BY x) AS r FROM t) WHERE r = 1",
    "lateral view": "SELECT {} AS v FROM t LATERAL VIEW explode(array(1)) e AS one WHERE x = 0",
    "in a CASE": "SELECT CASE WHEN x = 0 THEN {} END AS v FROM t WHERE x = 0",
    "in GROUPING SETS": "SELECT max({}) AS v FROM t GROUP BY ROLLUP (x) HAVING grouping(x) = 1",
}


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize(("expression", "value"), OPERATORS)
def test_Q3_operators_have_the_precedence_of_spark(
    session: tamis.Session, expression: str, value: object, context: str
) -> None:
    assert read_rows(session, CONTEXTS[context].format(expression)) == [(value,)]


@pytest.mark.parametrize(
    ("condition", "ids"),
    [("id | 1 & 0 = 1", [1]), ("id & 2 >> 1 = 1", [1, 3]), ("8 | id & 0 = 8", [1, 2, 3]), ("id ^ 1 | 2 = 2", [1, 3])],
)
def test_Q3_filters_of_scans_have_the_same_precedence(tmp_path: Path, condition: str, ids: list[int]) -> None:
    pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / "a.parquet")
    table = tamis.open(str(tmp_path))
    assert sorted(table.scan(condition).to_arrow()["id"].to_pylist()) == ids


@pytest.mark.parametrize(
    "query", ["SELECT 20181117 > > 2", "SELECT 20181117 < < 2", "SELECT 1 > >> 2", "SELECT 1 ?? 2"]
)
def test_Q3_the_characters_of_an_operator_are_adjacent(session: tamis.Session, query: str) -> None:
    with pytest.raises(TamisError):
        session.sql(query).to_arrow()


# --- Q4: groups -------------------------------------------------------------------------------------------------------

GROUPS = [
    ("SELECT 1 FROM n HAVING 1 < 2", [(1,)]),
    ("SELECT 1 FROM n HAVING count(*) = 0", [(1,)]),
    ("SELECT 1 AS z FROM t HAVING z = 1", [(1,)]),
    ("SELECT 1 WHERE false HAVING count(*) = 0", [(1,)]),
    ("SELECT a, count(*) FROM n GROUP BY ROLLUP (a)", []),
    ("SELECT a, count(*) FROM n GROUP BY CUBE (a)", []),
    ("SELECT a, count(*) FROM n GROUP BY a WITH ROLLUP", []),
    ("SELECT a, count(*) FROM n GROUP BY GROUPING SETS ((a), ())", []),
    ("SELECT count(*) FROM n GROUP BY GROUPING SETS (())", [(0,)]),
    ("SELECT x AS y, count(*) FROM t GROUP BY ALL", [(0, 1), (1, 1)]),
    ("SELECT x + 1 AS x, count(*) FROM t GROUP BY ALL", [(1, 1), (2, 1)]),
    ("SELECT y AS x, sum(x) FROM t GROUP BY ALL", [("abc", 0), ("def", 1)]),
    ("SELECT length(y) AS x, sum(x) AS s FROM t GROUP BY ALL", [(3, 1)]),
    (
        "SELECT x, y, count(*), grouping_id(), grouping__id, grouping(x) FROM t GROUP BY x, y WITH CUBE",
        [(0, "abc", 1, 0, 0, 0), (1, "def", 1, 0, 0, 0), (0, None, 1, 1, 1, 0), (1, None, 1, 1, 1, 0),
         (None, "abc", 1, 2, 2, 1), (None, "def", 1, 2, 2, 1), (None, None, 2, 3, 3, 1)],
    ),
    (
        "SELECT x, y, count(*) FROM t GROUP BY x, y GROUPING SETS ((x), (y), ())",
        [(0, None, 1), (1, None, 1), (None, "abc", 1), (None, "def", 1), (None, None, 2)],
    ),
    ("SELECT x, y, count(*) FROM t GROUP BY x, y GROUPING SETS ((x))", [(0, None, 1), (1, None, 1)]),
    (
        "SELECT x, y, count(*) FROM t GROUP BY GROUPING SETS ((1), (y), (x, 2))",
        [(0, None, 1), (1, None, 1), (None, "abc", 1), (None, "def", 1), (0, "abc", 1), (1, "def", 1)],
    ),
    (
        "SELECT x, y, count(*) FROM t GROUP BY GROUPING SETS (ROLLUP (x, y), x)",
        [(0, "abc", 1), (1, "def", 1), (0, None, 1), (1, None, 1), (None, None, 2), (0, None, 1), (1, None, 1)],
    ),
    (
        "SELECT x, y, count(*) FROM t GROUP BY x, ROLLUP (y)",
        [(0, "abc", 1), (1, "def", 1), (0, None, 1), (1, None, 1)],
    ),
    ("SELECT x, count(*) FROM t GROUP BY ROLLUP (1)", [(0, 1), (1, 1), (None, 2)]),
    ("SELECT x, (SELECT * FROM VALUES (7)), count(*) FROM t GROUP BY 1", [(0, 7, 1), (1, 7, 1)]),
    (
        "SELECT a + b, b, sum(c) FROM VALUES (1, 1, 1), (2, 2, 2) AS t(a, b, c) "
        "GROUP BY GROUPING SETS ((a + b), (b + a), (b))",
        [(2, None, 1), (2, None, 1), (4, None, 2), (4, None, 2), (None, 1, 1), (None, 2, 2)],
    ),
    (
        "SELECT sum(a) AS b FROM VALUES (1, 10), (2, 20) AS t(a, b) GROUP BY GROUPING SETS ((b), (a, b)) HAVING b > 10",
        [(2,), (2,)],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("query", "expected"), GROUPS)
def test_Q4_grouping_sets(session: tamis.Session, query: str, expected: list[tuple[object, ...]]) -> None:
    check(session, query, expected)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT x FROM t HAVING x > 0",
        "SELECT * FROM t HAVING x = 1",
        "SELECT count(*) FROM t GROUP BY ()",
        "SELECT x, count(*) FROM t GROUP BY ROLLUP (3)",
        "SELECT count(*), x FROM t GROUP BY ROLLUP (1)",
        "SELECT * FROM t GROUP BY x, y, 1",
        "SELECT x FROM t ORDER BY 2",
        "SELECT x, grouping(y) FROM t GROUP BY ROLLUP (x)",
    ],
)
def test_Q4_grouping_sets_that_spark_refuses(session: tamis.Session, query: str) -> None:
    with pytest.raises(TamisError):
        session.sql(query).to_arrow()


# --- Q6: percentiles --------------------------------------------------------------------------------------------------

FIVE = "FROM VALUES (1), (2), (3), (4), (5) AS v(x)"

PERCENTILES = [
    (f"SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY x DESC) {FIVE}", [(4.0,)]),
    (f"SELECT percentile_disc(0.25) WITHIN GROUP (ORDER BY x DESC) {FIVE}", [(4.0,)]),
    (f"SELECT percentile_disc(0) WITHIN GROUP (ORDER BY x DESC) {FIVE}", [(5.0,)]),
    (f"SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY x DESC) OVER () {FIVE}", [(4.0,)] * 5),
    (f"SELECT percentile_disc(0.25) WITHIN GROUP (ORDER BY x DESC) OVER w {FIVE} WINDOW w AS ()", [(4.0,)] * 5),
    (f"SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY x DESC) FILTER (WHERE x < 5) OVER () {FIVE}", [(3.25,)] * 5),
    (f"SELECT percentile_cont(array(0.25, 0.5)) WITHIN GROUP (ORDER BY x DESC) {FIVE}", [([4.0, 3.0],)]),
    (f"SELECT percentile(x, 0.25), median(x) {FIVE}", [(2.0, 3.0)]),
]


@pytest.mark.parametrize(("query", "expected"), PERCENTILES)
def test_Q6_percentiles_follow_their_sort_order(
    session: tamis.Session, query: str, expected: list[tuple[object, ...]]
) -> None:
    assert read_rows(session, query) == expected
    assert all(type(each) in (float, list) for row in read_rows(session, query) for each in row)


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x, x) {FIVE}",
        f"SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x) OVER (ORDER BY x) {FIVE}",
        f"SELECT median(x) OVER w {FIVE} WINDOW w AS (ORDER BY x)",
        f"SELECT percentile(x, 0.5) WITHIN GROUP (ORDER BY x) {FIVE}",
        f"SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY x) OVER (ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) {FIVE}",
    ],
)
def test_Q6_percentiles_that_spark_refuses(session: tamis.Session, query: str) -> None:
    with pytest.raises(TamisError):
        session.sql(query).to_arrow()


# --- Q7: generators ---------------------------------------------------------------------------------------------------

GENERATORS = [
    ("SELECT explode(array(1, 2)), explode(array(3, 4))", [(1, 3), (1, 4), (2, 3), (2, 4)]),
    (
        "SELECT *, explode(array(1, 2)) AS e, explode(array(3)) AS f FROM t",
        [(0, "abc", 1, 3), (0, "abc", 2, 3), (1, "def", 1, 3), (1, "def", 2, 3)],
    ),
    (
        "SELECT x, explode(array(1, 2)), row_number() OVER (ORDER BY x) FROM t",
        [(0, 1, 1), (0, 2, 2), (1, 1, 3), (1, 2, 4)],
    ),
    ("SELECT explode(array(1, 2)) AS e, count(*) FROM t GROUP BY x", [(1, 1), (2, 1), (1, 1), (2, 1)]),
    ("SELECT explode(collect_list(x)) AS e FROM t", [(0,), (1,)]),
    ("SELECT posexplode(map('a', 1)) AS (p, k, v)", [(0, "a", 1)]),
    ("SELECT explode_outer(array()), 1", [(None, 1)]),
    ("SELECT posexplode_outer(CAST(NULL AS ARRAY<INT>))", [(None, None)]),
    ("SELECT explode(map('a', 1, 'b', 2))", [("a", 1), ("b", 2)]),
    ("SELECT inline(array(struct(1 AS q, 'a' AS w), null))", [(1, "a"), (None, None)]),
    ("SELECT stack(2, 1, 2, 3)", [(1, 2), (3, None)]),
    ("SELECT x, stack(2, 'a', x, 'b', x * 2) AS (k, v) FROM t", [(0, "a", 0), (0, "b", 0), (1, "a", 1), (1, "b", 2)]),
    ("SELECT * FROM stack(2, 1, 2, 3)", [(1, 2), (3, None)]),
    ("SELECT * FROM explode(array(1, 2))", [(1,), (2,)]),
    ("SELECT p, c FROM posexplode(array(1, 2)) AS g(p, c)", [(0, 1), (1, 2)]),
    ("SELECT * FROM explode(collection => array(1, 2))", [(1,), (2,)]),
    ("SELECT * FROM inline(array(struct(1 AS q, 'a' AS w)))", [(1, "a")]),
    ("SELECT x, a FROM t LATERAL VIEW stack(2, x, 1) s AS a", [(0, 0), (0, 1), (1, 1), (1, 1)]),
    ("SELECT x, q FROM t LATERAL VIEW inline(array(struct(x AS q))) i", [(0, 0), (1, 1)]),
    ("SELECT x, c FROM t LATERAL VIEW OUTER explode(array()) e AS c", [(0, None), (1, None)]),
    ("SELECT x, pos, col FROM t LATERAL VIEW posexplode(array(x)) e", [(0, 0, 0), (1, 0, 1)]),
    ("SELECT * FROM UNNEST(array(10, 20)) WITH ORDINALITY", [(10, 1), (20, 2)]),
    ("SELECT v, p FROM UNNEST(array('x', 'y')) WITH ORDINALITY AS u(v, p)", [("x", 1), ("y", 2)]),
    ("SELECT * FROM UNNEST(array(1), array(10, 20)) AS u(a, b)", [(1, 10), (None, 20)]),
    ("SELECT x, e FROM t LEFT JOIN LATERAL UNNEST(array(x)) AS u(e) ON e > 0", [(0, None), (1, 1)]),
    ("SELECT x, c FROM t JOIN LATERAL explode(array(x, 1)) AS e(c) ON c = x", [(0, 0), (1, 1), (1, 1)]),
]  # fmt: skip


@pytest.mark.parametrize(("query", "expected"), GENERATORS)
def test_Q7_generators(session: tamis.Session, query: str, expected: list[tuple[object, ...]]) -> None:
    check(session, query, expected)


def test_Q7_window_functions_see_generated_rows(session: tamis.Session) -> None:
    query = "SELECT explode(array(1, 2)) AS e, count(*) OVER (PARTITION BY x) AS c FROM t ORDER BY e"
    assert read_rows(session, query) == [(1, 2), (1, 2), (2, 2), (2, 2)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT explode(array(1, 2)) + 1",
        "SELECT posexplode(array(1, 2)) AS (a, b, c)",
        "SELECT posexplode_outer(array(1, 2)) AS (a, b, c, d)",
        "SELECT explode(struct(1, 2))",
        "SELECT explode(null)",
        "SELECT stack(x, 1, 2) FROM t",
        "SELECT * FROM UNNEST(map('a', 1))",
        "SELECT x FROM t WHERE explode(array(true))",
    ],
)
def test_Q7_generators_that_spark_refuses(session: tamis.Session, query: str) -> None:
    with pytest.raises(TamisError):
        session.sql(query).to_arrow()


# --- Q8: maps ---------------------------------------------------------------------------------------------------------


def test_Q8_maps_are_grouped_regardless_of_entry_order(session: tamis.Session) -> None:
    check(session, "SELECT m, count(*) FROM m GROUP BY m", [([("a", 1), ("b", 2)], 2), ([("c", 3)], 1)])
    check(session, "SELECT count(*) AS c FROM m GROUP BY m HAVING c > 1", [(2,)])
    assert read_rows(session, "SELECT count(*) FROM (SELECT m FROM m UNION ALL SELECT m FROM m)") == [(6,)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT DISTINCT m FROM m",
        "SELECT m FROM m UNION SELECT m FROM m",
        "SELECT m FROM m EXCEPT SELECT m FROM m",
        "SELECT DISTINCT m, row_number() OVER (ORDER BY id) FROM m",
        "SELECT m FROM m ORDER BY m",
        "SELECT struct(m), count(*) FROM m GROUP BY struct(m)",
    ],
)
def test_Q8_other_comparisons_of_maps_are_refused(session: tamis.Session, query: str) -> None:
    with pytest.raises(TamisError, match="map"):
        session.sql(query).to_arrow()


# --- Q11: OFFSET and recursion ----------------------------------------------------------------------------------------


def test_Q11_an_offset_without_a_limit_under_a_join(tmp_path: Path) -> None:
    pq.write_table(T, tmp_path / "t.parquet")
    session = tamis.connect()
    session.register("t", str(tmp_path / "t.parquet"))
    assert read_rows(session, "SELECT x FROM t WHERE x IN (SELECT x FROM t OFFSET 1)") == [(1,)]
    joined = "SELECT a.x FROM (SELECT x FROM t OFFSET 1) AS a JOIN t ON a.x = t.x"
    assert read_rows(session, joined) == [(1,)]
    assert read_rows(session, "SELECT count(*) FROM (SELECT x FROM t UNION ALL SELECT x FROM t OFFSET 3)") == [(1,)]


RECURSIVE = [
    ("(SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 100) SELECT count(*), max(n) FROM r", [(100, 100)]),
    ("(SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT * FROM r LIMIT 3", [(1,), (2,), (3,)]),
    ("(VALUES 1, 2 UNION ALL SELECT n + 10 FROM r WHERE n < 20) SELECT * FROM r",
     [(1,), (2,), (11,), (12,), (21,), (22,)]),
    ("(SELECT 1 UNION ALL SELECT r.n + 1 FROM r JOIN r b ON r.n = b.n WHERE r.n < 3) SELECT * FROM r",
     [(1,), (2,), (3,)]),
    ("(SELECT 1 UNION ALL SELECT DISTINCT n + 1 FROM r WHERE n < 3) SELECT * FROM r", [(1,), (2,), (3,)]),
    ("(SELECT 1 UNION ALL SELECT * FROM (SELECT n + 1 FROM r WHERE n < 3) AS s) SELECT * FROM r", [(1,), (2,), (3,)]),
    ("(SELECT 1 UNION ALL SELECT n + 1 FROM t, r WHERE n < 2) SELECT * FROM r", [(1,), (2,), (2,)]),
]  # fmt: skip


@pytest.mark.parametrize(("query", "expected"), RECURSIVE)
def test_Q11_recursive_queries(session: tamis.Session, query: str, expected: list[tuple[object, ...]]) -> None:
    check(session, f"WITH RECURSIVE r(n) AS {query}", expected)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("(SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT * FROM r", "100 levels"),
        ("(SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 101) SELECT * FROM r", "100 levels"),
        ("(SELECT 1 UNION ALL SELECT n + 1 FROM r, range(10)) SELECT count(*) FROM r", "1000000 rows"),
        ("(SELECT 1 UNION SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r", "UNION ALL"),
        ("(SELECT 1 UNION ALL SELECT count(*) FROM r) SELECT * FROM r", "aggregate"),
        ("(SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n IN (SELECT n FROM r)) SELECT * FROM r", "subquery"),
        ("(SELECT 1 UNION ALL SELECT (SELECT n FROM r) FROM r) SELECT * FROM r", "subquery"),
        ("(SELECT 1 UNION ALL SELECT r.n FROM t LEFT JOIN r ON t.x = r.n) SELECT * FROM r", "right side"),
        ("(SELECT 1 UNION ALL (SELECT n + 1 FROM r WHERE n < 3 ORDER BY n)) SELECT * FROM r", "ORDER"),
        ("(SELECT n FROM r UNION ALL SELECT 1) SELECT * FROM r", "first part"),
        ("(SELECT 1 UNION ALL SELECT n FROM r EXCEPT SELECT n FROM r) SELECT * FROM r", "UNION ALL"),
    ],
)
def test_Q11_recursion_has_the_limits_and_self_references_of_spark(
    session: tamis.Session, query: str, reason: str
) -> None:
    with pytest.raises(TamisError, match=reason):
        session.sql(f"WITH RECURSIVE r(n) AS {query}").to_arrow()


# --- Q12 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "SELECT interval 1 fake_unit",
        "SELECT interval '1' dayss",
        "SELECT * FROM t LIMIT CAST(NULL AS INT)",
        "SELECT * FROM t LIMIT NULL",
        "SELECT * FROM t LIMIT -1",
        "SELECT * FROM t LIMIT x",
        "SELECT * FROM t LIMIT '1'",
        "SELECT * FROM t LIMIT 1.5",
        "SELECT * FROM t LIMIT (SELECT 1)",
        "SELECT * FROM t LIMIT CAST(1 AS BIGINT)",
        "SELECT * FROM t LIMIT 3000000000",
        "SELECT * FROM t OFFSET -1",
        "SELECT * FROM t OFFSET NULL",
        "WITH a AS (SELECT 1), A AS (SELECT 2) SELECT * FROM a",
        "SELECT * FROM (WITH a AS (SELECT 1), a AS (SELECT 2) SELECT * FROM a)",
        "SELECT y LIKE ANY () FROM t",
        "SELECT y ILIKE ALL () FROM t",
        "SELECT * FROM t WHERE x IN ()",
    ],
)
def test_Q12_meaningless_clauses_are_errors(session: tamis.Session, query: str) -> None:
    with pytest.raises(TamisError):
        session.sql(query).to_arrow()


def test_Q12_limits_are_constant_expressions(session: tamis.Session) -> None:
    assert len(read_rows(session, "SELECT * FROM t LIMIT 3 - 2")) == 1
    assert len(read_rows(session, "SELECT * FROM t LIMIT CAST(1 AS INT)")) == 1
    assert len(read_rows(session, "SELECT * FROM t LIMIT ALL")) == 2


# --- Pipes ------------------------------------------------------------------------------------------------------------

PIPES = [
    ("TABLE t |> ORDER BY x DESC |> LIMIT 1", [(1, "def")]),
    ("TABLE t | SELECT x", [(0,), (1,)]),
    ("FROM t |> WHERE x = 1 |> SELECT x + 1 AS z |> EXTEND z * 2 AS w |> SET w = w + 1 |> DROP z", [(5,)]),
    ("TABLE t |> SET x = 1, x = x + 1", [(2, "abc"), (2, "def")]),
    ("TABLE t |> AS u |> JOIN t AS v ON u.x = v.x |> WHERE u.x > 0 |> SELECT u.x, v.y", [(1, "def")]),
    ("TABLE t |> SELECT x |> WHERE t.x > 0", [(1,)]),
    ("TABLE t |> AS u |> DROP u.x", [("abc",), ("def",)]),
    ("SELECT 3 AS x, 4 AS y |> AGGREGATE sum(y) GROUP BY 1, x AS k", [(3, 3, 4)]),
    ("TABLE t |> AGGREGATE sum(x) GROUP BY 2", [("abc", 0), ("def", 1)]),
    ("TABLE t |> AGGREGATE sum(x) + 1 AS s", [(2,)]),
    ("TABLE t |> SELECT sum(x) AS s", [(1,)]),
    ("TABLE t |> SELECT y, sum(x) AS s GROUP BY y", [("abc", 0), ("def", 1)]),
    ("VALUES (1, 2), (3, 4) v(a, b) |> AGGREGATE sum(b) AS s", [(6,)]),
    ("(SELECT 1 AS a) |> UNION ALL (SELECT 2) |> WHERE a > 1", [(2,)]),
    ("TABLE t |> EXCEPT ALL (TABLE t |> WHERE x = 0)", [(1, "def")]),
    ("WITH w AS (TABLE t |> SELECT x) TABLE w |> LIMIT 1 OFFSET 1", [(1,)]),
    ("TABLE t |> WHERE x IN (TABLE t |> SELECT x |> WHERE x = 1)", [(1, "def")]),
    ("TABLE t |> SELECT x, sum(x) OVER w AS s WINDOW w AS (ORDER BY x)", [(0, 0), (1, 1)]),
    ("TABLE t |> PIVOT (sum(x) FOR y IN ('abc' AS a, 'def' AS b))", [(0, 1)]),
    ("TABLE t |> UNPIVOT (v FOR k IN (x)) |> SELECT k, v", [("x", 0), ("x", 1)]),
    ("TABLE t |> TABLESAMPLE (100 PERCENT) |> AGGREGATE count(*)", [(2,)]),
]


@pytest.mark.parametrize(("query", "expected"), PIPES)
def test_pipes_are_nested_queries(session: tamis.Session, query: str, expected: list[tuple[object, ...]]) -> None:
    check(session, query, expected)


@pytest.mark.parametrize(
    "query",
    [
        "TABLE t |> EXTEND sum(x) AS s",
        "TABLE t |> EXTEND *",
        "TABLE t |> WHERE sum(x) > 1",
        "TABLE t |> AGGREGATE x",
        "TABLE t |> AGGREGATE sum(x), 1 GROUP BY y",
        "TABLE t |> AGGREGATE sum(x) GROUP BY ROLLUP (y)",
        "TABLE t |> AGGREGATE sum(x) GROUP BY 5",
        "TABLE t |> ORDER BY x LIMIT 1",
        "SELECT * FROM t ORDER BY x |> LIMIT 1",
        "TABLE t |> SET z = 1",
        "TABLE t |> SET t.x = 1",
        "TABLE t |> DROP zz",
        "TABLE t |> DROP x, x",
        "TABLE t |> DROP x, y",
        "TABLE t |> AS u |> SELECT t.x",
        "TABLE t |> QUALIFY true",
        "TABLE t |> WINDOW w AS (ORDER BY x)",
        "TABLE t |> NOTHING x",
        "TABLE t |>",
    ],
)
def test_pipes_that_spark_refuses(session: tamis.Session, query: str) -> None:
    with pytest.raises(TamisError):
        session.sql(query).to_arrow()


# --- Other syntax of Spark --------------------------------------------------------------------------------------------

SYNTAX = [
    ("SELECT * FROM VALUES 1, 2, 3 AS data(a)", [(1,), (2,), (3,)]),
    ("SELECT * FROM VALUES ('one', 1 AS one) AS data(a, b)", [("one", 1)]),
    ("SELECT col1 FROM VALUES (1, 2) GROUP BY col1 HAVING (SELECT max(col2) = 2)", [(1,)]),
    ("VALUES (1, 2), (3, 4) ORDER BY 1 DESC LIMIT 1", [(3, 4)]),
    ("VALUES 1 UNION ALL SELECT 2 UNION ALL TABLE n", [(1,), (2,)]),
    ("FROM t SELECT x", [(0,), (1,)]),
    ("SELECT * FROM t LEFT SEMI JOIN n", []),
    ("SELECT x FROM t LEFT ANTI JOIN n", [(0,), (1,)]),
    ("SELECT x, a FROM t LEFT JOIN n", [(0, None), (1, None)]),
    ("SELECT -128Y, -32768S, -1L, .5, X'1F', 1.5BD = 1.5", [(-128, -32768, -1, Decimal("0.5"), b"\x1f", True)]),
    ("SELECT 'a' 'b', \"c\", r'\\n', '\\u0041', 'it''s'", [("ab", "c", "\\n", "A", "it's")]),
    ("SELECT /* a /* nested */ comment */ 1 -- and this", [(1,)]),
    ("SELECT 'a' LIKE ANY ('a', 'b'), 'a' NOT LIKE ALL ('b'), 'a' LIKE SOME ('%')", [(True, True, True)]),
    ("SELECT 1 IS DISTINCT FROM NULL, NULL <=> NULL, 1 == 1, ! false", [(True, True, True, True)]),
    ("SELECT x FROM t QUALIFY row_number() OVER (ORDER BY x DESC) = 1", [(1,)]),
    ("SELECT 1 AS a, a + 1 AS b, b * 2 AS c", [(1, 2, 4)]),
    ("SELECT * EXCEPT (x) FROM t", [("abc",), ("def",)]),
    ("SELECT x FROM t WHERE y LIKE ANY ('%zz%', y)", [(0,), (1,)]),
    ("SELECT 'b' LIKE ANY ('a', NULL), 'a' NOT LIKE ANY ('a', 'b'), 'A' ILIKE ALL ('a', '%')", [(None, True, True)]),
    ("SELECT all, 1 FROM VALUES (2) AS v(all)", [(2, 1)]),
    ("SELECT a.x FROM t AS a CROSS JOIN t AS b ON a.x = b.x", [(0,), (1,)]),
    ("SELECT min_by(v, w, 2), max_by(v, w, 2) FROM VALUES (NULL, 1), ('b', 2), ('c', 3) AS q(v, w)",
     [([None, "b"], ["c", "b"])]),
    ("SELECT * FROM ((SELECT x + 0 AS z FROM t) AS a JOIN t AS b ON z = x) AS j, LATERAL (SELECT z) AS l(q)",
     [(0, 0, "abc", 0), (1, 1, "def", 1)]),
    ("SELECT g FROM t, LATERAL (SELECT x AS g)", [(0,), (1,)]),
]  # fmt: skip


@pytest.mark.parametrize(("query", "expected"), SYNTAX)
def test_syntax_of_spark(session: tamis.Session, query: str, expected: list[tuple[object, ...]]) -> None:
    check(session, query, expected)


def test_a_star_over_several_merged_joins_has_the_merged_columns_first(session: tamis.Session) -> None:
    query = "SELECT * FROM t a JOIN t b USING (x) JOIN t c USING (x)"
    assert session.sql(query).to_arrow().column_names == ["x", "y", "y", "y"]


REFUSED_BY_SPARK = [
    "SELECT * FROM t AS q(a)",
    "WITH q(a) AS (SELECT x, y FROM t) SELECT * FROM q",
    "SELECT x, g FROM t AS a, (SELECT x AS g) AS s",
    "SELECT x, g FROM t AS a CROSS JOIN (SELECT a.x AS g) AS s",
    "SELECT * FROM t PIVOT (sum(x) FOR y IN (x, 'a'))",
    "SELECT x FROM t ORDER BY x IN (SELECT 1)",
    "SELECT rank() OVER (PARTITION BY x, ORDER BY y) FROM t",
    "SELECT nth_value(x, 0) OVER (ORDER BY x) FROM t",
    "SELECT * FROM t TABLESAMPLE (200 PERCENT)",
    "SELECT max_by(x, y, 100001) FROM t",
    "SELECT y LIKE ANY ('a') ESCAPE '/' FROM t",
]


@pytest.mark.parametrize("query", REFUSED_BY_SPARK)
def test_what_spark_refuses_is_refused(session: tamis.Session, query: str) -> None:
    with pytest.raises(TamisError):
        session.sql(query).to_arrow()


FOREIGN = [
    "SELECT DISTINCT ON (x) x, y FROM t",
    "SELECT * FROM t LIMIT 10%",
    "SELECT * FROM t LIMIT 10 PERCENT",
    "SELECT * FROM t ASOF JOIN t AS u ON t.x >= u.x",
    "SELECT * FROM t AS a POSITIONAL JOIN t AS b",
    "SELECT #1 FROM t",
    "SELECT * REPLACE (1 AS x) FROM t",
    "SELECT * RENAME (x AS z) FROM t",
    "SELECT COLUMNS(*) FROM t",
    "SELECT * ILIKE 'x' FROM t",
    "SELECT [1, 2]",
    "SELECT {'a': 1}",
    "SELECT MAP {'a': 1}",
    "SELECT array(1, 2, 3)[1:2]",
    "SELECT y[1:2] FROM t",
    "SELECT y -> 'a' FROM t",
    "SELECT y ->> 'a' FROM t",
    "SELECT y GLOB 'a*' FROM t",
    "SELECT y SIMILAR TO 'a' FROM t",
    "SELECT y ~ 'a' FROM t",
    "SELECT 2 ** 3",
    "SELECT 7 // 2",
    "SELECT x ?? 1 FROM t",
    "SUMMARIZE t",
    "DESCRIBE t",
    "PIVOT t ON y USING sum(x)",
    "SELECT current_timestamp() AT TIME ZONE 'UTC'",
    "SELECT y COLLATE NOCASE FROM t",
    "SELECT x FROM t ORDER BY y COLLATE NOCASE",
    "SELECT x FROM t FETCH FIRST 1 ROWS ONLY",
    "SELECT x FROM t UNION BY NAME SELECT x FROM t",
    "SELECT x FROM t WHERE x BETWEEN SYMMETRIC 1 AND 0",
    "SELECT sum(x) OVER (ORDER BY x ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES) FROM t",
    "SELECT length(string := y) FROM t",
    "SELECT upper(input => y) FROM t",
    "SELECT * FROM generate_series(1, 3)",
    "SELECT * FROM duckdb_tables()",
    "SELECT * FROM read_csv('x')",
    "SELECT x FROM t FOR UPDATE",
    "WITH a AS MATERIALIZED (SELECT 1) SELECT * FROM a",
    "SELECT x FROM t LIMIT 1 BY x",
    "SELECT list_value(1)",
    "SELECT x::HUGEINT FROM t",
]


@pytest.mark.parametrize("query", FOREIGN)
def test_syntax_of_duckdb_is_refused(session: tamis.Session, query: str) -> None:
    with pytest.raises(TamisError):
        session.sql(query).to_arrow()


# --- Types ------------------------------------------------------------------------------------------------------------

TYPED = {
    "UTINYINT": pa.scalar(200, pa.uint8()),
    "USMALLINT": pa.scalar(60_000, pa.uint16()),
    "UINT": pa.scalar(4_000_000_000, pa.uint32()),
    "UBIGINT": pa.scalar(18_000_000_000_000_000_000, pa.uint64()),
    "TIMESTAMP_MS": pa.scalar(1_500, pa.timestamp("ms")),
    "TIME_MS": pa.scalar(1_500, pa.time32("ms")),
}
SOURCES = (
    "t",
    "(SELECT *, row_number() OVER (ORDER BY k) AS w FROM t)",
    "(SELECT * FROM t LATERAL VIEW explode(array(1)))",
)


@pytest.mark.parametrize("name", TYPED)
def test_a_printed_filter_runs_in_a_query(name: str, tmp_path: Path) -> None:
    value = TYPED[name]
    pq.write_table(pa.table({"c": pa.array([value.as_py(), None], value.type), "k": [1, 2]}), tmp_path / "t.parquet")
    table = tamis.open(tmp_path / "t.parquet")
    condition = (tamis.col("c") == value).to_sql()
    assert name in condition
    assert table.scan(condition).count() == 1
    found = tamis.connect().register("t", table)
    for source in SOURCES:
        assert read_rows(found, f"SELECT k FROM {source} WHERE {condition}") == [(1,)], source


def test_a_decimal_without_precision_is_decimal_10_0(session: tamis.Session) -> None:
    one, two = Decimal(1), Decimal(2)
    assert read_rows(session, "SELECT CAST(1.5 AS DECIMAL), 1.4::dec, try_cast('1.55' AS numeric)") == [(two, one, two)]
    assert read_rows(session, "SELECT CAST(array(1.5) AS array<decimal>)") == [([two],)]
    assert read_rows(session, "SELECT CAST(x + 0.5 AS DECIMAL), row_number() OVER (ORDER BY x) FROM t") == [
        (one, 1),
        (two, 2),
    ]


@pytest.mark.parametrize("name", ["frob", "uuid", "datetime", "array<frob>", "void", "json"])
def test_an_unknown_type_is_refused_by_name(session: tamis.Session, name: str) -> None:
    with pytest.raises(TamisError, match=f"(?i){name.removeprefix('array<').rstrip('>')}"):
        session.sql(f"SELECT CAST(NULL AS {name})").to_arrow()
