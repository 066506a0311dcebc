"""Work measured in a process of its own, which has read nothing before: what a user's first query costs.

A *preparation* is a function that imports what it needs and returns the work; only the work is measured. The parent
calls `measure`, the child runs this file and answers with one line of JSON.
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
    """What one process spent on the work, and the most memory it ever had."""

    seconds: float
    cpu_seconds: float
    process_seconds: float
    """From the start of the process to its end: the interpreter and the imports too."""
    peak_memory: int
    memory_before: int
    """The most memory that it had before the work began: the interpreter and the imports."""
    bytes_read: int | None
    """What the process read from files during the work; None where the system does not tell."""
    found: Any


class Unfinished(Exception):
    """The work took longer than it was given."""


def measure(preparation: Callable[..., Work], /, *, longest: float | None = None, **arguments: Any) -> ProcessMeasured:
    """Run a preparation, named by its module and its name, and its work in a new process, for `longest` seconds."""
    started = time.perf_counter()
    command = [sys.executable, __file__, preparation.__module__, preparation.__name__, json.dumps(arguments)]
    # Installed packages have their bytecode; ours gets it with the first process.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=longest, env=environment)
    except subprocess.TimeoutExpired as expired:
        raise Unfinished(f"not finished after {expired.timeout:,.0f} s") from expired
    elapsed = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(f"{preparation.__name__} failed in a new process:\n{done.stderr}")
    return ProcessMeasured(process_seconds=elapsed, **json.loads(done.stdout.splitlines()[-1]))


def in_new_process(name: str, preparation: Callable[..., Work], /, **arguments: Any) -> Contender:
    """A contender each of whose runs is a new process; interpreter and imports are not in its time."""

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


def peak_memory() -> int:
    """The most memory that this process had at once, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        # getrusage() would count the parent too: its value survives exec(), and the parent may have been larger.
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024


def bytes_read() -> int | None:
    """What this process has read so far, from whatever file, by any library; None where the system does not tell."""
    counts = Path("/proc/self/io")
    return int(counts.read_text().split("\n")[0].split()[1]) if counts.exists() else None


def load_parts_of_tamis() -> None:
    """Import what plans and reads import when they first need it: imports are in nobody's time."""
    if "tamis" not in sys.modules:
        return
    parts = ["session", "table", "expr.sql"]
    # Preparations for Iceberg tables import their own, and their memory is measured.
    if "tamis.formats.iceberg.table" not in sys.modules:
        parts += ["indexing.finding", "indexing.table_index", "tables.delta.table", "tables.hive.table"]
    for part in parts:
        importlib.import_module(f"tamis.{part}")


def main() -> None:
    module, preparation, arguments = sys.argv[1:]
    work = getattr(importlib.import_module(module), preparation)(**json.loads(arguments))
    load_parts_of_tamis()
    # pyarrow imports pandas, where it is installed, with the first value of Python that it is given.
    pa.array([0])
    memory_before = peak_memory()
    read_before = bytes_read()
    started, cpu_started = time.perf_counter(), time.process_time()
    found = work()
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    read_after = bytes_read()
    answer = {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_memory": peak_memory(),
        "memory_before": memory_before,
        "bytes_read": None if read_before is None or read_after is None else read_after - read_before,
        "found": found,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
