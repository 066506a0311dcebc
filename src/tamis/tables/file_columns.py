"""The columns in which plain functions return a table's files, for every format."""

from __future__ import annotations

import pyarrow as pa

UNKNOWN = -1
"""The value of an unknown record count, size or modification time."""

FILE_COLUMNS = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("modification_time", pa.int64()),
        ("num_records", pa.int64()),
        ("partition_values", pa.string()),
    ]
)
"""`modification_time` is in milliseconds, `partition_values` is JSON."""
