"""Size limits of the record batches in which rows are read."""

from __future__ import annotations

MAX_BATCH_ROWS = 128 * 1024
"""The maximum number of rows in a batch."""

MAX_BATCH_BYTES = 16 * 1024 * 1024
"""The approximate maximum size of a batch in bytes, which limits batches of wide rows."""


def choose_batch_rows(rows: int, uncompressed: int) -> int:
    """Return the number of rows per batch, given that `rows` rows take `uncompressed` bytes."""
    return max(1, min(MAX_BATCH_ROWS, MAX_BATCH_BYTES * rows // max(uncompressed, 1)))
