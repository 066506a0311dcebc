"""The program of `make demo-spark`: a whole job on Spark that reads little, and writes a table.

Each day the job receives new orders. It plans what a question needs, adds the new files to the statistics index, prunes
by it, joins the rows that are left with customers, and writes the result.

`spark-submit examples/spark_pipeline.py FOLDER` runs it on a cluster. Without a cluster it uses two threads of this
machine.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import tamis

REGIONS = ("africa", "america", "asia", "europe")
ORDERS_PER_DAY = 50_000


def write_day(spark: Any, day: int, orders: str) -> None:
    """Append the orders of a day, as another job would: one file for each region, in the order of their ids."""
    first = day * ORDERS_PER_DAY
    made = spark.range(first, first + ORDERS_PER_DAY).select(
        "id",
        f.pmod(f.xxhash64("id"), f.lit(5_000)).alias("customer"),
        (f.pmod(f.xxhash64("id", f.lit("amount")), f.lit(100_000)) / 100).alias("amount"),
        f.date_add(f.to_date(f.lit("2024-06-01")), day).alias("day"),
        f.element_at(f.array(*map(f.lit, REGIONS)), (f.col("id") % 4 + 1).cast("int")).alias("region"),
    )
    sorted_rows = made.repartition(4, "region").sortWithinPartitions("region", "id")
    sorted_rows.write.mode("append" if day else "overwrite").partitionBy("region").parquet(orders)


def update_index(spark: Any, orders: str) -> None:
    """Let executors read the files that the index does not have yet. Other entries are reused."""
    result = tamis.index.build(orders, bloom=["customer"], engine=spark)
    print(f"index: {result.collected} files read, {result.reused} reused")


def main() -> None:
    parser = argparse.ArgumentParser(description="Run a pruned pipeline on Spark.")
    parser.add_argument("folder", nargs="?", default="demo-data/spark", help="a folder that all workers reach")
    folder = parser.parse_args().folder
    if "://" not in folder:
        folder = str(Path(folder).absolute())  # workers may run in other folders
    orders, result = f"{folder}/orders", f"{folder}/large_orders"

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("tamis: pipeline")
    if "SPARK_ENV_LOADED" not in os.environ:  # set by spark-submit, which also chooses the master
        builder = builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    for day in range(3):
        write_day(spark, day, orders)
    update_index(spark, orders)
    write_day(spark, 3, orders)
    update_index(spark, orders)

    session = tamis.connect(spark=spark)
    table = session.open(orders)
    session.register("orders", table)
    customers = spark.range(5_000).select(f.col("id").alias("customer"), f.concat(f.lit("name "), "id").alias("name"))
    session.register("customers", customers)

    # What would this question read? Nothing but metadata is read to answer that.
    where = "region = 'europe' AND id BETWEEN 160000 AND 165000 AND amount > 900"
    print(table.scan(where).explain())

    large = session.sql(f"SELECT name, id, amount FROM orders JOIN customers USING (customer) WHERE {where}")
    large.write.mode("overwrite").parquet(result)

    print(f"wrote {tamis.open(result).count()} large orders")
    session.sql("SELECT region, count(*) AS orders, max(id) AS last FROM orders GROUP BY region ORDER BY region").show()
    spark.stop()


if __name__ == "__main__":
    main()
