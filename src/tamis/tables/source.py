"""What a table format offers to a scan: its schema, and its files pruned as far as the format's own metadata goes."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from tamis.errors import TableError
from tamis.expr.nodes import Column
from tamis.io.listing import FileEntry
from tamis.io.storage import Storage
from tamis.parquet.field_names import FieldNames
from tamis.parquet.leaves import FieldPath
from tamis.skipping.account import LevelReport
from tamis.skipping.predicate import Predicate
from tamis.tables.planning import Planning

LEVELS = ("partitions", "manifests", "files", "row_groups", "bloom", "pages", "dictionary")
"""The levels of pruning, in the order in which they are told of; each can be switched off."""

_ONLY_OF_ICEBERG = frozenset({"manifests"})


def levels_of(table_format: str) -> tuple[str, ...]:
    """The levels that tables of a format have.

    >>> levels_of("delta")
    ('partitions', 'files', 'row_groups', 'bloom', 'pages', 'dictionary')
    """
    return LEVELS if table_format == "iceberg" else tuple(name for name in LEVELS if name not in _ONLY_OF_ICEBERG)


PARQUET = "parquet"

FILE_FORMAT, IDENTITY_VALUES = "file_format", "identity_values"


@dataclass(frozen=True, slots=True)
class FileListing:
    """The files that may hold a matching row, one Arrow row each, and how the others were ruled out.

    `files` has `path` (in the file system), `size` and `modified_ns`, and what else the format wants to know of a
    file again; `partitions` has the typed partition values of the same files, in columns that may have any name.
    A table of which not all files are Parquet has `file_format`, and `num_records` for the others. Columns that are
    read of files, and have a value that is known otherwise where a file lacks them, are in `identity_values`: a struct
    of structs with the field `value`, of which one that is NULL says that nothing is known. Its names are those of
    `absent_name`.
    """

    files: pa.Table
    partitions: pa.Table
    levels: tuple[LevelReport, ...]
    rows: pa.Array | None = None
    """How many rows each file has after deletes, null where that is unknown; None where nobody looked."""
    matched: npt.NDArray[np.bool_] | None = None
    """Whether every row of a file satisfies the filter; None where nobody knows."""
    unreadable: Mapping[str, TableError] = field(default_factory=dict)
    """Partition columns with a value that their type cannot represent. They are not in `partitions`."""

    def require(self, columns: Iterable[str]) -> FileListing:
        """The listing, if the values of partition columns are known; else the error that says why not."""
        for column in columns:
            if column in self.unreadable:
                raise self.unreadable[column]
        return self

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


def absent_name(path: FieldPath) -> str:
    """The name under which the value of a column, or of a field inside of structs, stands among others.

    >>> absent_name(("day",)), absent_name(("at", "day")), absent_name(("[day]",))
    ('day', '["at", "day"]', '["[day]"]')
    """
    return path[0] if len(path) == 1 and not path[0].startswith("[") else json.dumps(path)


def absent_key(name: str) -> str | FieldPath:
    """The column, or the path of the field inside of structs, that stands under a name: see `absent_name`.

    >>> absent_key("day"), absent_key('["at", "day"]'), absent_key('["[day]"]')
    ('day', ('at', 'day'), '[day]')
    """
    path = tuple(json.loads(name)) if name.startswith("[") else (name,)
    return path if len(path) > 1 else path[0]


def known_otherwise(files: pa.Table, column: str = IDENTITY_VALUES) -> list[dict[str | FieldPath, pa.Scalar]]:
    """For each file of a listing the values of columns that it may lack, from `identity_values` or one like it."""
    found: list[dict[str | FieldPath, pa.Scalar]] = [{} for _ in range(files.num_rows)]
    if column in files.column_names:
        given = files[column].combine_chunks()
        for name, each in zip(given.type.names, given.flatten(), strict=True):
            (values,) = each.flatten()
            key = absent_key(name)
            for file in np.flatnonzero(np.asarray(each.is_valid())).tolist():
                found[file][key] = values[file]
    return found


@dataclass(frozen=True, slots=True)
class NotedRowGroups:
    """What is known of the row groups of files without their footers. Row groups are in the order of the files."""

    is_noted: npt.NDArray[np.bool_]
    """For which of the files it is known; the rest is about those alone."""
    rows: Sequence[Sequence[int]]
    """How many rows each row group of each file has."""
    sizes: npt.NDArray[np.int64]
    """The compressed bytes of the columns that are needed, for each row group."""
    metadata: Mapping[str, pa.Array]
    """As `tamis.skipping.metadata` lays it out, a row for each row group."""


class FileIndex(Protocol):
    """What was noted of the files of a table beforehand, beside what its format tells of them."""

    def narrow(
        self,
        listing: FileListing,
        predicate: Predicate,
        levels: Collection[str],
        *,
        with_rows: bool = False,
        key_of: Callable[[tuple[str, ...]], tuple[str, ...]] | None = None,
    ) -> FileListing:
        """The files of a listing that may hold a matching row, as far as the index knows them as they are now.

        `key_of` gives the path that files have for a column of the table, where it is another.
        """
        ...

    def row_groups(
        self,
        files: pa.Table,
        columns: Sequence[Column],
        needed: Sequence[tuple[str, ...]],
        mentioned: Sequence[Column],
    ) -> NotedRowGroups | None:
        """What footers would say of the row groups of files: `columns` are asked about, `needed` are read.

        A file in which `mentioned` columns do not have the types of the table is never noted: see `check_fits`.
        """
        ...

    def knows(self, files: pa.Table) -> npt.NDArray[np.bool_]:
        """Which files are noted as they are now."""
        ...

    def schema_of(self, file: FileEntry) -> pa.Schema | None:
        """The schema of a file, if it is noted as its footer has it; None where the footer must be read."""
        ...


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
    def planning(self) -> Planning | None:
        """Where plans are made; None: in this process."""
        ...

    @property
    def index(self) -> FileIndex | None:
        """What was noted of the files beforehand."""
        ...

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

    def refresh(self) -> TableSource:
        """Return the table as it is now, at its newest version; itself where the format knows of no change."""
        ...

    def deleted_rows(
        self, storage: Storage, files: pa.Table, row_groups: Sequence[Collection[int]] | None = None
    ) -> Mapping[int, BitMap64]:
        """The positions of rows that were deleted from some files of a listing, by the indices of the files.

        Of files of which only some `row_groups` matter, deleted rows of the others may be left out.
        """
        ...


@runtime_checkable
class Describing(Protocol):
    """A table whose format notes statistics of files."""

    def list_described(self, predicate: Predicate, levels: Collection[str], columns: Sequence[Column]) -> FileListing:
        """What `list_files` gives with rows, and with what the format knows of columns in each file.

        That is in further columns of `files`, which are named and mean what `tamis.skipping.metadata` says, of all
        `num_records` rows of a file: deleted ones are among them. What is unknown is null, or has no column.
        """
        ...


@runtime_checkable
class HasPartitionFields(Protocol):
    """A table that is partitioned by values that its format computes of columns, and not only by columns."""

    @property
    def partition_fields(self) -> tuple[str, ...]:
        """The names of what the table is partitioned by."""
        ...

    def read_partition_fields(self, files: pa.Table) -> pa.Table:
        """Return the typed partition values of some files of a listing."""
        ...


@runtime_checkable
class SampledSchema(Protocol):
    """A table whose schema may come from one of its files, so that others may have further columns."""

    @property
    def has_all_columns(self) -> bool:
        """Whether the schema has the columns of all files."""
        ...


@runtime_checkable
class Versioned(Protocol):
    """A table whose format keeps versions."""

    def history(self, limit: int | None = None) -> pa.Table:
        """The versions up to this one that are still known, newest first."""
        ...

    def at(self, version: str | None = None, timestamp: datetime | str | None = None) -> TableSource:
        """The table at another version: by its number or name, or as it was at a moment."""
        ...

    def is_same_state(self, other: object) -> bool:
        """Whether another is the same table at the same version, and not one that came in its place."""
        ...


@runtime_checkable
class HasRefs(Protocol):
    """A table whose format names versions: branches and tags."""

    def at_ref(self, ref: str) -> TableSource:
        """Return the table at the version of a branch or a tag."""
        ...


@runtime_checkable
class Catalogued(Protocol):
    """A table that a catalog may know by a name."""

    @property
    def names_in_catalog(self) -> Sequence[str]:
        """The names that lead to it in its catalog, with and without that of the catalog: policies go by each."""
        ...
