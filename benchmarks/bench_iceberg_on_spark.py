"""Plans and queries of Iceberg tables through Tamis and through Iceberg on Spark.

Iceberg's jars need an older Spark than the other benchmarks. This file is also the program that runs with that Spark:
`.venv-iceberg` has it, and comes before this environment on `PYTHONPATH`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench_iceberg import ensure_iceberg_table, filter_id, filter_nothing, filter_partition_and_ids
from bench_spark import FILTERS, query_with_spark, query_with_tamis
from harness import (
    ROOT,
    Contender,
    Measured,
    Section,
    Settings,
    Target,
    Timings,
    here,
    interleave,
    make_speed_table,
    ratio,
)
from iceberg_metadata import Shape
from spark_sessions import start_local_session
from spark_tables import ensure_line_items

NAME = "iceberg_on_spark"

OURS, PEER = "tamis", "Iceberg on Spark"
JARS = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
SCALE = 5
ROUNDS = 5
LARGE_ROUNDS = 3
PLANNED = {"100,000 files": (Shape(100_000, 20), ROUNDS), "1,000,000 files": (Shape(1_000_000, 200), LARGE_ROUNDS)}
PLANS = {"every file": filter_nothing, "partition and ids": filter_partition_and_ids, "one id": filter_id}


def run(settings: Settings) -> Section:
    section = Section(
        NAME,
        "Iceberg tables on Spark",
        "First the tables of the section iceberg, which have metadata only: planned by Tamis in this process, and by "
        "Iceberg's reader on Spark. Each plan opens the table. Then lineitem of the section spark, appended file by "
        "file by Iceberg, with the queries of that section. Spark is 4.1, `local[2]`: Iceberg has no jar for a newer "
        "one. The CPU time excludes the JVM.",
    )
    modules = next((ROOT / ".venv-iceberg").glob("lib/python*/site-packages"), None)
    if settings.quick or modules is None:
        section.remark("Not measured: this needs `scripts/setup_iceberg_spark.sh`, Java, and jars from Maven.")
        return section
    for shape, rounds in PLANNED.values():
        ensure_iceberg_table(settings, "", shape, rounds)
    ensure_line_items(settings.data, SCALE)
    for title, timings in _measure_in_other_process(settings.data, modules).items():
        section.add(title, make_speed_table(timings, [OURS]))
        reached = ratio(timings[PEER], timings[OURS])
        wanted = 1 if title.startswith("plan") else 0.9
        section.targets.append(Target(f"{title}: at least {wanted} of {PEER}", reached, at_least=wanted))
    return section


def _measure_in_other_process(data: Path, modules: Path) -> dict[str, dict[str, Timings]]:
    """Return all comparisons, measured by a process with the other Spark."""
    path = os.pathsep.join([str(modules), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, __file__, str(data)],
        env=os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    compared = json.loads(done.stdout.splitlines()[-1])
    return {
        title: {name: Timings(name, tuple(Measured(**each) for each in runs)) for name, runs in of_all.items()}
        for title, of_all in compared.items()
    }


# --- The process with the other Spark --------------------------------------------------------------------------------


def _start_session(data: Path) -> Any:
    iceberg = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": str(data / "iceberg-warehouse"),
    }
    return start_local_session(JARS, "4g", **iceberg)


def _ensure_iceberg_copy(spark: Any, data: Path, order: str) -> Path:
    """Return the location of a copy of the Delta table, which Iceberg writes once. Its metadata has absolute paths."""
    name = f"lineitem_{order}_{SCALE}"
    location = data / "iceberg-warehouse" / "db" / name
    marker = data / "iceberg-warehouse" / f"{name}.whole"
    if not marker.exists():
        spark.sql(f"DROP TABLE IF EXISTS ice.db.{name}")
        for number, file in enumerate(sorted((data / f"lineitem-delta-{order}-{SCALE}").glob("*.parquet"))):
            rows = spark.read.parquet(str(file)).coalesce(1).writeTo(f"ice.db.{name}")
            if number == 0:
                rows.create()
            else:
                rows.append()
        marker.touch()
    return location


def _compare(data: Path) -> dict[str, dict[str, Timings]]:
    import tamis

    settings = Settings(data)
    spark = _start_session(data)
    found = {}
    for title, (shape, rounds) in PLANNED.items():
        table = ensure_iceberg_table(settings, title, shape, rounds)
        for name, make_filter in PLANS.items():
            where, path = table.make_filter(make_filter, 0), str(table.path)

            def plan_with_tamis(path: str = path, where: str = where) -> object:
                return tamis.open(path).scan(where).plan(depth="files").num_files > 0

            def plan_with_iceberg(path: str = path, where: str = where) -> object:
                return spark.read.format("iceberg").load(path).where(where)._jdf.rdd().getNumPartitions() > 0

            found[f"plan of {title}: {name}"] = _take_turns(plan_with_tamis, plan_with_iceberg, rounds)
    for order in ("sorted", "unsorted"):
        location = _ensure_iceberg_copy(spark, data, order)
        for name, where in FILTERS.items():
            ours, theirs = query_with_tamis(spark, location, where), query_with_spark(spark, location, where, "iceberg")
            found[f"{order}: {name}"] = _take_turns(ours, theirs, ROUNDS)
    spark.stop()
    return found


def _take_turns(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> dict[str, Timings]:
    contenders: list[Contender] = [here(OURS, ours), here(PEER, theirs)]
    return interleave(contenders, rounds)


def main() -> None:
    compared = _compare(Path(sys.argv[1]))
    results = {
        title: {
            name: [asdict(each) | {"found": repr(each.found)} for each in of_one.rounds]
            for name, of_one in of_all.items()
        }
        for title, of_all in compared.items()
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main()
