"""Columns of tables as single arrays."""

from __future__ import annotations

import pyarrow as pa


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece; `combine_chunks` would copy one that is."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
