"""A few rows out of 50 million: what is skipped by the page index, by Bloom filters and by late materialisation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from harness import (
    Contender,
    Section,
    Settings,
    Target,
    format_mebibytes,
    here,
    interleave,
    make_markdown_table,
    make_speed_table,
    ratio,
)
from lookups import (
    ABSENT,
    POINT,
    PRESENT,
    READERS,
    TARGETS,
    Lookup,
    list_lookups,
    list_readers,
    prepare,
    prepare_report,
    summarise,
)
from new_process import make_process_contender, measure
from table_writers import PAGED_FILE, ensure_table, make_hashes, measure_size, write_paged

NAME = "pages"

FULL = (50_000_000, 1_000_000, 20_000)
QUICK = (40_000, 20_000, 1_000)
"""Rows in all, in a row group and in a page."""

MAX_ROUNDS = 7
MAX_ROUNDS_BY_HASH = 5
"""Fewer, because a reader that uses no Bloom filter reads the whole file for a random key, which takes seconds."""
MAX_BYTES_RATIO = 1.2
"""The target for bytes read, as a multiple of `count_least_bytes`."""


def ensure_paged_file(settings: Settings, rows: int, rows_per_group: int, rows_per_page: int) -> Path:
    """Return the folder with a file of this many rows, and write it if it does not exist."""
    return ensure_table(
        settings.data / f"paged-{rows}",
        lambda folder: write_paged(folder, rows=rows, rows_per_group=rows_per_group, rows_per_page=rows_per_page),
    )


def make_lookups(rows: int, *, quick: bool = False) -> list[Lookup]:
    """Return the lookups for a file of this many rows; only two with `quick`, since each runs in new processes."""
    prefix = f"{rows // 5:010}"[:7]
    wanted = list_lookups(rows, lambda row: int(make_hashes(row, 1)[0]), prefix)
    return [lookup for lookup in wanted if not quick or lookup.title in (POINT, PRESENT)]


# --- The minimum of bytes that any reader needs ----------------------------------------------------------------------


def count_least_bytes(path: Path, lookup: Lookup, rows_per_group: int) -> int:
    """Return the minimum of bytes that a reader needs for a lookup.

    These are the footer, the page indexes of the row groups with matches, the pages with matches and their
    dictionaries. For a lookup by hash, the header and one block of each Bloom filter are added.
    """
    from tamis.io.storage import open_storage
    from tamis.parquet.footer.leaves import find_leaf_indices
    from tamis.parquet.indexes.page_units import read_page_indexes
    from tamis.parquet.reading.parquet_file import ParquetFile
    from tamis.parquet.selection.row_selection import RowSelection

    size = path.stat().st_size
    source = ParquetFile.load(open_storage(path), str(path), size, None)
    tested = {name for name, _, _ in lookup.conditions}
    names = dict.fromkeys([*tested, *(lookup.columns or source.schema.names)])
    leaves = {name: find_leaf_indices(source.schema, [(name,)]) for name in names}
    matching = _find_matching_rows(path, lookup)
    total = len(source.footer.content) + 8
    with source.open() as file:
        for group in np.unique(matching // rows_per_group).tolist():
            own = matching[matching // rows_per_group == group] - group * rows_per_group
            selection = RowSelection.from_indices(own, source.count_rows(group))
            chunks = [(group, leaf) for name in names for leaf in leaves[name]]
            locations = read_page_indexes(source, file, chunks).locations
            for name in names:
                for leaf in leaves[name]:
                    chunk = source.chunk(group, leaf)
                    assert chunk.offset_index is not None
                    assert chunk.column_index is not None
                    total += chunk.offset_index[1] + (chunk.column_index[1] if name in tested else 0)
                    total += source.get_leaf_pages(group, leaf, locations[group, leaf]).count_bytes_for(selection)
    if "hash" in tested:
        filters = [source.chunk(group, leaves["hash"][0]).bloom_filter for group in range(len(source.map.rows))]
        total += sum(length % 32 + 32 for each in filters if each is not None and (length := each[1]) is not None)
    return total


def _find_matching_rows(path: Path, lookup: Lookup) -> np.ndarray:
    """Return the numbers of the matching rows, as pyarrow finds them: an id is twice the number of its row."""
    filters = [(name, sign if sign != "=" else "==", value) for name, sign, value in lookup.conditions]
    return pq.read_table(path, columns=["id"], filters=filters)["id"].to_numpy() // 2


# --- The run ----------------------------------------------------------------------------------------------------------


def _make_warm_contenders(path: str, lookup: Lookup, readers: list[str]) -> list[Contender]:
    def make_contender(name: str) -> Contender:
        ask = READERS[name](path, None, keep=True)
        return here(name, lambda: summarise(ask(lookup)))

    return [make_contender(name) for name in readers]


def run(settings: Settings) -> Section:
    rows, rows_per_group, rows_per_page = QUICK if settings.quick else FULL
    rounds = min(settings.rounds, MAX_ROUNDS)
    path = ensure_paged_file(settings, rows, rows_per_group, rows_per_page) / PAGED_FILE
    small = ensure_paged_file(settings, 1_000, 1_000, 100) / PAGED_FILE
    readers = list_readers()
    section = Section(
        NAME,
        "Single rows and narrow ranges through pages",
        f"{rows:,} rows sorted by `id` in one file of {format_mebibytes(measure_size(path.parent))} with zstd: "
        f"{rows // rows_per_group:,} row groups, pages of {rows_per_page:,} rows with a page index, Bloom filters of "
        "the random `hash`, a list column. All six columns are returned unless a title says otherwise; "
        f"{rounds} rounds, {min(rounds, MAX_ROUNDS_BY_HASH)} for random keys. "
        "DataFusion filters while it decodes (`pushdown_filters`), which is not its default.",
    )
    missing = [name for name in READERS if name not in readers]
    if missing:
        section.remark(f"Not measured, because not installed: {', '.join(missing)}.")
    counts = []
    for lookup in make_lookups(rows, quick=settings.quick):
        wanted = {"location": str(path), "lookup": lookup.to_arguments()}
        spent = {name: measure(prepare, reader=name, **wanted, warm_up=str(small)) for name in readers}
        bytes_read = {name: f"read {format_mebibytes(each.bytes_read)}" for name, each in spent.items()}
        own_bytes, own_requests = measure(prepare_report, **wanted).found
        least = count_least_bytes(path, lookup, rows_per_group)
        counts.append((lookup, spent["tamis"].found[0], least, own_bytes, own_requests))
        own_rounds = min(rounds, MAX_ROUNDS_BY_HASH) if lookup.title in (PRESENT, ABSENT) else rounds
        cold = interleave(
            [make_process_contender(name, prepare, reader=name, **wanted) for name in readers],
            own_rounds,
            warm_up=not settings.quick,
        )
        warm = interleave(_make_warm_contenders(str(path), lookup, readers), own_rounds)
        section.add(f"{lookup.title}, new process", make_speed_table(cold, ["tamis"], bytes_read))
        section.add(f"{lookup.title}, warm", make_speed_table(warm, ["tamis"]))
        for state, timings in (("new process", cold), ("warm", warm)):
            section.targets += [
                Target(
                    f"{lookup.title}, {state}: {factor} × as fast as {peer}",
                    ratio(timings[peer], timings["tamis"]),
                    at_least=factor,
                )
                for peer, factor in TARGETS.items()
                if lookup.is_point and peer in timings
            ]
    section.add("Bytes and requests of Tamis", _make_count_table(counts))
    section.targets += [
        Target(
            f"{lookup.title}: bytes read, in percent of footer, indexes and pages with matches",
            100 * own / least,
            at_most=100 * MAX_BYTES_RATIO,
            unit="%",
        )
        for lookup, _, least, own, _ in counts
    ]
    section.remark(
        f"Bytes in the tables above are what the process read from files by the operating system's count, which "
        f"misses what a reader maps into memory. Those of the last table are exact. *{PRESENT}* reads more than the "
        "pages with matches: a Bloom filter covers a whole row group, and the bounds of random keys rule out no page "
        "of it. If a lookup needs few bytes, the first read is a larger share of them: it is the last 64 KiB of the "
        "file, with the footer and the bytes before it."
    )
    return section


def _make_count_table(counts: list[tuple[Lookup, int, int, int, int]]) -> str:
    head = ["lookup", "rows", "footer, indexes, pages with matches", "bytes read", "×", "requests"]
    return make_markdown_table(
        head,
        [
            [lookup.title, f"{rows:,}", f"{least:,}", f"{own:,}", f"{own / least:.2f}", f"{requests}"]
            for lookup, rows, least, own, requests in counts
        ],
    )
