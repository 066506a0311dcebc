"""Reads all rows of a row group with pyarrow's reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from tamis.errors import CorruptFile, to_one_line
from tamis.io.ranges import PrefetchedFile, make_prefetched_file, read_ranges
from tamis.io.storage import Storage
from tamis.parquet.footer.chunks import ChunkLayout, read_chunk_layouts
from tamis.parquet.footer.datetime_rebase import rebase_batch
from tamis.parquet.footer.footer import Footer, check_value_count, open_reader
from tamis.parquet.footer.leaves import FieldPath, find_leaf_indices
from tamis.parquet.footer.statistics import find_chunk_ranges
from tamis.parquet.reading.decode import as_bytes, count_values, decode_page_header
from tamis.tuning import Tuning

# --- Batch sizes ----------------------------------------------------------------------------------------------------
#
# Size limits of the record batches in which rows are read.


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
        layout = read_chunk_layouts(footer.map, [leaf], [row_group], file_size, location)[row_group, leaf]
        if layout.text_bytes is not None or layout.dictionary_page_offset is None:
            return estimate_decoded_size(layout)
        file.seek(layout.dictionary_page_offset)
        start = pa.py_buffer(file.read(min(_LONGEST_HEADER, layout.byte_range[1])))
        header = decode_page_header(start.to_pybytes(), location)
    except CorruptFile:
        # This is only an estimate. If the chunk is damaged, reading its rows reports the error.
        return 0
    return header.uncompressed_size * layout.num_values // max(header.num_values, 1)


FEW_ROWS = 32 * 1024
"""The number of rows up to which one thread decodes a row group faster than several."""


def decode_row_group(
    reader: pq.ParquetReader,
    footer: Footer,
    row_group: int,
    leaves: Sequence[int],
    source: pa.NativeFile | PrefetchedFile,
    file_size: int,
    location: str,
    tuning: Tuning,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some leaves of a row group. `reader` reads `source`, which has the bytes of their chunks."""
    group = footer.metadata.row_group(row_group)
    ranges = find_chunk_ranges(footer.metadata, row_group, leaves, size=file_size, location=location)
    for leaf, (start, _) in zip(leaves, ranges, strict=True):
        check_value_count(footer.metadata, footer.schema, row_group, leaf, location)
        _check_pages(group.column(leaf), source, start, f"column {leaf} in row group {row_group} of '{location}'")
    size = estimate_row_group_size(footer, row_group, leaves, source, file_size, location, tuning)
    rows = choose_batch_rows(group.num_rows, size, tuning)
    yield from _decode_batches(reader, footer, row_group, leaves, rows, location)


def _decode_batches(
    reader: pq.ParquetFile, footer: Footer, row_group: int, leaves: Sequence[int], rows: int, location: str
) -> Iterator[pa.RecordBatch]:
    count, decoded = footer.metadata.row_group(row_group).num_rows, 0
    calendar = footer.schema.calendar
    is_old = [leaf in footer.schema.leaves_to_rebase for leaf in leaves]
    for batch in reader.iter_batches(rows, row_groups=[row_group], column_indices=leaves, use_threads=count > FEW_ROWS):
        decoded += batch.num_rows
        # Dates may be in the Julian calendar.
        yield batch if calendar is None else rebase_batch(batch, calendar, is_old, location)
    if decoded != count:
        # Without this check, rows of truncated pages would be lost silently.
        raise CorruptFile(
            f"row group {row_group} of '{location}' has {count} rows in its footer, and {decoded} in its pages"
        )


def _check_pages(chunk: pq.ColumnChunkMetaData, source: pa.NativeFile | PrefetchedFile, start: int, what: str) -> None:
    """Raise if the pages of a chunk have more values than its footer states: pyarrow would drop the last ones.

    If they have fewer or cannot be read, pyarrow raises.
    """
    source.seek(start)
    pages = as_bytes(pa.py_buffer(source.read_buffer(chunk.total_compressed_size)))
    found = count_values(pages)
    if found is not None and found > chunk.num_values:
        raise CorruptFile(
            f"{what} has {chunk.num_values:,} values in its footer, and {found:,} in its pages; write the file again"
        )


# --- Metadata in Parquet files: checkpoints and statistics indexes ----------------------------------------------------


@lru_cache(maxsize=1)
def _get_memory_pool() -> pa.MemoryPool | None:
    """Return the memory pool for batches, which are allocated and freed by the hundred.

    mimalloc, Arrow's default, seems to return their memory to the system each time: plans over a million files on a
    busy machine took 2.5 s of processor time and 550 MB with it, 1.8 to 2.3 s and 470 to 510 MB with jemalloc.
    """
    return pa.jemalloc_memory_pool() if "jemalloc" in pa.supported_memory_backends() else None


def read_row_group(
    storage: Storage,
    path: str,
    size: int,
    footer: Footer,
    row_group: int,
    columns: Sequence[FieldPath],
    content: pa.Buffer | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield some columns of a row group of a file with metadata. The rows of each batch do not depend on the columns.

    `content` is the whole file if it is in memory.
    """
    location = storage.format_path(path)
    leaves = find_leaf_indices(footer.schema.arrow, columns)
    group = footer.metadata.row_group(row_group)
    ranges = find_chunk_ranges(footer.metadata, row_group, leaves, size=size, location=location)
    if content is None:
        buffers = read_ranges(storage, path, ranges, size=size)
        fetched = [(start, buffer) for (start, _), buffer in zip(ranges, buffers, strict=True)]
        source = make_prefetched_file(fetched, size, location)
    else:
        source = pa.BufferReader(content)
    # Computed from the size of all columns, so that batches of other columns have the same rows.
    rows = choose_batch_rows(group.num_rows, group.total_byte_size, storage.tuning)
    try:
        options = {"metadata": footer.metadata, "pre_buffer": False, "page_checksum_verification": True}
        reader = open_reader(source, pool=_get_memory_pool(), **options)
        yield from _decode_batches(reader, footer, row_group, leaves, rows, location)
    except (pa.ArrowException, OSError) as error:
        raise CorruptFile(f"row group {row_group} of '{location}' cannot be decoded: {to_one_line(error)}") from error


def make_dummy_batches(count: int, tuning: Tuning) -> Iterator[pa.RecordBatch]:
    """Yield batches of rows without data; a dummy column gives a batch its length."""
    for start in range(0, count, tuning.max_batch_rows):
        yield pa.record_batch({"": pa.nulls(min(tuning.max_batch_rows, count - start))})
