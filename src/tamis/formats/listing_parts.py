"""Listing of files in executors: this process holds no row for each file.

A format whose metadata comes in parts (checkpoint parts, manifests, directories) plans a job: a plain function lists
the files of one part that may hold a matching row. An engine sends these files on to the tasks that read them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
from pyroaring import BitMap64

from tamis.formats.jobs import Arguments, Item
from tamis.formats.source import FileListing
from tamis.io.storage import Storage
from tamis.skipping.predicate import Predicate

ListFunction = Callable[[Arguments, bytes], Iterator[FileListing]]
"""Lists the files of an item that may hold a matching row."""


@dataclass(frozen=True)
class ListingJob:
    """A function that lists the files of parts of the metadata, and the files that this process listed itself."""

    function: str
    """The name of a `ListFunction`, as in `tamis.formats.jobs`."""
    arguments: Mapping[str, Any]
    items: Sequence[Item]
    description: str
    """A description for the Spark UI: `list 40 checkpoint parts of orders@17`."""
    known: FileListing | None = None


class ReadsDeletedRows(Protocol):
    """Reads the deleted rows of files: see `TableSource.read_deleted_rows`."""

    def read_deleted_rows(
        self, storage: Storage, files: pa.Table, row_groups: Sequence[Collection[int]] | None = None
    ) -> Mapping[int, BitMap64]: ...


DeletesFunction = Callable[[Arguments], ReadsDeletedRows]


@runtime_checkable
class ListsInParts(Protocol):
    """A table whose files executors can list and read."""

    def plan_listing(self, predicate: Predicate, levels: Collection[str], min_files: int) -> ListingJob | None:
        """Return the job that lists the files for a filter.

        None if the metadata has at most `min_files` files, or if its parts cannot be listed independently.
        """
        ...

    def describe_deletes(self) -> tuple[str, Mapping[str, Any]] | None:
        """Return the name of a `DeletesFunction` and its arguments; None for a table without deletes."""
        ...
