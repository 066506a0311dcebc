"""Plain functions over a Delta table, for whoever plans by himself: they run in a thread or on a Spark worker.

`snapshot_info` tells what a version is made of. The parts of its checkpoint and the commits after it can then be read
anywhere, in any order; what commits add or remove replaces what parts say of the same file. `list_files` does all of it
in one process. Filters are of the texts of partition values, as `PartitionFilter` describes, and are asked before
anything else of a file is read or built.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import CorruptFile, InvalidArgument, MissingFile
from tamis.expr.partition_filter import PartitionFilter, check_partition_filter
from tamis.io.listing import find_file
from tamis.io.storage import Storage, open_storage
from tamis.tables.delta.actions import decode_file_actions
from tamis.tables.delta.checkpoint_rows import read_checkpoint_part as read_part
from tamis.tables.delta.commits import ActionLines, parse_action, read_actions
from tamis.tables.delta.log import FOLDER, LogFile
from tamis.tables.delta.replay import reconcile
from tamis.tables.delta.snapshot import Snapshot
from tamis.tables.delta.statistics import num_records
from tamis.tables.file_columns import FILE_COLUMNS, UNKNOWN
from tamis.tables.map_json import map_to_json

FILE_SCHEMA = FILE_COLUMNS.append(pa.field("has_deletion_vector", pa.bool_()))
"""`path` is as in the log, percent-encoded; `modification_time` in ms; `partition_values` as JSON. Where a table maps
columns, single files of its log know partition values by their physical names only."""

_COLUMNS = ("path", "partition_values", "size", "modification_time", "stats", "stats_parsed", "deletion_vector")

Uri = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """What a version of a table is made of. Paths are below the table's folder, sizes are in bytes."""

    version: int
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    checkpoint_parts: tuple[str, ...]
    """The Parquet files, sidecars included, that hold the files of the checkpoint."""
    checkpoint_part_sizes: tuple[int, ...]
    commits: tuple[str, ...]
    """What came after the checkpoint, from old to new."""
    commit_sizes: tuple[int, ...]


def snapshot_info(
    uri: Uri,
    version: int | None = None,
    timestamp: datetime | str | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> SnapshotInfo:
    """The newest version of a table, a certain one, or that of a moment."""
    snapshot = Snapshot.load(open_storage(uri, storage_options), version, timestamp)
    parts = [part.file for part in snapshot.parts() if part.file is not None]
    root = f"{snapshot.storage.root.rstrip('/')}/"
    deltas = snapshot.segment.deltas
    return SnapshotInfo(
        snapshot.version,
        snapshot.metadata.schema,
        snapshot.metadata.partition_columns,
        tuple(file.path.removeprefix(root) for file in parts),
        tuple(file.size for file in parts),
        tuple(file.path.removeprefix(root) for file in deltas),
        tuple(file.size for file in deltas),
    )


def list_files(
    uri: Uri,
    version: int | None = None,
    filter: PartitionFilter | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> pa.RecordBatch:
    """The live files of a version that the filter keeps: the columns are `FILE_SCHEMA`.

    Filter and partition values are by the names of the table, also where it maps columns.
    """
    check_partition_filter(filter)
    snapshot = Snapshot.load(open_storage(uri, storage_options), version)
    names = {snapshot.metadata.physical((name,))[0]: name for name in snapshot.metadata.partition_columns}
    batches = (batch for part in snapshot.parts() for batch in part.read(_COLUMNS))
    return _one_batch([_described(batch, filter, names) for batch in batches])


def read_checkpoint_part(
    uri: Uri,
    part: str,
    filter: PartitionFilter | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> pa.RecordBatch:
    """The files that a part of a checkpoint adds and the filter keeps, whatever later commits say of them.

    `part` is a path that `snapshot_info(…).checkpoint_parts` has.
    """
    check_partition_filter(filter)
    storage = open_storage(uri, storage_options)
    file = _log_file(storage, part)
    if not part.endswith(".parquet"):
        lines = read_actions(storage, [file])
        added = reconcile(decode_file_actions(lines, _partition_names(lines)), lines).added
        return _one_batch([_described(batch, filter) for batch in added.to_batches()])
    batches = read_part(storage, file.path, _COLUMNS, size=file.size, modified_ns=file.modified_ns)
    return _one_batch([_described(batch, filter) for batch in batches])


def read_post_checkpoint_changes(
    uri: Uri,
    commits: Sequence[str],
    filter: PartitionFilter | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """What commits add and the filter keeps, and what they remove, whatever its partition: a pair of batches.

    `commits` are paths that `snapshot_info(…).commits` has, from old to new; of a file that they speak of several times
    the newest holds.
    """
    check_partition_filter(filter)
    storage = open_storage(uri, storage_options)
    lines = read_actions(storage, [_log_file(storage, commit) for commit in commits])
    actions = decode_file_actions(lines, _partition_names(lines))
    changes = reconcile(actions, lines)
    removed = actions.filter(pc.invert(actions["is_add"])).select(changes.added.column_names)
    added = _one_batch([_described(batch, filter) for batch in changes.added.to_batches()])
    return added, _one_batch([_described(batch, None) for batch in removed.to_batches()])


def _log_file(storage: Storage, name: str) -> LogFile:
    parts = name.split("/") if isinstance(name, str) else []
    if len(parts) < 2 or parts[0] != FOLDER or ".." in parts:
        raise InvalidArgument(f"{name!r} is no file of the log: give a path that snapshot_info(…) has, {FOLDER}/…")
    path = f"{storage.root.rstrip('/')}/{name}"
    found = find_file(storage, path)
    if found is None:
        raise MissingFile(f"the file '{storage.place(path)}' of the log is gone")
    return LogFile(path, found.size, found.modified_ns, 0, 0)


def _described(
    batch: pa.RecordBatch, filter: PartitionFilter | None, names: Mapping[str, str] | None = None
) -> pa.RecordBatch:
    """What is told of files; `names` are the table's for the keys of partition values, where those are others."""
    values = _empty_as_null(batch.column("partition_values"))
    if names is not None and any(physical != name for physical, name in names.items()):
        values = _renamed(values, names)
    if filter is not None:
        if values.null_count:
            raise CorruptFile(
                f"the log adds {batch.column('path')[values.is_null().index(True).as_py()]} without texts of its "
                "partition values, which a PartitionFilter compares"
            )
        kept = filter.evaluate(values)
        if kept.true_count < batch.num_rows:
            batch, values = batch.filter(kept), values.filter(kept)
    texts = batch.column("stats") if "stats" in batch.schema.names else None
    parsed = batch.column("stats_parsed") if "stats_parsed" in batch.schema.names else None
    return pa.record_batch(
        [
            batch.column("path"),
            pc.fill_null(batch.column("size"), UNKNOWN),
            pc.fill_null(batch.column("modification_time"), UNKNOWN),
            pc.fill_null(num_records(texts, parsed), UNKNOWN),
            map_to_json(values),
            batch.column("deletion_vector").is_valid(),
        ],
        schema=FILE_SCHEMA,
    )


_PARTITION_VALUES = r'"partitionValues"\s*:\s*(?P<values>\{[^{}]*\})'
_VALUE = r':\s*(?:"(?:[^"\\]|\\.)*"|[^",{}\s]+)'


def _partition_names(lines: ActionLines) -> list[str]:
    """The names under which commits keep partition values. Most lines have the same, so few are looked into."""
    found: dict[str, None] = {}
    for run in lines.about_files:
        is_add = np.flatnonzero(np.asarray(pc.match_substring_regex(run.texts, r'^\s*\{\s*"add"')))
        texts = run.texts.take(pa.array(is_add))
        values = pc.struct_field(pc.extract_regex(texts, _PARTITION_VALUES), "values")
        # A brace inside of a value hides where the values end.
        hidden = set(np.flatnonzero(np.asarray(values.is_null())).tolist())
        shapes = pc.replace_substring_regex(values, _VALUE, ":0")
        first = pc.index_in(shapes, value_set=pc.drop_null(pc.unique(shapes)))
        _, places = np.unique(np.asarray(pc.fill_null(first, -1)), return_index=True)
        for position in sorted(hidden | set(places.tolist())):
            place = lines.place(int(run.origins[is_add[position]]))
            action = parse_action(texts[position].as_py(), "add", place)
            found |= dict.fromkeys(action.get("partitionValues") or ())
    return list(found)


def _empty_as_null(values: pa.MapArray) -> pa.MapArray:
    """An empty text is NULL as a partition value, whatever the type."""
    items = values.items
    if not pc.any(pc.equal(items, ""), min_count=0).as_py():
        return values
    mended = pc.if_else(pc.equal(items, ""), pa.scalar(None, items.type), items)
    mask = values.is_null() if values.null_count else None
    return pa.MapArray.from_arrays(values.offsets, values.keys, mended, mask=mask)


def _renamed(values: pa.MapArray, names: Mapping[str, str]) -> pa.MapArray:
    known = pa.array(list(names), pa.string())
    keys = pc.coalesce(pa.array(list(names.values()), pa.string()).take(pc.index_in(values.keys, known)), values.keys)
    mask = values.is_null() if values.null_count else None
    return pa.MapArray.from_arrays(values.offsets, keys, values.items, mask=mask)


def _one_batch(batches: Collection[pa.RecordBatch]) -> pa.RecordBatch:
    if not batches:
        return pa.record_batch([pa.array([], field.type) for field in FILE_SCHEMA], schema=FILE_SCHEMA)
    return pa.concat_batches(list(batches))
