"""Pruning of one file by its metadata: which row groups, and which of their rows, may satisfy a predicate.

    request = PruneRequest("orders.parquet").with_predicate("id BETWEEN 5 AND 9")
    result = request.prune()
    result.row_groups, result.row_selection

No pruned row matches. Missing metadata (statistics, page indexes, Bloom filters) prunes nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from enum import Enum
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
    check_flags,
    make_argument_error,
    suggest_arguments,
    suggest_method_arguments,
)
from tamis.expr.interop.from_any import to_expr
from tamis.expr.nodes import TRUE, Expr, and_, find_columns, split_conjuncts
from tamis.expr.sql.printer import to_display_sql
from tamis.io.listing import find_file
from tamis.io.storage import open_storage
from tamis.parquet.footer.footer import MAGIC, Footer, footer_from_bytes
from tamis.parquet.footer.leaves import find_leaf_indices
from tamis.parquet.footer.matching import check_compatible_types, find_path
from tamis.parquet.footer.statistics import read_row_group_metadata, sum_compressed_sizes
from tamis.parquet.indexes.bloom_provider import (
    AsyncBloomFilterProvider,
    BloomFilterProvider,
    call_from_threads,
    check_provider,
)
from tamis.parquet.indexes.page_pruning import Evidence, Filter, Remaining, RowRangePruner
from tamis.parquet.indexes.page_units import read_page_indexes
from tamis.parquet.reading.assemble import can_assemble
from tamis.parquet.reading.page_reader import assemble_columns, decode_rows, fetch_pages
from tamis.parquet.reading.parquet_file import ParquetFile
from tamis.parquet.selection.row_selection import RowSelection
from tamis.skipping.metadata import ROW_COUNT
from tamis.skipping.metrics import LevelReport
from tamis.skipping.predicate import Predicate, make_predicate
from tamis.skipping.prune import ConjunctOutcome, prune
from tamis.tuning import Tuning, check_tuning
from tamis.types import replace_view_types

if TYPE_CHECKING:
    from pyroaring import BitMap

Given: TypeAlias = str | os.PathLike[str] | pq.FileMetaData
Provider: TypeAlias = BloomFilterProvider | AsyncBloomFilterProvider

_OPTIONS = {"bloom": "bloom_filter", "pages": "page_index", "dictionary": "dictionary"}
"""The option that switches each level below row groups."""

MAX_ROARING_ROWS = 2**32
"""The number of positions that a 32-bit Roaring bitmap can hold."""


@suggest_method_arguments("PruneOptions")
@dataclass(frozen=True, slots=True)
class PruneOptions:
    """The levels below row groups that are applied, and whether the result has a Roaring bitmap."""

    page_index: bool = True
    bloom_filter: bool = True
    dictionary: bool = True
    emit_roaring: bool = False

    def __post_init__(self) -> None:
        check_flags(
            page_index=self.page_index,
            bloom_filter=self.bloom_filter,
            dictionary=self.dictionary,
            emit_roaring=self.emit_roaring,
        )

    @staticmethod
    def from_levels(levels: Collection[str], *, emit_roaring: bool = False) -> PruneOptions:
        """Build the options that apply just these levels, named as in reports: `bloom`, `pages`, `dictionary`."""
        if isinstance(levels, str) or not isinstance(levels, Iterable):
            raise make_argument_error("levels", f"a list of {', '.join(_OPTIONS)}", levels)
        for level in levels:
            if level not in _OPTIONS:
                raise InvalidArgument(_describe_unknown_level(level))
        return PruneOptions(
            **{option: level in levels for level, option in _OPTIONS.items()}, emit_roaring=emit_roaring
        )

    @property
    def levels(self) -> frozenset[str]:
        """The names of the levels that are applied, as in reports."""
        return frozenset(level for level, option in _OPTIONS.items() if getattr(self, option))


def _describe_unknown_level(level: object) -> str:
    spellings = {**{name: name for name in _OPTIONS}, **{option: name for name, option in _OPTIONS.items()}}
    near = get_close_matches(str(level), spellings, 1)
    hint = f" Did you mean {spellings[near[0]]!r}?" if near else ""
    return f"no level {level!r} below row groups.{hint} Levels: {', '.join(_OPTIONS)}"


class TriState(Enum):
    """What metadata proves about the rows of a row group."""

    TRUE = "true"
    """Every row matches."""
    FALSE = "false"
    """No row matches."""
    UNKNOWN = "unknown"
    """Neither is proven, so the rows must be read."""


@dataclass(frozen=True, slots=True)
class UnusedPredicate:
    """A conjunct that metadata cannot answer, and why."""

    predicate: str
    reason: str

    def __str__(self) -> str:
        return f"{self.predicate}: {self.reason}"


@dataclass(frozen=True, slots=True)
class CompileResult:
    """The conjuncts of a predicate as they were written, and those that metadata cannot answer."""

    conjuncts: tuple[str, ...]
    errors: tuple[UnusedPredicate, ...]
    diagnostics: tuple[str, ...] = ()
    """The options that could not be applied to a file, and why."""


@dataclass(frozen=True, eq=False)
class PruneResult:
    """The row groups and rows of a file that may match."""

    row_groups: tuple[int, ...]
    row_selection: RowSelection
    """The rows that may match, counted over the remaining row groups."""
    roaring_bitmap: BitMap | None
    """The positions of those rows in the file, if `emit_roaring` requested them and the file has at most 2^32 rows."""
    compile_result: CompileResult
    required_columns: tuple[str, ...]
    """The columns of the predicate."""
    levels: tuple[LevelReport, ...]
    _row_counts: tuple[int, ...] = field(repr=False)
    _labels: tuple[str, ...] = field(repr=False)
    _evidence: tuple[Evidence, ...] = field(repr=False)

    @cached_property
    def conjunct_answers(self) -> Mapping[str, tuple[TriState, ...]]:
        """What all levels together prove about each conjunct, by its text: one answer per row group of the file."""
        found: dict[str, tuple[TriState, ...]] = {}
        for number, label in enumerate(self._labels):
            own = _answer_conjunct(number, self._evidence, self._row_counts)
            found[label] = tuple(map(_combine_answers, zip(found.get(label, own), own, strict=True)))
        return found

    @cached_property
    def row_group_answers(self) -> tuple[TriState, ...]:
        """What all levels together prove about the predicate: one answer per row group of the file."""
        each = zip(*self.conjunct_answers.values(), strict=True) if self._labels else [()] * len(self._row_counts)
        kept = set(self.row_groups)
        return tuple(
            _combine_answers(answers) if group in kept else TriState.FALSE for group, answers in enumerate(each)
        )


def _combine_answers(answers: Collection[TriState]) -> TriState:
    """Return the answer for the conjunction of some predicates."""
    if TriState.FALSE in answers:
        return TriState.FALSE
    return TriState.UNKNOWN if TriState.UNKNOWN in answers else TriState.TRUE


def _answer_conjunct(number: int, evidence: Sequence[Evidence], row_counts: Sequence[int]) -> tuple[TriState, ...]:
    """Return for each row group whether a conjunct is proven for all of its rows, by any level for each row."""
    never, always = ([RowSelection.none(rows) for rows in row_counts] for _ in range(2))
    for each in evidence:
        conjunct = each.conjuncts[number]
        if conjunct is None:
            continue
        pruned = prune(each.units, [conjunct])
        is_kept = np.asarray(pruned.selection)
        is_matched = np.zeros(len(is_kept), bool)
        is_matched[is_kept] = np.asarray(pruned.fully_matched[0])
        for proven, mask in ((never, ~is_kept), (always, is_matched)):
            ranges = each.ranges.keep(mask)
            for group in ranges.kept_row_groups:
                proven[group] |= ranges.selection(group)
    return tuple(
        TriState.FALSE if no.is_all else TriState.TRUE if yes.is_all else TriState.UNKNOWN
        for no, yes in zip(never, always, strict=True)
    )


@suggest_method_arguments("PruneRequest")
@dataclass(frozen=True)
class PruneRequest:
    """A file, a predicate and options; each method returns a new request.

    The file is a path, a URI, or metadata read by pyarrow. Metadata alone prunes row groups by their statistics; the
    other levels need the file beside it (`with_file`) or, for Bloom filters, a provider (`with_bloom_filters`).
    `schema` is the table's schema, if it differs from the file's.
    """

    file: Given
    schema: pa.Schema | None = None
    predicate: object = None
    options: PruneOptions = PruneOptions()
    data_file: str | os.PathLike[str] | None = None
    bloom_filters: Provider | None = None
    storage_options: Mapping[str, Any] | None = None
    tuning: Tuning | None = None

    def with_predicate(self, predicate: object) -> PruneRequest:
        """Set the predicate: SQL text, an expression built with `tamis.col`, or one of another library."""
        return replace(self, predicate=predicate)

    def with_options(self, options: PruneOptions) -> PruneRequest:
        return replace(self, options=options)

    def with_file(self, file: str | os.PathLike[str]) -> PruneRequest:
        """Set the path or URI of the file that the given metadata belongs to, from which indexes are read."""
        return replace(self, data_file=file)

    def with_bloom_filters(self, provider: Provider) -> PruneRequest:
        """Set the provider of Bloom filters, which replaces those in the file."""
        return replace(self, bloom_filters=provider)

    def enable_page_index(self, enabled: bool = True) -> PruneRequest:
        return self._with_options(page_index=enabled)

    def enable_bloom_filter(self, enabled: bool = True) -> PruneRequest:
        return self._with_options(bloom_filter=enabled)

    def enable_dictionary(self, enabled: bool = True) -> PruneRequest:
        return self._with_options(dictionary=enabled)

    def emit_roaring(self, enabled: bool = True) -> PruneRequest:
        return self._with_options(emit_roaring=enabled)

    def prune(self) -> PruneResult:
        """Return the row groups and rows that may match."""
        source = _open(self.file, self.storage_options, self.tuning, self.data_file)
        schema = self.schema if self.schema is not None else _read_schema(source)
        return Pruner(schema, self.predicate, self.options)._prune(source, self.bloom_filters)

    async def prune_async(self) -> PruneResult:
        """Return the same as `prune`, without blocking the event loop; the provider may be asynchronous."""
        with call_from_threads(self.bloom_filters) as provider:
            return await asyncio.to_thread(replace(self, bloom_filters=provider).prune)

    def _with_options(self, **changes: bool) -> PruneRequest:
        return replace(self, options=replace(_check_options(self.options), **changes))


@suggest_method_arguments("Pruner")
@dataclass(frozen=True)
class Pruner:
    """A predicate bound once, for many files of one schema. It is thread-safe."""

    schema: pa.Schema
    predicate: object = None
    options: PruneOptions = PruneOptions()
    tuning: Tuning | None = None

    @cached_property
    def _given(self) -> Expr:
        given = to_expr(self.predicate)
        return TRUE if given is None else given

    @cached_property
    def bound(self) -> Predicate:
        return make_predicate(self._given, self.schema, "the file")

    @cached_property
    def compile_result(self) -> CompileResult:
        pairs = list(zip(self._labels, self.bound.conjuncts, strict=True))
        unused = dict.fromkeys(
            UnusedPredicate(label, conjunct.reason) for label, conjunct in pairs if conjunct.reason is not None
        )
        return CompileResult(tuple(dict.fromkeys(self._labels)), tuple(unused))

    @cached_property
    def _labels(self) -> tuple[str, ...]:
        """The conjuncts of the predicate as it was written, for each conjunct of the normalised one.

        A conjunct that normalisation merged from several has all of them that mention its columns.
        """
        written = split_conjuncts(self._given)
        if len(written) == 1:
            return (to_display_sql(self._given),) * len(self.bound.conjuncts)
        pairs = [(part, make_predicate(part, self.schema, "the file")) for part in written]
        source = {each: part for part, own in pairs for each in split_conjuncts(own.expr)}
        labels = []
        for conjunct in self.bound.conjuncts:
            label = source.get(conjunct.predicate)
            if label is None:
                columns = set(find_columns(conjunct.predicate))
                merged = [part for part, own in pairs if not columns.isdisjoint(own.mentioned)]
                label = and_(*merged) if merged else conjunct.predicate
            labels.append(to_display_sql(label))
        return tuple(labels)

    @cached_property
    def _filter(self) -> Filter:
        return Filter(self.bound.expr, self.bound.conjuncts, self.bound.handler)

    def prune(
        self,
        file: Given,
        storage_options: Mapping[str, Any] | None = None,
        *,
        data_file: str | os.PathLike[str] | None = None,
        bloom_filters: Provider | None = None,
    ) -> PruneResult:
        """Return the row groups and rows of a file that may match; the arguments are those of `PruneRequest`."""
        return self._prune(_open(file, storage_options, self.tuning, data_file), bloom_filters)

    async def prune_async(
        self,
        file: Given,
        storage_options: Mapping[str, Any] | None = None,
        *,
        data_file: str | os.PathLike[str] | None = None,
        bloom_filters: Provider | None = None,
    ) -> PruneResult:
        """Return the same as `prune`, without blocking the event loop; the provider may be asynchronous."""
        with call_from_threads(bloom_filters) as provider:
            return await asyncio.to_thread(
                self.prune, file, storage_options, data_file=data_file, bloom_filters=provider
            )

    def _prune(self, source: ParquetFile | Footer, bloom_filters: Provider | None) -> PruneResult:
        options = _check_options(self.options)
        provider = check_provider(bloom_filters)
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
        row_counts = units.column(ROW_COUNT.name).to_pylist()
        everything = Remaining.from_row_groups(range(len(row_counts)), units, np.zeros((len(row_counts), 0), bool))
        evidence = [Evidence(everything, units, self.bound.conjuncts)]
        reports, diagnostics = [report], []
        levels = options.levels if len(remaining.starts) and self.bound.expr != TRUE else frozenset()
        needed = find_leaf_indices(footer.schema.arrow, list(names.values()))
        if isinstance(source, Footer):
            usable = levels & {"bloom"} if provider is not None else frozenset()
            diagnostics += _describe_unreadable(source.metadata, levels - usable, needed)
            levels = usable
        if levels:
            sizes = dict(enumerate(sum_compressed_sizes(footer.metadata, needed)))
            with source.open() if isinstance(source, ParquetFile) else nullcontext() as opened:
                narrower = RowRangePruner(source, opened, self._filter, needed, names, sizes, bloom_filters=provider)
                remaining, below = narrower.narrow(remaining, levels)
            evidence += narrower.evidence
            reports += [report for report in below if report.by_predicate]
        kept = remaining.kept_row_groups
        selection = RowSelection.concat(remaining.selection(group) for group in kept)
        bitmap = None
        if options.emit_roaring and sum(row_counts) > MAX_ROARING_ROWS:
            diagnostics.append(
                f"Roaring bitmap: not built, because the file has {sum(row_counts):,} rows and a bitmap of 32 bits "
                f"ends at {MAX_ROARING_ROWS:,}; use row_selection, which has to_roaring64()"
            )
        elif options.emit_roaring:
            bitmap = selection.in_file(kept, row_counts).to_roaring()
        return PruneResult(
            kept,
            selection,
            bitmap,
            replace(self.compile_result, diagnostics=tuple(diagnostics)),
            tuple(column.name for column in self.bound.columns),
            tuple(replace(each, by_predicate=self._label_outcomes(each.by_predicate)) for each in reports),
            tuple(row_counts),
            self._labels,
            tuple(evidence),
        )

    def _label_outcomes(self, outcomes: Sequence[ConjunctOutcome]) -> tuple[ConjunctOutcome, ...]:
        """Return the outcomes by the conjuncts that the user wrote, one for each."""
        found: dict[str, ConjunctOutcome] = {}
        for label, outcome in zip(self._labels, outcomes, strict=True):
            before = found.get(label, ConjunctOutcome(label, 0, None))
            skipped = before.skipped + outcome.skipped
            reason = None if skipped else before.unused_because or outcome.unused_because
            found[label] = ConjunctOutcome(label, skipped, reason)
        return tuple(found.values())


def _check_options(options: object) -> PruneOptions:
    if not isinstance(options, PruneOptions):
        raise make_argument_error("options", "a PruneOptions", options)
    return options


_ADVICE = "give the file beside it with with_file(…)"
_UNREADABLE = {
    "pages": ("page index", "it", _ADVICE),
    "bloom": ("Bloom filters", "them", f"{_ADVICE}, or a provider with with_bloom_filters(…)"),
    "dictionary": ("dictionaries", "them", _ADVICE),
}


def _describe_unreadable(metadata: pq.FileMetaData, levels: Collection[str], leaves: Sequence[int]) -> list[str]:
    """Return a diagnostic for each level that the file has, but that metadata alone does not contain."""
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    chunks = [group.column(leaf) for group in groups for leaf in leaves]
    has_level = {
        "pages": any(chunk.has_column_index and chunk.has_offset_index for chunk in chunks),
        "bloom": any(chunk.bloom_filter_offset is not None for chunk in chunks),
        "dictionary": any(chunk.has_dictionary_page for chunk in chunks),
    }
    return [
        f"{what}: not used, because metadata alone does not contain {pronoun}; {advice}"
        for level, (what, pronoun, advice) in _UNREADABLE.items()
        if level in levels and has_level[level]
    ]


def _prune_row_groups(units: pa.RecordBatch, predicate: Predicate) -> tuple[Remaining, LevelReport]:
    pruned = prune(units, predicate.conjuncts, handler=predicate.handler)
    groups = np.flatnonzero(np.asarray(pruned.selection)).tolist()
    report = LevelReport("row_groups", units.num_rows, len(groups), by_predicate=pruned.outcomes)
    return Remaining.from_row_groups(groups, pruned.remaining, ~pruned.matched), report


def _open(
    file: object,
    storage_options: Mapping[str, Any] | None,
    tuning: Tuning | None,
    data_file: str | os.PathLike[str] | None = None,
) -> ParquetFile | Footer:
    if isinstance(file, pq.FileMetaData):
        # Serialised and parsed again with validation, because pyarrow's accessors abort the process on damaged
        # statistics.
        written = BytesIO()
        file.write_metadata_file(written)
        footer = footer_from_bytes(written.getvalue()[len(MAGIC) : -2 * len(MAGIC)], "the metadata")
        if data_file is None:
            return footer
        source = open_file(data_file, storage_options, tuning)
        # Indexes of another file would prune wrong rows. The footer is small, and cached.
        if not source.footer.metadata.equals(footer.metadata):
            raise InvalidArgument(
                f"the metadata does not belong to '{source.location}', whose footer differs: read it again with "
                "pyarrow.parquet.read_metadata"
            )
        return source
    if data_file is not None:
        raise InvalidArgument(
            "there is no metadata beside this file: give pyarrow's FileMetaData first, or only the file"
        )
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
