"""A statistics index over many files: how fast it is built, and what it saves whoever asks for a few rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import (
    Contender,
    Section,
    Settings,
    Target,
    Timings,
    here,
    interleave,
    markdown_table,
    mebibytes,
    milliseconds,
    ratio,
    speed_table,
)
from new_process import Work, in_new_process
from spark_sessions import start
from table_writers import made_once, size_on_disk, write_line_items, write_many_files

NAME = "index"

ROUNDS = 3
ROWS_OF_A_FILE = 100
WITH, WITHOUT = "tamis with the index", "tamis without"

# --- Preparations: imports are made here, the work is what is measured ------------------------------------------------


def tamis_rows(path: str, number: int, index: str | bool) -> Work:
    import tamis

    return lambda: tamis.open(path, index=index).scan(f"id = {number}").to_arrow().num_rows


def pyarrow_rows(path: str, number: int) -> Work:
    import pyarrow.dataset as ds

    return lambda: ds.dataset(path, partitioning="hive").to_table(filter=ds.field("id") == number).num_rows


def duckdb_rows(path: str, number: int) -> Work:
    import duckdb
    import pyarrow  # noqa: F401 - what the rows come out as

    files = f"read_parquet('{path}/*/*.parquet', hive_partitioning = true)"
    return lambda: duckdb.connect().sql(f"SELECT * FROM {files} WHERE id = {number}").to_arrow_table().num_rows


# --- What is measured ------------------------------------------------------------------------------------------------


def run(settings: Settings) -> Section:
    files, rows = (60, 20_000) if settings.quick else (100_000, 10_000_000)
    section = Section(
        NAME,
        "Statistics index",
        f"{files:,} files of {ROWS_OF_A_FILE} rows in directories, sorted by `id`, which is no partition column; and "
        f"{rows:,} rows like TPC-H's lineitem in eight files, of which the Bloom filters need the values. The index is "
        f"built from nothing each time, beside the table. {ROUNDS} rounds.",
    )
    many = made_once(
        settings.data / f"many-files-{files}",
        lambda folder: write_many_files(folder, files=files, rows=ROWS_OF_A_FILE),
    )
    large = made_once(
        settings.data / f"line-items-snappy-{rows}",
        lambda folder: write_line_items(folder, rows=rows, files=8, compression="snappy"),
    )
    try:
        _measure_builds(section, settings, many, large)
        _measure_savings(section, settings, many, files)
    finally:
        for path in (many, large):
            shutil.rmtree(_index_of(path), ignore_errors=True)
        if not settings.keep:
            shutil.rmtree(many)
    return section


def _index_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.index")


def _build(path: Path, on: Any = "local", **options: Any) -> Callable[[], int]:
    import tamis

    def work() -> int:
        place = _index_of(path)
        shutil.rmtree(place, ignore_errors=True)
        found: int = tamis.index.build(path, engine=on, location=place, **options).files
        return found

    return work


def _measure_builds(section: Section, settings: Settings, many: Path, large: Path) -> None:
    rounds = min(settings.rounds, ROUNDS)
    blooms = {"bloom": ["l_orderkey", "l_comment"]}
    footers, values = [here("in this process", _build(many))], [here("in this process", _build(large, **blooms))]
    spark = None if settings.quick else start(settings.data, "4g")
    if spark is not None:
        footers.append(here("on Spark, local[2]", _build(many, spark)))
        values.append(here("on Spark, local[2]", _build(large, spark, **blooms)))
    for title, path, contenders in (("footers", many, footers), ("values for Bloom filters", large, values)):
        timings = interleave(contenders, rounds, warm_up=False)
        section.add(f"Build, {title}", _rates(path, timings))
    if spark is not None:
        spark.stop()


def _rates(path: Path, timings: dict[str, Timings]) -> str:
    size, count = size_on_disk(path), sum(1 for _ in path.rglob("*.parquet"))
    rows = [
        [
            name,
            milliseconds(each.seconds),
            f"{count / each.seconds:,.0f} files/s",
            f"{size / each.seconds / 1e9:.2f} GB/s",
            mebibytes(size_on_disk(_index_of(path))),
        ]
        for name, each in timings.items()
    ]
    return markdown_table(["", "time", "files", f"data ({mebibytes(size)})", "index"], rows)


def _measure_savings(section: Section, settings: Settings, many: Path, files: int) -> None:
    rounds = min(settings.rounds, ROUNDS)
    _build(many)()
    asked = {"path": str(many), "number": files * ROWS_OF_A_FILE // 3}
    contenders: list[Contender] = [
        in_new_process(WITH, tamis_rows, **asked, index=str(_index_of(many))),
        in_new_process(WITHOUT, tamis_rows, **asked, index=False),
        in_new_process("pyarrow.dataset", pyarrow_rows, **asked),
        in_new_process("DuckDB", duckdb_rows, **asked),
    ]
    timings = interleave(contenders, rounds, warm_up=False)
    section.add("One id, from nothing to the row, new process", speed_table(timings, [WITH]))
    section.targets += [
        Target(f"one id: faster than {peer}", ratio(timings[peer], timings[WITH]), at_least=1)
        for peer in timings
        if peer != WITH
    ]
    section.targets.append(
        Target("footers opened to plan one id", _footers_opened(many, asked["number"]), at_most=0, unit="footers")
    )


def _footers_opened(path: Path, number: object) -> int:
    """How many data files are read from until the files of a plan are known."""
    import tamis

    table = tamis.open(path, index=_index_of(path))
    before = table._source.storage.counters.counts()
    table.scan(f"id = {number}").plan(depth="files")
    spent = table._source.storage.counters.counts() - before
    return spent.requests - spent.listing_calls
