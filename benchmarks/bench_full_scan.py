"""A scan of everything without a predicate: planning must cost nothing where it cannot help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset
from harness import Section, Settings, Target, here, interleave, mebibytes, ratio, speed_table
from table_writers import made_once, size_on_disk, write_line_items

import tamis

NAME = "full_scan"


def tamis_table(path: str) -> pa.Table:
    return tamis.open(path).scan().to_arrow()


def tamis_batches(path: str) -> int:
    return sum(batch.num_rows for batch in tamis.open(path).scan().to_batches())


def pyarrow_table(path: str) -> pa.Table:
    return pyarrow.dataset.dataset(path, partitioning="hive").to_table()


def pyarrow_batches(path: str) -> int:
    return sum(batch.num_rows for batch in pyarrow.dataset.dataset(path, partitioning="hive").to_batches())


def _duckdb(path: str) -> duckdb.DuckDBPyRelation:
    return duckdb.connect().sql(f"SELECT * FROM read_parquet('{path}/*/*.parquet', hive_partitioning = true)")


def duckdb_table(path: str) -> pa.Table:
    return _duckdb(path).to_arrow_table()


def duckdb_batches(path: str) -> int:
    return sum(batch.num_rows for batch in _duckdb(path).to_arrow_reader(131_072))


def _rows(read: Callable[[str], pa.Table | int], path: Path) -> Callable[[], int]:
    def work() -> int:
        found = read(str(path))
        return found if isinstance(found, int) else found.num_rows

    return work


WAYS: dict[str, dict[str, Callable[[str], pa.Table | int]]] = {
    "to one Arrow table": {"tamis": tamis_table, "pyarrow.dataset": pyarrow_table, "DuckDB": duckdb_table},
    "batch by batch": {"tamis": tamis_batches, "pyarrow.dataset": pyarrow_batches, "DuckDB": duckdb_batches},
}


def run(settings: Settings) -> Section:
    rows, files = (20_000, 4) if settings.quick else (10_000_000, 8)
    section = Section(
        NAME,
        "Full scan without a predicate",
        f"Two tables in the manner of TPC-H's lineitem, {rows:,} rows each in {files} files below directories of years "
        "(13 columns: integers, decimals, doubles, dates, timestamps, texts; row groups of 250,000 rows), one with "
        "snappy and one with zstd. Each run opens the table anew and reads all columns.",
    )
    for compression in ("snappy", "zstd"):
        path = made_once(
            settings.data / f"line-items-{compression}-{rows}",
            lambda folder, compression=compression: write_line_items(
                folder, rows=rows, files=files, compression=compression
            ),
        )
        for way, readers in WAYS.items():
            contenders = [here(name, _rows(read, path)) for name, read in readers.items()]
            timings = interleave(contenders, settings.rounds)
            title = f"{compression}, {way}"
            section.add(f"{title} ({mebibytes(size_on_disk(path))} on disk)", speed_table(timings, ["tamis"]))
            reached = ratio(timings["pyarrow.dataset"], timings["tamis"])
            section.targets.append(
                Target(f"{title}: at least 0.95 of pyarrow's speed", reached, at_least=0.95, unit="× its speed")
            )
    return section
