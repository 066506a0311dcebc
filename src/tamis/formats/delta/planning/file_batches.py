"""Cached batches of files of a log, with their decoded partition values, statistics and live masks.

The first plan reads a part of the log batch by batch, with all columns that it needs. Small results are cached: paths
and sizes, typed partition values, and the decoded statistics of the columns and files that a plan asked for. Statistics
as JSON and maps of partition values, which are most of a log, are not kept. A later plan that needs more statistics
reads the JSON again, and then decodes the missing columns for all files, so that the next plan need not.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile
from tamis.expr.nodes import Column
from tamis.formats.delta.checkpoint import FileColumn, KeepRowGroup, read_checkpoint_part
from tamis.formats.delta.log.actions import ADD
from tamis.formats.delta.log.log_segment import LogFile
from tamis.formats.delta.log.replay import FileChanges, is_untouched, make_action_keys
from tamis.formats.delta.planning.partition_values import (
    PartitionValues,
    encode_partition_values,
)
from tamis.formats.delta.schema import TableMetadata
from tamis.formats.delta.statistics.file_statistics import extract_num_records, make_statistics_metadata
from tamis.formats.file_rows import DELETION_VECTOR
from tamis.formats.source import MODIFIED
from tamis.io.storage import Storage
from tamis.io.weighted_cache import WeightedCache
from tamis.skipping.metadata import KINDS, ROW_COUNT, metadata_name
from tamis.tuning import DEFAULT_TUNING, Tuning

# --- The parts that hold the live files of a snapshot, each read independently and lazily ----------------------------
#
# The commits after the checkpoint are one part, which is in memory. Each Parquet file of the checkpoint is another one,
# read row group by row group. Each part excludes the files that newer commits add or remove, so that together the parts
# hold every live file exactly once.

FILES_PER_BATCH = 128 * 1024

KEY_COLUMNS = ("path", "deletion_vector")
"""The columns that `FilePart.find_live` needs."""


@dataclass(frozen=True, slots=True, eq=False)
class FilePart:
    """One part: a Parquet file of a checkpoint (`file`), or the files that JSON log files add (`changes`)."""

    storage: Storage = field(repr=False)
    source_key: Hashable
    """A key that identifies all files that the part adds. Later versions with the same checkpoint have the same key."""
    newer: Hashable
    """A key that identifies the commits after the checkpoint, which determine the files that are no longer live."""
    size: int
    """The size of the part in the log, in bytes."""
    file: LogFile | None = None
    changes: FileChanges | None = field(default=None, repr=False)
    touched: pa.Array | None = field(default=None, repr=False)
    """The keys of files that newer commits add or remove."""

    @property
    def key(self) -> Hashable:
        """A key that identifies the result of `read`."""
        return (self.source_key, None if self.touched is None or not len(self.touched) else self.newer)

    @property
    def path(self) -> str | None:
        """The path of the checkpoint's file in the file system; None for commits."""
        return None if self.file is None else self.file.path

    @property
    def location(self) -> str:
        """The location of the part, for messages."""
        return self.storage.format_path(self.file.path) if self.file is not None else f"commits of {self.storage.uri}"

    def read(
        self,
        columns: Collection[FileColumn] = tuple(ADD.names),
        keep_row_group: KeepRowGroup | None = None,
        *,
        live: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the live files, with the requested columns: see `read_checkpoint_part`. No batch is empty.

        Without `live`, yield all files that the part adds, so that later versions can reuse them and apply `find_live`.
        """
        touched = self.touched if live else None
        if self.changes is None:
            assert self.file is not None
            return read_checkpoint_part(
                self.storage,
                self.file.path,
                columns,
                size=self.file.size,
                modified_ns=self.file.modified_ns,
                touched=touched,
                keep_row_group=keep_row_group,
            )
        return _read_changes(self.changes, columns, touched, self.storage.tuning.max_statistics_bytes)

    def find_live(self, batch: pa.RecordBatch) -> pa.BooleanArray | None:
        """Return a mask of the live rows of a batch of all files; None for all rows. The batch has `KEY_COLUMNS`."""
        if self.touched is None or not len(self.touched):
            return None
        return is_untouched(make_action_keys(*(batch.column(name) for name in KEY_COLUMNS)), self.touched)


def _read_changes(
    changes: FileChanges, columns: Collection[FileColumn], touched: pa.Array | None, max_statistics_bytes: int
) -> Iterator[pa.RecordBatch]:
    names = {column if isinstance(column, str) else column[0] for column in columns}
    table = changes.added.select([name for name in ADD.names if name in names] or ["path"])
    stays = is_untouched(changes.added_keys, touched) if touched is not None and len(touched) else None
    if stays is not None:
        table = table.filter(stays)
    # Split by the row counts and JSON sizes of all files, not at chunk boundaries, so that batches of other columns
    # have the same rows.
    for start, end in pairwise(_find_cuts(changes, stays, max_statistics_bytes)):
        (batch,) = table.slice(start, end - start).combine_chunks().to_batches()
        yield batch


def _find_cuts(changes: FileChanges, stays: pa.ChunkedArray | None, max_bytes: int) -> list[int]:
    """Return the boundaries of batches: an Arrow string array holds at most 2 GiB, and statistics may be long."""
    texts = changes.added["stats"]
    rows = len(texts) if stays is None else pc.sum(stays).as_py() or 0
    if texts.nbytes <= max_bytes:
        return [*range(0, rows, FILES_PER_BATCH), rows] if rows else []
    lengths = pc.fill_null(pc.binary_length(texts if stays is None else texts.filter(stays)), 0)
    ends = np.cumsum(lengths.to_numpy().astype(np.int64))
    cuts = [0]
    while cuts[-1] < rows:
        before = int(ends[cuts[-1] - 1]) if cuts[-1] else 0
        fits = int(np.searchsorted(ends, before + max_bytes, side="right"))
        cuts.append(min(max(fits, cuts[-1] + 1), cuts[-1] + FILES_PER_BATCH))
    return cuts


# --- Cached batches of files of a log, with their decoded partition values, statistics and live masks -----------------

FILE_BATCH_CACHE = WeightedCache(capacity=DEFAULT_TUNING.max_cached_log_bytes)
"""The files of logs that this process has read and decoded."""

STATISTICS_BYTES_PER_FILE = 64
"""The approximate size of a column's decoded statistics, per file."""

FILE_COLUMNS = ("path", "size", "modification_time", "deletion_vector")
STATISTICS = ("stats", "stats_parsed")
PARTITION_VALUES = ("partition_values", "partition_values_parsed")

Bits = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DecodedStatistics:
    """The decoded statistics of a column for some files: `rows` are their positions, ascending; None for all files."""

    rows: Rows | None
    arrays: Mapping[str, pa.Array]

    def select(self, wanted: Rows) -> dict[str, pa.Array] | None:
        """Return the statistics of the wanted files; None if those of some files are not decoded."""
        if self.rows is None:
            if all(len(array) == len(wanted) for array in self.arrays.values()):
                return dict(self.arrays)
            indices = pa.array(wanted)
        else:
            positions = np.searchsorted(self.rows, wanted)
            if len(wanted) and (positions[-1] >= len(self.rows) or not np.array_equal(self.rows[positions], wanted)):
                return None
            indices = pa.array(positions)
        return {name: array.take(indices) for name, array in self.arrays.items()}

    def merge(self, other: DecodedStatistics) -> DecodedStatistics:
        """Return the union of both."""
        if self.rows is None or other.rows is None or self.arrays.keys() != other.arrays.keys():
            return other if other.rows is None and self.rows is not None else self
        rows, positions = np.unique(np.concatenate([self.rows, other.rows]), return_index=True)
        indices = pa.array(positions)
        both = {name: pa.concat_arrays([array, other.arrays[name]]) for name, array in self.arrays.items()}
        return DecodedStatistics(rows, {name: array.take(indices) for name, array in both.items()})

    @property
    def weight(self) -> int:
        own = 0 if self.rows is None else self.rows.nbytes
        return own + sum(int(array.nbytes) for array in self.arrays.values())


@dataclass(frozen=True, eq=False)
class FileBatch:
    """A batch of the files of one part. It is thread-safe."""

    number: int
    metadata: TableMetadata
    files: pa.RecordBatch
    """`path`, `size` and `modified`, and `deletion_vector` where some file has one."""
    partition_values: PartitionValues
    identity: object = field(default_factory=object, repr=False)
    """A value that no other batch has, for keys that do not keep this batch in memory."""
    known: dict[Column | None, DecodedStatistics] = field(default_factory=dict, repr=False)
    """The decoded statistics by column; the key None holds the row counts, since no column can have that name."""
    _lock: Lock = field(default_factory=Lock, repr=False)

    @property
    def rows(self) -> int:
        return int(self.files.num_rows)

    def find_live(self, part: FilePart) -> Bits:
        """Return a mask of the files that are live in the version of `part`.

        `part` has the same source as this batch, but may have other newer commits.
        """
        found = part.find_live(self._select_key_columns())
        return np.ones(self.rows, bool) if found is None else np.asarray(found)

    def _select_key_columns(self) -> pa.RecordBatch:
        vectors = self._get_deletion_vectors()
        return pa.record_batch([self.files.column("path"), vectors], names=list(KEY_COLUMNS))

    def _get_deletion_vectors(self) -> pa.StructArray:
        has_any = "deletion_vector" in self.files.schema.names
        return self.files.column("deletion_vector") if has_any else pa.nulls(self.rows, DELETION_VECTOR)

    def read_statistics(self, columns: Sequence[Column], wanted: Rows, log: LogColumns) -> dict[str, pa.Array]:
        """Return the row counts of some files, and their statistics of `columns`."""
        found: dict[str, pa.Array] = {}
        if not len(wanted):
            return found
        missing: list[Column | None] = []
        for column in (None, *columns):
            known = self.known.get(column)
            own = None if known is None else known.select(wanted)
            if own is None:
                missing.append(column)
            else:
                found |= own
        if missing:
            rows = None if len(wanted) >= log.min_share_to_decode_all * self.rows else wanted
            decoded = self._decode([column for column in missing if column is not None], rows, log)
            for column in missing:
                new = DecodedStatistics(rows, _select_column(decoded, column))
                found |= new.select(wanted) or {}
                with self._lock:
                    before = self.known.get(column)
                    self.known[column] = new if before is None else new.merge(before)
        return found

    def _decode(self, columns: Sequence[Column], rows: Rows | None, log: LogColumns) -> dict[str, pa.Array]:
        batch = log.batch(self.number, self.rows, STATISTICS)
        texts, parsed = (batch.column(name) if name in batch.schema.names else None for name in STATISTICS)
        if rows is not None:
            indices = pa.array(rows)
            texts, parsed = (None if each is None else each.take(indices) for each in (texts, parsed))
        if not columns:
            return {ROW_COUNT.name: extract_num_records(texts, parsed)}
        return make_statistics_metadata(texts, parsed, columns, self.metadata)

    def select_files(self, wanted: Rows, row_counts: pa.Array | None) -> pa.Table:
        """Return the files at these positions, with their row counts where known."""
        rows = pa.array(wanted)
        files = self.files if len(wanted) == self.rows else self.files.take(rows)
        has_vectors = "deletion_vector" in files.schema.names
        records = pa.nulls(len(wanted), types.LONG) if row_counts is None else row_counts
        return pa.table(
            {
                "path": files.column("path"),
                "size": files.column("size"),
                "modified": files.column("modified"),
                "deletion_vector": files.column("deletion_vector")
                if has_vectors
                else pa.nulls(len(wanted), DELETION_VECTOR),
                "num_records": records,
                "logical_rows": compute_logical_rows(records, self.count_deleted(rows)) if has_vectors else records,
            }
        )

    def count_deleted(self, rows: pa.Array) -> pa.Array:
        """Return the number of deleted rows of the files at these positions; null where a vector has no cardinality."""
        if "deletion_vector" not in self.files.schema.names:
            return pa.array(np.zeros(len(rows), np.int64))
        vectors = self.files.column("deletion_vector").take(rows)
        return pc.if_else(vectors.is_valid(), pc.struct_field(vectors, "cardinality"), pa.scalar(0, types.LONG))

    @property
    def weight(self) -> int:
        with self._lock:
            known = sum(each.weight for each in self.known.values())
        return int(self.files.nbytes + self.partition_values.weight + known)


def compute_logical_rows(records: pa.Array, deleted: pa.Array) -> pa.Array:
    """Return the row counts of files after deletes; null where a vector would delete more rows than there are."""
    left = pc.subtract(records, deleted)
    return pc.if_else(pc.less(left, 0), pa.scalar(None, types.LONG), left)


class LogColumns:
    """Columns of a part of the log, read lazily, batch by batch; `read` is a batch that was just read.

    Going back to an earlier batch reads the part again.
    """

    def __init__(self, part: FilePart, *, decode_all: bool = False, read: pa.RecordBatch | None = None) -> None:
        self._part = part
        self.min_share_to_decode_all = 0.0 if decode_all else part.storage.tuning.min_share_to_decode_all
        """The share of a batch's files from which on the statistics of the whole batch are decoded."""
        self._read = read
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._batch: pa.RecordBatch | None = None
        self._number = -1
        self._columns: Sequence[str] | None = None

    def batch(self, number: int, rows: int, columns: Sequence[str]) -> pa.RecordBatch:
        if self._read is not None:
            return self._read
        is_past = number < self._number or (number == self._number and self._batch is None)
        if is_past or columns != self._columns:
            self._columns, self._number = columns, -1
            self._batches = self._part.read(columns, live=False)
        for _ in range(number - self._number):
            self._batch = next(self._batches, None)
        self._number = number
        if self._batch is None or self._batch.num_rows != rows:
            # Cached statistics belong to files by position, so the batches must be the same as before.
            raise CorruptFile(
                f"'{self._part.location}' changed while it was in use: it lists other files than before. "
                "Open the table again"
            )
        return self._batch

    def done(self) -> None:
        """Release the current batch: it is not read again."""
        self._read = self._batch = None

    def close(self) -> None:
        """Release everything: later batches are not read either."""
        # A reader holds the bytes of its current row group.
        self._batches, self._columns = iter(()), None
        self.done()


def _make_key(part: FilePart, metadata: TableMetadata) -> Hashable:
    # Statistics belong to files by their position in a batch, so a cached batch fits only the same sizes of batches.
    tuning = part.storage.tuning
    sizes = (tuning.max_batch_rows, tuning.max_batch_bytes, tuning.max_statistics_bytes)
    return ("files", part.source_key, metadata.schema_text, metadata.partition_columns, metadata.mapping_mode, sizes)


def get_cached_batches(part: FilePart, metadata: TableMetadata) -> list[FileBatch] | None:
    """Return the cached batches of a part; None if it is not cached."""
    try:
        found: list[FileBatch] = FILE_BATCH_CACHE.get(_make_key(part, metadata))
    except KeyError:
        return None
    return found


def has_room_for_statistics(files: int, columns: int, tuning: Tuning) -> bool:
    """Return whether the cache has room for the statistics of so many files and columns without evicting others."""
    return FILE_BATCH_CACHE.has_room(files * columns * STATISTICS_BYTES_PER_FILE, tuning.max_cached_log_bytes)


def cache_batches(part: FilePart, metadata: TableMetadata, batches: list[FileBatch]) -> None:
    """Cache the batches of a part, with all that is decoded so far, if they fit."""
    capacity = part.storage.tuning.max_cached_log_bytes
    FILE_BATCH_CACHE.put(_make_key(part, metadata), batches, sum(batch.weight for batch in batches), capacity)


def read_batches(
    part: FilePart, metadata: TableMetadata, columns: Sequence[str], keep_row_group: KeepRowGroup | None = None
) -> Iterator[tuple[FileBatch, LogColumns]]:
    """Yield the batches of a part as they are read, each with the columns of the log that were read for it."""
    for number, batch in enumerate(part.read(columns, keep_row_group, live=False)):
        yield _make_batch(number, metadata, batch), LogColumns(part, read=batch)


def _make_batch(number: int, metadata: TableMetadata, batch: pa.RecordBatch) -> FileBatch:
    values, parsed = (batch.column(name) if name in batch.schema.names else None for name in PARTITION_VALUES)
    partition_values = encode_partition_values(values, parsed, metadata)
    files = {name: batch.column(name) for name in ("path", "size")}
    files["modified"] = _to_timestamps(batch.column("modification_time"))
    if batch.column("deletion_vector").null_count < batch.num_rows:
        files["deletion_vector"] = batch.column("deletion_vector")
    return FileBatch(number, metadata, pa.record_batch(files), partition_values)


def _to_timestamps(milliseconds: pa.Array) -> pa.Array:
    """Return times in milliseconds since 1970 as timestamps; null for those that no timestamp can hold."""
    most = pa.scalar((2**63 - 1) // 1000, types.LONG)
    is_known = pc.and_(pc.less_equal(milliseconds, most), pc.greater_equal(milliseconds, pc.negate(most)))
    return pc.multiply(pc.if_else(is_known, milliseconds, pa.scalar(None, types.LONG)), 1000).cast(MODIFIED)


def _select_column(decoded: Mapping[str, pa.Array], column: Column | None) -> dict[str, pa.Array]:
    """Return the decoded statistics of one column (None: the row counts), by metadata name."""
    if column is None:
        return {ROW_COUNT.name: decoded[ROW_COUNT.name]}
    names = [metadata_name(kind, column.path) for kind in KINDS]
    return {name: decoded[name] for name in names if name in decoded}
