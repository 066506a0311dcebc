"""Files of a log in batches, with what was decoded of them: partition values, statistics, which of them are live.

A piece of a log is read batch by batch the first time, with all that is asked for. What is small stays in memory while
there is room: paths and sizes, typed partition values, and of statistics the columns and the files that somebody asked
about. Texts of statistics and maps of partition values, which are most of a log, are let go. A later plan that asks for
more reads the texts again, and then decodes what it lacks of all files, so that the one after it need not.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile
from tamis.expr.nodes import Column
from tamis.io.weighted_cache import WeightedCache
from tamis.skipping.metadata import KINDS, ROW_COUNT, metadata_name
from tamis.tables.delta.actions import DELETION_VECTOR
from tamis.tables.delta.checkpoint_rows import KeepRowGroup
from tamis.tables.delta.file_parts import KEY_COLUMNS, FilePart
from tamis.tables.delta.partition_values import partition_texts, typed_partition_values
from tamis.tables.delta.schema import TableMetadata
from tamis.tables.delta.statistics import num_records, statistics_metadata

LIVE_FILES = WeightedCache(capacity=512 * 1024 * 1024)
"""What this process has read of logs, and decoded."""

WORTH_KEEPING = 0.25
"""Where at least this share of the files of a batch is asked about, the statistics of all of them are decoded."""

BYTES_OF_STATISTICS = 64
"""What the decoded statistics of a column take for each file, about."""

STATISTICS = ("stats", "stats_parsed")
PARTITION_VALUES = ("partition_values", "partition_values_parsed")

Bits = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a column in some files: `rows` are their numbers, ascending; None for all files."""

    rows: Rows | None
    arrays: Mapping[str, pa.Array]

    def of(self, wanted: Rows) -> dict[str, pa.Array] | None:
        """The same of the files that are wanted; None where some of them are not known."""
        if self.rows is None:
            if all(len(array) == len(wanted) for array in self.arrays.values()):
                return dict(self.arrays)
            taken = pa.array(wanted)
        else:
            places = np.searchsorted(self.rows, wanted)
            if len(wanted) and (places[-1] >= len(self.rows) or not np.array_equal(self.rows[places], wanted)):
                return None
            taken = pa.array(places)
        return {name: array.take(taken) for name, array in self.arrays.items()}

    def joined(self, other: Known) -> Known:
        """What either of the two knows."""
        if self.rows is None or other.rows is None or self.arrays.keys() != other.arrays.keys():
            return other if other.rows is None and self.rows is not None else self
        rows, places = np.unique(np.concatenate([self.rows, other.rows]), return_index=True)
        taken = pa.array(places)
        both = {name: pa.concat_arrays([array, other.arrays[name]]) for name, array in self.arrays.items()}
        return Known(rows, {name: array.take(taken) for name, array in both.items()})

    @property
    def weight(self) -> int:
        own = 0 if self.rows is None else self.rows.nbytes
        return own + sum(int(array.nbytes) for array in self.arrays.values())


@dataclass(frozen=True, eq=False)
class FileBatch:
    """Files of a piece of a log. Any number of threads may use it."""

    number: int
    """Which batch of its piece it is."""
    metadata: TableMetadata
    files: pa.RecordBatch
    """`path` and `size`, and `deletion_vector` where some file has one."""
    partitions: pa.Table
    """The typed partition values; NULL where `wrong` has a text."""
    wrong: Mapping[str, pa.StringArray] = field(default_factory=dict, repr=False)
    """Partition columns with texts that their types cannot represent: see `TypedPartitionValues`."""
    known: dict[Column | None, Known] = field(default_factory=dict, repr=False)
    """What was decoded of columns of the table; under None the numbers of rows, since a column may be called so too."""
    _live: dict[Hashable, Bits] = field(default_factory=dict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    @property
    def rows(self) -> int:
        return int(self.files.num_rows)

    def live(self, part: FilePart) -> Bits:
        """Which files are live in the version of a piece, which is this one's but for what newer commits say."""
        with self._lock:
            mask = self._live.get(part.key)
        if mask is None:
            found = part.live(self._keyed())
            mask = np.ones(self.rows, bool) if found is None else np.asarray(found)
            with self._lock:
                # Of one version only: each takes a byte a file, and few look at several in turn.
                self._live.clear()
                self._live[part.key] = mask
        return mask.copy()

    def _keyed(self) -> pa.RecordBatch:
        vectors = self._vectors()
        return pa.record_batch([self.files.column("path"), vectors], names=list(KEY_COLUMNS))

    def _vectors(self) -> pa.StructArray:
        has_any = "deletion_vector" in self.files.schema.names
        return self.files.column("deletion_vector") if has_any else pa.nulls(self.rows, DELETION_VECTOR)

    def texts(self, log: LogColumns) -> pa.RecordBatch:
        """The partition values as they are in the log, by the names of the table; an empty text is NULL."""
        values = log.batch(self.number, self.rows, PARTITION_VALUES[:1]).column("partition_values")
        return pa.record_batch(partition_texts(values, self.metadata) or {"": pa.nulls(self.rows, types.STRING)})

    def statistics(self, columns: Sequence[Column], wanted: Rows, log: LogColumns) -> dict[str, pa.Array]:
        """The metadata of some files: their rows, and what is known of columns."""
        found: dict[str, pa.Array] = {}
        if not len(wanted):
            return found
        missing: list[Column | None] = []
        for column in (None, *columns):
            known = self.known.get(column)
            own = None if known is None else known.of(wanted)
            if own is None:
                missing.append(column)
            else:
                found |= own
        if missing:
            rows = None if log.decode_all or len(wanted) >= WORTH_KEEPING * self.rows else wanted
            decoded = self._decode([column for column in missing if column is not None], rows, log)
            for column in missing:
                made = Known(rows, _of_column(decoded, column))
                found |= made.of(wanted) or {}
                with self._lock:
                    before = self.known.get(column)
                    self.known[column] = made if before is None else made.joined(before)
        return found

    def _decode(self, columns: Sequence[Column], rows: Rows | None, log: LogColumns) -> dict[str, pa.Array]:
        batch = log.batch(self.number, self.rows, STATISTICS)
        texts, parsed = (batch.column(name) if name in batch.schema.names else None for name in STATISTICS)
        if rows is not None:
            taken = pa.array(rows)
            texts, parsed = (None if each is None else each.take(taken) for each in (texts, parsed))
        if not columns:
            return {ROW_COUNT.name: num_records(texts, parsed)}
        return statistics_metadata(texts, parsed, columns, self.metadata)

    def chosen(self, taken: Rows, counted: pa.Array | None) -> pa.Table:
        """Files by their numbers, with the rows of each where they are known."""
        rows = pa.array(taken)
        files = self.files if len(taken) == self.rows else self.files.take(rows)
        has_vectors = "deletion_vector" in files.schema.names
        records = pa.nulls(len(taken), types.LONG) if counted is None else counted
        return pa.table(
            {
                "path": files.column("path"),
                "size": files.column("size"),
                "deletion_vector": files.column("deletion_vector")
                if has_vectors
                else pa.nulls(len(taken), DELETION_VECTOR),
                "num_records": records,
                "logical_rows": logical_rows(records, self.deleted(rows)) if has_vectors else records,
            }
        )

    def deleted(self, rows: pa.Array) -> pa.Array:
        """How many rows are deleted of files by their numbers; null where a vector does not say how many it deletes."""
        if "deletion_vector" not in self.files.schema.names:
            return pa.array(np.zeros(len(rows), np.int64))
        vectors = self.files.column("deletion_vector").take(rows)
        return pc.if_else(vectors.is_valid(), pc.struct_field(vectors, "cardinality"), pa.scalar(0, types.LONG))

    @property
    def weight(self) -> int:
        wrong = sum(int(texts.nbytes) for texts in self.wrong.values())
        known = sum(each.weight for each in self.known.values())
        return int(self.files.nbytes + self.partitions.nbytes + wrong + known)


def logical_rows(records: pa.Array, deleted: pa.Array) -> pa.Array:
    """The rows that files have after deletes; unknown where a vector claims to delete more than there are."""
    left = pc.subtract(records, deleted)
    return pc.if_else(pc.less(left, 0), pa.scalar(None, types.LONG), left)


class LogColumns(Protocol):
    """What a batch of files may read of the log."""

    @property
    def decode_all(self) -> bool:
        """Whether statistics are decoded of all files of a batch, where some of them are asked for."""
        ...

    def batch(self, number: int, rows: int, columns: Sequence[str]) -> pa.RecordBatch: ...

    def done(self) -> None:
        """Nobody asks for this batch again."""
        ...

    def close(self) -> None:
        """Nobody asks for a later batch either."""
        ...


@dataclass(slots=True)
class ReadColumns:
    """What was just read."""

    read: pa.RecordBatch | None
    decode_all: bool = False

    def batch(self, number: int, rows: int, columns: Sequence[str]) -> pa.RecordBatch:
        assert self.read is not None, "the batch was done"
        return self.read

    def done(self) -> None:
        self.read = None

    def close(self) -> None:
        self.read = None


class ReadAgain:
    """Columns of a piece of a log, batch by batch, read when they are asked for. To go back costs a reading."""

    def __init__(self, part: FilePart, *, decode_all: bool = False) -> None:
        self._part = part
        self._decode_all = decode_all
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._batch: pa.RecordBatch | None = None
        self._number = -1
        self._columns: Sequence[str] | None = None

    @property
    def decode_all(self) -> bool:
        return self._decode_all

    def batch(self, number: int, rows: int, columns: Sequence[str]) -> pa.RecordBatch:
        is_past = number < self._number or (number == self._number and self._batch is None)
        if is_past or columns != self._columns:
            self._columns, self._number = columns, -1
            self._batches = self._part.read_source(columns)
        for _ in range(number - self._number):
            self._batch = next(self._batches, None)
        self._number = number
        if self._batch is None or self._batch.num_rows != rows:
            # What is known of files belongs to them by their numbers.
            raise CorruptFile(f"'{self._part.place}' has other files than before: it changed while it was in use")
        return self._batch

    def done(self) -> None:
        self._batch = None

    def close(self) -> None:
        # A reader holds the bytes of the row group in which it is.
        self._batches, self._batch, self._columns = iter(()), None, None


def _key(part: FilePart, metadata: TableMetadata) -> Hashable:
    return ("files", part.source_key, metadata.schema_text, metadata.partition_columns, metadata.mapping_mode)


def kept_batches(part: FilePart, metadata: TableMetadata) -> list[FileBatch] | None:
    """The files of a piece that are in memory; None where they are not."""
    try:
        found: list[FileBatch] = LIVE_FILES.get(_key(part, metadata))
    except KeyError:
        return None
    return found


def has_room_for_statistics(files: int, columns: int) -> bool:
    """Whether the statistics of columns can be kept for so many files, without forgetting others."""
    return LIVE_FILES.has_room(files * columns * BYTES_OF_STATISTICS)


def keep_batches(part: FilePart, metadata: TableMetadata, batches: list[FileBatch]) -> None:
    """Keep the files of a piece, with what is known of them now, if they fit."""
    LIVE_FILES.put(_key(part, metadata), batches, sum(batch.weight for batch in batches))


def read_batches(
    part: FilePart, metadata: TableMetadata, columns: Sequence[str], keep_row_group: KeepRowGroup | None = None
) -> Iterator[tuple[FileBatch, LogColumns]]:
    """The files of a piece as they are read, each batch with what was read of the log."""
    for number, batch in enumerate(part.read_source(columns, keep_row_group)):
        yield _made(number, metadata, batch), ReadColumns(batch)


def _made(number: int, metadata: TableMetadata, batch: pa.RecordBatch) -> FileBatch:
    values, parsed = (batch.column(name) if name in batch.schema.names else None for name in PARTITION_VALUES)
    partitions = typed_partition_values(values, parsed, metadata)
    names = ["path", "size"]
    if batch.column("deletion_vector").null_count < batch.num_rows:
        names.append("deletion_vector")
    return FileBatch(number, metadata, batch.select(names), partitions.values, partitions.wrong)


def _of_column(decoded: Mapping[str, pa.Array], column: Column | None) -> dict[str, pa.Array]:
    """What was decoded of one column (None: the numbers of rows), by the names of its metadata."""
    if column is None:
        return {ROW_COUNT.name: decoded[ROW_COUNT.name]}
    names = [metadata_name(kind, column.path) for kind in KINDS]
    return {name: decoded[name] for name in names if name in decoded}
