"""The selection of a snapshot: the current one, or one by id, by branch or tag, or by timestamp.

The selection also determines the schema. The current snapshot and branches are read with the current schema; a snapshot
id, a tag and a timestamp with the schema that the snapshot was written with.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from tamis.errors import InvalidArgument, VersionNotFound
from tamis.formats.errors import make_corrupt_metadata_error
from tamis.formats.iceberg.metadata.table_metadata import Metadata, to_signed
from tamis.formats.time_travel import format_milliseconds, to_milliseconds

MAIN = "main"

HISTORY = pa.schema(
    [
        ("snapshot_id", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("operation", pa.string()),
        ("parent_id", pa.int64()),
        ("sequence_number", pa.int64()),
        ("schema_id", pa.int64()),
        ("summary", pa.string()),
    ]
)
"""`summary` is the writer's JSON. An id of more than 63 bits is the signed number with the same 64 bits, as in
manifests."""


@dataclass(frozen=True)
class SelectedSnapshot:
    """A snapshot, None for a table without data, and the schema to read it with."""

    snapshot: Snapshot | None
    schema: Mapping[str, Any]
    branch: str
    """The branch whose newest snapshot `refresh` opens."""

    @property
    def snapshot_id(self) -> int | None:
        return None if self.snapshot is None else self.snapshot.snapshot_id


def choose_snapshot(
    metadata: Metadata,
    snapshot_id: int | None = None,
    ref: str | None = None,
    timestamp: datetime | str | None = None,
) -> SelectedSnapshot:
    """Select a snapshot; at most one of the three arguments may be given."""
    given = [name for name, value in _check_arguments(snapshot_id, ref, timestamp) if value is not None]
    if len(given) > 1:
        raise InvalidArgument(f"{' and '.join(f'{name}=' for name in given)} both select a snapshot: pass only one")
    if snapshot_id is not None:
        return _select_with_own_schema(metadata, _get_snapshot(metadata, snapshot_id))
    if timestamp is not None:
        return _select_with_own_schema(metadata, _find_at(metadata, to_milliseconds(timestamp)))
    if ref is not None and ref not in metadata.table.refs and not (ref == MAIN and _get_current(metadata) is None):
        known = ", ".join(sorted(metadata.table.refs)) or "none"
        raise VersionNotFound(f"'{metadata.file_location}' has no branch or tag {ref!r}. Branches and tags: {known}")
    if ref in (None, MAIN) and (ref is None or ref not in metadata.table.refs):
        return SelectedSnapshot(_get_current(metadata), _get_schema(metadata, metadata.current_schema_id), MAIN)
    assert ref is not None
    found = metadata.table.refs[ref]
    snapshot = _get_snapshot(metadata, found.snapshot_id, f"{found.snapshot_ref_type.value} {ref!r}")
    if found.snapshot_ref_type == SnapshotRefType.TAG:
        return _select_with_own_schema(metadata, snapshot)
    return SelectedSnapshot(snapshot, _get_schema(metadata, metadata.current_schema_id), ref)


def _check_arguments(
    snapshot_id: int | None, ref: str | None, timestamp: datetime | str | None
) -> tuple[tuple[str, object], ...]:
    if snapshot_id is not None and (not isinstance(snapshot_id, int) or isinstance(snapshot_id, bool)):
        raise InvalidArgument(f"snapshot_id must be an integer, found {snapshot_id!r}")
    if ref is not None and not isinstance(ref, str):
        raise InvalidArgument(f"ref must be the name of a branch or a tag, found {ref!r}")
    return ("snapshot_id", snapshot_id), ("ref", ref), ("timestamp", timestamp)


def _get_current(metadata: Metadata) -> Snapshot | None:
    current = metadata.table.current_snapshot_id
    # Some writers record -1 for a table without data.
    return None if current is None or current == -1 else _get_snapshot(metadata, current, "current snapshot")


def _select_with_own_schema(metadata: Metadata, snapshot: Snapshot) -> SelectedSnapshot:
    schema_id = snapshot.schema_id if snapshot.schema_id is not None else metadata.current_schema_id
    return SelectedSnapshot(snapshot, _get_schema(metadata, schema_id), MAIN)


def _get_schema(metadata: Metadata, schema_id: int) -> Mapping[str, Any]:
    found = metadata.schemas.get(schema_id)
    if found is None:
        raise make_corrupt_metadata_error(
            f"'{metadata.file_location}' lacks the schema {schema_id}, which one of its snapshots refers to"
        )
    return found


def _get_snapshot(metadata: Metadata, snapshot_id: int, what: str = "snapshot") -> Snapshot:
    found = metadata.table.snapshot_by_id(snapshot_id) or metadata.table.snapshot_by_id(snapshot_id % 2**64)
    if found is None:
        named = f"{what} {snapshot_id}" if what == "snapshot" else f"snapshot {snapshot_id}, its {what}"
        raise VersionNotFound(
            f"'{metadata.file_location}' has no {named}: it was expired, or belongs to another table. history() "
            "lists all"
        )
    return found


def _find_at(metadata: Metadata, milliseconds: int) -> Snapshot:
    """Return the snapshot that was current at a timestamp, by the snapshot log.

    The order of the log decides, not its timestamps: the clocks of two writers may differ, so that a later commit may
    have an earlier timestamp. All Iceberg readers use the last entry that is not after the timestamp.
    """
    table = metadata.table
    log: Sequence[Any] = table.snapshot_log or sorted(table.snapshots, key=lambda each: each.timestamp_ms)
    before = [entry for entry in log if entry.timestamp_ms <= milliseconds]
    if not before:
        earliest = min((entry.timestamp_ms for entry in log), default=None)
        first = "it has none" if earliest is None else f"the first known one is from {format_milliseconds(earliest)}"
        raise VersionNotFound(
            f"'{metadata.file_location}' had no snapshot at {format_milliseconds(milliseconds)}: {first}. "
            "Choose another timestamp, or a snapshot_id= of history()"
        )
    return _get_snapshot(metadata, before[-1].snapshot_id)


def read_history(metadata: Metadata, snapshot_id: int | None, limit: int | None = None) -> pa.Table:
    """Return a row for a snapshot and each of its known ancestors, newest first; the columns are `HISTORY_SCHEMA`."""
    by_id = {each.snapshot_id: each for each in metadata.table.snapshots}
    found: list[Snapshot] = []
    seen: set[int] = set()
    newest = None if snapshot_id is None else by_id.get(snapshot_id)
    while newest is not None and newest.snapshot_id not in seen and (limit is None or len(found) < limit):
        seen.add(newest.snapshot_id)
        found.append(newest)
        newest = by_id.get(newest.parent_snapshot_id) if newest.parent_snapshot_id is not None else None
    return pa.Table.from_pylist([_make_row(each) for each in found], HISTORY)


def _make_row(snapshot: Snapshot) -> dict[str, Any]:
    summary = snapshot.summary
    return {
        "snapshot_id": to_signed(snapshot.snapshot_id),
        "timestamp": snapshot.timestamp_ms,
        "operation": None if summary is None else summary.operation.value,
        "parent_id": None if snapshot.parent_snapshot_id is None else to_signed(snapshot.parent_snapshot_id),
        "sequence_number": snapshot.sequence_number,
        "schema_id": snapshot.schema_id,
        "summary": None if summary is None else json.dumps(summary.additional_properties),
    }
