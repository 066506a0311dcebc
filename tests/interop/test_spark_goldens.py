"""The queries of Spark's own SQL test suite, answered as Spark answers them.

The tool that runs them, `spark_goldens.py`, and its data are not part of this project. TAMIS_GOLDEN_TOOLS names the
folder of the tool, else it is `shared/tools` beside the project. TAMIS_GOLDEN_ONLY="cast date" runs the files whose
names begin so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.interop

FEWEST_EQUAL = 4_000
"""So many queries give Spark's rows."""
MAX_LENIENT = 169
"""So many are answered here that are an error in Spark."""
FEWEST_QUERIES = 7_000
"""So many the tool runs; fewer mean that its data are not whole."""

RUNNER = "two tables have one name in the runner: Spark has them in two databases, or one hides the other"
CONFIGURATION = "the file switches Spark's default off"
TIES = "rows whose keys are equal have no order, so that any of them is the first"
NULL_IN_LIST = "NULL by the rules of SQL, where the subquery has a NULL; Spark has FALSE"
KEYS = "the entries of a map have no order: the same entries stand in another one"
ZONE = "the session of the golden files is in Los Angeles, and this one in UTC"

EXPLAINED: dict[str, str] = {
    "SELECT i1 FROM t1": RUNNER,
    "SELECT t1.i1 FROM t1": RUNNER,
    "SELECT t1.* FROM t1": RUNNER,
    "SELECT count(*) AS c FROM VALUES (1), (2), (3) AS t(k) WHERE k > 100 GROUP BY GROUPING SETS (())": CONFIGURATION,
    (
        "SELECT sum(v) AS total, avg(v) AS mean, max(v) AS hi, count(*) AS c FROM VALUES (10), (20), (30) AS "
        "t(v) WHERE v > 100 GROUP BY GROUPING SETS (())"
    ): CONFIGURATION,
    "select transform_keys(ys, (k, v) -> k + v) as v from nested": KEYS,
    (
        "select ss.id, ss.y, first(ss.y) over w, last(ss.y) over w from (select x.id, x.id as y from "
        "range(1,6) as x union all select null, 42 union all select null, 43) ss window w as (order by ss.id "
        "asc nulls first range between 2 preceding and 2 following)"
    ): TIES,
    (
        "select ss.id, ss.y, first(ss.y) over w, last(ss.y) over w from (select x.id, x.id as y from "
        "range(1,6) as x union all select null, 42 union all select null, 43) ss window w as (order by ss.id "
        "asc nulls last range between 2 preceding and 2 following)"
    ): TIES,
    (
        "select ss.id, ss.y, first(ss.y) over w, last(ss.y) over w from (select x.id, x.id as y from "
        "range(1,6) as x union all select null, 42 union all select null, 43) ss window w as (order by ss.id "
        "desc nulls first range between 2 preceding and 2 following)"
    ): TIES,
    (
        "select ss.id, ss.y, first(ss.y) over w, last(ss.y) over w from (select x.id, x.id as y from "
        "range(1,6) as x union all select null, 42 union all select null, 43) ss window w as (order by ss.id "
        "desc nulls last range between 2 preceding and 2 following)"
    ): TIES,
    (
        # Two rows have val NULL, with cate 'a' and NULL. DuckDB mostly returns 'a', as Spark does.
        "table windowTestData |> select cate, val, sum(val) over w1, first_value(cate) over w2 window w1 as "
        "(partition by cate), w2 as (order by val)"
    ): TIES,
    (
        "table windowTestData |> select cate, val, sum(val) over w as sum_val window w as (partition by cate) "
        "|> select cate, val, sum_val, first_value(cate) over w window w as (order by val)"
    ): TIES,
    "SELECT * FROM y": RUNNER,
    "select * from test": RUNNER,
    (
        "SELECT t1.t1c, SUM(CASE WHEN t1.t1c IN (SELECT t2c FROM t2) THEN 10 ELSE -10 END) AS v1, SUM(CASE "
        "WHEN t1.t1d IN (SELECT t2c FROM t2) THEN 10 ELSE -10 END) AS v2, t1.t1c + 10 IN (SELECT t2c + 2 "
        "FROM t2) AS v3, count(t1.t1c) as ct, count(t1.t1d) FROM t1 GROUP BY t1.t1c ORDER BY t1.t1c"
    ): NULL_IN_LIST,
    "SELECT convert_timezone('Europe/Brussels', timestamp_ntz'2022-03-23 00:00:00')": ZONE,
    ("SELECT map_zip_with(decimal_map1, decimal_map2, (k, v1, v2) -> struct(k, v1, v2)) m FROM various_maps"): KEYS,
    "SELECT map_zip_with(decimal_map1, int_map, (k, v1, v2) -> struct(k, v1, v2)) m FROM various_maps": KEYS,
    "SELECT map_zip_with(decimal_map1, double_map, (k, v1, v2) -> struct(k, v1, v2)) m FROM various_maps": KEYS,
    "SELECT map_zip_with(decimal_map2, double_map, (k, v1, v2) -> struct(k, v1, v2)) m FROM various_maps": KEYS,
}
"""Queries that give other rows than Spark, each with the reason. White space does not count.
docs/reference/sql.md lists them under what is known to differ."""

ROOT = Path(__file__).parents[2]
MAX_SECONDS = 3_600


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the tool found out about each query."""
    folder = Path(os.environ.get("TAMIS_GOLDEN_TOOLS") or ROOT.parent / "shared" / "tools")
    tool = folder / "spark_goldens.py"
    if not tool.exists():
        pytest.skip(f"no {tool}: set TAMIS_GOLDEN_TOOLS to the folder that has spark_goldens.py")
    out = tmp_path_factory.mktemp("goldens") / "verdicts.jsonl"
    only = [f"--only={prefix}" for prefix in os.environ.get("TAMIS_GOLDEN_ONLY", "").split()]
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, str(tool), "--jobs=2", f"--out={out}", *only],
        capture_output=True,
        text=True,
        check=False,
        timeout=MAX_SECONDS,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    print(done.stdout.splitlines()[-1])
    return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.fixture(scope="module")
def counts(verdicts: list[dict[str, Any]]) -> Counter[str]:
    if os.environ.get("TAMIS_GOLDEN_ONLY"):
        pytest.skip("TAMIS_GOLDEN_ONLY runs a part of the queries: their numbers say nothing")
    found = Counter(each["verdict"] for each in verdicts)
    assert found.total() >= FEWEST_QUERIES
    return found


def queries_with(verdicts: list[dict[str, Any]], verdict: str) -> list[str]:
    return [" ".join(each["query"].split()) for each in verdicts if each["verdict"] == verdict]


def test_every_error_is_a_tamis_error(verdicts: list[dict[str, Any]]) -> None:
    assert queries_with(verdicts, "raw") == []


def test_every_query_comes_to_an_end(verdicts: list[dict[str, Any]]) -> None:
    assert queries_with(verdicts, "hang") == []


def test_rows_are_those_of_spark_but_where_the_reason_is_known(verdicts: list[dict[str, Any]]) -> None:
    explained = {" ".join(query.split()) for query in EXPLAINED}
    assert [query for query in queries_with(verdicts, "different") if query not in explained] == []


def test_most_queries_run(counts: Counter[str]) -> None:
    assert counts["equal"] >= FEWEST_EQUAL


def test_what_spark_refuses_is_refused(counts: Counter[str]) -> None:
    assert counts["lenient"] <= MAX_LENIENT
