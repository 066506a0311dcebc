"""Starts a local Spark for benchmarks. Spark downloads its jars from Maven."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DELTA_VERSION = "4.4.0"


def start_local_session(jars: str, memory: str, **more: str) -> Any:
    """Return a session with these jars and settings. It logs errors only; `memory` is that of the driver."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.jars.packages": jars,
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[2]").appName("tamis-benchmarks")
    for name, value in (settings | more).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def start_delta_session(folder: Path, memory: str) -> Any:
    """Return a session with Delta's jars, whose warehouse is in `folder`."""
    from pyspark import __version__ as spark_version

    artifact = f"delta-spark_{'.'.join(spark_version.split('.')[:2])}_2.13"
    delta = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    return start_local_session(f"io.delta:{artifact}:{DELTA_VERSION}", memory, **delta)


@contextmanager
def open_delta_session(folder: Path, memory: str = "4g") -> Iterator[Any]:
    session = start_delta_session(folder, memory)
    try:
        yield session
    finally:
        session.stop()
