"""Maps that generators unnest, and conditions that guard others: the rows are those of Spark 4.2."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.errors import TamisError

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int32()),
        "m": pa.array([[(1, "one"), (2, "two")], [], None], pa.map_(pa.int32(), pa.string())),
        "xs": pa.array([[5, 6], [], None], pa.list_(pa.int32())),
    }
)
PAIRS = [(1, "one"), (2, "two")]


@pytest.fixture(scope="module")
def session():
    found = tamis.connect()
    found.register("t", ROWS)
    return found


@pytest.mark.parametrize(
    ("query", "names", "rows"),
    [
        ("SELECT explode(m) FROM t", ["key", "value"], PAIRS),
        ("SELECT id, explode(m) FROM t", ["id", "key", "value"], [(1, 1, "one"), (1, 2, "two")]),
        ("SELECT id, explode_outer(m) FROM t", ["id", "key", "value"],
         [(1, 1, "one"), (1, 2, "two"), (2, None, None), (3, None, None)]),
        ("SELECT posexplode(m) FROM t", ["pos", "key", "value"], [(0, 1, "one"), (1, 2, "two")]),
        ("SELECT explode(m) AS (k, v) FROM t", ["k", "v"], PAIRS),
        ("SELECT key, value FROM t LATERAL VIEW explode(m) e", ["key", "value"], PAIRS),
        ("SELECT e.key, e.value FROM t LATERAL VIEW explode(m) e", ["key", "value"], PAIRS),
        ("SELECT id, key FROM t LATERAL VIEW OUTER explode(m) e", ["id", "key"],
         [(1, 1), (1, 2), (2, None), (3, None)]),
        ("SELECT pos, key, value FROM t LATERAL VIEW posexplode(m) e", ["pos", "key", "value"],
         [(0, 1, "one"), (1, 2, "two")]),
        ("SELECT key, value FROM (SELECT explode(m) FROM t) WHERE key = 2", ["key", "value"], [(2, "two")]),
        ("SELECT id, key, value FROM t, LATERAL explode(m)", ["id", "key", "value"], [(1, 1, "one"), (1, 2, "two")]),
        ("SELECT id, explode(xs) FROM t", ["id", "col"], [(1, 5), (1, 6)]),
        ("SELECT id, explode(map(id, count(*))) FROM t GROUP BY id HAVING id = 1", ["id", "key", "value"], [(1, 1, 1)]),
    ],
)  # fmt: skip
def test_an_exploded_map_has_two_columns(session, query, names, rows):
    found = session.sql(query).to_arrow()
    assert found.column_names == names
    assert sorted(zip(*(column.to_pylist() for column in found.columns), strict=True), key=str) == sorted(rows, key=str)


def test_an_exploded_computed_map_needs_column_names(session):
    with pytest.raises(TamisError, match="AS \\(key, value\\)"):
        session.sql("SELECT explode(x) FROM (SELECT map(1, 2) AS x)").to_arrow()
    named = session.sql("SELECT explode(x) AS (k, v) FROM (SELECT map(1, 2) AS x)").to_arrow()
    assert named.to_pylist() == [{"k": 1, "v": 2}]


GUARDED = [
    ("size(xs) > 0 AND xs[0] = 5", [True, False, None]),
    ("size(xs) > 0 AND xs[0] = 5 AND xs[1] = 6", [True, False, None]),
    ("size(xs) = 0 OR xs[0] = 5", [True, True, None]),
    ("id <> 2 AND 4 / (id - 2) < 0", [True, False, False]),
]


@pytest.mark.parametrize(("condition", "values"), GUARDED, ids=[each for each, _ in GUARDED])
def test_a_condition_guards_those_after_it(tmp_path, session, condition, values):
    ids = [index + 1 for index, value in enumerate(values) if value]
    pq.write_table(ROWS, tmp_path / "part.parquet")
    assert tamis.open(str(tmp_path)).scan(condition).to_arrow()["id"].to_pylist() == ids
    assert session.sql(f"SELECT id FROM t WHERE {condition}").to_arrow()["id"].to_pylist() == ids
    for query in ("SELECT {} AS v FROM t ORDER BY id", "SELECT {} AS v, row_number() OVER (ORDER BY id) AS n FROM t"):
        assert session.sql(query.format(condition)).to_arrow()["v"].to_pylist() == values
    counted = session.sql(f"SELECT count(*) FILTER (WHERE {condition}) AS n FROM t").to_arrow()
    assert counted["n"].to_pylist() == [len(ids)]


def test_a_condition_does_not_guard_those_before_it(tmp_path):
    pq.write_table(ROWS, tmp_path / "part.parquet")
    with pytest.raises(TamisError, match="out of bounds"):
        tamis.open(str(tmp_path)).scan("xs[0] = 5 AND size(xs) > 0").to_arrow()


def test_try_to_date_of_an_invalid_date_is_NULL(session):
    query = "SELECT try_to_date(s, 'dd') FROM (VALUES ('10'), ('xx') AS q(s))"
    assert [str(each) for each in session.sql(query).to_arrow().column(0).to_pylist()] == ["1970-01-10", "None"]
