"""A statistics index over many files: how fast it is built, and what it saves a selective query."""

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
    format_mebibytes,
    format_milliseconds,
    here,
    interleave,
    make_markdown_table,
    make_speed_table,
    ratio,
)
from new_process import Work, make_process_contender
from spark_sessions import start_delta_session
from table_writers import ensure_table, measure_size, write_line_items, write_many_files

NAME = "index"

ROUNDS = 3
ROWS_OF_A_FILE = 100
WITH, WITHOUT = "tamis with the index", "tamis without"

# --- Preparations: they import what the work needs; only the work is measured ----------------------------------------


def prepare_tamis(path: str, number: int, index: str | bool) -> Work:
    import tamis

    return lambda: tamis.open(path, index=index).scan(f"id = {number}").to_arrow().num_rows


def prepare_pyarrow(path: str, number: int) -> Work:
    import pyarrow.dataset as ds

    return lambda: ds.dataset(path, partitioning="hive").to_table(filter=ds.field("id") == number).num_rows


def prepare_duckdb(path: str, number: int) -> Work:
    import duckdb
    import pyarrow  # noqa: F401 - the rows are returned as Arrow

    files = f"read_parquet('{path}/*/*.parquet', hive_partitioning = true)"
    return lambda: duckdb.connect().sql(f"SELECT * FROM {files} WHERE id = {number}").to_arrow_table().num_rows


# --- Measurements ----------------------------------------------------------------------------------------------------


def run(settings: Settings) -> Section:
    files, rows = (60, 20_000) if settings.quick else (100_000, 10_000_000)
    section = Section(
        NAME,
        "Statistics index",
        f"{files:,} files of {ROWS_OF_A_FILE} rows in directories, sorted by `id`, which is not a partition column. "
        f"Then {rows:,} rows like TPC-H's lineitem in eight files, whose values are read to build Bloom filters. Each "
        f"round builds a new index, beside the table. {ROUNDS} rounds.",
    )
    many = ensure_table(
        settings.data / f"many-files-{files}",
        lambda folder: write_many_files(folder, files=files, rows=ROWS_OF_A_FILE),
    )
    large = ensure_table(
        settings.data / f"line-items-snappy-{rows}",
        lambda folder: write_line_items(folder, rows=rows, files=8, compression="snappy"),
    )
    try:
        _measure_builds(section, settings, many, large)
        _measure_savings(section, settings, many, files)
    finally:
        for path in (many, large):
            shutil.rmtree(_get_index_path(path), ignore_errors=True)
        if not settings.keep:
            shutil.rmtree(many)
    return section


def _get_index_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.index")


def _prepare_build(path: Path, engine: Any = "local", **options: Any) -> Callable[[], int]:
    import tamis

    def work() -> int:
        location = _get_index_path(path)
        shutil.rmtree(location, ignore_errors=True)
        found: int = tamis.index.build(path, engine=engine, location=location, **options).files
        return found

    return work


def _measure_builds(section: Section, settings: Settings, many: Path, large: Path) -> None:
    rounds = min(settings.rounds, ROUNDS)
    blooms = {"bloom": ["l_orderkey", "l_comment"]}
    footers, values = (
        [here("in this process", _prepare_build(many))],
        [here("in this process", _prepare_build(large, **blooms))],
    )
    spark = None if settings.quick else start_delta_session(settings.data, "4g")
    if spark is not None:
        footers.append(here("on Spark, local[2]", _prepare_build(many, spark)))
        values.append(here("on Spark, local[2]", _prepare_build(large, spark, **blooms)))
    for title, path, contenders in (("footers", many, footers), ("values for Bloom filters", large, values)):
        timings = interleave(contenders, rounds, warm_up=False)
        section.add(f"Build, {title}", _make_rate_table(path, timings))
    if spark is not None:
        spark.stop()


def _make_rate_table(path: Path, timings: dict[str, Timings]) -> str:
    size, count = measure_size(path), sum(1 for _ in path.rglob("*.parquet"))
    rows = [
        [
            name,
            format_milliseconds(each.seconds),
            f"{count / each.seconds:,.0f} files/s",
            f"{size / each.seconds / 1e9:.2f} GB/s",
            format_mebibytes(measure_size(_get_index_path(path))),
        ]
        for name, each in timings.items()
    ]
    return make_markdown_table(["", "time", "files", f"data ({format_mebibytes(size)})", "index"], rows)


def _measure_savings(section: Section, settings: Settings, many: Path, files: int) -> None:
    rounds = min(settings.rounds, ROUNDS)
    _prepare_build(many)()
    arguments = {"path": str(many), "number": files * ROWS_OF_A_FILE // 3}
    contenders: list[Contender] = [
        make_process_contender(WITH, prepare_tamis, **arguments, index=str(_get_index_path(many))),
        make_process_contender(WITHOUT, prepare_tamis, **arguments, index=False),
        make_process_contender("pyarrow.dataset", prepare_pyarrow, **arguments),
        make_process_contender("DuckDB", prepare_duckdb, **arguments),
    ]
    timings = interleave(contenders, rounds, warm_up=False)
    section.add("One id, from opening the table to the row, new process", make_speed_table(timings, [WITH]))
    section.targets += [
        Target(f"one id: faster than {peer}", ratio(timings[peer], timings[WITH]), at_least=1)
        for peer in timings
        if peer != WITH
    ]
    section.targets.append(
        Target(
            "footers opened to plan one id", _count_opened_footers(many, arguments["number"]), at_most=0, unit="footers"
        )
    )


def _count_opened_footers(path: Path, number: object) -> int:
    """Return the number of data files that are read to plan files."""
    import tamis

    table = tamis.open(path, index=_get_index_path(path))
    before = table._source.storage.counters.counts()
    table.scan(f"id = {number}").plan(depth="files")
    spent = table._source.storage.counters.counts() - before
    return spent.requests - spent.listing_calls
