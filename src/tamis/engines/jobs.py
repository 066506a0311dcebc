"""The engines that run jobs, by name or by Spark session: the implementation of `formats.jobs.JobEngines`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tamis.engines.spark.jobs import SparkEngine
from tamis.engines.spark.sessions import get_active_session
from tamis.formats.jobs import Arguments, Item, Job, find_function
from tamis.scan.reading.pipeline import run_tasks

# --- Local ----------------------------------------------------------------------------------------------------------
#
# The local engine: jobs run in threads of this process.


class LocalEngine:
    """Runs jobs in threads. Batches arrive in order, as soon as they are ready, and few of them wait in memory."""

    name = "local"

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads

    def run(self, job: Job, items: Sequence[Item]) -> Iterator[tuple[int, pa.RecordBatch]]:
        function = find_function(job.function)
        # Pass the arguments through JSON, so that a function gets the same values as in another process.
        arguments = Arguments(job.arguments_text)

        def call(numbered: tuple[int, Item]) -> Iterator[tuple[int, pa.RecordBatch]]:
            number, item = numbered
            for batch in function(arguments, item.value):
                yield number, batch

        try:
            yield from run_tasks(enumerate(items), call, lambda numbered: numbered[1].size, self._threads)
        finally:
            if job.counters is not None:
                job.counters.add_counts(arguments.counts())

    def __repr__(self) -> str:
        return "<tamis.LocalEngine>"


__all__ = ["LocalEngine", "SparkEngine", "make_local", "make_spark"]


def make_local() -> LocalEngine:
    return LocalEngine()


def make_spark(session: Any | None) -> SparkEngine:
    """Return the engine of a Spark session, by default the active one."""
    return SparkEngine(get_active_session() if session is None else session)
