"""The row-group level: footers of the surviving files, and which of their row groups may hold a matching row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tamis import types
from tamis.errors import CorruptFile, format_count
from tamis.expr.nodes import Column
from tamis.formats.files.data_files import DataFile, make_row_count_error
from tamis.formats.source import (
    FILE_FORMAT,
    IDENTITY_VALUES,
    PARQUET,
    FileIndex,
    IndexedRowGroups,
    parse_absent_column_name,
)
from tamis.io.storage import Storage
from tamis.io.threads import LOCAL_PATIENCE, run_in_threads
from tamis.parquet.footer.field_names import ColumnMapping
from tamis.parquet.footer.footer import Footer, load_footer
from tamis.parquet.footer.leaves import FieldPath, FileSchema
from tamis.parquet.footer.matching import check_compatible_types
from tamis.parquet.footer.statistics import (
    collect_column_metadata,
    get_compressed_sizes,
    group_similar_footers,
    row_counts,
)
from tamis.parquet.selection.row_selection import RowSelection
from tamis.scan.planning.projection import Path
from tamis.skipping.metadata import KINDS, ROW_COUNT, make_constant_bounds, metadata_name
from tamis.skipping.metrics import LevelReport
from tamis.skipping.predicate import Predicate
from tamis.skipping.prune import prune

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Row groups or parts of them, in columns. In those of numpy, since they are mostly few: Arrow takes ten times as
    long for each step that there is to them."""

    file: Numbers
    """The index of the file."""
    row_group: Numbers
    """The index in the file."""
    row_count: Numbers
    bytes: Numbers
    """Compressed, of the columns that are needed."""

    def __len__(self) -> int:
        return len(self.file)

    def take(self, which: Numbers | npt.NDArray[np.bool_]) -> Units:
        """Those at some places, or where a mask is true."""
        return Units(self.file[which], self.row_group[which], self.row_count[which], self.bytes[which])

    @property
    def size(self) -> int:
        return int(self.bytes.sum())


def concatenated(parts: Sequence[Units]) -> Units:
    """Units one after the other."""
    return Units(
        np.concatenate([part.file for part in parts]),
        np.concatenate([part.row_group for part in parts]),
        np.concatenate([part.row_count for part in parts]),
        np.concatenate([part.bytes for part in parts]),
    )


def taken(table: pa.Table, rows: Numbers) -> pa.Table:
    """Some rows of a table, ascending; the very table where they are all of them."""
    return table if len(rows) == table.num_rows else table.take(pa.array(rows))


@dataclass(frozen=True)
class RowGroups:
    """The row groups to read of some files, in their order.

    `unmatched[i, j]` says that rows of unit i must still be tested by conjunct j.
    """

    units: Units
    group_rows: Sequence[Sequence[int]]
    """How many rows each row group of each of the files has."""
    unmatched: np.ndarray[Any, Any]
    report: LevelReport
    contents: Sequence[pa.Buffer | None]
    """Small files that came whole with their footers, where they were to be kept; None for the others."""
    metadata: pa.RecordBatch
    """What is known of the units, for the levels below."""
    selections: Mapping[tuple[int, int], RowSelection] = field(default_factory=dict)
    """The rows to read of a file's row group, where they are not all; `row_count` and `bytes` are of those."""


def plan_row_groups(
    storage: Storage,
    files: pa.Table,
    partitions: pa.Table,
    predicate: Predicate,
    needed: tuple[Path, ...],
    *,
    names: ColumnMapping | None = None,
    enabled: bool = True,
    keep_contents: bool = False,
    index: FileIndex | None = None,
    described: Sequence[Column] = (),
) -> RowGroups:
    """Read the footers of files (several at the same time) and prune their row groups in one pass.

    `names` are the table's for the columns of its files, where those have others. With `keep_contents`, whoever reads
    the files soon after gets the small ones along; else footers need not be read of files that an `index` knows.
    What is known of `described` columns comes along, though the filter is not about them.
    """
    asked_about = tuple(dict.fromkeys((*predicate.columns, *described)))
    in_files = [column for column in asked_about if column.path[0] not in partitions.column_names]
    mentioned = [column for column in predicate.mentioned if column.path[0] not in partitions.column_names]
    of_files = tuple(path for path in needed if path[0] not in partitions.column_names)
    asked = _Asked(storage, names, in_files, mentioned, of_files, keep_contents)
    noted = None if index is None or keep_contents else index.row_groups(files, in_files, of_files, mentioned)
    if FILE_FORMAT in files.column_names:
        noted = _not_parquet(storage, files)
    facts = asked.read(files) if noted is None else asked.complete(noted, files)
    rows, contents = facts.rows, facts.contents
    counts = [len(each) for each in rows]
    units = Units(
        np.repeat(np.arange(len(counts)), counts),
        np.array([number for count in counts for number in range(count)], np.int64),
        np.array([count for each in rows for count in each], np.int64),
        facts.sizes,
    )
    row_count = pa.array(units.row_count)
    metadata = {ROW_COUNT.name: row_count, **facts.metadata, **_where_lacking(files, facts, in_files, units)}
    for name in {column.path[0]: None for column in asked_about if column not in in_files}:
        values = partitions[name].combine_chunks().take(pa.array(units.file))
        metadata |= make_constant_bounds(Column((name,), type=values.type), values, row_count)
    described = pa.record_batch(metadata)
    pruned = prune(described, predicate.conjuncts)
    kept = units.take(np.asarray(pruned.selection)) if enabled else units
    unmatched = np.ones((len(kept), len(predicate.conjuncts)), dtype=bool)
    if enabled:
        for position, matched in enumerate(pruned.fully_matched):
            unmatched[:, position] = ~np.asarray(matched)
    report = LevelReport(
        "row_groups",
        len(units),
        len(kept),
        units.size,
        kept.size,
        pruned.outcomes if enabled else (),
        None if enabled else "switched off",
    )
    return RowGroups(kept, rows, unmatched, report, contents, pruned.remaining if enabled else described)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is known of the row groups of files, in the order of the files."""

    rows: Sequence[Sequence[int]]
    sizes: Numbers
    metadata: Mapping[str, pa.Array]
    contents: Sequence[pa.Buffer | None]
    lacking: Mapping[FieldPath, npt.NDArray[np.bool_]] = field(default_factory=dict)
    """For columns that have values where files lack them: which of the files do."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a scan asks of files."""

    storage: Storage
    names: ColumnMapping | None
    tested: list[Column]
    mentioned: list[Column]
    needed: tuple[Path, ...]
    keep_contents: bool

    def read(self, files: pa.Table) -> _Facts:
        """The facts, from footers."""
        footers, contents = _load_footers(self.storage, files, self.names, keep_contents=self.keep_contents)
        found: dict[FileSchema, _Columns] = {}
        for path, footer in zip(files["path"], footers, strict=True):
            # The files of a table mostly share one schema.
            if footer.schema not in found:
                place = self.storage.place(path.as_py())
                check_compatible_types(footer.schema.arrow, self.mentioned, place, exact=footer.schema.is_renamed)
                found[footer.schema] = _find_columns(footer.schema, self.tested, self.needed)
        sizes = [size for footer in footers for size in get_compressed_sizes(footer, found[footer.schema].needed)]
        alike = group_similar_footers(footers)
        metadata = _concatenated(
            [found[each[0].schema].describe(each) for each in alike],
            [sum(footer.metadata.num_row_groups for footer in each) for each in alike],
        )
        lacking = {
            path: np.array([footer.schema.find(path) is None for footer in footers], bool)
            for path in _known_otherwise(files)
        }
        rows = [row_counts(footer) for footer in footers]
        _check_counts(self.storage, files, rows)
        return _Facts(rows, np.array(sizes, np.int64), metadata, contents, lacking)

    def complete(self, noted: IndexedRowGroups, files: pa.Table) -> _Facts:
        """The facts that are noted, and those of the other files from their footers."""
        known, missing = np.flatnonzero(noted.is_indexed), np.flatnonzero(~noted.is_indexed)
        nothing: list[pa.Buffer | None] = [None] * files.num_rows
        if not len(missing):
            return _Facts(noted.rows, noted.sizes, noted.metadata, nothing)
        read = self.read(files.take(pa.array(missing)))
        counts = [np.array([len(each) for each in rows], np.int64) for rows in (noted.rows, read.rows)]
        file_of_unit = np.concatenate([np.repeat(known, counts[0]), np.repeat(missing, counts[1])])
        order = np.argsort(file_of_unit, kind="stable")
        metadata = _concatenated([dict(noted.metadata), dict(read.metadata)], [int(each.sum()) for each in counts])
        rows: list[Sequence[int]] = [()] * files.num_rows
        for file, own in zip((*known, *missing), (*noted.rows, *read.rows), strict=True):
            rows[file] = own
        contents = nothing
        for file, content in zip(missing.tolist(), read.contents, strict=True):
            contents[file] = content
        lacking = {name: np.zeros(files.num_rows, bool) for name in read.lacking}
        for name, own_lacking in read.lacking.items():
            lacking[name][missing] = own_lacking
        return _Facts(
            rows,
            np.concatenate([noted.sizes, read.sizes])[order],
            {name: array.take(pa.array(order)) for name, array in metadata.items()},
            contents,
            lacking,
        )


def is_parquet(files: pa.Table) -> npt.NDArray[np.bool_]:
    """Which files are, of a table that has others too."""
    return np.asarray(pc.equal(files[FILE_FORMAT], PARQUET).combine_chunks())


def _not_parquet(storage: Storage, files: pa.Table) -> IndexedRowGroups | None:
    """Files that have no footer: each is one row group of which nothing is known; None where there are none."""
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


def _check_counts(storage: Storage, files: pa.Table, rows: Sequence[Sequence[int]]) -> None:
    """An error where the metadata of a table says another number of rows than a file: counts are answered by it."""
    if not {FILE_FORMAT, "num_records"} <= set(files.column_names):
        return
    told = files["num_records"].combine_chunks()
    is_other = pc.fill_null(pc.not_equal(told, pa.array([sum(each) for each in rows], told.type)), False)
    if pc.any(is_other, min_count=0).as_py():
        first = is_other.index(True).as_py()
        place = storage.place(files["path"][first].as_py())
        raise make_row_count_error(place, sum(rows[first]), told[first].as_py())


def _known_otherwise(files: pa.Table) -> dict[FieldPath, str]:
    """The columns that have values in files that lack them, and what the listing calls them."""
    names = files.schema.field(IDENTITY_VALUES).type.names if IDENTITY_VALUES in files.column_names else []
    keys = {name: parse_absent_column_name(name) for name in names}
    return {(key,) if isinstance(key, str) else key: name for name, key in keys.items()}


def _where_lacking(files: pa.Table, facts: _Facts, columns: Sequence[Column], units: Units) -> dict[str, pa.Array]:
    """The metadata of columns, with the values that they are known to have in files that lack them."""
    found: dict[str, pa.Array] = {}
    row_count = pa.array(units.row_count)
    names = _known_otherwise(files)
    for column in (column for column in columns if column.path in facts.lacking):
        given = files[IDENTITY_VALUES].combine_chunks().field(names[column.path])
        is_constant = pa.array((facts.lacking[column.path] & np.asarray(given.is_valid()))[units.file])
        values = given.field("value").take(pa.array(units.file))
        constant = make_constant_bounds(column, values, row_count)
        if len(column.path) > 1:
            # Where a struct is NULL, so is what is inside, whatever the others are.
            constant = _where_not_null(constant, column, values)
        for name in (metadata_name(kind, column.path) for kind in KINDS):
            both = [metadata[name] for metadata in (constant, facts.metadata) if name in metadata]
            if both:
                nothing = pa.nulls(len(units), both[0].type)
                found[name] = pc.if_else(is_constant, constant.get(name, nothing), facts.metadata.get(name, nothing))
    return found


def _where_not_null(constant: dict[str, pa.Array], column: Column, values: pa.Array) -> dict[str, pa.Array]:
    """The metadata of a value that rows have, or else NULL."""
    found = dict(constant)
    unknown = pa.scalar(None, types.LONG)
    nulls, nans = (metadata_name(kind, column.path) for kind in ("null_count", "nan_count"))
    found[nulls] = pc.if_else(values.is_null(), found[nulls], unknown)
    if nans in found:
        found[nans] = pc.if_else(pc.equal(found[nans], 0), found[nans], unknown)
    return found


def _load_footers(
    storage: Storage, files: pa.Table, names: ColumnMapping | None, *, keep_contents: bool
) -> tuple[list[Footer], list[pa.Buffer | None]]:
    wanted = zip(*(files[name].to_pylist() for name in ("path", "size", "modified_ns")), strict=True)

    def load(file: tuple[str, int, int | None]) -> tuple[Footer, pa.Buffer | None]:
        footer, content = load_footer(storage, *file, names)
        return footer, content if keep_contents else None

    loaded = run_in_threads(load, wanted, storage.threads, patience=LOCAL_PATIENCE if storage.is_local else 0.0)
    return [footer for footer, _ in loaded], [content for _, content in loaded]


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where the files of one schema have the columns of a scan."""

    tested: list[tuple[Column, FieldPath]]
    """Columns that the filter is about, with the path in the file (their own where the file has none)."""
    needed: list[int]
    """The leaves to read."""

    def describe(self, footers: Sequence[Footer]) -> dict[str, pa.Array]:
        found: dict[str, pa.Array] = {}
        for column, path in self.tested:
            found |= collect_column_metadata(footers, column, path)
        return found


def _find_columns(schema: FileSchema, tested: list[Column], needed: tuple[Path, ...]) -> _Columns:
    paths = [found for wanted in needed if (found := schema.find(wanted)) is not None]
    return _Columns(
        [(column, schema.find(column.path) or column.path) for column in tested], schema.find_leaves_at(paths)
    )


def _concatenated(batches: list[dict[str, pa.Array]], counts: list[int]) -> dict[str, pa.Array]:
    """Files may lack columns or statistics: what one of them does not have is unknown there."""
    if len(batches) == 1:
        return batches[0]
    data_types = {name: array.type for batch in batches for name, array in batch.items()}
    return {
        name: pa.concat_arrays(
            [
                batch[name] if name in batch else pa.nulls(count, data_type)
                for batch, count in zip(batches, counts, strict=True)
            ]
        )
        for name, data_type in data_types.items()
    }


# --- Rows that were deleted without rewriting their file: taken out of what is read, by their positions in the file


def without_deleted(row_groups: RowGroups, deleted: Mapping[int, BitMap64], places: Mapping[int, str]) -> RowGroups:
    """The row groups without the deleted rows of files, which are given by the indices of the files.

    What was known of all rows of a row group holds for those that are left. `places` name the files in messages.
    """
    kept = {
        file: kept_rows(rows, row_groups.group_rows[file], places[file]) for file, rows in deleted.items() if len(rows)
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
        unmatched=row_groups.unmatched[is_left],
        selections={key: selection for key, selection in selections.items() if not selection.is_empty},
    )


def kept_rows(deleted: BitMap64, row_group_rows: Sequence[int], place: str) -> RowSelection:
    """The rows of a file that are not deleted, of all its row groups, which have these numbers of rows."""
    total = int(np.sum(row_group_rows, dtype=np.int64))
    # Looked at first: a few bytes can claim billions of rows.
    if len(deleted) and deleted.max() >= total:
        raise CorruptFile(
            f"row {deleted.max()} of '{place}' is said to be deleted, and the file has {format_count(total, 'row')}: "
            "one of the two belongs to another file"
        )
    return ~RowSelection.from_roaring(deleted, total)
