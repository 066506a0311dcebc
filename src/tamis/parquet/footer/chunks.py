"""Column chunk metadata from the footer: locations of pages, indexes and Bloom filters, and encodings.

pyarrow's `FileMetaData` exposes neither the locations of page indexes and Bloom filters nor the exactness of bounds, so
the bytes of the footer are parsed a second time. Chunks have no fixed length: to find one, all chunks before it must be
skipped. `map_footer` does this once per footer (callers cache it); afterwards only requested chunks are decoded.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from tamis.errors import CorruptFile, UnsupportedFeature
from tamis.parquet.footer.thrift import (
    BINARY,
    BYTE,
    BYTES,
    DOUBLE,
    FALSE,
    FLAG,
    I16,
    I64,
    INTEGER32,
    INTEGER64,
    LIST,
    SET,
    STRUCT,
    TRUE,
    Int64Array,
    Kind,
    Malformed,
    Struct,
    decode_or_raise,
    get_required,
    make_list_kind,
    make_struct_kind,
    read_list_header,
    read_struct,
    read_varint,
    skip,
)

MAGIC_LENGTH = 4
TRAILER_LENGTH = 8

# Enum values of the Parquet format.
PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED, RLE_DICTIONARY = 0, 2, 3, 4, 8
DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = range(4)
_DICTIONARY_ENCODINGS = (PLAIN_DICTIONARY, RLE_DICTIONARY)
CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
UNCOMPRESSED = 0

# Column orders, which define how bounds are compared.
TYPE_ORDER, TOTAL_ORDER = 1, 2

ByteRange = tuple[int, int]

MAX_SLACK = 100
"""The number of bytes that pyarrow reads past the stated end of a chunk that `may_be_short`, if the file has them."""
_PLAIN_PARQUET_MR = re.compile(r"parquet-mr version (?P<version>\d{1,9}\.\d{1,9}\.\d{1,9})")
_FIRST_TO_COUNT_DICTIONARY_HEADERS = (1, 2, 9)


def may_be_short(created_by: str | None) -> bool:
    """Return whether a writer's chunks may be longer than the footer states (PARQUET-816); None: unknown writer.

    parquet-mr before 1.2.9 did not count the header of the dictionary page. pyarrow reads more of such files, also of
    files whose version it cannot parse, so those bytes must be available: only a plain version is trusted.

    >>> may_be_short("parquet-mr"), may_be_short("parquet-mr version 1.10.1 (build a)"), may_be_short("DuckDB")
    (True, False, False)
    """
    if created_by is None:
        return True
    if "parquet-mr" not in created_by.lower():
        return False
    plain = _PLAIN_PARQUET_MR.match(created_by)
    return plain is None or tuple(map(int, plain["version"].split("."))) < _FIRST_TO_COUNT_DICTIONARY_HEADERS


@dataclass(frozen=True, slots=True)
class ChunkLayout:
    """The metadata of one column chunk."""

    row_group: int
    leaf: int
    codec: int
    encodings: tuple[int, ...]
    data_page_offset: int
    dictionary_page_offset: int | None
    """None also if the writer states 0 or an offset behind the data."""
    total_compressed_size: int
    total_uncompressed_size: int
    num_values: int
    column_index: ByteRange | None
    offset_index: ByteRange | None
    bloom_filter: tuple[int, int | None] | None
    """Offset, and the length if the writer states it."""
    all_dictionary: bool
    """Whether every data page is known to be dictionary-encoded."""
    dictionary_pages: int | None
    """The number of dictionary-encoded data pages; None if unknown."""
    min_exact: bool | None
    max_exact: bool | None
    """Whether a bound is the value of some row; None if unknown."""
    null_count: int | None
    nan_count: int | None
    byte_range: ByteRange
    """The range of the whole chunk: dictionary page, data pages, and `slack` bytes."""
    text_bytes: int | None = None
    """The total length of the byte arrays of all rows; None if unknown."""
    distinct_count: int | None = None
    """The number of different values, without NULL; None if unknown or impossible."""
    slack: int = 0
    """The number of bytes at the end that may not belong to the chunk: see `may_be_short`."""


@dataclass(frozen=True, slots=True, eq=False)
class FooterMap:
    """Positions of row groups and column chunks in the bytes of a footer."""

    footer: bytes
    schema: bytes
    """The encoded list of schema elements."""
    rows: Int64Array
    chunks: npt.NDArray[np.int64]
    """The position of each chunk: one row per row group, one column per leaf."""
    column_orders: tuple[int | None, ...] | None
    """The column order of each leaf, None if unsupported; or None if the footer has no column orders."""
    created_by: bytes | None

    @property
    def may_be_short(self) -> bool:
        """Return whether chunks may be longer than the footer states."""
        try:
            return may_be_short((self.created_by or b"").decode())
        except UnicodeDecodeError:
            return True

    def read_column_order(self, leaf: int) -> int | None:
        return self.column_orders[leaf] if self.column_orders and leaf < len(self.column_orders) else None


@dataclass(slots=True)
class FooterMemory:
    """What was found in footers with one schema: most footers of a table differ only in the numbers of their chunks.

    Threads share it: every value is replaced as a whole.
    """

    start: tuple[bytes, bytes] | None = None
    """The bytes up to the end of the schema, and those of the schema alone."""
    end: tuple[bytes, Struct] | None = None
    """The bytes after the row groups, and their fields."""
    walked_first: int = 500
    """The number of chunks that are walked before shapes are learned, which takes longer than a walk."""
    walked: int = 0
    shapes: dict[int, tuple[ChunkShape, ...]] = field(default_factory=dict)
    """The shapes of valid chunks of each leaf, none yet if only one chunk was seen."""


class ChunkSkipper:
    """Finds the ends of chunks. It accepts all chunks that can be skipped."""

    def check_columns(self, row_group: int, columns: int) -> None:
        """Raise if a row group must not have this number of columns."""

    def find_end(self, footer: bytes, position: int, row_group: int, leaf: int) -> int:
        return skip(footer, position, STRUCT)


def map_footer(
    footer: bytes, location: str, chunks: ChunkSkipper | None = None, memory: FooterMemory | None = None
) -> FooterMap:
    """Find the row groups and the chunks of a footer (the bytes before its length and the magic)."""
    read = partial(_read_map, chunks=chunks or ChunkSkipper(), memory=memory or FooterMemory())
    return decode_or_raise(read, footer, 0, f"the footer of '{location}'")


def read_chunk_layouts(
    footer: bytes | FooterMap,
    leaves: Collection[int],
    row_groups: Collection[int] | None,
    file_size: int,
    location: str,
) -> dict[tuple[int, int], ChunkLayout]:
    """Decode the chunks of these leaves in these row groups (None: in all), by row group and leaf.

    A chunk outside the data of the file, or a leaf or row group that the footer does not have, raises CorruptFile. An
    index or Bloom filter outside the file is ignored, because both are optional.
    """
    where = footer if isinstance(footer, FooterMap) else map_footer(footer, location)
    groups, columns = where.chunks.shape
    wanted = range(groups) if row_groups is None else row_groups
    if any(not 0 <= group < groups for group in wanted) or any(not 0 <= leaf < columns for leaf in leaves):
        raise CorruptFile(f"'{location}' has {groups} row groups of {columns} columns, and others were requested")
    end = file_size - TRAILER_LENGTH - len(where.footer)
    layouts = {}
    for group in wanted:
        for leaf in leaves:
            what = f"column {leaf} in row group {group} of '{location}'"
            found = decode_or_raise(_read_chunk, where.footer, int(where.chunks[group, leaf]), what)
            layouts[group, leaf] = _make_layout(found, group, leaf, end, what, is_short=where.may_be_short)
    return layouts


# --- Finding the chunks ----------------------------------------------------------------------------------------------


def _read_map(footer: bytes, position: int, chunks: ChunkSkipper, memory: FooterMemory) -> tuple[FooterMap, int]:
    start, end = memory.start, memory.end
    if start is not None and not footer.startswith(start[0]):
        start = None

    def read_schema(data: bytes, position: int) -> tuple[tuple[bytes, bytes], int]:
        after = skip(data, position, LIST)
        return (data[:after], data[position:after]), after

    def read_row_groups(data: bytes, position: int) -> tuple[_RowGroups, int]:
        groups, position = _read_row_groups(data, position, chunks)
        groups.end = data[position:]
        # The last byte ends the struct of the file.
        return groups, len(data) - 1 if end is not None and groups.end == end[0] else position

    wanted = {2: (LIST, read_schema), 3: INTEGER64, 4: (LIST, read_row_groups), **_AFTER_ROW_GROUPS}
    found, position = read_struct(footer, len(start[0]) if start else 0, wanted, 2 if start else 0)
    groups: _RowGroups = get_required(found, 4, "list of row groups")
    start = start or get_required(found, 2, "schema")
    after = {identifier: value for identifier, value in found.items() if identifier in _AFTER_ROW_GROUPS}
    if end is not None and groups.end == end[0]:
        after = end[1]
    elif list(found)[:3] == [2, 3, 4] or list(found)[:2] == [3, 4]:
        # In the usual order, the start has nothing but the schema, and the end none of the other fields.
        memory.start, memory.end = start, (groups.end, after)
    if len({len(group) for group in groups.chunks}) > 1:
        raise Malformed("its row groups have different numbers of columns")
    width = len(groups.chunks[0]) if groups.chunks else 0
    positions = np.array(groups.chunks, np.int64).reshape(len(groups.chunks), width)
    orders = tuple(next(iter(order), None) for order in after[7]) if 7 in after else None
    rows = np.array(groups.rows, np.int64)
    return FooterMap(footer, start[1], rows, positions, orders, after.get(6)), position


@dataclass(slots=True)
class _RowGroups:
    rows: list[int]
    chunks: list[list[int]]
    end: bytes = b""


def _read_row_groups(footer: bytes, position: int, chunks: ChunkSkipper) -> tuple[_RowGroups, int]:
    element, size, position = read_list_header(footer, position)
    if size and element != STRUCT:
        raise Malformed(f"a row group has the Thrift type {element}, expected a struct")
    found = _RowGroups([], [])

    def read_positions(data: bytes, position: int) -> tuple[list[int], int]:
        element, size, position = read_list_header(data, position)
        if size and element != STRUCT:
            raise Malformed(f"a column chunk has the Thrift type {element}, expected a struct")
        chunks.check_columns(len(found.rows), size)
        positions = []
        for leaf in range(size):
            positions.append(position)
            position = chunks.find_end(data, position, len(found.rows), leaf)
        return positions, position

    wanted = {1: (LIST, read_positions), 3: INTEGER64}
    for number in range(size):
        group, position = read_struct(footer, position, wanted)
        found.chunks.append(get_required(group, 1, "columns in a row group"))
        found.rows.append(get_required(group, 3, "number of rows in a row group"))
        if found.rows[-1] < 0:
            raise Malformed(f"it has a negative number of rows in row group {number}")
    return found, position


_AFTER_ROW_GROUPS: dict[int, Kind] = {
    6: BYTES,
    7: make_list_kind(make_struct_kind({TYPE_ORDER: make_struct_kind({}), TOTAL_ORDER: make_struct_kind({})})),
}

# --- One chunk -------------------------------------------------------------------------------------------------------

_STATISTICS: dict[int, Kind] = {3: INTEGER64, 4: INTEGER64, 7: FLAG, 8: FLAG, 9: INTEGER64}
_ENCODING_STATISTICS: dict[int, Kind] = {1: INTEGER32, 2: INTEGER32, 3: INTEGER32}
_METADATA: dict[int, Kind] = {
    2: make_list_kind(INTEGER32),
    **dict.fromkeys((4, 15), INTEGER32),
    **dict.fromkeys((5, 6, 7, 9, 11, 14), INTEGER64),
    12: make_struct_kind(_STATISTICS),
    13: make_list_kind(make_struct_kind(_ENCODING_STATISTICS)),
    16: make_struct_kind({1: INTEGER64}),
}
_CHUNK: dict[int, Kind] = {
    1: BYTES,
    3: make_struct_kind(_METADATA),
    4: INTEGER64,
    5: INTEGER32,
    6: INTEGER64,
    7: INTEGER32,
    8: make_struct_kind({}),
}


def _read_chunk(footer: bytes, position: int) -> tuple[Struct, int]:
    chunk, position = read_struct(footer, position, _CHUNK)
    metadata = get_required(chunk, 3, "metadata")
    for identifier, name in _REQUIRED.items():
        get_required(metadata, identifier, name)
    for encoding in metadata.get(13, ()):
        for identifier, name in _REQUIRED_OF_ENCODING.items():
            get_required(encoding, identifier, name)
    return chunk, position


_REQUIRED = {
    2: "encodings",
    4: "codec",
    5: "number of values",
    6: "uncompressed size",
    7: "compressed size",
    9: "offset of its data",
}
_REQUIRED_OF_ENCODING = {1: "type of page with an encoding", 2: "encoding of its pages", 3: "count of its pages"}


def _make_layout(chunk: Struct, group: int, leaf: int, end: int, what: str, *, is_short: bool) -> ChunkLayout:
    if chunk.get(1):
        raise UnsupportedFeature(
            f"{what} is stored in another file, which is not supported; write the table into one file"
        )
    if 8 in chunk:
        raise UnsupportedFeature(f"{what} is encrypted, which is not supported; decrypt the file first")
    metadata = chunk[3]
    data, length = metadata[9], metadata[7]
    dictionary = metadata.get(11)
    if dictionary is not None and not 0 < dictionary < data:
        dictionary = None
    start = data if dictionary is None else dictionary
    if metadata[5] < 0 or metadata[6] < 0 or length < 0:
        raise CorruptFile(f"{what} has a negative size; write the file again")
    if not MAGIC_LENGTH <= start <= end - length:
        if metadata[5] == 0:
            # Some writers state no offset for a chunk without values.
            start = MAGIC_LENGTH
            dictionary, length = None, 0
        else:
            raise CorruptFile(
                f"{what} has the byte range {start} to {start + length}, and the data ends at {end}; write it again"
            )
    if dictionary is not None and data > start + length:
        raise CorruptFile(f"{what} has its data pages at byte {data - start} of {length}; write the file again")
    statistics = metadata.get(12, {})
    slack = min(MAX_SLACK, end - start - length) if is_short and length else 0
    return ChunkLayout(
        row_group=group,
        leaf=leaf,
        codec=metadata[4],
        encodings=tuple(metadata[2]),
        data_page_offset=metadata[9],
        dictionary_page_offset=dictionary,
        total_compressed_size=metadata[7],
        total_uncompressed_size=metadata[6],
        num_values=metadata[5],
        column_index=_check_index_range(chunk.get(6), chunk.get(7), end),
        offset_index=_check_index_range(chunk.get(4), chunk.get(5), end),
        bloom_filter=_check_filter_range(metadata.get(14), metadata.get(15), end),
        all_dictionary=_is_all_dictionary_encoded(metadata[2], metadata.get(13)),
        dictionary_pages=_count_dictionary_pages(metadata.get(13)),
        min_exact=statistics.get(8),
        max_exact=statistics.get(7),
        null_count=_check_count(statistics.get(3)),
        nan_count=_check_count(statistics.get(9)),
        byte_range=(start, length + slack),
        slack=slack,
        distinct_count=_check_distinct_count(statistics, metadata[5]),
        text_bytes=_check_count(metadata.get(16, {}).get(1)),
    )


def _check_index_range(offset: int | None, length: int | None, end: int) -> ByteRange | None:
    # Page indexes are optional, so one with an impossible range is ignored.
    if offset is None or length is None or length <= 0 or not MAGIC_LENGTH <= offset <= end - length:
        return None
    return offset, length


def _check_filter_range(offset: int | None, length: int | None, end: int) -> tuple[int, int | None] | None:
    if offset is None or not MAGIC_LENGTH <= offset < end:
        return None
    # Without a length, the filter's header states it. An impossible length makes the whole entry untrustworthy.
    return (offset, length) if length is None or 0 < length <= end - offset else None


def _check_count(number: int | None) -> int | None:
    return number if number is not None and number >= 0 else None


def _check_distinct_count(statistics: Struct, num_values: int) -> int | None:
    count, nulls = _check_count(statistics.get(4)), _check_count(statistics.get(3)) or 0
    # Some writers state 0 for "unknown".
    return count if count and count <= num_values - nulls else None


def _count_dictionary_pages(pages: list[Struct] | None) -> int | None:
    if pages is None:
        return None
    counts = [page[3] for page in pages if page[1] in (DATA_PAGE, DATA_PAGE_V2) and page[2] in _DICTIONARY_ENCODINGS]
    return sum(counts) if all(count >= 0 for count in counts) else None


def _is_all_dictionary_encoded(encodings: list[int], pages: list[Struct] | None) -> bool:
    """Return whether every data page is certain to be dictionary-encoded.

    Without page counts per encoding, the list of encodings decides for version 1 of the format: it has PLAIN_DICTIONARY
    for dictionary-encoded pages, and a page of plain values would add PLAIN. RLE and BIT_PACKED are the encodings of
    levels there. RLE_DICTIONARY proves nothing, because the dictionary page itself adds PLAIN beside it.
    """
    if pages is None:
        return PLAIN_DICTIONARY in encodings and set(encodings) <= {PLAIN_DICTIONARY, RLE, BIT_PACKED}
    data = [(page[2], page[3]) for page in pages if page[1] in (DATA_PAGE, DATA_PAGE_V2) and page[3] != 0]
    return bool(data) and all(encoding in (PLAIN_DICTIONARY, RLE_DICTIONARY) and count > 0 for encoding, count in data)


# --- The shape of a column chunk's metadata in a footer, to recognise chunks of the same shape ------------------------
#
# Whether a chunk is valid depends on its set of fields, the lengths of its lists and byte strings, and its physical
# type. Everything else is a number. So a chunk with the shape of a valid chunk is valid too. Comparing a shape takes a
# tenth of the time of a walk over the chunk, and compiling a new one as long as fifty walks.

_DEEPEST = 8

# Ids of fields: the physical type and the statistics, both in the metadata of a chunk.
_PHYSICAL_TYPE_PATH = (3, 1)
_STATISTICS_PATH = (3, 12)

_VARINT = rb"[\x80-\xff]*+[\x00-\x7f]"


@dataclass(frozen=True, slots=True)
class ChunkShape:
    """The bytes that all chunks of a shape share, as regular expressions with a short byte string between each two."""

    patterns: tuple[re.Pattern[bytes], ...]

    @staticmethod
    def of(footer: bytes, position: int, *, any_bounds: bool) -> ChunkShape | None:
        """Return the shape of a chunk; None for an unusual one. With `any_bounds`, min and max may have any length."""
        reader = _ShapeReader(footer, any_bounds)
        try:
            reader.read_struct(position, ())
        except _UnusualShape:
            return None
        return ChunkShape(tuple(re.compile(pattern, re.DOTALL) for pattern in reader.patterns))

    def match_end(self, footer: bytes, position: int) -> int | None:
        """Return the end of the chunk at a position; None if it has another shape."""
        for number, pattern in enumerate(self.patterns):
            if number:
                length = footer[position]
                if length >= 0x80:
                    return None
                position += 1 + length
            found = pattern.match(footer, position)
            if found is None:
                return None
            position = found.end()
        return position


class _UnusualShape(Exception):
    """The chunk has an encoding that no known writer produces."""


class _ShapeReader:
    """Reads the bytes of a chunk into patterns. Every method takes a start position and returns the end position."""

    def __init__(self, footer: bytes, any_bounds: bool) -> None:
        self._footer = footer
        self._any_bounds = any_bounds
        self.patterns = [b""]

    def _add_fixed(self, start: int, end: int) -> None:
        self.patterns[-1] += re.escape(self._footer[start:end])

    def read_struct(self, position: int, path: tuple[int, ...]) -> int:
        """Read a struct; `path` are the field ids that lead to it."""
        identifier = 0
        while (header := self._footer[position]) != 0:
            if len(path) > _DEEPEST or not header >> 4:
                raise _UnusualShape
            identifier += header >> 4
            self._add_fixed(position, position + 1)
            position = self._read_value(position + 1, header & 15, (*path, identifier))
        self._add_fixed(position, position + 1)
        return position + 1

    def _read_value(self, position: int, kind: int, path: tuple[int, ...]) -> int:
        if kind in (TRUE, FALSE):
            return position
        if kind == STRUCT:
            return self.read_struct(position, path)
        if kind in (LIST, SET):
            return self._read_list(position, path)
        if I16 <= kind <= I64:
            end = read_varint(self._footer, position)[1]
            if path == _PHYSICAL_TYPE_PATH:
                self._add_fixed(position, end)
            else:
                self.patterns[-1] += _VARINT
            return end
        if kind == BINARY:
            length, start = read_varint(self._footer, position)
            if self._any_bounds and path[:-1] == _STATISTICS_PATH:
                self.patterns.append(b"")
            else:
                self._add_fixed(position, start)
                self.patterns[-1] += b".{%d}" % length
            return start + length
        if kind in (BYTE, DOUBLE):
            width = 1 if kind == BYTE else 8
            self.patterns[-1] += b".{%d}" % width
            return position + width
        raise _UnusualShape

    def _read_list(self, position: int, path: tuple[int, ...]) -> int:
        size, element = self._footer[position] >> 4, self._footer[position] & 15
        if size == 15 or element in (TRUE, FALSE):
            raise _UnusualShape
        self._add_fixed(position, position + 1)
        position += 1
        for _ in range(size):
            position = self._read_value(position, element, path)
        return position
