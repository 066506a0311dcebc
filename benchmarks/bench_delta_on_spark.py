"""Plans of a large Delta table: by Tamis in this process and in Spark executors, and by Delta on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench_delta import CHECKPOINTED, Log, ensure_checkpointed_log, make_partition_filter
from harness import (
    Section,
    Settings,
    Target,
    format_mebibytes,
    format_milliseconds,
    interleave,
    make_speed_table,
    ratio,
)
from new_process import Unfinished, Work, make_process_contender, measure
from spark_sessions import start_delta_session

NAME = "delta_on_spark"

ROUNDS = 2
MEMORY = "4g"
LITTLE_MEMORY = "1g"
"""The memory of the driver that plans tables of five million files."""
LARGE = (100, 50_000)
MAX_SECONDS = 480
"""The time limit of Delta on Spark for a plan of five million files."""
OURS = ["tamis", "tamis on Spark"]
PEER = "Delta on Spark"

# --- Preparations: they start Spark; only the work is measured -------------------------------------------------------


def prepare_tamis(path: str, where: str, again: str | None = None) -> Work:
    import tamis

    return _prepare_plan(lambda: tamis.open(path), where, again)


def prepare_tamis_on_spark(path: str, where: str, again: str | None = None, memory: str = MEMORY) -> Work:
    import tamis

    connection = tamis.connect(spark=_start_warm_session(path, memory), planning="spark")
    return _prepare_plan(lambda: connection.open(path), where, again)


def prepare_files_dataframe(path: str, where: str, again: str | None = None, memory: str = MEMORY) -> Work:
    import tamis

    spark = _start_warm_session(path, memory)
    columns = ["id"]
    if again is None:
        return lambda: tamis.open(path).files_dataframe(spark, columns).files_for_scan(where).files.num_rows
    files = tamis.open(path).files_dataframe(spark, columns)
    return lambda: files.files_for_scan(again).files.num_rows


def prepare_delta(path: str, where: str, again: str | None = None, memory: str = MEMORY) -> Work:
    spark = _start_warm_session(path, memory)

    def plan(condition: str) -> int:
        return len(spark.read.format("delta").load(path).where(condition).inputFiles())

    if again is None:
        return lambda: plan(where)
    plan(where)
    return lambda: plan(again)


def _start_warm_session(path: str, memory: str) -> Any:
    """Return a session that has already run a job with Python workers."""
    spark = start_delta_session(Path(path).parent, memory)
    # A lambda is pickled by value. Workers do not have this module.
    spark.range(100).mapInArrow(lambda batches: batches, "id long").count()
    return spark


def _prepare_plan(open_table: Any, where: str, again: str | None) -> Work:
    if again is None:
        return lambda: open_table().scan(where).plan(depth="files").num_files
    table = open_table()
    table.scan(where).plan(depth="files")
    return lambda: table.scan(again).plan(depth="files").num_files


# --- Measurements ----------------------------------------------------------------------------------------------------


def run(settings: Settings) -> Section:
    if settings.large:
        return _run_large(settings)
    section = Section(
        NAME,
        "Delta tables, plans on Spark",
        "The table of 1,000,000 files of the section delta, with its filter on a partition and ids. Spark is "
        f"`local[2]` with a driver of {MEMORY}; it is already running and has run a job with Python workers. *Cold* "
        "opens the table too; *second* is another partition after a first plan. CPU time and memory are those of the "
        f"Python process alone. {ROUNDS} rounds.",
    )
    if settings.quick:
        section.remark("Not measured with `--quick`: this needs Java, and jars from Maven.")
        return section
    log = ensure_checkpointed_log(settings, *CHECKPOINTED)
    for title, arguments in _make_arguments(log).items():
        contenders = [
            make_process_contender(name, preparation, path=str(log.path), **arguments)
            for name, preparation in zip(
                [*OURS, PEER], (prepare_tamis, prepare_tamis_on_spark, prepare_delta), strict=True
            )
        ]
        timings = interleave(contenders, ROUNDS, warm_up=False)
        peaks = {name: f"peak {format_mebibytes(each.peak_memory)}" for name, each in timings.items()}
        section.add(f"{log.title}, {title}", make_speed_table(timings, OURS, peaks))
        for name in OURS:
            reached = ratio(timings[PEER], timings[name])
            wanted = 10 if name == "tamis" and title == "cold" else 5 if name == "tamis" else 1
            section.targets.append(Target(f"{title}: {name} is {wanted} × as fast as {PEER}", reached, at_least=wanted))
    return section


def _make_arguments(log: Log) -> dict[str, dict[str, str]]:
    """Return the arguments of a first plan, and of a second plan after it."""
    make_filter = make_partition_filter(log.files)
    first, second = make_filter(log.get_file_number(0)), make_filter(log.get_file_number(1))
    return {"cold": {"where": first}, "second": {"where": first, "again": second}}


def _run_large(settings: Settings) -> Section:
    """Measure five million files with a small driver. Delta on Spark gets more memory and a time limit."""
    section = Section(
        f"{NAME}_large",
        "A Delta table of five million files, plans on Spark",
        f"As in the section {NAME}, with a driver of {LITTLE_MEMORY} for Tamis and of {MEMORY} for Delta on Spark. "
        f"The time limit of a plan was {MAX_SECONDS // 60} minutes. One round.",
    )
    log = ensure_checkpointed_log(settings, *LARGE)
    ours = {
        f"tamis on Spark, {LITTLE_MEMORY}": prepare_tamis_on_spark,
        f"tamis, files in Spark's memory, {LITTLE_MEMORY}": prepare_files_dataframe,
    }
    for title, arguments in _make_arguments(log).items():
        path = str(log.path)
        contenders = [
            make_process_contender(name, each, path=path, memory=LITTLE_MEMORY, **arguments)
            for name, each in ours.items()
        ]
        timings = interleave(contenders, 1, warm_up=False)
        peaks = {name: f"peak {format_mebibytes(each.peak_memory)}" for name, each in timings.items()}
        section.add(f"{log.title}, {title}", make_speed_table(timings, list(ours), peaks))
        try:
            peer = measure(prepare_delta, path=path, max_seconds=MAX_SECONDS, **arguments)
        except Unfinished as unfinished:
            section.remark(f"{PEER}: {unfinished}")
            continue
        section.remark(f"{PEER}: {format_milliseconds(peer.seconds)}")
        for name in ours:
            reached = peer.seconds / timings[name].seconds
            section.targets.append(Target(f"{title}: {name} is as fast as {PEER}", reached, at_least=1))
    return section
