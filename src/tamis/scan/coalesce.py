"""Small batches joined: row groups may hold a hundred rows each, and every step over a batch has a price of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

ENOUGH_ROWS = 128 * 1024
ENOUGH_BYTES = 16 * 1024 * 1024


def coalesce_batches(
    batches: Iterable[pa.RecordBatch], enough_rows: int = ENOUGH_ROWS, enough_bytes: int = ENOUGH_BYTES
) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, in batches of about the given size.

    A batch is handed on as soon as it has enough rows or bytes, so memory does not grow with the input.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.get_total_buffer_size()
        if rows >= enough_rows or size >= enough_bytes:
            yield _joined(waiting)
            waiting, rows, size = [], 0, 0
    if rows:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
