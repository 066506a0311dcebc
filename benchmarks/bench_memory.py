"""The memory of a scan batch by batch, which must not grow with the table, and the files that a small limit opens."""

from __future__ import annotations

import shutil
from pathlib import Path

from harness import MIB, Section, Settings, Target, format_mebibytes, make_markdown_table
from new_process import ProcessMeasured, Work, measure
from table_writers import ensure_table, measure_size, write_small_files, write_wide

NAME = "memory"
GIB = 1024 * MIB

# --- Preparations: they import what the work needs; only the work is measured ----------------------------------------


def prepare_tamis(path: str, processors: int | None = None) -> Work:
    """Return work that reads the whole table. `processors` replaces the number of processors that Python reports."""
    if processors is not None:
        import os

        os.cpu_count = lambda: processors
    import tamis

    def work() -> tuple[int, int]:
        rows = size = 0
        for batch in tamis.open(path).scan().to_batches():
            rows, size = rows + batch.num_rows, size + batch.nbytes
        return rows, size

    return work


def prepare_pyarrow(path: str) -> Work:
    import pyarrow.dataset as ds

    def work() -> tuple[int, int]:
        rows = size = 0
        for batch in ds.dataset(path).to_batches():
            rows, size = rows + batch.num_rows, size + batch.nbytes
        return rows, size

    return work


def prepare_duckdb(path: str) -> Work:
    import duckdb
    import pyarrow  # noqa: F401 - the rows are returned as Arrow

    def work() -> tuple[int, int]:
        rows = size = 0
        relation = duckdb.connect().sql(f"SELECT * FROM read_parquet('{path}/*.parquet')")
        for batch in relation.to_arrow_reader(131_072):
            rows, size = rows + batch.num_rows, size + batch.nbytes
        return rows, size

    return work


def prepare_limit(path: str, limit: int) -> Work:
    """Return work that reads a few rows, and gives the number of rows, footers, requests and bytes."""
    import tamis
    from tamis.parquet.footer.footer import FOOTERS

    def work() -> tuple[int, int, int | None, int | None]:
        scan = tamis.open(path).scan(limit=limit)
        rows = scan.to_arrow().num_rows
        report = scan.report
        assert report is not None
        return rows, len(FOOTERS), report.requests, report.bytes_read

    return work


def _make_row(name: str, measured: ProcessMeasured) -> list[str]:
    work = measured.peak_memory - measured.memory_before
    return [name, format_mebibytes(measured.peak_memory), format_mebibytes(work)]


def run(settings: Settings) -> Section:
    files, rows = (2, 20_000) if settings.quick else (20, 1_060_000)
    section = Section(
        NAME,
        "Memory of a scan",
        "The peak of the resident set of a process that reads a table batch by batch and keeps none. The first figure "
        "includes the interpreter and the libraries, the second is the part that the scan added.",
    )
    layouts = {"row groups of 125,000 rows": 125_000, "one row group a file": rows}
    for title, rows_per_group in layouts.items():
        path = ensure_table(
            settings.data / f"wide-{files}-{rows}-{rows_per_group}",
            lambda folder, rows_per_group=rows_per_group: write_wide(
                folder, files=files, rows=rows, rows_per_group=rows_per_group
            ),
        )
        try:
            _measure(section, title, path)
        finally:
            if not settings.keep:
                shutil.rmtree(path)
    small_files = 20 if settings.quick else 2_000
    flat = ensure_table(
        settings.data / f"small-files-{small_files}", lambda folder: write_small_files(folder, files=small_files)
    )
    rows_found, opened, requests, size = measure(prepare_limit, path=str(flat), limit=10).found
    section.add(
        f"limit=10 over {small_files:,} files of 1,000 rows",
        make_markdown_table(
            ["rows", "files opened", "requests", "bytes read"],
            [[str(rows_found), str(opened), str(requests), f"{size:,}"]],
        ),
    )
    section.targets.append(
        Target(f"limit=10 over {small_files:,} files opens at most 32", opened, at_most=32, unit="files")
    )
    return section


def _measure(section: Section, title: str, path: Path) -> None:
    ours = measure(prepare_tamis, path=str(path))
    many = measure(prepare_tamis, path=str(path), processors=16)
    peers = {"pyarrow.dataset": measure(prepare_pyarrow, path=str(path))}
    peers["DuckDB"] = measure(prepare_duckdb, path=str(path))
    for name, each in peers.items():
        if each.found[0] != ours.found[0]:
            raise SystemExit(f"{name} found {each.found[0]} rows, tamis {ours.found[0]}")
    size = ours.found[1]
    table = make_markdown_table(
        ["", "peak", "added by the scan"],
        [
            _make_row("tamis", ours),
            _make_row("tamis, threads as for 16 processors", many),
            *(_make_row(name, each) for name, each in peers.items()),
        ],
    )
    sizes = f"{size / GIB:.1f} GiB in memory, {format_mebibytes(measure_size(path))} on disk"
    section.add(f"{title} ({sizes})", table)
    section.targets += [
        Target(f"{title}: under 1 GiB", ours.peak_memory / MIB, at_most=1024, unit="MiB"),
        Target(f"{title}, threads as for 16 processors: under 1 GiB", many.peak_memory / MIB, at_most=1024, unit="MiB"),
    ]
