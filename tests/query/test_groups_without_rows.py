"""Groups without rows, constant conditions, nested limits: each kind of table returns the rows of Spark."""

from __future__ import annotations

from pathlib import Path

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis

ROWS = pa.table({"id": pa.array([1, 2, 3, 4, 5, None], pa.int64()), "k": ["a", "b", "a", None, "b", "c"]})
KINDS = ("delta", "hive", "parquet", "memory", "database")

ONE, NONE = [(1,)], list[tuple[object, ...]]()
QUERIES: dict[str, list[tuple[object, ...]]] = {
    "SELECT 1 FROM shop.t HAVING 1 < 2": ONE,
    "SELECT 1 FROM shop.t WHERE id > 100 HAVING true": ONE,
    "SELECT 1 FROM shop.t HAVING false": NONE,
    "SELECT EXISTS(SELECT 1 FROM shop.t HAVING 1 < 2)": [(True,)],
    "SELECT EXISTS(SELECT 1 FROM shop.t HAVING 1 > 2)": [(False,)],
    "SELECT id FROM shop.t WHERE EXISTS (SELECT 1 FROM shop.t WHERE false HAVING true) AND id < 2": ONE,
    "SELECT count(*) FROM (SELECT 1 FROM shop.t HAVING true)": ONE,
    "SELECT 1 FROM (SELECT 1 FROM shop.t WHERE k = 'x' HAVING true) HAVING true": ONE,
    "SELECT count(*) FROM shop.t HAVING true": [(6,)],
    "SELECT count(*) FROM shop.t HAVING false": NONE,
    "SELECT count(*) FROM shop.t HAVING CAST(NULL AS BOOLEAN)": NONE,
    "SELECT max(id) FROM shop.t HAVING 1 > 2": NONE,
    "SELECT sum(id) FROM shop.t HAVING 1 > 2": NONE,
    "SELECT avg(id) FROM shop.t HAVING 1 > 2": NONE,
    "SELECT count(*) FROM shop.t WHERE false": [(0,)],
    "SELECT count(*) FROM shop.t WHERE false HAVING 1 < 2": [(0,)],
    "SELECT k, count(*) FROM shop.t GROUP BY k HAVING false": NONE,
    "SELECT DISTINCT k FROM (SELECT k FROM shop.t) WHERE false": NONE,
    "SELECT * FROM (SELECT count(*) AS c FROM shop.t) WHERE false": NONE,
    "SELECT * FROM (SELECT count(*) AS c FROM shop.t) WHERE c = 6 AND 1 > 2": NONE,
    "SELECT id FROM shop.t WHERE EXISTS (SELECT count(*) FROM shop.t HAVING false)": NONE,
    "SELECT id FROM shop.t WHERE id = 1 AND NOT EXISTS (SELECT count(*) FROM shop.t HAVING false)": ONE,
    "SELECT id FROM shop.t WHERE id IN (SELECT max(id) FROM shop.t HAVING false)": NONE,
    "SELECT (SELECT max(id) FROM shop.t HAVING false)": [(None,)],
    "SELECT a.c FROM (SELECT count(*) AS c FROM shop.t) a JOIN shop.t t ON a.c = t.id WHERE false": NONE,
    "SELECT c, t.id FROM (SELECT count(*) AS c FROM shop.t) a LEFT JOIN shop.t t ON a.c = t.id AND false": [(6, None)],
    "SELECT count(*) FROM (SELECT id FROM shop.t LIMIT 3) WHERE false": [(0,)],
    "SELECT * FROM (SELECT id FROM shop.t ORDER BY id LIMIT 3) WHERE false": NONE,
    "SELECT * FROM (SELECT id FROM shop.t ORDER BY id DESC LIMIT 4) LIMIT 2": [(5,), (4,)],
    "SELECT * FROM (SELECT id FROM shop.t ORDER BY id DESC LIMIT 4) LIMIT 0": NONE,
    "SELECT * FROM (SELECT id FROM shop.t ORDER BY id DESC LIMIT 4) OFFSET 3": [(2,)],
    "SELECT * FROM (SELECT id FROM shop.t ORDER BY id DESC LIMIT 4) LIMIT 2 OFFSET 1": [(4,), (3,)],
    "SELECT * FROM (SELECT id FROM shop.t ORDER BY id DESC LIMIT 2) LIMIT 4": [(5,), (4,)],
    "SELECT * FROM (SELECT id FROM shop.t ORDER BY id DESC LIMIT 2) ORDER BY id LIMIT 1": [(4,)],
    "SELECT * FROM (SELECT id FROM shop.t ORDER BY id DESC LIMIT 2 OFFSET 1) LIMIT 1": [(4,)],
    "WITH w AS (SELECT id FROM shop.t ORDER BY id DESC LIMIT 4) SELECT * FROM w LIMIT 1": [(5,)],
    "(SELECT id FROM shop.t ORDER BY id DESC LIMIT 4) LIMIT 1": [(5,)],
    "SELECT count(*) FROM (SELECT * FROM (SELECT id FROM shop.t ORDER BY id DESC LIMIT 4) LIMIT 3)": [(3,)],
    "TABLE shop.t |> ORDER BY id DESC |> LIMIT 3 |> OFFSET 1 |> SELECT id": [(4,), (3,)],
    "TABLE shop.t |> ORDER BY id DESC |> LIMIT 3 |> LIMIT 1 |> SELECT id": [(5,)],
}


@pytest.fixture(scope="module", params=KINDS)
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tamis.Session:
    """A session with the rows as the table `shop.t` of one kind."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    connection = tamis.connect()
    match request.param:
        case "delta":
            deltalake.write_deltalake(str(folder / "t"), ROWS, partition_by=["k"])
            connection.register("shop.t", connection.open(folder / "t"))
        case "hive":
            pq.write_to_dataset(ROWS, folder / "t", partition_cols=["k"])
            connection.register("shop.t", connection.open(folder / "t"))
        case "parquet":
            pq.write_table(ROWS, folder / "t.parquet")
            connection.register("shop.t", connection.open(folder / "t.parquet"))
        case "memory":
            connection.register("shop.t", ROWS)
        case _:
            with duckdb.connect(str(folder / "shop.duckdb")) as database:
                database.register("given", ROWS)
                database.execute("CREATE TABLE t AS SELECT * FROM given")
            connection.attach("shop", f"duckdb:///{folder / 'shop.duckdb'}")
    return connection


@pytest.mark.parametrize("rules", [True, False], ids=["rules", "no rules"])
@pytest.mark.parametrize("query", QUERIES)
def test_constant_conditions_and_nested_limits(session: tamis.Session, query: str, rules: bool) -> None:
    found = session.sql(query, rules=rules).to_arrow()
    assert [tuple(row.values()) for row in found.to_pylist()] == QUERIES[query], session.explain(query, rules=rules)
