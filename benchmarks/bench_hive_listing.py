"""A hundred thousand files in three thousand partitions, of which one is wanted."""

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
    here,
    interleave,
    markdown_table,
    milliseconds,
    ratio,
    speed_table,
)
from new_process import Work, in_new_process
from table_writers import REGIONS, day_of, made_once, write_partition_tree

NAME = "hive_listing"

# --- Preparations: imports are made here, the work is what is measured ------------------------------------------------


def tamis_plan(path: str, region: str, day: str) -> Work:
    import tamis

    def work() -> int:
        table = tamis.open(path)
        return table.scan(where=_where(region, day)).plan(depth="files").num_files

    return work


def tamis_rows(path: str, region: str, day: str) -> Work:
    import tamis

    return lambda: tamis.open(path).scan(where=_where(region, day)).to_arrow().num_rows


def pyarrow_plan(path: str, region: str, day: str) -> Work:
    import pyarrow.dataset as ds

    def work() -> int:
        wanted = (ds.field("region") == region) & (ds.field("day") == day)
        return sum(1 for _ in ds.dataset(path, partitioning="hive").get_fragments(wanted))

    return work


def pyarrow_rows(path: str, region: str, day: str) -> Work:
    import pyarrow.dataset as ds

    def work() -> int:
        wanted = (ds.field("region") == region) & (ds.field("day") == day)
        return ds.dataset(path, partitioning="hive").to_table(filter=wanted).num_rows

    return work


def duckdb_rows(path: str, region: str, day: str) -> Work:
    import duckdb
    import pyarrow  # noqa: F401 - what the rows come out as

    return lambda: duckdb.connect().sql(_duckdb_query(path, region, day)).to_arrow_table().num_rows


def _where(region: str, day: str) -> str:
    return f"region = '{region}' AND day = DATE '{day}'"


def _duckdb_query(path: str, region: str, day: str) -> str:
    files = f"read_parquet('{path}/*/*/*.parquet', hive_partitioning = true)"
    return f"SELECT * FROM {files} WHERE region = '{region}' AND day = DATE '{day}'"


# --- Warm: the table is open, and each round asks for a partition that no round asked for before -------------------


def _partitions(days: int) -> Iterator[tuple[str, str]]:
    for number in itertools.count():
        yield f"r{number % REGIONS}", day_of(number // REGIONS % days)


def _warm(path: str, days: int) -> list[Contender]:
    import duckdb
    import pyarrow.dataset as ds

    import tamis

    table = tamis.open(path)
    dataset = ds.dataset(path, partitioning="hive")
    connection = duckdb.connect()
    connection.execute("SET parquet_metadata_cache = true")

    def asked(query: Callable[[str, str], int]) -> Work:
        wanted = _partitions(days)
        return lambda: query(*next(wanted))

    def by_tamis(region: str, day: str) -> int:
        return table.scan(where=_where(region, day)).to_arrow().num_rows

    def by_pyarrow(region: str, day: str) -> int:
        return dataset.to_table(filter=(ds.field("region") == region) & (ds.field("day") == day)).num_rows

    def by_duckdb(region: str, day: str) -> int:
        return connection.sql(_duckdb_query(path, region, day)).to_arrow_table().num_rows

    return [
        here("tamis", asked(by_tamis)),
        here("pyarrow.dataset", asked(by_pyarrow)),
        here("DuckDB", asked(by_duckdb)),
    ]


def run(settings: Settings) -> Section:
    days, files = (3, 60) if settings.quick else (300, 100_000)
    section = Section(
        NAME,
        "Hive directories, one partition wanted",
        f"{files:,} small files in {REGIONS * days:,} partitions (`region=…/day=…`); the filter is "
        "`region = 'r3' AND day = DATE '…'`. *To rows* is from nothing to the rows as an Arrow table, *plan* is from "
        "nothing to the paths of the files that hold them. In the warm runs the table, the dataset and the connection "
        "stay, and every round asks for another partition.",
    )
    path = made_once(
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
    wanted = {"path": str(path), "region": "r3", "day": day_of(days * 2 // 3)}
    rows = interleave(
        [
            in_new_process("tamis", tamis_rows, **wanted),
            in_new_process("pyarrow.dataset", pyarrow_rows, **wanted),
            in_new_process("DuckDB", duckdb_rows, **wanted),
        ],
        settings.rounds,
        warm_up=not settings.quick,
    )
    section.add("New process, to rows", speed_table(rows, ["tamis"]))
    plan = interleave(
        [
            in_new_process("tamis", tamis_plan, **wanted),
            in_new_process("pyarrow.dataset", pyarrow_plan, **wanted),
        ],
        settings.rounds,
        warm_up=not settings.quick,
    )
    section.add("New process, plan", speed_table(plan, ["tamis"]))
    warm = interleave(_warm(str(path), days), settings.rounds)
    section.add("Warm, to rows", speed_table(warm, ["tamis"]))

    listings = _listings(**wanted)
    directories = 1 + REGIONS + REGIONS * days
    section.add(
        "The whole process, with the start of Python and imports",
        markdown_table(["", "time", "of it start and imports"], [_whole_process(timing) for timing in rows.values()]),
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


def _listings(path: str, region: str, day: str) -> int:
    """How many directories tamis lists until the rows are there."""
    import tamis

    table = tamis.open(path)
    table.scan(where=_where(region, day)).to_arrow()
    return table._source.storage.counters.listing_calls


def _whole_process(timing: Timings) -> list[str]:
    whole = median(each.process_seconds or 0.0 for each in timing.rounds)
    return [timing.name, milliseconds(whole), milliseconds(whole - timing.seconds)]
