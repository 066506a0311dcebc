"""A scan of a whole table without a filter: planning must cost nothing if it cannot help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset
from harness import Section, Settings, Target, format_mebibytes, here, interleave, make_speed_table, ratio
from table_writers import ensure_table, measure_size, write_line_items

import tamis

NAME = "full_scan"


def read_tamis_table(path: str) -> pa.Table:
    return tamis.open(path).scan().to_arrow()


def read_tamis_batches(path: str) -> int:
    return sum(batch.num_rows for batch in tamis.open(path).scan().to_batches())


def read_pyarrow_table(path: str) -> pa.Table:
    return pyarrow.dataset.dataset(path, partitioning="hive").to_table()


def read_pyarrow_batches(path: str) -> int:
    return sum(batch.num_rows for batch in pyarrow.dataset.dataset(path, partitioning="hive").to_batches())


def _select_all(path: str) -> duckdb.DuckDBPyRelation:
    return duckdb.connect().sql(f"SELECT * FROM read_parquet('{path}/*/*.parquet', hive_partitioning = true)")


def read_duckdb_table(path: str) -> pa.Table:
    return _select_all(path).to_arrow_table()


def read_duckdb_batches(path: str) -> int:
    return sum(batch.num_rows for batch in _select_all(path).to_arrow_reader(131_072))


def _prepare(read: Callable[[str], pa.Table | int], path: Path) -> Callable[[], int]:
    def work() -> int:
        found = read(str(path))
        return found if isinstance(found, int) else found.num_rows

    return work


READERS: dict[str, dict[str, Callable[[str], pa.Table | int]]] = {
    "to one Arrow table": {
        "tamis": read_tamis_table,
        "pyarrow.dataset": read_pyarrow_table,
        "DuckDB": read_duckdb_table,
    },
    "batch by batch": {
        "tamis": read_tamis_batches,
        "pyarrow.dataset": read_pyarrow_batches,
        "DuckDB": read_duckdb_batches,
    },
}


def run(settings: Settings) -> Section:
    rows, files = (20_000, 4) if settings.quick else (10_000_000, 8)
    section = Section(
        NAME,
        "Full scan without a predicate",
        f"Two tables like TPC-H's lineitem, one with snappy and one with zstd. Each has {rows:,} rows in {files} "
        "files, in a directory for each year (13 columns: integers, decimals, doubles, dates, timestamps, strings; row "
        "groups of 250,000 rows). Each run opens the table and reads all columns.",
    )
    for compression in ("snappy", "zstd"):
        path = ensure_table(
            settings.data / f"line-items-{compression}-{rows}",
            lambda folder, compression=compression: write_line_items(
                folder, rows=rows, files=files, compression=compression
            ),
        )
        for output, readers in READERS.items():
            contenders = [here(name, _prepare(read, path)) for name, read in readers.items()]
            timings = interleave(contenders, settings.rounds)
            title = f"{compression}, {output}"
            section.add(
                f"{title} ({format_mebibytes(measure_size(path))} on disk)", make_speed_table(timings, ["tamis"])
            )
            reached = ratio(timings["pyarrow.dataset"], timings["tamis"])
            section.targets.append(
                Target(f"{title}: at least 0.95 of pyarrow's speed", reached, at_least=0.95, unit="× its speed")
            )
    return section
