"""pyarrow's own reader of a Parquet file, as `pyarrow.parquet.ParquetFile` uses it.

That class also prepares to find columns by their names, which takes as long as to open a small file, and which nobody
needs who asks for leaves by their numbers.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def open_reader(source: object, *, pool: pa.MemoryPool | None = None, **options: Any) -> pq.ParquetReader:
    """A reader of a file that stays the caller's to close; `options` are those of `ParquetFile`."""
    reader = pq.ParquetReader(pool)
    # The first has another default there; what the second is for, see `tamis.parquet.leaves`.
    defaults = {"arrow_extensions_enabled": True, "coerce_int96_timestamp_unit": "us"}
    reader.open(source, **defaults | options)
    return reader
