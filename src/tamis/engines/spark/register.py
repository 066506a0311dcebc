"""Register the data source `tamis` in a Spark session."""

from __future__ import annotations

import hashlib
import logging
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from tamis.engines.spark.sessions import check_session, translate_errors
from tamis.errors import suggest_arguments

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

logger = logging.getLogger("tamis")


@suggest_arguments("tamis.spark.register")
def register(spark: Any) -> None:
    """Enable `spark.read.format("tamis")` and `CREATE TEMPORARY VIEW … USING tamis` in a classic or Connect session.

    It sets `spark.sql.python.filterPushdown.enabled`, which the option `pushdown` needs. If this setting cannot be
    changed, only the option `filter` prunes files.
    """
    check_session(spark)
    from pyspark.errors import PySparkException

    # Imported lazily: only the data source needs PySpark at import time.
    from tamis.engines.spark import data_source as sources

    try:
        spark.conf.set(PUSHDOWN, "true")
    except PySparkException as error:
        logger.warning("cannot set %s, so the option pushdown of tamis does not work: %s", PUSHDOWN, error)
    with translate_errors("tamis: register the data source"):
        spark.dataSource.register(sources.TamisDataSource)


# --- Ship Tamis to the workers of a Spark session, if it is not installed there ---------------------------------------

PACKAGE = Path(__file__).parents[2]

_FIXED_DATE = (1980, 1, 1, 0, 0, 0)
"""The modification time of all zip entries, so that the same files result in the same bytes."""


@suggest_arguments("tamis.spark.ship")
def ship(spark: Any) -> str:
    """Send this version of Tamis to the workers of a session, and return the name of the artifact.

    It ships Python code only: pyarrow, numpy, duckdb, sqlglot, pyroaring and xxhash must be installed on the workers.
    Sending the same version again costs nothing.
    """
    check_session(spark)
    path = write_package(Path(_create_directory().name))
    with translate_errors(f"tamis: send {path.name}"):
        spark.addArtifacts(str(path), pyfile=True)
    return path.name


@cache
def _create_directory() -> tempfile.TemporaryDirectory[str]:
    """Create a directory that lasts until this process ends: executors of a classic session fetch the file on start."""
    return tempfile.TemporaryDirectory(prefix="tamis-")


def write_package(folder: Path) -> Path:
    """Write the package as a zip file, named after a hash of its content, unless it exists; return its path."""
    files = sorted(path for path in PACKAGE.rglob("*") if path.suffix == ".py" or path.name == "py.typed")
    content = [(f"{PACKAGE.name}/{path.relative_to(PACKAGE).as_posix()}", path.read_bytes()) for path in files]
    digest = hashlib.sha256(repr(content).encode()).hexdigest()[:16]
    path = folder / f"tamis-{digest}.zip"
    if path.exists():
        return path
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content:
            archive.writestr(zipfile.ZipInfo(name, _FIXED_DATE), data, zipfile.ZIP_DEFLATED)
    return path
