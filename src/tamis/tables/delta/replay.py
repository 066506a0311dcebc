"""Replay: of all actions about the same file the newest one holds.

Actions are rows in the order of the log, so the newest is the one in the last row. What commits say about files is
worked out once, in memory, by one look-up of every key among all keys. What a checkpoint says then holds for files of
which no commit after it speaks, and that is asked of every batch by itself.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import CorruptFile
from tamis.tables.delta.actions import ADD
from tamis.tables.delta.commits import ActionLines
from tamis.tables.delta.replay_keys import replay_keys


@dataclass(frozen=True, slots=True, eq=False)
class FileChanges:
    """What a run of commits did to the files of a table, whatever was there before."""

    added: pa.Table
    """The files that are there at the end because of them: the columns are `ADD`."""
    added_keys: pa.ChunkedArray
    touched: pa.Array
    """The keys of all files that they speak of. What an older source says of those no longer holds."""
    identity: Hashable = field(default_factory=object, repr=False)
    """Stands for these very rows in this order: the same commits may be put together in another one."""

    @property
    def weight(self) -> int:
        """How many bytes it takes, about."""
        return int(self.added.nbytes + self.added_keys.nbytes + self.touched.nbytes)

    @staticmethod
    def none() -> FileChanges:
        return FileChanges(ADD.empty_table(), pa.chunked_array([], pa.binary()), pa.array([], pa.binary()))

    def then(self, newer: FileChanges) -> FileChanges:
        """These changes followed by newer ones."""
        if not len(newer.touched):
            return self
        stays = still_holds(self.added_keys, newer.touched)
        added, keys = self.added, self.added_keys
        if not pc.all(stays, min_count=0).as_py():
            added, keys = added.filter(stays), keys.filter(stays)
        older = self.touched.filter(still_holds(self.touched, newer.touched))
        return FileChanges(
            pa.concat_tables([added, newer.added]),
            pa.chunked_array([*keys.chunks, *newer.added_keys.chunks], pa.binary()),
            pa.concat_arrays([older, newer.touched]),
        )


def still_holds(keys: pa.Array | pa.ChunkedArray, touched: pa.Array) -> pa.Array | pa.ChunkedArray:
    """For each key whether nothing newer speaks of it."""
    return pc.invert(pc.is_in(keys, value_set=touched))


def reconcile(actions: pa.Table, lines: ActionLines) -> FileChanges:
    """The changes that actions amount to; `actions` are those of `lines`, from old to new.

    A file that one commit adds twice is a CorruptFile: nobody knows which of the two holds. So is a compaction that
    speaks of one file twice: it should be reconciled, and the order of its actions is not that of its commits.
    """
    if not actions.num_rows:
        return FileChanges.none()
    pairs = actions.select(["path", "deletion_vector"]).to_batches()
    keys = pa.concat_arrays([replay_keys(*batch.columns) for batch in pairs])
    holds, touched = actions["is_add"], keys
    _refuse_not_reconciled(actions, keys, lines)
    rows = np.arange(len(keys))
    first_rows = pc.index_in(keys, value_set=keys).to_numpy()
    if not np.array_equal(first_rows, rows):
        _refuse_twice_added(actions, keys, lines)
        last_rows = np.zeros(len(keys), np.int64)
        np.maximum.at(last_rows, first_rows, rows)
        holds = pc.and_(holds, pa.array(last_rows[first_rows] == rows))
        touched = keys.filter(pa.array(first_rows == rows))
    added, added_keys = actions.select(ADD.names), keys
    if not pc.all(holds).as_py():
        added, added_keys = added.filter(holds), keys.filter(_one_array(holds))
    return FileChanges(added.combine_chunks(), pa.chunked_array([added_keys]), touched)


def _one_array(values: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(values.chunks)


def _refuse_not_reconciled(actions: pa.Table, keys: pa.Array, lines: ActionLines) -> None:
    compactions = [number for number, file in enumerate(lines.files) if file.is_compaction]
    if not compactions:
        return
    about = pa.table({"key": keys, "path": actions["path"], "origin": actions["origin"], "is_add": actions["is_add"]})
    about = about.filter(pc.is_in(actions["origin"], value_set=pa.array(compactions, pa.int32())))
    by_key = about.group_by(["origin", "key"], use_threads=False).aggregate([("path", "min"), ("path", "count")])
    # A file is live with one deletion vector at most.
    added = about.filter(about["is_add"]).group_by(["origin", "path"], use_threads=False)
    by_path = added.aggregate([("path", "min"), ("path", "count")])
    for counts in (by_key, by_path):
        twice = counts.filter(pc.greater(counts["path_count"], 1))
        if twice.num_rows:
            first = twice.sort_by("origin").slice(0, 1).to_pylist()[0]
            raise CorruptFile(
                f"the compaction '{lines.place(first['origin'])}' is not reconciled: it has {first['path_count']} "
                f"actions about the file {first['path_min']!r}. Its commits are read instead where they are all there"
            )


def _refuse_twice_added(actions: pa.Table, keys: pa.Array, lines: ActionLines) -> None:
    added = pa.table({"key": keys, "path": actions["path"], "origin": actions["origin"]}).filter(actions["is_add"])
    counts = added.group_by(["key", "origin"], use_threads=False).aggregate([("path", "min"), ("path", "count")])
    twice = counts.filter(pc.greater(counts["path_count"], 1))
    if twice.num_rows:
        first = twice.sort_by("origin").slice(0, 1).to_pylist()[0]
        raise CorruptFile(
            f"'{lines.place(first['origin'])}' adds the file {first['path_min']!r} {first['path_count']} times, so it "
            "is not clear which of its entries holds"
        )
