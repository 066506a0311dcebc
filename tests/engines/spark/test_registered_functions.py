"""A function with a row in the table runs on Spark by the spelling in its row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.values.functions import add_direction
from tamis import types
from tamis.engines.spark.handler import SparkExpressionHandler
from tamis.expr.bind import bind
from tamis.expr.functions.spark_semantics import is_equivalent_on_spark
from tamis.expr.interop.from_pyspark import from_pyspark
from tamis.expr.sql.parse import parse_sql

VALUES = [-3, -2, -1, 0, 1, 2, None, 7]


@pytest.fixture(autouse=True)
def direction() -> Iterator[None]:
    with add_direction():
        yield


def test_the_handler_evaluates_it_as_a_column(spark: Any) -> None:
    batch = pa.record_batch({"x": pa.array(VALUES, types.LONG)})
    predicate = bind(parse_sql("direction(x) > 0"), batch.schema)
    handler = SparkExpressionHandler(spark)
    assert "signum" in str(handler.compile(predicate, ["x"]).value)
    found = handler.predicate_evaluator(batch.schema, predicate).eval(batch)
    assert found.to_pylist() == [False, False, False, False, True, True, False, True]


def test_a_column_of_pyspark_becomes_its_call(spark: Any) -> None:
    from pyspark.sql import functions as f

    assert from_pyspark(f.call_function("heading", f.col("x")) > 0) == parse_sql("direction(x) > 0")


def test_queries_on_spark_push_its_filter_into_the_scan(spark: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": VALUES}), tmp_path / "rows.parquet", row_group_size=4)
    session = tamis.connect(spark=spark)
    session.register("t", session.open(tmp_path))
    query = "SELECT x FROM t WHERE direction(x) > 0 ORDER BY x"
    assert is_equivalent_on_spark(bind(parse_sql("direction(x) > 0"), session.open(tmp_path).schema), ansi=True)
    assert [row.x for row in session.sql(query).collect()] == [1, 2, 7]


def test_queries_on_spark_compute_it_by_its_spelling(spark: Any) -> None:
    session = tamis.connect(spark=spark)
    session.register("t", pa.table({"x": VALUES}))
    found = session.sql("SELECT direction(x) AS d, count(*) AS n FROM t GROUP BY direction(x) ORDER BY d")
    assert [(row.d, row.n) for row in found.collect()] == [(None, 1), (-1, 3), (0, 1), (1, 3)]
    assert dict(found.dtypes)["d"] == "bigint"
