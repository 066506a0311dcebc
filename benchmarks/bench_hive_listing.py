"""One partition of 3,000, in a Hive-style table of 100,000 files."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from harness import (
    Contender,
    Section,
    Settings,
    Target,
    Timings,
    format_milliseconds,
    here,
    interleave,
    make_markdown_table,
    make_speed_table,
    ratio,
)
from new_process import Work, make_process_contender
from table_writers import REGIONS, ensure_table, get_day, write_partition_tree

NAME = "hive_listing"

# --- Preparations: they import what the work needs; only the work is measured ----------------------------------------


def prepare_tamis_plan(path: str, region: str, day: str) -> Work:
    import tamis

    def work() -> int:
        table = tamis.open(path)
        return table.scan(where=_make_filter(region, day)).plan(depth="files").num_files

    return work


def prepare_tamis(path: str, region: str, day: str) -> Work:
    import tamis

    return lambda: tamis.open(path).scan(where=_make_filter(region, day)).to_arrow().num_rows


def prepare_pyarrow_plan(path: str, region: str, day: str) -> Work:
    import pyarrow.dataset as ds

    def work() -> int:
        wanted = (ds.field("region") == region) & (ds.field("day") == day)
        return sum(1 for _ in ds.dataset(path, partitioning="hive").get_fragments(wanted))

    return work


def prepare_pyarrow(path: str, region: str, day: str) -> Work:
    import pyarrow.dataset as ds

    def work() -> int:
        wanted = (ds.field("region") == region) & (ds.field("day") == day)
        return ds.dataset(path, partitioning="hive").to_table(filter=wanted).num_rows

    return work


def prepare_duckdb(path: str, region: str, day: str) -> Work:
    import duckdb
    import pyarrow  # noqa: F401 - the rows are returned as Arrow

    return lambda: duckdb.connect().sql(_make_duckdb_query(path, region, day)).to_arrow_table().num_rows


def _make_filter(region: str, day: str) -> str:
    return f"region = '{region}' AND day = DATE '{day}'"


def _make_duckdb_query(path: str, region: str, day: str) -> str:
    files = f"read_parquet('{path}/*/*/*.parquet', hive_partitioning = true)"
    return f"SELECT * FROM {files} WHERE region = '{region}' AND day = DATE '{day}'"


# --- Warm: the table is open, and each round reads another partition -------------------------------------------------


def _list_partitions(days: int) -> Iterator[tuple[str, str]]:
    for number in itertools.count():
        yield f"r{number % REGIONS}", get_day(number // REGIONS % days)


def _make_warm_contenders(path: str, days: int) -> list[Contender]:
    import duckdb
    import pyarrow.dataset as ds

    import tamis

    table = tamis.open(path)
    dataset = ds.dataset(path, partitioning="hive")
    connection = duckdb.connect()
    connection.execute("SET parquet_metadata_cache = true")

    def prepare(query: Callable[[str, str], int]) -> Work:
        wanted = _list_partitions(days)
        return lambda: query(*next(wanted))

    def read_with_tamis(region: str, day: str) -> int:
        return table.scan(where=_make_filter(region, day)).to_arrow().num_rows

    def read_with_pyarrow(region: str, day: str) -> int:
        return dataset.to_table(filter=(ds.field("region") == region) & (ds.field("day") == day)).num_rows

    def read_with_duckdb(region: str, day: str) -> int:
        return connection.sql(_make_duckdb_query(path, region, day)).to_arrow_table().num_rows

    return [
        here("tamis", prepare(read_with_tamis)),
        here("pyarrow.dataset", prepare(read_with_pyarrow)),
        here("DuckDB", prepare(read_with_duckdb)),
    ]


def run(settings: Settings) -> Section:
    days, files = (3, 60) if settings.quick else (300, 100_000)
    section = Section(
        NAME,
        "Hive directories, one partition",
        f"{files:,} small files in {REGIONS * days:,} partitions (`region=…/day=…`); the filter is "
        "`region = 'r3' AND day = DATE '…'`. *To rows* opens the table and reads the rows as an Arrow table; *plan* "
        "opens it and returns the paths of the files that hold them. In the warm runs the table, the dataset and the "
        "connection are open, and every round reads another partition.",
    )
    path = ensure_table(
        settings.data / f"partition-tree-{files}",
        lambda folder: write_partition_tree(folder, days=days, files=files),
    )
    try:
        _measure(section, path, days, settings)
    finally:
        if not settings.keep:
            shutil.rmtree(path)
    return section


def _measure(section: Section, path: Path, days: int, settings: Settings) -> None:
    wanted = {"path": str(path), "region": "r3", "day": get_day(days * 2 // 3)}
    rows = interleave(
        [
            make_process_contender("tamis", prepare_tamis, **wanted),
            make_process_contender("pyarrow.dataset", prepare_pyarrow, **wanted),
            make_process_contender("DuckDB", prepare_duckdb, **wanted),
        ],
        settings.rounds,
        warm_up=not settings.quick,
    )
    section.add("New process, to rows", make_speed_table(rows, ["tamis"]))
    plan = interleave(
        [
            make_process_contender("tamis", prepare_tamis_plan, **wanted),
            make_process_contender("pyarrow.dataset", prepare_pyarrow_plan, **wanted),
        ],
        settings.rounds,
        warm_up=not settings.quick,
    )
    section.add("New process, plan", make_speed_table(plan, ["tamis"]))
    warm = interleave(_make_warm_contenders(str(path), days), settings.rounds)
    section.add("Warm, to rows", make_speed_table(warm, ["tamis"]))

    listings = _count_listings(**wanted)
    directories = 1 + REGIONS + REGIONS * days
    section.add(
        "The whole process, with the start of Python and imports",
        make_markdown_table(["", "time", "start and imports"], [_make_process_row(timing) for timing in rows.values()]),
    )
    section.targets += [
        Target(
            f"of {directories:,} directories, tamis lists the wanted one and, to learn the columns, some 64 more",
            listings,
            at_most=min(70, directories // 2),
            unit="listings",
        ),
        *(
            Target(f"{title}: faster than {peer}", ratio(timings[peer], timings["tamis"]), at_least=1, unit="×")
            for title, timings in (("new process, to rows", rows), ("new process, plan", plan), ("warm", warm))
            for peer in timings
            if peer != "tamis"
        ),
    ]


def _count_listings(path: str, region: str, day: str) -> int:
    """Return the number of directories that Tamis lists to read the rows."""
    import tamis

    table = tamis.open(path)
    table.scan(where=_make_filter(region, day)).to_arrow()
    return table._source.storage.counters.listing_calls


def _make_process_row(timing: Timings) -> list[str]:
    whole = median(each.process_seconds or 0.0 for each in timing.rounds)
    return [timing.name, format_milliseconds(whole), format_milliseconds(whole - timing.seconds)]
