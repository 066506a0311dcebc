"""Comparison of two tables, row by row."""

from __future__ import annotations

import pyarrow as pa


def has_same_rows(found: pa.Table, expected: pa.Table) -> bool:
    """Return whether names, types, values and their order are equal. NaN and the sign of zero count."""
    return found.schema.equals(expected.schema) and all(map(_has_same_values, found.columns, expected.columns))


def _has_same_values(left: pa.ChunkedArray, right: pa.ChunkedArray) -> bool:
    texts = [
        values.combine_chunks().to_string(window=10**9, container_window=10**9, element_size_limit=10**9)
        for values in (left, right)
    ]
    return texts[0] == texts[1]
