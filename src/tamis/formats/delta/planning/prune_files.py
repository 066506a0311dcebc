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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis import types
from tamis.errors import CorruptFile
from tamis.expr.nodes import find_columns
from tamis.formats.delta.checkpoint.row_group_skipping import RowGroupSkipper
from tamis.formats.delta.planning.file_batches import (
    FILE_BATCH_CACHE,
    FileBatch,
    LazyLogColumns,
    LogColumns,
    cache_batches,
    compute_logical_rows,
    get_cached_batches,
    has_room_for_statistics,
    read_batches,
)
from tamis.formats.delta.planning.file_request import Request
from tamis.formats.delta.planning.log_fragments import FilePart
from tamis.formats.delta.planning.partition_values import (
    PartitionValues,
    make_partition_schema,
    make_scan_file_batch,
    make_unreadable_value_error,
    rewrite_conjunct,
)
from tamis.formats.delta.schema import TableMetadata
from tamis.formats.delta.snapshot import Snapshot
from tamis.formats.file_funnel import (
    LOGICAL_ROWS,
    Bits,
    FileMetrics,
    Outcomes,
    PrunedFiles,
    Sizes,
    mark_data_conjuncts,
    sum_rows,
)
from tamis.formats.file_rows import DELETION_VECTOR
from tamis.io.storage import Storage
from tamis.io.threads import LOCAL_SOLO_SECONDS, run_in_threads
from tamis.skipping.metadata import ROW_COUNT, make_partition_bounds, metadata_names
from tamis.skipping.prune import ConjunctOutcome, prune
from tamis.skipping.rewrite import Conjunct


def prune_files(snapshot: Snapshot, request: Request) -> PrunedFiles:
    """Return the files of a snapshot that may hold a matching row."""
    threads = count_concurrent_parts(snapshot.storage)
    pruner = PartPruner(snapshot.metadata, request, threads)
    parts = [(part, get_cached_batches(part, snapshot.metadata)) for part in snapshot.list_parts()]
    missing = [part for part, kept in parts if kept is None]
    found = run_in_threads(pruner.prune, missing, threads)
    cached = [(part, kept) for part, kept in parts if kept is not None]
    return PrunedFiles.concatenate([pruner.make_empty(), *found, *pruner.prune_cached(cached)])


MOST_PARTS = 8
"""The most parts that are read concurrently from remote storage, unless there are more processors."""


def count_concurrent_parts(storage: Storage) -> int:
    """Return how many parts are read concurrently.

    Each holds the JSON statistics of two batches in memory. On two processors, reading four parts of a local checkpoint
    concurrently took 100 MB more than two, and no less time: nearly all of it is decoding.
    """
    processors = os.cpu_count() or 1
    return processors if storage.is_local else min(storage.threads, max(processors, MOST_PARTS))


PRUNED_FILE_SCHEMA = pa.schema(
    [
        ("path", types.STRING),
        ("size", types.LONG),
        ("deletion_vector", DELETION_VECTOR),
        ("num_records", types.LONG),
        (LOGICAL_ROWS, types.LONG),
    ]
)

FEW_FILES = 10_000
"""Up to this many files, their cached statistics are gathered faster than another thread starts."""

Unit = tuple[FilePart, FileBatch, LogColumns]


class PartPruner:
    """Prunes the files of parts. It is thread-safe."""

    def __init__(self, metadata: TableMetadata, request: Request, threads: int, *, keep: bool = True) -> None:
        self._metadata = metadata
        self._request = request
        self._threads = threads
        self._keep = keep
        self._rewritten: dict[tuple[str, ...], tuple[Conjunct, ...]] = {}

    def make_empty(self) -> PrunedFiles:
        fields = [self._metadata.fields_by_name[name] for name in self._metadata.partition_columns]
        texts = [(column.name, column.type) for column in self._request.predicate.partition_texts]
        partitions = pa.schema([*((field.name, field.data_type) for field in fields), *texts]).empty_table()
        none = np.zeros((0, len(self._request.predicate.conjuncts)), bool)
        return PrunedFiles(PRUNED_FILE_SCHEMA.empty_table(), partitions, none)

    def prune(self, part: FilePart) -> PrunedFiles:
        """Prune the files of a part while reading it, then cache them if they fit."""
        found = [self.make_empty()]
        kept: list[FileBatch] = []
        weight = 0
        waiting: list[Unit] = []
        skipper = self._make_skipper()
        keep_row_group = None if skipper is None else skipper.keeps
        for batch, log in read_batches(part, self._metadata, self._request.columns, keep_row_group):
            waiting.append((part, batch, log))
            if sum(each.rows for _, each, _ in waiting) >= part.storage.tuning.max_files_while_reading:
                found.append(self._prune_together(waiting))
                waiting = []
            weight += batch.weight
            if self._keep and weight <= FILE_BATCH_CACHE.capacity:
                kept.append(batch)
        if waiting:
            found.append(self._prune_together(waiting))
        if skipper is not None and skipper.skipped:
            found.append(self._count_skipped(part, skipper))
        elif self._keep and weight <= FILE_BATCH_CACHE.capacity:
            cache_batches(part, self._metadata, kept)
        return PrunedFiles.concatenate(found)

    def _make_skipper(self) -> RowGroupSkipper | None:
        """Return the skipper for row groups of a checkpoint; None if the filter cannot skip any."""
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

    def prune_cached(self, parts: Sequence[tuple[FilePart, list[FileBatch]]]) -> Iterator[PrunedFiles]:
        """Prune cached parts, many files together: an array's overhead exceeds the cost of its values."""
        waiting: list[Unit] = []
        files = sum(batch.rows for _, batches in parts for batch in batches)
        decode_all = has_room_for_statistics(files, 1 + len(self._request.data_columns))
        for part, batches in parts:
            log = LazyLogColumns(part, decode_all=decode_all)
            waiting += [(part, batch, log) for batch in batches]
            files_waiting = sum(each.rows for _, each, _ in waiting)
            if waiting and files_waiting >= part.storage.tuning.max_cached_files_together:
                yield self._prune_together(waiting)
                waiting = []
        if waiting:
            yield self._prune_together(waiting)
        for part, batches in parts:
            cache_batches(part, self._metadata, batches)

    def _prune_together(self, units: Sequence[Unit]) -> PrunedFiles:
        request = self._request
        starts = np.cumsum([0, *(batch.rows for _, batch, _ in units)])
        sizes = pa.concat_arrays([batch.files.column("size") for _, batch, _ in units])
        texts = request.predicate.partition_texts
        partitions = pa.concat_tables([batch.read_partitions(texts, log) for _, batch, log in units])
        keep = np.concatenate([batch.find_live(part) for part, batch, _ in units])
        total = _sum_sizes(sizes, keep)
        wrong = _collect_wrong_values(units)
        unreadable = self._find_unreadable(wrong, keep)
        for column in request.predicate.mentioned:
            if column.path[0] in unreadable:
                raise unreadable[column.path[0]]
        # Values of these columns are unknown, and unknown values keep the file.
        known_partitions = partitions.drop_columns(list(unreadable))
        of_partitions: Outcomes = ()
        chosen, matched = np.flatnonzero(keep), None
        if request.by_partitions and request.partition_conjuncts:
            values = PartitionValues.concatenate([batch.partition_values for _, batch, _ in units])
            admitted, of_maps, of_partitions = self._prune_by_partitions(values, tuple(unreadable), keep)
            keep &= admitted[values.codes]
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
            logical = compute_logical_rows(rows, _count_deleted(units, parts, starts))
            after_partitions = replace(after_partitions, rows=sum_rows(logical))
        if request.by_statistics and len(chosen):
            statistics |= self._make_partition_bounds(known_partitions, chosen, statistics[ROW_COUNT.name])
            pruned = prune(pa.record_batch(statistics), request.predicate.conjuncts, handler=request.predicate.handler)
            of_statistics = pruned.outcomes
            left = np.asarray(pruned.selection)
            chosen, matched = chosen[left], matched[left] | pruned.matched
            rows = None if rows is None else rows.filter(pruned.selection)
            statistics = {name: values.filter(pruned.selection) for name, values in statistics.items()}
        files = _select_files(units, np.split(chosen, np.searchsorted(chosen, starts[1:-1])), starts, rows)
        if request.asked.statistics_columns and len(chosen):
            for name in metadata_names(request.asked.statistics_columns, statistics):
                files = files.append_column(name, statistics[name])
        return PrunedFiles(
            files,
            partitions if len(chosen) == len(keep) else partitions.take(pa.array(chosen)),
            matched,
            FileMetrics(
                total, after_partitions, Sizes.of(files["size"], files[LOGICAL_ROWS]), of_partitions, of_statistics
            ),
            self._find_unreadable(wrong, chosen),
        )

    def _find_unreadable(
        self, wrong: Mapping[str, pa.StringArray], files: Bits | npt.NDArray[np.int64]
    ) -> dict[str, CorruptFile]:
        """Return the partition columns with an invalid string in some of the files, each with its error."""
        found: dict[str, CorruptFile] = {}
        for name, texts in wrong.items():
            (positions,) = np.nonzero(np.asarray(texts.is_valid())[files])
            if len(positions):
                first = np.arange(len(texts))[files][positions[0]]
                found[name] = make_unreadable_value_error(texts[int(first)].as_py(), name, self._metadata)
        return found

    def _decode_statistics(
        self, units: Sequence[Unit], chosen: Sequence[npt.NDArray[np.int64]], starts: npt.NDArray[np.int64]
    ) -> dict[str, pa.Array]:
        filtered = self._request.data_columns if self._request.by_statistics else ()
        columns = tuple(dict.fromkeys((*filtered, *self._request.asked.statistics_columns)))
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
        each = [one for part in found for one in part]
        names = {name: array.type for one in each for name, array in one.items()}
        return {
            name: pa.concat_arrays(
                [
                    one[name] if name in one else pa.nulls(len(rows), kind)
                    for one, rows in zip(each, chosen, strict=True)
                ]
            )
            for name, kind in names.items()
        }

    def _prune_by_partitions(
        self, values: PartitionValues, unreadable: tuple[str, ...], live: Bits
    ) -> tuple[Bits, Bits, Outcomes]:
        """Return for each map of partition values whether its files are kept and which conjuncts fully match them, and
        each conjunct's outcome."""
        request = self._request
        counts = np.bincount(values.codes[live], minlength=len(values.maps))
        distinct = np.flatnonzero(counts)
        conjuncts = self._rewrite_conjuncts(unreadable)
        units = make_scan_file_batch(values.maps.take(pa.array(distinct)))
        pruned = prune(units, conjuncts, handler=request.predicate.handler)
        # A map counts as often as files have it.
        skipped = [int(counts[distinct[np.asarray(each)]].sum()) for each in pruned.skipped_by]
        counted = [replace(outcome, skipped=count) for outcome, count in zip(pruned.outcomes, skipped, strict=True)]
        texts = request.predicate.partition_texts
        readable = [name for name in self._metadata.partition_columns if name not in unreadable]
        own = {(name,) for name in (*readable, *(column.name for column in texts))}
        left = distinct[np.asarray(pruned.selection)]
        admitted = np.zeros(len(values.maps), bool)
        admitted[left] = True
        matched = np.zeros((len(values.maps), len(request.predicate.conjuncts)), bool)
        matched[left] = pruned.matched[:, : matched.shape[1]]
        outcomes = mark_data_conjuncts(counted, conjuncts, own)
        return admitted, matched, outcomes

    def _rewrite_conjuncts(self, unreadable: tuple[str, ...]) -> tuple[Conjunct, ...]:
        """Return the partition conjuncts over the log's actions, without the columns that are unreadable."""
        found = self._rewritten.get(unreadable)
        if found is None:
            schema = make_partition_schema(self._metadata, self._request.predicate.partition_texts, unreadable)
            found = tuple(rewrite_conjunct(each, schema) for each in self._request.partition_conjuncts)
            self._rewritten[unreadable] = found
        return found

    def _make_partition_bounds(
        self, partitions: pa.Table, rows: npt.NDArray[np.int64], counts: pa.Array
    ) -> dict[str, pa.Array]:
        used = {column.path[0] for each in self._request.partition_conjuncts for column in find_columns(each.predicate)}
        return make_partition_bounds(partitions, used, counts, pa.array(rows))


def _sum_row_groups(part: FilePart, columns: Sequence[str], row_groups: Collection[int]) -> Sizes:
    """Return the sizes of the files that some row groups of a checkpoint list."""
    batches = part.read(columns, lambda _, row_group: row_group in row_groups) if row_groups else ()
    return sum((Sizes.of(batch.column("size")) for batch in batches), Sizes())


def _collect_wrong_values(units: Sequence[Unit]) -> dict[str, pa.StringArray]:
    """Return the strings of partition columns that are invalid for their types; NULL for the files with valid ones."""
    names = dict.fromkeys(name for _, batch, _ in units for name in batch.invalid)
    return {
        name: pa.concat_arrays(
            [
                batch.invalid[name] if name in batch.invalid else pa.nulls(batch.rows, types.STRING)
                for _, batch, _ in units
            ]
        )
        for name in names
    }


def _select_files(
    units: Sequence[Unit],
    chosen: Sequence[npt.NDArray[np.int64]],
    starts: npt.NDArray[np.int64],
    rows: pa.Array | None,
) -> pa.Table:
    """Return the chosen files of batches, with their row counts where known."""
    found = []
    done = 0
    for (_, batch, _), own, start in zip(units, chosen, starts, strict=False):
        row_counts = None if rows is None else rows.slice(done, len(own))
        done += len(own)
        if len(own):
            found.append(batch.select_files(own - start, row_counts))
    return pa.concat_tables(found) if found else PRUNED_FILE_SCHEMA.empty_table()


def _count_deleted(
    units: Sequence[Unit], chosen: Sequence[npt.NDArray[np.int64]], starts: npt.NDArray[np.int64]
) -> pa.Array:
    """Return the number of rows that deletion vectors delete in each of the chosen files."""
    return pa.concat_arrays(
        [
            batch.count_deleted(pa.array(own - start))
            for (_, batch, _), own, start in zip(units, chosen, starts, strict=False)
        ]
    )


def _sum_sizes(sizes: pa.Array, keep: Bits) -> Sizes:
    return Sizes.of(sizes if keep.all() else sizes.filter(pa.array(keep)), None)
