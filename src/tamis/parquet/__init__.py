"""Parquet files: footers, page indexes, Bloom filters, dictionaries, row selections and the page reader.

Reading order:

- `pruner`     pruning of one file, on all levels
- `footer`     footers, and the statistics of row groups
- `indexes`    the levels below row groups: Bloom filters, pages, dictionaries
- `selection`  sets of rows
- `reading`    decoding of pages and row groups
- `inspect`    the report of `tamis inspect`
"""

from tamis.parquet.inspect.inspect_file import ColumnInspection, FileInspection, inspect
from tamis.parquet.pruner import Pruner, PruneRequest, PruneResult, read_selection
from tamis.parquet.selection.row_selection import RowSelection

__all__ = [
    "PruneRequest",
    "PruneResult",
    "Pruner",
    "RowSelection",
    "inspect",
    "read_selection",
    "FileInspection",
    "ColumnInspection",
]
