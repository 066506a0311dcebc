"""The row-group level: reads the footers of the remaining files, prunes their row groups, and excludes deleted rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tamis.errors import CorruptFile, format_count
from tamis.expr.nodes import Column, find_columns
from tamis.formats.constants import list_absent, name_absent
from tamis.formats.files.data_files import DataFile, make_row_count_error
from tamis.formats.source import FILE_FORMAT, PARQUET, FileIndex, FileListing, IndexedRowGroups
from tamis.io.storage import Storage
from tamis.io.threads import LOCAL_SOLO_SECONDS, run_in_threads
from tamis.parquet.footer.field_names import ColumnMapping
from tamis.parquet.footer.footer import Footer, load_footer
from tamis.parquet.footer.leaves import FieldPath, FileSchema
from tamis.parquet.footer.matching import check_compatible_types
from tamis.parquet.footer.statistics import (
    collect_metadata,
    get_compressed_sizes,
    list_row_counts,
)
from tamis.parquet.selection.row_selection import RowSelection
from tamis.scan.planning.projection import Path
from tamis.skipping.metadata import (
    KINDS,
    ROW_COUNT,
    concatenate_metadata,
    make_constant_bounds,
    make_partition_bounds,
    metadata_name,
)
from tamis.skipping.metrics import MATCHED_BY_FILE, SWITCHED_OFF, LevelReport, add_matched_conjuncts
from tamis.skipping.predicate import Predicate
from tamis.skipping.prune import prune

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Row groups or parts of them, as columns. They are numpy arrays because they are mostly short: each step over them
    takes ten times as long in Arrow."""

    file: Numbers
    """The index of the file."""
    row_group: Numbers
    """The index of the row group in its file."""
    row_count: Numbers
    bytes: Numbers
    """The compressed bytes of the needed columns."""

    def __len__(self) -> int:
        return len(self.file)

    @property
    def columns(self) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        return self.file, self.row_group, self.row_count, self.bytes

    def take(self, which: Numbers | npt.NDArray[np.bool_]) -> Units:
        """Return the units at some positions, or where a mask is true."""
        return Units(*(column[which] for column in self.columns))

    @property
    def total_bytes(self) -> int:
        return int(self.bytes.sum())


def concatenate_units(parts: Sequence[Units]) -> Units:
    return Units(*map(np.concatenate, zip(*(part.columns for part in parts), strict=True)))


def take_rows(table: pa.Table, rows: Numbers) -> pa.Table:
    """Return some rows of a table, in ascending order; the table itself if these are all its rows."""
    return table if len(rows) == table.num_rows else table.take(pa.array(rows))


@dataclass(frozen=True)
class RowGroups:
    """The row groups to read from some files, in file order.

    `residual[i, j]`: conjunct j is in the residual filter of unit i.
    """

    units: Units
    group_rows: Sequence[Sequence[int]]
    """The row counts of all row groups of each file."""
    residual: np.ndarray[Any, Any]
    report: LevelReport
    contents: Sequence[pa.Buffer | None]
    """The contents of small files that were read with their footers, if requested; None for the others."""
    metadata: pa.RecordBatch
    """The metadata of the units, for the levels below."""
    selections: Mapping[tuple[int, int], RowSelection] = field(default_factory=dict)
    """The rows to read, by file and row group, where not all are read; `row_count` and `bytes` cover only those."""


def plan_row_groups(
    storage: Storage,
    listing: FileListing,
    predicate: Predicate,
    needed: tuple[Path, ...],
    *,
    names: ColumnMapping | None = None,
    enabled: bool = True,
    keep_contents: bool = False,
    index: FileIndex | None = None,
    with_statistics: Sequence[Column] = (),
) -> RowGroups:
    """Read the footers of files concurrently, and prune their row groups in one pass.

    `names` maps the physical column names of files to the table's, if they differ. With `keep_contents`, the contents
    of small files are returned for reading; otherwise footers of files in the `index` are not read. The metadata of
    `with_statistics` columns is returned too, even if the filter does not mention them. A conjunct is not tested again
    for the row groups of a file that it fully matches.
    """
    files, partitions = listing.files, listing.partitions
    conjuncts = predicate.conjuncts
    matched = np.zeros((files.num_rows, len(conjuncts)), bool) if listing.matched is None else listing.matched
    is_tested = np.ones(len(conjuncts), bool)
    if files.num_rows:
        is_tested = ~np.all(matched, axis=0, keepdims=False)
    tested = [conjunct for conjunct, each in zip(conjuncts, is_tested, strict=True) if each]
    columns = (column for conjunct in tested for column in find_columns(conjunct.predicate))
    # Metadata is named by path. The bounds of a column in the filter have the type to which the filter is bound.
    asked_about = {column.path: column for column in (*with_statistics, *columns)}
    in_files = [column for column in asked_about.values() if column.path[0] not in partitions.column_names]
    mentioned = [column for column in predicate.mentioned if column.path[0] not in partitions.column_names]
    of_files = tuple(path for path in needed if path[0] not in partitions.column_names)
    reader = _MetadataReader(storage, names, in_files, mentioned, of_files, keep_contents)
    indexed = None if index is None or keep_contents else index.read_row_groups(files, in_files, of_files, mentioned)
    if FILE_FORMAT in files.column_names:
        indexed = _describe_other_formats(storage, files)
    found = reader.read_footers(files) if indexed is None else reader.complete(indexed, files)
    rows, contents = found.rows, found.contents
    counts = [len(each) for each in rows]
    units = Units(
        np.repeat(np.arange(len(counts)), counts),
        np.array([number for count in counts for number in range(count)], np.int64),
        np.array([count for each in rows for count in each], np.int64),
        found.sizes,
    )
    row_count = pa.array(units.row_count)
    of_partitions = {path[0] for path in asked_about}
    batch = pa.record_batch(
        {
            ROW_COUNT.name: row_count,
            **found.metadata,
            **_add_constants(files, found, in_files, units),
            **make_partition_bounds(partitions, of_partitions, row_count, pa.array(units.file)),
        }
    )
    report = LevelReport("row_groups", len(units), len(units), units.total_bytes, units.total_bytes)
    if not enabled:
        report.note = SWITCHED_OFF
        return RowGroups(units, rows, ~matched[units.file], report, contents, batch)
    proven = matched[units.file][:, is_tested]
    pruned = prune(batch, tested, handler=predicate.handler, proven=proven if proven.any() else None)
    kept = units.take(np.asarray(pruned.selection))
    residual = ~matched[kept.file]
    residual[:, is_tested] &= ~pruned.matched
    report.kept, report.bytes_kept = len(kept), kept.total_bytes
    report.by_predicate = add_matched_conjuncts(pruned.outcomes, conjuncts, is_tested.tolist(), MATCHED_BY_FILE)
    return RowGroups(kept, rows, residual, report, contents, pruned.remaining)


@dataclass(frozen=True, slots=True)
class _RowGroupMetadata:
    """The metadata of all row groups of some files, in file order."""

    rows: Sequence[Sequence[int]]
    sizes: Numbers
    metadata: Mapping[str, pa.Array]
    contents: Sequence[pa.Buffer | None]
    lacking: Mapping[FieldPath, npt.NDArray[np.bool_]] = field(default_factory=dict)
    """For columns with a constant for files that lack them: which files these are."""


@dataclass(frozen=True, slots=True)
class _MetadataReader:
    """Reads the metadata that a scan needs from footers."""

    storage: Storage
    names: ColumnMapping | None
    tested: list[Column]
    mentioned: list[Column]
    needed: tuple[Path, ...]
    keep_contents: bool

    def read_footers(self, files: pa.Table) -> _RowGroupMetadata:
        """Return the metadata of files from their footers."""
        footers, contents = _load_footers(self.storage, files, self.names, keep_contents=self.keep_contents)
        leaves: dict[FileSchema, list[int]] = {}
        for path, footer in zip(files["path"], footers, strict=True):
            # The files of a table mostly share one schema.
            if footer.schema not in leaves:
                location = self.storage.format_path(path.as_py())
                check_compatible_types(footer.schema.arrow, self.mentioned, location, exact=footer.schema.is_renamed)
                paths = [found for wanted in self.needed if (found := footer.schema.find(wanted)) is not None]
                leaves[footer.schema] = footer.schema.find_leaves_at(paths)
        sizes = [size for footer in footers for size in get_compressed_sizes(footer, leaves[footer.schema])]
        metadata = collect_metadata(footers, self.tested)
        constant = list_absent(files)
        lacking = {
            column.path: np.array([footer.schema.find(column.path) is None for footer in footers], bool)
            for column in self.tested
            if column.path in constant
        }
        rows = [list_row_counts(footer) for footer in footers]
        _check_row_counts(self.storage, files, rows)
        return _RowGroupMetadata(rows, np.array(sizes, np.int64), metadata, contents, lacking)

    def complete(self, indexed: IndexedRowGroups, files: pa.Table) -> _RowGroupMetadata:
        """Return the indexed metadata, and that of the other files from their footers."""
        known, missing = np.flatnonzero(indexed.is_indexed), np.flatnonzero(~indexed.is_indexed)
        nothing: list[pa.Buffer | None] = [None] * files.num_rows
        if not len(missing):
            return _RowGroupMetadata(indexed.rows, indexed.sizes, indexed.metadata, nothing)
        read = self.read_footers(files.take(pa.array(missing)))
        counts = [np.array([len(each) for each in rows], np.int64) for rows in (indexed.rows, read.rows)]
        file_of_unit = np.concatenate([np.repeat(known, counts[0]), np.repeat(missing, counts[1])])
        order = np.argsort(file_of_unit, kind="stable")
        metadata = concatenate_metadata([indexed.metadata, read.metadata], [int(each.sum()) for each in counts])
        rows: list[Sequence[int]] = [()] * files.num_rows
        for file, own in zip((*known, *missing), (*indexed.rows, *read.rows), strict=True):
            rows[file] = own
        contents = nothing
        for file, content in zip(missing.tolist(), read.contents, strict=True):
            contents[file] = content
        lacking = {name: np.zeros(files.num_rows, bool) for name in read.lacking}
        for name, own_lacking in read.lacking.items():
            lacking[name][missing] = own_lacking
        return _RowGroupMetadata(
            rows,
            np.concatenate([indexed.sizes, read.sizes])[order],
            {name: array.take(pa.array(order)) for name, array in metadata.items()},
            contents,
            lacking,
        )


def is_parquet(files: pa.Table) -> npt.NDArray[np.bool_]:
    """Return which files are Parquet, for a table with several file formats."""
    return np.asarray(pc.equal(files[FILE_FORMAT], PARQUET).combine_chunks())


def _describe_other_formats(storage: Storage, files: pa.Table) -> IndexedRowGroups | None:
    """Describe files that are not Parquet: each is one row group without statistics. None if all files are Parquet."""
    is_other = ~is_parquet(files)
    if not is_other.any():
        return None
    others = files.select(["path", "size", FILE_FORMAT, "num_records"]).filter(pa.array(is_other))
    rows: list[int | None] = others["num_records"].to_pylist()
    uncounted = others.filter(others["num_records"].is_null()).drop_columns("num_records")
    unread = [DataFile(storage, *each.values()) for each in uncounted.to_pylist()]
    counts = iter(run_in_threads(DataFile.count, unread, storage.threads))
    known = [next(counts) if count is None else count for count in rows]
    return IndexedRowGroups(is_other, [[count] for count in known], np.asarray(others["size"].combine_chunks()), {})


def _check_row_counts(storage: Storage, files: pa.Table, rows: Sequence[Sequence[int]]) -> None:
    """Raise an error if the table metadata has another row count than a file, because it answers counts."""
    if not {FILE_FORMAT, "num_records"} <= set(files.column_names):
        return
    recorded = files["num_records"].combine_chunks()
    is_other = pc.fill_null(pc.not_equal(recorded, pa.array([sum(each) for each in rows], recorded.type)), False)
    if pc.any(is_other, min_count=0).as_py():
        first = is_other.index(True).as_py()
        location = storage.format_path(files["path"][first].as_py())
        raise make_row_count_error(location, sum(rows[first]), recorded[first].as_py())


def _add_constants(
    files: pa.Table, facts: _RowGroupMetadata, columns: Sequence[Column], units: Units
) -> dict[str, pa.Array]:
    """Return the metadata of columns, with their constants in files that lack them."""
    found: dict[str, pa.Array] = {}
    row_count = pa.array(units.row_count)
    for column in (column for column in columns if column.path in facts.lacking):
        known = files[name_absent(column.path)].combine_chunks().take(pa.array(units.file))
        is_constant = pa.array(facts.lacking[column.path][units.file] & np.asarray(known.is_valid(), bool))
        # Where a struct is NULL its fields are NULL, even if the value is constant otherwise.
        constant = make_constant_bounds(column, known.field("value"), row_count, or_null=len(column.path) > 1)
        for name in (metadata_name(kind, column.path) for kind in KINDS):
            both = [metadata[name] for metadata in (constant, facts.metadata) if name in metadata]
            if both:
                nothing = pa.nulls(len(units), both[0].type)
                found[name] = pc.if_else(is_constant, constant.get(name, nothing), facts.metadata.get(name, nothing))
    return found


def _load_footers(
    storage: Storage, files: pa.Table, names: ColumnMapping | None, *, keep_contents: bool
) -> tuple[list[Footer], list[pa.Buffer | None]]:
    wanted = zip(*(files[name].to_pylist() for name in ("path", "size", "modified_ns")), strict=True)

    def load(file: tuple[str, int, int | None]) -> tuple[Footer, pa.Buffer | None]:
        footer, content = load_footer(storage, *file, names)
        return footer, content if keep_contents else None

    loaded = run_in_threads(load, wanted, storage.threads, patience=LOCAL_SOLO_SECONDS if storage.is_local else 0.0)
    return [footer for footer, _ in loaded], [content for _, content in loaded]


# --- Deleted rows: excluded by their positions in the file ------------------------------------------------------------


def remove_deleted_rows(
    row_groups: RowGroups, deleted: Mapping[int, BitMap64], locations: Mapping[int, str]
) -> RowGroups:
    """Return the row groups without the deleted rows of files; `deleted` and `locations` are by file index.

    The metadata of all rows of a row group also holds for the remaining ones. `locations` are for messages.
    """
    kept = {
        file: select_live_rows(rows, row_groups.group_rows[file], locations[file])
        for file, rows in deleted.items()
        if len(rows)
    }
    if not kept:
        return row_groups
    by_group = {file: selection.split(row_groups.group_rows[file]) for file, selection in kept.items()}
    units = row_groups.units
    files, groups, counts = units.file.tolist(), units.row_group.tolist(), units.row_count.tolist()
    selections = dict(row_groups.selections)
    for index, (file, group) in enumerate(zip(files, groups, strict=True)):
        if file not in by_group or by_group[file][group].is_all:
            continue
        left = by_group[file][group]
        selections[file, group] = selections[file, group] & left if (file, group) in selections else left
        counts[index] = selections[file, group].row_count
    is_left = np.array([count > 0 for count in counts], bool)
    return replace(
        row_groups,
        units=replace(units, row_count=np.array(counts, np.int64)).take(is_left),
        residual=row_groups.residual[is_left],
        selections={key: selection for key, selection in selections.items() if not selection.is_empty},
    )


def select_live_rows(deleted: BitMap64, row_group_rows: Sequence[int], location: str) -> RowSelection:
    """Return the rows of a file that are not deleted; `row_group_rows` are the row counts of its row groups."""
    total = int(np.sum(row_group_rows, dtype=np.int64))
    # Checked first: a few bytes can claim billions of rows.
    if len(deleted) and deleted.max() >= total:
        raise CorruptFile(
            f"row {deleted.max()} of '{location}' is recorded as deleted, but the file has "
            f"{format_count(total, 'row')}: the deletes or the data file were replaced. Restore the original"
        )
    return ~RowSelection.from_roaring(deleted, total)
