"""Decoding of pages to Arrow arrays, through pyarrow.

Before pyarrow sees a page, its header is read here and all counts are checked: the pages fill their buffers, they hold
as many values as there must be rows, and exactly that many rows come out.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa

from tamis.errors import CorruptFile, UnsupportedFeature, to_one_line
from tamis.io.ranges import PrefetchedFile
from tamis.parquet.footer.chunks import (
    CODECS,
    DATA_PAGE,
    DATA_PAGE_V2,
    DICTIONARY_PAGE,
    INDEX_PAGE,
    PLAIN,
    PLAIN_DICTIONARY,
    RLE,
    RLE_DICTIONARY,
    UNCOMPRESSED,
    ChunkLayout,
)
from tamis.parquet.footer.footer import open_reader
from tamis.parquet.footer.schema_path import REQUIRED, LeafSchema
from tamis.parquet.footer.thrift import (
    BINARY,
    END_OF_STRUCT,
    FLAG,
    I32,
    I64,
    INTEGER32,
    LIST,
    STRUCT,
    Kind,
    Malformed,
    decode_or_raise,
    encode_fields,
    encode_list,
    encode_struct,
    get_required,
    make_struct_kind,
    read_struct,
)

# --- Page header ----------------------------------------------------------------------------------------------------
#
# Page headers, which precede the bytes of each page in a column chunk.


_DATA: dict[int, Kind] = {1: INTEGER32, 2: INTEGER32}
_DATA_V2: dict[int, Kind] = {**dict.fromkeys(range(1, 7), INTEGER32), 7: FLAG}
_PAGE: dict[int, Kind] = {
    **dict.fromkeys(range(1, 5), INTEGER32),
    5: make_struct_kind(_DATA),
    7: make_struct_kind(_DATA),
    8: make_struct_kind(_DATA_V2),
}


class PageHeader(NamedTuple):
    """A page header and its own length. It is a tuple because there are many: creation takes a third of the time."""

    type: int
    """DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE or DATA_PAGE_V2."""
    uncompressed_size: int
    compressed_size: int
    crc: int | None
    num_values: int
    """The number of values, nulls included; 0 for an index page."""
    encoding: int | None
    num_rows: int | None
    """Like the next two fields: only in data pages of version 2."""
    num_nulls: int | None
    is_compressed: bool
    length: int

    @property
    def is_data(self) -> bool:
        return self.type in (DATA_PAGE, DATA_PAGE_V2)

    @property
    def page_length(self) -> int:
        """The length of header and page together in bytes."""
        return self.length + self.compressed_size


def decode_page_header(data: bytes, location: str, position: int = 0) -> PageHeader:
    """Decode the header at a position; the page behind it may be incomplete."""
    return decode_or_raise(_read_header, data, position, f"a page header in {location}")


def check_page_fits(header: PageHeader, available: int, location: str) -> None:
    if header.page_length > available:
        raise CorruptFile(
            f"a page in {location} has {header.page_length} bytes in its header, but only {available} are available; "
            "write the file again"
        )


_NUMBER = rb"[\x80-\xff]*+[\x00-\x7f]"
_BOUND = b"(?>" + b"|".join(re.escape(bytes([length])) + b".{%d}" % length for length in range(33)) + b")"
_STATISTICS = (
    rb"(?:[\x16\x26\x36\x46]" + _NUMBER + rb"|[\x18\x28\x38\x48\x58]" + _BOUND + rb"|[\x11\x12\x21\x22])*+\x00"
)
_USUAL_DATA_PAGE = re.compile(
    rb"\x15[\x00\x06]\x15" + _NUMBER + rb"\x15(" + _NUMBER + rb")(?:\x15" + _NUMBER
    + rb")?[\x1c\x2c\x4c\x5c]\x15(" + _NUMBER + rb")(?:\x15"
    + _NUMBER + rb")*+[\x11\x12]?(?:[\x1c\x2c]" + _STATISTICS + rb")?\x00\x00",
    re.DOTALL,
)  # fmt: skip
"""Matches the header of a typical data page, with groups for its compressed size and its number of values."""


def count_values(pages: bytes) -> int | None:
    """Return the number of values in consecutive data pages; None if the bytes are not pages.

    A regular expression parses most headers in a tenth of the time of `decode_page_header`.
    """
    position, end, values = 0, len(pages), 0
    while position < end:
        usual = _USUAL_DATA_PAGE.match(pages, position)
        if usual is not None:
            values += _decode_varint(usual[2]) >> 1
            position = usual.end() + (_decode_varint(usual[1]) >> 1)
            continue
        try:
            header = decode_page_header(pages, "a chunk", position)
        except CorruptFile:
            return None
        values += header.num_values if header.is_data else 0
        position += header.page_length
    return values if position == end else None


def _decode_varint(number: bytes) -> int:
    """Decode a number of any length: one of more than 64 bits does not fit the rows, which is another error."""
    value = shift = 0
    for byte in number:
        value |= (byte & 0x7F) << shift
        shift += 7
    return value


def encode_plain_page_header(page: PageHeader) -> bytes:
    """Encode a header of a version 1 data page for the bytes of another page that holds plain values."""
    data = encode_struct(((1, I32, page.num_values), (2, I32, PLAIN), (3, I32, RLE), (4, I32, RLE)))
    return encode_struct(
        (
            (1, I32, DATA_PAGE),
            (2, I32, page.uncompressed_size),
            (3, I32, page.compressed_size),
            (4, I32, page.crc),
            (5, STRUCT, data),
        )
    )


def _read_header(data: bytes, position: int) -> tuple[PageHeader, int]:
    found, end = read_struct(data, position, _PAGE)
    kind = get_required(found, 1, "type")
    uncompressed = get_required(found, 2, "uncompressed size")
    compressed = get_required(found, 3, "compressed size")
    num_values, encoding, num_rows, num_nulls, is_compressed = 0, None, None, None, True
    if kind in (DATA_PAGE, DICTIONARY_PAGE):
        identifier, name = (5, "data") if kind == DATA_PAGE else (7, "dictionary")
        inner = get_required(found, identifier, f"header of a {name} page")
        num_values, encoding = get_required(inner, 1, "number of values"), get_required(inner, 2, "encoding")
    elif kind == DATA_PAGE_V2:
        inner = get_required(found, 8, "header of a data page")
        num_values, encoding = get_required(inner, 1, "number of values"), get_required(inner, 4, "encoding")
        num_nulls, num_rows = get_required(inner, 2, "number of nulls"), get_required(inner, 3, "number of rows")
        definition = get_required(inner, 5, "length of its definition levels")
        repetition = get_required(inner, 6, "length of its repetition levels")
        is_compressed = inner.get(7, True)
        if not (0 <= num_nulls <= num_values and 0 <= num_rows <= num_values):
            raise Malformed(f"{num_rows} rows and {num_nulls} nulls of {num_values} values")
        if definition < 0 or repetition < 0 or definition + repetition > min(compressed, uncompressed):
            raise Malformed(f"levels of {definition} and {repetition} bytes in a page of {compressed}")
    elif kind != INDEX_PAGE:
        raise Malformed(f"the page type {kind} is not supported")
    if uncompressed < 0 or compressed < 0 or num_values < 0:
        raise Malformed(f"{num_values} values in {compressed} bytes of {uncompressed}")
    header = PageHeader(
        kind,
        uncompressed,
        compressed,
        found.get(4),
        num_values,
        encoding,
        num_rows,
        num_nulls,
        is_compressed,
        end - position,
    )
    return header, end


def decode_pages(
    schema: LeafSchema,
    field: pa.Field,
    layout: ChunkLayout,
    dictionary: pa.Buffer | None,
    data: Sequence[pa.Buffer],
    num_rows: int,
    location: str,
    *,
    row_counts: Sequence[int] | None = None,
    created_by: bytes | None = None,
    may_stay_coded: bool = False,
) -> pa.ChunkedArray:
    """Decode the rows of some pages of a chunk, in order, as `field.type`.

    Each buffer of `data` holds one or more consecutive pages with their headers; a whole chunk with its dictionary is
    one such buffer. `dictionary` may be longer than the page at its start. `field` is the Arrow field narrowed to this
    leaf, see `narrow_field`. `row_counts` are the rows of each data page, where known. A mismatch raises CorruptFile.

    With `may_stay_coded`, dictionary-encoded strings may be returned as a dictionary array with unchecked indices.
    `decode_dictionary_texts` decodes the rows that are needed; the other rows are never decoded.
    """
    what = f"column {layout.leaf} in row group {layout.row_group} of '{location}'"
    _check_codec(layout.codec, what)
    headers = [header for buffer in data for header in _read_page_headers(buffer, layout, what)]
    if dictionary is not None:
        header = _read_dictionary_header(dictionary, layout.codec, what)
        dictionary = dictionary.slice(0, header.page_length)
        headers.insert(0, header)
    _check_uncompressed_size(headers, layout, what)
    _check_counts(headers, num_rows, row_counts, schema, what)
    if num_rows == 0:
        return pa.chunked_array([], field.type)
    pages = Pages(
        codec=layout.codec,
        encodings=layout.encodings,
        # pyarrow stops at the number of rows and would not notice excess rows. With one more it reads to the end.
        num_rows=num_rows + 1,
        num_values=sum(header.num_values for header in headers if header.is_data),
        uncompressed_size=sum(header.length + header.uncompressed_size for header in headers),
    )
    keep_dictionary = may_stay_coded and _is_text(field.type) and all(map(_is_dictionary_encoded, headers))
    file = build_one_column_file(schema, field, dictionary, data, pages, created_by)
    column = _read(file, what, keep_dictionary=keep_dictionary)
    if len(column) != num_rows:
        raise CorruptFile(f"{what} has {len(column)} rows in its pages, expected {num_rows}; write the file again")
    if keep_dictionary:
        return column
    return column if column.type.equals(field.type) else _cast(column, field.type, what)


def _is_text(data_type: pa.DataType) -> bool:
    """Return whether values are strings or bytes, or lists of them: the types that a dictionary makes smaller."""
    inner = data_type.value_type if pa.types.is_list(data_type) else data_type
    return bool(pa.types.is_string(inner) or pa.types.is_binary(inner))


def _is_dictionary_encoded(header: PageHeader) -> bool:
    return not header.is_data or header.encoding in (PLAIN_DICTIONARY, RLE_DICTIONARY)


def decode_dictionary_texts(rows: pa.ChunkedArray, data_type: pa.DataType) -> pa.ChunkedArray | None:
    """Decode a dictionary array; None if an index is out of range or a string is invalid."""
    try:
        rows.validate(full=True)
        return rows.cast(data_type)
    except pa.ArrowException:
        return None


def decode_dictionary(
    page: pa.Buffer,
    layout: ChunkLayout,
    schema: LeafSchema,
    field: pa.Field,
    location: str,
    *,
    created_by: bytes | None = None,
) -> pa.Array:
    """Decode the values of a dictionary page, in order and without NULLs.

    `field` is the field of the leaf itself, without the groups around it, see `find_leaf_value_field`. A dictionary is
    a page of plain values, so pyarrow decodes it under the header of a data page, as a required column.
    """
    what = f"the dictionary of column {layout.leaf} in row group {layout.row_group} of '{location}'"
    _check_codec(layout.codec, what)
    header = _read_dictionary_header(page, layout.codec, what)
    _check_uncompressed_size([header], layout, what)
    if header.encoding not in (PLAIN, PLAIN_DICTIONARY):
        raise CorruptFile(f"{what} has the encoding {header.encoding}, expected PLAIN; write the file again")
    smallest = schema.leaf.min_plain_bytes
    if header.num_values * smallest > header.uncompressed_size:
        raise CorruptFile(
            f"{what} claims {header.num_values} values in {header.uncompressed_size} bytes; write the file again"
        )
    if header.num_values == 0:
        return pa.array([], field.type)
    new_header = encode_plain_page_header(header)
    body = page.slice(header.length, header.compressed_size)
    pages = Pages(
        codec=layout.codec,
        encodings=(PLAIN, RLE),
        num_rows=header.num_values + 1,
        num_values=header.num_values,
        uncompressed_size=len(new_header) + header.uncompressed_size,
    )
    required = LeafSchema((replace(schema.leaf, repetition=REQUIRED),))
    buffers = [pa.py_buffer(new_header), body]
    column = _read(build_one_column_file(required, field.with_nullable(False), None, buffers, pages, created_by), what)
    if len(column) != header.num_values or column.null_count:
        raise CorruptFile(f"{what} has {len(column)} values, expected {header.num_values}; write the file again")
    if not column.type.equals(field.type):
        column = _cast(column, field.type, what)
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def find_leaf_value_field(field: pa.Field) -> pa.Field:
    """Return the field of a leaf's values, without the lists and structs around it, from the field narrowed to it.

    >>> find_leaf_value_field(pa.field("a", pa.list_(pa.struct({"x": pa.string()}))))
    pyarrow.Field<x: string>
    """
    while True:
        data_type = field.type
        if isinstance(data_type, pa.BaseExtensionType):
            if not pa.types.is_nested(data_type.storage_type):
                return field
            data_type = data_type.storage_type
        elif pa.types.is_dictionary(data_type):
            return field.with_type(data_type.value_type)
        if not pa.types.is_nested(data_type):
            return field
        field = data_type.field(0)


def _read_page_headers(buffer: pa.Buffer, layout: ChunkLayout, what: str) -> list[PageHeader]:
    codec = layout.codec
    headers = []
    view = as_bytes(buffer)
    position, end = 0, buffer.size
    values = 0
    # The `slack` bytes at the end of a chunk may not be pages of that chunk.
    while position < end and not (end - position <= layout.slack and values >= layout.num_values):
        header = decode_page_header(view, what, position)
        check_page_fits(header, end - position, what)
        _check_sizes(header, codec, what)
        headers.append(header)
        position += header.page_length
        values += header.num_values if header.is_data else 0
    return headers


def as_bytes(buffer: pa.Buffer) -> bytes:
    """Return a view that is indexed like bytes, without a copy; Arrow's own view has signed numbers."""
    return memoryview(buffer).cast("B")  # type: ignore[return-value]


def _read_dictionary_header(buffer: pa.Buffer, codec: int, what: str) -> PageHeader:
    header = decode_page_header(as_bytes(buffer), what)
    if header.type != DICTIONARY_PAGE:
        raise CorruptFile(
            f"{what} has a page of type {header.type}, expected its dictionary page; write the file again"
        )
    check_page_fits(header, buffer.size, what)
    _check_sizes(header, codec, what)
    return header


def _check_codec(codec: int, what: str) -> None:
    # pyarrow raises the same error for an unsupported codec as for a damaged page.
    name = CODECS[codec] if 0 <= codec < len(CODECS) else f"codec {codec}"
    if name == "LZO" or name not in CODECS:
        raise UnsupportedFeature(
            f"{what} is compressed with {name}, which is not supported; write the file with another codec"
        )


def _check_sizes(header: PageHeader, codec: int, what: str) -> None:
    if codec == UNCOMPRESSED and header.compressed_size != header.uncompressed_size:
        raise CorruptFile(
            f"{what} has an uncompressed page of {header.compressed_size} bytes, expected {header.uncompressed_size}; "
            "write the file again"
        )


MAX_UNSTATED_BYTES = 16 * 1024 * 1024
"""Pages may always decompress to this many bytes, even if the chunk states fewer."""


def _check_uncompressed_size(headers: Sequence[PageHeader], layout: ChunkLayout, what: str) -> None:
    """Raise if pages decompress to more than the chunk states, because batches were sized by that number.

    Writers count differently, so a small excess is allowed.
    """
    uncompressed = sum(header.uncompressed_size for header in headers)
    if uncompressed > max(layout.total_uncompressed_size, MAX_UNSTATED_BYTES):
        raise CorruptFile(
            f"{what} has pages of {uncompressed} uncompressed bytes in a chunk of {layout.total_uncompressed_size}; "
            "write the file again"
        )


def _check_counts(
    headers: Sequence[PageHeader], num_rows: int, row_counts: Sequence[int] | None, schema: LeafSchema, what: str
) -> None:
    data = [header for header in headers if header.is_data]
    if row_counts is not None and len(row_counts) != len(data):
        raise CorruptFile(
            f"{what} has {len(data)} pages, and {len(row_counts)} in its offset index; write the file again"
        )
    # One value per row, except for lists: only data pages of version 2 count their rows.
    row_totals = [header.num_rows if schema.is_repeated else header.num_values for header in data]
    if row_counts is not None:
        for found, expected in zip(row_totals, row_counts, strict=True):
            if found is not None and found != expected:
                raise CorruptFile(
                    f"{what} has a page of {found} rows, and {expected} in its offset index; write it again"
                )
    known = [count for count in row_totals if count is not None]
    if len(known) == len(row_totals) and sum(known) != num_rows:
        raise CorruptFile(f"{what} has {sum(known)} rows in its pages, expected {num_rows}; write the file again")


def _read(file: SyntheticFile, what: str, *, keep_dictionary: bool = False) -> pa.ChunkedArray:
    try:
        options = {"page_checksum_verification": True, "read_dictionary": [0] if keep_dictionary else None}
        return open_reader(file.open(), **options).read_all(use_threads=False).column(0)
    except NotImplementedError as error:
        raise UnsupportedFeature(f"{what} cannot be decoded: {to_one_line(error)}") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFile(f"{what} cannot be decoded: {to_one_line(error)}") from error


def _cast(column: pa.ChunkedArray, target: pa.DataType, what: str) -> pa.ChunkedArray:
    try:
        return column.cast(target)
    except pa.ArrowException as error:
        raise CorruptFile(f"{what} is {column.type} where {target} was expected: {to_one_line(error)}") from error


# --- A Parquet file in memory with some pages of one column, for pyarrow to decode ------------------------------------
#
# pyarrow cannot read single pages, but it decodes any file: the unchanged dictionary page and data pages of the
# original file, with a new footer that describes only them.

_MAGIC = b"PAR1"
_VERSION = 2
_ARROW_SCHEMA = b"ARROW:schema"


@dataclass(frozen=True, slots=True)
class Pages:
    """The metadata of pages that their footer must contain."""

    codec: int
    encodings: tuple[int, ...]
    num_rows: int
    num_values: int
    uncompressed_size: int
    """The uncompressed size, headers included."""


@dataclass(frozen=True, slots=True)
class SyntheticFile:
    """The consecutive buffers of a file."""

    buffers: tuple[pa.Buffer, ...]
    size: int

    def open(self) -> pa.NativeFile | PrefetchedFile:
        """Open the file for pyarrow.

        pyarrow reads a chunk as a whole, so several buffers are copied into one in any case; copying here avoids calls
        into Python. Only a single large buffer is worth a file object that serves it without a copy.
        """
        if self.size <= _MIN_ZERO_COPY_BYTES or len(self.buffers) > _BUFFERS_WITH_ONE_PAGE_BUFFER:
            return pa.BufferReader(b"".join(self.buffers))
        start, ranges = 0, []
        for buffer in self.buffers:
            ranges.append((start, buffer))
            start += buffer.size
        return PrefetchedFile(ranges, self.size, "pages")


_MIN_ZERO_COPY_BYTES = 1024 * 1024
_BUFFERS_WITH_ONE_PAGE_BUFFER = 3  # the magic, the pages, the footer


def build_one_column_file(
    schema: LeafSchema,
    field: pa.Field | None,
    dictionary: pa.Buffer | None,
    data: Sequence[pa.Buffer],
    pages: Pages,
    created_by: bytes | None = None,
) -> SyntheticFile:
    """Build a file from a leaf's dictionary page and data pages, both with their headers.

    `field` is the Arrow field as which the leaf is read, narrowed to it; without it the Parquet schema decides.
    `created_by` is that of the original file, by which readers recognise bugs of old writers.
    """
    buffers = [_MAGIC_BUFFER, *((dictionary,) if dictionary is not None else ()), *data]
    start = len(_MAGIC)
    end = sum(buffer.size for buffer in buffers)
    data_start = start + (dictionary.size if dictionary is not None else 0)
    frame = _make_frame(schema, field, pages.codec, pages.encodings, created_by)
    numbers = (
        (5, I64, pages.num_values),
        (6, I64, pages.uncompressed_size),
        (7, I64, end - start),
        (9, I64, data_start),
        (11, I64, None if dictionary is None else start),
    )
    chunk = frame.before_numbers + encode_fields(numbers, after=4) + END_OF_STRUCT
    column = _BEFORE_CHUNK + chunk + END_OF_STRUCT
    row_group = encode_struct(
        (
            (1, LIST, encode_list(STRUCT, [column])),
            (2, I64, pages.uncompressed_size),
            (3, I64, pages.num_rows),
        )
    )
    rows = encode_fields(((3, I64, pages.num_rows), (4, LIST, encode_list(STRUCT, [row_group]))), after=2)
    footer = frame.before_rows + rows + frame.after_rows
    tail = pa.py_buffer(footer + len(footer).to_bytes(4, "little") + _MAGIC)
    return SyntheticFile((*buffers, tail), end + tail.size)


_MAGIC_BUFFER = pa.py_buffer(_MAGIC)
_BEFORE_CHUNK = encode_fields(((2, I64, 0), (3, STRUCT, b"")))


@dataclass(frozen=True, slots=True)
class _Frame:
    """The bytes that all footers of one column share, independent of its pages."""

    before_rows: bytes
    after_rows: bytes
    before_numbers: bytes
    """The bytes within the metadata of the chunk."""


@lru_cache(maxsize=1024)
def _make_frame(
    schema: LeafSchema, field: pa.Field | None, codec: int, encodings: tuple[int, ...], created_by: bytes | None
) -> _Frame:
    root = encode_struct(((4, BINARY, b"schema"), (5, I32, 1)))
    elements = encode_list(STRUCT, [root, *(element.encode() for element in schema.elements)])
    arrow_schema = None
    if field is not None:
        serialized = base64.b64encode(pa.schema([field]).serialize())
        arrow_schema = encode_list(STRUCT, [encode_struct(((1, BINARY, _ARROW_SCHEMA), (2, BINARY, serialized)))])
    column_fields = (
        (1, I32, schema.leaf.physical),
        (2, LIST, encode_list(I32, encodings)),
        (3, LIST, encode_list(BINARY, [element.name for element in schema.elements])),
        (4, I32, codec),
    )
    return _Frame(
        encode_fields(((1, I32, _VERSION), (2, LIST, elements))),
        encode_fields(((5, LIST, arrow_schema), (6, BINARY, created_by)), after=4) + END_OF_STRUCT,
        encode_fields(column_fields),
    )
