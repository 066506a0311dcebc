"""Spark sessions of both kinds, classic and Connect, seen alike. PySpark is imported when it is needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tamis.engines.translation import STOPPED
from tamis.errors import EngineError, InvalidArgument, MissingDependency, UnsupportedFeature, with_article

OLDEST = (4, 1)


def check_session(spark: object) -> Any:
    """The session itself, if it is one that can be used."""
    try:
        import pyspark
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingDependency("a Spark session needs pyspark: pip install 'tamis[spark]'") from error
    if not isinstance(spark, SparkSession) and not is_connect(spark):
        raise InvalidArgument(f"spark is a SparkSession, not {with_article(type(spark).__name__)}")
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < OLDEST:
        raise UnsupportedFeature(f"PySpark {pyspark.__version__} is too old: pip install 'pyspark>=4.1'")
    if is_stopped(spark):
        raise EngineError(STOPPED)
    return spark


def is_stopped(spark: Any) -> bool:
    """Whether a session was stopped, so that Spark would answer any call of it with a trace."""
    if is_connect(spark):
        return bool(spark.is_stopped)
    # Classic sessions do not tell, but for what `SparkContext.stop` leaves of itself.
    return getattr(spark.sparkContext, "_jsc", spark) is None


def is_connect(spark: object) -> bool:
    """Whether a session is a client of a Spark Connect server."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def session_functions(spark: object) -> Any:
    """The functions that make columns for a session.

    `pyspark.sql.functions` makes those of the kind that the process is set up for, and a session may be of the other.
    """
    return import_module("pyspark.sql.connect.functions" if is_connect(spark) else "pyspark.sql.functions")


def observation(spark: object) -> Any:
    """Something that `DataFrame.observe` fills."""
    module = import_module("pyspark.sql.connect.observation" if is_connect(spark) else "pyspark.sql.observation")
    return module.Observation()
