"""The Spark engine: it runs jobs in executors, using only DataFrames, on classic and Connect sessions.

    items ── tasks balanced by bytes ── repartitionById ── mapInArrow(JobRunner) ── observe ── toArrow

Each item runs in the task that was chosen for it. Results are Arrow batches as bytes: see `tamis.engines.spark.worker`.
"""

from __future__ import annotations

import heapq
import logging
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis.engines.spark.sessions import (
    check_session,
    import_functions,
    is_connect,
    list_spark_exceptions,
    make_observation,
    translate_errors,
)
from tamis.engines.spark.worker import BATCH, DONE, ERROR, RESULT_SCHEMA, JobRunner, batch_from_bytes, error_from_bytes
from tamis.errors import EngineError, InvalidArgument, format_count
from tamis.formats.jobs import Item, Job
from tamis.formats.source import FileListing, TableSource
from tamis.io.counters import IoCounts
from tamis.skipping.predicate import Predicate

logger = logging.getLogger("tamis")

TASKS_PER_CORE = 4
"""The number of tasks for each core of the cluster: some take longer than their size suggests."""

MAX_BYTES = 128 * 1024 * 1024
"""A task reads at most this many bytes, if there are enough items to distribute."""

_GROUP_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


class SparkEngine:
    """Runs jobs in the executors of a Spark session. Spark's UI shows them as `tamis: read 40 checkpoint parts of …`.

    `tasks` is the maximum number of tasks of a job; by default a few for each core that Spark reports.
    """

    name = "spark"

    def __init__(self, spark: Any, *, tasks: int | None = None) -> None:
        if tasks is not None and (not isinstance(tasks, int) or isinstance(tasks, bool) or tasks < 1):
            raise InvalidArgument(f"tasks must be an integer of 1 or more, found {tasks!r}")
        self.spark = check_session(spark)
        self._most_tasks = tasks
        self._known_parallelism: int | None = None
        self.last_sizes: dict[str, int] = {}
        """Metrics of the last job: `items`, `results`, `bytes_sent` by executors, and their reads and requests.
        """

    def run(self, job: Job, items: Sequence[Item]) -> Iterator[tuple[int, pa.RecordBatch]]:
        if not items:
            return
        check_session(self.spark)
        title = f"tamis: {job.description}"
        with translate_errors(title), name_jobs(self.spark, title):
            found, sizes = self._run(job, items, title)
        self.last_sizes = sizes
        logger.debug("%s: %s", title, sizes)
        if job.counters is not None:
            job.counters.add_counts(IoCounts(sizes["listing_calls"], sizes["requests"], sizes["bytes_read"]))
        yield from collect_results(found, len(items), title)

    def find_listing(
        self, source: TableSource, predicate: Predicate, levels: Collection[str], limit: int | None
    ) -> FileListing | None:
        """Return the files for a filter from a cached files DataFrame of the table; None without one."""
        # It imports this module.
        from tamis.engines.spark.files_dataframe import FilesDataFrame

        check_session(self.spark)
        files = FilesDataFrame.find(self.spark, source, predicate.list_data_columns(source.partition_columns))
        if files is None:
            return None
        with files:
            return files.find_listing(predicate, levels, limit)

    def _run(self, job: Job, items: Sequence[Item], title: str) -> tuple[pa.Table, dict[str, int]]:
        """Run a job, and return the rows that the executors sent and the metrics."""
        total = sum(item.size for item in items)
        most = self._most_tasks or max(TASKS_PER_CORE * self._parallelism, math.ceil(total / MAX_BYTES))
        tasks = balance_tasks([item.size for item in items], most)
        given = pa.table(
            {
                "task": pa.array(tasks, pa.int32()),
                "number": pa.array(range(len(items)), pa.int64()),
                "item": pa.array([item.value for item in items], pa.binary()),
            }
        )
        sizes = make_observation(self.spark)
        expr = import_functions(self.spark).expr
        runner = JobRunner(job.function, job.arguments_text, re.sub(r"\W+", "_", title))
        frame = (
            self.spark.createDataFrame(given)
            .repartitionById(max(tasks) + 1, "task")
            .mapInArrow(runner, RESULT_SCHEMA)
            .observe(
                sizes,
                expr("count(*)").alias("results"),
                *(
                    expr(f"coalesce(sum({what}), 0L)").alias(name)
                    for name, what in (
                        ("bytes_sent", "length(payload)"),
                        ("listing_calls", "listings"),
                        ("requests", "requests"),
                        ("bytes_read", "bytes_read"),
                    )
                ),
            )
        )
        with report_progress(self.spark, title, max(tasks) + 1, job.progress):
            found = frame.toArrow()
        return found, {"items": len(items), **sizes.get}

    @property
    def _parallelism(self) -> int:
        """The number of tasks that Spark runs at once: Spark splits a range into that many partitions."""
        if self._known_parallelism is None:
            ranges = self.spark.range(1 << 16).selectExpr("spark_partition_id() AS number")
            self._known_parallelism = 1 + int(ranges.selectExpr("max(number) AS last").collect()[0]["last"])
        return self._known_parallelism

    def __repr__(self) -> str:
        return f"<tamis.SparkEngine {'Connect' if is_connect(self.spark) else 'classic'}>"


def collect_results(rows: pa.Table, items: int, title: str) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the batches in the rows that executors sent, in the order of the items, or raise the first error.

    Each item must be done exactly once: a lost or repeated item is an error, so it never changes a plan.
    """
    keys = [("number", "ascending"), ("position", "ascending")]
    # Payloads are not sorted: all together may exceed the size of a single binary array.
    order = pc.sort_indices(rows.select(["number", "position"]), keys).to_pylist()
    numbers, kinds = (rows[name].to_pylist() for name in ("number", "kind"))
    failed = next((row for row in order if kinds[row] == ERROR), None)
    if failed is not None:
        raise error_from_bytes(rows["payload"][failed].as_py())
    done = [numbers[row] for row in order if kinds[row] == DONE]
    if done != list(range(items)):
        raise EngineError(
            f"the Spark job '{title}' finished {format_count(len(done), 'item')} of {items}: run it again"
        )
    for row in order:
        if kinds[row] == BATCH:
            yield numbers[row], batch_from_bytes(rows["payload"][row].as_buffer())


def balance_tasks(sizes: Sequence[int], most: int) -> list[int]:
    """Return a task for each item, so that tasks read about the same amount: the largest item into the lightest task.

    >>> balance_tasks([1, 9, 5, 4], 2)
    [0, 0, 1, 1]
    """
    tasks = [(0, 0, task) for task in range(min(most, len(sizes)))]
    chosen = [0] * len(sizes)
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        load, count, task = heapq.heappop(tasks)
        chosen[index] = task
        # Items without a size are balanced by their count.
        heapq.heappush(tasks, (load + sizes[index], count + 1, task))
    return chosen


@contextmanager
def name_jobs(spark: Any, title: str) -> Iterator[None]:
    """Name the Spark jobs that start within this context: as job group and description, or as a tag on Connect."""
    if is_connect(spark):
        tag = title.replace(",", ";")  # Spark rejects commas in tags
        is_new = tag not in spark.getTags()
        spark.addTag(tag)
        try:
            yield
        finally:
            if is_new:
                spark.removeTag(tag)
        return
    context = spark.sparkContext
    before = [context.getLocalProperty(name) for name in _GROUP_PROPERTIES]
    context.setJobGroup(title, title)
    try:
        yield
    finally:
        for name, value in zip(_GROUP_PROPERTIES, before, strict=True):
            context.setLocalProperty(name, value)


# --- Report the progress of a running Spark job as the share of finished tasks, on classic and Connect sessions -------
#
# Results arrive when all tasks are done, so until then only tasks can be counted. Tasks are balanced by bytes.

Stage = tuple[int, int, int]
"""The id of a stage, its number of tasks, and how many of them are done."""

POLLING_SECONDS = 0.5
"""The polling interval of classic sessions. A Connect server reports every two seconds by default."""


@contextmanager
def report_progress(spark: Any, title: str, tasks: int, tell: Callable[[float], None] | None) -> Iterator[None]:
    """Report the progress of the job with this name and number of tasks while it runs; do nothing without `tell`."""
    if tell is None:
        yield
    elif is_connect(spark):

        def handle(*, stages: Iterable[Any] | None, **_: Any) -> None:
            tell(
                _compute_share(
                    [(each.stage_id, each.num_tasks, each.num_completed_tasks) for each in stages or ()], tasks
                )
            )

        spark.registerProgressHandler(handle)
        try:
            yield
        finally:
            spark.removeProgressHandler(handle)
    else:
        tracker = spark.sparkContext.statusTracker()
        earlier = set(tracker.getJobIdsForGroup(title))
        ended = Event()

        def watch() -> None:
            while not ended.wait(POLLING_SECONDS):
                try:
                    stages = list(_find_stages(tracker, set(tracker.getJobIdsForGroup(title)) - earlier))
                except list_spark_exceptions():
                    return  # the session has ended, and the thread that runs the job raises the error
                tell(_compute_share(stages, tasks))

        with ThreadPoolExecutor(1, "tamis-watching") as threads:
            watching = threads.submit(watch)
            try:
                yield
            finally:
                ended.set()
            watching.result()


def _find_stages(tracker: Any, jobs: Iterable[int]) -> Iterator[Stage]:
    for number in {stage for job in jobs if (info := tracker.getJobInfo(job)) for stage in info.stageIds}:
        # Spark has no information about stages that have not started.
        if found := tracker.getStageInfo(number):
            yield number, found.numTasks, found.numCompletedTasks


def _compute_share(stages: Iterable[Stage], tasks: int) -> float:
    """Return the finished share of the stage that runs the job: the first stage only distributes items.

    >>> _compute_share([], 8), _compute_share([(3, 8, 8)], 8), _compute_share([(3, 2, 2), (5, 8, 6)], 8)
    (0.0, 0.0, 0.75)
    """
    return max((done / tasks for _, own, done in sorted(stages)[1:] if own == tasks), default=0.0)
