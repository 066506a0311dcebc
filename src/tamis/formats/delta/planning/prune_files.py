"""Data skipping over the files of a snapshot: each part is pruned by partition values, then by statistics.

| strategy     | the filter uses                          | read from the log                                        |
|--------------|------------------------------------------|----------------------------------------------------------|
| `none`       | no columns                               | paths and sizes                                          |
| `partition`  | partition columns                        | partition values of all files                            |
| `data`       | other columns too                        | also statistics, for files that partition pruning keeps  |
| `limit`      | at most partition columns, with a LIMIT  | also row counts                                          |

Parts are streamed: statistics are never decoded for files that partition pruning skips. Everything read and decoded is
cached within a memory limit, so that the next plan starts from Arrow columns.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile
from tamis.expr.nodes import TRUE, Column, find_columns
from tamis.formats.constants import add_partitions
from tamis.formats.delta.checkpoint import RowGroupSkipper
from tamis.formats.delta.generated_columns import derive_partition_predicates
from tamis.formats.delta.paths import resolve_paths
from tamis.formats.delta.planning.file_batches import (
    FILE_BATCH_CACHE,
    FILE_COLUMNS,
    PARTITION_VALUES,
    STATISTICS,
    FileBatch,
    FilePart,
    LogColumns,
    cache_batches,
    compute_logical_rows,
    get_cached_batches,
    has_room_for_statistics,
    read_batches,
)
from tamis.formats.delta.planning.partition_values import (
    PartitionValues,
    get_partition_strings,
    make_parsed_batch,
    make_partition_schema,
    make_scan_file_batch,
    make_unreadable_value_error,
    rewrite_conjunct,
)
from tamis.formats.delta.schema import TableMetadata, check_collations
from tamis.formats.delta.snapshot import Snapshot
from tamis.formats.file_funnel import (
    DATA,
    LIMIT,
    LOGICAL_ROWS,
    Bits,
    FileMetrics,
    FileRequest,
    Outcomes,
    PrunedFiles,
    Sizes,
    choose_skipping,
    mark_data_conjuncts,
    spread_values,
    sum_rows,
)
from tamis.formats.file_rows import DELETION_VECTOR
from tamis.formats.function_results import UNKNOWN
from tamis.formats.source import MODIFIED, to_single_array
from tamis.io.listing import look_up_sizes
from tamis.io.storage import Storage
from tamis.io.threads import LOCAL_SOLO_SECONDS, run_in_threads
from tamis.skipping.handler import TakesParsedValues
from tamis.skipping.metadata import ROW_COUNT, concatenate_metadata, make_partition_bounds, metadata_names
from tamis.skipping.predicate import Predicate, get_partition_name
from tamis.skipping.prune import ConjunctOutcome, prune
from tamis.skipping.rewrite import Conjunct, rewrite

# --- File request ---------------------------------------------------------------------------------------------------
#
# A scan's request for the files of a snapshot, and which of four skipping strategies answers it.


@dataclass(frozen=True)
class Request:
    """A scan's request for the files of a snapshot, with what follows from the table's columns."""

    asked: FileRequest
    partition_conjuncts: tuple[Conjunct, ...]
    """The conjuncts of the filter, then those on partition columns that generated columns imply."""
    data_columns: tuple[Column, ...]
    skipping: str

    @staticmethod
    def of(asked: FileRequest, metadata: TableMetadata) -> Request:
        predicate = asked.predicate
        check_collations(predicate.bound, metadata)
        partition_columns = set(metadata.partition_columns)
        data_columns = predicate.list_data_columns(partition_columns)
        skipping = choose_skipping(predicate, partition_columns, asked.levels, asked.limit)
        conjuncts = (*predicate.conjuncts, *_derive_conjuncts(predicate, metadata)) if partition_columns else ()
        asked = replace(asked, with_rows=asked.with_rows or skipping in (DATA, LIMIT))
        return Request(asked, conjuncts, data_columns, skipping)

    @property
    def predicate(self) -> Predicate:
        return self.asked.predicate

    @property
    def by_partitions(self) -> bool:
        return "partitions" in self.asked.levels

    @property
    def by_statistics(self) -> bool:
        return self.skipping == DATA

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read from the log."""
        with_statistics = STATISTICS if self.asked.with_rows else ()
        return (*FILE_COLUMNS, *PARTITION_VALUES, *with_statistics)


def _derive_conjuncts(predicate: Predicate, metadata: TableMetadata) -> list[Conjunct]:
    generated = {name: text for name, text in metadata.generated.items() if name in metadata.partition_columns}
    if not generated or predicate.is_trivial:
        return []
    implied = derive_partition_predicates(
        predicate.expr, generated, metadata.schema, metadata.partition_columns, collated=list(metadata.collations)
    )
    return [conjunct for each in implied for conjunct in rewrite(each)]


def resolve_files(storage: Storage, files: pa.Table, mark: int, *, allow_outside: bool) -> tuple[pa.Table, int]:
    """Return files of the log as a listing has them, and how many sizes were looked up.

    `mark` is their modification time: see `make_immutable_marker`.
    """
    paths = pa.chunked_array(
        [resolve_paths(storage, each, allow_outside=allow_outside) for each in files["path"].chunks], types.STRING
    )
    storage.check_all_links(paths)
    sizes = files["size"]
    unsized = int(pc.sum(pc.fill_null(pc.less_equal(sizes, 0), True)).as_py() or 0)
    if unsized:
        sizes = look_up_sizes(storage, to_single_array(paths), to_single_array(sizes))
    listed = pa.table(
        {
            "path": paths,
            "size": pc.fill_null(sizes, UNKNOWN),
            "modified_ns": pa.repeat(pa.scalar(mark, types.LONG), len(files)),
            "modified": files["modified"].cast(MODIFIED),
            "deletion_vector": files["deletion_vector"],
            "num_records": files["num_records"],
            **{name: files[name] for name in files.column_names if ":" in name},
        }
    )
    return listed, unsized


def prune_files(snapshot: Snapshot, request: Request) -> PrunedFiles:
    """Return the files of a snapshot that may hold a matching row."""
    threads = count_concurrent_parts(snapshot.storage)
    pruner = PartPruner(snapshot.metadata, request, threads)
    parts = [(part, get_cached_batches(part, snapshot.metadata)) for part in snapshot.list_parts()]
    missing = [part for part, kept in parts if kept is None]
    found = dict(zip(missing, run_in_threads(pruner.prune, missing, threads), strict=True))
    each = (
        pruner.prune_cached(run) if is_cached else [found[part] for part, _ in run]
        for is_cached, run in _group_by_cached(parts)
    )
    return PrunedFiles.concatenate([pruner.make_empty(), *chain.from_iterable(each)])


def prune_file_batches(snapshot: Snapshot, request: Request) -> Iterator[PrunedFiles]:
    """Yield the result of each batch, in the order of `prune_files`; only one part is read at a time."""
    pruner = PartPruner(snapshot.metadata, request, threads=1)
    parts = [(part, get_cached_batches(part, snapshot.metadata)) for part in snapshot.list_parts()]
    for is_cached, run in _group_by_cached(parts):
        yield from pruner.prune_cached(run) if is_cached else chain(*(pruner.prune_batches(part) for part, _ in run))


def _group_by_cached(
    parts: Sequence[tuple[FilePart, list[FileBatch] | None]],
) -> Iterator[tuple[bool, list[tuple[FilePart, list[FileBatch]]]]]:
    """Yield runs of parts that are all cached, or all not: files keep the order of the log."""
    for is_cached, run in groupby(parts, lambda each: each[1] is not None):
        yield is_cached, [(part, batches or []) for part, batches in run]


MAX_PARTS = 8
"""The most parts that are read concurrently from remote storage, unless there are more processors."""


def count_concurrent_parts(storage: Storage) -> int:
    """Return how many parts are read concurrently.

    Each holds the JSON statistics of two batches in memory. On two processors, reading four parts of a local checkpoint
    concurrently took 100 MB more than two, and no less time: nearly all of it is decoding.
    """
    processors = os.cpu_count() or 1
    return processors if storage.is_local else min(storage.threads, max(processors, MAX_PARTS))


PRUNED_FILE_SCHEMA = pa.schema(
    [
        ("path", types.STRING),
        ("size", types.LONG),
        ("modified", MODIFIED),
        ("deletion_vector", DELETION_VECTOR),
        ("num_records", types.LONG),
        (LOGICAL_ROWS, types.LONG),
    ]
)

FEW_FILES = 10_000
"""Up to this many files, their cached statistics are gathered faster than another thread starts."""

Unit = tuple[FilePart, FileBatch, LogColumns]


@dataclass(frozen=True, slots=True)
class JoinedBatches:
    """What plans need of the files of several batches, for one version and any filter."""

    starts: npt.NDArray[np.int64]
    """The position of each batch's first file, and the number of files."""
    sizes: pa.Array
    live: Bits
    total: Sizes
    values: PartitionValues
    counts: npt.NDArray[np.int64]
    """The number of live files with each of the distinct values."""

    @staticmethod
    def of(units: Sequence[Unit], metadata: TableMetadata) -> JoinedBatches:
        values = PartitionValues.concatenate([batch.partition_values for _, batch, _ in units], metadata)
        starts = np.cumsum([0, *(batch.rows for _, batch, _ in units)])
        sizes = pa.concat_arrays([batch.files.column("size") for _, batch, _ in units])
        live = np.concatenate([batch.find_live(part) for part, batch, _ in units])
        counts = np.bincount(values.codes[live], minlength=values.strings.num_rows)
        return JoinedBatches(starts, sizes, live, _sum_sizes(sizes, live), values, counts)

    @property
    def weight(self) -> int:
        arrays = (self.starts, self.sizes, self.live, self.counts)
        return self.values.weight + sum(int(array.nbytes) for array in arrays)


class PartPruner:
    """Prunes the files of parts. It is thread-safe."""

    def __init__(self, metadata: TableMetadata, request: Request, threads: int, *, keep: bool = True) -> None:
        self._metadata = metadata
        self._request = request
        self._threads = threads
        self._keep = keep
        handler = request.predicate.handler
        self._takes_parsed_values = isinstance(handler, TakesParsedValues) and handler.takes_parsed_values
        self._rewritten: dict[tuple[str, ...], tuple[Conjunct, ...]] = {}

    def make_empty(self) -> PrunedFiles:
        fields = [self._metadata.fields_by_name[name] for name in self._metadata.partition_columns]
        texts = [(column.name, column.type) for column in self._request.predicate.partition_texts]
        partitions = pa.schema([*((field.name, field.data_type) for field in fields), *texts]).empty_table()
        none = np.zeros((0, len(self._request.predicate.conjuncts)), bool)
        return PrunedFiles(add_partitions(PRUNED_FILE_SCHEMA.empty_table(), partitions), none)

    def prune(self, part: FilePart) -> PrunedFiles:
        """Return the files of a part that remain."""
        return PrunedFiles.concatenate([self.make_empty(), *self.prune_batches(part)])

    def prune_batches(self, part: FilePart) -> Iterator[PrunedFiles]:
        """Prune the files of a part while reading it, then cache them if they fit."""
        kept: list[FileBatch] = []
        weight, capacity = 0, part.storage.tuning.max_cached_log_bytes
        waiting: list[Unit] = []
        skipper = self._make_skipper()
        keep_row_group = None if skipper is None else skipper.keeps
        for batch, log in read_batches(part, self._metadata, self._request.columns, keep_row_group):
            waiting.append((part, batch, log))
            if sum(each.rows for _, each, _ in waiting) >= part.storage.tuning.max_files_while_reading:
                yield self._prune_together(waiting, JoinedBatches.of(waiting, self._metadata))
                waiting = []
            weight += batch.weight
            if self._keep and weight <= capacity:
                kept.append(batch)
        if waiting:
            yield self._prune_together(waiting, JoinedBatches.of(waiting, self._metadata))
        if skipper is not None and skipper.skipped:
            yield from (
                self._list_skipped(part, skipper)
                if self._request.asked.with_skipped
                else [self._count_skipped(part, skipper)]
            )
        elif self._keep and weight <= capacity:
            cache_batches(part, self._metadata, kept)

    def _make_skipper(self) -> RowGroupSkipper | None:
        request = self._request
        conjuncts = request.partition_conjuncts or request.predicate.conjuncts
        if not conjuncts or not (request.by_partitions or request.by_statistics):
            return None
        return RowGroupSkipper(
            self._metadata,
            conjuncts,
            request.predicate.handler,
            by_partitions=request.by_partitions,
            by_statistics=request.by_statistics,
        )

    def _count_skipped(self, part: FilePart, skipper: RowGroupSkipper) -> PrunedFiles:
        """Return the counts of the files in skipped row groups; none of these files remains."""
        columns = ("path", "size", "deletion_vector") if part.touched is not None else ("size",)
        by_conjunct = [
            (text, _sum_row_groups(part, columns, groups)) for text, groups in skipper.list_skipped_by_conjunct()
        ]
        total = sum((sizes for _, sizes in by_conjunct), Sizes())
        outcomes = tuple(ConjunctOutcome(text, sizes.files, None) for text, sizes in by_conjunct)
        if self._metadata.partition_columns:
            metrics = FileMetrics(replace(total, rows=None), of_partitions=outcomes)
        else:
            metrics = FileMetrics(total, replace(total, rows=None), of_statistics=outcomes)
        return replace(self.make_empty(), metrics=metrics)

    def _list_skipped(self, part: FilePart, skipper: RowGroupSkipper) -> Iterator[PrunedFiles]:
        """Yield the files in skipped row groups, without a selected one."""
        asked = FileRequest(Predicate(TRUE), frozenset(), with_skipped=True)
        whole = PartPruner(self._metadata, Request.of(asked, self._metadata), self._threads)
        for batch, log in read_batches(
            part, self._metadata, whole._request.columns, lambda _, row_group: row_group in skipper.skipped
        ):
            units = [(part, batch, log)]
            found = whole._prune_together(units, JoinedBatches.of(units, self._metadata))
            nothing = np.zeros(len(found.files), bool)
            yield PrunedFiles.with_skipped(found.files, nothing, self.make_empty().matched)

    def prune_cached(self, parts: Sequence[tuple[FilePart, list[FileBatch]]]) -> Iterator[PrunedFiles]:
        """Prune cached parts, many files together: an array's overhead exceeds the cost of its values."""
        waiting: list[Unit] = []
        files = sum(batch.rows for _, batches in parts for batch in batches)
        columns = 1 + len(self._request.data_columns)
        for part, batches in parts:
            log = LogColumns(part, decode_all=has_room_for_statistics(files, columns, part.storage.tuning))
            waiting += [(part, batch, log) for batch in batches]
            files_waiting = sum(each.rows for _, each, _ in waiting)
            if waiting and files_waiting >= part.storage.tuning.max_cached_files_together:
                yield self._prune_together(waiting, self._join_cached(waiting))
                waiting = []
        if waiting:
            yield self._prune_together(waiting, self._join_cached(waiting))
        for part, batches in parts:
            cache_batches(part, self._metadata, batches)

    def _join_cached(self, units: Sequence[Unit]) -> JoinedBatches:
        """Return cached batches as one, and cache that for the next plan."""
        key = ("joined", *((batch.identity, part.key) for part, batch, _ in units))
        try:
            found: JoinedBatches = FILE_BATCH_CACHE.get(key)
        except KeyError:
            found = JoinedBatches.of(units, self._metadata)
            FILE_BATCH_CACHE.put(key, found, found.weight, units[0][0].storage.tuning.max_cached_log_bytes)
        return found

    def _prune_together(self, units: Sequence[Unit], joined: JoinedBatches) -> PrunedFiles:
        request = self._request
        starts, sizes, values = joined.starts, joined.sizes, joined.values
        keep = joined.live
        unreadable = self._find_unreadable(values, np.flatnonzero(joined.counts))
        for column in request.predicate.mentioned:
            if column.path[0] in unreadable:
                raise unreadable[column.path[0]]
        partitions = values.typed.values
        for column in request.predicate.partition_texts:
            texts = get_partition_strings(values, get_partition_name(column), self._metadata)
            partitions = partitions.append_column(column.name, texts)
        # Values of these columns are unknown, and unknown values keep the file.
        known_partitions = partitions.drop_columns(list(unreadable))
        of_partitions: Outcomes = ()
        chosen, matched = np.flatnonzero(keep), None
        if request.by_partitions and request.partition_conjuncts:
            admitted, of_maps, of_partitions = self._prune_by_partitions(joined, known_partitions)
            keep = keep & admitted[values.codes]
            chosen = np.flatnonzero(keep)
            # Only for the files that remain: these are often few of many.
            matched = of_maps[values.codes[chosen]]
        if matched is None:
            matched = np.zeros((len(chosen), len(request.predicate.conjuncts)), bool)
        after_partitions = _sum_sizes(sizes, keep)
        rows: pa.Array | None = None
        of_statistics: Outcomes = ()
        if request.asked.with_rows and len(chosen):
            parts = np.split(chosen, np.searchsorted(chosen, starts[1:-1]))
            statistics = self._decode_statistics(units, parts, starts)
            rows = statistics[ROW_COUNT.name]
            logical = compute_logical_rows(
                rows,
                pa.concat_arrays(
                    [
                        batch.count_deleted(pa.array(own - start))
                        for (_, batch, _), own, start in zip(units, parts, starts, strict=False)
                    ]
                ),
            )
            after_partitions = replace(after_partitions, rows=sum_rows(logical))
        if request.by_statistics and len(chosen):
            own_codes = values.codes[chosen]
            statistics |= self._make_partition_bounds(known_partitions, own_codes, statistics[ROW_COUNT.name])
            pruned = prune(pa.record_batch(statistics), request.predicate.conjuncts, handler=request.predicate.handler)
            of_statistics = pruned.outcomes
            left = np.asarray(pruned.selection)
            chosen, matched = chosen[left], matched[left] | pruned.matched
            rows = None if rows is None else rows.filter(pruned.selection)
            statistics = {name: values.filter(pruned.selection) for name, values in statistics.items()}
        selection: Bits | None = None
        if request.asked.with_skipped:
            selection = np.zeros(len(keep), bool)
            selection[chosen] = True
            selection, chosen = selection[joined.live], np.flatnonzero(joined.live)
            rows = None if rows is None else spread_values(rows, selection)
        files = _select_files(units, np.split(chosen, np.searchsorted(chosen, starts[1:-1])), starts, rows)
        if request.asked.statistics_columns and len(chosen):
            for name in metadata_names(request.asked.statistics_columns, statistics):
                files = files.append_column(name, statistics[name])
        if partitions.num_columns:
            files = add_partitions(files, partitions.take(pa.array(values.codes[chosen])))
        unreadable = self._find_unreadable(values, np.unique(values.codes[chosen])) if values.typed.wrong else {}
        if selection is not None:
            return PrunedFiles.with_skipped(files, selection, matched, unreadable=unreadable)
        return PrunedFiles(
            files,
            matched,
            FileMetrics(
                joined.total,
                after_partitions,
                Sizes.of(files["size"], files[LOGICAL_ROWS]),
                of_partitions,
                of_statistics,
            ),
            unreadable,
        )

    def _find_unreadable(self, values: PartitionValues, codes: npt.NDArray[np.integer]) -> dict[str, CorruptFile]:
        """Return the partition columns with an invalid string in some of the values, each with its error."""
        found: dict[str, CorruptFile] = {}
        for name, texts in values.typed.wrong.items():
            invalid = texts.take(pa.array(codes)).drop_null()
            if len(invalid):
                found[name] = make_unreadable_value_error(invalid[0].as_py(), name, self._metadata)
        return found

    def _decode_statistics(
        self, units: Sequence[Unit], chosen: Sequence[npt.NDArray[np.int64]], starts: npt.NDArray[np.int64]
    ) -> dict[str, pa.Array]:
        filtered = self._request.data_columns if self._request.by_statistics else ()
        # Statistics are named by path. The bounds of a column in the filter have the type to which the filter is bound.
        both = {column.path: column for column in (*self._request.asked.statistics_columns, *filtered)}
        columns = tuple(both.values())
        by_part = [list(own) for _, own in groupby(zip(units, chosen, starts, strict=False), lambda each: each[0][0])]

        def decode(part: list[tuple[Unit, npt.NDArray[np.int64], int]]) -> list[dict[str, pa.Array]]:
            found = []
            for (_, batch, log), rows, start in part:
                found.append(batch.read_statistics(columns, rows - start, log))
                # JSON statistics are most of the memory in use.
                log.done()
            log.close()
            return found

        patience = LOCAL_SOLO_SECONDS if sum(map(len, chosen)) <= FEW_FILES else 0.0
        found = run_in_threads(decode, by_part, self._threads, patience=patience)
        return concatenate_metadata([one for part in found for one in part], [len(rows) for rows in chosen])

    def _prune_by_partitions(self, joined: JoinedBatches, partitions: pa.Table) -> tuple[Bits, Bits, Outcomes]:
        """Return for each of the distinct partition values whether its files are kept and which conjuncts fully match
        them, and each conjunct's outcome."""
        request, values, counts = self._request, joined.values, joined.counts
        distinct = np.flatnonzero(counts)
        conjuncts = self._rewrite_conjuncts(partitions.column_names)
        if self._takes_parsed_values and partitions.num_columns:
            units = make_parsed_batch(partitions if len(distinct) == len(counts) else partitions.take(distinct))
        else:
            units = make_scan_file_batch(values.strings.take(distinct))
        pruned = prune(units, conjuncts, handler=request.predicate.handler)
        # Values count as often as files have them.
        skipped = [int(counts[distinct[np.asarray(each)]].sum()) for each in pruned.skipped_by]
        counted = [replace(outcome, skipped=count) for outcome, count in zip(pruned.outcomes, skipped, strict=True)]
        own = {(name,) for name in partitions.column_names}
        left = distinct[np.asarray(pruned.selection)]
        admitted = np.zeros(len(counts), bool)
        admitted[left] = True
        matched = np.zeros((len(counts), len(request.predicate.conjuncts)), bool)
        matched[left] = pruned.matched[:, : matched.shape[1]]
        outcomes = mark_data_conjuncts(counted, conjuncts, own)
        return admitted, matched, outcomes

    def _rewrite_conjuncts(self, names: Sequence[str]) -> tuple[Conjunct, ...]:
        """Return the partition conjuncts over the log's actions; `names` are the readable partition columns."""
        request = self._request
        found = self._rewritten.get(tuple(names))
        if found is None:
            schema = make_partition_schema(self._metadata, request.predicate.partition_texts)
            schema = pa.schema([field for field in schema if field.name in names])
            parsed = self._takes_parsed_values
            found = tuple(rewrite_conjunct(each, schema, parsed=parsed) for each in request.partition_conjuncts)
            self._rewritten[tuple(names)] = found
        return found

    def _make_partition_bounds(
        self, partitions: pa.Table, rows: npt.NDArray[np.int32], counts: pa.Array
    ) -> dict[str, pa.Array]:
        used = {column.path[0] for each in self._request.partition_conjuncts for column in find_columns(each.predicate)}
        return make_partition_bounds(partitions, used, counts, pa.array(rows))


def _sum_row_groups(part: FilePart, columns: Sequence[str], row_groups: Collection[int]) -> Sizes:
    """Return the sizes of the files that some row groups of a checkpoint list."""
    batches = part.read(columns, lambda _, row_group: row_group in row_groups) if row_groups else ()
    return sum((Sizes.of(batch.column("size")) for batch in batches), Sizes())


def _select_files(
    units: Sequence[Unit],
    chosen: Sequence[npt.NDArray[np.int64]],
    starts: npt.NDArray[np.int64],
    rows: pa.Array | None,
) -> pa.Table:
    found = []
    done = 0
    for (_, batch, _), own, start in zip(units, chosen, starts, strict=False):
        row_counts = None if rows is None else rows.slice(done, len(own))
        done += len(own)
        if len(own):
            found.append(batch.select_files(own - start, row_counts))
    return pa.concat_tables(found) if found else PRUNED_FILE_SCHEMA.empty_table()


def _sum_sizes(sizes: pa.Array, keep: Bits) -> Sizes:
    return Sizes.of(sizes if keep.all() else sizes.filter(pa.array(keep)), None)
