"""Plans of a large Delta table: in this process, by Tamis in Spark's executors, and by Delta on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench_delta import CHECKPOINTED, by_partition_and_statistics, checkpointed
from harness import Section, Settings, Target, interleave, mebibytes, ratio, speed_table
from new_process import Work, in_new_process
from spark_sessions import start

NAME = "delta_on_spark"

ROUNDS = 2
MEMORY = "4g"
OURS = ["tamis", "tamis on Spark"]
PEER = "Delta on Spark"

# --- Preparations: Spark is started here, the work is what is measured ------------------------------------------------


def tamis_plan(path: str, where: str, again: str | None = None) -> Work:
    import tamis

    return _planned(lambda: tamis.open(path), where, again)


def tamis_plan_on_spark(path: str, where: str, again: str | None = None) -> Work:
    import tamis

    connection = tamis.connect(spark=_warmed_up(path), planning="spark")
    return _planned(lambda: connection.open(path), where, again)


def delta_plan(path: str, where: str, again: str | None = None) -> Work:
    spark = _warmed_up(path)

    def plan(asked: str) -> int:
        return len(spark.read.format("delta").load(path).where(asked).inputFiles())

    if again is None:
        return lambda: plan(where)
    plan(where)
    return lambda: plan(again)


def _warmed_up(path: str) -> Any:
    """A session that has run a job with Python workers before."""
    spark = start(Path(path).parent, MEMORY)
    spark.range(100).mapInArrow(_same, "id long").count()
    return spark


def _same(batches: Any) -> Any:
    return batches


def _planned(opened: Any, where: str, again: str | None) -> Work:
    if again is None:
        return lambda: opened().scan(where).plan(depth="files").num_files
    table = opened()
    table.scan(where).plan(depth="files")
    return lambda: table.scan(again).plan(depth="files").num_files


# --- What is measured ------------------------------------------------------------------------------------------------


def run(settings: Settings) -> Section:
    section = Section(
        NAME,
        "Delta tables, plans on Spark",
        "The table of 1,000,000 files of the section delta, and its question about a partition and ids. Spark is "
        f"`local[2]` with a driver of {MEMORY}, has been started, and has run a job with Python workers. *Cold* opens "
        "the table too; *second* is another partition after a first plan. CPU time and memory are of the Python "
        "process alone, "
        f"{ROUNDS} rounds.",
    )
    if settings.quick:
        section.remark("Left out with `--quick`: it needs Java, and jars from Maven.")
        return section
    log = checkpointed(settings, *CHECKPOINTED)
    question = by_partition_and_statistics(log.files)
    first, second = question(log.number(0)), question(log.number(1))
    for title, asked in (("cold", {"where": first}), ("second", {"where": first, "again": second})):
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
