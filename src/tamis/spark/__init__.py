"""Tables in Spark: scans as DataFrames, the data source `tamis`, and files as a DataFrame."""

from tamis.spark.register import register
from tamis.spark.ship import ship

__all__ = ["register", "ship"]
