"""Syntax and argument counts that Spark refuses are refused by name, with the position, in filters and queries."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.errors import ExpressionError, ParseError, TamisError

ROWS = pa.table({
    "id": pa.array([1, 2, 3], pa.int32()), "b": [True, False, None], "k": ["a", "A", "b"],
    "s": ["nandu", "ñandú", "x"], "xs": [[1], [2], [3]],
})  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("foreign") / "t.parquet"
    pq.write_table(ROWS, path)
    return path


@pytest.fixture(scope="module")
def session(table: Path) -> tamis.Session:
    connection = tamis.connect()
    connection.register("t", connection.open(table))
    connection.register("m", ROWS)
    return connection


CONDITIONS = {
    "k = 'A' COLLATE NOCASE": "collation NOCASE",
    "s COLLATE NOACCENT = 'nandu'": "collation NOACCENT",
    "id BETWEEN SYMMETRIC 3 AND 1": "BETWEEN SYMMETRIC",
    "[1, 2][1] = 2": "does not make an array",
    "id IN [1, 2]": "IN needs a list",
    "id NOT IN [1, 2]": "IN needs a list",
    "k ~~ 'a'": "no operator ~~",
    "k !~~ 'a'": "no operator ~~",
    "k ~~* 'a'": "no operator ~~",
    "id NOTNULL": "no NOTNULL",
    "id ISNULL": "no ISNULL",
    "xs[1:2] = array(1)": "no slices",
    "k = N'a'": "no N prefix",
    "k = ANY(['a'])": "does not make an array",
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_of_other_dialects_are_refused_everywhere(
    session: tamis.Session, table: Path, condition: str
) -> None:
    with pytest.raises(ParseError, match=CONDITIONS[condition]) as in_filter:
        tamis.open(table).scan(condition)
    with pytest.raises(ParseError, match=CONDITIONS[condition]) as in_query:
        session.sql(f"SELECT * FROM t WHERE {condition}").to_arrow()
    assert "(character " in str(in_filter.value)
    assert "(character " in str(in_query.value)


@pytest.mark.parametrize(
    "condition", ["isnull(id)", "isnotnull(id)", "k LIKE ANY ('a', 'b')", "xs[0] = 1", "id * 2 = 4"]
)
def test_conditions_of_spark_are_accepted(session: tamis.Session, table: Path, condition: str) -> None:
    kept = tamis.open(table).scan(condition).to_arrow()
    assert session.sql(f"SELECT * FROM t WHERE {condition}").to_arrow().num_rows == kept.num_rows


ARITIES = {
    "max(id, 2)": "max takes 1 argument, not 2",
    "min(id, 2)": "min takes 1 argument, not 2",
    "max()": "max takes 1 argument, not 0",
    "array_agg(id, 2)": "array_agg takes 1 argument",
    "collect_list(id, 2)": "collect_list takes 1 argument",
    "collect_set(id, 2)": "collect_set takes 1 argument",
    "count()": "count takes at least 1 argument, not 0",
    "sum(id, 2)": "sum takes 1 argument",
    "sum(DISTINCT id, 2)": "sum takes 1 argument, not 2",
    "avg(id, 2)": "avg takes 1 argument",
    "stddev(id, 1)": "stddev takes 1 argument",
    "median(id, 1)": "median takes 1 argument",
    "bool_and(b, b)": "bool_and takes 1 argument",
    "max_by(id)": "max_by takes 2 to 3 arguments, not 1",
    "corr(id)": "corr takes 2 arguments, not 1",
    "percentile(id)": "percentile takes 2 to 3 arguments",
    "percentile_approx(id)": "percentile_approx takes 2 to 3 arguments",
    "listagg(k, ',', 1)": "listagg takes 1 to 2 arguments",
    "first(id, 2)": "the second argument of first must be TRUE or FALSE",
    "mode(id, 1)": "the second argument of mode must be TRUE or FALSE",
    "approx_count_distinct(id, 0.05, 1)": "approx_count_distinct takes 1 to 2 arguments",
    "max(id, 2) FILTER (WHERE b)": "max takes 1 argument",
    "max(id, 2) OVER ()": "max takes 1 argument",
    "row_number(1) OVER (ORDER BY id)": "row_number takes no arguments, not 1",
    "ntile(2, 3) OVER (ORDER BY id)": "ntile takes 0 to 1 arguments",
    "nth_value(id) OVER (ORDER BY id)": "nth_value takes 2 to 3 arguments",
}


@pytest.mark.parametrize("source", ["t", "m"])
@pytest.mark.parametrize("call", ARITIES)
def test_aggregates_take_as_many_arguments_as_in_spark(session: tamis.Session, call: str, source: str) -> None:
    with pytest.raises(ExpressionError, match=ARITIES[call]):
        session.sql(f"SELECT {call} FROM {source}").to_arrow()


@pytest.mark.parametrize(
    ("call", "expected"),
    [("count(id, b)", 2), ("count(DISTINCT id, b)", 2), ("count(*)", 3), ("first(b, true)", True), ("max(id)", 3)],
)
def test_arguments_that_spark_accepts(session: tamis.Session, call: str, expected: object) -> None:
    assert session.sql(f"SELECT {call} FROM m").to_arrow()[0][0].as_py() == expected


SYNTAX = {
    "SELECT id FROM t USING SAMPLE 3": "USING SAMPLE",
    "SELECT first(id ORDER BY k) FROM t": "first does not accept ORDER BY",
    "SELECT array_agg(id ORDER BY k) FROM t": "array_agg does not accept ORDER BY",
    "SELECT collect_list(DISTINCT id ORDER BY k) FROM t": "collect_list does not accept ORDER BY",
    "SELECT sum(id) OVER (ORDER BY id GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t": "no GROUPS",
    "SELECT * EXCLUDE (k) FROM t": "EXCLUDE",
    "SELECT t.* EXCLUDE k FROM t": "EXCLUDE",
    "SELECT id FROM t WHERE id = ANY(SELECT id FROM m)": "ANY",
    "SELECT id FROM t WHERE id > ALL (SELECT id FROM m)": "ALL",
    "SELECT N'x'": "no N prefix",
    "SELECT 1e400": "larger than every DOUBLE",
    "SELECT 1e400D": "larger than every DOUBLE",
    "SELECT -1e400": "larger than every DOUBLE",
    "SELECT 123456789012345678901234567890123456789": "at most 38 digits, not 39",
    "SELECT 1234567890123456789012345678901234567.89": "at most 38 digits, not 39",
}


@pytest.mark.parametrize("query", SYNTAX)
def test_syntax_that_spark_refuses(session: tamis.Session, query: str) -> None:
    with pytest.raises(ParseError, match=SYNTAX[query]):
        session.sql(query).to_arrow()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT 99999999999999999999999999999999999999", 10**38 - 1),
        ("SELECT 000000000000000000000000000000000000000000000007", 7),
        ("SELECT 1e308", 1e308),
        ("SELECT id * exclude FROM (SELECT 2 AS id, 3 AS exclude)", 6),
    ],
)
def test_numbers_and_names_that_spark_accepts(session: tamis.Session, query: str, expected: object) -> None:
    assert session.sql(query).to_arrow()[0][0].as_py() == expected


CONDITIONS_THAT_ARE_NONE = {
    "SELECT NOT id FROM {}": "NOT takes a condition, not a number",
    "SELECT id AND b FROM {}": "AND takes a condition, not a number",
    "SELECT b OR id FROM {}": "OR takes a condition, not a number",
    "SELECT b OR id + 1 FROM {}": "OR takes a condition, not a number",
    "SELECT id FROM {} WHERE 1": "WHERE takes a condition, not a number",
    "SELECT id FROM {} WHERE id": "WHERE takes a condition, not a number",
    "SELECT id FROM {} WHERE k": "WHERE takes a condition, not a text",
    "SELECT id FROM {} WHERE 'true'": "WHERE takes a condition, not a text",
    "SELECT id FROM {} WHERE NULL": "WHERE takes a condition, not NULL",
    "SELECT id FROM {} WHERE b AND id": "AND takes a condition, not a number",
    "SELECT CASE WHEN id THEN 1 END FROM {}": "CASE WHEN takes a condition, not a number",
    "SELECT CASE WHEN NULL THEN 1 END FROM {}": "CASE WHEN takes a condition, not NULL",
    "SELECT if(id, 1, 2) FROM {}": "if takes a condition, not a number",
    "SELECT if('true', 1, 2) FROM {}": "if takes a condition, not a text",
    "SELECT x.id FROM {} x JOIN m y ON x.id": "ON takes a condition, not a number",
    "SELECT x.id FROM {} x LEFT JOIN m y ON 1": "ON takes a condition, not a number",
    "SELECT x.id FROM {} x JOIN m y ON NULL": "ON takes a condition, not NULL",
    "SELECT sum(b) FROM {}": "sum takes numbers, not a boolean",
    "SELECT avg(DISTINCT b) FROM {}": "avg takes numbers, not a boolean",
    "SELECT sum(b) OVER () FROM {}": "sum takes numbers, not a boolean",
    "SELECT bool_and(id) FROM {}": "bool_and takes a condition, not a number",
    "SELECT count_if(id) FROM {}": "count_if takes a condition, not a number",
    "SELECT (SELECT max(id) FROM m WHERE id) FROM {}": "WHERE takes a condition",
    "SELECT count(t.*) FROM {} t": "count does not accept t[.][*]",
    "SELECT DISTINCT k FROM {} ORDER BY id": "id is not in the list of SELECT DISTINCT",
    "SELECT DISTINCT k AS z FROM {} ORDER BY k": "k is not in the list of SELECT DISTINCT",
    "SELECT DISTINCT id + 1 FROM {} ORDER BY id + 1": "id is not in the list of SELECT DISTINCT",
    "SELECT a FROM (SELECT id AS a, k AS a FROM {})": "a is ambiguous",
    "SELECT a FROM (SELECT id AS a, id AS a FROM {})": "a is ambiguous",
    "SELECT 1 FROM (SELECT id AS a, k AS A FROM {}) WHERE a = 1": "a is ambiguous",
    "WITH w AS (SELECT id AS a, k AS a FROM {}) SELECT w.a FROM w": "a is ambiguous",
}


@pytest.mark.parametrize("source", ["t", "m"])
@pytest.mark.parametrize("query", CONDITIONS_THAT_ARE_NONE)
def test_invalid_conditions_and_names_are_refused(session: tamis.Session, query: str, source: str) -> None:
    with pytest.raises(ParseError, match=CONDITIONS_THAT_ARE_NONE[query]):
        session.sql(query.format(source)).to_arrow()


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("SELECT NOT NULL FROM {}", 3),
        ("SELECT NULL AND true FROM {}", 3),
        ("SELECT count(*) FROM {} HAVING NULL", 0),
        ("SELECT if(NULL, 1, 2) FROM {}", 3),
        ("SELECT id FROM {} WHERE b", 1),
        ("SELECT id FROM {} WHERE NOT b OR b", 2),
        ("SELECT DISTINCT k FROM {} ORDER BY upper(k)", 3),
        ("SELECT DISTINCT x.k, id FROM {} x ORDER BY x.k, id + 1", 3),
        ("SELECT * FROM (SELECT id AS a, k AS a FROM {})", 3),
        ("SELECT id FROM (SELECT id, id FROM {})", 3),
        ("SELECT 1 AS a FROM (SELECT id AS a, k AS a FROM {}) ORDER BY a", 3),
    ],
)
def test_conditions_and_names_that_spark_accepts(session: tamis.Session, query: str, count: int) -> None:
    assert session.sql(query.format("m")).to_arrow().num_rows == count


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT 'a' AS g HAVING g = 'a'", [("a",)]),
        ("SELECT 1 AS g HAVING g > 2", []),
        ("SELECT 'a' AS g WHERE false HAVING g = 'a'", [("a",)]),
        ("SELECT id FROM m ORDER BY id LIMIT length('ab')", [(1,), (2,)]),
        ("SELECT id FROM m ORDER BY id LIMIT 1 OFFSET length('ab')", [(3,)]),
        ("SELECT struct(*) FROM (SELECT id, k FROM m WHERE id = 1)", [({"id": 1, "k": "a"},)]),
        ("SELECT struct(x.*).k FROM (SELECT id, k FROM m WHERE id = 1) x JOIN m ON m.id = x.id", [("a",)]),
        ("SELECT concat(*) FROM (SELECT k, s FROM t WHERE id = 1)", [("anandu",)]),
        ("SELECT coalesce(*) FROM (SELECT CAST(NULL AS INT) x, 2 y)", [(2,)]),
        ("SELECT greatest(*, 5) FROM (SELECT 1 x, 2 y)", [(5,)]),
        ("SELECT count(DISTINCT *) FROM (SELECT id, b FROM m)", [(2,)]),
        ("SELECT count(*) FROM m", [(3,)]),
        (
            "WITH RECURSIVE r(x) MAX RECURSION LEVEL 200 AS (SELECT 1 UNION ALL SELECT x + 1 FROM r WHERE x < 150) "
            "SELECT max(x) FROM r",
            [(150,)],
        ),
        (
            "WITH RECURSIVE r MAX RECURSION LEVEL 200 AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM r WHERE x < 150) "
            "SELECT max(x) FROM r",
            [(150,)],
        ),
    ],
)
def test_queries_that_spark_accepts(session: tamis.Session, query: str, expected: list[tuple[object, ...]]) -> None:
    assert [tuple(row.values()) for row in session.sql(query).to_arrow().to_pylist()] == expected


def test_a_recursive_query_is_limited_by_max_recursion_level(session: tamis.Session) -> None:
    query = "WITH RECURSIVE r(x) MAX RECURSION LEVEL 10 AS (SELECT 1 UNION ALL SELECT x + 1 FROM r WHERE x < 50) "
    with pytest.raises(TamisError, match="more than 10 levels"):
        session.sql(query + "SELECT max(x) FROM r").to_arrow()


@pytest.mark.parametrize("text", ["1 >>>> 2", "1 >>", "1 <<", "1 >>>", "(1 >> )", "1 << << 2"])
def test_a_shift_without_a_value_is_an_error(text: str) -> None:
    with pytest.raises(TamisError):
        tamis.connect().sql(f"SELECT {text}")
