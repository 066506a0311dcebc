"""Control how Spark lists the files of a DataFrame.

For more than 32 files, Spark starts a task for each, about 7 ms each, before the DataFrame exists. Listing local files
one after another in the driver is faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from tamis.engines.sessions import is_connect

_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
MOST_FILES = 10_000

_lock = Lock()
"""The setting belongs to the whole session, so only one thread at a time may change it temporarily."""


@contextmanager
def listed_by_the_driver(spark: Any, files: int, *, is_local: bool) -> Iterator[None]:
    """Let the driver list this number of files within this context, if that is faster; then restore the setting.

    A Connect server lists files when it computes rows, so the setting has no effect there.
    """
    if not is_local or files > MOST_FILES or is_connect(spark):
        yield
        return
    with _lock:
        before = spark.conf.get(_THRESHOLD, None)
        was_set = _THRESHOLD in spark.conf.getAll
        if before is not None and int(before) >= files:
            yield
            return
        spark.conf.set(_THRESHOLD, str(files))
        try:
            yield
        finally:
            if was_set:
                spark.conf.set(_THRESHOLD, before)
            else:
                spark.conf.unset(_THRESHOLD)
