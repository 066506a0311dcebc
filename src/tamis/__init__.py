"""Tamis plans and reads lakehouse scans so that a query fetches only the bytes that can hold a matching row.

>>> import tamis
>>> table = tamis.open("flights")                                     # doctest: +SKIP
>>> print(table.scan("month = 3 AND dep_delay > 60").explain())       # doctest: +SKIP

The public interface is `__all__`. Names are imported on first use: `tamis --help` and a Spark worker need few of them.
"""

from importlib import import_module
from sys import modules
from types import ModuleType
from typing import TYPE_CHECKING

from tamis.formats.engines import install_engines

if TYPE_CHECKING:
    from tamis import connectors, delta, errors, expressions, hive, iceberg, index, parquet, spark
    from tamis.errors import TamisError
    from tamis.expr.builder import Expression, col, lit
    from tamis.expr.wire.partition_filter import PartitionFilter
    from tamis.query.connectors.connector import Connector
    from tamis.query.query import Query
    from tamis.scan.planning.plan import ScanPlan
    from tamis.scan.report.report import Report
    from tamis.scan.scan import Scan
    from tamis.session import Session, connect
    from tamis.table import Table
    from tamis.table import open_table as open
    from tamis.tuning import Tuning

__version__ = "0.1.0"

__all__ = [
    "open",
    "connect",
    "Session",
    "Query",
    "Table",
    "Scan",
    "ScanPlan",
    "Report",
    "col",
    "lit",
    "Expression",
    "PartitionFilter",
    "Connector",
    "Tuning",
    "TamisError",
    "connectors",
    "delta",
    "errors",
    "expressions",
    "hive",
    "iceberg",
    "index",
    "parquet",
    "spark",
    "__version__",
]

_HOMES = {
    "open": "table.open_table",
    "connect": "session.connect",
    "Session": "session.Session",
    "Query": "query.query.Query",
    "Table": "table.Table",
    "Scan": "scan.scan.Scan",
    "ScanPlan": "scan.planning.plan.ScanPlan",
    "Report": "scan.report.report.Report",
    "col": "expr.builder.col",
    "lit": "expr.builder.lit",
    "Expression": "expr.builder.Expression",
    "PartitionFilter": "expr.wire.partition_filter.PartitionFilter",
    "Connector": "query.connectors.connector.Connector",
    "Tuning": "tuning.Tuning",
    "TamisError": "errors.TamisError",
}
"""The definitions of the public names that are not modules."""


def _load_duckdb() -> ModuleType:
    from tamis.engines.duckdb import engine

    return engine


def _load_spark() -> ModuleType:
    from tamis.engines.spark import engine

    return engine


def _load_jobs() -> ModuleType:
    from tamis.engines import jobs

    return jobs


# The layers below the engines find them here.
install_engines({"duckdb": _load_duckdb, "spark": _load_spark, "jobs": _load_jobs})


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Import a public name, or a public module."""
        if name in _HOMES:
            module, _, attribute = _HOMES[name].rpartition(".")
            found = getattr(import_module(f"tamis.{module}"), attribute)
            globals()[name] = found
            return found
        if name in __all__:
            return import_module(f"tamis.{name}")
        # Python suggests the nearest name where it knows the object.
        raise AttributeError(f"module 'tamis' has no attribute {name!r}", name=name, obj=modules[__name__])
