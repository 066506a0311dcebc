"""Tasks run in threads with bounded memory; their batches are yielded in order, small ones coalesced."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from queue import Empty, Full, Queue
from typing import Generic, TypeVar

import pyarrow as pa

T = TypeVar("T")
R = TypeVar("R")

QUEUED_RESULTS = 2
"""The number of results of one task that are queued before the task waits for the consumer."""

MAX_RUNNING_BYTES = 256 * 1024 * 1024
"""The maximum bytes that running tasks hold together, on any number of processors; two tasks always run."""

MAX_BYTES_WITHOUT_THREAD = 52 * 1024 * 1024
"""A single task of at most this weight (a row group of about 4 MiB) does not pay for a thread."""

_WAKE_UP_SECONDS = 0.05


class _Stream(Generic[R]):
    """A queue of one task's results between its thread and the consumer."""

    def __init__(self, stopped: threading.Event) -> None:
        self._results: Queue[R | None] = Queue(maxsize=QUEUED_RESULTS)
        self._stopped = stopped

    def fill(self, results: Iterator[R]) -> None:
        try:
            for result in results:
                if not self._put(result):
                    return
        finally:
            self._put(None)

    def _put(self, result: R | None) -> bool:
        while not self._stopped.is_set():
            try:
                self._results.put(result, timeout=_WAKE_UP_SECONDS)
            except Full:
                continue
            return True
        return False

    def drain(self, running: Future[None]) -> Iterator[R]:
        while True:
            try:
                result = self._results.get(timeout=_WAKE_UP_SECONDS)
            except Empty:
                if running.done():
                    running.result()
                continue
            if result is None:
                running.result()
                return
            yield result


def run_tasks(
    tasks: Iterator[T], run: Callable[[T], Iterator[R]], weigh: Callable[[T], int], threads: int | None = None
) -> Iterator[R]:
    """Yield the results of all tasks in task order, computed by several threads (a single light task by the caller).

    At most `threads` tasks run concurrently, each queues a few results, and together they weigh at most
    MAX_RUNNING_BYTES, so memory grows neither with the input nor with the machine.
    Tasks are drawn lazily: a consumer that stops early never plans the others.
    """
    first, second = next(tasks, None), next(tasks, None)
    if first is None:
        return
    if second is None and weigh(first) <= MAX_BYTES_WITHOUT_THREAD:
        yield from run(first)
        return
    tasks = chain((first,) if second is None else (first, second), tasks)
    workers = threads or os.cpu_count() or 1
    stopped = threading.Event()
    running_tasks: deque[tuple[_Stream[R], Future[None], int]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="tamis-scan")
    try:
        exhausted = False
        while True:
            while not exhausted and len(running_tasks) <= workers and _is_light(running_tasks):
                task = next(tasks, None)
                if task is None:
                    exhausted = True
                    break
                stream: _Stream[R] = _Stream(stopped)
                running_tasks.append((stream, pool.submit(_fill, stream, run, task), weigh(task)))
            if not running_tasks:
                return
            stream, running, _ = running_tasks[0]
            yield from stream.drain(running)
            running_tasks.popleft()
    finally:
        stopped.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _is_light(running_tasks: deque[tuple[_Stream[R], Future[None], int]]) -> bool:
    return len(running_tasks) < 2 or sum(weight for _, _, weight in running_tasks) < MAX_RUNNING_BYTES


def _fill(stream: _Stream[R], run: Callable[[T], Iterator[R]], task: T) -> None:
    stream.fill(run(task))


# --- Coalescing of small batches: each step over a batch has a fixed cost ---------------------------------------------

TARGET_BATCH_ROWS = 128 * 1024
TARGET_BATCH_BYTES = 16 * 1024 * 1024


def coalesce_batches(
    batches: Iterable[pa.RecordBatch], enough_rows: int = TARGET_BATCH_ROWS, enough_bytes: int = TARGET_BATCH_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in the same order, in batches of about the given size.

    A batch is yielded as soon as it has enough rows or bytes, so memory does not grow with the input.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.get_total_buffer_size()
        if rows >= enough_rows or size >= enough_bytes:
            yield _concatenate(waiting)
            waiting, rows, size = [], 0, 0
    if rows:
        yield _concatenate(waiting)


def _concatenate(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
