"""Size limits of the record batches in which rows are read."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tamis.errors import CorruptFile
from tamis.io.ranges import PrefetchedFile
from tamis.parquet.footer.chunks import ChunkLayout, map_footer, read_chunk_layouts
from tamis.parquet.footer.footer import Footer
from tamis.parquet.reading.page_header import decode_page_header
from tamis.tuning import Tuning


def choose_batch_rows(rows: int, uncompressed: int, tuning: Tuning) -> int:
    """Return the number of rows per batch, given that `rows` rows take `uncompressed` bytes."""
    return max(1, min(tuning.max_batch_rows, tuning.max_batch_bytes * rows // max(uncompressed, 1)))


# --- Estimates of the decoded size of rows, which determine batch sizes -----------------------------------------------
#
# A chunk states the uncompressed size of its pages. Dictionary-encoded strings take more when decoded: a thousand rows
# with the same string of 100 KB are 100 KB in the file and 100 MB in a batch. Some writers state the total length of a
# chunk's strings; for other files the dictionary gives the average length of a string.

_LONGEST_HEADER = 256
"""The maximum length of a dictionary page header, which has no statistics."""


def estimate_decoded_size(layout: ChunkLayout) -> int:
    """Return the approximate decoded size of a chunk in bytes, from its metadata alone."""
    return max(layout.total_uncompressed_size, layout.text_bytes or 0)


def estimate_row_group_size(
    footer: Footer,
    row_group: int,
    leaves: Sequence[int],
    file: pa.NativeFile | PrefetchedFile,
    file_size: int,
    location: str,
    tuning: Tuning,
) -> int:
    """Return the approximate decoded size of some leaves in bytes. `file` has at least the bytes of their chunks."""
    group = footer.metadata.row_group(row_group)
    total = 0
    for leaf in leaves:
        chunk = group.column(leaf)
        size = chunk.total_uncompressed_size
        # A string in the dictionary is never longer than the chunk.
        if (
            size * group.num_rows > tuning.max_batch_bytes
            and chunk.has_dictionary_page
            and chunk.physical_type == "BYTE_ARRAY"
        ):
            size = max(size, _estimate_text_size(footer, row_group, leaf, file, file_size, location))
        total += size
    return total


def _estimate_text_size(
    footer: Footer, row_group: int, leaf: int, file: pa.NativeFile | PrefetchedFile, file_size: int, location: str
) -> int:
    try:
        where = footer.get_cached("map", lambda: map_footer(footer.content, location, footer.row_group_positions))
        layout = read_chunk_layouts(where, [leaf], [row_group], file_size, location)[row_group, leaf]
        if layout.text_bytes is not None or layout.dictionary_page_offset is None:
            return estimate_decoded_size(layout)
        file.seek(layout.dictionary_page_offset)
        start = pa.py_buffer(file.read(min(_LONGEST_HEADER, layout.byte_range[1])))
        header = decode_page_header(start.to_pybytes(), location)
    except CorruptFile:
        # This is only an estimate. If the chunk is damaged, reading its rows reports the error.
        return 0
    return header.uncompressed_size * layout.num_values // max(header.num_values, 1)
