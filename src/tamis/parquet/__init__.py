"""Parquet files: footers, page indexes, Bloom filters, dictionaries, row selections and the page reader.

Reading order:

- `pruner`      pruning of one file, on all levels
- `footer`      footers, and the statistics of row groups
- `indexes`     the levels below row groups: Bloom filters, pages, dictionaries
- `selection`   sets of rows
- `reading`     decoding of pages and row groups
- `inspection`  the report of `tamis inspect`
"""

from __future__ import annotations

from importlib import import_module
from sys import modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tamis.parquet.indexes.bloom_filter import AsyncBloomFilterProvider, BloomFilter, BloomFilterProvider
    from tamis.parquet.inspection.inspect_file import ColumnInspection, FileInspection, inspect
    from tamis.parquet.pruner import (
        CompileResult,
        PageIndexBytes,
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
    "PageIndexBytes",
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

_HOMES = {
    "indexes.bloom_filter": ("AsyncBloomFilterProvider", "BloomFilter", "BloomFilterProvider"),
    "inspection.inspect_file": ("ColumnInspection", "FileInspection", "inspect"),
    "selection.row_selection": ("RowSelection",),
}
"""The modules of public names; that of all others is `pruner`. A scan of a table needs neither."""


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Import a public name on first use."""
        if name not in __all__:
            raise AttributeError(f"module 'tamis.parquet' has no attribute {name!r}", name=name, obj=modules[__name__])
        home = next((home for home, names in _HOMES.items() if name in names), "pruner")
        found = getattr(import_module(f"tamis.parquet.{home}"), name)
        globals()[name] = found
        return found
