"""Files that are gone or damaged when Spark reads them: one line that names the table, its version and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

pytest.importorskip("pyspark")

import tamis
import tamis.spark
from tamis.engines.spark.sessions import list_spark_exceptions


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    folder = tmp_path / "orders"
    for number in range(2):
        write_deltalake(folder, pa.table({"id": range(number * 1000, number * 1000 + 1000)}), mode="append")
    return folder


def hurt(folder: Path, *, is_gone: bool) -> str:
    """Remove or truncate a file, and return its name."""
    file = min(folder.glob("*.parquet"))
    content = file.read_bytes()
    file.unlink()
    if not is_gone:
        file.write_bytes(content[: len(content) // 2])
    return file.name


def run_and_catch(action: Callable[[], object]) -> Exception:
    with pytest.raises(list_spark_exceptions()) as caught:
        action()
    return caught.value


def read(spark: Any, folder: Path, how: str) -> Any:
    if how == "sql":
        session = tamis.connect(spark=spark)
        session.register("orders", folder)
        return session.sql("SELECT sum(id) AS n FROM orders WHERE id > 5")
    return tamis.open(folder).scan("id > 5").to_spark(spark, reader=how)


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "truncated"])
@pytest.mark.parametrize("how", ["spark", "arrow", "sql"])
def test_an_error_of_a_file_is_explained_in_one_line(any_spark: Any, orders: Path, how: str, is_gone: bool) -> None:
    frame = read(any_spark, orders, how)
    name = hurt(orders, is_gone=is_gone)
    explained = tamis.spark.explain_error(run_and_catch(frame.collect))
    assert explained.startswith("MissingFile: the file" if is_gone else "CorruptFile: version 1 of orders")
    assert "version 1 of orders" in explained
    assert name in explained
    assert "restore the file" in explained.lower()
    assert "\n" not in explained


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "truncated"])
def test_workers_raise_without_a_traceback(spark: Any, orders: Path, is_gone: bool) -> None:
    frame = read(spark, orders, "arrow")
    hurt(orders, is_gone=is_gone)
    text = str(run_and_catch(frame.collect))
    assert "version 1 of orders" in text
    assert "Traceback" not in text


def test_the_data_source_raises_without_a_traceback(spark: Any, orders: Path) -> None:
    tamis.spark.register(spark)
    frame = spark.read.format("tamis").load(str(orders))
    name = hurt(orders, is_gone=True)
    error = run_and_catch(frame.collect)
    assert "Traceback" not in str(error)
    explained = tamis.spark.explain_error(error)
    assert explained.startswith("MissingFile: ")
    assert name in explained


def test_errors_of_functions_of_the_user_keep_their_traceback(spark: Any, orders: Path) -> None:
    from pyspark.sql.functions import udf

    frame = read(spark, orders, "arrow")
    hurt(orders, is_gone=True)
    run_and_catch(frame.collect)

    divide = udf(lambda number: number // 0, "int")
    error = run_and_catch(spark.range(3).select(divide("id")).collect)
    assert "Traceback" in str(error)
    assert tamis.spark.explain_error(error).startswith("EngineError: ")


def test_other_errors_are_explained_too() -> None:
    assert tamis.spark.explain_error(tamis.TamisError("no\nlines")) == "no lines"
    assert tamis.spark.explain_error(RuntimeError("a\nb")) == "EngineError: the Spark job 'read rows' failed: a"


def test_plans_name_the_table_at_its_version(spark: Any, orders: Path) -> None:
    plan = read(spark, orders, "arrow")._jdf.queryExecution().executedPlan().toString()
    assert "MapInArrow tamis_read_orders_1(" in plan
    plan = read(spark, orders, "spark")._jdf.queryExecution().executedPlan().toString()
    assert "FileScan parquet" in plan
    assert "Location: InMemoryFileIndex(2 paths)[file:/" in plan
