"""Runners that fail, or wait, in a worker of Spark. They travel by value, since the workers do not have this module."""

from __future__ import annotations

import importlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa


class DiesOnce:
    """Kills its process after its first result, unless another one did so before."""

    def __init__(self, runner: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], grave: Path) -> None:
        self._runner = runner
        self._grave = str(grave)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for given in self._runner(batches):
            yield given
            try:
                handle = os.open(self._grave, os.O_CREAT | os.O_EXCL)
            except FileExistsError:
                continue
            os.close(handle)
            os.kill(os.getpid(), signal.SIGKILL)


class WaitsForNews:
    """Finishes one task at once, and the others when the driver has reported the first."""

    def __init__(
        self, runner: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], first: Path, heard: Path
    ) -> None:
        self._runner = runner
        self._first, self._heard = first, heard

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self._runner(batches)
        try:
            self._first.touch(exist_ok=False)
        except FileExistsError:
            give_up = time.monotonic() + 60
            while not self._heard.exists():
                if time.monotonic() > give_up:
                    raise TimeoutError("the finished task was not reported") from None
                time.sleep(0.02)


class Unknown:
    """An object of a module that the workers do not have."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (self._module,)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches


class Stumbles:
    """Fails with an unexpected error."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            raise ZeroDivisionError(f"{batch.num_rows} / 0")
        yield


class Dies:
    """Kills its process at every call."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            os.kill(os.getpid(), signal.SIGKILL)
        yield
