"""Queries on Spark through Tamis, through Delta's reader and through Spark's own reader of Parquet files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import Section, Settings, Target, here, interleave, mebibytes, ratio, speed_table
from spark_sessions import delta_session
from spark_tables import line_item_tables
from table_writers import size_on_disk

import tamis

NAME = "spark"

QUESTIONS = {
    "selective, one day and one quantity": "l_shipdate = DATE '1995-03-15' AND l_quantity = 17",
    "medium, three months": "l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1995-03-31'",
    "everything": None,
}
COLUMNS = ["l_shipdate", "l_quantity", "l_extendedprice"]
OURS = "tamis"
MOST_ROUNDS = 5


def _sums(frame: Any) -> tuple[object, ...]:
    from pyspark.sql import functions

    return tuple(frame.agg(functions.count("*"), functions.sum("l_extendedprice")).collect()[0])


def through_tamis(spark: Any, path: Path, where: str | None) -> Callable[[], object]:
    return lambda: _sums(tamis.open(path).scan(where, columns=COLUMNS).to_spark(spark))


def through_spark(spark: Any, path: Path, where: str | None, form: str) -> Callable[[], object]:
    def work() -> object:
        frame = spark.read.format(form).load(str(path)).select(COLUMNS)
        return _sums(frame if where is None else frame.where(where))

    return work


def run(settings: Settings) -> Section:
    scale = 5
    section = Section(
        NAME,
        "Queries on Spark",
        f"TPC-H's lineitem at scale {scale:g}, zstd, as Delta tables and as Hive-style tables by the way of shipping, "
        "each sorted by the day of shipping and as generated. Each query opens the table and asks for the number of "
        "rows and the sum of the prices; Spark is `local[2]`. The time of the JVM is not in the CPU time.",
    )
    if settings.quick:
        section.remark("Left out with `--quick`: it needs Java, and jars from Maven.")
        return section
    rounds = min(settings.rounds, MOST_ROUNDS)
    tables = line_item_tables(settings.data, scale)
    with delta_session(settings.data) as spark:
        for (form, order), path in tables.items():
            for title, where in QUESTIONS.items():
                peers = {"delta": ("Delta's reader", "delta"), "hive": ("Spark's reader", "parquet")}
                peer, spark_format = peers[form]
                contenders = [
                    here(OURS, through_tamis(spark, path, where)),
                    here(peer, through_spark(spark, path, where, spark_format)),
                ]
                timings = interleave(contenders, rounds)
                name = f"{form}, {order}: {title}"
                section.add(f"{name} ({mebibytes(size_on_disk(path))} on disk)", speed_table(timings, [OURS]))
                reached = ratio(timings[peer], timings[OURS])
                section.targets.append(Target(f"{name}: at least 0.9 of {peer}", reached, at_least=0.9))
    return section
