"""The parts that hold the live files of a snapshot, each read independently and lazily.

The commits after the checkpoint are one part, which is in memory. Each Parquet file of the checkpoint is another part,
read row group by row group. Each part excludes the files that newer commits add or remove, so that together the parts
hold every live file exactly once.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.formats.delta.checkpoint.checkpoint_rows import FileColumn, KeepRowGroup, read_checkpoint_part
from tamis.formats.delta.log.actions import ADD
from tamis.formats.delta.log.log_segment import LogFile
from tamis.formats.delta.log.replay import FileChanges, is_untouched, make_action_keys
from tamis.io.storage import Storage

FILES_PER_BATCH = 128 * 1024
"""The maximum number of files of a log in one batch."""

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
