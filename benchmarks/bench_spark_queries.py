"""SQL on Spark: `c.sql` of Tamis, against the same query over the reader of the table's format.

Iceberg's jars need an older Spark than Delta's. This file is also the program that runs with that Spark.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import ROOT, Measured, Section, Settings, Target, Timings, here, interleave, make_speed_table, ratio
from spark_sessions import start_delta_session, start_local_session
from table_writers import ensure_table

NAME = "spark_queries"

OURS, PEER = "tamis", "the format's reader"
ICEBERG_JARS = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
ROUNDS = 5
SCALE = 1
MIN_RATIO = 0.95


@dataclass(frozen=True)
class Query:
    """A query over the views `lineitem`, `orders` and `part`."""

    title: str
    text: str


GROUP_BY = Query("GROUP BY a partition column", "SELECT o_month, count(*) AS n FROM orders GROUP BY o_month")
LOOKUP = Query("lookup of an order", "SELECT * FROM orders WHERE o_orderkey = 1234565 AND o_month = '1994-03'")
POINT = Query("point by a key", "SELECT l_partkey, l_quantity FROM lineitem WHERE l_orderkey = 3000001")
DAY = Query(
    "one day",
    "SELECT count(*) AS n, sum(l_extendedprice) AS s FROM lineitem WHERE l_shipdate = DATE '1995-03-15'",
)
HALF_YEAR = Query(
    "half a year",
    "SELECT count(*) AS n, sum(l_extendedprice) AS s FROM lineitem "
    "WHERE l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1995-06-30'",
)
MONTH = Query("one partition", "SELECT count(*) AS n, sum(o_totalprice) AS s FROM orders WHERE o_month = '1996-03'")
FULL = Query(
    "full scan",
    "SELECT l_returnflag, sum(l_quantity) AS q, sum(l_extendedprice * (1 - l_discount)) AS s, count(*) AS n "
    "FROM lineitem GROUP BY l_returnflag ORDER BY l_returnflag",
)
MINMAX = Query("count and max behind a filter", "SELECT count(*), max(l_shipdate) FROM lineitem WHERE l_orderkey > 100")
TOP = Query("top 5", "SELECT l_orderkey, l_shipdate FROM lineitem ORDER BY l_shipdate DESC, l_orderkey LIMIT 5")
STAR = Query(
    "star join",
    "SELECT p_brand, sum(l_extendedprice) AS s FROM lineitem JOIN part ON l_partkey = p_partkey "
    "JOIN orders ON l_orderkey = o_orderkey WHERE p_brand = 'Brand#23' AND o_month = '1996-03' "
    "GROUP BY p_brand",
)
QUERIES = (GROUP_BY, LOOKUP, MONTH, POINT, DAY, HALF_YEAR, FULL, MINMAX, TOP, STAR)

TABLES = ("lineitem", "orders", "part")
MONTH_OF_ORDER = "date_format(o_orderdate, 'yyyy-MM') AS o_month"


def run(settings: Settings) -> Section:
    section = Section(
        NAME,
        "SQL on Spark",
        f"TPC-H at scale {SCALE:g}, written by Delta and by Iceberg on Spark: orders by month of the order, lineitem "
        "sorted by ship date. *flat* tables were only written. *changed* tables had rows deleted (deletion vectors, "
        "position deletes of merge-on-read), a column renamed and one added. Hive tables are folders of Parquet. Each "
        "query goes through `c.sql` of Tamis, and through `spark.sql` over views of the format's reader; tables and "
        "views are made once. Spark is `local[2]`.",
    )
    if settings.quick:
        section.remark("Not measured with `--quick`: this needs Java, and jars from Maven.")
        return section
    compared = _compare_delta(settings.data)
    modules = next((ROOT / ".venv-iceberg").glob("lib/python*/site-packages"), None)
    if modules is not None:
        compared |= _measure_in_other_process(settings.data, modules)
    else:
        section.remark("Iceberg was not measured: `scripts/setup_iceberg_spark.sh` installs its Spark.")
    for title, timings in compared.items():
        section.add(title, make_speed_table(timings, [OURS]))
        reached = ratio(timings[PEER], timings[OURS])
        section.targets.append(Target(f"{title}: at least {MIN_RATIO} of {PEER}", reached, at_least=MIN_RATIO))
    return section


def _generate(folder: Path) -> None:
    program = Path(sys.executable).with_name("tpchgen-cli")
    for table in TABLES:
        command = [str(program), "parquet", "--scale-factor", f"{SCALE:g}", "--tables", table]
        subprocess.run([*command, "--output-dir", str(folder)], check=True, capture_output=True)


def _read_raw(spark: Any, data: Path, table: str) -> Any:
    raw = ensure_table(data / f"tpch-all-{SCALE:g}", _generate)
    rows = spark.read.parquet(str(raw / f"{table}.parquet"))
    if table == "lineitem":
        return rows.repartitionByRange(12, "l_shipdate").sortWithinPartitions("l_shipdate")
    if table == "orders":
        return rows.selectExpr("*", MONTH_OF_ORDER).repartition(2, "o_month").sortWithinPartitions("o_orderkey")
    return rows


# --- Delta and Hive ---------------------------------------------------------------------------------------------------


def _compare_delta(data: Path) -> dict[str, dict[str, Timings]]:
    spark = start_delta_session(data, "4g")
    writers: dict[str, Callable[[Any, Path, str], None]] = {
        "Delta, flat": _write_delta,
        "Delta, changed": _write_changed_delta,
        "Hive": _write_hive,
    }
    found: dict[str, dict[str, Timings]] = {}
    for kind, write in writers.items():
        folder = data / f"spark-queries-{kind.split(',')[0].lower()}-{kind.split()[-1].lower()}-{SCALE:g}"
        paths = {name: folder / name for name in TABLES}
        for name, path in paths.items():
            if not (folder / f"{name}.whole").exists():
                write(spark, path, name)
                (folder / f"{name}.whole").touch()
        form = "parquet" if kind == "Hive" else "delta"
        frames = {name: spark.read.format(form).load(str(path)) for name, path in paths.items()}
        found |= _compare_queries(spark, kind, frames, {name: str(path) for name, path in paths.items()})
    spark.stop()
    return found


def _write_delta(spark: Any, path: Path, table: str) -> None:
    rows = _read_raw(spark, path.parents[1], table).write.format("delta").mode("overwrite")
    (rows.partitionBy("o_month") if table == "orders" else rows).save(str(path))


def _write_changed_delta(spark: Any, path: Path, table: str) -> None:
    _write_delta(spark, path, table)
    name = f"delta.`{path}`"
    settings = "'delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name'"
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({settings})")
    if table == "lineitem":
        spark.sql(f"ALTER TABLE {name} RENAME COLUMN l_tax TO l_levy")
        spark.sql(f"ALTER TABLE {name} ADD COLUMN l_note STRING")
        spark.sql(f"DELETE FROM {name} WHERE l_partkey % 50 = 7")


def _write_hive(spark: Any, path: Path, table: str) -> None:
    rows = _read_raw(spark, path.parents[1], table).write.mode("overwrite")
    (rows.partitionBy("o_month") if table == "orders" else rows).parquet(str(path))


# --- All formats ------------------------------------------------------------------------------------------------------


def _compare_queries(
    spark: Any, kind: str, frames: Mapping[str, Any], locations: Mapping[str, str]
) -> dict[str, dict[str, Timings]]:
    import tamis

    # Both list the files of folders once, before the first query.
    session = tamis.connect(spark=spark)
    for name, location in locations.items():
        session.register(name, tamis.open(location))
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)

    def query_with_tamis(text: str) -> object:
        return _collect(session.sql(text))

    def query_with_peer(text: str) -> object:
        return _collect(spark.sql(text))

    found = {}
    for query in QUERIES:
        contenders = [
            here(OURS, lambda text=query.text: query_with_tamis(text)),
            here(PEER, lambda text=query.text: query_with_peer(text)),
        ]
        found[f"{kind}: {query.title}"] = interleave(contenders, ROUNDS)
        print(f"{kind}: {query.title}: {ratio(*reversed(found[f'{kind}: {query.title}'].values()))}", file=sys.stderr)
    return found


def _collect(frame: Any) -> object:
    return sorted(map(repr, (tuple(row) for row in frame.collect())))


# --- Iceberg, in the process with the other Spark ---------------------------------------------------------------------


def _measure_in_other_process(data: Path, modules: Path) -> dict[str, dict[str, Timings]]:
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


def _compare_iceberg(data: Path) -> dict[str, dict[str, Timings]]:
    iceberg = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": str(data / "iceberg-warehouse"),
        "spark.sql.shuffle.partitions": "2",
    }
    spark = start_local_session(ICEBERG_JARS, "4g", **iceberg)
    found: dict[str, dict[str, Timings]] = {}
    for kind in ("flat", "changed"):
        names = {table: f"ice.queries.{table}_{kind}_{SCALE:g}" for table in TABLES}
        for table, name in names.items():
            marker = data / "iceberg-warehouse" / f"{name}.whole"
            if not marker.exists():
                _write_iceberg(spark, data, table, name, is_changed=kind == "changed")
                marker.touch()
        frames = {table: spark.table(name) for table, name in names.items()}
        folder = data / "iceberg-warehouse" / "queries"
        locations = {table: str(folder / name.rpartition(".")[2]) for table, name in names.items()}
        found |= _compare_queries(spark, f"Iceberg, {kind}", frames, locations)
    spark.stop()
    return found


def _write_iceberg(spark: Any, data: Path, table: str, name: str, *, is_changed: bool) -> None:
    from pyspark.sql import functions

    spark.sql(f"DROP TABLE IF EXISTS {name}")
    rows = _read_raw(spark, data, table).writeTo(name)
    for key, value in {"write.delete.mode": "merge-on-read", "format-version": "2"}.items():
        rows = rows.tableProperty(key, value)
    (rows.partitionedBy(functions.col("o_month")) if table == "orders" else rows).create()
    if is_changed and table == "lineitem":
        spark.sql(f"ALTER TABLE {name} RENAME COLUMN l_tax TO l_levy")
        spark.sql(f"ALTER TABLE {name} ADD COLUMN l_note STRING")
        spark.sql(f"DELETE FROM {name} WHERE l_partkey % 50 = 7")


def main() -> None:
    compared = _compare_iceberg(Path(sys.argv[1]))
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
