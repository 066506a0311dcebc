"""Aggregate the rows of a pruned scan with DuckDB: a scan is an Arrow stream, which DuckDB reads directly.

The same works for polars.DataFrame(scan), pyarrow.table(scan) and all other readers of `__arrow_c_stream__`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import tamis


def write_readings(root: Path) -> None:
    """Write a day of readings for each of three sensors, ordered by time, in row groups of two hours."""
    for sensor in ("attic", "cellar", "garden"):
        directory = root / f"sensor={sensor}"
        directory.mkdir(parents=True)
        minutes = range(24 * 60)
        readings = pa.table({"minute": minutes, "celsius": [10 + (minute % 97) / 10 for minute in minutes]})
        pq.write_table(readings, directory / "readings.parquet", row_group_size=120)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_readings(Path(folder) / "readings")
        table = tamis.open(str(Path(folder) / "readings"))
        scan = table.scan(where="sensor <> 'garden' AND minute BETWEEN 600 AND 719", columns=["sensor", "celsius"])
        print(scan.explain())
        query = (
            "SELECT sensor, count(*) AS readings, round(avg(celsius), 2) AS mean FROM readings GROUP BY 1 ORDER BY 1"
        )
        with duckdb.connect() as connection:
            connection.register("readings", scan)
            print(connection.sql(query))


if __name__ == "__main__":
    main()
