"""Queries on Spark: with Tamis, with Delta's reader and with Spark's own reader of Parquet files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import Section, Settings, Target, format_mebibytes, here, interleave, make_speed_table, ratio
from spark_sessions import open_delta_session
from spark_tables import ensure_line_items
from table_writers import measure_size

import tamis

NAME = "spark"

FILTERS = {
    "selective, one day and one quantity": "l_shipdate = DATE '1995-03-15' AND l_quantity = 17",
    "medium, three months": "l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1995-03-31'",
    "everything": None,
}
COLUMNS = ["l_shipdate", "l_quantity", "l_extendedprice"]
OURS = "tamis"
MAX_ROUNDS = 5


def _sum_prices(frame: Any) -> tuple[object, ...]:
    from pyspark.sql import functions

    return tuple(frame.agg(functions.count("*"), functions.sum("l_extendedprice")).collect()[0])


def query_with_tamis(spark: Any, path: Path, where: str | None) -> Callable[[], object]:
    return lambda: _sum_prices(tamis.open(path).scan(where, columns=COLUMNS).to_spark(spark))


def query_with_spark(spark: Any, path: Path, where: str | None, form: str) -> Callable[[], object]:
    def work() -> object:
        frame = spark.read.format(form).load(str(path)).select(COLUMNS)
        return _sum_prices(frame if where is None else frame.where(where))

    return work


def run(settings: Settings) -> Section:
    scale = 5
    section = Section(
        NAME,
        "Queries on Spark",
        f"TPC-H's lineitem at scale {scale:g}, zstd, as Delta tables and as Hive-style tables by ship mode. Each is "
        "measured sorted by ship date, and in the order in which it was generated. Each query opens the table and "
        "returns the number of rows and the sum of the prices. Spark is `local[2]`. The CPU time excludes the JVM.",
    )
    if settings.quick:
        section.remark("Not measured with `--quick`: this needs Java, and jars from Maven.")
        return section
    rounds = min(settings.rounds, MAX_ROUNDS)
    tables = ensure_line_items(settings.data, scale)
    with open_delta_session(settings.data) as spark:
        for (form, order), path in tables.items():
            for title, where in FILTERS.items():
                peers = {"delta": ("Delta's reader", "delta"), "hive": ("Spark's reader", "parquet")}
                peer, spark_format = peers[form]
                contenders = [
                    here(OURS, query_with_tamis(spark, path, where)),
                    here(peer, query_with_spark(spark, path, where, spark_format)),
                ]
                timings = interleave(contenders, rounds)
                name = f"{form}, {order}: {title}"
                section.add(
                    f"{name} ({format_mebibytes(measure_size(path))} on disk)", make_speed_table(timings, [OURS])
                )
                reached = ratio(timings[peer], timings[OURS])
                section.targets.append(Target(f"{name}: at least 0.9 of {peer}", reached, at_least=0.9))
    return section
