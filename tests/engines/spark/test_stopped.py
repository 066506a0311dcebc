"""Sessions that were stopped: one clear error wherever they are used, and nothing to clean up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
import tamis.spark
from tamis.engines.spark.handler import SparkExpressionHandler, quote_name
from tamis.engines.spark.sessions import translate_error
from tamis.errors import EngineError


@pytest.fixture
def table(tmp_path: Path) -> Path:
    for day in ("a", "b"):
        (tmp_path / "t" / f"p={day}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "t" / f"p={day}" / "f.parquet")
    return tmp_path / "t"


@pytest.fixture(params=["classic", pytest.param("connect", marks=pytest.mark.interop)])
def session(request: pytest.FixtureRequest, spark: Any) -> Any:
    if request.param == "classic":
        return spark
    connect_spark = request.getfixturevalue("connect_spark")
    port = spark.conf.get("spark.connect.grpc.binding.port")
    return type(connect_spark).builder.remote(f"sc://127.0.0.1:{port}").create()


def stop(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if hasattr(session, "is_stopped"):
        # The cache of the server is shared with other sessions and is not cleared by `stop`.
        session.catalog.clearCache()
        session.stop()
    else:
        # The effect of `stop` on the Python side, without stopping the Spark of all tests.
        monkeypatch.setattr(session.sparkContext, "_jsc", None)


def test_a_stopped_session_is_one_clear_error(session: Any, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = tamis.connect(spark=session, planning="spark")
    opened = connection.open(table)
    connection.register("t", opened)
    files = opened.files_dataframe(session)
    scan = tamis.open(table).scan("id = 1")
    uses: dict[str, Callable[[], object]] = {
        "connect": lambda: tamis.connect(spark=session),
        "plan": lambda: connection.open(table).scan("id = 1").plan(),
        "sql": lambda: connection.sql("SELECT count(*) FROM t").to_spark(session),
        "to_spark": lambda: scan.to_spark(session),
        "files_dataframe": lambda: opened.files_dataframe(session),
        "files_for_scan": lambda: files.files_for_scan("id = 1"),
        "dataframe": lambda: files.dataframe,
        "register": lambda: tamis.spark.register(session),
        "ship": lambda: tamis.spark.ship(session),
        "handler": lambda: SparkExpressionHandler(session),
        "index": lambda: tamis.index.build(table, engine=session),
    }
    with monkeypatch.context() as stopped:
        stop(session, stopped)
        for name, use in uses.items():
            with pytest.raises(EngineError, match=r"^the Spark session was stopped: create a new one") as caught:
                use()
            assert caught.value.__cause__ is None, name
        files.unpersist()
        assert scan.count() == 2
    if not hasattr(session, "is_stopped"):
        # This session was not stopped, so that its cached rows are still there.
        session.catalog.uncacheTable(quote_name(files.name))
        session.catalog.dropTempView(files.name)


def test_a_context_that_stops_during_a_query_is_the_same_error() -> None:
    for text in (
        "An error occurred while calling o1.\n: IllegalStateException: Cannot call methods on a stopped SparkContext.",
        "Job 7 cancelled because SparkContext was shut down",
    ):
        assert str(translate_error(text, "tamis: read t")).startswith("the Spark session was stopped: ")
