"""Pruning of one file by its metadata: which row groups, and which of their rows, may satisfy a predicate.

    request = PruneRequest("orders.parquet").with_predicate("id BETWEEN 5 AND 9").enable_page_index()
    result = request.prune()
    result.row_groups, result.row_selection

No pruned row matches. Missing metadata (statistics, page indexes, Bloom filters) prunes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tamis.errors import (
    InvalidArgument,
    TableNotFound,
    UnknownColumn,
    add_article,
    suggest_arguments,
    suggest_method_arguments,
)
from tamis.expr.nodes import TRUE
from tamis.io.listing import find_file
from tamis.io.storage import open_storage
from tamis.parquet.footer.footer import MAGIC, Footer, footer_from_bytes
from tamis.parquet.footer.leaves import find_leaf_indices
from tamis.parquet.footer.matching import check_compatible_types, find_path
from tamis.parquet.footer.statistics import read_row_group_metadata, sum_compressed_sizes
from tamis.parquet.indexes.page_pruning import Filter, Remaining, RowRangePruner
from tamis.parquet.indexes.page_units import read_page_indexes
from tamis.parquet.reading.assemble import can_assemble
from tamis.parquet.reading.page_reader import assemble_columns, decode_rows, fetch_pages
from tamis.parquet.reading.parquet_file import ParquetFile
from tamis.parquet.selection.row_selection import RowSelection
from tamis.skipping.metrics import LevelReport
from tamis.skipping.predicate import Predicate, make_predicate
from tamis.skipping.prune import prune
from tamis.tuning import Tuning, check_tuning
from tamis.types import replace_view_types

if TYPE_CHECKING:
    from pyroaring import BitMap

Given: TypeAlias = str | os.PathLike[str] | pq.FileMetaData


@dataclass(frozen=True, slots=True)
class UnusedPredicate:
    """A conjunct that metadata cannot answer, and why."""

    predicate: str
    reason: str

    def __str__(self) -> str:
        return f"{self.predicate}: {self.reason}"


@dataclass(frozen=True, slots=True)
class CompileResult:
    """The conjuncts of a predicate, and those that metadata cannot answer."""

    conjuncts: tuple[str, ...]
    errors: tuple[UnusedPredicate, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PruneResult:
    """The row groups and rows of a file that may match."""

    row_groups: tuple[int, ...]
    row_selection: RowSelection
    """The rows that may match, counted over the remaining row groups."""
    roaring_bitmap: BitMap | None
    """The positions of those rows in the file, if `emit_roaring` requested them."""
    compile_result: CompileResult
    required_columns: tuple[str, ...]
    """The columns of the predicate."""
    levels: tuple[LevelReport, ...]


@suggest_method_arguments("PruneRequest")
@dataclass(frozen=True)
class PruneRequest:
    """A file, a predicate and the levels to apply; each method returns a new request.

    The file is a path, a URI, or metadata read by pyarrow; the latter supports only row group pruning. `schema` is the
    table's schema, if it differs from the file's.
    """

    file: Given
    schema: pa.Schema | None = None
    predicate: object = None
    levels: frozenset[str] = frozenset()
    with_roaring: bool = False
    storage_options: Mapping[str, Any] | None = None
    tuning: Tuning | None = None

    def with_predicate(self, predicate: object) -> PruneRequest:
        """Set the predicate: SQL text, an expression built with `tamis.col`, or one of pyarrow or pyiceberg."""
        return replace(self, predicate=predicate)

    def enable_page_index(self, enabled: bool = True) -> PruneRequest:
        return self._with_level("pages", enabled)

    def enable_bloom_filter(self, enabled: bool = True) -> PruneRequest:
        return self._with_level("bloom", enabled)

    def enable_dictionary(self, enabled: bool = True) -> PruneRequest:
        return self._with_level("dictionary", enabled)

    def emit_roaring(self, enabled: bool = True) -> PruneRequest:
        return replace(self, with_roaring=enabled)

    def prune(self) -> PruneResult:
        source = _open(self.file, self.storage_options, self.tuning)
        schema = self.schema if self.schema is not None else _read_schema(source)
        return Pruner(schema, self.predicate, self.levels, self.with_roaring)._prune(source)

    def _with_level(self, level: str, enabled: bool) -> PruneRequest:
        return replace(self, levels=self.levels | {level} if enabled else self.levels - {level})


@suggest_method_arguments("Pruner")
@dataclass(frozen=True)
class Pruner:
    """A predicate bound once, for many files of one schema. It is thread-safe."""

    schema: pa.Schema
    predicate: object = None
    levels: frozenset[str] = frozenset(("bloom", "pages", "dictionary"))
    with_roaring: bool = False
    tuning: Tuning | None = None

    @cached_property
    def bound(self) -> Predicate:
        bound = make_predicate(self.predicate, self.schema, "the file")
        if bound.partition_filter is not None:
            raise InvalidArgument("a partition filter cannot prune a single file: give a predicate on its columns")
        return bound

    @cached_property
    def compile_result(self) -> CompileResult:
        conjuncts = self.bound.conjuncts
        unused = tuple(UnusedPredicate(each.text, each.reason) for each in conjuncts if each.reason is not None)
        return CompileResult(tuple(each.text for each in conjuncts), unused)

    @cached_property
    def _filter(self) -> Filter:
        return Filter(self.bound.expr, self.bound.conjuncts, self.bound.handler)

    def prune(self, file: Given, storage_options: Mapping[str, Any] | None = None) -> PruneResult:
        return self._prune(_open(file, storage_options, self.tuning))

    def _prune(self, source: ParquetFile | Footer) -> PruneResult:
        footer = source.footer if isinstance(source, ParquetFile) else source
        location = source.location if isinstance(source, ParquetFile) else "the file"
        check_compatible_types(footer.schema.arrow, self.bound.mentioned, location)
        names = {
            column.path: found
            for column in self.bound.columns
            if (found := find_path(footer.schema.arrow, column.path)) is not None
        }
        units = read_row_group_metadata(footer.metadata, self.bound.columns, names=names, location=location)
        remaining, report = _prune_row_groups(units, self.bound)
        reports = [report]
        if isinstance(source, ParquetFile) and self.levels and len(remaining.starts) and self.bound.expr != TRUE:
            with source.open() as opened:
                needed = find_leaf_indices(footer.schema.arrow, list(names.values()))
                sizes = dict(enumerate(sum_compressed_sizes(footer.metadata, needed)))
                narrower = RowRangePruner(source, opened, self._filter, needed, names, sizes)
                remaining, below = narrower.narrow(remaining, self.levels)
            reports += [report for report in below if report.by_predicate]
        rows = [footer.metadata.row_group(group).num_rows for group in range(footer.metadata.num_row_groups)]
        kept = remaining.kept_row_groups
        selection = RowSelection.concat(remaining.selection(group) for group in kept)
        return PruneResult(
            kept,
            selection,
            selection.in_file(kept, rows).to_roaring() if self.with_roaring else None,
            self.compile_result,
            tuple(column.name for column in self.bound.columns),
            tuple(reports),
        )


def _prune_row_groups(units: pa.RecordBatch, predicate: Predicate) -> tuple[Remaining, LevelReport]:
    pruned = prune(units, predicate.conjuncts, handler=predicate.handler)
    groups = np.flatnonzero(np.asarray(pruned.selection)).tolist()
    report = LevelReport("row_groups", units.num_rows, len(groups), by_predicate=pruned.outcomes)
    return Remaining.from_row_groups(groups, pruned.remaining, ~pruned.matched), report


def _open(file: object, storage_options: Mapping[str, Any] | None, tuning: Tuning | None) -> ParquetFile | Footer:
    if isinstance(file, pq.FileMetaData):
        # Serialised and parsed again with validation, because pyarrow's accessors abort the process on damaged
        # statistics.
        written = BytesIO()
        file.write_metadata_file(written)
        return footer_from_bytes(written.getvalue()[len(MAGIC) : -2 * len(MAGIC)], "the metadata")
    if not isinstance(file, (str, os.PathLike)):
        kind = add_article(type(file).__name__)
        raise InvalidArgument(f"file must be a path, a URI or pyarrow's FileMetaData, found {kind}")
    return open_file(file, storage_options, tuning)


def _read_schema(source: ParquetFile | Footer) -> pa.Schema:
    arrow = source.schema.arrow if isinstance(source, Footer) else source.schema
    return pa.schema([field.with_type(replace_view_types(field.type)) for field in arrow])


# --- Reads selected rows of one file, for example the result of pruning, without a scan -------------------------------


def open_file(
    file: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None, tuning: Tuning | None = None
) -> ParquetFile:
    """Open the Parquet file at a path or URI."""
    storage = open_storage(file, storage_options).with_tuning(check_tuning(tuning))
    found = find_file(storage, storage.root)
    if found is None:
        raise TableNotFound(f"no file at '{storage.uri}': give the path of one Parquet file")
    return ParquetFile.load(storage, found.path, found.size, found.modified_ns)


@suggest_arguments("tamis.parquet.read_selection")
def read_selection(
    file: str | os.PathLike[str],
    row_groups: Sequence[int],
    selection: RowSelection,
    columns: Sequence[str] | None = None,
    *,
    positions: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    tuning: Tuning | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the selected rows in batches, in file order, reading only the pages that hold them.

    `selection` counts over the given row groups, as in a `PruneResult`. `positions` is the name of an extra column with
    each row's position in the file, counted from 0, as in positional deletes.
    """
    source = open_file(file, storage_options, tuning)
    schema = source.schema
    wanted = schema.names if columns is None else list(columns)
    repeated = [name for name in wanted if schema.names.count(name) > 1]
    if repeated:
        raise InvalidArgument(
            f"'{source.location}' has several columns {repeated[0]!r}: the name is ambiguous, leave it out"
        )
    unknown = [name for name in wanted if name not in schema.names]
    if unknown:
        raise UnknownColumn(f"no column {unknown[0]!r} in '{source.location}'. Columns: {', '.join(schema.names)}")
    if positions is not None and positions in wanted:
        raise InvalidArgument(f"a column {positions!r} already exists: choose another name for the positions")
    unreadable = [name for name in wanted if not can_assemble(schema.field(name).type)]
    if unreadable:
        kind = schema.field(unreadable[0]).type
        raise InvalidArgument(
            f"column {unreadable[0]!r} is {kind}, which is not supported by the page reader: leave it out"
        )
    _check_selection(selection)
    count = len(source.map.rows)
    beyond = [group for group in row_groups if not 0 <= group < count]
    if beyond:
        raise InvalidArgument(
            f"no row group {beyond[0]} in '{source.location}', which has {count} row groups, counted from 0"
        )
    if not wanted:
        raise InvalidArgument("columns is empty: omit it to read all columns")
    counts = [source.count_rows(group) for group in row_groups]
    if selection.total != sum(counts):
        raise InvalidArgument(
            f"the selection has {selection.total} rows in total, and the row groups have {sum(counts)}"
        )
    return _read_batches(source, list(row_groups), selection.split(counts), wanted, positions)


def _check_selection(selection: object) -> None:
    if not isinstance(selection, RowSelection):
        kind = add_article(type(selection).__name__)
        raise InvalidArgument(f"selection must be a RowSelection, such as RowSelection.all(…), found {kind}")


def _read_batches(
    source: ParquetFile,
    row_groups: list[int],
    selections: list[RowSelection],
    columns: list[str],
    positions: str | None,
) -> Iterator[pa.RecordBatch]:
    leaves = source.footer.schema.find_leaves_at([(name,) for name in columns])
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(source.map.rows)])
    with source.open() as opened:
        for group, selection in zip(row_groups, selections, strict=True):
            if selection.is_empty:
                continue
            locations = read_page_indexes(source, opened, [(group, leaf) for leaf in leaves]).locations
            pages = [source.get_leaf_pages(group, leaf, locations[group, leaf]) for leaf in leaves]
            # A chunk without page locations is read and decoded once.
            whole = fetch_pages(opened, [each for each in pages if each.locations is None], selection)
            decoded = decode_rows(whole, source.location, source.created_by)
            done = 0
            for part in selection.iter_parts(source.choose_batch_rows(group, leaves)):
                fetched = fetch_pages(opened, [each for each in pages if each.locations is not None], part)
                found = decode_rows(fetched, source.location, source.created_by)
                found |= {leaf: values.slice(done, part.row_count) for leaf, values in decoded.items()}
                done += part.row_count
                batch = assemble_columns(source.footer.schema.columns, found, source.location)
                arrays = {name: batch.column(name) for name in columns}
                if positions is not None:
                    arrays[positions] = pa.array(starts[group] + part.to_indices(), pa.int64())
                yield pa.record_batch(arrays)
