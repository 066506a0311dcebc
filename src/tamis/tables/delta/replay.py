"""Action reconciliation: of all actions with the same key, the newest one holds.

Actions are rows in the order of the log, so the newest action of a key is the one in the last row. Commits are
reconciled in memory, by one look-up of every key among all keys. An `add` of a checkpoint then holds if no later commit
has an action with its key, which is tested batch by batch.
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
from tamis.tables.delta.replay_keys import make_action_keys


@dataclass(frozen=True, slots=True, eq=False)
class FileChanges:
    """The reconciled file actions of a run of commits."""

    added: pa.Table
    """The files that the commits add and do not remove, with the columns `ADD`."""
    added_keys: pa.ChunkedArray
    touched: pa.Array
    """The keys of all files that the commits add or remove. Older actions with these keys no longer hold."""
    identity: Hashable = field(default_factory=object, repr=False)
    """A key that identifies these rows in this order: the same commits may be reconciled in another order."""

    @property
    def weight(self) -> int:
        """The approximate size in memory, in bytes."""
        return int(self.added.nbytes + self.added_keys.nbytes + self.touched.nbytes)

    @staticmethod
    def none() -> FileChanges:
        return FileChanges(ADD.empty_table(), pa.chunked_array([], pa.binary()), pa.array([], pa.binary()))

    def then(self, newer: FileChanges) -> FileChanges:
        """Return these changes followed by newer ones."""
        if not len(newer.touched):
            return self
        stays = is_untouched(self.added_keys, newer.touched)
        added, keys = self.added, self.added_keys
        if not pc.all(stays, min_count=0).as_py():
            added, keys = added.filter(stays), keys.filter(stays)
        older = self.touched.filter(is_untouched(self.touched, newer.touched))
        return FileChanges(
            pa.concat_tables([added, newer.added]),
            pa.chunked_array([*keys.chunks, *newer.added_keys.chunks], pa.binary()),
            pa.concat_arrays([older, newer.touched]),
        )


def is_untouched(keys: pa.Array | pa.ChunkedArray, touched: pa.Array) -> pa.Array | pa.ChunkedArray:
    """Return for each key whether it is not among the keys that newer commits touch."""
    return pc.invert(pc.is_in(keys, value_set=touched))


def reconcile(actions: pa.Table, lines: ActionLines) -> FileChanges:
    """Reconcile the file actions of `lines`, given as `actions` from old to new.

    A commit that adds one file twice raises CorruptFile: it is unknown which of the two actions holds. So does a
    compaction with two actions of one file: compactions are reconciled already, and the order of their actions is not
    that of their commits.
    """
    if not actions.num_rows:
        return FileChanges.none()
    pairs = actions.select(["path", "deletion_vector"]).to_batches()
    keys = pa.concat_arrays([make_action_keys(*batch.columns) for batch in pairs])
    holds, touched = actions["is_add"], keys
    _check_compactions(actions, keys, lines)
    rows = np.arange(len(keys))
    first_rows = pc.index_in(keys, value_set=keys).to_numpy()
    if not np.array_equal(first_rows, rows):
        _check_duplicate_adds(actions, keys, lines)
        last_rows = np.zeros(len(keys), np.int64)
        np.maximum.at(last_rows, first_rows, rows)
        holds = pc.and_(holds, pa.array(last_rows[first_rows] == rows))
        touched = keys.filter(pa.array(first_rows == rows))
    added, added_keys = actions.select(ADD.names), keys
    if not pc.all(holds).as_py():
        added, added_keys = added.filter(holds), keys.filter(_concatenate(holds))
    return FileChanges(added.combine_chunks(), pa.chunked_array([added_keys]), touched)


def _concatenate(values: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(values.chunks)


def _check_compactions(actions: pa.Table, keys: pa.Array, lines: ActionLines) -> None:
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
                f"the compaction '{lines.location(first['origin'])}' is not reconciled: it has {first['path_count']} "
                f"actions for the file {first['path_min']!r}. Its commits are read instead where all of them exist"
            )


def _check_duplicate_adds(actions: pa.Table, keys: pa.Array, lines: ActionLines) -> None:
    added = pa.table({"key": keys, "path": actions["path"], "origin": actions["origin"]}).filter(actions["is_add"])
    counts = added.group_by(["key", "origin"], use_threads=False).aggregate([("path", "min"), ("path", "count")])
    twice = counts.filter(pc.greater(counts["path_count"], 1))
    if twice.num_rows:
        first = twice.sort_by("origin").slice(0, 1).to_pylist()[0]
        raise CorruptFile(
            f"'{lines.location(first['origin'])}' adds the file {first['path_min']!r} {first['path_count']} times, so it "
            "is not clear which of its entries holds"
        )
