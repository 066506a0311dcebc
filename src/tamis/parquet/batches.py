"""Size limits of the record batches in which rows are read."""

from __future__ import annotations

MOST_ROWS = 128 * 1024
"""The maximum number of rows in a batch."""

MOST_BYTES = 16 * 1024 * 1024
"""The approximate maximum size of a batch in bytes, which limits batches of wide rows."""


def rows_of_a_batch(rows: int, uncompressed: int) -> int:
    """Return the number of rows per batch, given that `rows` rows take `uncompressed` bytes."""
    return max(1, min(MOST_ROWS, MOST_BYTES * rows // max(uncompressed, 1)))
