"""Writes the tables of the benchmarks, once, with the same rows each time, in a folder that git ignores.

A table is written under a temporary name and renamed when it is complete. So a run that was stopped leaves no table
that looks complete.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


def ensure_table(path: Path, write: Callable[[Path], None]) -> Path:
    """Return a folder, and let `write` create it if it does not exist."""
    if not path.exists():
        unfinished = path.with_name(f"{path.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        write(unfinished)
        unfinished.rename(path)
    return path


def measure_size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*.parquet"))


def _make_amounts(generator: np.random.Generator, most: int, count: int) -> pa.Array:
    """Return decimals below `most` with two digits after the point."""
    hundredths = pa.array(generator.integers(100, most * 100, count)).cast(pa.decimal128(19, 0))
    return pc.multiply(hundredths, pa.scalar(Decimal("0.01"))).cast(pa.decimal128(15, 2))


def _pick_words(generator: np.random.Generator, words: list[str], count: int) -> pa.Array:
    return pa.array(words).take(pa.array(generator.integers(0, len(words), count)))


_SHIP_MODES = ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"]
_INSTRUCTIONS = ["COLLECT COD", "DELIVER IN PERSON", "NONE", "TAKE BACK RETURN"]
_SYLLABLES = ["carefully", "deposits", "express", "final", "foxes", "pending", "quickly", "regular", "sleep", "the"]


def make_line_items(count: int, first_order: int, year: int, seed: int) -> pa.Table:
    """Return rows like TPC-H's lineitem: integers, decimals, doubles, dates, timestamps, short and long strings."""
    generator = np.random.default_rng(seed)
    days = np.datetime64(f"{year}-01-01", "D") + np.sort(generator.integers(0, 365, count))
    shipped = pa.array(days)
    comments = pc.binary_join_element_wise(
        *(_pick_words(generator, _SYLLABLES, count) for _ in range(3)),
        pa.array(generator.integers(0, 1_000_000, count)).cast(pa.string()),
        " ",
    )
    return pa.table(
        {
            "l_orderkey": pa.array(first_order + np.arange(count) // 4),
            "l_partkey": pa.array(generator.integers(1, 2_000_000, count).astype(np.int32)),
            "l_suppkey": pa.array(generator.integers(1, 100_000, count).astype(np.int32)),
            "l_linenumber": pa.array((np.arange(count) % 4 + 1).astype(np.int8)),
            "l_quantity": pa.array(generator.integers(1, 51, count).astype(np.float64)),
            "l_extendedprice": _make_amounts(generator, 100_000, count),
            "l_discount": pa.array(generator.integers(0, 11, count) / 100),
            "l_returnflag": _pick_words(generator, ["A", "N", "R"], count),
            "l_shipdate": shipped,
            "l_received": pa.array(
                days.astype("datetime64[us]") + generator.integers(0, 30 * 86_400_000_000, count).astype("m8[us]"),
                mask=generator.random(count) < 0.02,
            ),
            "l_shipinstruct": _pick_words(generator, _INSTRUCTIONS, count),
            "l_shipmode": _pick_words(generator, _SHIP_MODES, count),
            "l_comment": comments,
        }
    )


def write_line_items(folder: Path, *, rows: int, files: int, compression: str) -> None:
    """Write a Hive-style table with a directory for each year, and two files in each."""
    each = rows // files
    for number in range(files):
        year = 1992 + number // 2
        directory = folder / f"l_year={year}"
        directory.mkdir(exist_ok=True)
        pq.write_table(
            make_line_items(each, number * each // 4, year, seed=number),
            directory / f"part-{number:05}.parquet",
            compression=compression,
            row_group_size=min(each, 250_000),
        )


def write_sorted(folder: Path, *, rows: int, files: int, rows_per_group: int) -> None:
    """Write a folder of files sorted by `id`. The ids are the even numbers from 0 on."""
    each = rows // files
    for number in range(files):
        generator = np.random.default_rng(1000 + number)
        ids = (number * each + np.arange(each)) * 2
        table = pa.table(
            {
                "id": pa.array(ids),
                "at": pa.array(np.datetime64("2024-01-01", "us") + (ids * 500_000).astype("m8[us]")),
                "amount": pa.array(generator.random(each)),
                "kind": _pick_words(generator, _SHIP_MODES, each),
                "code": pa.array(generator.integers(0, 1 << 40, each)).cast(pa.string()),
            }
        )
        pq.write_table(table, folder / f"part-{number:05}.parquet", compression="zstd", row_group_size=rows_per_group)


REGIONS = 10
LINKS_PER_COPY = 20_000
"""ext4 allows at most 65,000 links to a file."""


def get_day(number: int) -> str:
    return str(np.datetime64("2024-01-01", "D") + number)


def write_partition_tree(folder: Path, *, days: int, files: int) -> None:
    """Write directories `region=…/day=…` with small files, which are hard links to a few files."""
    partitions = [(f"r{region}", get_day(day)) for region in range(REGIONS) for day in range(days)]
    table = pa.table({"id": pa.array(np.arange(10)), "amount": pa.array(np.arange(10) / 2)})
    copies = folder / "_copies"
    copies.mkdir()
    for number in range(files // LINKS_PER_COPY + 1):
        pq.write_table(table, copies / f"{number}.parquet")
    for region, day in partitions:
        (folder / f"region={region}" / f"day={day}").mkdir(parents=True)
    for number in range(files):
        region, day = partitions[number % len(partitions)]
        name = folder / f"region={region}" / f"day={day}" / f"part-{number // len(partitions):05}.parquet"
        os.link(copies / f"{number // LINKS_PER_COPY}.parquet", name)
    shutil.rmtree(copies)


FILES_OF_A_DIRECTORY = 1000


def write_many_files(folder: Path, *, files: int, rows: int) -> None:
    """Write directories `part=…` of small files, all sorted by `id`: the numbers from 0 on."""
    generator = np.random.default_rng(4000)
    for number in range(files):
        directory = folder / f"part={number // FILES_OF_A_DIRECTORY}"
        if number % FILES_OF_A_DIRECTORY == 0:
            directory.mkdir()
        table = pa.table(
            {
                "id": pa.array(number * rows + np.arange(rows)),
                "amount": pa.array(generator.random(rows)),
                "kind": _pick_words(generator, _SHIP_MODES, rows),
            }
        )
        pq.write_table(table, directory / f"{number:06}.parquet", compression="zstd")


def write_small_files(folder: Path, *, files: int) -> None:
    """Write a folder of small files, which are hard links to one file."""
    first = folder / "part-00000.parquet"
    pq.write_table(pa.table({"id": pa.array(np.arange(1000))}), first)
    for number in range(1, files):
        os.link(first, folder / f"part-{number:05}.parquet")


def write_wide(folder: Path, *, files: int, rows: int, rows_per_group: int) -> None:
    """Write files of 16 columns, half of them incompressible. A row has about 200 bytes in memory."""
    for number in range(files):
        generator = np.random.default_rng(2000 + number)
        columns: dict[str, pa.Array] = {}
        for index in range(10):
            columns[f"number_{index}"] = pa.array(generator.integers(0, 1000 if index % 2 else 1 << 62, rows))
        for index in range(4):
            columns[f"measure_{index}"] = pa.array(np.round(generator.random(rows), 3))
        for index in range(2):
            texts = [pa.array(generator.integers(0, 1 << 62, rows)).cast(pa.string()) for _ in range(2)]
            columns[f"text_{index}"] = pc.binary_join_element_wise(*texts, "-")
        pq.write_table(
            pa.table(columns), folder / f"part-{number:05}.parquet", compression="snappy", row_group_size=rows_per_group
        )


PAGED_FILE = "rows.parquet"
_TAGS = [f"{color}-{thing}" for color in ("blue", "green", "red", "white") for thing in ("box", "cup", "hat", "pen")]
_JITTER = 2_000
"""The maximum distance, in rows, of a name from its position in the order."""


def make_hashes(first_row: int, count: int) -> np.ndarray:
    """Return the column `hash` of some rows: distinct even numbers below 2^63, in no order."""
    numbers = np.arange(first_row, first_row + count, dtype=np.uint64)
    with np.errstate(over="ignore"):
        # The finalizer of splitmix64 is a bijection. Dropping two bits leaves room for a sign and makes numbers even.
        mixed = numbers * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((mixed >> np.uint64(2)) << np.uint64(1)).astype(np.int64)


def _make_paged_rows(first_row: int, count: int) -> pa.Table:
    generator = np.random.default_rng(3000 + first_row)
    numbers = np.arange(first_row, first_row + count)
    moved = np.maximum(0, numbers + generator.integers(-_JITTER, _JITTER, count))
    names = pc.binary_join_element_wise(
        pc.utf8_lpad(pa.array(moved).cast(pa.string()), 10, "0"), _pick_words(generator, _SYLLABLES, count), "-"
    )
    lengths = generator.integers(0, 4, count)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.table(
        {
            "id": pa.array(numbers * 2),
            "hash": pa.array(make_hashes(first_row, count)),
            "name": names,
            "amount": pa.array(np.round(generator.random(count) * 10_000, 2)),
            "kind": _pick_words(generator, _SHIP_MODES, count),
            "tags": pa.ListArray.from_arrays(pa.array(offsets), _pick_words(generator, _TAGS, int(offsets[-1]))),
        }
    )


def write_paged(folder: Path, *, rows: int, rows_per_group: int, rows_per_page: int) -> None:
    """Write one file with a page index and Bloom filters of `hash`. The ids are the even numbers from 0 on."""
    schema = _make_paged_rows(0, 1).schema
    with pq.ParquetWriter(
        folder / PAGED_FILE,
        schema,
        compression="zstd",
        use_dictionary=["kind", "tags.list.element"],
        write_page_index=True,
        max_rows_per_page=rows_per_page,
        bloom_filter_options={"hash": {"ndv": rows_per_group, "fpp": 0.01}},
    ) as writer:
        for first_row in range(0, rows, rows_per_group):
            writer.write_table(_make_paged_rows(first_row, rows_per_group))
