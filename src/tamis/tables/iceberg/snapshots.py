"""Which snapshot of a table is read: the current one, one by its id, that of a branch or a tag, or that of a moment.

With the snapshot comes a schema. The current snapshot and branches are read with the schema of today; a snapshot of the
past, a tag and a moment with the one that the snapshot was written with.
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

from tamis.errors import CorruptFile, InvalidArgument, VersionNotFound
from tamis.tables.iceberg.metadata import Metadata, signed
from tamis.tables.moments import moment_text, to_milliseconds

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
"""`summary` is JSON, as its writer gave it. An id of more than 63 bits is the signed number of the same 64 bits, as
manifests have it."""


@dataclass(frozen=True)
class Chosen:
    """A snapshot, and the schema to read it with. A table to which nothing was written has none."""

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
) -> Chosen:
    """The snapshot that is asked for, in at most one of three ways."""
    given = [name for name, value in _asked(snapshot_id, ref, timestamp) if value is not None]
    if len(given) > 1:
        raise InvalidArgument(f"{' and '.join(f'{name}=' for name in given)} both choose a snapshot: give one of them")
    if snapshot_id is not None:
        return _of_the_past(metadata, _by_id(metadata, snapshot_id))
    if timestamp is not None:
        return _of_the_past(metadata, _at(metadata, to_milliseconds(timestamp)))
    if ref is not None and ref not in metadata.table.refs and not (ref == MAIN and _current(metadata) is None):
        known = ", ".join(sorted(metadata.table.refs)) or "none"
        raise VersionNotFound(f"'{metadata.place}' has no branch or tag {ref!r}. It has: {known}")
    if ref in (None, MAIN) and (ref is None or ref not in metadata.table.refs):
        return Chosen(_current(metadata), _schema(metadata, metadata.current_schema_id), MAIN)
    assert ref is not None
    found = metadata.table.refs[ref]
    snapshot = _by_id(metadata, found.snapshot_id, f"{found.snapshot_ref_type.value} {ref!r}")
    if found.snapshot_ref_type == SnapshotRefType.TAG:
        return _of_the_past(metadata, snapshot)
    return Chosen(snapshot, _schema(metadata, metadata.current_schema_id), ref)


def _asked(
    snapshot_id: int | None, ref: str | None, timestamp: datetime | str | None
) -> tuple[tuple[str, object], ...]:
    if snapshot_id is not None and (not isinstance(snapshot_id, int) or isinstance(snapshot_id, bool)):
        raise InvalidArgument(f"snapshot_id is a whole number, not {snapshot_id!r}")
    if ref is not None and not isinstance(ref, str):
        raise InvalidArgument(f"ref is the name of a branch or a tag, not {ref!r}")
    return ("snapshot_id", snapshot_id), ("ref", ref), ("timestamp", timestamp)


def _current(metadata: Metadata) -> Snapshot | None:
    current = metadata.table.current_snapshot_id
    # Some writers say -1 for a table to which nothing was written.
    return None if current is None or current == -1 else _by_id(metadata, current, "current snapshot")


def _of_the_past(metadata: Metadata, snapshot: Snapshot) -> Chosen:
    schema_id = snapshot.schema_id if snapshot.schema_id is not None else metadata.current_schema_id
    return Chosen(snapshot, _schema(metadata, schema_id), MAIN)


def _schema(metadata: Metadata, schema_id: int) -> Mapping[str, Any]:
    found = metadata.schemas.get(schema_id)
    if found is None:
        raise CorruptFile(f"'{metadata.place}' has no schema {schema_id}, which one of its snapshots has")
    return found


def _by_id(metadata: Metadata, snapshot_id: int, what: str = "snapshot") -> Snapshot:
    found = metadata.table.snapshot_by_id(snapshot_id) or metadata.table.snapshot_by_id(snapshot_id % 2**64)
    if found is None:
        named = f"{what} {snapshot_id}" if what == "snapshot" else f"snapshot {snapshot_id}, which its {what} is"
        raise VersionNotFound(
            f"'{metadata.place}' has no {named}: it was expired, or is of another table. history() lists all"
        )
    return found


def _at(metadata: Metadata, milliseconds: int) -> Snapshot:
    """The snapshot that was current at a moment, by the log of those that were.

    The order of the log counts, not its times: the clocks of two writers may differ, and what one of them committed
    later may have the earlier time. All readers of Iceberg take the last entry that is not after the moment.
    """
    table = metadata.table
    log: Sequence[Any] = table.snapshot_log or sorted(table.snapshots, key=lambda each: each.timestamp_ms)
    before = [entry for entry in log if entry.timestamp_ms <= milliseconds]
    if not before:
        earliest = min((entry.timestamp_ms for entry in log), default=None)
        first = "it never had one" if earliest is None else f"its first known is of {moment_text(earliest)}"
        raise VersionNotFound(f"'{metadata.place}' had no snapshot at {moment_text(milliseconds)}: {first}")
    return _by_id(metadata, before[-1].snapshot_id)


def read_history(metadata: Metadata, snapshot_id: int | None, limit: int | None = None) -> pa.Table:
    """A row for a snapshot and each of its ancestors that is still known, newest first; the columns are `HISTORY`."""
    by_id = {each.snapshot_id: each for each in metadata.table.snapshots}
    found: list[Snapshot] = []
    seen: set[int] = set()
    newest = None if snapshot_id is None else by_id.get(snapshot_id)
    while newest is not None and newest.snapshot_id not in seen and (limit is None or len(found) < limit):
        seen.add(newest.snapshot_id)
        found.append(newest)
        newest = by_id.get(newest.parent_snapshot_id) if newest.parent_snapshot_id is not None else None
    return pa.Table.from_pylist([_row(each) for each in found], HISTORY)


def _row(snapshot: Snapshot) -> dict[str, Any]:
    summary = snapshot.summary
    return {
        "snapshot_id": signed(snapshot.snapshot_id),
        "timestamp": snapshot.timestamp_ms,
        "operation": None if summary is None else summary.operation.value,
        "parent_id": None if snapshot.parent_snapshot_id is None else signed(snapshot.parent_snapshot_id),
        "sequence_number": snapshot.sequence_number,
        "schema_id": snapshot.schema_id,
        "summary": None if summary is None else json.dumps(summary.additional_properties),
    }
