"""Queries that group by, sort or compare maps and nested values return the rows of Spark 4.2."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tamis
from tamis.errors import TamisError

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int32()),
        "k": pa.array(["a", "a", "b"]),
        "m": pa.array([[(1, "x"), (2, None)], [(2, None), (1, "x")], None], pa.map_(pa.int32(), pa.string())),
        "am": pa.array([[[(1, 2), (3, 4)]], [[(3, 4), (1, 2)]], []], pa.list_(pa.map_(pa.int32(), pa.int32()))),
        "xs": pa.array([[1, None], [1, 2], [0]], pa.list_(pa.int32())),
    }
)
M = [(1, "x"), (2, None)]
TWO = "(VALUES (map(1, 2, 3, 4)), (map(3, 4, 1, 2)) AS t(mm))"
ONE_MAP = [(1, 2), (3, 4)]
PICKED = "if(id < 2, map(1, 2, 3, 4), map(3, 4, 1, 2))"


@pytest.fixture(scope="module")
def session():
    found = tamis.connect()
    found.register("t", ROWS)
    return found


def read_rows(session, query):
    table = session.sql(query).to_arrow()
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT m, count(*) FROM t GROUP BY m ORDER BY 2", [(None, 1), (M, 2)]),
        (f"SELECT mm, count(*) FROM {TWO} GROUP BY mm", [(ONE_MAP, 2)]),
        ("SELECT q, count(*) FROM (SELECT map(1, 2, 3, 4) q UNION ALL SELECT map(3, 4, 1, 2)) GROUP BY q",
         [(ONE_MAP, 2)]),
        (f"WITH c AS (SELECT * FROM {TWO}) SELECT mm, count(*) FROM c GROUP BY mm", [(ONE_MAP, 2)]),
        (f"SELECT count(*) FROM t GROUP BY {PICKED}", [(3,)]),
        (f"SELECT {PICKED} AS q, count(*) FROM t GROUP BY q", [(ONE_MAP, 3)]),
        (f"SELECT {PICKED} AS q, count(*) FROM t GROUP BY 1", [(ONE_MAP, 3)]),
        (f"SELECT {PICKED} AS q, count(*) FROM t GROUP BY ALL", [(ONE_MAP, 3)]),
        (f"SELECT {PICKED} AS q, count(*) FROM t GROUP BY ROLLUP (1) ORDER BY q IS NULL",
         [(ONE_MAP, 3), (None, 3)]),
        ("SELECT m, grouping(m), count(*) FROM t GROUP BY GROUPING SETS ((m), ()) ORDER BY 3, 2",
         [(None, 0, 1), (M, 0, 2), (None, 1, 3)]),
        ("SELECT m, k, count(*) FROM t GROUP BY CUBE (m, k) HAVING m[1] = 'x' ORDER BY k",
         [(M, None, 2), (M, "a", 2)]),
        ("SELECT x['a'], count(*) FROM (VALUES (map('a', map(1, 2, 3, 4))), (map('a', map(3, 4, 1, 2))) AS t(x)) "
         "GROUP BY x['a']", [(ONE_MAP, 2)]),
        ("SELECT am, count(*) FROM t GROUP BY am ORDER BY 2", [([], 1), ([ONE_MAP], 2)]),
        (f"SELECT array(mm), count(*) FROM {TWO} GROUP BY array(mm)", [([ONE_MAP], 2)]),
        (f"SELECT mm, mm[1], count(*), sum(count(*)) OVER () FROM {TWO} GROUP BY mm", [(ONE_MAP, 2, 2, 2)]),
        (f"SELECT mm, count(*) FROM {TWO} LATERAL VIEW explode(array(1)) e AS y GROUP BY mm HAVING size(mm) = 2",
         [(ONE_MAP, 2)]),
        ("SELECT size(m), count(*) FROM t GROUP BY m ORDER BY size(m)", [(None, 1), (2, 2)]),
        (f"SELECT count(DISTINCT mm) FROM {TWO}", [(2,)]),
        ("SELECT k, m FROM t WHERE id = 1 UNION ALL SELECT k, m FROM t WHERE id = 2",
         [("a", M), ("a", [(2, None), (1, "x")])]),
    ],
)  # fmt: skip
def test_maps_with_the_same_entries_are_one_group(session, query, rows):
    assert read_rows(session, query) == rows


@pytest.mark.parametrize(
    "query",
    [
        "SELECT struct(m), count(*) FROM t GROUP BY struct(m)",
        "SELECT map(1, m), count(*) FROM t GROUP BY map(1, m)",
        f"SELECT DISTINCT mm FROM {TWO}",
        f"SELECT mm FROM {TWO} INTERSECT SELECT mm FROM {TWO}",
        f"SELECT count(*) OVER (PARTITION BY mm) FROM {TWO}",
        f"SELECT count(*) OVER (ORDER BY mm) FROM {TWO}",
        f"SELECT mm FROM {TWO} ORDER BY mm",
        "SELECT collect_set(m) FROM t", "SELECT max(m) FROM t", f"SELECT min(mm) FROM {TWO}",
        "SELECT max_by(id, m) FROM t", "SELECT greatest(m, m) FROM t", f"SELECT nullif(mm, mm) FROM {TWO}",
        f"SELECT CASE mm WHEN mm THEN 1 END FROM {TWO}", f"SELECT mm IN (mm) FROM {TWO}",
        "SELECT m = m FROM t", "SELECT m <=> m FROM t", "SELECT m < m FROM t", "SELECT am = am FROM t",
        "SELECT struct(map(1, 2)) = struct(map(1, 2))", "SELECT x.id FROM t x JOIN t y ON x.m = y.m",
        "SELECT array_contains(am, map(1, 2)) FROM t", "SELECT array_distinct(am) FROM t",
        "SELECT array_union(am, am) FROM t", "SELECT array_sort(am) FROM t", "SELECT array_max(am) FROM t",
        "SELECT array_position(am, map(1, 2)) FROM t", "SELECT arrays_overlap(am, am) FROM t",
    ],
)  # fmt: skip
def test_comparing_maps_is_an_error(session, query):
    with pytest.raises(TamisError, match=r"(?i)map"):
        session.sql(query).to_arrow()


@pytest.mark.parametrize("query", ["SELECT max(xs) FROM t", "SELECT id FROM t ORDER BY xs"])
def test_sorting_lists_that_contain_NULL_is_an_error(session, query):
    with pytest.raises(TamisError, match="contain NULL"):
        session.sql(query).to_arrow()


def test_lists_without_NULL_are_sorted(session):
    assert read_rows(session, "SELECT max(xs), min(xs) FROM t WHERE id > 1") == [([1, 2], [0])]
    assert read_rows(session, "SELECT id FROM t WHERE id > 1 ORDER BY xs") == [(3,), (2,)]


def test_a_conjunction_beside_a_null_safe_comparison_keeps_its_parentheses() -> None:
    rows = pa.table({"i": pa.array([5, None, 20], pa.int32()), "e": pa.array([True, None, False])})
    session = tamis.connect().register("t", rows)
    for text in ("(i BETWEEN 0 AND 9) <=> e", "(i >= 0 AND i <= 9) IS NOT DISTINCT FROM e", "(NOT i > 9) <=> e"):
        assert session.sql(f"SELECT {text} AS v FROM t").to_arrow()["v"].to_pylist() == [True, True, True], text
