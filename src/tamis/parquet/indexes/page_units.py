"""Pages as units of pruning, for filters on any number of columns.

Pages of two columns start at different rows. So a row group is split wherever a page of some filtered column starts:

    a      |----page 0----|-------page 1-------|
    b      |------page 0------|----page 1------|
    units  |------0-------|-1-|-------2--------|

In each *row range* every column lies within one page, and what is true for all rows of the page is true for the row
range. All conjuncts, also those on several columns, are then evaluated by the same rules as at every other level.
With one filtered column, the row ranges are its pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.nodes import Column
from tamis.io.ranges import RangedFile
from tamis.io.weighted_cache import WeightedCache
from tamis.parquet.footer.leaves import Leaf
from tamis.parquet.footer.statistics import can_trust_bytes
from tamis.parquet.indexes.page_index import (
    PageLocations,
    decode_offset_index,
    get_readable_range,
    make_pages_metadata,
    try_decode_column_index,
)
from tamis.parquet.reading.parquet_file import ParquetFile
from tamis.skipping.metadata import ROW_COUNT

Rows = npt.NDArray[np.int64]

_COUNTS = ("null_count:", "nan_count:")
_EXACT = ("lower_exact:", "upper_exact:")


@dataclass(frozen=True, slots=True, eq=False)
class ColumnPages:
    """The metadata of one column in one row group, one row per page."""

    first_rows: Rows
    """The first row of each page, from 0 on. An empty page starts at the same row as the next one."""
    metadata: Mapping[str, pa.Array]


@dataclass(frozen=True, slots=True, eq=False)
class RowRanges:
    """The row ranges of a row group: `starts[i]` to `ends[i]` (exclusive), with one row of metadata each."""

    starts: Rows
    ends: Rows
    metadata: Mapping[str, pa.Array]

    @property
    def row_counts(self) -> Rows:
        return self.ends - self.starts


def split_into_row_ranges(columns: Sequence[ColumnPages], row_count: int) -> RowRanges:
    """Return the common refinement of the pages of some columns of a row group."""
    first_rows = [column.first_rows for column in columns]
    starts = np.unique(np.concatenate([np.zeros(1, np.int64), *first_rows]))
    starts = starts[starts < row_count]
    ends = np.append(starts[1:], row_count) if len(starts) else starts
    metadata: dict[str, pa.Array] = {}
    for column in columns:
        if not column.metadata:
            continue
        metadata |= _spread_metadata(column, starts, ends, row_count)
    metadata[ROW_COUNT.name] = pa.array(ends - starts, types.LONG)
    return RowRanges(starts, ends, metadata)


def _spread_metadata(column: ColumnPages, starts: Rows, ends: Rows, row_count: int) -> dict[str, pa.Array]:
    # If several pages start at the same row, all but the last are empty.
    pages = np.searchsorted(column.first_rows, starts, side="right") - 1
    page_rows = np.diff(column.first_rows, append=row_count)[pages]
    is_whole = page_rows == ends - starts
    if len(pages) == len(column.first_rows) and is_whole.all():
        # Each row range is exactly one page, in order.
        return dict(column.metadata)
    indices = pa.array(pages)
    spread: dict[str, pa.Array] = {}
    for name, values in column.metadata.items():
        values_of_ranges = values.take(indices)
        if not is_whole.all():
            if name.startswith(_COUNTS):
                values_of_ranges = _count_in_parts(values_of_ranges, is_whole, page_rows, ends - starts)
            elif name.startswith(_EXACT):
                # The exact value belongs to some row of the page, which may be in another row range.
                values_of_ranges = pc.if_else(pa.array(is_whole), values_of_ranges, pa.scalar(False))
        spread[name] = values_of_ranges
    return spread


def _count_in_parts(counts: pa.Array, is_whole: npt.NDArray[np.bool_], page_rows: Rows, rows: Rows) -> pa.Array:
    """Return the counts for parts of pages: no row or all rows if that is true for the page, else unknown."""
    part_counts = pc.case_when(
        pc.make_struct(pc.equal(counts, 0), pc.equal(counts, pa.array(page_rows))),
        pa.scalar(0, types.LONG),
        pa.array(rows, types.LONG),
    )
    return pc.if_else(pa.array(is_whole), counts, part_counts)


# --- Page indexes of files: fetched in one round, decoded once, cached until evicted ----------------------------------

Chunk = tuple[int, int]

ColumnLeaf = tuple[int, Column, Leaf]
"""A row group, a column of the table, and its leaf column in the file."""


@dataclass(frozen=True, slots=True)
class PageIndexes:
    """The requested page indexes of a file: None if the file lacks one, or it is inconsistent."""

    locations: Mapping[Chunk, PageLocations | None]
    columns: Mapping[tuple[int, Column], ColumnPages | None]


def read_page_indexes(
    source: ParquetFile, file: RangedFile, chunks: Iterable[Chunk], columns: Iterable[ColumnLeaf] = ()
) -> PageIndexes:
    """Return the page locations of chunks, and the page statistics of columns.

    A missing index is not an error, nor is an inconsistent column index, because it is optional. An inconsistent
    offset index raises CorruptFile, because rows would be read from wrong offsets.
    """
    with_statistics = list(columns)
    located = dict.fromkeys([*chunks, *((group, leaf.index) for group, _, leaf in with_statistics)])
    identity = source.identity
    locations: dict[Chunk, PageLocations | None] = {}
    pages: dict[tuple[int, Column], ColumnPages | None] = {}
    to_locate: list[Chunk] = []
    to_read: list[ColumnLeaf] = []
    for chunk in located:
        try:
            locations[chunk] = PAGE_INDEXES.get((identity, *chunk))
        except KeyError:
            to_locate.append(chunk)
    for group, column, leaf in with_statistics:
        try:
            pages[group, column] = PAGE_INDEXES.get((identity, group, column.path, column.type, leaf.index))
        except KeyError:
            to_read.append((group, column, leaf))
    location_ranges = [get_readable_range(source.chunk(*chunk).offset_index) for chunk in to_locate]
    bound_ranges = [get_readable_range(source.chunk(group, leaf.index).column_index) for group, _, leaf in to_read]
    wanted = [byte_range for byte_range in (*location_ranges, *bound_ranges) if byte_range is not None]
    buffers = iter(file.read(wanted))
    for (group, leaf_number), byte_range in zip(to_locate, location_ranges, strict=True):
        found = None
        if byte_range is not None:
            layout = source.chunk(group, leaf_number)
            found = decode_offset_index(next(buffers).to_pybytes(), layout, source.count_rows(group), source.location)
        locations[group, leaf_number] = found
        PAGE_INDEXES.put((identity, group, leaf_number), found, 0 if found is None else 5 * found.offsets.nbytes)
    for (group, column, leaf), byte_range in zip(to_read, bound_ranges, strict=True):
        known = None
        if byte_range is not None:
            known = _decode_column_pages(
                source, next(buffers).to_pybytes(), group, column, leaf, locations[group, leaf.index]
            )
        pages[group, column] = known
        weight = 0 if known is None else sum(array.nbytes for array in known.metadata.values())
        PAGE_INDEXES.put((identity, group, column.path, column.type, leaf.index), known, weight)
    return PageIndexes(locations, pages)


def _decode_column_pages(
    source: ParquetFile, data: bytes, row_group: int, column: Column, leaf: Leaf, pages: PageLocations | None
) -> ColumnPages | None:
    if pages is None:
        return None
    what = f"column {column.name!r} in row group {row_group} of '{source.location}'"
    index, _ = try_decode_column_index(data, pages, what)
    if index is None:
        return None
    metadata = make_pages_metadata(
        [(index, pages)],
        column,
        leaf,
        trust_bytes=can_trust_bytes(source.footer.metadata),
        is_ordered=source.map.read_column_order(leaf.index) is not None,
    )
    return ColumnPages(pages.first_rows, metadata)


PAGE_INDEXES = WeightedCache(capacity=128 * 1024 * 1024)
