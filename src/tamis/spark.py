"""Spark integration: scans and the files of a table as DataFrames, the data source `tamis`, and the handler that
evaluates expressions over metadata as Columns."""

from tamis.engines.spark.data_source import create_view, register, ship
from tamis.engines.spark.handler import SparkExpressionHandler
from tamis.engines.spark.sessions import explain_error

__all__ = ["SparkExpressionHandler", "create_view", "explain_error", "register", "ship"]
