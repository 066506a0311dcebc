"""The page index of a column chunk: page locations (offset index) and page statistics (column index).

The two differ in importance. Rows are read from the locations in the offset index, so an inconsistent one raises
CorruptFile. The column index only helps to skip pages: for an invalid one `try_decode_column_index` returns None and
the reason. Its `boundary_order` is only displayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile
from tamis.expr.datetime_text import SECONDS_PER_DAY
from tamis.expr.nodes import Column
from tamis.parquet.footer.bounds import UNKNOWN, BoundsReader, make_bounds_reader
from tamis.parquet.footer.chunks import PLAIN_DICTIONARY, RLE_DICTIONARY, ByteRange, ChunkLayout
from tamis.parquet.footer.leaves import Leaf
from tamis.parquet.footer.thrift import (
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
    decode_or_raise,
    decode_zigzag,
    get_required,
    read_list_header,
    read_struct,
    read_varints,
)
from tamis.skipping.metadata import ROW_COUNT, metadata_name
from tamis.types import UNITS_PER_SECOND

MAX_INDEX_BYTES = 64 * 1024 * 1024
"""The maximum index size in bytes. Reading a larger one would cost more than reading the pages."""


def get_readable_range(byte_range: ByteRange | None) -> ByteRange | None:
    """Return the range of an index, or None if it is missing or too large."""
    return byte_range if byte_range is not None and byte_range[1] <= MAX_INDEX_BYTES else None


@dataclass(frozen=True, eq=False)
class PageLocations:
    """The data pages of a chunk, in order. They do not overlap and cover all rows without a gap."""

    offsets: Int64Array
    """The offsets of the page headers in the file."""
    lengths: Int64Array
    """The lengths of the pages in bytes, headers included."""
    first_rows: Int64Array
    """The first row of each page within the row group."""
    row_count: int

    @property
    def num_pages(self) -> int:
        return len(self.offsets)

    @cached_property
    def ends(self) -> Int64Array:
        """The row after the last row of each page within the row group."""
        return np.append(self.first_rows[1:], self.row_count) if self.num_pages else self.first_rows

    @cached_property
    def row_counts(self) -> Int64Array:
        """The number of rows of each page, which may be 0."""
        return self.ends - self.first_rows


def decode_offset_index(data: bytes, layout: ChunkLayout, row_count: int, location: str) -> PageLocations:
    """Return the page locations. `row_count` is the number of rows of the row group.

    An index that is inconsistent in itself, with the row count or with the range of the chunk raises CorruptFile,
    because rows would be read from wrong offsets.
    """
    what = f"the offset index of column {layout.leaf} in row group {layout.row_group} of '{location}'"
    offsets, lengths, first_rows = decode_or_raise(_read_offset_index, data, 0, what)
    pages = PageLocations(offsets, lengths, first_rows, row_count)
    wrong = _find_inconsistency(pages, layout)
    if wrong is not None:
        raise CorruptFile(f"{what} {wrong}; write the file again")
    return pages


def _find_inconsistency(pages: PageLocations, layout: ChunkLayout) -> str | None:
    offsets, lengths, first_rows = pages.offsets, pages.lengths, pages.first_rows
    if pages.num_pages == 0:
        return f"has no pages for the {pages.row_count} rows of the row group" if pages.row_count else None
    if first_rows[0] != 0:
        return f"starts at row {first_rows[0]}, expected row 0"
    # The format requires each page to start after the previous one. Empty pages start at the same row.
    if (first_rows[1:] < first_rows[:-1]).any():
        return "has first rows that are not ascending"
    if first_rows[-1] > pages.row_count:
        return f"has a page at row {first_rows[-1]} of a row group with {pages.row_count} rows"
    if (lengths <= 0).any():
        return f"has a page of {lengths.min()} bytes"
    start, length = layout.byte_range
    # Hostile offsets may be so large that a sum with them overflows.
    if offsets.min() < start or (offsets > start + length - lengths).any():
        return f"has a page outside the chunk, whose byte range is {start} to {start + length}"
    if (np.diff(offsets) < lengths[:-1]).any():
        return "has pages that overlap"
    return None


def find_dictionary_range(layout: ChunkLayout, pages: PageLocations | None) -> ByteRange | None:
    """Return the range of a chunk's dictionary page, all bytes before the data pages; None if it has none.

    Some writers do not state its offset, and state the offset of the dictionary as that of the data pages.
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
        raise Malformed(f"a page location has the Thrift type {element}, expected a struct")
    return _read_plain_locations(data, position, size) or _read_any_locations(data, position, size)


def _read_plain_locations(data: bytes, position: int, size: int) -> tuple[_Locations, int] | None:
    """Decode locations with exactly the three fields, in order, as all known writers produce; None for any others.

    The header of a field and the end of a struct are one byte each, below 0x80, so they decode as varints of the same
    value. Such a list is therefore a sequence of varints, seven for each location.
    """
    # Each location has at least seven bytes, which limits the possible size.
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
    return (decode_zigzag(rows[:, 1]), decode_zigzag(rows[:, 3]), decode_zigzag(rows[:, 5])), position


def _read_any_locations(data: bytes, position: int, size: int) -> tuple[_Locations, int]:
    found: list[tuple[int, int, int]] = []
    for _ in range(size):
        location, position = read_struct(data, position, _LOCATION)
        found.append(
            (get_required(location, 1, "offset"), get_required(location, 2, "size"), get_required(location, 3, "row"))
        )
    offsets, lengths, first_rows = np.array(found, np.int64).reshape(size, 3).T
    return (offsets, lengths, first_rows), position


_OFFSET_INDEX: dict[int, Kind] = {1: (LIST, _read_locations)}


def _read_offset_index(data: bytes, position: int) -> tuple[_Locations, int]:
    found, position = read_struct(data, position, _OFFSET_INDEX)
    return get_required(found, 1, "list of pages"), position


# --- The bytes of a column index -------------------------------------------------------------------------------------

UNORDERED, ASCENDING, DESCENDING = range(3)


@dataclass(frozen=True, slots=True, eq=False)
class ColumnIndex:
    """The statistics of each page in a column index."""

    null_pages: npt.NDArray[np.bool_]
    """The pages with only nulls. Their bounds are empty."""
    min_values: list[bytes]
    max_values: list[bytes]
    """The stored bytes: bounds of the values, not always values themselves."""
    null_counts: Int64Array | None
    nan_counts: Int64Array | None
    boundary_order: int

    @property
    def num_pages(self) -> int:
        return len(self.null_pages)


def decode_column_index(data: bytes, num_pages: int, location: str) -> ColumnIndex:
    """Decode the page statistics; raise CorruptFile unless there are `num_pages`, the number in the offset index."""
    what = f"the column index of {location}"
    found = decode_or_raise(_read_column_index, data, 0, what)
    counts = {len(found.null_pages), len(found.min_values), len(found.max_values)}
    counts |= {len(numbers) for numbers in (found.null_counts, found.nan_counts) if numbers is not None}
    if counts != {num_pages}:
        raise CorruptFile(f"{what} has {sorted(counts)} pages, expected {num_pages}; write the file again")
    return found


def try_decode_column_index(
    data: bytes, pages: PageLocations, location: str, *, is_repeated: bool = False
) -> tuple[ColumnIndex | None, str | None]:
    """Decode the page statistics; if they are invalid, return None and the reason."""
    try:
        found = decode_column_index(data, pages.num_pages, location)
    except CorruptFile as error:
        return None, str(error)
    wrong = _find_contradiction(found, None if is_repeated else pages.row_counts)
    return (found, None) if wrong is None else (None, f"the column index of {location} {wrong}")


def _find_contradiction(index: ColumnIndex, row_counts: Int64Array | None) -> str | None:
    nulls = index.null_counts
    if nulls is None:
        return None
    if (nulls < 0).any():
        return "has a negative null count"
    # Rows of a repeated column have any number of values.
    if row_counts is None:
        return "marks pages without nulls as null pages" if (nulls[index.null_pages] == 0).any() else None
    if (nulls > row_counts).any():
        return "counts more nulls than rows"
    # An empty page may be marked as a null page or not.
    if ((nulls == row_counts) != index.null_pages)[row_counts > 0].any():
        return "is inconsistent: its null pages and its null counts disagree"
    return None


_COLUMN_INDEX: dict[int, Kind] = {1: BOOLEANS, 2: BINARIES, 3: BINARIES, 4: INTEGER32, 5: INTEGERS, 8: INTEGERS}


def _read_column_index(data: bytes, position: int) -> tuple[ColumnIndex, int]:
    found, position = read_struct(data, position, _COLUMN_INDEX)
    index = ColumnIndex(
        null_pages=get_required(found, 1, "list of null pages"),
        min_values=get_required(found, 2, "list of lower bounds"),
        max_values=get_required(found, 3, "list of upper bounds"),
        null_counts=found.get(5),
        nan_counts=found.get(8),
        boundary_order=found.get(4, UNORDERED),
    )
    return index, position


# --- Pages as units of pruning ---------------------------------------------------------------------------------------


def make_pages_metadata(
    chunks: Sequence[tuple[ColumnIndex | None, PageLocations]],
    column: Column,
    leaf: Leaf,
    *,
    trust_bytes: bool = True,
    is_ordered: bool = True,
) -> dict[str, pa.Array]:
    """Return the metadata of the pages of a leaf in some row groups, with the names of `tamis.skipping.metadata`.

    `column` is the table's, with the table's type. `is_ordered` says whether the footer has a supported column order
    for the leaf, and `trust_bytes` whether the writer compares bytes correctly; otherwise there are no bounds.
    """
    row_counts = np.concatenate([np.empty(0, np.int64), *(pages.row_counts for _, pages in chunks)])
    null_counts, may_have_bounds = _read_null_counts(chunks, leaf, row_counts)
    found = {
        ROW_COUNT.name: pa.array(row_counts, types.LONG),
        metadata_name("null_count", column.path): _as_counts(null_counts),
    }
    reader = make_bounds_reader(leaf, column.type, trust_bytes=trust_bytes)
    if reader is None:
        return found
    if pa.types.is_floating(reader.target):
        if pa.types.is_floating(reader.source):
            nan_counts = _read_nan_counts(chunks, row_counts, null_counts)
        else:
            # An integer column that the table promoted to floats has no NaN.
            nan_counts = np.zeros(len(row_counts), np.int64)
        found[metadata_name("nan_count", column.path)] = _as_counts(nan_counts)
    if not is_ordered:
        may_have_bounds = np.zeros(len(row_counts), np.bool_)
    minima: list[bytes] = []
    maxima: list[bytes] = []
    for index, pages in chunks:
        minima += [b""] * pages.num_pages if index is None else index.min_values
        maxima += [b""] * pages.num_pages if index is None else index.max_values
    bounds = convert_raw_bounds(reader, leaf, minima, maxima, may_have_bounds)
    return found | {metadata_name(kind, column.path): array for kind, array in bounds._asdict().items()}


_UNKNOWN = -1


def _as_counts(counts: Int64Array) -> pa.Array:
    return pa.array(counts, types.LONG, mask=counts == _UNKNOWN)


def _read_null_counts(
    chunks: Sequence[tuple[ColumnIndex | None, PageLocations]], leaf: Leaf, row_counts: Int64Array
) -> tuple[Int64Array, npt.NDArray[np.bool_]]:
    """Return the null counts of the pages, and which pages have values, and so may have bounds."""
    counts, has_values = [np.empty(0, np.int64)], [np.empty(0, np.bool_)]
    for index, pages in chunks:
        if index is None:
            counts.append(np.full(pages.num_pages, _UNKNOWN))
            has_values.append(np.zeros(pages.num_pages, np.bool_))
        else:
            known = np.full(pages.num_pages, _UNKNOWN) if index.null_counts is None else index.null_counts
            counts.append(np.where(index.null_pages, pages.row_counts, known))
            has_values.append(~index.null_pages)
    nulls = np.concatenate(counts)
    if pa.types.is_null(leaf.arrow_type):
        nulls = row_counts
    elif not leaf.nullable:
        # A required column has no NULL, whether counted or not.
        nulls = np.zeros(len(row_counts), np.int64)
    return np.where((nulls < 0) | (nulls > row_counts), _UNKNOWN, nulls), np.concatenate(has_values)


def _read_nan_counts(
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


# --- Vectorised conversion of page bounds from the bytes in a column index to arrays of the table's type --------------
#
# The rules are those of `tamis.parquet.footer.bounds`, which converts one pair at a time. If the table has the type
# of the file, as nearly always, whole columns are converted here by the same rules; all other pairs are converted
# there.

Mask = npt.NDArray[np.bool_]


class BoundsArrays(NamedTuple):
    """Bounds with one row per page; null is unknown."""

    lower: pa.Array
    upper: pa.Array
    lower_exact: pa.Array
    upper_exact: pa.Array


_STORED = {"BOOLEAN": "u1", "INT32": "<i4", "INT64": "<i8", "FLOAT": "<f4", "DOUBLE": "<f8"}


def convert_raw_bounds(
    reader: BoundsReader, leaf: Leaf, minima: Sequence[bytes], maxima: Sequence[bytes], known: Mask
) -> BoundsArrays:
    """Return the bounds of the pages; pages that are not `known` have none."""
    stored = "<f2" if pa.types.is_float16(reader.source) else _STORED.get(leaf.physical)
    if leaf.physical == "BYTE_ARRAY":
        found = _convert_bytes(reader, minima, maxima, known)
        return found if found is not None else _convert_each(reader, minima, maxima, known)
    width = leaf.length if stored is None else np.dtype(stored).itemsize
    # Bounds of another length have another type, or are truncated.
    fits = np.array([len(low) == width == len(high) for low, high in zip(minima, maxima, strict=True)], np.bool_)
    known = known & fits
    if stored is None:
        return _convert_each(reader, minima, maxima, known)
    lows, highs = (_decode_fixed(values, known, width, stored) for values in (minima, maxima))
    if leaf.physical == "BOOLEAN":
        known = known & (lows <= 1) & (highs <= 1)
    source, target = reader.source, reader.target
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        # The compatibility of the zones was checked when the reader was created.
        is_same = source.unit == target.unit
    else:
        is_same = source == target and not pa.types.is_decimal(source)
    if leaf.needs_rebase or not is_same:
        # `reader` expects what pyarrow returns for a statistic: the bytes of a float16, otherwise the number.
        if pa.types.is_float16(reader.source):
            return _convert_each(reader, minima, maxima, known)
        return _convert_each(reader, lows.tolist(), highs.tolist(), known)
    if pa.types.is_floating(reader.source):
        return _convert_floats(reader, lows, highs, known)
    return _convert_integers(reader, lows, highs, known)


def _convert_each(reader: BoundsReader, lows: Sequence[Any], highs: Sequence[Any], known: Mask) -> BoundsArrays:
    pairs = zip(lows, highs, known.tolist(), strict=True)
    bounds = [reader.bounds(low, high) if is_known else UNKNOWN for low, high, is_known in pairs]
    return BoundsArrays(
        reader.array([bound[0] for bound in bounds]),
        reader.array([bound[1] for bound in bounds]),
        pa.array([bound[2] for bound in bounds], types.BOOLEAN),
        pa.array([bound[3] for bound in bounds], types.BOOLEAN),
    )


def _decode_fixed(values: Sequence[bytes], known: Mask, width: int, stored: str) -> npt.NDArray[Any]:
    zeros = bytes(width)
    joined = b"".join([value if is_known else zeros for value, is_known in zip(values, known.tolist(), strict=True)])
    return np.frombuffer(joined, stored)


def _make_array(values: npt.NDArray[Any], unknown: Mask, target: pa.DataType) -> pa.Array:
    storage = target
    if pa.types.is_temporal(target):
        storage = pa.int32() if target.bit_width == 32 else types.LONG
    return pa.array(values.astype(storage.to_pandas_dtype()), storage, mask=unknown).view(target)


def _make_exact(exact: Mask, unknown: Mask) -> pa.Array:
    return pa.array(exact, types.BOOLEAN, mask=unknown)


def _convert_floats(reader: BoundsReader, lows: npt.NDArray[Any], highs: npt.NDArray[Any], known: Mask) -> BoundsArrays:
    # A comparison with NaN is false, so a NaN drops the pair too.
    unknown = ~(known & (lows <= highs))
    # Writers that treat both zeros as equal may write either, so each bound uses the outer zero.
    low_is_zero, high_is_zero = lows == 0, highs == 0
    lows, highs = (
        np.where(low_is_zero, lows.dtype.type(-0.0), lows),
        np.where(high_is_zero, lows.dtype.type(0.0), highs),
    )
    return BoundsArrays(
        _make_array(lows, unknown, reader.target),
        _make_array(highs, unknown, reader.target),
        _make_exact(~low_is_zero, unknown),
        _make_exact(~high_is_zero, unknown),
    )


def _convert_integers(
    reader: BoundsReader, lows: npt.NDArray[Any], highs: npt.NDArray[Any], known: Mask
) -> BoundsArrays:
    source, target = reader.source, reader.target
    low_in_range = high_in_range = np.ones(len(known), np.bool_)
    if pa.types.is_integer(source):
        if pa.types.is_unsigned_integer(source):
            # Parquet has no unsigned physical types, so the bytes are reinterpreted.
            lows, highs = lows.view(f"<u{lows.itemsize}"), highs.view(f"<u{highs.itemsize}")
        smallest, largest = types.get_integer_range(source)
        known = known & (lows >= smallest) & (lows <= largest) & (highs >= smallest) & (highs <= largest)
    elif not pa.types.is_boolean(source):
        # Some libraries use the smallest integer as NaT ("not a time").
        largest = int(2 ** (target.bit_width - 1) - 1)
        smallest = -largest
        if pa.types.is_time(target):
            smallest, largest = 0, SECONDS_PER_DAY * UNITS_PER_SECOND[target.unit] - 1
        low_in_range = (lows >= smallest) & (lows <= largest)
        high_in_range = (highs >= smallest) & (highs <= largest)
    known = known & (lows <= highs)
    no_lower, no_upper = ~(known & low_in_range), ~(known & high_in_range)
    exact = np.ones(len(known), np.bool_)
    return BoundsArrays(
        _make_array(lows, no_lower, target),
        _make_array(highs, no_upper, target),
        _make_exact(exact, no_lower),
        _make_exact(exact, no_upper),
    )


def _convert_bytes(
    reader: BoundsReader, minima: Sequence[bytes], maxima: Sequence[bytes], known: Mask
) -> BoundsArrays | None:
    """Convert string and binary bounds; None for other types, or if a bound is not valid UTF-8."""
    target = reader.target
    if not (types.is_text(target) or pa.types.is_binary(target) or pa.types.is_large_binary(target)):
        return None
    if not pa.types.is_binary(reader.source):
        return None
    lows, highs = (pa.array(values, types.BINARY, mask=~known) for values in (minima, maxima))
    ordered = pc.less_equal(lows, highs)
    unknown = ~np.asarray(ordered.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)
    if unknown.any():
        nothing = pa.scalar(None, types.BINARY)
        lows, highs = pc.if_else(ordered, lows, nothing), pc.if_else(ordered, highs, nothing)
    try:
        lower, upper = (values.cast(target) for values in (lows, highs))
    except pa.ArrowInvalid:
        # A bound was truncated within a character.
        return None
    # Bounds of bytes may be truncated, and the index does not record it.
    inexact = _make_exact(np.zeros(len(known), np.bool_), unknown)
    return BoundsArrays(lower, upper, inexact, inexact)
