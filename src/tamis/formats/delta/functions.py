"""Plain functions over a Delta table, for programs with planners of their own: in threads or in Spark executors.

`snapshot_info` returns the files of a version's log. The parts of its checkpoint and the commits after it can then be
read anywhere, in any order; the actions of commits replace those of parts for the same file. `list_files` does all of
it in one process. Filters compare the texts of partition values, as `PartitionFilter` describes, and are evaluated
before the other columns of a file are read. Filters and partition values have logical column names, also where the log
has physical names (column mapping).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import InvalidArgument, MissingFile, make_argument_error, suggest_arguments
from tamis.expr.wire.partition_filter import PartitionFilter, check_partition_filter, resolve_columns
from tamis.formats.delta.checkpoint import read_checkpoint_part as read_part
from tamis.formats.delta.log.actions import decode_file_actions
from tamis.formats.delta.log.commits import ActionLines, parse_action, read_actions
from tamis.formats.delta.log.log_segment import LOG_DIRECTORY, LogFile
from tamis.formats.delta.log.replay import reconcile
from tamis.formats.delta.schema import TableMetadata
from tamis.formats.delta.snapshot import Snapshot
from tamis.formats.delta.statistics.file_statistics import extract_num_records
from tamis.formats.errors import make_corrupt_log_error
from tamis.formats.function_results import (
    FILE_COLUMNS,
    UNKNOWN,
    check_column_addresses,
    concat_batches,
    export_columns,
    map_to_json,
)
from tamis.io.listing import find_file
from tamis.io.storage import Storage, open_storage

FILE_SCHEMA = FILE_COLUMNS.append(pa.field("has_deletion_vector", pa.bool_()))
"""`path` is percent-encoded, as in the log; `modification_time` in ms; `partition_values` is JSON by logical names."""

_COLUMNS = ("path", "partition_values", "size", "modification_time", "stats", "stats_parsed", "deletion_vector")

Uri = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """The log files of a version. Paths are below the table's folder, sizes are in bytes."""

    version: int
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    checkpoint_parts: tuple[str, ...]
    """The Parquet files of the checkpoint, sidecars included."""
    checkpoint_part_sizes: tuple[int, ...]
    commits: tuple[str, ...]
    """The commits after the checkpoint, oldest first."""
    commit_sizes: tuple[int, ...]
    physical_names: Mapping[str, str]
    """The physical name of every top-level column by its logical name. The log's partition values, statistics and data
    files have physical names. Both are the same without column mapping."""


@suggest_arguments("tamis.delta.snapshot_info")
def snapshot_info(
    uri: Uri,
    *,
    version: int | None = None,
    timestamp: datetime | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> SnapshotInfo:
    """Return the log files of a version: the newest, the given one, or the one at a timestamp."""
    snapshot = Snapshot.load(open_storage(uri, storage_options), version, timestamp)
    parts = [part.file for part in snapshot.list_parts() if part.file is not None]
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
        _map_physical_names(snapshot.metadata),
    )


def _map_physical_names(metadata: TableMetadata) -> dict[str, str]:
    return {each.name: each.physical_name for each in metadata.fields}


@suggest_arguments("tamis.delta.list_files")
def list_files(
    uri: Uri,
    filter: PartitionFilter | None = None,
    *,
    version: int | None = None,
    timestamp: datetime | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> pa.RecordBatch:
    """Return the live files of a version that the filter keeps: the columns are `FILE_SCHEMA`."""
    check_partition_filter(filter)
    snapshot = Snapshot.load(open_storage(uri, storage_options), version, timestamp)
    names = _PartitionNames.of_metadata(snapshot.metadata, f"'{snapshot.storage.uri}'")
    filter = names.resolve(filter)
    batches = (batch for part in snapshot.list_parts() for batch in part.read(_COLUMNS))
    return _describe_all(batches, filter, names)


@suggest_arguments("tamis.delta.read_checkpoint_part")
def read_checkpoint_part(
    uri: Uri,
    part: str,
    filter: PartitionFilter | None = None,
    *,
    snapshot: SnapshotInfo | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> pa.RecordBatch:
    """Return the files that a part of a checkpoint adds and the filter keeps, even if later commits remove them.

    `part` is a path in `snapshot_info(…).checkpoint_parts`. `snapshot` is that `snapshot_info(…)`, for the names of the
    partition columns. Without it the log is read for those of the newest version.
    """
    check_partition_filter(filter)
    storage = open_storage(uri, storage_options)
    file = _log_file(storage, part)
    names = _PartitionNames.of(storage, snapshot)
    filter = names.resolve(filter)
    if not part.endswith(".parquet"):
        lines = read_actions(storage, [file])
        added = reconcile(decode_file_actions(lines, _find_partition_names(lines)), lines).added
        return _describe_all(added.to_batches(), filter, names)
    batches = read_part(storage, file.path, _COLUMNS, size=file.size, modified_ns=file.modified_ns)
    return _describe_all(batches, filter, names)


@suggest_arguments("tamis.delta.read_checkpoint_part_arrow_ffi")
def read_checkpoint_part_arrow_ffi(
    uri: Uri,
    part: str,
    filter: PartitionFilter | None,
    array_addresses: Sequence[int],
    schema_addresses: Sequence[int],
    *,
    snapshot: SnapshotInfo | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> int:
    """Write the columns of `read_checkpoint_part` to structs of Arrow's C Data Interface; return the number of rows.

    There is one `ArrowArray` and one `ArrowSchema` for each of the six columns. The caller owns them and calls
    `release` for each. An address that is not that of such a struct crashes the process, and cannot be checked.
    """
    check_column_addresses(FILE_SCHEMA, array_addresses, schema_addresses)
    batch = read_checkpoint_part(uri, part, filter, snapshot=snapshot, storage_options=storage_options)
    return export_columns(batch, array_addresses, schema_addresses)


@suggest_arguments("tamis.delta.read_post_checkpoint_changes")
def read_post_checkpoint_changes(
    uri: Uri,
    commits: Sequence[str],
    filter: PartitionFilter | None = None,
    *,
    snapshot: SnapshotInfo | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return two batches: the files that commits add and the filter keeps, and the files that they remove.

    `commits` are paths in `snapshot_info(…).commits`, oldest first; of several actions on one file the newest counts.
    The filter does not apply to removed files. `snapshot` is that `snapshot_info(…)`, as for `read_checkpoint_part`.
    """
    check_partition_filter(filter)
    if isinstance(commits, str) or not isinstance(commits, Iterable):
        raise make_argument_error("commits", "a list of paths, as snapshot_info(…).commits", commits)
    storage = open_storage(uri, storage_options)
    files = [_log_file(storage, commit) for commit in commits]
    names = _PartitionNames.of(storage, snapshot)
    filter = names.resolve(filter)
    lines = read_actions(storage, files)
    actions = decode_file_actions(lines, _find_partition_names(lines))
    changes = reconcile(actions, lines)
    removed = actions.filter(pc.invert(actions["is_add"])).select(changes.added.column_names)
    added = _describe_all(changes.added.to_batches(), filter, names)
    return added, _describe_all(removed.to_batches(), None, names)


@dataclass(frozen=True, slots=True)
class _PartitionNames:
    """The physical names of partition columns by their logical names."""

    table: str
    physical: Mapping[str, str]

    @staticmethod
    def of(storage: Storage, given: SnapshotInfo | None) -> _PartitionNames:
        if given is None:
            return _PartitionNames.of_metadata(Snapshot.load(storage).metadata, f"'{storage.uri}'")
        if not isinstance(given, SnapshotInfo):
            raise make_argument_error("snapshot", "the result of tamis.delta.snapshot_info(…)", given)
        physical = {name: given.physical_names[name] for name in given.partition_columns}
        return _PartitionNames(f"'{storage.uri}'", physical)

    @staticmethod
    def of_metadata(metadata: TableMetadata, table: str) -> _PartitionNames:
        physical = _map_physical_names(metadata)
        return _PartitionNames(table, {name: physical[name] for name in metadata.partition_columns})

    def resolve(self, filter: PartitionFilter | None) -> PartitionFilter | None:
        return None if filter is None else resolve_columns(filter, tuple(self.physical), self.table)

    def to_logical_names(self, values: pa.MapArray) -> pa.MapArray:
        """Return partition values of the log with logical names."""
        if all(physical == name for name, physical in self.physical.items()):
            return values
        known = pa.array(list(self.physical.values()), pa.string())
        found = pa.array(list(self.physical), pa.string()).take(pc.index_in(values.keys, known))
        mask = values.is_null() if values.null_count else None
        return pa.MapArray.from_arrays(values.offsets, pc.coalesce(found, values.keys), values.items, mask=mask)


def _log_file(storage: Storage, name: str) -> LogFile:
    parts = name.split("/") if isinstance(name, str) else []
    if len(parts) < 2 or parts[0] != LOG_DIRECTORY or ".." in parts:
        raise InvalidArgument(f"{name!r} is not a file of the log: give a path of snapshot_info(…), {LOG_DIRECTORY}/…")
    path = f"{storage.root.rstrip('/')}/{name}"
    found = find_file(storage, path)
    if found is None:
        raise MissingFile(
            f"the file '{storage.format_path(path)}' of the log does not exist: call snapshot_info(…) again"
        )
    return LogFile(path, found.size, found.modified_ns, 0, 0)


def _describe_all(
    batches: Iterable[pa.RecordBatch], filter: PartitionFilter | None, names: _PartitionNames
) -> pa.RecordBatch:
    return concat_batches([_describe_files(batch, filter, names) for batch in batches], FILE_SCHEMA)


def _describe_files(batch: pa.RecordBatch, filter: PartitionFilter | None, names: _PartitionNames) -> pa.RecordBatch:
    """Return the columns of `FILE_SCHEMA` for the files that the filter keeps. The filter has logical names."""
    values = names.to_logical_names(_replace_empty_texts(batch.column("partition_values")))
    if filter is not None:
        if values.null_count:
            raise make_corrupt_log_error(
                f"the log adds {batch.column('path')[values.is_null().index(True).as_py()]} without partition "
                "values, which a PartitionFilter compares"
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
            pc.fill_null(extract_num_records(texts, parsed), UNKNOWN),
            map_to_json(values),
            batch.column("deletion_vector").is_valid(),
        ],
        schema=FILE_SCHEMA,
    )


_PARTITION_VALUES = r'"partitionValues"\s*:\s*(?P<values>\{[^{}]*\})'
_VALUE = r':\s*(?:"(?:[^"\\]|\\.)*"|[^",{}\s]+)'


def _find_partition_names(lines: ActionLines) -> list[str]:
    """Return the physical names of partition values in commits. Most lines have the same, so few are parsed."""
    found: dict[str, None] = {}
    for run in lines.file_actions:
        is_add = np.flatnonzero(np.asarray(pc.match_substring_regex(run.texts, r'^\s*\{\s*"add"')))
        texts = run.texts.take(pa.array(is_add))
        values = pc.struct_field(pc.extract_regex(texts, _PARTITION_VALUES), "values")
        # A brace inside a value hides the end of the values.
        hidden = set(np.flatnonzero(np.asarray(values.is_null())).tolist())
        shapes = pc.replace_substring_regex(values, _VALUE, ":0")
        first = pc.index_in(shapes, value_set=pc.drop_null(pc.unique(shapes)))
        _, first_positions = np.unique(np.asarray(pc.fill_null(first, -1)), return_index=True)
        for position in sorted(hidden | set(first_positions.tolist())):
            location = lines.location(int(run.origins[is_add[position]]))
            action = parse_action(texts[position].as_py(), "add", location)
            found |= dict.fromkeys(action.get("partitionValues") or ())
    return list(found)


def _replace_empty_texts(values: pa.MapArray) -> pa.MapArray:
    """Replace empty texts by NULL, which they mean as partition values of any type."""
    items = values.items
    if not pc.any(pc.equal(items, ""), min_count=0).as_py():
        return values
    replaced = pc.if_else(pc.equal(items, ""), pa.scalar(None, items.type), items)
    mask = values.is_null() if values.null_count else None
    return pa.MapArray.from_arrays(values.offsets, values.keys, replaced, mask=mask)
