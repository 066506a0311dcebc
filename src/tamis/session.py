"""Sessions: tables opened in one place, planned in this process or on Spark.

>>> connection = tamis.connect(spark=spark)                            # doctest: +SKIP
>>> connection.open("s3://lake/orders").scan("day = '2024-03-01'")     # doctest: +SKIP
"""

from __future__ import annotations

import os
from typing import Any

from tamis.engines.local import LocalEngine
from tamis.engines.spark import SparkEngine
from tamis.errors import InvalidArgument
from tamis.table import Table, open_source
from tamis.tables.jobs import Engine
from tamis.tables.planning import AUTO, LOCAL, SPARK, Planning, check_mode


class Session:
    """Opens tables. Made with `tamis.connect`."""

    def __init__(self, spark: Any = None, *, planning: str = AUTO) -> None:
        check_mode(planning)
        if spark is None and planning == SPARK:
            raise InvalidArgument(
                "planning='spark' needs a Spark session: tamis.connect(spark=spark, planning='spark')"
            )
        self._spark = None if spark is None else SparkEngine(spark)
        self._mode = LOCAL if spark is None else planning

    @property
    def planning(self) -> str:
        """`auto`, `local` or `spark`."""
        return self._mode

    @property
    def engine(self) -> Engine:
        """What runs jobs for this session: Spark where there is one, unless plans are to be local."""
        return LocalEngine() if self._spark is None or self._mode == LOCAL else self._spark

    def open(self, uri: str | os.PathLike[str], *arguments: Any, **options: Any) -> Table:
        """Open a table, with the arguments of `tamis.open`."""
        planning = None if self._spark is None or self._mode == LOCAL else Planning(self._spark, self._mode)
        return Table(open_source(uri, *arguments, **options, planning=planning))

    def __repr__(self) -> str:
        return f"<tamis.Session on {self.engine.name}, planning={self._mode!r}>"


def connect(spark: Any = None, *, planning: str = AUTO) -> Session:
    """A session. With a Spark session (classic or Connect), plans can be made in its executors.

    `planning` is `local` (in this process), `spark` (checkpoint parts, directories and footers are read in executors)
    or `auto`: in executors where there is much to read, which `tamis.tables.planning` says in numbers.
    """
    return Session(spark, planning=planning)
