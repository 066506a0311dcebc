"""Column chunk metadata from the footer: locations of pages, indexes and Bloom filters, and encodings.

pyarrow's `FileMetaData` exposes neither the locations of page indexes and Bloom filters nor the exactness of bounds, so
the bytes of the footer are parsed a second time. Chunks have no fixed length: to find one, all chunks before it must be
skipped. `map_footer` does this once per footer (callers cache it); afterwards only requested chunks are decoded.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count

import numpy as np
import numpy.typing as npt

from tamis.errors import CorruptFile, UnsupportedFeature
from tamis.parquet.footer.thrift import (
    BINARY,
    BYTES,
    FALSE,
    FLAG,
    I16,
    I32,
    I64,
    INTEGER32,
    INTEGER64,
    LIST,
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
    skip,
)
from tamis.parquet.footer.validation import RowGroupPositions

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
"""Offset and length."""

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
    """The number of rows of each row group."""
    chunks: npt.NDArray[np.int64]
    """The position of each chunk: one row per row group, one column per leaf."""
    column_orders: tuple[int | None, ...] | None
    """The column order of each leaf, None if unsupported; or None if the footer has no column orders."""
    created_by: bytes | None

    @property
    def may_be_short(self) -> bool:
        """Whether chunks may be longer than the footer states."""
        try:
            return may_be_short((self.created_by or b"").decode())
        except UnicodeDecodeError:
            return True

    def column_order(self, leaf: int) -> int | None:
        return self.column_orders[leaf] if self.column_orders and leaf < len(self.column_orders) else None


def map_footer(footer: bytes, location: str, known: RowGroupPositions | None = None) -> FooterMap:
    """Find the row groups and the chunks of a footer (the bytes before its length and the magic).

    `known` are their positions from an earlier walk over the same footer.
    """
    return decode_or_raise(partial(_read_map, known=known), footer, 0, f"the footer of '{location}'")


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
    where = _ensure_map(footer, location)
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


def _ensure_map(footer: bytes | FooterMap, location: str) -> FooterMap:
    return footer if isinstance(footer, FooterMap) else map_footer(footer, location)


def _read_map(footer: bytes, position: int, known: RowGroupPositions | None) -> tuple[FooterMap, int]:
    wanted = _FILE
    if known is not None:
        wanted = _FILE | {4: (LIST, lambda footer, position: ((known.rows, known.chunks), known.end))}
    found, position = read_struct(footer, position, wanted)
    rows, chunks = get_required(found, 4, "list of row groups")
    if len({len(group) for group in chunks}) > 1:
        raise Malformed("its row groups have different numbers of columns")
    positions = np.array(chunks, np.int64).reshape(len(chunks), len(chunks[0]) if chunks else 0)
    orders = tuple(next(iter(order), None) for order in found[7]) if 7 in found else None
    schema = get_required(found, 2, "schema")
    return FooterMap(footer, schema, np.array(rows, np.int64), positions, orders, found.get(6)), position


def _read_raw_list(data: bytes, position: int) -> tuple[bytes, int]:
    end = skip(data, position, LIST)
    return data[position:end], end


def _read_row_groups(footer: bytes, position: int) -> tuple[tuple[list[int], list[list[int]]], int]:
    element, size, position = read_list_header(footer, position)
    if size and element != STRUCT:
        raise Malformed(f"a row group has the Thrift type {element}, expected a struct")
    rows, chunks = [], []
    for _ in range(size):
        group, position = read_struct(footer, position, _ROW_GROUP)
        chunks.append(get_required(group, 1, "columns in a row group"))
        rows.append(get_required(group, 3, "number of rows in a row group"))
        if rows[-1] < 0:
            raise Malformed("a row group has a negative number of rows")
    return (rows, chunks), position


def _read_positions(footer: bytes, position: int) -> tuple[list[int], int]:
    element, size, position = read_list_header(footer, position)
    if size and element != STRUCT:
        raise Malformed(f"a column chunk has the Thrift type {element}, expected a struct")
    positions = []
    for _ in range(size):
        positions.append(position)
        usual = compile_chunk_pattern().match(footer, position) if next(_walked) >= _WALKED_FIRST else None
        position = skip(footer, position, STRUCT) if usual is None else usual.end()
    return positions, position


_ROW_GROUP: dict[int, Kind] = {1: (LIST, _read_positions), 3: INTEGER64}
_FILE: dict[int, Kind] = {
    2: (LIST, _read_raw_list),
    4: (LIST, _read_row_groups),
    6: BYTES,
    7: make_list_kind(make_struct_kind({TYPE_ORDER: make_struct_kind({}), TOTAL_ORDER: make_struct_kind({})})),
}


_WALKED_FIRST = 500
_walked = count()


@lru_cache(maxsize=1)
def compile_chunk_pattern() -> re.Pattern[bytes]:
    """Return a pattern that matches a whole typical chunk: strings up to 63 bytes, lists up to 14 elements.

    A match takes 4 µs where `skip` takes 15. Compiling the pattern takes as long as skipping a thousand chunks, so a
    process that reads one file never compiles it.
    """

    def headers(*kinds: int) -> bytes:
        return b"[" + b"".join(re.escape(bytes([step << 4 | kind])) for step in range(1, 16) for kind in kinds) + b"]"

    def lists(kinds: tuple[int, ...], element: bytes, sizes: range) -> bytes:
        return b"|".join(
            b"[" + b"".join(re.escape(bytes([size << 4 | kind])) for kind in kinds) + b"](?:%s){%d}" % (element, size)
            for size in sizes
        )

    number = rb"[\x80-\xff]*+[\x00-\x7f]"
    simple = headers(I16, I32, I64) + number + b"|" + headers(TRUE, FALSE)
    text = b"(?>" + b"|".join(re.escape(bytes([length])) + b".{%d}" % length for length in range(64)) + b")"
    numbers = lists((I16, I32, I64), number, range(15))
    texts = lists((BINARY,), text, range(1, 4))
    structs = lists((STRUCT,), b"(?:" + simple + rb")*+\x00", range(15))
    # Statistics, then the metadata that contains them, then the chunk.
    inner = b"(?:" + simple + b"|" + headers(BINARY) + text + b"|" + headers(LIST) + b"(?>" + numbers + rb"))*+\x00"
    any_list = b"(?>" + numbers + b"|" + texts + b"|" + structs + b")"
    metadata = b"(?:" + simple + b"|" + headers(LIST) + any_list + b"|" + headers(STRUCT) + inner + rb")*+\x00"
    return re.compile(b"(?:" + simple + b"|" + headers(STRUCT) + metadata + rb")*+\x00", re.DOTALL)


# --- One chunk -------------------------------------------------------------------------------------------------------

_STATISTICS: dict[int, Kind] = {3: INTEGER64, 4: INTEGER64, 7: FLAG, 8: FLAG, 9: INTEGER64}
_ENCODING_STATISTICS: dict[int, Kind] = {1: INTEGER32, 2: INTEGER32, 3: INTEGER32}
_METADATA: dict[int, Kind] = {
    2: make_list_kind(INTEGER32),
    4: INTEGER32,
    5: INTEGER64,
    6: INTEGER64,
    7: INTEGER64,
    9: INTEGER64,
    11: INTEGER64,
    12: make_struct_kind(_STATISTICS),
    13: make_list_kind(make_struct_kind(_ENCODING_STATISTICS)),
    14: INTEGER64,
    15: INTEGER32,
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
