"""Tamis plans and reads lakehouse scans so that a query fetches only the bytes that can hold a matching row.

>>> import tamis
>>> table = tamis.open("flights")                                     # doctest: +SKIP
>>> print(table.scan("month = 3 AND dep_delay > 60").explain())       # doctest: +SKIP
"""

from tamis import delta, errors, hive, iceberg, index, spark
from tamis.errors import TamisError
from tamis.expr.builder import Expression, col, lit
from tamis.expr.partition_filter import PartitionFilter
from tamis.scan.plan import ScanPlan
from tamis.scan.report import Report
from tamis.scan.scan import Scan
from tamis.session import Session, connect
from tamis.table import Table
from tamis.table import open_table as open

__version__ = "0.1.0"

__all__ = [
    "open",
    "connect",
    "Session",
    "Table",
    "Scan",
    "ScanPlan",
    "Report",
    "col",
    "lit",
    "Expression",
    "PartitionFilter",
    "TamisError",
    "delta",
    "errors",
    "hive",
    "iceberg",
    "index",
    "spark",
    "__version__",
]
