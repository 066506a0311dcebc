"""Page indexes of files: fetched in one round, decoded once, cached until evicted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tamis.expr.nodes import Column
from tamis.io.ranges import RangedFile
from tamis.io.weighted_cache import WeightedCache
from tamis.parquet.file import ParquetFile
from tamis.parquet.leaves import Leaf
from tamis.parquet.page_index import (
    PageLocations,
    decode_offset_index,
    get_readable_range,
    make_page_metadata,
    try_decode_column_index,
)
from tamis.parquet.page_units import ColumnPages
from tamis.parquet.statistics import can_trust_bytes

Chunk = tuple[int, int]
"""The numbers of a row group and of a leaf column."""

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
    described = list(columns)
    located = dict.fromkeys([*chunks, *((group, leaf.index) for group, _, leaf in described)])
    identity = source.identity
    locations: dict[Chunk, PageLocations | None] = {}
    pages: dict[tuple[int, Column], ColumnPages | None] = {}
    to_locate: list[Chunk] = []
    to_describe: list[ColumnLeaf] = []
    for chunk in located:
        try:
            locations[chunk] = PAGE_INDEXES.get((identity, *chunk))
        except KeyError:
            to_locate.append(chunk)
    for group, column, leaf in described:
        try:
            pages[group, column] = PAGE_INDEXES.get((identity, group, column.path, column.type, leaf.index))
        except KeyError:
            to_describe.append((group, column, leaf))
    location_ranges = [get_readable_range(source.chunk(*chunk).offset_index) for chunk in to_locate]
    bound_ranges = [get_readable_range(source.chunk(group, leaf.index).column_index) for group, _, leaf in to_describe]
    wanted = [byte_range for byte_range in (*location_ranges, *bound_ranges) if byte_range is not None]
    buffers = iter(file.read(wanted))
    for (group, leaf_number), byte_range in zip(to_locate, location_ranges, strict=True):
        found = None
        if byte_range is not None:
            layout = source.chunk(group, leaf_number)
            found = decode_offset_index(next(buffers).to_pybytes(), layout, source.count_rows(group), source.location)
        locations[group, leaf_number] = found
        PAGE_INDEXES.put((identity, group, leaf_number), found, 0 if found is None else 5 * found.offsets.nbytes)
    for (group, column, leaf), byte_range in zip(to_describe, bound_ranges, strict=True):
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
    metadata = make_page_metadata(
        index,
        pages,
        column,
        leaf,
        trust_bytes=can_trust_bytes(source.footer.metadata),
        is_ordered=source.map.column_order(leaf.index) is not None,
    )
    return ColumnPages(pages.first_rows, metadata)


PAGE_INDEXES = WeightedCache(capacity=128 * 1024 * 1024)
"""The page index cache of this process."""
