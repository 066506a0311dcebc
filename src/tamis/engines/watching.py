"""Report the progress of a running Spark job as the share of finished tasks, on classic and Connect sessions.

Results arrive when all tasks are done, so until then only tasks can be counted. Tasks are balanced by bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any

from tamis.engines.sessions import is_connect
from tamis.engines.translation import spark_exceptions

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
                except spark_exceptions():
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
