"""Parquet files: footers, page indexes, Bloom filters, dictionaries, row selections and the page reader."""

from tamis.parquet.inspection import ColumnInspection, FileInspection, inspect
from tamis.parquet.pruning import Pruner, PruneRequest, PruneResult
from tamis.parquet.rows import read_selection
from tamis.parquet.selection import RowSelection

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
