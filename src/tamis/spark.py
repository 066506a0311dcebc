"""Spark integration: scans as DataFrames, the data source `tamis`, and the files of a table as a DataFrame."""

from tamis.engines.spark.register import register, ship

__all__ = ["register", "ship"]
