"""Work in threads: one pool for the whole process, which may be used recursively.

The caller processes items like each helper thread of the pool. So a call from a thread of the pool makes progress even
if all other threads are busy: it then processes all of its items itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Lock
from time import perf_counter
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

LOCAL_SOLO_SECONDS = 0.01
"""One thread works alone for this many seconds, because most items (reads from local files) take no time."""

POOL_SIZE = 64
"""The maximum number of threads in one process, for any number of concurrent calls."""

_lock = Lock()
_pool: ThreadPoolExecutor | None = None


def choose_threads(*, is_local: bool = True) -> int:
    """Return the number of threads of one call: remote requests mostly wait, local ones mostly compute."""
    processors = os.cpu_count() or 1
    return 2 * processors if is_local else min(32, 4 * processors)


def run_in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int | None = None, *, patience: float = 0.0
) -> list[Result]:
    """Return `function` of every item, in the order of the items.

    The first error stops the work: no further item starts, the running ones are awaited, and the error is raised.
    With `patience`, the caller works alone for that many seconds before helper threads start: for short computations
    several threads are slower than one.
    """
    work = list(items)
    done: list[Result] = []
    until = perf_counter() + patience
    while patience and len(done) < len(work) and perf_counter() < until:
        done.append(function(work[len(done)]))
    return done + _run_in_threads(function, work[len(done) :], threads)


def _run_in_threads(function: Callable[[Item], Result], work: list[Item], threads: int | None) -> list[Result]:
    workers = 1 if len(work) <= 1 else min(threads or choose_threads(), len(work))
    if workers <= 1:
        return [function(item) for item in work]
    shared = _Work(function, work)
    helpers = [_get_shared_pool().submit(shared.run) for _ in range(workers - 1)]
    try:
        shared.run()
    finally:
        shared.stop()
        wait([helper for helper in helpers if not helper.cancel()])
    _raise_first_error(helpers)
    return [shared.results[position] for position in range(len(work))]


class _Work(Generic[Item, Result]):
    """A queue of items that several threads process."""

    def __init__(self, function: Callable[[Item], Result], items: list[Item]) -> None:
        self._function = function
        self._items = items
        self._next = 0
        self._lock = Lock()
        self.results: dict[int, Result] = {}

    def stop(self) -> None:
        with self._lock:
            self._next = len(self._items)

    def run(self) -> None:
        try:
            while (position := self._take_next()) is not None:
                self.results[position] = self._function(self._items[position])
        finally:
            # After an error this stops the other threads; otherwise the queue is empty.
            self.stop()

    def _take_next(self) -> int | None:
        with self._lock:
            position = self._next
            if position == len(self._items):
                return None
            self._next += 1
            return position


def _raise_first_error(helpers: list[Future[None]]) -> None:
    for helper in helpers:
        if not helper.cancelled():
            helper.result()


def _get_shared_pool() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(POOL_SIZE, thread_name_prefix="tamis")
        return _pool


def _forget_pool() -> None:
    """Drop the pool after a fork, which threads do not survive: the child makes its own."""
    global _pool, _lock
    _pool, _lock = None, Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)
