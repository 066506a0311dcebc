"""Whole queries: metadata-only aggregation, top-n, a star join, and a query that needs every row."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from harness import Contender, Section, Settings, Target, format_mebibytes, here, interleave, make_speed_table, ratio
from new_process import Work, make_process_contender, measure
from table_writers import ensure_table, measure_size

NAME = "pushdown"

OURS = "tamis"
MAX_ROUNDS = 5
SPARK_ROUNDS = 3

FACTS = "facts"
DAYS = "days"

DATA_FILES = {FACTS: f"{FACTS}/month=*/*.parquet", DAYS: f"{DAYS}/*.parquet"}
"""Patterns that exclude the checkpoints of the logs, which are Parquet files too."""


def make_queries(rows: int) -> dict[str, str]:
    """Return SQL that all contenders understand. The facts are clustered by id and day, not by product."""
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


UNSELECTIVE = "everything, grouped by product"

# --- Tables ----------------------------------------------------------------------------------------------------------


def write_star(folder: Path, *, rows: int, files: int) -> None:
    """Write the facts, partitioned by month and sorted by id and day, and the days."""
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


# --- Preparations: they import what the work needs; only the work is measured ----------------------------------------


def prepare_tamis(path: str, sql: str) -> Work:
    import tamis
    import tamis.query

    # Queries import these on first use. Times exclude imports.
    parts = [module.name for module in pkgutil.walk_packages(tamis.query.__path__, "tamis.query.")]
    for name in (*parts, "sqlglot.dialects.duckdb", "tamis.query.policies.protected_table"):
        importlib.import_module(name)

    def work() -> object:
        connection = tamis.connect()
        for name in (FACTS, DAYS):
            connection.register(name, tamis.open(f"{path}/{name}"))
        return _to_numbers(connection.sql(sql).to_arrow())

    return work


def prepare_duckdb(path: str, sql: str) -> Work:
    import duckdb

    def work() -> object:
        connection = duckdb.connect()
        for name in (FACTS, DAYS):
            connection.execute(f"CREATE VIEW {name} AS FROM read_parquet('{path}/{DATA_FILES[name]}')")
        return _to_numbers(connection.sql(sql).to_arrow_table())

    return work


def prepare_polars(path: str, sql: str) -> Work:
    import polars

    def work() -> object:
        tables = {
            name: polars.scan_parquet(f"{path}/{DATA_FILES[name]}", hive_partitioning=name == FACTS)
            for name in (FACTS, DAYS)
        }
        return _to_numbers(polars.SQLContext(tables).execute(sql).collect().to_arrow())

    return work


def prepare_deltalake(path: str, sql: str) -> Work:
    import deltalake

    def work() -> object:
        builder = deltalake.QueryBuilder()
        for name in (FACTS, DAYS):
            builder = builder.register(name, deltalake.DeltaTable(f"{path}/{name}"))
        return _to_numbers(pa.table(builder.execute(sql).read_all()))

    return work


PREPARATIONS = {OURS: prepare_tamis, "DuckDB": prepare_duckdb, "Polars": prepare_polars, "deltalake": prepare_deltalake}


def _to_numbers(rows: pa.Table) -> list[list[int]]:
    """Return the rows as lists of integers, since contenders have different types for sums and counts."""
    return [[int(value) for value in row.values()] for row in rows.to_pylist()]


# --- Measurements ----------------------------------------------------------------------------------------------------


def run(settings: Settings) -> Section:
    rows, files = (24_000, 24) if settings.quick else (24_000_000, 120)
    path = ensure_table(settings.data / f"star-{rows}", lambda folder: write_star(folder, rows=rows, files=files))
    section = Section(
        NAME,
        "Whole queries pushed into tables",
        f"{rows:,} facts in {files} files of a Delta table of 12 partitions, "
        f"{format_mebibytes(measure_size(path / FACTS))}, "
        "sorted by id and day, and 400 days. DuckDB and Polars read the Parquet files, without Delta's log; deltalake "
        "runs SQL with DataFusion. Each query opens the tables. Bytes are what the process read, as the operating "
        "system counts it.",
    )
    rounds = min(settings.rounds, MAX_ROUNDS)
    for title, sql in make_queries(rows).items():
        arguments = {"path": str(path), "sql": sql}
        read = {
            name: f"read {format_mebibytes(measure(each, **arguments).bytes_read)}"
            for name, each in PREPARATIONS.items()
        }
        cold = interleave(
            [make_process_contender(name, each, **arguments) for name, each in PREPARATIONS.items()], rounds
        )
        warm = interleave([here(name, each(**arguments)) for name, each in PREPARATIONS.items()], rounds)
        section.add(f"{title}, new process", make_speed_table(cold, [OURS], read))
        section.add(f"{title}, again in one process", make_speed_table(warm, [OURS]))
        section.targets += _make_targets(title, "new process", cold) + _make_targets(title, "again", warm)
    if not settings.quick:
        _measure_spark(section, path, make_queries(rows), settings)
    return section


def _make_targets(title: str, state: str, timings: Mapping[str, Any]) -> list[Target]:
    if title == UNSELECTIVE:
        text = f"{title}, {state}: at most 1.1 × the time of DuckDB"
        return [Target(text, ratio(timings[OURS], timings["DuckDB"]), at_most=1.1)]
    return [
        Target(f"{title}, {state}: faster than {peer}", ratio(timings[peer], timings[OURS]), at_least=1)
        for peer in timings
        if peer != OURS
    ]


def _measure_spark(section: Section, path: Path, queries: Mapping[str, str], settings: Settings) -> None:
    """Measure the same queries on Spark, against Delta's reader."""
    from spark_sessions import open_delta_session

    import tamis

    with open_delta_session(settings.data) as spark:
        for title, sql in queries.items():

            def query_with_tamis(sql: str = sql) -> object:
                connection = tamis.connect(spark=spark)
                for name in (FACTS, DAYS):
                    connection.register(name, connection.open(path / name))
                return _to_numbers(connection.sql(sql).toArrow())

            def query_with_delta(sql: str = sql) -> object:
                for name in (FACTS, DAYS):
                    spark.read.format("delta").load(str(path / name)).createOrReplaceTempView(name)
                return _to_numbers(spark.sql(sql).toArrow())

            contenders: list[Contender] = [
                here("tamis on Spark", query_with_tamis),
                here("Delta on Spark", query_with_delta),
            ]
            timings = interleave(contenders, SPARK_ROUNDS)
            section.add(f"{title}, on Spark", make_speed_table(timings, ["tamis on Spark"]))
            found = ratio(timings["Delta on Spark"], timings["tamis on Spark"])
            section.targets.append(Target(f"{title}, on Spark: at least 0.9 of Delta's reader", found, at_least=0.9))
