"""Plans of a large Delta table: in this process, by Tamis in Spark's executors, and by Delta on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench_delta import CHECKPOINTED, Log, by_partition_and_statistics, checkpointed
from harness import Section, Settings, Target, interleave, mebibytes, milliseconds, ratio, speed_table
from new_process import Unfinished, Work, in_new_process, measure
from spark_sessions import start

NAME = "delta_on_spark"

ROUNDS = 2
MEMORY = "4g"
LITTLE_MEMORY = "1g"
"""Of the driver with which tables of five million files are planned."""
LARGE = (100, 50_000)
LONGEST = 480
"""Seconds that Delta on Spark is given for a plan of them."""
OURS = ["tamis", "tamis on Spark"]
PEER = "Delta on Spark"

# --- Preparations: Spark is started here, the work is what is measured ------------------------------------------------


def tamis_plan(path: str, where: str, again: str | None = None) -> Work:
    import tamis

    return _planned(lambda: tamis.open(path), where, again)


def tamis_plan_on_spark(path: str, where: str, again: str | None = None, memory: str = MEMORY) -> Work:
    import tamis

    connection = tamis.connect(spark=_warmed_up(path, memory), planning="spark")
    return _planned(lambda: connection.open(path), where, again)


def tamis_plan_of_files_in_spark(path: str, where: str, again: str | None = None, memory: str = MEMORY) -> Work:
    import tamis

    spark = _warmed_up(path, memory)
    columns = ["id"]
    if again is None:
        return lambda: tamis.open(path).files_dataframe(spark, columns).files_for_scan(where).files.num_rows
    files = tamis.open(path).files_dataframe(spark, columns)
    return lambda: files.files_for_scan(again).files.num_rows


def delta_plan(path: str, where: str, again: str | None = None, memory: str = MEMORY) -> Work:
    spark = _warmed_up(path, memory)

    def plan(asked: str) -> int:
        return len(spark.read.format("delta").load(path).where(asked).inputFiles())

    if again is None:
        return lambda: plan(where)
    plan(where)
    return lambda: plan(again)


def _warmed_up(path: str, memory: str) -> Any:
    """A session that has run a job with Python workers before."""
    spark = start(Path(path).parent, memory)
    # A function without a name travels as it is: workers do not have this module.
    spark.range(100).mapInArrow(lambda batches: batches, "id long").count()
    return spark


def _planned(opened: Any, where: str, again: str | None) -> Work:
    if again is None:
        return lambda: opened().scan(where).plan(depth="files").num_files
    table = opened()
    table.scan(where).plan(depth="files")
    return lambda: table.scan(again).plan(depth="files").num_files


# --- What is measured ------------------------------------------------------------------------------------------------


def run(settings: Settings) -> Section:
    if settings.large:
        return _run_large(settings)
    section = Section(
        NAME,
        "Delta tables, plans on Spark",
        "The table of 1,000,000 files of the section delta, and its question about a partition and ids. Spark is "
        f"`local[2]` with a driver of {MEMORY}, has been started, and has run a job with Python workers. *Cold* opens "
        "the table too; *second* is another partition after a first plan. CPU time and memory are of the Python "
        f"process alone, {ROUNDS} rounds.",
    )
    if settings.quick:
        section.remark("Left out with `--quick`: it needs Java, and jars from Maven.")
        return section
    log = checkpointed(settings, *CHECKPOINTED)
    for title, asked in _questions(log).items():
        contenders = [
            in_new_process(name, preparation, path=str(log.path), **asked)
            for name, preparation in zip([*OURS, PEER], (tamis_plan, tamis_plan_on_spark, delta_plan), strict=True)
        ]
        timings = interleave(contenders, ROUNDS, warm_up=False)
        peaks = {name: f"peak {mebibytes(each.peak_memory)}" for name, each in timings.items()}
        section.add(f"{log.title}, {title}", speed_table(timings, OURS, peaks))
        for name in OURS:
            reached = ratio(timings[PEER], timings[name])
            wanted = 10 if name == "tamis" and title == "cold" else 5 if name == "tamis" else 1
            section.targets.append(Target(f"{title}: {name} is {wanted} × as fast as {PEER}", reached, at_least=wanted))
    return section


def _questions(log: Log) -> dict[str, dict[str, str]]:
    """What is asked from nothing, and what after it."""
    question = by_partition_and_statistics(log.files)
    first, second = question(log.number(0)), question(log.number(1))
    return {"cold": {"where": first}, "second": {"where": first, "again": second}}


def _run_large(settings: Settings) -> Section:
    """Five million files with a driver of little memory, which Delta on Spark gets more of, and a limit of its time."""
    section = Section(
        f"{NAME}_large",
        "A Delta table of five million files, plans on Spark",
        f"As in the section {NAME}, with a driver of {LITTLE_MEMORY} for Tamis and of {MEMORY} for Delta on Spark, "
        f"which was given {LONGEST // 60} minutes for a plan. One round.",
    )
    log = checkpointed(settings, *LARGE)
    ours = {
        f"tamis on Spark, {LITTLE_MEMORY}": tamis_plan_on_spark,
        f"tamis, files in Spark's memory, {LITTLE_MEMORY}": tamis_plan_of_files_in_spark,
    }
    for title, asked in _questions(log).items():
        path = str(log.path)
        contenders = [
            in_new_process(name, each, path=path, memory=LITTLE_MEMORY, **asked) for name, each in ours.items()
        ]
        timings = interleave(contenders, 1, warm_up=False)
        peaks = {name: f"peak {mebibytes(each.peak_memory)}" for name, each in timings.items()}
        section.add(f"{log.title}, {title}", speed_table(timings, list(ours), peaks))
        try:
            peer = measure(delta_plan, path=path, longest=LONGEST, **asked)
        except Unfinished as unfinished:
            section.remark(f"{PEER}: {unfinished}")
            continue
        section.remark(f"{PEER}: {milliseconds(peer.seconds)}")
        for name in ours:
            reached = peer.seconds / timings[name].seconds
            section.targets.append(Target(f"{title}: {name} is as fast as {PEER}", reached, at_least=1))
    return section
