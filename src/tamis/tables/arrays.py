"""Conversion of chunked columns to single arrays."""

from __future__ import annotations

import pyarrow as pa


def to_single_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array. `combine_chunks` would copy a column that has one chunk."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
