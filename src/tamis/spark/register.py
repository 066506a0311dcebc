"""Register the data source `tamis` in a Spark session."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any

from tamis.engines.sessions import check_session
from tamis.engines.translation import translate_errors

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

logger = logging.getLogger("tamis")


def register(spark: Any) -> None:
    """Enable `spark.read.format("tamis")` and `CREATE TEMPORARY VIEW … USING tamis` in a classic or Connect session.

    It sets `spark.sql.python.filterPushdown.enabled`, which the option `pushdown` needs. If this setting cannot be
    changed, only the option `filter` prunes files.
    """
    check_session(spark)
    from pyspark.errors import PySparkException

    # Imported lazily: only the data source needs PySpark at import time.
    sources = import_module("tamis.spark.data_source")
    try:
        spark.conf.set(PUSHDOWN, "true")
    except PySparkException as error:
        logger.warning("cannot set %s, so the option pushdown of tamis does not work: %s", PUSHDOWN, error)
    with translate_errors("tamis: register the data source"):
        spark.dataSource.register(sources.TamisDataSource)
