"""Whole queries: aggregates that metadata answers, top-n, a star join, and one that nothing can be skipped for."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from harness import Contender, Section, Settings, Target, here, interleave, mebibytes, ratio, speed_table
from new_process import Work, in_new_process, measure
from table_writers import made_once, size_on_disk

NAME = "pushdown"

OURS = "tamis"
MOST_ROUNDS = 5
SPARK_ROUNDS = 3

FACTS = "facts"
DAYS = "days"

DATA_FILES = {FACTS: f"{FACTS}/month=*/*.parquet", DAYS: f"{DAYS}/*.parquet"}
"""Not the checkpoints of their logs, which are Parquet files too."""


def questions(rows: int) -> dict[str, str]:
    """SQL that all contenders understand. Numbers and days are clustered in the facts, products are not."""
    first, last = rows // 3 + 17, rows // 2 + 5
    return {
        "count, min and max of a range": f"SELECT count(*) AS n, min(id) AS low, max(id) AS high FROM {FACTS} "
        f"WHERE id BETWEEN {first} AND {last}",
        "count by partition": f"SELECT month, count(*) AS n FROM {FACTS} GROUP BY month ORDER BY month",
        "top 10 of a clustered column": f"SELECT id, quantity FROM {FACTS} ORDER BY id DESC LIMIT 10",
        "star join, one day in 400": f"SELECT count(*) AS n, sum(quantity) AS total FROM {FACTS} "
        f"JOIN {DAYS} ON {FACTS}.day = {DAYS}.day WHERE {DAYS}.name = 'day 123'",
        "everything, grouped by product": f"SELECT product, count(*) AS n, sum(quantity) AS total FROM {FACTS} "
        "GROUP BY product ORDER BY product LIMIT 5",
    }


ALL_OF_IT = "everything, grouped by product"

# --- Tables ----------------------------------------------------------------------------------------------------------


def write_star(folder: Path, *, rows: int, files: int) -> None:
    """Facts by month, sorted by number and day, and the days that they are of."""
    import deltalake

    generator = np.random.default_rng(5)
    each = rows // files
    for number in range(files):
        ids = np.arange(number * each, (number + 1) * each)
        days = ids * 400 // rows
        table = pa.table(
            {
                "id": ids,
                "day": days,
                "product": generator.integers(0, 1000, each),
                "quantity": generator.integers(1, 100, each),
                "price": generator.random(each),
                "month": np.full(each, number * 12 // files),
            }
        )
        deltalake.write_deltalake(folder / FACTS, table, mode="append", partition_by=["month"])
    days = pa.table({"day": np.arange(400), "name": [f"day {number}" for number in range(400)]})
    deltalake.write_deltalake(folder / DAYS, days)


# --- Preparations: imports are made here, the work is what is measured ------------------------------------------------


def tamis_rows(path: str, sql: str) -> Work:
    import tamis
    import tamis.query

    # Queries import these when they are needed, and imports are in nobody's time.
    parts = [module.name for module in pkgutil.walk_packages(tamis.query.__path__, "tamis.query.")]
    for name in (*parts, "sqlglot.dialects.duckdb", "tamis.query.policies.protected_table"):
        importlib.import_module(name)

    def work() -> object:
        connection = tamis.connect()
        for name in (FACTS, DAYS):
            connection.register(name, tamis.open(f"{path}/{name}"))
        return _told(connection.sql(sql).to_arrow())

    return work


def duckdb_rows(path: str, sql: str) -> Work:
    import duckdb

    def work() -> object:
        connection = duckdb.connect()
        for name in (FACTS, DAYS):
            connection.execute(f"CREATE VIEW {name} AS FROM read_parquet('{path}/{DATA_FILES[name]}')")
        return _told(connection.sql(sql).to_arrow_table())

    return work


def polars_rows(path: str, sql: str) -> Work:
    import polars

    def work() -> object:
        tables = {
            name: polars.scan_parquet(f"{path}/{DATA_FILES[name]}", hive_partitioning=name == FACTS)
            for name in (FACTS, DAYS)
        }
        return _told(polars.SQLContext(tables).execute(sql).collect().to_arrow())

    return work


def deltalake_rows(path: str, sql: str) -> Work:
    import deltalake

    def work() -> object:
        builder = deltalake.QueryBuilder()
        for name in (FACTS, DAYS):
            builder = builder.register(name, deltalake.DeltaTable(f"{path}/{name}"))
        return _told(pa.table(builder.execute(sql).read_all()))

    return work


PREPARATIONS = {OURS: tamis_rows, "DuckDB": duckdb_rows, "Polars": polars_rows, "deltalake": deltalake_rows}


def _told(rows: pa.Table) -> list[list[int]]:
    """The rows as lists of numbers, whatever types a contender has for sums and counts."""
    return [[int(value) for value in row.values()] for row in rows.to_pylist()]


# --- What is measured ------------------------------------------------------------------------------------------------


def run(settings: Settings) -> Section:
    rows, files = (24_000, 24) if settings.quick else (24_000_000, 120)
    path = made_once(settings.data / f"star-{rows}", lambda folder: write_star(folder, rows=rows, files=files))
    section = Section(
        NAME,
        "Whole queries pushed into tables",
        f"{rows:,} facts in {files} files of a Delta table of 12 partitions, {mebibytes(size_on_disk(path / FACTS))}, "
        "sorted by number and day, and 400 days. DuckDB and Polars are given the Parquet files, and know nothing of "
        "Delta's log; deltalake runs SQL with DataFusion. Each query opens the tables. Bytes are what the process "
        "read, as the operating system counts it.",
    )
    rounds = min(settings.rounds, MOST_ROUNDS)
    for title, sql in questions(rows).items():
        asked = {"path": str(path), "sql": sql}
        read = {name: f"read {mebibytes(measure(each, **asked).bytes_read)}" for name, each in PREPARATIONS.items()}
        cold = interleave([in_new_process(name, each, **asked) for name, each in PREPARATIONS.items()], rounds)
        warm = interleave([here(name, each(**asked)) for name, each in PREPARATIONS.items()], rounds)
        section.add(f"{title}, new process", speed_table(cold, [OURS], read))
        section.add(f"{title}, again in one process", speed_table(warm, [OURS]))
        section.targets += _targets(title, "new process", cold) + _targets(title, "again", warm)
    if not settings.quick:
        _measure_spark(section, path, questions(rows), settings)
    return section


def _targets(title: str, state: str, timings: Mapping[str, Any]) -> list[Target]:
    if title == ALL_OF_IT:
        text = f"{title}, {state}: at most 1.1 × the time of DuckDB"
        return [Target(text, ratio(timings[OURS], timings["DuckDB"]), at_most=1.1)]
    return [
        Target(f"{title}, {state}: faster than {peer}", ratio(timings[peer], timings[OURS]), at_least=1)
        for peer in timings
        if peer != OURS
    ]


def _measure_spark(section: Section, path: Path, asked: Mapping[str, str], settings: Settings) -> None:
    """The same on Spark, against Delta's own reader there."""
    from spark_sessions import delta_session

    import tamis

    with delta_session(settings.data) as spark:
        for title, sql in asked.items():

            def through_tamis(sql: str = sql) -> object:
                connection = tamis.connect(spark=spark)
                for name in (FACTS, DAYS):
                    connection.register(name, connection.open(path / name))
                return _told(connection.sql(sql).toArrow())

            def through_delta(sql: str = sql) -> object:
                for name in (FACTS, DAYS):
                    spark.read.format("delta").load(str(path / name)).createOrReplaceTempView(name)
                return _told(spark.sql(sql).toArrow())

            contenders: list[Contender] = [
                here("tamis on Spark", through_tamis),
                here("Delta on Spark", through_delta),
            ]
            timings = interleave(contenders, SPARK_ROUNDS)
            section.add(f"{title}, on Spark", speed_table(timings, ["tamis on Spark"]))
            found = ratio(timings["Delta on Spark"], timings["tamis on Spark"])
            section.targets.append(Target(f"{title}, on Spark: at least 0.9 of Delta's reader", found, at_least=0.9))
