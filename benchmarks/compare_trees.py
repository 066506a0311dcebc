"""Compares warm and cold plans of two source trees: `python benchmarks/compare_trees.py ../base [names]`.

Use it to find out whether a change made plans slower. The other tree is a checkout of another commit, for example of
`git worktree add ../base main~20`. Each tree has a process of its own that keeps its tables open, and the two take
turns, so that a busy machine slows down both. Compare CPU times. The results are printed, and not written to
RESULTS.md.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import ROOT, Contender, Measured, Settings, interleave, make_speed_table

BEFORE, NOW = "the other tree", "this tree"

Cases = dict[str, Callable[[int], object]]
"""The work of each case: a function of the number of the round, which returns what it found."""


def make_cases(settings: Settings) -> Cases:
    """Return the plans to measure. Their tables are written when a case runs for the first time."""
    from bench_delta import ensure_checkpointed_log, filter_id, make_partition_filter
    from bench_iceberg import FILTERS, ensure_iceberg_table
    from iceberg_metadata import Shape
    from table_writers import REGIONS, ensure_table, get_day, write_partition_tree

    import tamis

    tables: dict[str, Any] = {}

    def plan(path: Path, where: str | None) -> int:
        table = tables.setdefault(str(path), None) or tamis.open(path)
        tables[str(path)] = table
        return int(table.scan(where).plan(depth="files").num_files)

    log = ensure_checkpointed_log(settings, *((2, 500) if settings.quick else (20, 10_000)))
    by_partition = make_partition_filter(log.files)

    def get_days(number: int) -> str:
        return by_partition(number).split(" AND id")[0]

    shape = Shape(1_000, 2) if settings.quick else Shape(100_000, 20)
    iceberg = ensure_iceberg_table(settings, "", shape, settings.rounds)
    days, files = (3, 60) if settings.quick else (300, 100_000)
    tree = ensure_table(
        settings.data / f"partition-tree-{files}",
        lambda folder: write_partition_tree(folder, days=days, files=files),
    )

    def open_and_plan(number: int) -> int:
        from tamis.formats.delta.planning.file_batches import FILE_BATCH_CACHE

        FILE_BATCH_CACHE.clear()
        return int(tamis.open(log.path).scan(by_partition(log.get_file_number(number))).plan(depth="files").num_files)

    cases: Cases = {
        "delta: partition": lambda number: plan(log.path, get_days(log.get_file_number(number))),
        "delta: partition and ids": lambda number: plan(log.path, by_partition(log.get_file_number(number))),
        "delta: one id": lambda number: plan(log.path, filter_id(log.get_file_number(number))),
        "delta: no filter": lambda number: plan(log.path, None),
        "delta: all match": lambda number: plan(log.path, f"id >= {-number}"),
        "delta: cold": open_and_plan,
    }
    for name, make_filter in FILTERS.items():
        cases[f"iceberg: {name}"] = lambda number, make=make_filter: plan(  # type: ignore[misc]
            iceberg.path, iceberg.make_filter(make, number)
        )
    cases["iceberg: no filter"] = lambda number: plan(iceberg.path, None)
    cases["hive: partition"] = lambda number: plan(
        tree, f"region = 'r{number % REGIONS}' AND day = DATE '{get_day(number % days)}'"
    )
    cases["hive: no filter"] = lambda number: plan(tree, None)
    return cases


def answer(settings: Settings) -> None:
    """Run the cases that the parent asks for, one a line, and print what they took."""
    cases = make_cases(settings)
    print(json.dumps(list(cases)), flush=True)
    for line in sys.stdin:
        name, number = json.loads(line)
        gc.collect()
        started, cpu_started = time.perf_counter(), time.process_time()
        found = cases[name](number)
        print(
            json.dumps([time.perf_counter() - started, time.process_time() - cpu_started, found]),
            flush=True,
        )


@contextlib.contextmanager
def start(tree: Path, settings: Settings) -> Iterator[tuple[list[str], Callable[[str, int], Measured]]]:
    """Start a process that imports Tamis from a tree; yield the names of its cases, and how to run one."""
    command = [sys.executable, __file__, str(tree), "--data", str(settings.data), "--worker"]
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    process = subprocess.Popen(
        [*command, *(["--quick"] if settings.quick else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout

    def run(name: str, number: int) -> Measured:
        print(json.dumps([name, number]), file=stdin, flush=True)
        return Measured(*json.loads(stdout.readline()))

    try:
        yield json.loads(stdout.readline()), run
    finally:
        stdin.close()
        process.wait()


def make_contender(name: str, case: str, run: Callable[[str, int], Measured]) -> Contender:
    rounds = iter(range(1_000_000))
    return Contender(name, lambda: run(case, next(rounds)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks/compare_trees.py", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("tree", type=Path, help="the folder of another checkout")
    parser.add_argument("names", nargs="*", help="run only the cases whose names start with one of these")
    parser.add_argument("--quick", action="store_true", help="small tables and one round")
    parser.add_argument("--data", type=Path, default=ROOT / "bench-data", help="folder for tables (bench-data)")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args()
    settings = Settings(options.data.resolve(), options.quick)
    settings.data.mkdir(parents=True, exist_ok=True)
    if options.worker:
        answer(settings)
        return
    with start(ROOT, settings) as (cases, run), start(options.tree.resolve(), settings) as (_, run_before):
        for case in cases:
            if options.names and not any(case.startswith(name) for name in options.names):
                continue
            contenders = [make_contender(NOW, case, run), make_contender(BEFORE, case, run_before)]
            print(f"{case}\n{make_speed_table(interleave(contenders, settings.rounds), [NOW])}\n", flush=True)


if __name__ == "__main__":
    main()
