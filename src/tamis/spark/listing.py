"""How Spark looks for the files that it is given to read.

Of more than 32 it looks for each in a task of its own, some 7 ms each, before a DataFrame exists. Local files are found
sooner one after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from tamis.engines.sessions import is_connect

_MOST_HERE = "spark.sql.sources.parallelPartitionDiscovery.threshold"
MOST_FILES = 10_000

_lock = Lock()
"""A setting is one of the whole session: who changes it for a moment must be alone."""


@contextmanager
def listed_by_the_driver(spark: Any, files: int, *, is_local: bool) -> Iterator[None]:
    """While it lasts, the driver itself looks for so many files, where that is sooner. The session stays as it was.

    A Connect server looks for files when rows are asked for, whenever that is.
    """
    if not is_local or files > MOST_FILES or is_connect(spark):
        yield
        return
    with _lock:
        before = spark.conf.get(_MOST_HERE, None)
        was_set = _MOST_HERE in spark.conf.getAll
        if before is not None and int(before) >= files:
            yield
            return
        spark.conf.set(_MOST_HERE, str(files))
        try:
            yield
        finally:
            if was_set:
                spark.conf.set(_MOST_HERE, before)
            else:
                spark.conf.unset(_MOST_HERE)
