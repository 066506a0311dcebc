"""One Spark session with Delta's jars for all tests here, and the tables that it writes, each once."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from builders.delta.spark_tables import TABLES

DELTA_VERSIONS = ("4.4.1", "4.4.0")
"""The newest first; if the Maven repository lacks one, the next one is used."""

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.log.level": "ERROR",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed: `make test-interop` installs it")
    if shutil.which("java", path=java_path()) is None:
        pytest.skip("there is no Java, and Spark needs 17 or newer: `make java` says how to get it")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = start(sql.SparkSession, tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


def java_path() -> str:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin" if home else os.environ.get("PATH", os.defpath)


def start(session_class: Any, folder: Path) -> Any:
    """A session with the newest jars of Delta that can be had. Spark asks Maven for them and keeps them in ~/.ivy2*."""
    from pyspark import __version__ as spark_version
    from pyspark.errors import PySparkRuntimeError

    artifact = f"delta-spark_{'.'.join(spark_version.split('.')[:2])}_2.13"
    wanted = os.environ.get("TAMIS_DELTA_SPARK_VERSION")
    versions = (wanted,) if wanted else DELTA_VERSIONS
    for version in versions:
        settings = SETTINGS | {
            "spark.jars.packages": f"io.delta:{artifact}:{version}",
            "spark.sql.warehouse.dir": str(folder),
        }
        builder = session_class.builder.master("local[2]").appName("tamis-interop")
        for name, value in settings.items():
            builder = builder.config(name, value)
        try:
            session = builder.getOrCreate()
        except PySparkRuntimeError:
            continue  # Java ended before it answered, because the jars could not be had
        print(f"interop: Spark {spark_version} with Delta {version}")
        return session
    pytest.skip(
        f"no Spark session with io.delta:{artifact} ({', '.join(versions)}): Maven cannot be reached, does not have "
        "it, or Java is older than 17; the lines of Spark above say which"
    )


@pytest.fixture(scope="session")
def written(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a table by its name; it is written when it is first asked for."""
    root = tmp_path_factory.mktemp("tables")
    whole: set[str] = set()

    def folder(name: str) -> Path:
        path = root / name
        if name not in whole:
            assert not path.exists(), f"an earlier test could not write the table {name}"
            for statement in TABLES[name].statements:
                spark.sql(statement.replace("{t}", f"delta.`{path}`"))
            whole.add(name)
        return path

    return folder
