"""SQL texts: odd names, Spark syntax, errors and their messages."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.errors import ParseError

ODD = pa.table(
    {
        "we`ird": [1, 2, 3],
        "two words": ["a", "b", None],
        "order": [1.5, None, 2.5],
        "ünï.cødé": [True, False, None],
        "{brace}": pa.array([1, 2, 3], pa.int32()),
        'quo"te': ["x", "y", "z"],
    }
)

NESTED = pa.table(
    {
        "id": [1, 2, 3],
        "tags": [["a", "b"], [], None],
        "place": [{"City": "Rome", "geo": {"lat": 1.0}}, {"City": None, "geo": None}, None],
        "scores": pa.array([[("x", 1), ("y", 2)], [], None], pa.map_(pa.string(), pa.int64())),
    }
)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tamis.Session:
    folder = tmp_path_factory.mktemp("tables")
    made = tamis.connect()
    for name, rows in (("odd", ODD), ("nested", NESTED), ("empty", ODD.slice(0, 0))):
        pq.write_table(rows, folder / f"{name}.parquet")
        made.register(name, made.open(folder / f"{name}.parquet"))
    made.register("sales.eu.orders", pa.table({"id": [1, 2, 3], "amount": [1.5, 2.5, None]}))
    made.register("twins", pa.table([[1, 2], [3, 4]], ["a", "A"]))
    return made


def read_rows(session: tamis.Session, query: str) -> list[tuple[object, ...]]:
    found = session.sql(query).to_arrow()
    without = session.sql(query, rules=False).to_arrow()
    assert found.equals(without)
    return [tuple(row) for row in zip(*(column.to_pylist() for column in found.columns), strict=True)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT `we``ird`, `two words` FROM odd WHERE `we``ird` > 1", [(2, "b"), (3, None)]),
        ("SELECT `ünï.cødé` FROM odd WHERE `{brace}` = 1", [(True,)]),
        ('SELECT `quo"te` AS `quo"te 2` FROM odd o WHERE o.`order` IS NULL', [("y",)]),
        ("SELECT max(`we``ird`) FROM odd GROUP BY `ünï.cødé` IS NULL ORDER BY 1", [(2,), (3,)]),
        ("SELECT count(*), max(`two words`) FROM empty", [(0, None)]),
        ("SELECT `order` FROM empty ORDER BY 1 LIMIT 3", []),
    ],
)
def test_odd_names(session: tamis.Session, query: str, expected: list[tuple[object, ...]]) -> None:
    assert read_rows(session, query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT place.city, nested.place.geo.lat FROM nested WHERE PLACE.CITY = 'Rome'", [("Rome", 1.0)]),
        ("SELECT tags[0], size(tags) FROM nested WHERE id = 1", [("a", 2)]),
        ("SELECT element_at(scores, 'y') FROM nested WHERE id = 1", [(2,)]),
        ("SELECT transform(tags, x -> upper(x)) FROM nested WHERE id = 1", [(["A", "B"],)]),
        ("SELECT id FROM nested WHERE array_contains(tags, 'b')", [(1,)]),
        ("SELECT id, tag FROM nested LATERAL VIEW explode(tags) t AS tag ORDER BY tag", [(1, "a"), (1, "b")]),
        (
            "SELECT id, place, tag FROM (SELECT id FROM nested) LATERAL VIEW posexplode(array(id, 7)) t AS place, tag "
            "WHERE id = 2 ORDER BY place",
            [(2, 0, 2), (2, 1, 7)],
        ),
        ("SELECT id, k, v FROM nested LATERAL VIEW explode(scores) t AS k, v ORDER BY v", [(1, "x", 1), (1, "y", 2)]),
        (
            "SELECT n.id, t FROM nested n LATERAL VIEW OUTER explode(tags) v AS t WHERE n.id "
            "> 1 ORDER BY 1",
            [(2, None), (3, None)],
        ),
        (
            "SELECT id, place.city FROM nested LATERAL VIEW explode(array('Rome', 'Oslo')) place AS city "
            "WHERE place.city = 'Oslo' AND id < 3 ORDER BY id",
            [(1, "Oslo"), (2, "Oslo")],
        ),
        (
            "SELECT x, rank() OVER (ORDER BY x) FROM nested LATERAL VIEW explode(array(id)) v AS x "
            "LATERAL VIEW explode(array(x, 7)) place AS city WHERE place.city = 7 AND nested.place.city = 'Rome'",
            [(1, 1)],
        ),
        ("SELECT v.id FROM nested LATERAL VIEW explode(array(id + 1)) v AS id WHERE v.id = 3", [(3,)]),
        ("SELECT v.id FROM nested LATERAL VIEW explode(array(7)) v AS id WHERE nested.id = 3", [(7,)]),
        ("SELECT place.city FROM nested LATERAL VIEW explode(array(7)) v AS place WHERE nested.id = 3", "ambiguous"),
        ("SELECT tags[0] FROM nested LATERAL VIEW explode(array(7)) v AS id WHERE id = 7", "ambiguous"),
        ("SELECT explode(tags) AS tag FROM nested WHERE id = 1", [("a",), ("b",)]),
        ("SELECT place.geo.lat, count(*) FROM nested GROUP BY place.geo.lat ORDER BY 1", [(None, 2), (1.0, 1)]),
        ("SELECT place.* FROM nested WHERE id = 1", [("Rome", {"lat": 1.0})]),
        ("SELECT count(DISTINCT id, id % 2) FROM nested", [(3,)]),
        ("SELECT struct(id, tags[0] AS tag) AS s FROM nested WHERE id = 1", [({"id": 1, "tag": "a"},)]),
        ("SELECT named_struct('x', id) AS s, rank() OVER () FROM nested WHERE id = 1", [({"x": 1}, 1)]),
    ],
)  # fmt: skip
def test_nested_values(session: tamis.Session, query: str, expected: list[tuple[object, ...]] | str) -> None:
    if isinstance(expected, str):
        with pytest.raises(tamis.TamisError, match=expected):
            read_rows(session, query)
    else:
        assert read_rows(session, query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT 'it''s', \"double\", 'a\\nb', 1L, 2.5D, X'1F'", [("it's", "double", "a\nb", 1, 2.5, b"\x1f")]),
        ("SELECT 1;", [(1,)]),
        ("/* a */ SELECT 1 -- b\n", [(1,)]),
        ("(SELECT 1) UNION ALL (SELECT 2) ORDER BY 1 DESC", [(2,), (1,)]),
        ("VALUES (1, 'a'), (2, 'b')", [(1, "a"), (2, "b")]),
        ("SELECT id <=> NULL, id DIV 2, id % 2, -id, !(id = 1) FROM nested WHERE id = 3", [(False, 1, 1, -3, True)]),
        ("SELECT nvl(amount, 0), if(id > 1, 'big', 'small') FROM sales.eu.orders WHERE id = 3", [(0.0, "big")]),
        ("SELECT eu.orders.id, orders.amount FROM sales.eu.orders WHERE sales.eu.orders.id = 2", [(2, 2.5)]),
        (
            "SELECT sales.eu.orders.id, rank() OVER (ORDER BY sales.eu.orders.id) FROM "
            "sales.eu.orders ORDER BY 1 LIMIT 1",
            [(1, 1)],
        ),
        ("SELECT `A`, `a` FROM twins ORDER BY `a`", [(3, 1), (4, 2)]),
        ("SELECT * FROM twins WHERE `A` = 4", [(2, 4)]),
        ("SELECT `a`, rank() OVER (ORDER BY `A` DESC) AS r FROM twins ORDER BY r", [(2, 1), (1, 2)]),
        ("SELECT -id AS id, rank() OVER (ORDER BY id) AS r FROM nested ORDER BY id LIMIT 1", [(-3, 3)]),
        ("SELECT id % 2 AS id, count(*) OVER () FROM nested GROUP BY id ORDER BY 1 LIMIT 1", [(0, 3)]),
        ("SELECT n.*, rank() OVER (ORDER BY id DESC) AS r FROM (SELECT id FROM nested) n ORDER BY r LIMIT 1", [(3, 1)]),
        ("SELECT round(avg(amount), 1), concat('x', sum(amount)) FROM sales.eu.orders", [(2.0, "x4.0")]),
        ("SELECT count(*) FROM nested a, nested b", [(9,)]),
        ("SELECT count(*) FROM nested GROUP BY GROUPING SETS ((id), ()) ORDER BY 1", [(1,), (1,), (1,), (3,)]),
        ("SELECT id, count(*) FROM nested WHERE id < 2 GROUP BY id WITH ROLLUP ORDER BY 1", [(None, 1), (1, 1)]),
        ("SELECT any(id > 2), every(id > 2), some(id > 5) FROM nested", [(True, False, False)]),
        (
            "WITH tamis_scan_1 AS (SELECT 7 AS id), input_1 AS (SELECT 8 AS id) "
            "SELECT a.id, b.id, n.id FROM tamis_scan_1 a, input_1 b, nested n WHERE n.id NOT IN (SELECT 2) ORDER BY 3",
            [(7, 8, 1), (7, 8, 3)],
        ),
        ("SELECT '`tamis_scan_1` `input_1`', rank() OVER () FROM nested LIMIT 1", [("`tamis_scan_1` `input_1`", 1)]),
        ("SELECT id FROM nested WHERE (id, id + 1) IN ((1, 2), (3, 5))", [(1,)]),
        ("SELECT id FROM nested TABLESAMPLE (100 PERCENT) ORDER BY id", [(1,), (2,), (3,)]),
        ("SELECT date_format(DATE '2024-03-05', 'yyyy/MM/dd'), dayofweek(DATE '2024-03-03')", [("2024/03/05", 1)]),
        ("SELECT * FROM (SELECT id FROM nested ORDER BY id DESC) LIMIT 1", [(3,)]),
        ("SELECT id FROM nested ORDER BY id LIMIT ALL", [(1,), (2,), (3,)]),
        ("SELECT id, count(*) OVER () FROM nested QUALIFY row_number() OVER (ORDER BY id DESC) = 1", [(3, 3)]),
        ("SELECT s.id FROM nested s WHERE s.id = (SELECT max(id) FROM nested)", [(3,)]),
        (
            "SELECT CASE id WHEN 1 THEN 'one' ELSE 'more' END FROM nested WHERE id < 3 ORDER "
            "BY id",
            [("one",), ("more",)],
        ),
        ("SELECT id FROM nested WHERE id IN (1, 2, 3) AND EXISTS (SELECT 1) ORDER BY id LIMIT 1", [(1,)]),
        (
            "SELECT (SELECT count(*) FROM sales.eu.orders o WHERE o.id < n.id) FROM nested n "
            "ORDER BY n.id",
            [(0,), (1,), (2,)],
        ),
        ("SELECT * FROM nested PIVOT (max(id) FOR id IN (1 AS one)) LIMIT 0", []),
        ("SELECT current_date() = current_date(), now() = now() FROM nested LIMIT 1", [(True, True)]),
        ("SELECT id FROM range(3) ORDER BY id", [(0,), (1,), (2,)]),
    ],
)  # fmt: skip
def test_syntax(session: tamis.Session, query: str, expected: list[tuple[object, ...]]) -> None:
    assert read_rows(session, query) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT count_if(id > 1), count_if(id > 9) FROM nested", [(2, 0)]),
        ("SELECT count_if(id > 1) FROM nested WHERE id > 9", [(0,)]),
        ("SELECT count_if(id > 1) FILTER (WHERE id < 3) FROM nested", [(1,)]),
        ("SELECT collect_list(tags[0]), array_agg(id) FROM nested WHERE id > 9", [([], [])]),
        ("SELECT collect_list(`order`) FROM odd", [([1.5, 2.5],)]),
        ("SELECT id, sort_array(collect_set(id) OVER ()) FROM nested WHERE id = 3", [(3, [3])]),
        ("SELECT percentile(id, 0.5), percentile(id, 0.25) FROM nested", [(2.0, 1.5)]),
        ("SELECT kurtosis(id) FROM nested", [(-1.5,)]),
        ("SELECT CAST(1.9 AS INT), CAST(2.5 AS BIGINT), CAST('12' AS INT), CAST(-1.5 AS INT)", [(1, 2, 12, -1)]),
        ("SELECT datediff(MONTH, DATE '2024-01-31', DATE '2024-02-29'), datediff(DATE '2024-01-03', DATE '2024-01-01')",
         [(0, 2)]),
        ("SELECT timestampdiff(MONTH, DATE '2024-03-14', DATE '2024-01-15'), datediff(YEAR, DATE '2024-02-29', "
         "DATE '2025-02-28'), timestampdiff(DAY, TIMESTAMP '2024-01-01', TIMESTAMP '2024-01-02 23:00:00')",
         [(-1, 0, 1)]),
    ],
)  # fmt: skip
def test_syntax_that_differs_in_duckdb_has_the_meaning_of_spark(
    session: tamis.Session, query: str, expected: list[tuple[object, ...]]
) -> None:
    assert read_rows(session, query) == expected


def test_a_fractional_text_is_not_an_integer(session: tamis.Session) -> None:
    with pytest.raises(tamis.TamisError, match="whole number"):
        session.sql("SELECT CAST('1.9' AS INT)").to_arrow()


def test_a_random_number_is_evaluated_once(session: tamis.Session) -> None:
    found = session.sql("SELECT r FROM (SELECT rand() AS r FROM nested) ORDER BY r").to_arrow()["r"].to_pylist()
    assert found == sorted(found)
    assert len(set(found)) == 3


def test_a_nondeterministic_common_table_expression_runs_once(session: tamis.Session) -> None:
    query = "WITH r AS (SELECT rand() AS x FROM nested) SELECT count(*) AS n FROM r a JOIN r b ON a.x = b.x"
    assert session.sql(query).to_arrow()["n"].to_pylist() == [3]
    query = "WITH r AS (SELECT id FROM nested LIMIT 2) SELECT count(*) AS n FROM r a JOIN r b ON a.id = b.id"
    assert session.sql(query).to_arrow()["n"].to_pylist() == [2]


def test_long_texts(session: tamis.Session) -> None:
    either = " OR ".join(f"id = {number}" for number in range(1_000))
    assert session.sql(f"SELECT count(*) FROM nested WHERE {either}").to_arrow()[0][0].as_py() == 3
    deep = "(" * 300 + "id" + " + 1)" * 300
    assert session.sql(f"SELECT {deep} AS n FROM nested WHERE {deep} > 302").to_arrow()["n"].to_pylist() == [303]
    listed = ", ".join(map(str, range(5_000)))
    assert session.sql(f"SELECT id FROM nested WHERE id IN ({listed}) ORDER BY id").to_arrow().num_rows == 3
    union = " UNION ALL ".join(["SELECT id FROM nested"] * 100)
    assert session.sql(f"SELECT count(*) FROM ({union})").to_arrow()[0][0].as_py() == 300


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "empty"),
        ("SELECT", "."),
        ("SELEC id FROM nested", "Did you mean SELECT"),
        ("SELECT 1; SELECT 2", "several statements"),
        ("DROP TABLE nested", "not a query"),
        ("INSERT INTO nested VALUES (1)", "not a query"),
        ("CREATE TABLE x AS SELECT 1", "not a query"),
        ("SELECT * FROM nestd", r"no table 'nestd'.*Did you mean 'nested'"),
        ("SELECT * FROM other.nested", "no table 'other.nested'"),
        ("SELECT ids FROM nested", "ids"),
        ("SELECT no_such_function(id) FROM nested", "no_such_function"),
        ("SELECT id FROM nested VERSION AS OF 3", "version"),
        ("SELECT a FROM twins", "several columns: 'a', 'A'"),
        ("SELECT `a` FROM twins WHERE `A` NOT IN (SELECT 9)", "several columns: 'a', 'A'"),
        ("SELECT id + FROM nested", "."),
        ("SELECT id FROM nested GROUP BY tags", "id"),
        ("SELECT * FROM read_parquet('/etc/passwd')", "."),
        ("SELECT * FROM '/etc/passwd'", "."),
        ("SELECT * FROM IDENTIFIER('parquet').`/etc/passwd`", "."),
    ],
)  # fmt: skip
def test_errors_are_tamis_errors_with_a_reason(session: tamis.Session, query: str, message: str) -> None:
    with pytest.raises(tamis.TamisError, match=message) as raised:
        session.sql(query).to_arrow()
    assert "\n" not in str(raised.value)


def test_a_failing_value_is_reported_once(session: tamis.Session) -> None:
    with pytest.raises(tamis.errors.EvaluationError, match="invalid int"):
        session.sql("SELECT CAST(`two words` AS INT) FROM odd").to_arrow()


def test_the_error_of_a_scan_is_raised_unchanged(tmp_path: Path) -> None:
    pq.write_table(ODD, tmp_path / "t.parquet")
    session = tamis.connect()
    session.register("t", session.open(tmp_path / "t.parquet"))
    query = session.sql("SELECT * FROM t")
    (tmp_path / "t.parquet").unlink()
    with pytest.raises(tamis.errors.MissingFile, match=r"t\.parquet"):
        query.to_arrow()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT count(*) FROM nested WHERE id IN", "nothing follows 'IN'"),
        ("SELECT count(*) FROM nested WHERE id NOT IN", "nothing follows 'IN'"),
        ("SELECT count(*) FROM nested a JOIN nested b ON", "nothing follows 'ON'"),
        ("SELECT count(*) FROM nested a JOIN nested b ON WHERE a.id = 1", "nothing follows 'ON'"),
        ("SELECT count(*) FROM nested a JOIN nested b USING ()", "nothing follows 'USING'"),
        ("SELECT FROM nested", "nothing follows 'SELECT'"),
        ("SELECT DISTINCT FROM nested", "nothing follows 'DISTINCT'"),
        ("SELECT id FROM nested GROUP BY", "nothing follows 'GROUP BY'"),
        ("SELECT id FROM (SELECT id FROM nested ORDER BY)", "nothing follows 'ORDER BY'"),
    ],
)
def test_an_incomplete_clause_is_an_error(session: tamis.Session, query: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        session.sql(query).to_arrow()


def test_names_that_look_like_incomplete_clauses_are_accepted(session: tamis.Session) -> None:
    query = "SELECT count(DISTINCT id) AS n FROM nested WHERE id IS DISTINCT FROM 1 AND id IN (1, 2, 3)"
    assert session.sql(query).to_arrow().to_pylist() == [{"n": 2}]


def test_a_table_function_can_be_filtered(session: tamis.Session) -> None:
    assert session.sql("SELECT id FROM range(4) WHERE id > 1 ORDER BY id").to_arrow()["id"].to_pylist() == [2, 3]
