"""Column chunks as the footer describes them: where their pages, indexes and filters are, how they are encoded.

pyarrow's `FileMetaData` tells neither where the indexes and the Bloom filters are nor whether bounds are exact, so the
bytes of the footer are read a second time. Its chunks have no fixed length: to find one, all before it are stepped
over. That is done once for a footer (`map_footer`, to be kept beside it); after that only what is asked for is decoded.
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
from tamis.parquet.thrift import (
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
    decoded,
    list_of,
    read_list_header,
    read_struct,
    required,
    skip,
    struct_of,
)
from tamis.parquet.vetting import RowGroupPlaces

MAGIC_LENGTH = 4
TRAILER_LENGTH = 8

# Numbers of the format.
PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED, RLE_DICTIONARY = 0, 2, 3, 4, 8
DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = range(4)
_DICTIONARY_ENCODINGS = (PLAIN_DICTIONARY, RLE_DICTIONARY)
CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
UNCOMPRESSED = 0

# Orders of a column, as its bounds are compared.
TYPE_ORDER, TOTAL_ORDER = 1, 2

ByteRange = tuple[int, int]
"""Offset and length."""

MOST_SLACK = 100
"""How many bytes more than the footer says pyarrow reads of a chunk that `may_be_short`, if the file has so many."""
_PLAIN_PARQUET_MR = re.compile(r"parquet-mr version (?P<version>\d{1,9}\.\d{1,9}\.\d{1,9})")
_FIRST_TO_COUNT_DICTIONARY_HEADERS = (1, 2, 9)


def may_be_short(created_by: str | None) -> bool:
    """Whether chunks of a writer may be some bytes longer than the footer says (PARQUET-816); None is an unknown one.

    parquet-mr before 1.2.9 did not count the header of the dictionary page. pyarrow reads more of such files, also of
    those whose version it cannot read, so that as much must be at hand: a version is believed only where it is plain.

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
    """One column of one row group."""

    row_group: int
    leaf: int
    codec: int
    encodings: tuple[int, ...]
    data_page_offset: int
    dictionary_page_offset: int | None
    """None also where the writer notes 0, or a place behind the data."""
    total_compressed_size: int
    total_uncompressed_size: int
    num_values: int
    column_index: ByteRange | None
    offset_index: ByteRange | None
    bloom_filter: tuple[int, int | None] | None
    """Offset, and the length where the writer notes it."""
    all_dictionary: bool
    """Whether every data page is known to hold positions in the dictionary, and nothing else."""
    dictionary_pages: int | None
    """How many data pages hold positions in the dictionary; None where nobody says."""
    min_exact: bool | None
    max_exact: bool | None
    """Whether a bound is the value of some row; None where nobody says."""
    null_count: int | None
    nan_count: int | None
    byte_range: ByteRange
    """Of the whole chunk: its dictionary and its data pages, and what may follow them."""
    text_bytes: int | None = None
    """How many bytes the texts of all rows have together; None where nobody says."""
    slack: int = 0
    """How many of the bytes at the end may not belong to the chunk: see `may_be_short`."""


@dataclass(frozen=True, slots=True, eq=False)
class FooterMap:
    """Where things are in the bytes of a footer."""

    footer: bytes
    schema: bytes
    """The list of schema elements, as it is stored."""
    rows: Int64Array
    """Of each row group."""
    chunks: npt.NDArray[np.int64]
    """The position of each chunk: a row for a row group, a column for a leaf."""
    column_orders: tuple[int | None, ...] | None
    """How the bounds of each leaf are ordered; None for an order that is unknown, or where no orders are named."""
    created_by: bytes | None

    @property
    def may_be_short(self) -> bool:
        """Whether chunks may be longer than the footer says."""
        try:
            return may_be_short((self.created_by or b"").decode())
        except UnicodeDecodeError:
            return True

    def column_order(self, leaf: int) -> int | None:
        return self.column_orders[leaf] if self.column_orders and leaf < len(self.column_orders) else None


def map_footer(footer: bytes, place: str, known: RowGroupPlaces | None = None) -> FooterMap:
    """Find the row groups and the chunks of a footer (the bytes before its length and the magic).

    `known` is where they are, as somebody saw who stepped over them before.
    """
    return decoded(partial(_read_map, known=known), footer, 0, f"the footer of '{place}'")


def row_group_rows(footer: bytes | FooterMap, place: str = "the file") -> Int64Array:
    return _mapped(footer, place).rows


def chunk_layouts(
    footer: bytes | FooterMap,
    leaves: Collection[int],
    row_groups: Collection[int] | None,
    file_size: int,
    place: str,
) -> dict[tuple[int, int], ChunkLayout]:
    """The chunks of these leaves in these row groups (None: in all), by row group and leaf.

    A chunk that would lie outside the data of the file is a CorruptFile, as is a leaf or a row group that the footer
    does not have. An index or a filter that would lie outside is left out: nothing needs them.
    """
    where = _mapped(footer, place)
    groups, columns = where.chunks.shape
    wanted = range(groups) if row_groups is None else row_groups
    if any(not 0 <= group < groups for group in wanted) or any(not 0 <= leaf < columns for leaf in leaves):
        raise CorruptFile(f"'{place}' has {groups} row groups of {columns} columns, and others were asked for")
    end = file_size - TRAILER_LENGTH - len(where.footer)
    layouts = {}
    for group in wanted:
        for leaf in leaves:
            what = f"column {leaf} in row group {group} of '{place}'"
            found = decoded(_read_chunk, where.footer, int(where.chunks[group, leaf]), what)
            layouts[group, leaf] = _layout(found, group, leaf, end, what, is_short=where.may_be_short)
    return layouts


# --- The way to the chunks -------------------------------------------------------------------------------------------


def _mapped(footer: bytes | FooterMap, place: str) -> FooterMap:
    return footer if isinstance(footer, FooterMap) else map_footer(footer, place)


def _read_map(footer: bytes, position: int, known: RowGroupPlaces | None) -> tuple[FooterMap, int]:
    wanted = _FILE
    if known is not None:
        wanted = _FILE | {4: (LIST, lambda footer, position: ((known.rows, known.chunks), known.end))}
    found, position = read_struct(footer, position, wanted)
    rows, chunks = required(found, 4, "list of row groups")
    if len({len(group) for group in chunks}) > 1:
        raise Malformed("its row groups have different numbers of columns")
    positions = np.array(chunks, np.int64).reshape(len(chunks), len(chunks[0]) if chunks else 0)
    orders = tuple(next(iter(order), None) for order in found[7]) if 7 in found else None
    schema = required(found, 2, "schema")
    return FooterMap(footer, schema, np.array(rows, np.int64), positions, orders, found.get(6)), position


def _read_raw_list(data: bytes, position: int) -> tuple[bytes, int]:
    end = skip(data, position, LIST)
    return data[position:end], end


def _read_row_groups(footer: bytes, position: int) -> tuple[tuple[list[int], list[list[int]]], int]:
    element, size, position = read_list_header(footer, position)
    if size and element != STRUCT:
        raise Malformed(f"a row group is of type {element}")
    rows, chunks = [], []
    for _ in range(size):
        group, position = read_struct(footer, position, _ROW_GROUP)
        chunks.append(required(group, 1, "columns in a row group"))
        rows.append(required(group, 3, "number of rows in a row group"))
        if rows[-1] < 0:
            raise Malformed("a row group has a negative number of rows")
    return (rows, chunks), position


def _read_positions(footer: bytes, position: int) -> tuple[list[int], int]:
    element, size, position = read_list_header(footer, position)
    if size and element != STRUCT:
        raise Malformed(f"a column chunk is of type {element}")
    positions = []
    for _ in range(size):
        positions.append(position)
        usual = usual_chunk().match(footer, position) if next(_walked) >= _WALKED_FIRST else None
        position = skip(footer, position, STRUCT) if usual is None else usual.end()
    return positions, position


_ROW_GROUP: dict[int, Kind] = {1: (LIST, _read_positions), 3: INTEGER64}
_FILE: dict[int, Kind] = {
    2: (LIST, _read_raw_list),
    4: (LIST, _read_row_groups),
    6: BYTES,
    7: list_of(struct_of({TYPE_ORDER: struct_of({}), TOTAL_ORDER: struct_of({})})),
}


_WALKED_FIRST = 500
_walked = count()


@lru_cache(maxsize=1)
def usual_chunk() -> re.Pattern[bytes]:
    """Matches a whole chunk as nearly all are: no text of it has more than 63 bytes, no list more than 14 elements.

    It takes 4 µs where `skip` takes 15. To compile it takes as long as to step over a thousand chunks, and a process
    that asks one question of one file never sees as many.
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
    # Statistics; then the metadata with them; then the chunk.
    inner = b"(?:" + simple + b"|" + headers(BINARY) + text + b"|" + headers(LIST) + b"(?>" + numbers + rb"))*+\x00"
    any_list = b"(?>" + numbers + b"|" + texts + b"|" + structs + b")"
    metadata = b"(?:" + simple + b"|" + headers(LIST) + any_list + b"|" + headers(STRUCT) + inner + rb")*+\x00"
    return re.compile(b"(?:" + simple + b"|" + headers(STRUCT) + metadata + rb")*+\x00", re.DOTALL)


# --- One chunk -------------------------------------------------------------------------------------------------------

_STATISTICS: dict[int, Kind] = {3: INTEGER64, 7: FLAG, 8: FLAG, 9: INTEGER64}
_ENCODING_STATISTICS: dict[int, Kind] = {1: INTEGER32, 2: INTEGER32, 3: INTEGER32}
_METADATA: dict[int, Kind] = {
    2: list_of(INTEGER32),
    4: INTEGER32,
    5: INTEGER64,
    6: INTEGER64,
    7: INTEGER64,
    9: INTEGER64,
    11: INTEGER64,
    12: struct_of(_STATISTICS),
    13: list_of(struct_of(_ENCODING_STATISTICS)),
    14: INTEGER64,
    15: INTEGER32,
    16: struct_of({1: INTEGER64}),
}
_CHUNK: dict[int, Kind] = {
    1: BYTES,
    3: struct_of(_METADATA),
    4: INTEGER64,
    5: INTEGER32,
    6: INTEGER64,
    7: INTEGER32,
    8: struct_of({}),
}


def _read_chunk(footer: bytes, position: int) -> tuple[Struct, int]:
    chunk, position = read_struct(footer, position, _CHUNK)
    metadata = required(chunk, 3, "metadata")
    for identifier, name in _REQUIRED.items():
        required(metadata, identifier, name)
    for encoding in metadata.get(13, ()):
        for identifier, name in _REQUIRED_OF_ENCODING.items():
            required(encoding, identifier, name)
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


def _layout(chunk: Struct, group: int, leaf: int, end: int, what: str, *, is_short: bool) -> ChunkLayout:
    if chunk.get(1):
        raise UnsupportedFeature(f"{what} is stored in another file, which Tamis does not read; write it into one file")
    if 8 in chunk:
        raise UnsupportedFeature(f"{what} is encrypted, which Tamis cannot read; decrypt the file first")
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
            # Of a chunk without values some writers do not know where it is.
            start = MAGIC_LENGTH
            dictionary, length = None, 0
        else:
            raise CorruptFile(
                f"{what} would be at bytes {start} to {start + length}, and the data ends at {end}; write it again"
            )
    if dictionary is not None and data > start + length:
        raise CorruptFile(f"{what} has its data {data - start} bytes into {length} bytes; write the file again")
    statistics = metadata.get(12, {})
    slack = min(MOST_SLACK, end - start - length) if is_short and length else 0
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
        column_index=_index_range(chunk.get(6), chunk.get(7), end),
        offset_index=_index_range(chunk.get(4), chunk.get(5), end),
        bloom_filter=_filter_range(metadata.get(14), metadata.get(15), end),
        all_dictionary=_is_all_dictionary(metadata[2], metadata.get(13)),
        dictionary_pages=_count_dictionary_pages(metadata.get(13)),
        min_exact=statistics.get(8),
        max_exact=statistics.get(7),
        null_count=_count(statistics.get(3)),
        nan_count=_count(statistics.get(9)),
        byte_range=(start, length + slack),
        slack=slack,
        text_bytes=_count(metadata.get(16, {}).get(1)),
    )


def _index_range(offset: int | None, length: int | None, end: int) -> ByteRange | None:
    # An index that cannot be where the footer says is as good as none: nothing needs it.
    if offset is None or length is None or length <= 0 or not MAGIC_LENGTH <= offset <= end - length:
        return None
    return offset, length


def _filter_range(offset: int | None, length: int | None, end: int) -> tuple[int, int | None] | None:
    if offset is None or not MAGIC_LENGTH <= offset < end:
        return None
    # Without a length the filter says itself how long it is. A length that cannot be makes all of it doubtful.
    return (offset, length) if length is None or 0 < length <= end - offset else None


def _count(number: int | None) -> int | None:
    return number if number is not None and number >= 0 else None


def _count_dictionary_pages(pages: list[Struct] | None) -> int | None:
    if pages is None:
        return None
    counts = [page[3] for page in pages if page[1] in (DATA_PAGE, DATA_PAGE_V2) and page[2] in _DICTIONARY_ENCODINGS]
    return sum(counts) if all(count >= 0 for count in counts) else None


def _is_all_dictionary(encodings: list[int], pages: list[Struct] | None) -> bool:
    """Whether no data page can hold a value that is not in the dictionary.

    Where the pages are not counted by their encodings, the list of encodings can tell for the first version of the
    format: it has PLAIN_DICTIONARY for pages of positions, and a page of plain values would add PLAIN. RLE and
    BIT_PACKED are those of levels there. RLE_DICTIONARY proves nothing: it stands beside the PLAIN of the dictionary
    itself.
    """
    if pages is None:
        return PLAIN_DICTIONARY in encodings and set(encodings) <= {PLAIN_DICTIONARY, RLE, BIT_PACKED}
    data = [(page[2], page[3]) for page in pages if page[1] in (DATA_PAGE, DATA_PAGE_V2) and page[3] != 0]
    return bool(data) and all(encoding in (PLAIN_DICTIONARY, RLE_DICTIONARY) and count > 0 for encoding, count in data)
