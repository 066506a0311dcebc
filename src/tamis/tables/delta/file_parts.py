"""The pieces of which the live files of a snapshot come, each read by itself and only as far as it is needed.

Commits after the checkpoint make one piece, which is in memory; each Parquet file of the checkpoint is another, read
row group by row group. What newer commits say of a file that a piece adds is taken into account, so that the pieces
together tell every live file once.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.io.storage import Storage
from tamis.parquet.batches import MOST_ROWS
from tamis.tables.delta.actions import ADD
from tamis.tables.delta.checkpoint_rows import Column, KeepRowGroup, read_checkpoint_part
from tamis.tables.delta.log import LogFile
from tamis.tables.delta.replay import FileChanges, still_holds
from tamis.tables.delta.replay_keys import replay_keys

MOST_TEXT = 1024 * 1024 * 1024
"""How many bytes of statistics are in one batch of the files that commits add."""

KEY_COLUMNS = ("path", "deletion_vector")
"""The columns that `FilePart.live` looks at."""


@dataclass(frozen=True, slots=True, eq=False)
class FilePart:
    """One piece: a Parquet file of a checkpoint (`file`), or what lines of JSON add (`changes`)."""

    storage: Storage = field(repr=False)
    source_key: Hashable
    """Stands for what `read_source` gives. It is the same in later versions that come of the same checkpoint."""
    newer: Hashable
    """Stands for the commits after the checkpoint, which say what is no longer live."""
    size: int
    """How many bytes it has in the log."""
    file: LogFile | None = None
    changes: FileChanges | None = field(default=None, repr=False)
    touched: pa.Array | None = field(default=None, repr=False)
    """The keys of files of which newer commits speak."""

    @property
    def key(self) -> Hashable:
        """Stands for what `read` gives."""
        return (self.source_key, self.newer if self._is_touched else None)

    @property
    def path(self) -> str | None:
        """The file of the checkpoint in the file system; None for commits."""
        return None if self.file is None else self.file.path

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return self.storage.place(self.file.path) if self.file is not None else f"commits of {self.storage.uri}"

    @property
    def _is_touched(self) -> bool:
        return self.touched is not None and len(self.touched) > 0

    def read(
        self, columns: Collection[Column] = tuple(ADD.names), keep_row_group: KeepRowGroup | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The live files, with the columns asked for: see `read_checkpoint_part`. No batch is empty."""
        return self._read(columns, keep_row_group, self.touched)

    def read_source(
        self, columns: Collection[Column] = tuple(ADD.names), keep_row_group: KeepRowGroup | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The files that the piece adds, be they live or not: it can be kept for later versions, and `live` chooses."""
        return self._read(columns, keep_row_group, None)

    def live(self, batch: pa.RecordBatch) -> pa.BooleanArray | None:
        """Which rows of `read_source` are live; None for all. The batch has the columns `KEY_COLUMNS`."""
        if self.touched is None or not len(self.touched):
            return None
        return still_holds(replay_keys(*(batch.column(name) for name in KEY_COLUMNS)), self.touched)

    def _read(
        self, columns: Collection[Column], keep_row_group: KeepRowGroup | None, touched: pa.Array | None
    ) -> Iterator[pa.RecordBatch]:
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
        return _read_changes(self.changes, columns, touched)


def _read_changes(
    changes: FileChanges, columns: Collection[Column], touched: pa.Array | None
) -> Iterator[pa.RecordBatch]:
    names = {column if isinstance(column, str) else column[0] for column in columns}
    table = changes.added.select([name for name in ADD.names if name in names] or ["path"])
    stays = still_holds(changes.added_keys, touched) if touched is not None and len(touched) else None
    if stays is not None:
        table = table.filter(stays)
    # Cut by the rows and the texts of all files and not where chunks end, so that batches of other columns have the
    # same rows.
    for start, end in pairwise(_cuts(changes, stays)):
        (batch,) = table.slice(start, end - start).combine_chunks().to_batches()
        yield batch


def _cuts(changes: FileChanges, stays: pa.ChunkedArray | None) -> list[int]:
    """Where batches begin and end: an array of Arrow holds 2 GiB of text at most, and statistics may be long."""
    texts = changes.added["stats"]
    rows = len(texts) if stays is None else pc.sum(stays).as_py() or 0
    if texts.nbytes <= MOST_TEXT:
        return [*range(0, rows, MOST_ROWS), rows] if rows else []
    lengths = pc.fill_null(pc.binary_length(texts if stays is None else texts.filter(stays)), 0)
    ends = np.cumsum(lengths.to_numpy().astype(np.int64))
    cuts = [0]
    while cuts[-1] < rows:
        before = int(ends[cuts[-1] - 1]) if cuts[-1] else 0
        fits = int(np.searchsorted(ends, before + MOST_TEXT, side="right"))
        cuts.append(min(max(fits, cuts[-1] + 1), cuts[-1] + MOST_ROWS))
    return cuts
