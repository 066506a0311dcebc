"""Reads all rows of a row group with pyarrow's reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from tamis.errors import CorruptFile
from tamis.io.ranges import PrefetchedFile
from tamis.parquet.footer.datetime_rebase import rebase_batch
from tamis.parquet.footer.footer import Footer, check_value_count
from tamis.parquet.footer.statistics import find_chunk_ranges
from tamis.parquet.reading import batch_sizes as batches
from tamis.parquet.reading.batch_sizes import estimate_row_group_size
from tamis.parquet.reading.decode import as_bytes
from tamis.parquet.reading.page_header import count_values

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
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some leaves of a row group. `reader` reads `source`, which has the bytes of their chunks."""
    group = footer.metadata.row_group(row_group)
    ranges = find_chunk_ranges(footer.metadata, row_group, leaves, size=file_size, place=location)
    for leaf, (start, _) in zip(leaves, ranges, strict=True):
        check_value_count(footer.metadata, footer.schema, row_group, leaf, location)
        _check_pages(group.column(leaf), source, start, f"column {leaf} in row group {row_group} of '{location}'")
    size = estimate_row_group_size(footer, row_group, leaves, source, file_size, location)
    rows = batches.choose_batch_rows(group.num_rows, size)
    decoded = 0
    calendar = footer.schema.calendar
    is_old = [leaf in footer.schema.leaves_to_rebase for leaf in leaves]
    for batch in reader.iter_batches(
        rows, row_groups=[row_group], column_indices=leaves, use_threads=group.num_rows > FEW_ROWS
    ):
        decoded += batch.num_rows
        yield batch if calendar is None else rebase_batch(batch, calendar, is_old, location)
    if decoded != group.num_rows:
        # Without this check, rows of truncated pages would be lost silently.
        raise CorruptFile(
            f"row group {row_group} of '{location}' has {group.num_rows} rows in its footer, and {decoded} in its pages"
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


def make_dummy_batches(count: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of rows without data; a dummy column gives a batch its length."""
    for start in range(0, count, batches.MAX_BATCH_ROWS):
        yield pa.record_batch({"": pa.nulls(min(batches.MAX_BATCH_ROWS, count - start))})
