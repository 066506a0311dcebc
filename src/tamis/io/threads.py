"""Work in threads: one pool for the whole process, which can be used from within itself.

The caller works through its items like every helper from the pool. So a call inside a thread of the pool
always gets on, even when every other thread is taken: it then does all of its items itself.
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

LOCAL_PATIENCE = 0.01
"""How long to work alone on what mostly takes no time, as reads from local files do."""

POOL_SIZE = 64
"""The most threads at work in one process, however many calls run at the same time."""

_lock = Lock()
_pool: ThreadPoolExecutor | None = None


def default_threads(*, is_local: bool = True) -> int:
    """How many threads one call uses: remote requests mostly wait, local ones mostly compute."""
    processors = os.cpu_count() or 1
    return 2 * processors if is_local else min(32, 4 * processors)


def run_in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int | None = None, *, patience: float = 0.0
) -> list[Result]:
    """`function` of every item, in the order of the items.

    The first error stops the work: no further item is begun, those under way are waited for, and it is raised.
    With `patience`, the caller works alone for so many seconds before it is helped: threads that take turns to compute
    for a moment are slower than one.
    """
    work = list(items)
    done: list[Result] = []
    until = perf_counter() + patience
    while patience and len(done) < len(work) and perf_counter() < until:
        done.append(function(work[len(done)]))
    return done + _run_in_threads(function, work[len(done) :], threads)


def _run_in_threads(function: Callable[[Item], Result], work: list[Item], threads: int | None) -> list[Result]:
    workers = 1 if len(work) <= 1 else min(threads or default_threads(), len(work))
    if workers <= 1:
        return [function(item) for item in work]
    shared = _Work(function, work)
    helpers = [_shared_pool().submit(shared.run) for _ in range(workers - 1)]
    try:
        shared.run()
    finally:
        shared.stop()
        wait([helper for helper in helpers if not helper.cancel()])
    _raise_first_error(helpers)
    return [shared.results[position] for position in range(len(work))]


class _Work(Generic[Item, Result]):
    """Items that several threads take one after another."""

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
            while (position := self._take()) is not None:
                self.results[position] = self._function(self._items[position])
        finally:
            # Where it ends without an error nothing is left to take.
            self.stop()

    def _take(self) -> int | None:
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


def _shared_pool() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(POOL_SIZE, thread_name_prefix="tamis")
        return _pool


def _forget_pool() -> None:
    """Threads do not survive a fork: the child makes a pool of its own."""
    global _pool, _lock
    _pool, _lock = None, Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)
