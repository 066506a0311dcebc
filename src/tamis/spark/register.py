"""The data source `tamis`, made known to a session."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any

from tamis.engines.sessions import check_session
from tamis.engines.translation import translated_errors

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

logger = logging.getLogger("tamis")


def register(spark: Any) -> None:
    """Make `spark.read.format("tamis")` and `CREATE TEMPORARY VIEW … USING tamis` work in a session, of either kind.

    It sets `spark.sql.python.filterPushdown.enabled`, without which Spark refuses the option `pushdown`. Where that
    cannot be set, files are pruned by the option `filter` alone.
    """
    check_session(spark)
    from pyspark.errors import PySparkException

    # PySpark is needed to define a data source, and not to import Tamis.
    sources = import_module("tamis.spark.data_source")
    try:
        spark.conf.set(PUSHDOWN, "true")
    except PySparkException as error:
        logger.warning("%s cannot be set, so the option pushdown of tamis does not work: %s", PUSHDOWN, error)
    with translated_errors("tamis: register the data source"):
        spark.dataSource.register(sources.TamisDataSource)
