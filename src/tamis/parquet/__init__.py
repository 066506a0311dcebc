"""Parquet files: footers, page indexes, Bloom filters, dictionaries, row selections and the page reader."""

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
