"""Sessions and paths only: all else is in the tests or in `builders`."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from builders.effort import IS_THOROUGH

_ON_SPARK = ("tests/engines/spark/", "tests/docs/test_spark_pages.py")
"""Tests that share one JVM, and so one process."""

_LONGEST = ("spark", "oracles", "duckdb", "query", "cli", "scan", "parquet")
"""Folders of tests that take long."""

settings.register_profile(
    "default",
    max_examples=30 if IS_THOROUGH else 10,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "long",
    max_examples=int(os.environ.get("TAMIS_HYPOTHESIS_EXAMPLES", "5000")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile(os.environ.get("TAMIS_HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def golden() -> Path:
    """Tables of other writers: the folder named by TAMIS_GOLDEN, or shared/golden beside the project."""
    folder = Path(os.environ.get("TAMIS_GOLDEN") or Path(__file__).parents[2] / "shared" / "golden")
    if not folder.is_dir():
        pytest.skip(f"no golden tables at {folder}: set TAMIS_GOLDEN to their folder")
    return folder


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A classic session, with a Connect server inside. All tests on Spark share it."""
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed: pip install 'tamis[spark]'")
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=f"{home}/bin" if home else None) is None:
        pytest.skip("there is no Java, and Spark needs 17 or newer: `make java` says how to get it")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    configuration = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(_find_free_port()),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    # A task may be retried, as on a cluster. Plain `local[2]` fails with the first error.
    builder = sql.SparkSession.builder.master("local[2, 2]").appName("tamis-tests")
    for name, value in configuration.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


def _find_free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out cases of long sweeps, and order slow tests first, so that all processes end at about the same time."""
    left_out = [] if IS_THOROUGH else [item for item in items if _is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    items.sort(key=lambda item: _LONGEST.index(folder) if (folder := item.path.parent.name) in _LONGEST else 99)


def _is_left_out(item: pytest.Item) -> bool:
    """Return whether a case of a sweep (`pytest.mark.one_in`) runs only in `make test-thorough`."""
    mark = item.get_closest_marker("one_in")
    if mark is None or not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return False
    return sum(item.callspec.indices.values()) % int(mark.args[0]) != 0


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """Send each file to one process with `--dist loadgroup`, and all tests on Spark to the same one.

    A second JVM takes longer to start and warm up than these tests, and each file makes its tables once.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if nodeid.startswith(_ON_SPARK) else nodeid.split("::", 1)[0]

    return ByFile(config, log)
