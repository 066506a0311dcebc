"""How many bytes rows take once they are decoded, which sizes the batches that they are read in.

A chunk says how many bytes its pages have unpacked. Texts that are positions in a dictionary take more as rows: a
thousand rows of one text of 100 KB are 100 KB in the file and 100 MB in a batch. Some writers note how many bytes the
texts of a chunk have; of other files the dictionary tells how wide a text is on average.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tamis.errors import CorruptFile
from tamis.io.ranges import PrefetchedFile
from tamis.parquet.batches import MOST_BYTES
from tamis.parquet.chunks import ChunkLayout, chunk_layouts, map_footer
from tamis.parquet.footer import Footer
from tamis.parquet.page_header import decode_page_header

_LONGEST_HEADER = 256
"""Of a dictionary page, which has no statistics in its header."""


def decoded_size(layout: ChunkLayout) -> int:
    """About how many bytes the rows of a chunk take, as far as its footer tells."""
    return max(layout.total_uncompressed_size, layout.text_bytes or 0)


def decoded_size_of_row_group(
    footer: Footer,
    row_group: int,
    leaves: Sequence[int],
    file: pa.NativeFile | PrefetchedFile,
    file_size: int,
    place: str,
) -> int:
    """About how many bytes the rows of some leaves take. `file` has at least the bytes of their chunks."""
    group = footer.metadata.row_group(row_group)
    total = 0
    for leaf in leaves:
        chunk = group.column(leaf)
        size = chunk.total_uncompressed_size
        # However wide a text of the dictionary is, it is not wider than the chunk.
        if size * group.num_rows > MOST_BYTES and chunk.has_dictionary_page and chunk.physical_type == "BYTE_ARRAY":
            size = max(size, _size_of_texts(footer, row_group, leaf, file, file_size, place))
        total += size
    return total


def _size_of_texts(
    footer: Footer, row_group: int, leaf: int, file: pa.NativeFile | PrefetchedFile, file_size: int, place: str
) -> int:
    try:
        where = footer.keep("map", lambda: map_footer(footer.content, place, footer.places))
        layout = chunk_layouts(where, [leaf], [row_group], file_size, place)[row_group, leaf]
        if layout.text_bytes is not None or layout.dictionary_page_offset is None:
            return decoded_size(layout)
        file.seek(layout.dictionary_page_offset)
        start = pa.py_buffer(file.read(min(_LONGEST_HEADER, layout.byte_range[1])))
        header = decode_page_header(start.to_pybytes(), place)
    except CorruptFile:
        # Whoever reads the rows finds what is wrong, or nothing is; this is only about how many of them at a time.
        return 0
    return header.uncompressed_size * layout.num_values // max(header.num_values, 1)
