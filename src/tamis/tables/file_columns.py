"""What plain functions tell of the files of a table, whatever its format."""

from __future__ import annotations

import pyarrow as pa

UNKNOWN = -1
"""The number of records, the size or the time of change, where nothing tells it."""

FILE_COLUMNS = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("modification_time", pa.int64()),
        ("num_records", pa.int64()),
        ("partition_values", pa.string()),
    ]
)
"""`modification_time` is in milliseconds, `partition_values` are JSON."""
