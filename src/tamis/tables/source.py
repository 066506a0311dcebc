"""What a table format offers to a scan: its schema, and its files pruned as far as the format's own metadata goes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tamis.io.storage import Storage
from tamis.skipping.account import LevelReport
from tamis.skipping.predicate import Predicate

LEVELS = ("partitions", "files", "row_groups", "bloom", "pages", "dictionary")
"""The levels of pruning, in the order in which they run; each can be switched off."""


@dataclass(frozen=True, slots=True)
class FileListing:
    """The files that may hold a matching row, one Arrow row each, and how the others were ruled out.

    `files` has `path` (in the file system), `size` and `modified_ns`; `partitions` has the typed partition values of
    the same files, in columns that may have any name.
    """

    files: pa.Table
    partitions: pa.Table
    levels: tuple[LevelReport, ...]


class TableSource(Protocol):
    """A table at one version."""

    @property
    def name(self) -> str: ...

    @property
    def format(self) -> str: ...

    @property
    def storage(self) -> Storage: ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def partition_columns(self) -> tuple[str, ...]: ...

    @property
    def version(self) -> int | None: ...

    def list_files(self, predicate: Predicate, levels: Collection[str]) -> FileListing: ...
