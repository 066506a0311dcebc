"""The funnel of a table's files, one for all formats: partition values, then statistics, then a limit.

A format says where batches of files come from, and prunes each batch into `PrunedFiles`. What follows is the same
everywhere: results of batches are concatenated, as many files as a limit needs are taken, and each level is described.
On request a batch keeps the files that it skips, beside a selection vector: see `FileRequest.with_skipped`.
A batch may be pruned in an executor. Its result is sent as batches, and the first one holds the metrics.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile, TableError
from tamis.expr.nodes import Column, find_columns
from tamis.formats.jobs import Engine, Item, Job, run_job
from tamis.parquet.footer.leaves import FieldPath
from tamis.skipping.metrics import NOT_A_PARTITION_COLUMN, SWITCHED_OFF, LevelReport, add_known, merge_outcomes
from tamis.skipping.predicate import Predicate, predicate_from_json, predicate_to_json
from tamis.skipping.prune import ConjunctOutcome
from tamis.skipping.rewrite import Conjunct

LOGICAL_ROWS = "logical_rows"
"""The column of pruned files with their row counts after deletes, null if unknown."""

Bits = npt.NDArray[np.bool_]
Outcomes = tuple[ConjunctOutcome, ...]


# --- Skipping strategies: what a scan reads of the metadata of files --------------------------------------------------

NONE, PARTITION, DATA, LIMIT = "none", "partition", "data", "limit"

SKIPPING_NOTES = {
    NONE: "skipping: none (every file is needed)",
    PARTITION: "skipping: partition (statistics were not read)",
    DATA: "skipping: partition + statistics",
    LIMIT: "skipping: limit (only as many files as hold enough rows)",
}


def choose_skipping(
    predicate: Predicate, partition_columns: Collection[str], levels: Collection[str], limit: int | None
) -> str:
    """Return the strategy for a filter: `none`, `partition`, `data` or `limit`, as in Delta on Spark."""
    has_data_columns = bool(predicate.list_data_columns(partition_columns))
    if has_data_columns and "files" in levels:
        return DATA
    if limit is not None and not has_data_columns:
        return LIMIT
    return PARTITION if predicate.columns else NONE


def find_files_for_limit(rows: pa.Array, limit: int) -> npt.NDArray[np.int64]:
    """Return the indices of files that together hold `limit` rows; those with unknown row counts only if the others
    fall short."""
    is_known = np.asarray(rows.is_valid())
    known = np.flatnonzero(is_known)
    counts = np.asarray(rows.drop_null(), np.int64)
    before = np.cumsum(counts) - counts
    if int(counts.sum()) >= limit:
        return known[before < limit]
    return np.concatenate([known, np.flatnonzero(~is_known)])


# --- Request ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileRequest:
    """What a scan asks of a table: the files for a filter, and what to return with them."""

    predicate: Predicate
    levels: frozenset[str]
    limit: int | None = None
    with_rows: bool = False
    statistics_columns: tuple[Column, ...] = ()
    """Columns whose statistics are returned with the remaining files. They are not sent to other processes."""
    with_skipped: bool = False
    """Whether skipped files are returned too, beside a selection vector. It is not sent to other processes."""

    def to_json(self) -> dict[str, Any]:
        return {
            "predicate": predicate_to_json(self.predicate),
            "levels": sorted(self.levels),
            "limit": self.limit,
            "with_rows": self.with_rows,
        }

    @staticmethod
    def from_json(given: Mapping[str, Any]) -> FileRequest:
        predicate = predicate_from_json(given["predicate"])
        return FileRequest(predicate, frozenset(given["levels"]), given["limit"], given["with_rows"])


# --- Metrics ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sizes:
    """The number of files (or manifests) with their bytes and rows. Rows exclude deleted ones; None means unknown."""

    files: int = 0
    bytes: int | None = 0
    rows: int | None = 0

    def __add__(self, other: Sizes) -> Sizes:
        return Sizes(self.files + other.files, add_known(self.bytes, other.bytes), add_known(self.rows, other.rows))

    @staticmethod
    def of(sizes: pa.Array | pa.ChunkedArray, rows: pa.Array | pa.ChunkedArray | None = None) -> Sizes:
        return Sizes(len(sizes), pc.sum(sizes).as_py() or 0, None if rows is None else sum_rows(rows))


def sum_rows(rows: pa.Array | pa.ChunkedArray) -> int | None:
    """Return the sum of row counts; None if one of them is unknown."""
    return None if rows.null_count else int(pc.sum(rows).as_py() or 0)


@dataclass(frozen=True, slots=True)
class FileMetrics:
    """The files before and after each level, and what each conjunct skipped."""

    total: Sizes = Sizes()
    after_partitions: Sizes = Sizes()
    after_statistics: Sizes = Sizes()
    of_partitions: Outcomes = ()
    of_statistics: Outcomes = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    """What else a format counts, by its name for it."""

    def __add__(self, other: FileMetrics) -> FileMetrics:
        return FileMetrics(
            self.total + other.total,
            self.after_partitions + other.after_partitions,
            self.after_statistics + other.after_statistics,
            merge_outcomes(self.of_partitions, other.of_partitions),
            merge_outcomes(self.of_statistics, other.of_statistics),
            dict(Counter(self.counts) + Counter(other.counts)),
        )

    @staticmethod
    def from_json(given: Mapping[str, Any]) -> FileMetrics:
        """Return the metrics from the result of `asdict`."""
        total, between, left = (Sizes(**given[name]) for name in ("total", "after_partitions", "after_statistics"))
        of_partitions, of_statistics = (
            tuple(ConjunctOutcome(**each) for each in given[name]) for name in ("of_partitions", "of_statistics")
        )
        return FileMetrics(total, between, left, of_partitions, of_statistics, given["counts"])

    def describe_partitions(self, *, enabled: bool, with_rows: bool = False) -> LevelReport:
        """Return the report of the partition level."""
        before, after = self.total, self.after_partitions
        # Row counts are in the statistics, which are not read for files that partition pruning skips.
        rows = (after.rows if before.files == after.files else None, after.rows) if with_rows else ()
        note = None if enabled else SWITCHED_OFF
        sizes = (before.files, after.files, before.bytes, after.bytes)
        return LevelReport("partitions", *sizes, self.of_partitions, note, *rows)

    def describe_files(self, notes: Sequence[str | None] = (), *, with_rows: bool = False) -> LevelReport:
        """Return the report of the file level."""
        before, after = self.after_partitions, self.after_statistics
        rows = (before.rows, after.rows) if with_rows else ()
        note = "; ".join(filter(None, notes)) or None
        sizes = (before.files, after.files, before.bytes, after.bytes)
        return LevelReport("files", *sizes, self.of_statistics, note, *rows)


def mark_data_conjuncts(
    outcomes: Sequence[ConjunctOutcome], conjuncts: Sequence[Conjunct], partitions: Collection[FieldPath]
) -> Outcomes:
    """Return the outcomes of the partition level, with a reason for conjuncts that mention no partition column."""
    return tuple(
        outcome
        if outcome.skipped or any(column.path in partitions for column in find_columns(conjunct.predicate))
        else replace(outcome, unused_because=NOT_A_PARTITION_COLUMN)
        for conjunct, outcome in zip(conjuncts, outcomes, strict=False)
    )


# --- Files that remain ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PrunedFiles:
    """The files that remain of one or more batches, and the metrics of all their files."""

    files: pa.Table
    """`size`, `logical_rows` (see `limit_files`), constants, and what the format needs for its listing. Constants of
    `unreadable` columns are meaningless."""
    matched: Bits
    """`matched[i, j]`: file i is fully matched by conjunct j, every row of it satisfies the conjunct."""
    metrics: FileMetrics = FileMetrics()
    unreadable: Mapping[str, TableError] = field(default_factory=dict)
    """The error of each partition column with a value, in some of the files, that is invalid for its type."""
    selection: Bits | None = None
    """Which of `files` remain, if the skipped ones are among them; None: all. Then there are no metrics."""

    @staticmethod
    def with_skipped(files: pa.Table, selection: Bits, matched: Bits, **more: Any) -> PrunedFiles:
        """Return files with a selection of those that remain; `matched` has only these."""
        of_all = np.zeros((len(selection), matched.shape[1]), bool)
        of_all[selection] = matched
        return PrunedFiles(files, of_all, selection=selection, **more)

    def with_selection(self, chosen: npt.NDArray[np.bool_]) -> PrunedFiles:
        """Return the files with a selection of those that remain so far: one boolean for each."""
        selection = np.ones(len(self.files), bool) if self.selection is None else self.selection.copy()
        selection[selection] = chosen
        return replace(self, selection=selection)

    def drop_skipped(self) -> PrunedFiles:
        """Return only the files that remain."""
        if self.selection is None:
            return self
        files = self.files.filter(pa.array(self.selection))
        return replace(self, files=files, matched=self.matched[self.selection], selection=None)

    @staticmethod
    def concatenate(each: Sequence[PrunedFiles]) -> PrunedFiles:
        first, *others = each
        if not others:
            return first
        return PrunedFiles(
            # Batches without statistics of a column lack the columns of those statistics.
            pa.concat_tables([one.files for one in each], promote_options="default"),
            np.concatenate([one.matched for one in each]),
            sum((one.metrics for one in others), first.metrics),
            {name: error for one in reversed(each) for name, error in one.unreadable.items()},
        )


def spread_values(values: pa.Array, selection: Bits) -> pa.Array:
    """Return values of the selected files for all files, null for the others."""
    return values.take(pa.array(np.cumsum(selection) - 1, mask=~selection))


def limit_files(found: PrunedFiles, limit: int | None) -> PrunedFiles:
    """Return as many of the files as hold `limit` rows, those with known row counts first.

    That needs files in which every row matches; otherwise all files are returned. The others count as skipped.
    """
    if limit is None or not found.matched.all():
        return found
    chosen = find_files_for_limit(found.files[LOGICAL_ROWS].combine_chunks(), limit)
    files = found.files.take(pa.array(chosen))
    skipped = len(found.files) - len(files)
    by_limit = (ConjunctOutcome(f"limit {limit}", skipped, None),) if skipped else ()
    metrics = replace(
        found.metrics,
        after_statistics=Sizes.of(files["size"], files[LOGICAL_ROWS]),
        of_statistics=found.metrics.of_statistics + by_limit,
    )
    return replace(found, files=files, matched=found.matched[chosen], metrics=metrics)


def limit_batches(prune_all: Callable[[], Iterator[PrunedFiles]], limit: int | None) -> Iterator[PrunedFiles]:
    """Yield batches that have their skipped files, with the selection that `limit_files` makes of them.

    `prune_all` yields the same batches each time. With a limit it runs twice, so that not all files are in memory.
    """
    chosen: Bits | None = None
    if limit is not None:
        proofs = [(each.files[LOGICAL_ROWS], each.matched) for each in map(PrunedFiles.drop_skipped, prune_all())]
        if proofs and all(matched.all() for _, matched in proofs):
            rows = pa.chunked_array([chunk for column, _ in proofs for chunk in column.chunks], types.LONG)
            chosen = np.zeros(len(rows), bool)
            chosen[find_files_for_limit(rows.combine_chunks(), limit)] = True
    for each in prune_all():
        if chosen is None:
            yield each
        else:
            remaining = len(each.files) if each.selection is None else int(each.selection.sum())
            yield each.with_selection(chosen[:remaining])
            chosen = chosen[remaining:]


# --- Results of executors ---------------------------------------------------------------------------------------------

MATCHED_TYPE = pa.list_(types.BOOLEAN)


def encode_matches(matched: Bits) -> pa.ListArray:
    """Return a matrix with a row for each unit and a column for each conjunct, as a list for each unit."""
    rows, conjuncts = matched.shape
    return pa.ListArray.from_arrays(np.arange(rows + 1, dtype=np.int32) * conjuncts, pa.array(matched.ravel()))


def decode_matches(lists: pa.Array | pa.ChunkedArray, conjuncts: int) -> Bits:
    """Return the matrix of `encode_matches`."""
    values = (lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists).flatten()
    return np.asarray(values).astype(bool).reshape(len(lists), conjuncts)


def prune_in_executors(engine: Engine, job: Job, items: Sequence[Item], nothing: PrunedFiles) -> list[PrunedFiles]:
    """Return the result of each item; `nothing` has the columns of results, and no files."""
    return [_decode_result(batches, nothing) for batches in run_job(engine, job, items)]


def encode_result(found: PrunedFiles) -> Iterator[pa.RecordBatch]:
    """Yield the result of an item as batches: the metrics, then the files."""
    schema = make_result_schema(found)
    unreadable = {name: str(error) for name, error in found.unreadable.items()}
    metrics = json.dumps({**asdict(found.metrics), "unreadable": unreadable})
    yield pa.record_batch([[metrics], *(pa.nulls(1, each.type) for each in list(schema)[1:])], schema=schema)
    if found.files.num_rows:
        files = [column.combine_chunks() for column in found.files.columns]
        values = [
            pa.nulls(found.files.num_rows, types.STRING),
            encode_matches(found.matched),
            pa.StructArray.from_arrays(files, fields=list(found.files.schema)),
        ]
        yield pa.record_batch(values, schema=schema)


def _decode_result(batches: Sequence[pa.RecordBatch], nothing: PrunedFiles) -> PrunedFiles:
    metrics = json.loads(batches[0].column("metrics")[0].as_py())
    found = pa.Table.from_batches(batches[1:], make_result_schema(nothing))
    files = [pa.record_batch(chunk.flatten(), schema=nothing.files.schema) for chunk in found["files"].chunks]
    return PrunedFiles(
        pa.Table.from_batches(files, nothing.files.schema),
        decode_matches(found["matched"], nothing.matched.shape[1]),
        FileMetrics.from_json(metrics),
        {name: CorruptFile(text) for name, text in metrics["unreadable"].items()},
    )


def make_result_schema(of: PrunedFiles) -> pa.Schema:
    """Return the schema of the batches of `encode_result`, for files with the columns of these."""
    files = pa.struct(list(of.files.schema))
    return pa.schema([("metrics", types.STRING), ("matched", MATCHED_TYPE), ("files", files)])
