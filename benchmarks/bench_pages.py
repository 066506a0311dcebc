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
    here,
    interleave,
    markdown_table,
    mebibytes,
    ratio,
    speed_table,
)
from lookups import (
    ABSENT,
    POINT,
    PRESENT,
    READERS,
    TARGETS,
    Lookup,
    found,
    installed_readers,
    lookups,
    prepare,
    tamis_own_count,
)
from new_process import in_new_process, measure
from table_writers import PAGED_FILE, made_once, paged_hashes, size_on_disk, write_paged

NAME = "pages"

FULL = (50_000_000, 1_000_000, 20_000)
QUICK = (40_000, 20_000, 1_000)
"""Rows in all, in a row group and in a page."""

MOST_ROUNDS = 7
MOST_ROUNDS_BY_HASH = 5
"""Who uses no Bloom filter reads the whole file for a random key, which takes seconds each time."""
MOST_BYTES = 1.2
"""How many times the bytes that nobody can do without."""


def write(settings: Settings, rows: int, rows_per_group: int, rows_per_page: int) -> Path:
    """The folder with a file of so many rows."""
    return made_once(
        settings.data / f"paged-{rows}",
        lambda folder: write_paged(folder, rows=rows, rows_per_group=rows_per_group, rows_per_page=rows_per_page),
    )


def questions(rows: int, *, quick: bool = False) -> list[Lookup]:
    """All lookups in a file of so many rows, or a few of them, since each takes a new process of everyone."""
    prefix = f"{rows // 5:010}"[:7]
    asked = lookups(rows, lambda row: int(paged_hashes(row, 1)[0]), prefix)
    return [lookup for lookup in asked if not quick or lookup.title in (POINT, PRESENT)]


# --- The bytes that nobody can do without -----------------------------------------------------------------------------


def least_bytes(path: Path, lookup: Lookup, rows_per_group: int) -> int:
    """The footer, the page indexes of the row groups with matches, and the pages with matches, dictionaries included;
    of each Bloom filter that can decide, its header and one block."""
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
    matching = _matching_rows(path, lookup)
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
        total += sum(length % 32 + 32 for place in filters if place is not None and (length := place[1]) is not None)
    return total


def _matching_rows(path: Path, lookup: Lookup) -> np.ndarray:
    """Where the matching rows are, as pyarrow finds them: an id is twice the number of its row."""
    filters = [(name, sign if sign != "=" else "==", value) for name, sign, value in lookup.conditions]
    return pq.read_table(path, columns=["id"], filters=filters)["id"].to_numpy() // 2


# --- The run ----------------------------------------------------------------------------------------------------------


def _warm(path: str, lookup: Lookup, readers: list[str]) -> list[Contender]:
    def contender(name: str) -> Contender:
        ask = READERS[name](path, None, keep=True)
        return here(name, lambda: found(ask(lookup)))

    return [contender(name) for name in readers]


def run(settings: Settings) -> Section:
    rows, rows_per_group, rows_per_page = QUICK if settings.quick else FULL
    rounds = min(settings.rounds, MOST_ROUNDS)
    path = write(settings, rows, rows_per_group, rows_per_page) / PAGED_FILE
    small = write(settings, 1_000, 1_000, 100) / PAGED_FILE
    readers = installed_readers()
    section = Section(
        NAME,
        "Single rows and narrow ranges through pages",
        f"{rows:,} rows sorted by `id` in one file of {mebibytes(size_on_disk(path.parent))} with zstd: "
        f"{rows // rows_per_group:,} row groups, pages of {rows_per_page:,} rows with a page index, Bloom filters of "
        "the random `hash`, a list column. All six columns are returned unless a title says otherwise; "
        f"{rounds} rounds, {min(rounds, MOST_ROUNDS_BY_HASH)} for random keys. "
        "DataFusion filters while it decodes (`pushdown_filters`), which is not its default.",
    )
    missing = [name for name in READERS if name not in readers]
    if missing:
        section.remark(f"Not installed, and so not measured: {', '.join(missing)}.")
    counts = []
    for lookup in questions(rows, quick=settings.quick):
        wanted = {"place": str(path), "lookup": lookup.arguments()}
        spent = {name: measure(prepare, reader=name, **wanted, warm_up=str(small)) for name in readers}
        bytes_read = {name: f"read {mebibytes(each.bytes_read)}" for name, each in spent.items()}
        own_bytes, own_requests = measure(tamis_own_count, **wanted).found
        least = least_bytes(path, lookup, rows_per_group)
        counts.append((lookup, spent["tamis"].found[0], least, own_bytes, own_requests))
        own_rounds = min(rounds, MOST_ROUNDS_BY_HASH) if lookup.title in (PRESENT, ABSENT) else rounds
        cold = interleave(
            [in_new_process(name, prepare, reader=name, **wanted) for name in readers],
            own_rounds,
            warm_up=not settings.quick,
        )
        warm = interleave(_warm(str(path), lookup, readers), own_rounds)
        section.add(f"{lookup.title}, new process", speed_table(cold, ["tamis"], bytes_read))
        section.add(f"{lookup.title}, warm", speed_table(warm, ["tamis"]))
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
    section.add("Bytes and requests of Tamis", _count_table(counts))
    section.targets += [
        Target(
            f"{lookup.title}: bytes read, in percent of footer, indexes and pages with matches",
            100 * own / least,
            at_most=100 * MOST_BYTES,
            unit="%",
        )
        for lookup, _, least, own, _ in counts
    ]
    section.remark(
        f"Bytes in the tables above are what the process read from files by the operating system's count, which "
        f"misses what a reader maps into memory; those of the last table are exact. *{PRESENT}* reads more than the "
        "pages with matches: a Bloom filter answers for a whole row group, and of a random key every page of the row "
        "group may hold it by its minimum and maximum. Where few bytes are needed at all, the first read is a larger "
        "share of them: 64 KiB of the end of the file, which hold the footer and whatever stands before it."
    )
    return section


def _count_table(counts: list[tuple[Lookup, int, int, int, int]]) -> str:
    head = ["lookup", "rows", "footer, indexes, pages with matches", "bytes read", "×", "requests"]
    return markdown_table(
        head,
        [
            [lookup.title, f"{rows:,}", f"{least:,}", f"{own:,}", f"{own / least:.2f}", f"{requests}"]
            for lookup, rows, least, own, requests in counts
        ],
    )
