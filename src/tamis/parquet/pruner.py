"""Pruning of one file by its metadata: which row groups, and which of their rows, may satisfy a predicate.

    request = PruneRequest("orders.parquet").with_predicate("id BETWEEN 5 AND 9")
    result = request.prune()
    result.row_groups, result.row_selection

No pruned row matches. Missing metadata (statistics, page indexes, Bloom filters) prunes nothing.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from enum import Enum
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tamis.errors import (
    InvalidArgument,
    TableNotFound,
    UnknownColumn,
    add_article,
    check_flags,
    format_count,
    make_argument_error,
    suggest_arguments,
    suggest_method_arguments,
)
from tamis.expr.nodes import TRUE
from tamis.io.listing import find_file
from tamis.io.ranges import RangedFile
from tamis.io.storage import open_storage
from tamis.parquet.footer.chunks import ByteRange
from tamis.parquet.footer.footer import MAGIC, Footer, footer_from_bytes
from tamis.parquet.footer.leaves import find_leaf_indices
from tamis.parquet.footer.matching import check_compatible_types, find_path
from tamis.parquet.footer.statistics import read_row_group_metadata, sum_compressed_sizes
from tamis.parquet.indexes.bloom_filter import (
    AsyncBloomFilterProvider,
    BloomFilterProvider,
    call_from_threads,
    check_provider,
)
from tamis.parquet.indexes.page_pruning import Evidence, Filter, Remaining, RowRangePruner
from tamis.parquet.indexes.page_units import read_page_indexes
from tamis.parquet.reading.page_reader import assemble_columns, can_assemble, decode_rows, fetch_pages
from tamis.parquet.reading.parquet_file import ParquetFile
from tamis.parquet.selection.row_selection import RowSelection
from tamis.skipping.handler import ExpressionHandler, check_handler
from tamis.skipping.metadata import ROW_COUNT
from tamis.skipping.metrics import LevelReport, label_outcomes
from tamis.skipping.predicate import Predicate, make_predicate
from tamis.skipping.prune import prune
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
    """The conjuncts that others imply, the options that could not be applied to a file, and why."""


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
    levels: tuple[LevelReport, ...]
    _row_counts: tuple[int, ...] = field(repr=False)
    _labels: tuple[str, ...] = field(repr=False)
    _evidence: tuple[Evidence, ...] = field(repr=False)
    _handler: ExpressionHandler = field(repr=False)

    @cached_property
    def conjunct_answers(self) -> Mapping[str, tuple[TriState, ...]]:
        """What all levels together prove about each conjunct, by its text: one answer per row group of the file."""
        found: dict[str, tuple[TriState, ...]] = {}
        for number, label in enumerate(self._labels):
            own = _answer_conjunct(number, self._evidence, self._row_counts, self._handler)
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


def _answer_conjunct(
    number: int, evidence: Sequence[Evidence], row_counts: Sequence[int], handler: ExpressionHandler
) -> tuple[TriState, ...]:
    """Return for each row group whether a conjunct is proven for all of its rows, by any level for each row."""
    never, always = ([RowSelection.none(rows) for rows in row_counts] for _ in range(2))
    for each in evidence:
        conjunct = each.conjuncts[number]
        if conjunct is None:
            continue
        pruned = prune(each.units, [conjunct], handler=handler)
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


@dataclass(frozen=True, slots=True)
class PageIndexBytes:
    """The page indexes of all columns as a file stores them: its column indexes, and its offset indexes.

    Each begins with the first index of its kind in the file, and ends with the last.
    """

    column_indexes: bytes
    offset_indexes: bytes


@suggest_method_arguments("PruneRequest")
@dataclass(frozen=True)
class PruneRequest:
    """A file, a predicate and options; each method returns a new request.

    The file is a path, a URI, or metadata read by pyarrow. Metadata alone prunes row groups by their statistics; the
    other levels need the file beside it (`with_file`). Pages need no more than the bytes of its page indexes
    (`with_page_indexes`), and Bloom filters may come from a provider (`with_bloom_filters`).
    `schema` is the table's schema, if it differs from the file's. `handler` evaluates the predicate over metadata, by
    default Arrow's.
    """

    file: Given
    schema: pa.Schema | None = None
    predicate: object = None
    options: PruneOptions = PruneOptions()
    data_file: str | os.PathLike[str] | PageIndexBytes | None = None
    bloom_filters: Provider | None = None
    storage_options: Mapping[str, Any] | None = None
    tuning: Tuning | None = None
    handler: ExpressionHandler | None = None

    def with_predicate(self, predicate: object) -> PruneRequest:
        """Set the predicate: SQL text, an expression built with `tamis.col`, or one of another library."""
        return replace(self, predicate=predicate)

    def with_options(self, options: PruneOptions) -> PruneRequest:
        """Set all options at once."""
        return replace(self, options=options)

    def with_file(self, file: str | os.PathLike[str]) -> PruneRequest:
        """Set the path or URI of the file that the given metadata belongs to, from which indexes are read."""
        return replace(self, data_file=file)

    def with_page_indexes(self, column_indexes: bytes, offset_indexes: bytes) -> PruneRequest:
        """Set the bytes of the page indexes that the given metadata belongs to: see `PageIndexBytes`."""
        return replace(self, data_file=PageIndexBytes(column_indexes, offset_indexes))

    def with_bloom_filters(self, provider: Provider) -> PruneRequest:
        """Set the provider of Bloom filters, which replaces those in the file."""
        return replace(self, bloom_filters=provider)

    def enable_page_index(self, enabled: bool = True) -> PruneRequest:
        """Set whether page indexes are read to prune rows."""
        return self._with_options(page_index=enabled)

    def enable_bloom_filter(self, enabled: bool = True) -> PruneRequest:
        """Set whether Bloom filters are read to prune row groups."""
        return self._with_options(bloom_filter=enabled)

    def enable_dictionary(self, enabled: bool = True) -> PruneRequest:
        """Set whether dictionaries are read to prune row groups."""
        return self._with_options(dictionary=enabled)

    def emit_roaring(self, enabled: bool = True) -> PruneRequest:
        """Set whether the result has a Roaring bitmap of the selected rows."""
        return self._with_options(emit_roaring=enabled)

    def prune(self) -> PruneResult:
        """Return the row groups and rows that may match."""
        source = _open(self.file, self.storage_options, self.tuning, self.data_file)
        schema = self.schema if self.schema is not None else _read_schema(source)
        return Pruner(schema, self.predicate, self.options, handler=self.handler)._prune(source, self.bloom_filters)

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
    handler: ExpressionHandler | None = None

    @cached_property
    def bound(self) -> Predicate:
        """The predicate, bound to the schema."""
        return make_predicate(self.predicate, self.schema, "the file", handler=check_handler(self.handler))

    @cached_property
    def compile_result(self) -> CompileResult:
        """The conjuncts of the predicate, and those that metadata cannot answer."""
        pairs = list(zip(self._labels, self.bound.conjuncts, strict=True))
        unused = dict.fromkeys(
            UnusedPredicate(label, conjunct.reason) for label, conjunct in pairs if conjunct.reason is not None
        )
        implied = self.bound.implied
        return CompileResult(
            tuple(dict.fromkeys((*self._labels, *implied))),
            tuple(unused),
            tuple(f"{text}: {reason}" for text, reason in implied.items()),
        )

    @cached_property
    def _labels(self) -> tuple[str, ...]:
        """For each conjunct, the condition that it is part of, as it was written."""
        return tuple(self.bound.labels[each.text] for each in self.bound.conjuncts)

    @cached_property
    def _filter(self) -> Filter:
        return Filter(self.bound.expr, self.bound.conjuncts, self.bound.handler)

    def prune(
        self,
        file: Given,
        storage_options: Mapping[str, Any] | None = None,
        *,
        data_file: str | os.PathLike[str] | PageIndexBytes | None = None,
        bloom_filters: Provider | None = None,
    ) -> PruneResult:
        """Return the row groups and rows of a file that may match; the arguments are those of `PruneRequest`."""
        return self._prune(_open(file, storage_options, self.tuning, data_file), bloom_filters)

    async def prune_async(
        self,
        file: Given,
        storage_options: Mapping[str, Any] | None = None,
        *,
        data_file: str | os.PathLike[str] | PageIndexBytes | None = None,
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
        if isinstance(source, Footer | _FileWithPageIndexes):
            usable = {"bloom"} if provider is not None else set()
            usable |= {"pages"} if isinstance(source, ParquetFile) else set()
            diagnostics += _describe_unreadable(footer.metadata, levels - usable, needed)
            levels &= usable
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
            replace(self.compile_result, diagnostics=(*self.compile_result.diagnostics, *diagnostics)),
            tuple(column.name for column in self.bound.columns),
            tuple(
                replace(each, by_predicate=label_outcomes(each.by_predicate, self.bound.labels, self.bound.implied))
                for each in reports
            ),
            tuple(row_counts),
            self._labels,
            tuple(evidence),
            self.bound.handler,
        )


def _check_options(options: object) -> PruneOptions:
    if not isinstance(options, PruneOptions):
        raise make_argument_error("options", "a PruneOptions", options)
    return options


_ADVICE = "give the file beside it with with_file(…)"
_UNREADABLE = {
    "pages": ("page index", "it", f"{_ADVICE}, or its bytes with with_page_indexes(…)"),
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
    data_file: str | os.PathLike[str] | PageIndexBytes | None = None,
) -> ParquetFile | Footer:
    if isinstance(file, pq.FileMetaData):
        # Serialised and parsed again with validation, because pyarrow's accessors abort the process on damaged
        # statistics.
        written = BytesIO()
        file.write_metadata_file(written)
        footer = footer_from_bytes(written.getvalue()[len(MAGIC) : -2 * len(MAGIC)], "the metadata")
        if data_file is None:
            return footer
        if isinstance(data_file, PageIndexBytes):
            return _FileWithPageIndexes.of(footer, data_file, tuning)
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


@dataclass(frozen=True)
class _FileWithPageIndexes(ParquetFile):
    """A file that has only its footer and its page indexes in memory."""

    ranges: tuple[tuple[int, bytes], ...] = ()
    """Bytes of the file, each with the offset of the first."""

    @staticmethod
    def of(footer: Footer, given: PageIndexBytes, tuning: Tuning | None) -> _FileWithPageIndexes:
        storage = open_storage(".").with_tuning(check_tuning(tuning))
        # The indexes end where the footer begins, or before.
        size = sys.maxsize
        file = _FileWithPageIndexes(storage, "", size, None, footer)
        chunks = [
            file.chunk(group, leaf)
            for group in range(footer.metadata.num_row_groups)
            for leaf in range(footer.metadata.num_columns)
        ]
        ranges = [
            (_check_index_bytes("column indexes", given.column_indexes, [each.column_index for each in chunks])),
            (_check_index_bytes("offset indexes", given.offset_indexes, [each.offset_index for each in chunks])),
        ]
        return replace(file, ranges=tuple(ranges))

    @property
    def location(self) -> str:
        return "the metadata"

    def open(self) -> RangedFile:
        # Pruning by pages only reads ranges of it.
        return cast(RangedFile, nullcontext(self))

    def read(self, wanted: Iterable[ByteRange]) -> list[pa.Buffer]:
        """Return the bytes of some ranges of the file."""
        return [pa.py_buffer(self._slice(offset, length)) for offset, length in wanted]

    def _slice(self, offset: int, length: int) -> bytes:
        first, content = next(
            each for each in self.ranges if each[0] <= offset and offset + length <= each[0] + len(each[1])
        )
        return content[offset - first : offset - first + length]


def _check_index_bytes(what: str, given: object, ranges: Iterable[ByteRange | None]) -> tuple[int, bytes]:
    """Return the bytes of indexes with their offset in the file; raise if they are not those of the metadata."""
    if not isinstance(given, bytes | bytearray | memoryview):
        raise make_argument_error(what.replace(" ", "_"), "bytes", given)
    known = [each for each in ranges if each is not None]
    first = min((offset for offset, _ in known), default=0)
    size = max((offset + length for offset, length in known), default=0) - first
    if len(given) != size:
        raise InvalidArgument(
            f"the {what} do not belong to the metadata: found {format_count(len(given), 'byte')}, expected {size:,}, "
            f"from offset {first:,} of the file"
        )
    return first, bytes(given)


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
