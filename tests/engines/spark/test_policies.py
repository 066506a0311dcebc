"""Policies on Spark: its optimizer, errors and plans contain only visible rows and values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import ParseException, PythonException

import tamis
from builders.query.protected import EU, POLICIES, write_orders
from tamis.engines.spark import queries
from tamis.errors import AccessDenied, TamisError
from tamis.session import Session


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_orders(tmp_path_factory.mktemp("policies"), "delta")


@pytest.fixture(scope="module")
def ana(spark: Any, path: Path) -> Session:
    session = tamis.connect(spark=spark, policies=POLICIES)
    session.register("orders", tamis.open(path))
    return session.as_principal("ana")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT id FROM orders", EU),
        # Spark fails on a division by zero.
        ("SELECT id FROM orders WHERE 1 / (y - 20) < 2", EU),
        ("SELECT id FROM orders WHERE y = 20 AND 1 / (y - 20) = 0", []),
        ("SELECT id FROM orders WHERE y * 600000000000000000 > 0", EU),
        ("SELECT id FROM orders WHERE CAST(CASE WHEN y > 15 THEN owner ELSE '1' END AS INT) = 1", EU),
        ("SELECT id FROM orders WHERE card LIKE 'card%' OR salary > 0", []),
        ("SELECT max(y) FROM orders", [15]),
        ("SELECT count(*) FROM orders", [6]),
        ("SELECT y FROM orders ORDER BY y DESC LIMIT 1", [15]),
        ("SELECT a.id FROM orders a JOIN orders b ON a.y = b.y + 9", []),
    ],
)
def test_a_query_returns_only_visible_rows(ana: Session, query: str, expected: list[int]) -> None:
    frame = ana.sql(query)
    assert sorted(row[0] for row in frame.collect()) == expected
    plan = frame._jdf.queryExecution().toString()
    assert not any(secret in plan for secret in ("card-0", "apac", ".parquet", "'eu'", "concat"))


def test_plans_of_spark_do_not_depend_on_hidden_rows(ana: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "read_leaf", None)
    # The first row is visible, the second is hidden, and the third does not exist.
    frames = [ana.sql(f"SELECT id, card FROM orders WHERE y = {y}") for y in (12, 20, 99)]
    assert [frame.collect() for frame in frames] == [[(4, "****0004")], [], []]
    assert {frame.rdd.getNumPartitions() for frame in frames} == {2}
    shown = {re.sub(r"_pyspark_\w+|plan_id=\d+|#\d+L?", "", _show(frame)) for frame in frames}
    assert len(shown) == 1
    assert "mapinarrow" in shown.pop().lower()


def _show(frame: Any) -> str:
    execution = frame._jdf.queryExecution()
    return str(execution.toString()) + str(execution.optimizedPlan().stats().toString())


def test_A5_workers_do_not_report_what_is_wrong_with_a_file(spark: Any, tmp_path: Path) -> None:
    session = tamis.connect(spark=spark, policies=POLICIES)
    path = write_orders(tmp_path, "hive")
    session.register("orders", tamis.open(path))
    frame = session.as_principal("ana").sql("SELECT id FROM orders")
    for file in path.rglob("*.parquet"):
        file.write_bytes(b"no such thing" * 9)
    with pytest.raises(PythonException, match="reason is not shown") as raised:
        frame.collect()
    assert not any(word in str(raised.value) for word in ("part-", "no such thing", "region="))


def test_scans_are_protected_and_files_cannot_be_read_past_the_policy(ana: Session, spark: Any, path: Path) -> None:
    frame = ana.open(path).scan("y >= 12", columns=["id", "card"]).to_spark(spark)
    assert sorted(frame.collect()) == [(4, "****0004"), (6, "****0006"), (8, "****0008"), (10, "****0010")]
    spark.range(3).createOrReplaceTempView("hidden_view")
    try:
        for source in ("hidden_view", f"parquet.`{path}`", f"delta.`{path}`", f"text.`{path}`"):
            with pytest.raises(TamisError):
                ana.sql(f"SELECT * FROM {source}")
            with pytest.raises(AccessDenied):
                ana.sql(f"SELECT * FROM IDENTIFIER('{source}')")
    finally:
        spark.catalog.dropTempView("hidden_view")
    with pytest.raises(AccessDenied):
        ana.as_principal("zoe").sql("SELECT * FROM orders")


def test_settings_of_spark_and_its_process_are_not_substituted(ana: Session, spark: Any, path: Path) -> None:
    for text in ("'${env:HOME}'", "'\\u0024{env:HOME}'", "max(id) OVER (ORDER BY '${spark.app.name}')"):
        with pytest.raises(AccessDenied, match="remove it"):
            ana.sql(f"SELECT {text} FROM orders")
    unprotected = tamis.connect(spark=spark).register("orders", path)
    assert unprotected.sql("SELECT '${spark.app.name}' AS x").collect() == [("tamis-tests",)]


@pytest.mark.parametrize(
    "query",
    [
        "WITH RECURSIVE a AS (SELECT id, 1 AS n FROM raw_orders UNION ALL SELECT id, n + 1 FROM a WHERE n < 1), "
        "raw_orders AS (SELECT 1 AS id) SELECT * FROM a",
        "WITH RECURSIVE raw_orders AS (SELECT id, 1 AS n FROM (WITH z AS (SELECT * FROM raw_orders) SELECT * FROM z) "
        "UNION ALL SELECT id, n + 1 FROM raw_orders WHERE n < 1) SELECT * FROM raw_orders",
        "WITH `raw_order\u017f` AS (SELECT rand() r) SELECT id FROM raw_orders, `raw_order\u017f` b, `raw_order\u017f`",
        "SELECT * FROM raw_orders",
    ],
)
def test_names_of_common_table_expressions_do_not_reach_tables_of_spark(ana: Session, spark: Any, query: str) -> None:
    spark.range(12).createOrReplaceTempView("raw_orders")
    try:
        with pytest.raises(TamisError):
            ana.sql(query).collect()
    finally:
        spark.catalog.dropTempView("raw_orders")


def test_text_between_back_ticks_is_a_name_and_not_sql(ana: Session, path: Path) -> None:
    query = (
        "SELECT region FROM orders LATERAL VIEW explode(array(1)) `t AS x UNION ALL SELECT card FROM "
        f"parquet.``{path}/*.parquet`` LATERAL VIEW explode(array(1)) k` AS `v`"
    )
    evil = f"t AS x) AS _t UNION ALL SELECT card FROM parquet.``{path}/*.parquet`` --"
    twice = f"SELECT DISTINCT ON (id) card AS `{evil}` FROM orders LATERAL VIEW explode(array(1)) `{evil}` AS y"
    counted = (
        "SELECT id FROM orders LATERAL VIEW explode(array(1)) `t AS x UNION ALL SELECT id FROM orders --` AS y "
        "WHERE id IN (SELECT id FROM orders)"
    )
    for each in (query, twice, counted):
        try:
            found = ana.sql(each).collect()
        except (TamisError, ParseException):
            continue
        # The text was read as an unusual name.
        assert len(found) == len(EU)
        assert {row[0] for row in found} in ({"eu"}, {*EU}, {f"****{number:04}" for number in EU})
    assert ana.sql("SELECT `my x` FROM orders LATERAL VIEW explode(array(1)) `my tab` AS `my x`").count() == 6
