"""How large the batches are in which rows are read."""

from __future__ import annotations

MOST_ROWS = 128 * 1024
"""The most rows of a batch."""

MOST_BYTES = 16 * 1024 * 1024
"""About the most bytes of a batch, where rows are wide."""


def rows_of_a_batch(rows: int, uncompressed: int) -> int:
    """How many rows make a batch where so many rows take so many bytes."""
    return max(1, min(MOST_ROWS, MOST_BYTES * rows // max(uncompressed, 1)))
