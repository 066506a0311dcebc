"""Selective filters on a sorted column, which the statistics of row groups prune."""

from __future__ import annotations

from harness import Contender, Section, Settings, Target, format_mebibytes, here, interleave, make_speed_table, ratio
from new_process import ProcessMeasured, Work, make_process_contender, measure
from table_writers import ensure_table, measure_size, write_sorted

NAME = "row_groups"

# --- Preparations: they import what the work needs; only the work is measured ----------------------------------------


def prepare_tamis(path: str, first: int, last: int, warm_up: str | None = None) -> Work:
    import tamis

    def work(path: str = path) -> int:
        return tamis.open(path).scan(where=_make_filter(first, last)).to_arrow().num_rows

    return _warm_up(work, warm_up)


def prepare_report(path: str, first: int, last: int) -> Work:
    """Return work that gives the bytes of the scan's report."""
    import tamis

    def work() -> int | None:
        scan = tamis.open(path).scan(where=_make_filter(first, last))
        scan.to_arrow()
        return None if scan.report is None else scan.report.bytes_read

    return work


def prepare_pyarrow(path: str, first: int, last: int, warm_up: str | None = None) -> Work:
    import pyarrow.dataset as ds

    def work(path: str = path) -> int:
        return ds.dataset(path).to_table(filter=(ds.field("id") >= first) & (ds.field("id") <= last)).num_rows

    return _warm_up(work, warm_up)


def prepare_duckdb(path: str, first: int, last: int, warm_up: str | None = None) -> Work:
    import duckdb
    import pyarrow  # noqa: F401 - the rows are returned as Arrow

    def work(path: str = path) -> int:
        return duckdb.connect().sql(_make_query(path, first, last)).to_arrow_table().num_rows

    return _warm_up(work, warm_up)


def _warm_up(work: Work, small_table: str | None) -> Work:
    """Run the work on a small table first, if given: modules loaded on first use would count as bytes read."""
    if small_table is not None:
        work(small_table)  # type: ignore[call-arg]
    return work


def _make_filter(first: int, last: int) -> str:
    return f"id = {first}" if first == last else f"id BETWEEN {first} AND {last}"


def _make_query(path: str, first: int, last: int) -> str:
    return f"SELECT * FROM read_parquet('{path}/*.parquet') WHERE {_make_filter(first, last)}"


def _make_warm_contenders(path: str, first: int, last: int) -> list[Contender]:
    import duckdb
    import pyarrow.dataset as ds

    import tamis

    table = tamis.open(path)
    dataset = ds.dataset(path)
    connection = duckdb.connect()
    connection.execute("SET parquet_metadata_cache = true")
    wanted = (ds.field("id") >= first) & (ds.field("id") <= last)
    return [
        here("tamis", lambda: table.scan(where=_make_filter(first, last)).to_arrow().num_rows),
        here("pyarrow.dataset", lambda: dataset.to_table(filter=wanted).num_rows),
        here("DuckDB", lambda: connection.sql(_make_query(path, first, last)).to_arrow_table().num_rows),
    ]


PREPARATIONS = {"tamis": prepare_tamis, "pyarrow.dataset": prepare_pyarrow, "DuckDB": prepare_duckdb}


TARGETS = {"pyarrow.dataset": 10, "DuckDB": 1}
"""The target for a point and a narrow range, as a multiple of the other's speed. Only a page index can reach it."""

POINT, ONE_PERCENT, TEN_PERCENT = "point (1 row)", "1 % of the rows", "10 % of the rows"
NARROW = (POINT, ONE_PERCENT)


def run(settings: Settings) -> Section:
    rows, files, rows_per_group = (40_000, 4, 1_000) if settings.quick else (20_000_000, 10, 50_000)
    path = ensure_table(
        settings.data / f"sorted-{rows}",
        lambda folder: write_sorted(folder, rows=rows, files=files, rows_per_group=rows_per_group),
    )
    small = ensure_table(
        settings.data / "sorted-1000", lambda folder: write_sorted(folder, rows=1_000, files=1, rows_per_group=100)
    )
    section = Section(
        NAME,
        "Row groups pruned on a sorted column",
        f"{rows:,} rows sorted by `id` in {files} files with {rows // rows_per_group:,} row groups, "
        f"{format_mebibytes(measure_size(path))} with zstd; all five columns are returned. Bytes are what the process "
        "read from files, as the operating system counts it. They show that every contender reads whole row groups, "
        "even for one row.",
    )
    middle = rows  # ids are even, so this is the id in the middle
    queries = {
        POINT: (middle + 1_000, middle + 1_000),
        ONE_PERCENT: (middle, middle + rows // 100 * 2 - 1),
        TEN_PERCENT: (middle, middle + rows // 10 * 2 - 1),
    }
    for title, (first, last) in queries.items():
        wanted = {"path": str(path), "first": first, "last": last}
        spent: dict[str, ProcessMeasured] = {
            name: measure(prepare, **wanted, warm_up=str(small)) for name, prepare in PREPARATIONS.items()
        }
        bytes_read = {name: f"read {format_mebibytes(each.bytes_read)}" for name, each in spent.items()}
        bytes_read["tamis"] += f", by its own report {format_mebibytes(measure(prepare_report, **wanted).found)}"
        cold = interleave(
            [make_process_contender(name, prepare, **wanted) for name, prepare in PREPARATIONS.items()],
            settings.rounds,
            warm_up=not settings.quick,
        )
        warm = interleave(_make_warm_contenders(str(path), first, last), settings.rounds)
        section.add(f"{title}, new process", make_speed_table(cold, ["tamis"], bytes_read))
        section.add(f"{title}, warm", make_speed_table(warm, ["tamis"]))
        for state, timings in (("new process", cold), ("warm", warm)):
            section.targets += [
                Target(
                    f"{title}, {state}: {factor} × as fast as {peer}",
                    ratio(timings[peer], timings["tamis"]),
                    at_least=factor,
                )
                for peer, factor in TARGETS.items()
                if title in NARROW
            ]
    return section
