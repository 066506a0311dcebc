"""Action reconciliation: of all actions with the same key, the newest one holds.

Actions are rows in the order of the log, so the newest action of a key is the one in the last row. Commits are
reconciled in memory, by one look-up of every key among all keys. An `add` of a checkpoint then holds if no later commit
has an action with its key, which is tested batch by batch.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import CorruptFile
from tamis.formats.delta.log.actions import ADD
from tamis.formats.delta.log.commits import ActionLines
from tamis.formats.errors import make_corrupt_log_error


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

    def merge_newer(self, newer: FileChanges) -> FileChanges:
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
        added, added_keys = added.filter(holds), keys.filter(holds.combine_chunks())
    return FileChanges(added.combine_chunks(), pa.chunked_array([added_keys]), touched)


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
        raise make_corrupt_log_error(
            f"'{lines.location(first['origin'])}' adds the file {first['path_min']!r} {first['path_count']} times, so "
            "it is not clear which of its entries holds"
        )


# --- Keys of file actions, by which a later action replaces an earlier one --------------------------------------------
#
# A key is the decoded path of a data file and the unique id of its deletion vector: the same file with another
# deletion vector is another logical file, and both are added and removed independently. One deletion vector file may
# hold several vectors, so the `offset` is part of the id.
#
# Keys are bytes, computed for whole columns. They are only ever compared with each other.

_PERCENT = ord("%")

_HEX = np.full(256, 255, np.uint8)
_HEX[[ord(digit) for digit in "0123456789"]] = range(10)
_HEX[[ord(digit) for digit in "abcdef"]] = range(10, 16)
_HEX[[ord(digit) for digit in "ABCDEF"]] = range(10, 16)


def make_action_keys(paths: pa.StringArray, deletion_vectors: pa.StructArray | None) -> pa.BinaryArray:
    """Return the key of each action. `deletion_vectors` has `storage_type`, `path_or_inline` and `offset`; None
    stands for all null."""
    keys = percent_decode(_normalise(paths))
    if deletion_vectors is None or deletion_vectors.null_count == len(deletion_vectors):
        return keys
    # No path contains a zero byte, so a path with a vector cannot equal another path.
    identity = pc.binary_join_element_wise(
        pc.fill_null(pc.struct_field(deletion_vectors, "storage_type"), "").cast(pa.binary()),
        pc.fill_null(pc.struct_field(deletion_vectors, "path_or_inline"), "").cast(pa.binary()),
        pc.fill_null(pc.struct_field(deletion_vectors, "offset").cast(pa.string()), "").cast(pa.binary()),
        pa.scalar(b"@"),
    )
    with_vector = pc.binary_join_element_wise(keys, identity, pa.scalar(b"\0"))
    return pc.if_else(deletion_vectors.is_valid(), with_vector, keys)


def _normalise(paths: pa.StringArray) -> pa.StringArray:
    """Replace `file:/a` and `file:///a` by `/a`: they are the same file, and writers mix them."""
    if not pc.any(pc.starts_with(paths, "file:"), min_count=0).as_py():
        return paths
    return pc.replace_substring_regex(paths, r"^file:(?://)?/", "/")


def percent_decode(texts: pa.StringArray) -> pa.BinaryArray:
    """Percent-decode strings once; a `%` that is not followed by two hexadecimal digits stays.

    >>> percent_decode(pa.array(["a%20b", "a%2525b", "50%", None])).to_pylist()
    [b'a b', b'a%25b', b'50%', None]
    """
    plain = texts.cast(pa.binary())
    # Searching all strings for the byte together takes a tenth of the time of searching each string.
    if not len(texts) or not (get_bytes(plain) == _PERCENT).any():
        return plain
    is_escaped = pc.fill_null(pc.match_substring(texts, "%"), False)
    escaped = texts.filter(is_escaped).cast(pa.large_binary())
    return pc.replace_with_mask(plain, is_escaped, _decode(escaped).cast(pa.binary()))


def get_bytes(texts: pa.BinaryArray) -> npt.NDArray[np.uint8]:
    """Return the bytes of all strings as one array."""
    _, offsets, values = texts.buffers()
    first, last = np.frombuffer(offsets, np.int32)[[texts.offset, texts.offset + len(texts)]]
    return np.frombuffer(values if values is not None else b"", np.uint8)[first:last]


def _decode(texts: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Percent-decode all strings as one array of bytes: each escape of three bytes becomes one byte."""
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(texts.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    starts = _find_escapes(data, offsets - offsets[0])
    kept = np.ones(len(data), bool)
    kept[starts + 1] = kept[starts + 2] = False
    decoded = data.copy()
    decoded[starts] = _HEX[data[starts + 1]] * 16 + _HEX[data[starts + 2]]
    # Each offset moves down by two bytes for every escape that starts before it.
    shorter = offsets - offsets[0]
    shorter = shorter - 2 * np.searchsorted(starts, shorter)
    buffers = [None, pa.py_buffer(shorter.astype(np.int64)), pa.py_buffer(decoded[kept])]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(texts), buffers)


def _find_escapes(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return where the escapes start. No escape continues from one string into the next."""
    starts = np.flatnonzero(data == _PERCENT)
    ends = offsets[1:][np.searchsorted(offsets[1:], starts, side="right")]
    starts = starts[starts + 2 < ends]
    return starts[(_HEX[data[starts + 1]] < 16) & (_HEX[data[starts + 2]] < 16)]
