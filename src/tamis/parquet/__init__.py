"""Parquet files: footers, page indexes, Bloom filters, dictionaries, row selections and the page reader.

Reading order:

- `pruner`     pruning of one file, on all levels
- `footer`     footers, and the statistics of row groups
- `indexes`    the levels below row groups: Bloom filters, pages, dictionaries
- `selection`  sets of rows
- `reading`    decoding of pages and row groups
- `inspect`    the report of `tamis inspect`
"""

from tamis.parquet.indexes.bloom_filter import BloomFilter
from tamis.parquet.indexes.bloom_provider import AsyncBloomFilterProvider, BloomFilterProvider
from tamis.parquet.inspect.inspect_file import ColumnInspection, FileInspection, inspect
from tamis.parquet.pruner import (
    CompileResult,
    PruneOptions,
    Pruner,
    PruneRequest,
    PruneResult,
    TriState,
    UnusedPredicate,
    read_selection,
)
from tamis.parquet.selection.row_selection import RowSelection

__all__ = [
    "PruneRequest",
    "PruneResult",
    "PruneOptions",
    "Pruner",
    "CompileResult",
    "UnusedPredicate",
    "TriState",
    "BloomFilter",
    "BloomFilterProvider",
    "AsyncBloomFilterProvider",
    "RowSelection",
    "inspect",
    "read_selection",
    "FileInspection",
    "ColumnInspection",
]
