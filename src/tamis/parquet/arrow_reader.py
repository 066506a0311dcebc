"""pyarrow's low-level Parquet reader, the one that `pyarrow.parquet.ParquetFile` wraps.

`ParquetFile` also builds a lookup of columns by name. That takes as long as opening a small file, and callers that
address leaf columns by number do not need it.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def open_reader(source: object, *, pool: pa.MemoryPool | None = None, **options: Any) -> pq.ParquetReader:
    """Open a reader for a file that the caller closes; `options` are those of `ParquetFile`."""
    reader = pq.ParquetReader(pool)
    # `ParquetFile` has another default for the first option. `tamis.parquet.leaves` explains the second.
    defaults = {"arrow_extensions_enabled": True, "coerce_int96_timestamp_unit": "us"}
    reader.open(source, **defaults | options)
    return reader
