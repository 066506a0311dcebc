"""The statistics index of a table: footers and Bloom filters of its data files, stored beside it for many queries.

    tamis.index.build("orders")                              # every column, footers only
    tamis.index.build("orders", bloom=["customer"])          # and a Bloom filter of each file for one of them
    tamis.open("orders").scan("customer = 'c-42'")           # finds it and uses it

A second build reads only new files.

Reading order:

- `operations`              the public functions, and the build
- `collect`                 the job of a build: the statistics of some files, and their Bloom filters
- `spec`                    which columns are indexed, and how
- `store`, `entries`        the folder of an index; its entries in memory
- `finding`, `table_index`  the index of a table, and its use as a level of pruning
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tamis.index.operations import BuildResult, IndexStatus, Progress, build, drop, status

__all__ = ["BuildResult", "IndexStatus", "Progress", "build", "drop", "status"]


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Import a public name on first use: opening a table needs few modules of this package."""
        if name not in __all__:
            raise AttributeError(f"module 'tamis.index' has no attribute {name!r}", name=name)
        from tamis.index import operations

        return getattr(operations, name)
