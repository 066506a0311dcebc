"""Plans and queries of Iceberg tables through Tamis and through Iceberg on Spark.

Iceberg's jars are made for an older Spark than the other benchmarks run with. This file is also the program that runs
with that one: `.venv-iceberg` has it, and lies before this environment on the path of modules.
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

from bench_iceberg import by_bounds, by_partition_and_bounds, every_file, table_of
from bench_spark import QUESTIONS, through_spark, through_tamis
from harness import ROOT, Contender, Measured, Section, Settings, Target, Timings, here, interleave, ratio, speed_table
from iceberg_metadata import Shape
from spark_sessions import local_session
from spark_tables import line_item_tables

NAME = "iceberg_on_spark"

OURS, PEER = "tamis", "Iceberg on Spark"
JARS = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
SCALE = 5
ROUNDS = 5
LARGE_ROUNDS = 3
PLANNED = {"100,000 files": (Shape(100_000, 20), ROUNDS), "1,000,000 files": (Shape(1_000_000, 200), LARGE_ROUNDS)}
PLANS = {"every file": every_file, "partition and ids": by_partition_and_bounds, "one id": by_bounds}


def run(settings: Settings) -> Section:
    section = Section(
        NAME,
        "Iceberg tables on Spark",
        "The tables of metadata alone of the section iceberg, planned in this process and by Iceberg's reader for "
        "the tasks of a query, opened anew for each plan; then lineitem of the section spark, appended file by file "
        "by Iceberg, and the queries of that section. Spark 4.1 is `local[2]`: Iceberg has no jar for a newer one. "
        "The time of the JVM is not in the CPU time.",
    )
    modules = next((ROOT / ".venv-iceberg").glob("lib/python*/site-packages"), None)
    if settings.quick or modules is None:
        section.remark("Left out: it needs `scripts/setup_iceberg_spark.sh`, Java, and jars from Maven.")
        return section
    for shape, rounds in PLANNED.values():
        table_of(settings, "", shape, rounds)
    line_item_tables(settings.data, SCALE)
    for title, timings in _measured_beside(settings.data, modules).items():
        section.add(title, speed_table(timings, [OURS]))
        reached = ratio(timings[PEER], timings[OURS])
        wanted = 1 if title.startswith("plan") else 0.9
        section.targets.append(Target(f"{title}: at least {wanted} of {PEER}", reached, at_least=wanted))
    return section


def _measured_beside(data: Path, modules: Path) -> dict[str, dict[str, Timings]]:
    """All comparisons, from a process with the other Spark."""
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


# --- In the other process --------------------------------------------------------------------------------------------


def _session(data: Path) -> Any:
    iceberg = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": str(data / "iceberg-warehouse"),
    }
    return local_session(JARS, "4g", **iceberg)


def _line_items(spark: Any, data: Path, order: str) -> Path:
    """Iceberg's own copy of the Delta table, which stays where it was written: its metadata names the place."""
    name = f"lineitem_{order}_{SCALE}"
    place = data / "iceberg-warehouse" / "db" / name
    whole = data / "iceberg-warehouse" / f"{name}.whole"
    if not whole.exists():
        spark.sql(f"DROP TABLE IF EXISTS ice.db.{name}")
        for number, file in enumerate(sorted((data / f"lineitem-delta-{order}-{SCALE}").glob("*.parquet"))):
            rows = spark.read.parquet(str(file)).coalesce(1).writeTo(f"ice.db.{name}")
            if number == 0:
                rows.create()
            else:
                rows.append()
        whole.touch()
    return place


def _compared(data: Path) -> dict[str, dict[str, Timings]]:
    import tamis

    settings = Settings(data)
    spark = _session(data)
    found = {}
    for title, (shape, rounds) in PLANNED.items():
        table = table_of(settings, title, shape, rounds)
        for name, question in PLANS.items():
            where, path = table.asked(question, 0), str(table.path)

            def planned_by_us(path: str = path, where: str = where) -> object:
                return tamis.open(path).scan(where).plan(depth="files").num_files > 0

            def planned_by_iceberg(path: str = path, where: str = where) -> object:
                return spark.read.format("iceberg").load(path).where(where)._jdf.rdd().getNumPartitions() > 0

            found[f"plan of {title}: {name}"] = _turns(planned_by_us, planned_by_iceberg, rounds)
    for order in ("sorted", "unsorted"):
        place = _line_items(spark, data, order)
        for name, where in QUESTIONS.items():
            ours, theirs = through_tamis(spark, place, where), through_spark(spark, place, where, "iceberg")
            found[f"{order}: {name}"] = _turns(ours, theirs, ROUNDS)
    spark.stop()
    return found


def _turns(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> dict[str, Timings]:
    contenders: list[Contender] = [here(OURS, ours), here(PEER, theirs)]
    return interleave(contenders, rounds)


def main() -> None:
    compared = _compared(Path(sys.argv[1]))
    answer = {
        title: {
            name: [asdict(each) | {"found": repr(each.found)} for each in of_one.rounds]
            for name, of_one in of_all.items()
        }
        for title, of_all in compared.items()
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
