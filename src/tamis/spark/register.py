"""The data source `tamis`, made known to a session."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any

from tamis.engines.sessions import check_session

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

logger = logging.getLogger("tamis")


def register(spark: Any) -> None:
    """Make `spark.read.format("tamis")` and `CREATE TEMPORARY VIEW … USING tamis` work in a session, of either kind.

    It sets `spark.sql.python.filterPushdown.enabled`, without which Spark does not tell a Python data source of
    filters. Where that cannot be set, filters are left to Spark, and files are pruned by the option `filter` alone.
    """
    check_session(spark)
    from pyspark.errors import PySparkException

    # PySpark is needed to define a data source, and not to import Tamis.
    sources = import_module("tamis.spark.data_source")
    try:
        spark.conf.set(PUSHDOWN, "true")
    except PySparkException as error:
        logger.warning("%s cannot be set, so Spark pushes no filters into tamis: %s", PUSHDOWN, error)
    is_pushing = str(spark.conf.get(PUSHDOWN, "false")).lower() == "true"
    spark.dataSource.register(sources.TamisDataSource if is_pushing else sources.PlainTamisDataSource)
