"""The page index: where the pages of a column chunk are (offset index), and what is in each (column index).

The two are of different weight. Rows are taken from where the offset index says, so one that contradicts itself is a
CorruptFile. The column index only helps to leave pages out: `usable_column_index` gives none, and the reason, where
it cannot be believed. Its order of the pages (`boundary_order`) is shown to people and used for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis import types
from tamis.errors import CorruptFile
from tamis.expr.nodes import Column
from tamis.parquet.bounds import bounds_of_column
from tamis.parquet.chunks import PLAIN_DICTIONARY, RLE_DICTIONARY, ByteRange, ChunkLayout
from tamis.parquet.leaves import Leaf
from tamis.parquet.raw_bounds import raw_bounds
from tamis.parquet.thrift import (
    BINARIES,
    BOOLEANS,
    I32,
    I64,
    INTEGER32,
    INTEGER64,
    INTEGERS,
    LIST,
    STRUCT,
    Int64Array,
    Kind,
    Malformed,
    decoded,
    read_list_header,
    read_struct,
    read_varints,
    required,
    unzigzag,
)
from tamis.skipping.metadata import ROW_COUNT, metadata_name

LARGEST_INDEX = 64 * 1024 * 1024
"""An index of more bytes is not read: it would cost more than the pages that it tells of."""


def readable_index(place: ByteRange | None) -> ByteRange | None:
    """Where an index is, unless there is none or it is too large."""
    return place if place is not None and place[1] <= LARGEST_INDEX else None


@dataclass(frozen=True, eq=False)
class PageLocations:
    """The data pages of a chunk, in order. They cover its bytes without overlap and all its rows without a gap."""

    offsets: Int64Array
    """From the start of the file, each where the header of the page starts."""
    lengths: Int64Array
    """In bytes, headers included."""
    first_rows: Int64Array
    """From the start of the row group."""
    row_count: int
    """Of the row group."""

    @property
    def num_pages(self) -> int:
        return len(self.offsets)

    @cached_property
    def ends(self) -> Int64Array:
        """The row after the last of each page, from the start of the row group."""
        return np.append(self.first_rows[1:], self.row_count) if self.num_pages else self.first_rows

    @cached_property
    def row_counts(self) -> Int64Array:
        """Of each page. A page may be empty."""
        return self.ends - self.first_rows


def decode_offset_index(data: bytes, layout: ChunkLayout, row_count: int, place: str) -> PageLocations:
    """Where the pages are. `row_count` is that of the row group.

    An index that contradicts itself, the row count, or the place of the chunk is a CorruptFile: rows would be taken
    from wrong places by it.
    """
    what = f"the offset index of column {layout.leaf} in row group {layout.row_group} of '{place}'"
    offsets, lengths, first_rows = decoded(_read_offset_index, data, 0, what)
    pages = PageLocations(offsets, lengths, first_rows, row_count)
    wrong = _disagreement(pages, layout)
    if wrong is not None:
        raise CorruptFile(f"{what} {wrong}; write the file again")
    return pages


def _disagreement(pages: PageLocations, layout: ChunkLayout) -> str | None:
    offsets, lengths, first_rows = pages.offsets, pages.lengths, pages.first_rows
    if pages.num_pages == 0:
        return f"has no page, and the row group {pages.row_count} rows" if pages.row_count else None
    if first_rows[0] != 0:
        return f"starts at row {first_rows[0]}"
    # The format wants each page to start behind the one before. Pages without rows are told by starting at the same.
    if (first_rows[1:] < first_rows[:-1]).any():
        return "goes back in its rows"
    if first_rows[-1] > pages.row_count:
        return f"has a page from row {first_rows[-1]} on, and the row group {pages.row_count} rows"
    if (lengths <= 0).any():
        return f"has a page of {lengths.min()} bytes"
    start, length = layout.byte_range
    # Hostile offsets may be so large that a sum with them overflows.
    if offsets.min() < start or (offsets > start + length - lengths).any():
        return f"has a page outside of the chunk, which is at bytes {start} to {start + length}"
    if (np.diff(offsets) < lengths[:-1]).any():
        return "has pages that overlap"
    return None


def dictionary_range(layout: ChunkLayout, pages: PageLocations | None) -> ByteRange | None:
    """Where the dictionary page of a chunk is: it has all bytes before the data. None where there can be none.

    Some writers do not note its place, and call the place of the dictionary that of the data.
    """
    if not {PLAIN_DICTIONARY, RLE_DICTIONARY}.intersection(layout.encodings):
        return None
    first = layout.data_page_offset if pages is None or not pages.num_pages else int(pages.offsets[0])
    start = layout.byte_range[0]
    return (start, first - start) if first > start else None


# --- The bytes of an offset index ------------------------------------------------------------------------------------

_LOCATION: dict[int, Kind] = {1: INTEGER64, 2: INTEGER32, 3: INTEGER64}
_HEADER_1, _HEADER_2, _HEADER_3 = 1 << 4 | I64, 1 << 4 | I32, 1 << 4 | I64
_Locations = tuple[Int64Array, Int64Array, Int64Array]


def _read_locations(data: bytes, position: int) -> tuple[_Locations, int]:
    element, size, position = read_list_header(data, position)
    if size and element != STRUCT:
        raise Malformed(f"a page location is of type {element}")
    return _read_plain_locations(data, position, size) or _read_any_locations(data, position, size)


def _read_plain_locations(data: bytes, position: int, size: int) -> tuple[_Locations, int] | None:
    """Locations of exactly the three fields, in order, as every writer has them; None for any others.

    The header of a field and the end of a struct are one byte each, below 0x80: read as numbers they are themselves.
    So such a list is a sequence of numbers, seven for each location.
    """
    # Each location has seven bytes at least: none of more can be announced.
    if size > (len(data) - position) // 7:
        return None
    try:
        numbers, lengths, position = read_varints(data, position, 7 * size)
    except Malformed:
        return None
    rows, widths = numbers.reshape(size, 7), lengths.reshape(size, 7)
    fixed = [0, 2, 4, 6]
    expected = np.array([_HEADER_1, _HEADER_2, _HEADER_3, 0], np.uint64)
    if not ((rows[:, fixed] == expected).all() and (widths[:, fixed] == 1).all()):
        return None
    if size and rows[:, 3].max() >= 1 << 32:
        raise Malformed("a number has more than 32 bits")
    return (unzigzag(rows[:, 1]), unzigzag(rows[:, 3]), unzigzag(rows[:, 5])), position


def _read_any_locations(data: bytes, position: int, size: int) -> tuple[_Locations, int]:
    found: list[tuple[int, int, int]] = []
    for _ in range(size):
        location, position = read_struct(data, position, _LOCATION)
        found.append((required(location, 1, "offset"), required(location, 2, "size"), required(location, 3, "row")))
    offsets, lengths, first_rows = np.array(found, np.int64).reshape(size, 3).T
    return (offsets, lengths, first_rows), position


_OFFSET_INDEX: dict[int, Kind] = {1: (LIST, _read_locations)}


def _read_offset_index(data: bytes, position: int) -> tuple[_Locations, int]:
    found, position = read_struct(data, position, _OFFSET_INDEX)
    return required(found, 1, "list of pages"), position


# --- What is in the pages --------------------------------------------------------------------------------------------

UNORDERED, ASCENDING, DESCENDING = range(3)


@dataclass(frozen=True, slots=True, eq=False)
class ColumnIndex:
    """What a column index says of each page."""

    null_pages: npt.NDArray[np.bool_]
    """Pages of nulls only. Their bounds are empty."""
    min_values: list[bytes]
    max_values: list[bytes]
    """As they are stored: bounds of the values, not always values."""
    null_counts: Int64Array | None
    nan_counts: Int64Array | None
    boundary_order: int

    @property
    def num_pages(self) -> int:
        return len(self.null_pages)


def decode_column_index(data: bytes, num_pages: int, place: str) -> ColumnIndex:
    """What is in the pages; `num_pages` is what the offset index has. A CorruptFile where it cannot be so."""
    what = f"the column index of {place}"
    found = decoded(_read_column_index, data, 0, what)
    counts = {len(found.null_pages), len(found.min_values), len(found.max_values)}
    counts |= {len(numbers) for numbers in (found.null_counts, found.nan_counts) if numbers is not None}
    if counts != {num_pages}:
        raise CorruptFile(f"{what} describes {sorted(counts)} pages, and there are {num_pages}; write the file again")
    return found


def usable_column_index(
    data: bytes, pages: PageLocations, place: str, *, is_repeated: bool = False
) -> tuple[ColumnIndex | None, str | None]:
    """What is in the pages; or nothing, and why it cannot be believed."""
    try:
        found = decode_column_index(data, pages.num_pages, place)
    except CorruptFile as error:
        return None, str(error)
    wrong = _contradiction(found, None if is_repeated else pages.row_counts)
    return (found, None) if wrong is None else (None, f"the column index of {place} {wrong}")


def _contradiction(index: ColumnIndex, row_counts: Int64Array | None) -> str | None:
    nulls = index.null_counts
    if nulls is None:
        return None
    if (nulls < 0).any():
        return "counts fewer than no nulls"
    # Where rows are lists they have any number of values each.
    if row_counts is None:
        return "calls pages null that have no nulls" if (nulls[index.null_pages] == 0).any() else None
    if (nulls > row_counts).any():
        return "counts more nulls than rows"
    # A page without rows is as much one of nulls only as one without nulls.
    if ((nulls == row_counts) != index.null_pages)[row_counts > 0].any():
        return "contradicts itself: it calls pages null by another count than that of their nulls"
    return None


_COLUMN_INDEX: dict[int, Kind] = {1: BOOLEANS, 2: BINARIES, 3: BINARIES, 4: INTEGER32, 5: INTEGERS, 8: INTEGERS}


def _read_column_index(data: bytes, position: int) -> tuple[ColumnIndex, int]:
    found, position = read_struct(data, position, _COLUMN_INDEX)
    index = ColumnIndex(
        null_pages=required(found, 1, "list of null pages"),
        min_values=required(found, 2, "list of lower bounds"),
        max_values=required(found, 3, "list of upper bounds"),
        null_counts=found.get(5),
        nan_counts=found.get(8),
        boundary_order=found.get(4, UNORDERED),
    )
    return index, position


# --- Pages as units of pruning ---------------------------------------------------------------------------------------


def page_metadata(
    index: ColumnIndex | None,
    pages: PageLocations,
    column: Column,
    leaf: Leaf,
    *,
    trust_bytes: bool = True,
    is_ordered: bool = True,
) -> dict[str, pa.Array]:
    """What is known of the pages of a chunk, one row each, by the names of `tamis.skipping.metadata`.

    `column` is the table's, with the table's type. `is_ordered` is whether the footer names an order for the leaf, and
    `trust_bytes` whether the writer is known to compare bytes rightly: without them there are no bounds.
    """
    return pages_metadata([(index, pages)], column, leaf, trust_bytes=trust_bytes, is_ordered=is_ordered)


def pages_metadata(
    chunks: Sequence[tuple[ColumnIndex | None, PageLocations]],
    column: Column,
    leaf: Leaf,
    *,
    trust_bytes: bool = True,
    is_ordered: bool = True,
) -> dict[str, pa.Array]:
    """The same for a leaf in several row groups at once: the pages of all, one after the other."""
    row_counts = np.concatenate([np.empty(0, np.int64), *(pages.row_counts for _, pages in chunks)])
    null_counts, may_have_bounds = _null_counts(chunks, leaf, row_counts)
    found = {
        ROW_COUNT.name: pa.array(row_counts, types.LONG),
        metadata_name("null_count", column.path): _counts(null_counts),
    }
    reader = bounds_of_column(leaf, column.type, trust_bytes=trust_bytes)
    if reader is None:
        return found
    if pa.types.is_floating(reader.target):
        if pa.types.is_floating(reader.source):
            nan_counts = _nan_counts(chunks, row_counts, null_counts)
        else:
            # A column of whole numbers that the table promoted has no NaN.
            nan_counts = np.zeros(len(row_counts), np.int64)
        found[metadata_name("nan_count", column.path)] = _counts(nan_counts)
    if not is_ordered:
        may_have_bounds = np.zeros(len(row_counts), np.bool_)
    minima: list[bytes] = []
    maxima: list[bytes] = []
    for index, pages in chunks:
        minima += [b""] * pages.num_pages if index is None else index.min_values
        maxima += [b""] * pages.num_pages if index is None else index.max_values
    bounds = raw_bounds(reader, leaf, minima, maxima, may_have_bounds)
    return found | {metadata_name(kind, column.path): array for kind, array in bounds._asdict().items()}


_UNKNOWN = -1


def _counts(counts: Int64Array) -> pa.Array:
    return pa.array(counts, types.LONG, mask=counts == _UNKNOWN)


def _null_counts(
    chunks: Sequence[tuple[ColumnIndex | None, PageLocations]], leaf: Leaf, row_counts: Int64Array
) -> tuple[Int64Array, npt.NDArray[np.bool_]]:
    """How many nulls the pages have, and which of them have values that an index may give bounds of."""
    counts, with_values = [np.empty(0, np.int64)], [np.empty(0, np.bool_)]
    for index, pages in chunks:
        if index is None:
            counts.append(np.full(pages.num_pages, _UNKNOWN))
            with_values.append(np.zeros(pages.num_pages, np.bool_))
        else:
            known = np.full(pages.num_pages, _UNKNOWN) if index.null_counts is None else index.null_counts
            counts.append(np.where(index.null_pages, pages.row_counts, known))
            with_values.append(~index.null_pages)
    nulls = np.concatenate(counts)
    if pa.types.is_null(leaf.arrow_type):
        nulls = row_counts
    elif not leaf.nullable:
        # A column that is required has no NULL, counted or not.
        nulls = np.zeros(len(row_counts), np.int64)
    return np.where((nulls < 0) | (nulls > row_counts), _UNKNOWN, nulls), np.concatenate(with_values)


def _nan_counts(
    chunks: Sequence[tuple[ColumnIndex | None, PageLocations]], row_counts: Int64Array, null_counts: Int64Array
) -> Int64Array:
    counted = [np.empty(0, np.int64)]
    for index, pages in chunks:
        counts = None if index is None else index.nan_counts
        counted.append(np.full(pages.num_pages, _UNKNOWN) if counts is None else counts)
    counts = np.concatenate(counted)
    # A page without values has no NaN among them.
    counts = np.where(null_counts == row_counts, 0, counts)
    return np.where((counts < 0) | (counts > row_counts), _UNKNOWN, counts)
