"""One local Spark for all tests here, with a Connect server inside, so that both kinds of sessions cost one JVM."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A classic session."""
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed: pip install 'tamis[spark]'")
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=f"{home}/bin" if home else None) is None:
        pytest.skip("there is no Java, and Spark needs 17 or newer: `make java` says how to get it")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(_free_port()),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    # A task may be tried again, as on a cluster: `local[2]` alone gives up with the first.
    builder = sql.SparkSession.builder.master("local[2, 2]").appName("tamis-tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


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
    """Each kind of session in turn; Connect, where the tests are the same once more, with `make test-interop`."""
    return request.getfixturevalue("spark" if request.param == "classic" else "connect_spark")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
