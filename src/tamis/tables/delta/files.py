"""The files of a snapshot that a scan needs: those of each piece pruned by partition values, then by statistics.

| way          | asked                                                 | read of the log                          |
|--------------|-------------------------------------------------------|------------------------------------------|
| `none`       | nothing                                               | paths and sizes                          |
| `partition`  | partition columns                                     | partition values, for all files          |
| `data`       | other columns too                                     | and statistics, of what partitions leave |
| `limit`      | some rows, any that partition values admit            | and numbers of rows                      |

Pieces stream: what partition values rule out never has its statistics decoded. What was read and decoded stays in
memory while there is room, so that the next plan starts from columns of Arrow.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis import types
from tamis.errors import CorruptFile
from tamis.expr.nodes import Column, columns_of
from tamis.io.storage import Storage
from tamis.io.threads import LOCAL_PATIENCE, run_in_threads
from tamis.skipping.metadata import ROW_COUNT, constant_bounds, metadata_names
from tamis.skipping.prune import ConjunctOutcome, prune
from tamis.tables.delta.actions import DELETION_VECTOR
from tamis.tables.delta.chosen_files import Chosen, Sizes, total_rows
from tamis.tables.delta.file_batches import (
    LIVE_FILES,
    FileBatch,
    LogColumns,
    ReadAgain,
    has_room_for_statistics,
    keep_batches,
    kept_batches,
    logical_rows,
    read_batches,
)
from tamis.tables.delta.file_parts import FilePart
from tamis.tables.delta.file_request import Request
from tamis.tables.delta.partition_values import unreadable_value
from tamis.tables.delta.row_group_skipping import RowGroupSkipper
from tamis.tables.delta.schema import TableMetadata
from tamis.tables.delta.snapshot import Snapshot

NOT_A_PARTITION_COLUMN = "not a partition column"

Bits = npt.NDArray[np.bool_]


def choose_files(snapshot: Snapshot, request: Request) -> Chosen:
    """The files of a snapshot that may hold a matching row."""
    threads = parts_at_once(snapshot.storage)
    pruner = PartPruner(snapshot.metadata, request, threads)
    parts = [(part, kept_batches(part, snapshot.metadata)) for part in snapshot.parts()]
    missing = [part for part, kept in parts if kept is None]
    found = run_in_threads(pruner.prune, missing, threads)
    in_memory = [(part, kept) for part, kept in parts if kept is not None]
    return Chosen.joined([pruner.nothing(), *found, *pruner.prune_kept(in_memory)])


MOST_PARTS = 8
"""The most pieces that are read at the same time from afar, unless there are as many processors."""


def parts_at_once(storage: Storage) -> int:
    """How many pieces are read at the same time.

    Each has the texts of two batches in memory while it is. On two processors, four of a local checkpoint at once took
    100 MB more than two, and no less time: nearly all of it goes into decoding.
    """
    processors = os.cpu_count() or 1
    return processors if storage.is_local else min(storage.threads, max(processors, MOST_PARTS))


CHOSEN = pa.schema(
    [
        ("path", types.STRING),
        ("size", types.LONG),
        ("deletion_vector", DELETION_VECTOR),
        ("num_records", types.LONG),
        ("logical_rows", types.LONG),
    ]
)

FEW_FILES = 10_000
"""What is noted of so many files is sooner put together than another thread begins to."""

MOST_READ_TOGETHER = 64 * 1024
MOST_KEPT_TOGETHER = 1024 * 1024
"""How many files are pruned at once, while they are read, with the texts of their statistics, and out of memory."""

Unit = tuple[FilePart, FileBatch, LogColumns]


class PartPruner:
    """Prunes the files of pieces. Any number of threads may use it."""

    def __init__(self, metadata: TableMetadata, request: Request, threads: int, *, keep: bool = True) -> None:
        self._metadata = metadata
        self._request = request
        self._threads = threads
        self._keep = keep

    def nothing(self) -> Chosen:
        fields = [self._metadata.fields_by_name[name] for name in self._metadata.partition_columns]
        partitions = pa.schema([(field.name, field.data_type) for field in fields]).empty_table()
        none = np.zeros(0, bool)
        rows = Sizes()
        return Chosen(CHOSEN.empty_table(), partitions, none, rows, rows, rows, (), (), ())

    def prune(self, part: FilePart) -> Chosen:
        """The files of a piece, as it is read, and then they are kept if they fit."""
        found = [self.nothing()]
        kept: list[FileBatch] = []
        weight = 0
        waiting: list[Unit] = []
        skipper = self._skipper()
        keep_row_group = None if skipper is None else skipper.keeps
        for batch, log in read_batches(part, self._metadata, self._request.columns, keep_row_group):
            waiting.append((part, batch, log))
            if sum(each.rows for _, each, _ in waiting) >= MOST_READ_TOGETHER:
                found.append(self._prune_together(waiting))
                waiting = []
            weight += batch.weight
            if self._keep and weight <= LIVE_FILES.capacity:
                kept.append(batch)
        if waiting:
            found.append(self._prune_together(waiting))
        if skipper is not None and skipper.skipped:
            found.append(self._left_out(part, skipper))
        elif self._keep and weight <= LIVE_FILES.capacity:
            keep_batches(part, self._metadata, kept)
        return Chosen.joined(found)

    def _skipper(self) -> RowGroupSkipper | None:
        """What asks the row groups of a checkpoint, where the filter says something that they may know."""
        request = self._request
        conjuncts = request.partition_conjuncts or request.predicate.conjuncts
        if not conjuncts or not (request.by_partitions or request.by_statistics):
            return None
        return RowGroupSkipper(
            self._metadata, conjuncts, by_partitions=request.by_partitions, by_statistics=request.by_statistics
        )

    def _left_out(self, part: FilePart, skipper: RowGroupSkipper) -> Chosen:
        """The account of files whose row groups were not read: nothing of them is left."""
        columns = ("path", "size", "deletion_vector") if part.touched is not None else ("size",)
        batches = part.read(columns, lambda _, row_group: row_group in skipper.skipped)
        total = sum((Sizes.of(batch.column("size")) for batch in batches), Sizes())
        outcomes = skipper.outcomes()
        nothing = self.nothing()
        if self._metadata.partition_columns:
            return replace(nothing, total=replace(total, rows=None), of_partitions=outcomes)
        return replace(nothing, total=total, after_partitions=replace(total, rows=None), of_statistics=outcomes)

    def prune_kept(self, parts: Sequence[tuple[FilePart, list[FileBatch]]]) -> Iterator[Chosen]:
        """The files of pieces that are in memory, many at once: an array costs more than what is in it."""
        waiting: list[Unit] = []
        files = sum(batch.rows for _, batches in parts for batch in batches)
        decode_all = has_room_for_statistics(files, 1 + len(self._request.data_columns))
        for part, batches in parts:
            log = ReadAgain(part, decode_all=decode_all)
            waiting += [(part, batch, log) for batch in batches]
            if sum(each.rows for _, each, _ in waiting) >= MOST_KEPT_TOGETHER:
                yield self._prune_together(waiting)
                waiting = []
        if waiting:
            yield self._prune_together(waiting)
        for part, batches in parts:
            keep_batches(part, self._metadata, batches)

    def _prune_together(self, units: Sequence[Unit]) -> Chosen:
        request = self._request
        starts = np.cumsum([0, *(batch.rows for _, batch, _ in units)])
        sizes = pa.concat_arrays([batch.files.column("size") for _, batch, _ in units])
        partitions = pa.concat_tables([batch.partitions for _, batch, _ in units])
        keep = np.concatenate([batch.live(part) for part, batch, _ in units])
        total = _sizes(sizes, keep)
        wrong = _wrong_values(units)
        unreadable = self._unreadable(wrong, keep)
        for column in request.predicate.mentioned:
            if column.path[0] in unreadable:
                raise unreadable[column.path[0]]
        # What is unknown of these columns keeps every file.
        known_partitions = partitions.drop_columns(list(unreadable))
        of_partitions: tuple[ConjunctOutcome, ...] = ()
        of_filter: tuple[ConjunctOutcome, ...] = ()
        matched = np.zeros((len(keep), len(request.predicate.conjuncts)), bool)
        if request.by_partitions and request.partition_conjuncts:
            admitted, matched, of_partitions = self._by_partitions(known_partitions, keep)
            keep &= admitted
        if request.predicate.partition_filter is not None:
            masks = [request.predicate.partition_filter.evaluate(batch.texts(log)) for _, batch, log in units]
            admitted = np.asarray(pa.concat_arrays(masks))
            text = f"partition filter {request.predicate.partition_filter.to_json()}"
            of_filter = (ConjunctOutcome(text, int((keep & ~admitted).sum()), None),)
            keep &= admitted
        after_partitions = _sizes(sizes, keep)
        chosen = np.flatnonzero(keep)
        matched = matched[chosen]
        rows: pa.Array | None = None
        of_statistics: tuple[ConjunctOutcome, ...] = ()
        if request.with_rows and len(chosen):
            parts = np.split(chosen, np.searchsorted(chosen, starts[1:-1]))
            described = self._statistics(units, parts, starts)
            rows = described[ROW_COUNT.name]
            logical = logical_rows(rows, _deleted(units, parts, starts))
            after_partitions = replace(after_partitions, rows=total_rows(logical))
        if request.by_statistics and len(chosen):
            described |= self._constants(known_partitions, chosen, described[ROW_COUNT.name])
            pruned = prune(pa.record_batch(described), request.predicate.conjuncts)
            of_statistics = pruned.outcomes
            left = np.asarray(pruned.selection)
            chosen, matched = chosen[left], matched[left]
            for position, whole in enumerate(pruned.matched):
                matched[:, position] |= np.asarray(whole)
            rows = None if rows is None else rows.filter(pruned.selection)
            described = {name: values.filter(pruned.selection) for name, values in described.items()}
        files = _files(units, np.split(chosen, np.searchsorted(chosen, starts[1:-1])), starts, rows)
        if request.described and len(chosen):
            for name in metadata_names(request.described, described):
                files = files.append_column(name, described[name])
        return Chosen(
            files,
            partitions if len(chosen) == len(keep) else partitions.take(pa.array(chosen)),
            np.all(matched, axis=1, keepdims=False),
            total,
            after_partitions,
            Sizes.of(files["size"].combine_chunks(), files["logical_rows"].combine_chunks()),
            of_partitions,
            of_filter,
            of_statistics,
            self._unreadable(wrong, chosen),
        )

    def _unreadable(
        self, wrong: Mapping[str, pa.StringArray], files: Bits | npt.NDArray[np.int64]
    ) -> dict[str, CorruptFile]:
        """The partition columns that some of the files have a wrong text for, each with its error."""
        found: dict[str, CorruptFile] = {}
        for name, texts in wrong.items():
            (positions,) = np.nonzero(np.asarray(texts.is_valid())[files])
            if len(positions):
                first = np.arange(len(texts))[files][positions[0]]
                found[name] = unreadable_value(texts[int(first)].as_py(), name, self._metadata)
        return found

    def _statistics(
        self, units: Sequence[Unit], chosen: Sequence[npt.NDArray[np.int64]], starts: npt.NDArray[np.int64]
    ) -> dict[str, pa.Array]:
        asked = self._request.data_columns if self._request.by_statistics else ()
        columns = tuple(dict.fromkeys((*asked, *self._request.described)))
        of_parts = [list(own) for _, own in groupby(zip(units, chosen, starts, strict=False), lambda each: each[0][0])]

        def describe(part: list[tuple[Unit, npt.NDArray[np.int64], int]]) -> list[dict[str, pa.Array]]:
            found = []
            for (_, batch, log), rows, start in part:
                found.append(batch.statistics(columns, rows - start, log))
                # Texts are most of what is in memory.
                log.done()
            log.close()
            return found

        patience = LOCAL_PATIENCE if sum(map(len, chosen)) <= FEW_FILES else 0.0
        found = run_in_threads(describe, of_parts, self._threads, patience=patience)
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

    def _by_partitions(self, partitions: pa.Table, live: Bits) -> tuple[Bits, Bits, tuple[ConjunctOutcome, ...]]:
        """Which files partition values admit, which conjuncts they answer with yes, and what each conjunct did."""
        request = self._request
        asked = np.flatnonzero(live)
        one = pa.repeat(pa.scalar(1, types.LONG), len(asked))
        units = pa.record_batch({ROW_COUNT.name: one} | self._constants(partitions, asked, one))
        pruned = prune(units, request.partition_conjuncts)
        own = set(partitions.column_names)
        outcomes = tuple(
            outcome
            if any(column.path[0] in own for column in columns_of(conjunct.predicate))
            else replace(outcome, unused_because=NOT_A_PARTITION_COLUMN)
            for conjunct, outcome in zip(request.partition_conjuncts, pruned.outcomes, strict=True)
        )
        admitted = np.zeros(len(live), bool)
        left = asked[np.asarray(pruned.selection)]
        admitted[left] = True
        matched = np.zeros((len(live), len(request.predicate.conjuncts)), bool)
        for position in range(matched.shape[1]):
            matched[left, position] = np.asarray(pruned.matched[position])
        return admitted, matched, outcomes

    def _constants(self, partitions: pa.Table, rows: npt.NDArray[np.int64], counts: pa.Array) -> dict[str, pa.Array]:
        found: dict[str, pa.Array] = {}
        taken = pa.array(rows)
        asked = {column.path[0] for each in self._request.partition_conjuncts for column in columns_of(each.predicate)}
        for name in partitions.column_names:
            if name in asked:
                values = partitions[name].combine_chunks().take(taken)
                found |= constant_bounds(Column((name,), type=values.type), values, counts)
        return found


def _wrong_values(units: Sequence[Unit]) -> dict[str, pa.StringArray]:
    """The texts of partition columns that are no values of their types, NULL for the files that have none."""
    names = dict.fromkeys(name for _, batch, _ in units for name in batch.wrong)
    return {
        name: pa.concat_arrays(
            [batch.wrong[name] if name in batch.wrong else pa.nulls(batch.rows, types.STRING) for _, batch, _ in units]
        )
        for name in names
    }


def _files(
    units: Sequence[Unit],
    chosen: Sequence[npt.NDArray[np.int64]],
    starts: npt.NDArray[np.int64],
    rows: pa.Array | None,
) -> pa.Table:
    """The chosen files of batches, with the rows of each where they are known."""
    found = []
    done = 0
    for (_, batch, _), own, start in zip(units, chosen, starts, strict=False):
        counted = None if rows is None else rows.slice(done, len(own))
        done += len(own)
        if len(own):
            found.append(batch.chosen(own - start, counted))
    return pa.concat_tables(found) if found else CHOSEN.empty_table()


def _deleted(units: Sequence[Unit], chosen: Sequence[npt.NDArray[np.int64]], starts: npt.NDArray[np.int64]) -> pa.Array:
    """How many rows deletion vectors delete of each of the chosen files."""
    return pa.concat_arrays(
        [batch.deleted(pa.array(own - start)) for (_, batch, _), own, start in zip(units, chosen, starts, strict=False)]
    )


def _sizes(sizes: pa.Array, keep: Bits) -> Sizes:
    return Sizes.of(sizes if keep.all() else sizes.filter(pa.array(keep)), None)
