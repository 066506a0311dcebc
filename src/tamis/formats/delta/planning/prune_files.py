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
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis import types
from tamis.errors import CorruptFile
from tamis.expr.nodes import Column, find_columns
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
from tamis.formats.delta.planning.partition_values import make_unreadable_value_error
from tamis.formats.delta.schema import TableMetadata
from tamis.formats.delta.snapshot import Snapshot
from tamis.formats.file_rows import DELETION_VECTOR
from tamis.formats.source import SKIPPING_NOTES, Sizes, sum_rows
from tamis.io.storage import Storage
from tamis.io.threads import LOCAL_SOLO_SECONDS, run_in_threads
from tamis.skipping.metadata import ROW_COUNT, make_constant_bounds, metadata_names
from tamis.skipping.metrics import NOT_A_PARTITION_COLUMN, SWITCHED_OFF, LevelReport, merge_outcomes
from tamis.skipping.prune import ConjunctOutcome, prune

Bits = npt.NDArray[np.bool_]


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
        ("logical_rows", types.LONG),
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

    def make_empty(self) -> PrunedFiles:
        fields = [self._metadata.fields_by_name[name] for name in self._metadata.partition_columns]
        partitions = pa.schema([(field.name, field.data_type) for field in fields]).empty_table()
        none = np.zeros(0, bool)
        rows = Sizes()
        return PrunedFiles(PRUNED_FILE_SCHEMA.empty_table(), partitions, none, rows, rows, rows, (), (), ())

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
            self._metadata, conjuncts, by_partitions=request.by_partitions, by_statistics=request.by_statistics
        )

    def _count_skipped(self, part: FilePart, skipper: RowGroupSkipper) -> PrunedFiles:
        """Return the counts of the files in skipped row groups; none of these files remains."""
        columns = ("path", "size", "deletion_vector") if part.touched is not None else ("size",)
        by_conjunct = [
            (text, _sum_row_groups(part, columns, groups)) for text, groups in skipper.list_skipped_by_conjunct()
        ]
        total = sum((sizes for _, sizes in by_conjunct), Sizes())
        outcomes = tuple(ConjunctOutcome(text, sizes.files, None) for text, sizes in by_conjunct)
        nothing = self.make_empty()
        if self._metadata.partition_columns:
            return replace(nothing, total=replace(total, rows=None), partition_outcomes=outcomes)
        return replace(nothing, total=total, after_partitions=replace(total, rows=None), statistics_outcomes=outcomes)

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
        partitions = pa.concat_tables([batch.partitions for _, batch, _ in units])
        keep = np.concatenate([batch.find_live(part) for part, batch, _ in units])
        total = _sum_sizes(sizes, keep)
        wrong = _collect_wrong_values(units)
        unreadable = self._find_unreadable(wrong, keep)
        for column in request.predicate.mentioned:
            if column.path[0] in unreadable:
                raise unreadable[column.path[0]]
        # Values of these columns are unknown, and unknown values keep the file.
        known_partitions = partitions.drop_columns(list(unreadable))
        of_partitions: tuple[ConjunctOutcome, ...] = ()
        of_filter: tuple[ConjunctOutcome, ...] = ()
        matched = np.zeros((len(keep), len(request.predicate.conjuncts)), bool)
        if request.by_partitions and request.partition_conjuncts:
            admitted, matched, of_partitions = self._prune_by_partitions(known_partitions, keep)
            keep &= admitted
        if request.predicate.partition_filter is not None:
            masks = [
                request.predicate.partition_filter.evaluate(batch.read_partition_values(log)) for _, batch, log in units
            ]
            admitted = np.asarray(pa.concat_arrays(masks))
            text = f"partition filter {request.predicate.partition_filter.to_json()}"
            of_filter = (ConjunctOutcome(text, int((keep & ~admitted).sum()), None),)
            keep &= admitted
        after_partitions = _sum_sizes(sizes, keep)
        chosen = np.flatnonzero(keep)
        matched = matched[chosen]
        rows: pa.Array | None = None
        of_statistics: tuple[ConjunctOutcome, ...] = ()
        if request.with_rows and len(chosen):
            parts = np.split(chosen, np.searchsorted(chosen, starts[1:-1]))
            statistics = self._decode_statistics(units, parts, starts)
            rows = statistics[ROW_COUNT.name]
            logical = compute_logical_rows(rows, _count_deleted(units, parts, starts))
            after_partitions = replace(after_partitions, rows=sum_rows(logical))
        if request.by_statistics and len(chosen):
            statistics |= self._make_partition_bounds(known_partitions, chosen, statistics[ROW_COUNT.name])
            pruned = prune(pa.record_batch(statistics), request.predicate.conjuncts)
            of_statistics = pruned.outcomes
            left = np.asarray(pruned.selection)
            chosen, matched = chosen[left], matched[left]
            for position, fully_matched in enumerate(pruned.fully_matched):
                matched[:, position] |= np.asarray(fully_matched)
            rows = None if rows is None else rows.filter(pruned.selection)
            statistics = {name: values.filter(pruned.selection) for name, values in statistics.items()}
        files = _select_files(units, np.split(chosen, np.searchsorted(chosen, starts[1:-1])), starts, rows)
        if request.statistics_columns and len(chosen):
            for name in metadata_names(request.statistics_columns, statistics):
                files = files.append_column(name, statistics[name])
        return PrunedFiles(
            files,
            partitions if len(chosen) == len(keep) else partitions.take(pa.array(chosen)),
            np.all(matched, axis=1, keepdims=False),
            total,
            after_partitions,
            Sizes.of(files["size"].combine_chunks(), files["logical_rows"].combine_chunks()),
            of_partitions,
            of_filter,
            of_statistics,
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
        columns = tuple(dict.fromkeys((*filtered, *self._request.statistics_columns)))
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

    def _prune_by_partitions(self, partitions: pa.Table, live: Bits) -> tuple[Bits, Bits, tuple[ConjunctOutcome, ...]]:
        """Return the files that partition values keep, the conjuncts that fully match them, and each conjunct's
        outcome."""
        request = self._request
        candidates = np.flatnonzero(live)
        one = pa.repeat(pa.scalar(1, types.LONG), len(candidates))
        units = pa.record_batch({ROW_COUNT.name: one} | self._make_partition_bounds(partitions, candidates, one))
        pruned = prune(units, request.partition_conjuncts)
        own = set(partitions.column_names)
        outcomes = tuple(
            outcome
            if any(column.path[0] in own for column in find_columns(conjunct.predicate))
            else replace(outcome, unused_because=NOT_A_PARTITION_COLUMN)
            for conjunct, outcome in zip(request.partition_conjuncts, pruned.outcomes, strict=True)
        )
        admitted = np.zeros(len(live), bool)
        left = candidates[np.asarray(pruned.selection)]
        admitted[left] = True
        matched = np.zeros((len(live), len(request.predicate.conjuncts)), bool)
        for position in range(matched.shape[1]):
            matched[left, position] = np.asarray(pruned.fully_matched[position])
        return admitted, matched, outcomes

    def _make_partition_bounds(
        self, partitions: pa.Table, rows: npt.NDArray[np.int64], counts: pa.Array
    ) -> dict[str, pa.Array]:
        found: dict[str, pa.Array] = {}
        indices = pa.array(rows)
        used = {column.path[0] for each in self._request.partition_conjuncts for column in find_columns(each.predicate)}
        for name in partitions.column_names:
            if name in used:
                values = partitions[name].combine_chunks().take(indices)
                found |= make_constant_bounds(Column((name,), type=values.type), values, counts)
        return found


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


# --- The files of a snapshot that remain after pruning, with the counts of each pruning level -------------------------


@dataclass(frozen=True, slots=True)
class PrunedFiles:
    """The files that remain of one or more parts of a snapshot."""

    files: pa.Table
    """`path` (as in the log), `size`, `deletion_vector`, `num_records`, `logical_rows`."""
    partitions: pa.Table
    """The typed partition values; those of `unreadable` columns are meaningless."""
    fully_matched: Bits
    """`matched[i]`: file i is fully matched, every row of it satisfies the filter."""
    total: Sizes
    after_partitions: Sizes
    after_statistics: Sizes
    partition_outcomes: tuple[ConjunctOutcome, ...]
    partition_filter_outcomes: tuple[ConjunctOutcome, ...]
    statistics_outcomes: tuple[ConjunctOutcome, ...]
    unreadable: Mapping[str, CorruptFile] = field(default_factory=dict)
    """The error of each partition column with a value, in some of the files, that is invalid for its type."""

    def take(self, rows: npt.NDArray[np.int64], cause: str) -> PrunedFiles:
        """Return the files at these rows. The others are reported as skipped by `cause`."""
        indices = pa.array(rows)
        files = self.files.take(indices)
        left = Sizes.of(files["size"].combine_chunks(), files["logical_rows"].combine_chunks())
        skipped = self.files.num_rows - files.num_rows
        return replace(
            self,
            files=files,
            partitions=self.partitions.take(indices),
            fully_matched=self.fully_matched[rows],
            after_statistics=left,
            statistics_outcomes=(*self.statistics_outcomes, *([ConjunctOutcome(cause, skipped, None)] * bool(skipped))),
        )

    @staticmethod
    def concatenate(each: Sequence[PrunedFiles]) -> PrunedFiles:
        first, *others = each
        if not others:
            return first
        return PrunedFiles(
            # Parts without statistics of a column lack the columns of those statistics.
            pa.concat_tables([one.files for one in each], promote_options="default"),
            pa.concat_tables([one.partitions for one in each]),
            np.concatenate([one.fully_matched for one in each]),
            sum((one.total for one in others), first.total),
            sum((one.after_partitions for one in others), first.after_partitions),
            sum((one.after_statistics for one in others), first.after_statistics),
            _merge_all([one.partition_outcomes for one in each]),
            _merge_all([one.partition_filter_outcomes for one in each]),
            _merge_all([one.statistics_outcomes for one in each]),
            {name: error for one in reversed(each) for name, error in one.unreadable.items()},
        )


def _merge_all(outcomes: Sequence[tuple[ConjunctOutcome, ...]]) -> tuple[ConjunctOutcome, ...]:
    found: tuple[ConjunctOutcome, ...] = ()
    for each in outcomes:
        found = merge_outcomes(found, each)
    return found


def report_levels(
    chosen: PrunedFiles, request: Request, has_partitions: bool, notes: Sequence[str] = ()
) -> list[LevelReport]:
    """Return the reports of the partition level, if the table is partitioned, and of the file level; `notes` go to the
    latter."""
    reports = []
    total, between, left = chosen.total, chosen.after_partitions, chosen.after_statistics
    if has_partitions:
        outcomes = (*chosen.partition_outcomes, *chosen.partition_filter_outcomes)
        note = None if request.by_partitions else SWITCHED_OFF
        sizes = (total.files, between.files, total.bytes, between.bytes)
        # Row counts are in the statistics, which are not read for files that partition pruning skips.
        rows = (between.rows if total.files == between.files else None, between.rows)
        reports.append(LevelReport("partitions", *sizes, outcomes, note, *(rows if request.with_rows else ())))
    sizes = (between.files, left.files, between.bytes, left.bytes)
    rows = (between.rows, left.rows) if request.with_rows else (None, None)
    # A predicate on data columns would have used statistics if they were not switched off.
    note = SKIPPING_NOTES[request.skipping] if request.by_statistics or not request.data_columns else SWITCHED_OFF
    reports.append(LevelReport("files", *sizes, chosen.statistics_outcomes, "; ".join([note, *notes]), *rows))
    return reports
