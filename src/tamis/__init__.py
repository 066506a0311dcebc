"""Tamis plans and reads lakehouse scans so that a query fetches only the bytes that can hold a matching row.

>>> import tamis
>>> table = tamis.open("flights")                                     # doctest: +SKIP
>>> print(table.scan("month = 3 AND dep_delay > 60").explain())       # doctest: +SKIP

A name is imported when it is first asked for: `tamis --help` and a worker of Spark need few of them.
"""

from importlib import import_module
from sys import modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

_HOMES = {
    "open": "table.open_table",
    "connect": "session.connect",
    "Session": "session.Session",
    "Table": "table.Table",
    "Scan": "scan.scan.Scan",
    "ScanPlan": "scan.plan.ScanPlan",
    "Report": "scan.report.Report",
    "col": "expr.builder.col",
    "lit": "expr.builder.lit",
    "Expression": "expr.builder.Expression",
    "PartitionFilter": "expr.partition_filter.PartitionFilter",
    "TamisError": "errors.TamisError",
}
"""Where the names are that are no modules."""


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - {"TYPE_CHECKING", "import_module", "modules"})


if not TYPE_CHECKING:  # to a type checker it would say that any name is there

    def __getattr__(name: str) -> object:
        """A public name, or a module of the package: `tamis.parquet` is there without being imported."""
        if name in _HOMES:
            module, _, attribute = _HOMES[name].rpartition(".")
            found = getattr(import_module(f"tamis.{module}"), attribute)
            globals()[name] = found
            return found
        # Python looks for the nearest name where it knows of what an attribute was asked.
        missing = AttributeError(f"module 'tamis' has no attribute {name!r}", name=name, obj=modules[__name__])
        # Nobody asks for a private one by mistake, and to import `__main__` would run it.
        if name.startswith("_"):
            raise missing
        try:
            return import_module(f"tamis.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"tamis.{name}":
                raise
            raise missing from None
