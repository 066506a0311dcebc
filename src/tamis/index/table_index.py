"""The index as a pruning level: its metadata prunes the files of a listing, by the rules of every other level.

An entry is valid for a file only if the file still has the recorded size and modification time. A file without a valid
entry is kept, and so is a file whose column types do not match the table's: see `_fits`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile, StorageError, UnsupportedFeature, format_count
from tamis.expr.nodes import Column
from tamis.formats.source import TABLE_FORMATS, FileListing, IndexedRowGroups, TableFormat
from tamis.index.collect import GROUP, MAX_BOUND_LENGTH, SIZES, find_canonical_leaf, hash_distinct_values
from tamis.index.entries import Entries, Rows, make_relative
from tamis.index.spec import IndexedColumn, list_metadata_types
from tamis.index.store import BLOOM, Current, IndexStore
from tamis.io.listing import FileEntry
from tamis.io.storage import Storage
from tamis.parquet.footer.leaves import FieldPath, find_leaf_indices
from tamis.parquet.footer.matching import check_compatible_types, find_path
from tamis.parquet.indexes.bloom_filter import Array, BloomFilter, might_contain_any
from tamis.skipping.membership import Question, QuestionedPredicate, collect_questions, find_skippable_units
from tamis.skipping.metadata import ROW_COUNT, make_partition_bounds, metadata_name
from tamis.skipping.metrics import LevelReport
from tamis.skipping.predicate import Predicate
from tamis.skipping.prune import ConjunctOutcome, prune

logger = logging.getLogger("tamis")

Bits = npt.NDArray[np.bool_]
KeyOf = Callable[[FieldPath], FieldPath]


class TableIndex:
    """The index of a table, read lazily. It is thread-safe.

    A damaged index, or one of a later version, is ignored with a warning: the rows are the same without it. If the user
    gave its location (`is_required`), that is an error.
    """

    def __init__(
        self, store: IndexStore, table: Storage, *, table_id: str | None = None, is_required: bool = False
    ) -> None:
        self.store = store
        self._table = table
        self._table_id = table_id
        self._is_required = is_required
        self._lock = Lock()
        self._read: tuple[Current | None] | None = None
        self._entries: Entries | None = None

    def get_current(self) -> Current | None:
        """Return the description of the index; None if there is none, or if it is unusable."""
        with self._lock:
            if self._read is None:
                self._read = (self._read_current(),)
            return self._read[0]

    def _read_current(self) -> Current | None:
        try:
            found = self.store.read_current()
        except (CorruptFile, StorageError, UnsupportedFeature) as error:
            if self._is_required:
                raise
            logger.warning("the index is ignored: %s", error)
            return None
        if found is not None and found.spec.table_id != self._table_id:
            text = f"the index at '{self.store.location}' belongs to another table at this location: build it again"
            if self._is_required:
                raise CorruptFile(text)
            logger.warning("the index is ignored: %s", text)
            return None
        return found

    def _load(self) -> tuple[Current, Entries] | None:
        current = self.get_current()
        if current is None:
            return None
        with self._lock:
            if self._entries is None:
                self._entries = Entries(self.store, current.parts)
            return current, self._entries

    def find_schema(self, file: FileEntry) -> pa.Schema | None:
        current = self.get_current()
        sample = None if current is None else current.sample
        if sample is None or file.modified_ns is None:
            return None
        own = replace(file, path=make_relative(pa.array([file.path]), self._table.root)[0].as_py())
        return sample.schema if own == sample.file else None

    def has_entries(self, files: pa.Table) -> npt.NDArray[np.bool_]:
        return self.find_entries(files) >= 0

    def find_entries(self, files: pa.Table) -> Rows:
        """Return the valid entry of each file of a listing; -1 for none."""
        loaded = self._load()
        if loaded is None:
            return np.full(files.num_rows, -1, np.int64)
        return loaded[1].find_rows(files, self._table.root)

    # --- Narrowing ----------------------------------------------------------------------------------------------

    def prune_listing(
        self,
        listing: FileListing,
        predicate: Predicate,
        levels: Collection[str],
        *,
        with_rows: bool = False,
        key_of: KeyOf | None = None,
    ) -> FileListing:
        own = set(listing.partitions.column_names)
        asks_data = any(column.path[0] not in own for column in (*predicate.columns, *predicate.mentioned))
        if "files" not in levels or not listing.files.num_rows or not (asks_data or with_rows):
            return listing
        loaded = self._load()
        if loaded is None:
            return listing
        return _ListingPruner(*loaded, listing, predicate, key_of, self.find_entries(listing.files)).make_listing(
            with_rows=with_rows, with_filters="bloom" in levels
        )

    def read_row_groups(
        self, files: pa.Table, columns: Sequence[Column], needed: Sequence[FieldPath], mentioned: Sequence[Column]
    ) -> IndexedRowGroups | None:
        loaded = self._load()
        if loaded is None or not _has_schemas_of_files(loaded[0]):
            return None
        known = {column: _find_indexed_column(column, loaded[0], None) for column in columns}
        indexed = {column: found for column, found in known.items() if found is not None}
        if len(indexed) < len(known):
            return None
        return read_indexed_row_groups(loaded[1], self.find_entries(files), indexed, needed, mentioned)


class _ListingPruner:
    def __init__(
        self,
        current: Current,
        entries: Entries,
        listing: FileListing,
        predicate: Predicate,
        key_of: KeyOf | None,
        rows: Rows,
    ) -> None:
        self._entries = entries
        self._listing = listing
        self._predicate = predicate
        partitions = set(listing.partitions.column_names)
        self._columns = {
            column: indexed
            for column in predicate.columns
            if column.path[0] not in partitions
            and (indexed := _find_indexed_column(column, current, key_of)) is not None
        }
        is_known = rows >= 0
        if _has_schemas_of_files(current) and is_known.any():
            # The filter is bound to the table's types, so that its result for a file of incompatible types may be
            # wrong. Such a file is kept: opening it raises the error.
            mentioned = [column for column in predicate.mentioned if column.path[0] not in partitions]
            numbers, schemas = entries.read_schemas()
            fits = np.array([_fits(schema, mentioned) for schema in schemas], np.bool_)
            is_known[is_known] = fits[numbers[rows[is_known]]]
        self._known = np.flatnonzero(is_known)
        self._rows = rows[self._known]

    def make_listing(self, *, with_rows: bool, with_filters: bool) -> FileListing:
        units = self._make_units()
        pruned = prune(units, self._predicate.conjuncts, handler=self._predicate.handler)
        left = np.asarray(pruned.selection)
        whole = pruned.matched
        outcomes = pruned.outcomes
        if with_filters and left.any() and not whole.all():
            by_filters, more = self._prune_by_bloom_filters(units.filter(pruned.selection), self._rows[left])
            whole = whole[by_filters]
            left[np.flatnonzero(left)] = by_filters
            outcomes = _add_outcomes(outcomes, more)
        keep = np.ones(self._listing.files.num_rows, np.bool_)
        keep[self._known] = left
        listing = self._listing.take(np.flatnonzero(keep)) if not keep.all() else self._listing
        matched = np.zeros((len(keep), whole.shape[1]), np.bool_)
        matched[self._known[left]] = whole
        matched = matched[keep]
        if listing.matched is not None:
            matched |= listing.matched
        rows = self._add_row_counts(listing, keep) if with_rows else listing.rows
        levels = (*listing.levels[:-1], self._make_report(listing.levels[-1], listing, outcomes))
        return replace(listing, levels=levels, matched=matched, rows=rows)

    def _make_units(self) -> pa.RecordBatch:
        wanted = {
            indexed.metadata_name(kind): data_type
            for indexed in self._columns.values()
            for kind, data_type in list_metadata_types(indexed.type).items()
        }
        self._entries.load(wanted)
        indices = pa.array(self._rows)
        row_count = self._entries.column(ROW_COUNT.name).take(indices)
        units = {ROW_COUNT.name: row_count}
        for column, indexed in self._columns.items():
            for kind in list_metadata_types(indexed.type):
                units[metadata_name(kind, column.path)] = self._entries.column(indexed.metadata_name(kind)).take(
                    indices
                )
        asked = {column.path[0] for column in self._predicate.columns}
        units |= make_partition_bounds(self._listing.partitions, asked, row_count, pa.array(self._known))
        return pa.record_batch(units)

    # --- Bloom filters ------------------------------------------------------------------------------------------

    def _prune_by_bloom_filters(self, units: pa.RecordBatch, rows: Rows) -> tuple[Bits, tuple[ConjunctOutcome, ...]]:
        """Return which files the Bloom filters keep, and the outcome of each conjunct."""
        everything = np.ones(len(rows), np.bool_)
        if not any(indexed.has_bloom for indexed in self._columns.values()):
            return everything, ()
        questioned, handler = collect_questions(self._predicate.expr), self._predicate.handler
        hashed = self._hash_questions(questioned)
        names = [question.true_name for question in hashed]
        asked = np.zeros(len(rows), np.bool_)
        for conjunct in questioned.conjuncts:
            asked |= np.asarray(find_skippable_units(units, conjunct, names, handler=handler))
        if not names or not asked.any():
            return everything, ()
        answers = {
            question.true_name: self._look_up(self._columns[question.column], hashes, rows, asked)
            for question, hashes in hashed.items()
        }
        known = {name: units.column(name) for name in units.schema.names}
        both = pa.record_batch(known | answers)
        pruned = prune(both, questioned.conjuncts, handler=handler, with_matches=False)
        return np.asarray(pruned.selection), pruned.outcomes

    def _hash_questions(self, questioned: QuestionedPredicate) -> dict[Question, Array]:
        """Return the questions that filters can answer, with the hashes to look up."""
        found = {}
        for question in questioned.questions:
            indexed = self._columns.get(question.column)
            leaf = None if indexed is None or not indexed.has_bloom else find_canonical_leaf(indexed.type)
            if question.items is None or leaf is None:
                continue
            hashes = hash_distinct_values(pc.unique(question.values.drop_null()), leaf)
            if hashes is not None:
                found[question] = hashes
        return found

    def _look_up(self, indexed: IndexedColumn, hashes: Array, rows: Rows, asked: Bits) -> pa.Array:
        filters = self._entries.read_filters(indexed.metadata_name(BLOOM), rows[asked])
        given = [None if each is None else BloomFilter.from_bytes(each) for each in filters]
        has_filter = np.array([each is not None for each in given], np.bool_)
        found = np.ones(len(given), np.bool_)
        found[has_filter] = might_contain_any([each for each in given if each is not None], hashes)
        may_be_there = np.ones(len(rows), np.bool_)
        is_unknown = np.ones(len(rows), np.bool_)
        may_be_there[asked] = found
        is_unknown[asked] = ~has_filter
        return pa.array(may_be_there, mask=is_unknown)

    # --- Result -------------------------------------------------------------------------------------------------

    def _add_row_counts(self, listing: FileListing, keep: Bits) -> pa.Array:
        entries = np.full(len(keep), -1, np.int64)
        entries[self._known] = self._rows
        rows = entries[keep]
        indices = pa.array(np.maximum(rows, 0), mask=rows < 0)
        counts = self._entries.column(ROW_COUNT.name).take(indices)
        return counts if listing.rows is None else pc.coalesce(listing.rows, counts)

    def _make_report(
        self, before: LevelReport, listing: FileListing, outcomes: tuple[ConjunctOutcome, ...]
    ) -> LevelReport:
        total = self._listing.files.num_rows
        missing = total - len(self._known)
        note = f"index of {f'{total - missing:,} of ' if missing else ''}{format_count(total, 'file')}"
        rows = None if listing.rows is None or listing.rows.null_count else pc.sum(listing.rows).as_py() or 0
        return replace(
            before,
            kept=listing.files.num_rows,
            bytes_kept=None if before.bytes_kept is None else pc.sum(listing.files["size"]).as_py() or 0,
            by_predicate=_add_outcomes(before.by_predicate, outcomes) if len(self._known) else before.by_predicate,
            note=note if before.note is None else f"{before.note}; {note}",
            rows_kept=None if before.rows_kept is None else rows,
        )


def _add_outcomes(
    before: tuple[ConjunctOutcome, ...], after: tuple[ConjunctOutcome, ...]
) -> tuple[ConjunctOutcome, ...]:
    """Add the outcomes of two passes over files. The second pass saw only the files that the first one kept."""
    if not before or not after:
        return before or after
    # After the conjuncts `before` may have a partition filter.
    merged = (
        ConjunctOutcome(
            one.predicate,
            one.skipped + other.skipped,
            None if one.skipped or other.skipped or one.unused_because is None else other.unused_because,
        )
        for one, other in zip(before, after, strict=False)
    )
    return (*merged, *before[len(after) :])


def _has_schemas_of_files(current: Current) -> bool:
    return TABLE_FORMATS.get(current.table_format, TableFormat()).has_schemas_of_files


def _find_indexed_column(column: Column, current: Current, key_of: KeyOf | None) -> IndexedColumn | None:
    """Return the indexed column; None if it is not indexed, or in another type."""
    try:
        key = column.path if key_of is None else key_of(column.path)
    except KeyError:
        return None
    found = current.spec.by_key.get(key)
    return found if found is not None and found.type == column.type else None


def _fits(schema: pa.Schema | None, mentioned: Sequence[Column]) -> bool:
    if schema is None:
        return False
    try:
        check_compatible_types(schema, mentioned, "")
    except CorruptFile:
        return False
    return True


# --- Indexed row groups, instead of footers ---------------------------------------------------------------------------
#
# The metadata is the same as in footers, so that plans are the same. A file is planned by its footer if the index lacks
# something: a column, the full length of truncated bounds, or the sizes of very many columns.


def read_indexed_row_groups(
    entries: Entries,
    rows: Rows,
    columns: dict[Column, IndexedColumn],
    needed: Sequence[FieldPath],
    mentioned: Sequence[Column],
) -> IndexedRowGroups | None:
    """Return the row groups of files from their entries (-1: none): metadata of `columns`, sizes of `needed`."""
    is_indexed = rows >= 0
    if not is_indexed.any():
        return None
    numbers, schemas = entries.read_schemas()
    leaves = [_find_leaves(schema, needed, mentioned) for schema in schemas]
    is_indexed[is_indexed] = np.array([each is not None for each in leaves], np.bool_)[numbers[rows[is_indexed]]]
    row_counts = entries.read_lists(f"{GROUP}{ROW_COUNT.name}", types.LONG, rows[is_indexed])
    sizes = entries.read_lists(SIZES, types.LONG, rows[is_indexed])
    metadata_lists = {
        name: entries.read_lists(name, data_type, rows[is_indexed])
        for indexed in columns.values()
        for kind, data_type in list_metadata_types(indexed.type).items()
        for name in [f"{GROUP}{indexed.metadata_name(kind)}"]
    }
    is_whole = np.asarray(pc.and_(row_counts.is_valid(), sizes.is_valid()))
    for lists in metadata_lists.values():
        # Every kind of metadata must cover every row group.
        covers = pc.equal(pc.list_value_length(lists), pc.list_value_length(row_counts))
        is_whole = is_whole & np.asarray(pc.fill_null(covers, False))
    is_whole = is_whole & _are_uncut(metadata_lists, columns, len(is_whole))
    if not is_whole.all():
        is_indexed[np.flatnonzero(is_indexed)] = is_whole
        kept = pa.array(is_whole)
        row_counts, sizes = row_counts.filter(kept), sizes.filter(kept)
        metadata_lists = {name: lists.filter(kept) for name, lists in metadata_lists.items()}
    found = _sum_sizes(sizes, leaves, numbers[rows[is_indexed]], row_counts)
    if found is None:
        return None
    metadata = {
        metadata_name(kind, column.path): metadata_lists[f"{GROUP}{indexed.metadata_name(kind)}"].flatten()
        for column, indexed in columns.items()
        for kind in list_metadata_types(indexed.type)
    }
    return IndexedRowGroups(is_indexed, row_counts.to_pylist(), found, metadata)


def _find_leaves(
    schema: pa.Schema | None, needed: Sequence[FieldPath], mentioned: Sequence[Column]
) -> tuple[int, list[int]] | None:
    """Return the number of leaf columns of a schema, and the ones to read; None if opening the file must raise."""
    if schema is None:
        return None
    try:
        check_compatible_types(schema, mentioned, "")
        paths = [found for path in needed if (found := find_path(schema, path)) is not None]
    except CorruptFile:
        return None
    everything = find_leaf_indices(schema, [(name,) for name in schema.names])
    return len(everything), find_leaf_indices(schema, paths)


def _are_uncut(metadata_lists: dict[str, pa.Array], columns: dict[Column, IndexedColumn], count: int) -> Bits:
    """Return for which of `count` files no bound may be truncated: their footers have the full bounds."""
    found = np.ones(count, np.bool_)
    for indexed in columns.values():
        if not (types.is_text(indexed.type) or types.is_bytes(indexed.type)):
            continue
        for kind in ("lower", "upper"):
            lists = metadata_lists[f"{GROUP}{indexed.metadata_name(kind)}"]
            values = lists.flatten()
            length = pc.utf8_length(values) if types.is_text(indexed.type) else pc.binary_length(values)
            is_long = np.asarray(pc.fill_null(pc.greater_equal(length, MAX_BOUND_LENGTH), False))
            owners = np.asarray(pc.list_parent_indices(lists))
            found[owners[is_long]] = False
    return found


def _sum_sizes(
    sizes: pa.Array, leaves: Sequence[tuple[int, list[int]] | None], schema_of_file: Rows, row_counts: pa.Array
) -> npt.NDArray[np.int64] | None:
    """Return the bytes to read from every row group; None if the recorded sizes are inconsistent."""
    groups = np.asarray(pc.list_value_length(row_counts), np.int64)
    lengths = np.asarray(pc.list_value_length(sizes), np.int64)
    widths = np.array([0 if each is None else each[0] for each in leaves], np.int64)[schema_of_file]
    if not np.array_equal(groups * widths, lengths):
        return None
    values = np.asarray(sizes.flatten(), np.int64)
    file_of_group = np.repeat(np.arange(len(groups)), groups)
    number_in_file = np.arange(len(file_of_group)) - np.repeat(np.cumsum(groups) - groups, groups)
    first = (np.cumsum(lengths) - lengths)[file_of_group] + widths[file_of_group] * number_in_file
    schema_of_group = schema_of_file[file_of_group]
    found = np.zeros(len(file_of_group), np.int64)
    for number in np.unique(schema_of_file).tolist():
        own = np.flatnonzero(schema_of_group == number)
        known = leaves[number]
        if known is not None and len(known[1]):
            found[own] = values[first[own][:, None] + np.array(known[1])].sum(axis=1)
    return found
