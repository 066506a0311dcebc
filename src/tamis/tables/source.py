"""What a table format offers to a scan: its schema, and its files pruned as far as the format's own metadata goes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis.io.storage import Storage
from tamis.parquet.field_names import FieldNames
from tamis.skipping.account import LevelReport
from tamis.skipping.predicate import Predicate

LEVELS = ("partitions", "files", "row_groups", "bloom", "pages", "dictionary")
"""The levels of pruning, in the order in which they run; each can be switched off."""


@dataclass(frozen=True, slots=True)
class FileListing:
    """The files that may hold a matching row, one Arrow row each, and how the others were ruled out.

    `files` has `path` (in the file system), `size` and `modified_ns`, and what else the format wants to know of a
    file again; `partitions` has the typed partition values of the same files, in columns that may have any name.
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

    @property
    def field_names(self) -> FieldNames | None:
        """The names of the table for the columns of its files, where those have others."""
        ...

    def list_files(self, predicate: Predicate, levels: Collection[str], limit: int | None = None) -> FileListing:
        """The files that may hold a matching row. Of `limit` rows any will do, so some of the files may be enough."""
        ...

    def deleted_rows(self, storage: Storage, files: pa.Table) -> Mapping[int, npt.NDArray[np.int64]]:
        """The positions of rows that were deleted from some files of a listing, in order, by the indices of files."""
        ...
