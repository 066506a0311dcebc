"""Measures work in a new process, which has read nothing before: the cost of a user's first query.

A *preparation* is a function that imports what it needs and returns the work. Only the work is measured. The parent
calls `measure`; the child runs this file and prints one line of JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from harness import Contender, Measured

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class ProcessMeasured:
    """The time, memory and bytes that one process took for the work."""

    seconds: float
    cpu_seconds: float
    process_seconds: float
    """From the start of the process to its end, with the interpreter and the imports."""
    peak_memory: int
    memory_before: int
    """The peak before the work began, which is due to the interpreter and the imports."""
    bytes_read: int | None
    """The bytes that the process read from files during the work; None if the system does not count them."""
    found: Any


class Unfinished(Exception):
    """The work exceeded its time limit."""


def measure(
    preparation: Callable[..., Work], /, *, max_seconds: float | None = None, **arguments: Any
) -> ProcessMeasured:
    """Run a preparation and its work in a new process, and return what the work took.

    The child finds the preparation by the names of its module and function. `max_seconds` is a time limit.
    """
    started = time.perf_counter()
    command = [sys.executable, __file__, preparation.__module__, preparation.__name__, json.dumps(arguments)]
    # Installed packages have bytecode. The first process writes that of Tamis.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=max_seconds, env=environment
        )
    except subprocess.TimeoutExpired as expired:
        raise Unfinished(f"not finished after {expired.timeout:,.0f} s") from expired
    elapsed = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(f"{preparation.__name__} failed in a new process:\n{done.stderr}")
    return ProcessMeasured(process_seconds=elapsed, **json.loads(done.stdout.splitlines()[-1]))


def make_process_contender(name: str, preparation: Callable[..., Work], /, **arguments: Any) -> Contender:
    """Return a contender that runs in a new process each time. Its time excludes the interpreter and the imports."""

    def run() -> Measured:
        measured = measure(preparation, **arguments)
        return Measured(
            measured.seconds,
            measured.cpu_seconds,
            measured.found,
            measured.process_seconds,
            measured.peak_memory,
            measured.memory_before,
        )

    return Contender(name, run)


def measure_peak_memory() -> int:
    """Return the peak memory of this process, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        # getrusage() is not usable here: its value survives exec(), and the parent may have been larger.
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024


def count_bytes_read() -> int | None:
    """Return the bytes that this process has read from any file; None if the system does not count them."""
    counts = Path("/proc/self/io")
    return int(counts.read_text().split("\n")[0].split()[1]) if counts.exists() else None


def import_tamis_modules() -> None:
    """Import what plans and reads import on first use, because times exclude imports."""
    if "tamis" not in sys.modules:
        return
    parts = ["session", "table", "expr.sql.parse"]
    # Preparations for Iceberg tables import what they need, and their memory is measured.
    if "tamis.formats.iceberg.table" not in sys.modules:
        parts += ["index.finding", "index.table_index", "formats.delta.table", "formats.hive.table"]
    for part in parts:
        importlib.import_module(f"tamis.{part}")


def main() -> None:
    module, preparation, arguments = sys.argv[1:]
    work = getattr(importlib.import_module(module), preparation)(**json.loads(arguments))
    import_tamis_modules()
    # pyarrow imports pandas, if it is installed, for the first Python value that it converts.
    pa.array([0])
    memory_before = measure_peak_memory()
    read_before = count_bytes_read()
    started, cpu_started = time.perf_counter(), time.process_time()
    found = work()
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    read_after = count_bytes_read()
    answer = {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_memory": measure_peak_memory(),
        "memory_before": memory_before,
        "bytes_read": None if read_before is None or read_after is None else read_after - read_before,
        "found": found,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
