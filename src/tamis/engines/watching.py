"""How far a Spark job is: the share of its tasks that are done, told while it runs, on both kinds of sessions.

Results come when all tasks are done, so until then tasks are all there is to count. They are balanced by bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any

from tamis.engines.sessions import is_connect
from tamis.engines.translation import errors_of_spark

Stage = tuple[int, int, int]
"""Its number, its tasks, and how many of them are done."""

SECONDS = 0.5
"""How often a classic session is asked; a Connect server tells every two seconds, unless it is set up otherwise."""


@contextmanager
def watched(spark: Any, title: str, tasks: int, tell: Callable[[float], None] | None) -> Iterator[None]:
    """While it lasts, tell about the job of this name and of so many tasks; nothing where nobody wants to know."""
    if tell is None:
        yield
    elif is_connect(spark):

        def handle(*, stages: Iterable[Any] | None, **_: Any) -> None:
            tell(_share([(each.stage_id, each.num_tasks, each.num_completed_tasks) for each in stages or ()], tasks))

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
            while not ended.wait(SECONDS):
                try:
                    stages = list(_stages(tracker, set(tracker.getJobIdsForGroup(title)) - earlier))
                except errors_of_spark():
                    return  # the session is gone, and whoever runs the job hears of it
                tell(_share(stages, tasks))

        with ThreadPoolExecutor(1, "tamis-watching") as threads:
            watching = threads.submit(watch)
            try:
                yield
            finally:
                ended.set()
            watching.result()


def _stages(tracker: Any, jobs: Iterable[int]) -> Iterator[Stage]:
    for number in {stage for job in jobs if (info := tracker.getJobInfo(job)) for stage in info.stageIds}:
        # Of a stage that has not begun Spark knows nothing yet.
        if found := tracker.getStageInfo(number):
            yield number, found.numTasks, found.numCompletedTasks


def _share(stages: Iterable[Stage], tasks: int) -> float:
    """How much is done of the stage that does the work: the first one only hands items out.

    >>> _share([], 8), _share([(3, 8, 8)], 8), _share([(3, 2, 2), (5, 8, 6)], 8)
    (0.0, 0.0, 0.75)
    """
    return max((done / tasks for _, own, done in sorted(stages)[1:] if own == tasks), default=0.0)
