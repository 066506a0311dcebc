"""A Parquet file in memory with some pages of one column, for pyarrow to decode.

pyarrow cannot read single pages, but it decodes any file: the unchanged dictionary page and data pages of the original
file, with a new footer that describes only them.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from tamis.io.ranges import PrefetchedFile
from tamis.parquet.schema_path import LeafSchema
from tamis.parquet.thrift import (
    BINARY,
    END_OF_STRUCT,
    I32,
    I64,
    LIST,
    STRUCT,
    encode_fields,
    encode_list,
    encode_struct,
)

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
    arrow_schema = None if field is None else _encode_arrow_schema(field)
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


def _encode_arrow_schema(field: pa.Field) -> bytes:
    serialized = base64.b64encode(pa.schema([field]).serialize())
    return encode_list(STRUCT, [encode_struct(((1, BINARY, _ARROW_SCHEMA), (2, BINARY, serialized)))])
