"""Sorted reads: all rows of a scan in the order of its columns, a few files at a time.

Files are read in the order of their bounds. Files whose bounds overlap are one *run*: its rows are sorted in memory,
and all of them come before those of the next run. That is a proof: no sort order that a table or a file declares is
trusted, and rows that turn out to be in order already are not sorted again.

    files        [1 … 4]   [3 … 7]   [9 … 12]
    runs         └──── sorted ────┘  └ sorted ┘

A file whose bounds are unknown overlaps all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis.formats.source import FileListing
from tamis.scan.aggregation.metadata_answers import MetadataAnswers
from tamis.scan.aggregation.top_n import SortOrder, UnitPositions
from tamis.scan.planning.scan_planner import ScanPlanner

Numbers = npt.NDArray[np.int64]

WAVE_BYTES = 8 * 1024 * 1024
"""Small runs are read and sorted together up to this many bytes: more rows take longer to sort, row by row."""

MAX_TEXT_BYTES = 2**30
"""Tables with more bytes are sorted with 64-bit offsets."""

ROWS_PER_BATCH = 128 * 1024


@dataclass(frozen=True)
class SortedRuns:
    """The files of a scan in the order of a sort, and where each run of overlapping files begins."""

    listing: FileListing
    starts: Numbers
    sizes: Numbers
    """The bytes of the files of each run."""

    def split_into_waves(self) -> Iterator[FileListing]:
        """Yield files to be read and sorted together: one run at first, later several small ones."""
        ends = [*self.starts[1:].tolist(), self.listing.files.num_rows]
        first, wanted = 0, 0
        while first < len(ends):
            last, size = first, int(self.sizes[first])
            while last + 1 < len(ends) and size + int(self.sizes[last + 1]) <= wanted:
                last += 1
                size += int(self.sizes[last])
            yield self.listing.slice(int(self.starts[first]), ends[last] - int(self.starts[first]))
            first = last + 1
            wanted = min(WAVE_BYTES, 2 * max(size, wanted))


def plan_sorted_runs(planner: ScanPlanner, keys: Sequence[SortOrder]) -> SortedRuns:
    """Return the files of a scan in runs that follow each other in the order of the first key."""
    key = keys[0]
    listing = planner.list_with_statistics([key.column])
    count = listing.files.num_rows
    if not count:
        return SortedRuns(listing, np.zeros(0, np.int64), np.zeros(0, np.int64))
    first, last = _find_positions(listing, key)
    order = np.argsort(first, kind="stable").astype(np.int64)
    reached = np.maximum.accumulate(last[order])[:-1]
    following = first[order][1:]
    # Rows that are equal by the only key may come in any order; further keys order them across files.
    is_start = following >= reached if len(keys) == 1 else following > reached
    starts = np.concatenate(([0], np.flatnonzero(is_start) + 1)).astype(np.int64)
    sorted_listing = listing.take(order)
    sizes = np.maximum(np.asarray(sorted_listing.files["size"].combine_chunks(), np.int64), 0)
    return SortedRuns(sorted_listing, starts, np.add.reduceat(sizes, starts))


def _find_positions(listing: FileListing, key: SortOrder) -> tuple[Numbers, Numbers]:
    """Return the first and the last sort position that a row of each file may have, as numbers that compare alike."""
    known = MetadataAnswers.of_files(listing, [key.column])
    backwards = replace(key, descending=not key.descending, nulls_first=not key.nulls_first)
    first, last = (UnitPositions.from_metadata(each, known) for each in (key, backwards))
    ranks = _rank(first.bounds, last.bounds, descending=key.descending)
    # The segments of the reverse order, counted from its end, are those of the order.
    segments = first.segments, len(key.segments) - 1 - last.segments
    value = key.segments["value"]
    width = 2 * listing.files.num_rows + 2
    codes = [own * width + np.where(own == value, rank, 0) for own, rank in zip(segments, ranks, strict=True)]
    is_unknown = [
        (own == value) & ~np.asarray(each.bounds.is_valid(), bool)
        for own, each in zip(segments, (first, last), strict=True)
    ]
    codes[0][is_unknown[0]] = -1
    codes[1][is_unknown[1]] = np.iinfo(np.int64).max
    return codes[0], codes[1]


def _rank(first: pa.Array, last: pa.Array, *, descending: bool) -> tuple[Numbers, Numbers]:
    """Return the dense ranks of both arrays among the values of both, 1 for the first."""
    both = pa.concat_arrays([first, last])
    ranks = pc.rank(both, sort_keys="descending" if descending else "ascending", tiebreaker="dense")
    found = np.asarray(ranks, np.int64)
    return found[: len(first)], found[len(first) :]


def read_sorted_rows(
    runs: SortedRuns,
    keys: Sequence[SortOrder],
    read: Callable[[FileListing], pa.Table],
    limit: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that `read` returns for files, in order; at most `limit`, and then no further file is read."""
    remaining = limit
    for listing in runs.split_into_waves():
        if remaining == 0:
            return
        rows = sort_rows(read(listing), keys).slice(0, remaining)
        if remaining is not None:
            remaining -= rows.num_rows
        yield from rows.to_batches()


def sort_rows(rows: pa.Table, keys: Sequence[SortOrder], max_bytes: int = MAX_TEXT_BYTES) -> pa.Table:
    """Return the rows of a table in the order of some of its columns; the same object if they are in order already."""
    if rows.nbytes > max_bytes:
        # More than 2 GiB of text do not fit in one array, unless its offsets have 64 bits.
        schema = rows.schema
        sorted_rows = sort_rows(rows.cast(_with_large_offsets(schema)), keys, rows.nbytes * 2)
        return pa.Table.from_batches(
            (batch.cast(schema) for batch in sorted_rows.to_batches(max_chunksize=ROWS_PER_BATCH)), schema
        )
    if len(keys) == 1 and _is_sorted(rows[keys[0].column.path[0]].combine_chunks(), keys[0]):
        return rows
    columns: dict[str, pa.Array] = {}
    order: list[tuple[str, str]] = []
    for number, key in enumerate(keys):
        values = rows[key.column.path[0]].combine_chunks()
        if values.null_count:
            columns[f"null {number}"] = values.is_null()
            order.append((f"null {number}", "descending" if key.nulls_first else "ascending"))
        columns[f"value {number}"] = values
        order.append((f"value {number}", "descending" if key.descending else "ascending"))
    return rows.take(pc.sort_indices(pa.table(columns), sort_keys=order))


def _with_large_offsets(schema: pa.Schema) -> pa.Schema:
    large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    return pa.schema([field.with_type(large.get(field.type, field.type)) for field in schema])


def _is_sorted(values: pa.Array, key: SortOrder) -> bool:
    if values.null_count:
        return False
    compare = pc.greater_equal if key.descending else pc.less_equal
    return len(values) < 2 or bool(pc.all(compare(values[:-1], values[1:])).as_py())
