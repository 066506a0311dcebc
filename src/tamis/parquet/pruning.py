"""Pruning of one file by its metadata: which row groups, and which of their rows, may satisfy a predicate.

    request = PruneRequest("orders.parquet").with_predicate("id BETWEEN 5 AND 9").enable_page_index()
    result = request.prune()
    result.row_groups, result.row_selection

No pruned row matches. Missing metadata (statistics, page indexes, Bloom filters) prunes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tamis.errors import InvalidArgument, add_article
from tamis.expr.nodes import TRUE
from tamis.parquet.file import ParquetFile
from tamis.parquet.footer import MAGIC, Footer, footer_from_bytes
from tamis.parquet.leaves import find_leaf_indices
from tamis.parquet.matching import check_compatible_types, find_path
from tamis.parquet.narrow import Filter, RowRangePruner
from tamis.parquet.remaining import Remaining
from tamis.parquet.rows import open_file
from tamis.parquet.selection import RowSelection
from tamis.parquet.statistics import read_row_group_metadata, sum_compressed_sizes
from tamis.skipping.account import LevelReport
from tamis.skipping.predicate import Predicate, make_predicate
from tamis.skipping.prune import prune
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
        source = _open(self.file, self.storage_options)
        schema = self.schema if self.schema is not None else _read_schema(source)
        return Pruner(schema, self.predicate, self.levels, self.with_roaring)._prune(source)

    def _with_level(self, level: str, enabled: bool) -> PruneRequest:
        return replace(self, levels=self.levels | {level} if enabled else self.levels - {level})


@dataclass(frozen=True)
class Pruner:
    """A predicate bound once, for many files of one schema. It is thread-safe."""

    schema: pa.Schema
    predicate: object = None
    levels: frozenset[str] = frozenset(("bloom", "pages", "dictionary"))
    with_roaring: bool = False

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
        return Filter(self.bound.expr, self.bound.conjuncts)

    def prune(self, file: Given, storage_options: Mapping[str, Any] | None = None) -> PruneResult:
        return self._prune(_open(file, storage_options))

    def _prune(self, source: ParquetFile | Footer) -> PruneResult:
        footer = source.footer if isinstance(source, ParquetFile) else source
        location = source.location if isinstance(source, ParquetFile) else "the file"
        check_compatible_types(footer.schema.arrow, self.bound.mentioned, location)
        names = {
            column.path: found
            for column in self.bound.columns
            if (found := find_path(footer.schema.arrow, column.path)) is not None
        }
        units = read_row_group_metadata(footer.metadata, self.bound.columns, names=names, place=location)
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
    pruned = prune(units, predicate.conjuncts)
    groups = np.flatnonzero(np.asarray(pruned.selection)).tolist()
    unmatched = np.column_stack(
        [np.zeros((len(groups), 0), bool), *(~np.asarray(each) for each in pruned.fully_matched)]
    )
    report = LevelReport("row_groups", units.num_rows, len(groups), by_predicate=pruned.outcomes)
    return Remaining.from_row_groups(groups, units.filter(pruned.selection), unmatched), report


def _open(file: object, storage_options: Mapping[str, Any] | None) -> ParquetFile | Footer:
    if isinstance(file, pq.FileMetaData):
        # Serialised and parsed again with validation, because pyarrow's accessors abort the process on damaged
        # statistics.
        written = BytesIO()
        file.write_metadata_file(written)
        return footer_from_bytes(written.getvalue()[len(MAGIC) : -2 * len(MAGIC)], "the metadata")
    if not isinstance(file, (str, os.PathLike)):
        kind = add_article(type(file).__name__)
        raise InvalidArgument(f"file must be a path, a URI or pyarrow's FileMetaData, not {kind}")
    return open_file(file, storage_options)


def _read_schema(source: ParquetFile | Footer) -> pa.Schema:
    arrow = source.schema.arrow if isinstance(source, Footer) else source.schema
    return pa.schema([field.with_type(replace_view_types(field.type)) for field in arrow])
