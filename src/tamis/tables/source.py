"""What a table format offers to a scan: its schema, and its files pruned as far as the format's own metadata goes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

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
    rows: pa.Array | None = None
    """How many rows each file has after deletes, null where that is unknown; None where nobody looked."""
    matched: npt.NDArray[np.bool_] | None = None
    """Whether every row of a file satisfies the filter; None where nobody knows."""

    def slice(self, start: int, count: int) -> FileListing:
        """Some of the files, one after another."""
        return replace(
            self,
            files=self.files.slice(start, count),
            partitions=self.partitions.slice(start, count),
            rows=None if self.rows is None else self.rows.slice(start, count),
            matched=None if self.matched is None else self.matched[start : start + count],
        )

    def take(self, indices: npt.NDArray[np.int64]) -> FileListing:
        """Some of the files."""
        taken = pa.array(indices)
        return replace(
            self,
            files=self.files.take(taken),
            partitions=self.partitions.take(taken),
            rows=None if self.rows is None else self.rows.take(taken),
            matched=None if self.matched is None else self.matched[indices],
        )


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

    def list_files(
        self, predicate: Predicate, levels: Collection[str], limit: int | None = None, *, with_rows: bool = False
    ) -> FileListing:
        """The files that may hold a matching row. Of `limit` rows any will do, so some of the files may be enough.

        With `with_rows` the listing tells how many rows files have, where the format knows.
        """
        ...

    def deleted_rows(self, storage: Storage, files: pa.Table) -> Mapping[int, BitMap64]:
        """The positions of rows that were deleted from some files of a listing, by the indices of the files."""
        ...
