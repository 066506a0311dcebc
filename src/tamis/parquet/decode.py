"""Pages to Arrow arrays, through pyarrow.

Before pyarrow sees a page its header is read here, and whatever can be counted is compared: the pages fill the bytes
they are given in, they hold as many values as there must be rows, and exactly that many rows come out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from tamis.errors import CorruptFile, UnsupportedFeature, one_line
from tamis.parquet.arrow_reader import open_reader
from tamis.parquet.batches import MOST_BYTES
from tamis.parquet.chunks import (
    CODECS,
    DICTIONARY_PAGE,
    PLAIN,
    PLAIN_DICTIONARY,
    RLE,
    RLE_DICTIONARY,
    UNCOMPRESSED,
    ChunkLayout,
)
from tamis.parquet.page_header import PageHeader, check_page_fits, decode_page_header, encode_plain_page_header
from tamis.parquet.schema_path import REQUIRED, LeafSchema
from tamis.parquet.synthetic import Pages, SyntheticFile, one_column_file


def decode_pages(
    schema: LeafSchema,
    field: pa.Field,
    layout: ChunkLayout,
    dictionary: pa.Buffer | None,
    data: Sequence[pa.Buffer],
    num_rows: int,
    place: str,
    *,
    row_counts: Sequence[int] | None = None,
    created_by: bytes | None = None,
    may_stay_coded: bool = False,
) -> pa.ChunkedArray:
    """The rows of some pages of a chunk, in order, as `field.type`.

    Each buffer of `data` holds one page or several that follow each other, with their headers; a chunk as a whole, its
    dictionary included, is one such buffer. `dictionary` may be longer than the page at its start. `field` is the
    Arrow field narrowed to this leaf, see `narrowed_field`. `row_counts` are the rows of each data page, where they
    are known. Anything that does not fit is a CorruptFile.

    With `may_stay_coded`, texts that the pages hold as positions in a dictionary may come as those: `plain_texts` makes
    texts of some of them, and nobody has made those of the others. Such positions are not checked.
    """
    what = f"column {layout.leaf} in row group {layout.row_group} of '{place}'"
    _check_codec(layout.codec, what)
    headers = [header for buffer in data for header in _page_headers(buffer, layout, what)]
    if dictionary is not None:
        header = _dictionary_header(dictionary, layout.codec, what)
        dictionary = dictionary.slice(0, header.page_length)
        headers.insert(0, header)
    _check_unpacked(headers, layout, what)
    _check_counts(headers, num_rows, row_counts, schema, what)
    if num_rows == 0:
        return pa.chunked_array([], field.type)
    pages = Pages(
        codec=layout.codec,
        encodings=layout.encodings,
        # pyarrow stops at the number of rows, and pages with more would go unseen. One more is never reached.
        num_rows=num_rows + 1,
        num_values=sum(header.num_values for header in headers if header.is_data),
        uncompressed_size=sum(header.length + header.uncompressed_size for header in headers),
    )
    stays_coded = may_stay_coded and _is_text(field.type) and all(map(_has_positions, headers))
    file = one_column_file(schema, field, dictionary, data, pages, created_by)
    column = _read(file, what, stays_coded=stays_coded)
    if len(column) != num_rows:
        raise CorruptFile(f"{what} has {len(column)} rows in pages of {num_rows}; write the file again")
    if stays_coded:
        return column
    return column if column.type.equals(field.type) else _cast(column, field.type, what)


def _is_text(data_type: pa.DataType) -> bool:
    """Whether values are texts or bytes, or lists of them: those that a dictionary makes smaller."""
    inner = data_type.value_type if pa.types.is_list(data_type) else data_type
    return bool(pa.types.is_string(inner) or pa.types.is_binary(inner))


def _has_positions(header: PageHeader) -> bool:
    return not header.is_data or header.encoding in (PLAIN_DICTIONARY, RLE_DICTIONARY)


def plain_texts(rows: pa.ChunkedArray, data_type: pa.DataType) -> pa.ChunkedArray | None:
    """What positions in a dictionary stand for; None where one is outside of it, or a text is none."""
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
    place: str,
    *,
    created_by: bytes | None = None,
) -> pa.Array:
    """The values of a dictionary page, in its order. NULL is none of them.

    `field` is that of the leaf itself, without the groups around it, see `leaf_value_field`. A dictionary is a page of
    plain values. Under the header of a data page, in a column that has a value in every row, pyarrow decodes it.
    """
    what = f"the dictionary of column {layout.leaf} in row group {layout.row_group} of '{place}'"
    _check_codec(layout.codec, what)
    header = _dictionary_header(page, layout.codec, what)
    _check_unpacked([header], layout, what)
    if header.encoding not in (PLAIN, PLAIN_DICTIONARY):
        raise CorruptFile(
            f"{what} has the encoding {header.encoding}, and dictionaries are plain; write the file again"
        )
    smallest = schema.leaf.smallest_plain_value
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
    pieces = [pa.py_buffer(new_header), body]
    column = _read(one_column_file(required, field.with_nullable(False), None, pieces, pages, created_by), what)
    if len(column) != header.num_values or column.null_count:
        raise CorruptFile(f"{what} has {len(column)} values where it claims {header.num_values}; write the file again")
    if not column.type.equals(field.type):
        column = _cast(column, field.type, what)
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def leaf_value_field(field: pa.Field) -> pa.Field:
    """The field of the values in a leaf, from the field narrowed to it: without lists and structs around them.

    >>> leaf_value_field(pa.field("a", pa.list_(pa.struct({"x": pa.string()}))))
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


def _page_headers(buffer: pa.Buffer, layout: ChunkLayout, what: str) -> list[PageHeader]:
    codec = layout.codec
    headers = []
    view = as_bytes(buffer)
    position, end = 0, buffer.size
    values = 0
    # Behind the pages of a chunk that may be longer than its footer says comes what is no page of it.
    while position < end and not (end - position <= layout.slack and values >= layout.num_values):
        header = decode_page_header(view, what, position)
        check_page_fits(header, end - position, what)
        _check_sizes(header, codec, what)
        headers.append(header)
        position += header.page_length
        values += header.num_values if header.is_data else 0
    return headers


def as_bytes(buffer: pa.Buffer) -> bytes:
    """Indexed like bytes, without a copy: Arrow's own view has signed numbers."""
    return memoryview(buffer).cast("B")  # type: ignore[return-value]


def _dictionary_header(buffer: pa.Buffer, codec: int, what: str) -> PageHeader:
    header = decode_page_header(as_bytes(buffer), what)
    if header.type != DICTIONARY_PAGE:
        raise CorruptFile(f"{what} has a page of type {header.type} where its dictionary must be; write the file again")
    check_page_fits(header, buffer.size, what)
    _check_sizes(header, codec, what)
    return header


def _check_codec(codec: int, what: str) -> None:
    name = CODECS[codec] if 0 <= codec < len(CODECS) else f"codec {codec}"
    if name in _LACKING or name not in CODECS:
        raise UnsupportedFeature(f"{what} is compressed by {name}, which pyarrow lacks; write the file with another")


# pyarrow calls a codec that it lacks an error of reading, like a damaged page.
_LACKING = ("LZO",)


def _check_sizes(header: PageHeader, codec: int, what: str) -> None:
    if codec == UNCOMPRESSED and header.compressed_size != header.uncompressed_size:
        raise CorruptFile(
            f"{what} has a page of {header.compressed_size} bytes that claims {header.uncompressed_size}, "
            "and no compression; write the file again"
        )


def _check_unpacked(headers: Sequence[PageHeader], layout: ChunkLayout, what: str) -> None:
    """Pages that unpack to more than their chunk are not unpacked: batches were sized by what the chunk claims.

    Writers differ in what they count, so that a little more is no harm.
    """
    unpacked = sum(header.uncompressed_size for header in headers)
    if unpacked > max(layout.total_uncompressed_size, MOST_BYTES):
        raise CorruptFile(
            f"{what} has pages that unpack to {unpacked} bytes in a chunk of {layout.total_uncompressed_size}; "
            "write the file again"
        )


def _check_counts(
    headers: Sequence[PageHeader], num_rows: int, row_counts: Sequence[int] | None, schema: LeafSchema, what: str
) -> None:
    data = [header for header in headers if header.is_data]
    if row_counts is not None and len(row_counts) != len(data):
        raise CorruptFile(f"{what} has {len(data)} pages where its index has {len(row_counts)}; write the file again")
    # A value for each row, unless rows are lists; those only the second version of pages counts.
    counted = [header.num_rows if schema.is_repeated else header.num_values for header in data]
    if row_counts is not None:
        for found, expected in zip(counted, row_counts, strict=True):
            if found is not None and found != expected:
                raise CorruptFile(f"{what} has a page of {found} rows that its index gives {expected}; write it again")
    known = [count for count in counted if count is not None]
    if len(known) == len(counted) and sum(known) != num_rows:
        raise CorruptFile(f"{what} has {sum(known)} rows in pages of {num_rows}; write the file again")


def _read(file: SyntheticFile, what: str, *, stays_coded: bool = False) -> pa.ChunkedArray:
    try:
        options = {"page_checksum_verification": True, "read_dictionary": [0] if stays_coded else None}
        return open_reader(file.open(), **options).read_all(use_threads=False).column(0)
    except NotImplementedError as error:
        raise UnsupportedFeature(f"{what} cannot be decoded: {one_line(error)}") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFile(f"{what} cannot be decoded: {one_line(error)}") from error


def _cast(column: pa.ChunkedArray, target: pa.DataType, what: str) -> pa.ChunkedArray:
    try:
        return column.cast(target)
    except pa.ArrowException as error:
        raise CorruptFile(f"{what} is {column.type} where {target} was expected: {one_line(error)}") from error
