"""The interface of a table format: its schema, and its files, pruned by the format's own metadata."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tamis import types
from tamis.errors import TableError
from tamis.expr.nodes import Column
from tamis.formats.constants import read_partitions
from tamis.formats.jobs import Planning
from tamis.io.listing import FileEntry
from tamis.io.ranges import may_change
from tamis.io.storage import Storage
from tamis.parquet.footer.field_names import ColumnMapping
from tamis.parquet.footer.leaves import FieldPath
from tamis.skipping.metrics import LevelReport
from tamis.skipping.predicate import Predicate, make_predicate
from tamis.tuning import Tuning

LEVELS = ("partitions", "manifests", "files", "row_groups", "bloom", "pages", "dictionary")
"""The levels of pruning, in the order of reports; each can be switched off."""


@dataclass(frozen=True, slots=True)
class TableFormat:
    """What is known of all tables of a format, for callers that only have its name."""

    levels: tuple[str, ...] = tuple(name for name in LEVELS if name != "manifests")
    """The levels of pruning that its tables have."""
    is_single_file: bool = False
    has_schemas_of_files: bool = False
    """Whether it records no schema, so that each file may have another one."""


PARQUET = "parquet"

TABLE_FORMATS = {
    "delta": TableFormat(),
    "iceberg": TableFormat(levels=LEVELS),
    "hive": TableFormat(has_schemas_of_files=True),
    PARQUET: TableFormat(is_single_file=True),
}

FILE_FORMAT = "file_format"

MODIFIED = pa.timestamp("us", "UTC")
"""The type of `modified`, the time when a file was last modified. It is null where the format does not record it."""


def read_modified(files: pa.Table) -> pa.Array | pa.ChunkedArray:
    """Return when the files of a listing were last modified, as the format records it or as they were listed."""
    if "modified" in files.column_names:
        return files["modified"]
    if "modified_ns" not in files.column_names:
        return pa.nulls(files.num_rows, MODIFIED)
    listed = files["modified_ns"]
    known = pc.if_else(may_change(listed), listed, pa.scalar(None, pa.int64()))
    return pc.divide(known, 1000).cast(MODIFIED)


def has_deleted_rows(files: pa.Table) -> npt.NDArray[np.bool_]:
    """Return which files of a listing have rows that deletion vectors or delete files delete."""
    found = np.zeros(files.num_rows, bool)
    if "deletion_vector" in files.column_names:
        found |= np.asarray(pc.is_valid(files["deletion_vector"]), bool)
    if "deletes" in files.column_names:
        found |= np.asarray(pc.greater(pc.fill_null(pc.list_value_length(files["deletes"]), 0), 0), bool)
    return found


@dataclass(frozen=True, slots=True)
class FileListing:
    """The files that may hold a matching row, one Arrow row each, and how the others were pruned.

    `files` has `path` (in the file system), `size`, `modified_ns`, by which replaced files are noticed, `modified` if
    the format records times itself, the constants of files (see `tamis.formats.constants`), and further columns that
    the format needs later. A table with files that are not Parquet has `file_format`, and `num_records` for those.
    """

    files: pa.Table
    levels: tuple[LevelReport, ...]
    rows: pa.Array | None = None
    """How many rows each file has after deletes, null where unknown; None if it was not requested."""
    matched: npt.NDArray[np.bool_] | None = None
    """`matched[i, j]`: file i is fully matched by conjunct j of the filter, every row satisfies it. None if unknown.

    A conjunct that fully matches a file is not tested for its row groups, pages and rows.
    """
    unreadable: Mapping[str, TableError] = field(default_factory=dict)
    """Partition columns with a value that their type cannot represent, with the error. They are not in `partitions`."""

    @property
    def partitions(self) -> pa.Table:
        """The typed values of partition columns in each file."""
        return read_partitions(self.files)

    @property
    def fully_matched(self) -> npt.NDArray[np.bool_]:
        """Return whether every row of a file satisfies the filter; False if unknown."""
        if self.matched is None:
            return np.zeros(self.files.num_rows, bool)
        found: npt.NDArray[np.bool_] = np.all(self.matched, axis=1, keepdims=False)
        return found

    def require(self, columns: Iterable[str]) -> FileListing:
        """Return the listing, or raise the error of the first of the partition columns that is unreadable."""
        for column in columns:
            if column in self.unreadable:
                raise self.unreadable[column]
        return self

    def slice(self, start: int, count: int) -> FileListing:
        """Return a range of the files."""
        return replace(
            self,
            files=self.files.slice(start, count),
            rows=None if self.rows is None else self.rows.slice(start, count),
            matched=None if self.matched is None else self.matched[start : start + count],
        )

    def take(self, indices: npt.NDArray[np.int64]) -> FileListing:
        """Return the files at some indices."""
        chosen = pa.array(indices)
        return replace(
            self,
            files=self.files.take(chosen),
            rows=None if self.rows is None else self.rows.take(chosen),
            matched=None if self.matched is None else self.matched[indices],
        )


@dataclass(frozen=True, slots=True)
class FilteredFiles:
    """Some files as a listing has them, and which of them a listing for a filter would have."""

    files: pa.Table
    selection: npt.NDArray[np.bool_]

    @staticmethod
    def of(
        listing: FileListing, selection: npt.NDArray[np.bool_] | None, prune: Callable[[FileListing], FileListing]
    ) -> FilteredFiles:
        """Prune the selected files of a listing once more; without a selection, all files."""
        files = listing.files
        rows = np.arange(len(files)) if selection is None else np.flatnonzero(selection)
        own = listing.take(rows)
        left = prune(replace(own, files=own.files.append_column(_ROW, pa.array(rows))))
        found = np.zeros(len(files), bool)
        found[left.files[_ROW].to_numpy()] = True
        return FilteredFiles(files, found)


_ROW = "row"
"""The column with the position of a file among others, while these are pruned."""


@dataclass(frozen=True, slots=True)
class IndexedRowGroups:
    """Metadata of row groups from an index, without footers. Row groups are in the order of the files."""

    is_indexed: npt.NDArray[np.bool_]
    """Which of the files are in the index; the other attributes are about those."""
    rows: Sequence[Sequence[int]]
    """How many rows each row group of each file has."""
    sizes: npt.NDArray[np.int64]
    """The compressed bytes of the columns that are needed, for each row group."""
    metadata: Mapping[str, pa.Array]
    """In the layout of `tamis.skipping.metadata`, a row for each row group."""


class FileIndex(Protocol):
    """A statistics index of a table's files, in addition to the metadata of its format."""

    def prune_listing(
        self,
        listing: FileListing,
        predicate: Predicate,
        levels: Collection[str],
        *,
        with_rows: bool = False,
        key_of: Callable[[tuple[str, ...]], tuple[str, ...]] | None = None,
    ) -> FileListing:
        """Return the files of a listing that may hold a matching row. Files without a current entry are kept.

        `key_of` maps the path of a column to its physical path in files, where they differ.
        """
        ...

    def read_row_groups(
        self,
        files: pa.Table,
        columns: Sequence[Column],
        needed: Sequence[tuple[str, ...]],
        mentioned: Sequence[Column],
    ) -> IndexedRowGroups | None:
        """Return the metadata of row groups, as footers would have it: bounds of `columns`, sizes of `needed`.

        A file in which `mentioned` columns have other types than in the table is not in the result: see
        `check_compatible_types`.
        """
        ...

    def has_entries(self, files: pa.Table) -> npt.NDArray[np.bool_]:
        """Return which files have a current entry."""
        ...

    def find_schema(self, file: FileEntry) -> pa.Schema | None:
        """Return the schema of a file, if the index has it as the footer does; None if the footer must be read."""
        ...


@dataclass(frozen=True, slots=True)
class IndexSupport:
    """The properties of a table that its statistics index depends on."""

    refusal: str | None = None
    """The reason why the table has no index, for an error message; None if it may have one."""
    is_useful: bool = True
    """Whether an index may have more statistics than the table's own metadata."""
    table_id: str | None = None
    """The id of the table that the format records, or None. A table that was created again at the location has a new
    id."""
    to_physical_path: Callable[[FieldPath], FieldPath] = tuple
    """Maps the path of a column to its physical path in files."""


class TableSource(Protocol):
    """A format's implementation of a table, at one version."""

    @property
    def name(self) -> str: ...

    @property
    def format(self) -> str: ...

    @property
    def storage(self) -> Storage: ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns whose values are in metadata, and not in files."""
        ...

    @property
    def partition_texts(self) -> Collection[str]:
        """The names that a `PartitionFilter` may use: partition columns, or what the format calls partition fields."""
        ...

    @property
    def version(self) -> int | None: ...

    @property
    def planning(self) -> Planning | None:
        """The engine that makes plans; None: this process."""
        ...

    @property
    def index(self) -> FileIndex | None:
        """The statistics index; None without one."""
        ...

    @property
    def index_support(self) -> IndexSupport:
        """The properties of the table that its index depends on; also of a table without one."""
        ...

    @property
    def field_names(self) -> ColumnMapping | None:
        """The physical column names of files, where they differ from those of the table."""
        ...

    def list_files(
        self, predicate: Predicate, levels: Collection[str], limit: int | None = None, *, with_rows: bool = False
    ) -> FileListing:
        """List the files that may hold a matching row. With a `limit`, files with that many matching rows are enough.

        With `with_rows` the listing has the row counts of files, if the format records them. Its `partitions` have the
        `partition_texts` of the predicate too.
        """
        ...

    def filter_files(
        self, predicate: Predicate, levels: Collection[str], limit: int | None = None
    ) -> Iterator[FilteredFiles]:
        """Yield all files in the batches in which they are pruned, with the selection of those that `list_files` lists.

        The batches are pruned as for `list_files`, with the predicate's handler, in this process and one at a time.
        """
        ...

    def with_tuning(self, tuning: Tuning) -> TableSource:
        """Return the table with other thresholds for planning and reading."""
        ...

    def refresh(self) -> TableSource:
        """Return the table as it is now, at its newest version; the same object if the format sees no change."""
        ...

    def read_deleted_rows(
        self, storage: Storage, files: pa.Table, row_groups: Sequence[Collection[int]] | None = None
    ) -> Mapping[int, BitMap64]:
        """Return the positions of deleted rows in some files of a listing, by the indices of the files.

        With `row_groups`, deleted rows of other row groups may be missing.
        """
        ...


def make_table_predicate(where: object, source: TableSource) -> Predicate:
    """Build the predicate of a table for a `where` argument."""
    handler = source.storage.handler
    return make_predicate(
        where, source.schema, source.name, source.partition_columns, handler, partition_texts=source.partition_texts
    )


@runtime_checkable
class HasFileStatistics(Protocol):
    """A table whose format has statistics of files."""

    def list_files_with_statistics(
        self, predicate: Predicate, levels: Collection[str], columns: Sequence[Column]
    ) -> FileListing:
        """List files as `list_files` does with rows, and with the format's statistics of columns in each file.

        The statistics are further columns of `files`, in the layout of `tamis.skipping.metadata`. They are about all
        `num_records` rows of a file, deleted ones included. Unknown statistics are null, or have no column.
        """
        ...


@runtime_checkable
class HasStatisticsColumns(Protocol):
    """A table whose format keeps statistics of some columns only."""

    def has_statistics(self, kind: str, column: Column) -> bool:
        """Return whether writers record a kind of metadata (see `tamis.skipping.metadata`) for a leaf column."""
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

    @property
    def identity_columns(self) -> Collection[FieldPath]:
        """The columns that partition files by their own values. Files may store them."""
        ...

    def find_text_sources(self, name: str) -> Collection[str] | None:
        """Return the columns whose values one of the `partition_texts` tells; None if they are unknown."""
        ...

    @property
    def partition_sources(self) -> Collection[FieldPath]:
        """The columns from which partition values are computed."""
        ...


@runtime_checkable
class HasCollations(Protocol):
    """A table whose format has collations."""

    @property
    def collated_columns(self) -> Collection[FieldPath]:
        """The columns, also inside of others, whose strings are not compared byte by byte."""
        ...


@runtime_checkable
class HasClustering(Protocol):
    """A table whose format declares how rows are clustered."""

    @property
    def clustering_columns(self) -> tuple[FieldPath, ...]:
        """The columns by which writers cluster or sort rows, the most significant first. Not all of them may do so."""
        ...


@runtime_checkable
class SampledSchema(Protocol):
    """A table whose schema may come from one of its files; other files may have more columns."""

    @property
    def has_all_columns(self) -> bool:
        """Return whether the schema has the columns of all files."""
        ...

    @property
    def sample_file(self) -> FileEntry | None:
        """The file with the schema; None for a table without files."""
        ...


@runtime_checkable
class Versioned(Protocol):
    """A table whose format keeps versions."""

    def history(self, limit: int | None = None) -> pa.Table:
        """Return the versions up to this one that still exist, newest first."""
        ...

    def at(self, version: str | None = None, timestamp: datetime | str | None = None) -> TableSource:
        """Return the table at another version: by its number or name, or the one at a timestamp."""
        ...

    def is_same_state(self, other: object) -> bool:
        """Return whether another is the same table at the same version, and not one that replaced it."""
        ...

    def pin(self) -> Mapping[str, Any]:
        """Return the arguments of `open_source` that open the same version again, regardless of later commits.

        They replace those with which the table was opened; `uri` also replaces the catalog.
        """
        ...


@dataclass(frozen=True)
class Commit:
    """What one version of a table did to its files."""

    added: pa.Array
    """The paths of files with new rows, as a listing of that version has them."""
    changes_rows: bool
    """Whether it also changed or deleted older rows."""


@runtime_checkable
class HasCommits(Protocol):
    """A table whose format records what each version did."""

    @property
    def table_id(self) -> str | None:
        """Return the id of the table, which another table at the same location does not have."""
        ...

    def list_versions_after(self, version: int | None) -> Sequence[int]:
        """Return the versions after one, up to this table's, from old to new; of None, all.

        Raise `VersionNotFound` if this table does not have that version.
        """
        ...

    def read_commit(self, version: int) -> Commit:
        """Return what a version did. Rows that it only moved to other files are not new."""
        ...


@runtime_checkable
class HasStoredTypes(Protocol):
    """A table whose format records the physical types of columns."""

    @property
    def has_uniform_files(self) -> bool:
        """Return whether every file has the table's types and the names of `field_names`, without a look at footers."""
        ...


@dataclass(frozen=True, slots=True)
class DeletedValues:
    """Rows of a table that are deleted by their values: those that equal a row of `keys`, where NULL equals NULL."""

    columns: tuple[FieldPath, ...]
    """The compared columns of the table, as the columns of `keys` are ordered."""
    keys: pa.Table


@dataclass(frozen=True, slots=True)
class FilesWithDeletedValues:
    """The files of a listing that the same deletes by value apply to."""

    files: npt.NDArray[np.int64]
    deleted: tuple[DeletedValues, ...] | None
    """None where a compared column is no longer in the table."""


@runtime_checkable
class DeletesByValue(Protocol):
    """A table whose format deletes rows by their values."""

    def read_deleted_positions(self, storage: Storage, files: pa.Table) -> Mapping[int, BitMap64]:
        """Return what `read_deleted_rows` returns, without the rows that are deleted by their values."""
        ...

    def read_deleted_values(self, storage: Storage, files: pa.Table) -> Sequence[FilesWithDeletedValues]:
        """Return the deleted values, for each group of files that they apply to. Each file is in one group at most."""
        ...


@runtime_checkable
class HasRefs(Protocol):
    """A table whose format names versions: branches and tags."""

    def at_ref(self, ref: str) -> TableSource:
        """Return the table at the version of a branch or a tag."""
        ...


@runtime_checkable
class HasCatalogNames(Protocol):
    """A table that may have a name in a catalog."""

    @property
    def names_in_catalog(self) -> Sequence[str]:
        """Its names in its catalog, with and without the name of the catalog: policies match each."""
        ...


def name_state(source: TableSource) -> str:
    """Return the name of a table's files and statistics at one version, as Spark's storage page shows it.

    Delta on Spark names its cached state so. A query string of the location may have a secret, and is left out.
    """
    version = "" if source.version is None else f" #{source.version}"
    uri = source.storage.uri
    shown = uri if source.storage.is_local else re.split("[?#]", uri)[0]
    return f"{source.format.capitalize()} Table State with Stats{version} - {shown}"


# --- Conversion of columns --------------------------------------------------------------------------------------------


def to_single_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array. `combine_chunks` would copy a column that has one chunk."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def decode_texts(values: pa.BinaryArray) -> pa.StringArray:
    """Return bytes as strings; null where they are not UTF-8."""
    try:
        return values.cast(types.STRING)
    except pa.ArrowInvalid:
        # This is so rare that decoding one by one is fast enough.
        return pa.array([_decode_text(each) for each in values.to_pylist()], types.STRING)


def _decode_text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
