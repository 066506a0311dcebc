"""Spark's optimizer knows the size of a DataFrame, or that it does not know it: a large one is never broadcast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

import tamis

ROWS = 60_000
UNKNOWN = 2**62
SMALL = "spark.sql.autoBroadcastJoinThreshold"


def estimate_size(frame: Any) -> int:
    return int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(3):
        rows = pa.table({"id": pa.array(range(number * ROWS, (number + 1) * ROWS)), "s": ["text"] * ROWS})
        pq.write_table(rows, tmp_path / f"{number}.parquet")
    return tmp_path


def test_rows_of_many_tasks_have_an_unknown_size(spark: Any, folder: Path) -> None:
    spark.conf.set(SMALL, "100KB")
    try:
        frame = tamis.open(folder).scan().to_spark(spark, reader="arrow")
        assert estimate_size(frame) > UNKNOWN
        assert frame.count() == 3 * ROWS
        assert frame.schema == tamis.open(folder).scan().to_spark(spark, reader="spark").schema
        joined = frame.alias("one").join(frame.alias("two"), "id")
        assert "BroadcastHashJoin" not in joined._jdf.queryExecution().executedPlan().toString()
        assert joined.count() == 3 * ROWS
    finally:
        spark.conf.unset(SMALL)


def test_few_rows_may_be_broadcast(spark: Any, folder: Path) -> None:
    few = tamis.open(folder).scan("id < 10").to_spark(spark, reader="arrow")
    assert estimate_size(few) < 1_000_000
    joined = spark.range(10_000_000).join(few, "id")
    assert "BroadcastHashJoin" in joined._jdf.queryExecution().executedPlan().toString()
    assert joined.count() == 10


def has_broadcast(frame: Any) -> bool:
    return "BroadcastHashJoin" in frame._jdf.queryExecution().executedPlan().toString()


@pytest.mark.parametrize("wide", ["text", "list", "struct", "binary"])
@pytest.mark.parametrize("with_sizes", [True, False], ids=["stated", "unstated"])
def test_few_bytes_of_many_wide_rows_are_not_broadcast(spark: Any, tmp_path: Path, wide: str, with_sizes: bool) -> None:
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int32()), pa.array(["x" * 3000]))
    columns = {
        "text": repeated,
        "binary": pa.DictionaryArray.from_arrays(repeated.indices, pa.array([b"x" * 3000])),
        "list": pa.ListArray.from_arrays(pa.array(range(ROWS + 1), pa.int32()), repeated),
        "struct": pa.StructArray.from_arrays([repeated], ["inner"]),
    }
    rows = pa.table({"id": range(ROWS), "wide": columns[wide]})
    path = tmp_path / "wide.parquet"
    # The options of pyarrow leave sizes out with the statistics.
    pq.write_table(rows, path, write_statistics=with_sizes)
    assert path.stat().st_size < 1_000_000
    frame = tamis.open(path).scan().to_spark(spark, reader="arrow")
    assert estimate_size(frame) > UNKNOWN
    assert not has_broadcast(spark.range(10_000_000).join(frame, "id"))
    # The other column is small.
    narrow = tamis.open(path).scan(columns=["id"]).to_spark(spark, reader="arrow")
    assert has_broadcast(spark.range(10_000_000).join(narrow, "id"))


def test_fact_rows_are_not_broadcast_whoever_reads_them(spark: Any, folder: Path) -> None:
    size = min(path.stat().st_size for path in folder.iterdir())
    spark.conf.set(SMALL, f"{size}")
    try:
        for reader in ("spark", "arrow", "auto"):
            facts = tamis.open(folder).scan().to_spark(spark, reader=reader)
            assert not has_broadcast(facts.alias("one").join(facts.alias("two"), "id")), reader
    finally:
        spark.conf.unset(SMALL)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    rows = pa.table(
        {
            "id": pa.array(range(ROWS)),
            "n": pa.array(range(ROWS)),
            "s": [f"text {number * 7919}" for number in range(ROWS)],
            "st": pa.StructArray.from_arrays([pa.array(range(ROWS))] * 2, ["x", "y"]),
        }
    )
    path = tmp_path / "texts.parquet"
    pq.write_table(rows, path)
    return path


def test_spark_knows_the_size_of_the_columns_that_are_read(spark: Any, texts: Path) -> None:
    session = tamis.connect(spark=spark)
    session.register("t", tamis.open(texts))
    for frame in (
        tamis.open(texts).scan("n > 5", columns=["id"]).to_spark(spark, reader="spark"),
        session.sql("SELECT id FROM t WHERE n > 5"),
        session.sql("SELECT id FROM t WHERE n > 5 AND st.x > 1"),
    ):
        assert estimate_size(frame) < texts.stat().st_size / 2
        plan = frame._jdf.queryExecution().executedPlan().toString()
        assert "GreaterThan(n,5)" in plan
        assert " s#" not in plan
        assert frame.count() == ROWS - 6
    struct = session.sql("SELECT st.x FROM t WHERE id = 7")
    assert "ReadSchema: struct<id:bigint,st:struct<x:bigint>>" in struct._jdf.queryExecution().executedPlan().toString()
    assert struct.collect() == [(7,)]


def test_queries_of_other_columns_share_a_relation(spark: Any, texts: Path) -> None:
    session = tamis.connect(spark=spark)
    session.register("t", tamis.open(texts))
    both = session.sql("SELECT one.id, other.s FROM t AS one JOIN t AS other ON one.n = other.n WHERE other.id = 3")
    assert both.collect() == [(3, "text 23757")]


def test_the_size_of_protected_rows_is_always_unknown(spark: Any, folder: Path) -> None:
    policies = {"tables": {"t": [{"principals": ["ana"], "rows": "id < 5"}]}}
    session = tamis.connect(spark=spark, policies=policies)
    session.register("t", tamis.open(folder))
    frame = session.as_principal("ana").sql("SELECT id, s FROM t")
    assert estimate_size(frame) > UNKNOWN
    assert frame.count() == 5


def test_a_connect_session_reads_the_same_rows(connect_spark: Any, folder: Path) -> None:
    connect_spark.conf.set(SMALL, "100KB")
    try:
        frame = tamis.open(folder).scan().to_spark(connect_spark, reader="arrow")
        assert "tamis_no_rows" in frame._explain_string()
        assert frame.count() == 3 * ROWS
    finally:
        connect_spark.conf.unset(SMALL)
