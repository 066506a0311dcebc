"""Classic and Connect sessions of one Spark, so that all tests share one JVM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def connect_spark(spark: Any) -> Iterator[Any]:
    """A Connect session on the same Spark."""
    connect = pytest.importorskip(
        "pyspark.sql.connect.session", reason="Spark Connect is not installed: pip install 'pyspark[connect]'"
    )
    port = spark.conf.get("spark.connect.grpc.binding.port")
    session = connect.SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    yield session
    session.stop()


@pytest.fixture(params=["classic", pytest.param("connect", marks=pytest.mark.interop)])
def any_spark(request: pytest.FixtureRequest) -> Any:
    """A session of each kind. Tests on Connect repeat those on classic, so they run with `make test-interop` only."""
    return request.getfixturevalue("spark" if request.param == "classic" else "connect_spark")
