"""Uniform access to classic and Connect sessions of Spark. PySpark is imported lazily."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tamis.engines.translation import STOPPED
from tamis.errors import EngineError, InvalidArgument, MissingDependency, UnsupportedFeature, add_article

MIN_PYSPARK_VERSION = (4, 1)


def check_session(spark: object) -> Any:
    """Return the session if it can be used; else raise an error."""
    try:
        import pyspark
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingDependency("a Spark session needs pyspark: pip install 'tamis[spark]'") from error
    if not isinstance(spark, SparkSession) and not is_connect(spark):
        raise InvalidArgument(f"spark must be a SparkSession, not {add_article(type(spark).__name__)}")
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < MIN_PYSPARK_VERSION:
        raise UnsupportedFeature(f"PySpark {pyspark.__version__} is too old: pip install 'pyspark>=4.1'")
    if is_stopped(spark):
        raise EngineError(STOPPED)
    return spark


def is_stopped(spark: Any) -> bool:
    """Return whether a session was stopped, so that each of its calls would fail with a Java stack trace."""
    if is_connect(spark):
        return bool(spark.is_stopped)
    # Classic sessions have no API for this; `SparkContext.stop` sets `_jsc` to None.
    return getattr(spark.sparkContext, "_jsc", spark) is None


def is_connect(spark: object) -> bool:
    """Return whether a session is a client of a Spark Connect server."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def import_functions(spark: object) -> Any:
    """Return the module of functions that create columns for a session.

    `pyspark.sql.functions` creates columns of the process's default kind, and a session may be of the other kind.
    """
    return import_module("pyspark.sql.connect.functions" if is_connect(spark) else "pyspark.sql.functions")


def new_observation(spark: object) -> Any:
    """Return a new Observation for `DataFrame.observe`."""
    module = import_module("pyspark.sql.connect.observation" if is_connect(spark) else "pyspark.sql.observation")
    return module.Observation()
