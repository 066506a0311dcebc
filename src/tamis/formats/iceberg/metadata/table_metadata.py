"""The table metadata file: JSON, possibly compressed, parsed by pyiceberg."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import ValidationError
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from tamis.errors import CorruptFile, InvalidArgument, UnsupportedFeature, VersionNotFound, add_article, to_one_line
from tamis.formats.errors import make_corrupt_metadata_error
from tamis.formats.iceberg.schema import NAME_MAPPING, check_schema
from tamis.formats.time_travel import format_milliseconds, to_milliseconds
from tamis.skipping.transforms import UNKNOWN, Transform

FORMAT_VERSIONS = (1, 2, 3)

_MAX_BYTES = 2**30

_GZIP = b"\x1f\x8b"

_EMBEDDED = "manifests"
_IDS = ("snapshot-id", "parent-snapshot-id")
_NO_MANIFEST_LIST = ""


@dataclass(frozen=True)
class Metadata:
    """The content of a table metadata file."""

    table: TableMetadata
    file_location: str
    embedded_manifests: Mapping[int, tuple[str, ...]]
    """The manifests of snapshots that list them directly, as format version 1 allows, by snapshot id."""
    schemas: Mapping[int, Mapping[str, Any]]
    encrypted_snapshots: frozenset[int] = frozenset()
    """The ids of snapshots whose manifest lists are encrypted."""
    sort_fields: tuple[tuple[int, str], ...] = ()
    """The source ids and transforms of the default sort order."""
    found_by: str | None = None
    """How the metadata file was found, if its name does not contain a version."""

    @property
    def location(self) -> str:
        return str(self.table.location)

    @cached_property
    def note(self) -> str | None:
        """A note about the metadata for reports, or None."""
        large = [each.snapshot_id for each in self.table.snapshots if each.snapshot_id >= 2**63]
        notes = [self.found_by, f"the snapshot id {large[0]} has more than 63 bits" if large else None]
        return "; ".join(each for each in notes if each) or None

    @property
    def current_schema_id(self) -> int:
        return int(self.table.current_schema_id)

    @cached_property
    def name_mapping(self) -> str | None:
        """The name mapping for files without field ids, as JSON."""
        found: str | None = self.table.properties.get(NAME_MAPPING)
        return found


def to_signed(snapshot_id: int) -> int:
    """Return an id as a signed 64-bit number, as Avro stores it.

    >>> to_signed(5), to_signed(2**64 - 1)
    (5, -1)
    """
    return snapshot_id if snapshot_id < 2**63 else snapshot_id - 2**64


def parse_metadata(content: bytes, location: str) -> Metadata:
    """Parse a metadata file. Errors name its location."""
    given = _parse_json(_decompress(content, location), location)
    version = given.get("format-version")
    if version not in FORMAT_VERSIONS:
        known = ", ".join(map(str, FORMAT_VERSIONS))
        raise UnsupportedFeature(
            f"'{location}' has the unsupported format version {version!r}; Tamis reads {known}. Look for a newer Tamis"
        )
    snapshots = _read_snapshots(given, location)
    embedded: dict[int, tuple[str, ...]] = {}
    for number, snapshot in snapshots.items():
        manifests = snapshot.get(_EMBEDDED)
        if isinstance(manifests, list) and not snapshot.get("manifest-list"):
            embedded[number] = tuple(map(str, manifests))
            snapshot["manifest-list"] = _NO_MANIFEST_LIST
    encrypted = frozenset(number for number, each in snapshots.items() if each.get("key-id") is not None)
    schemas = _read_schemas(given, location)
    sort_fields = tuple(_read_sort_fields(given))
    simplify(given)
    try:
        table = TableMetadataUtil.parse_obj(given)
    except (ValidationError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise make_corrupt_metadata_error(
            f"'{location}' is not Iceberg table metadata that pyiceberg can parse: {to_one_line(error)[:500]}"
        ) from error
    return Metadata(table, location, embedded, schemas, encrypted, sort_fields)


def _read_sort_fields(given: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield the fields of the default sort order. It only describes the table, so an invalid one is no error."""
    orders = given.get("sort-orders")
    for order in orders if isinstance(orders, list) else ():
        if isinstance(order, dict) and order.get("order-id") == given.get("default-sort-order-id"):
            fields = order.get("fields")
            for field in fields if isinstance(fields, list) else ():
                if not isinstance(field, dict) or not isinstance(field.get("source-id"), int):
                    return
                yield field["source-id"], str(field.get("transform"))


def _read_snapshots(given: Mapping[str, Any], location: str) -> dict[int, dict[str, Any]]:
    found = given.get("snapshots") or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise make_corrupt_metadata_error(
            f"'{location}' is not valid Iceberg table metadata: 'snapshots' must be a list of objects"
        )
    numbers = [(name, value) for each in found for name, value in each.items() if isinstance(value, int)]
    # Some writers use ids of 64 bits. They are only names, and nothing is computed with them.
    if not all(-(2**63) <= number < 2 ** (64 if name in _IDS else 63) for name, number in numbers):
        raise make_corrupt_metadata_error(
            f"'{location}' has a snapshot with a number of more than 64 bits: the file is damaged"
        )
    return {each["snapshot-id"]: each for each in found if isinstance(each.get("snapshot-id"), int)}


def _read_schemas(given: Mapping[str, Any], location: str) -> dict[int, Mapping[str, Any]]:
    listed = given.get("schemas") or [given.get("schema")]
    found: dict[int, Mapping[str, Any]] = {}
    for each in listed if isinstance(listed, list) else (None,):
        number = each.get("schema-id", 0) if isinstance(each, dict) else None
        if each is None or not isinstance(number, int) or isinstance(number, bool):
            raise make_corrupt_metadata_error(
                f"'{location}' is not valid Iceberg table metadata: a schema is missing or invalid"
            )
        check_schema(each, location)
        found[number] = dict(each)
    return found


def _decompress(content: bytes, location: str) -> bytes:
    if not content.startswith(_GZIP):
        return content
    inflater = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        found = inflater.decompress(content, _MAX_BYTES)
    except zlib.error as error:
        raise make_corrupt_metadata_error(f"'{location}' has invalid gzip data: {error}") from error
    if not inflater.eof:
        raise CorruptFile(
            f"'{location}' is compressed, and either truncated or larger than {_MAX_BYTES} bytes. Restore it, or "
            "expire old snapshots to make it smaller"
        )
    return found


def _parse_json(content: bytes, location: str) -> dict[str, Any]:
    try:
        found = json.loads(content, object_pairs_hook=_make_object)
    except (ValueError, RecursionError) as error:
        raise make_corrupt_metadata_error(f"'{location}' is not valid JSON: {to_one_line(error)}") from error
    if not isinstance(found, dict):
        raise make_corrupt_metadata_error(
            f"'{location}' is not table metadata: expected a JSON object, found {add_article(type(found).__name__)}"
        )
    return found


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"duplicate key {twice!r} in an object")
    return found


# --- Simplifying the JSON of table metadata for pyiceberg, which rejects a table for a single unsupported element -----
#
# Tamis reads schemas from the file itself, so pyiceberg needs only their ids. An unsupported transform cannot prune
# anyway, the default sort order is read before, and statistics files are not used.

_UNUSED = ("statistics", "partition-statistics", "metadata-log")


def simplify(given: dict[str, Any]) -> None:
    """Replace in place what pyiceberg may not support."""
    for name in _UNUSED:
        given.pop(name, None)
    for schemas in (given.get("schemas"), [given.get("schema")]):
        for schema in schemas if isinstance(schemas, list) else ():
            if isinstance(schema, dict):
                schema["fields"] = []
                schema.pop("identifier-field-ids", None)
    _simplify_specs([given.get("partition-specs"), given.get("partition-spec")])
    given["sort-orders"] = [{"order-id": 0, "fields": []}]
    given["default-sort-order-id"] = 0


def _simplify_specs(given: Any) -> None:
    pending = [given]
    while pending:
        each = pending.pop()
        if isinstance(each, list):
            pending += each
        elif isinstance(each, dict) and "fields" in each:
            pending.append(each["fields"])
        elif isinstance(each, dict):
            transform, sources = each.get("transform"), each.get("source-ids")
            many_sources = sources if isinstance(sources, list) and len(sources) > 1 else None
            if many_sources is not None:
                each.setdefault("source-id", many_sources[0])
            if many_sources is not None or (isinstance(transform, str) and Transform.parse(transform).kind == UNKNOWN):
                each["transform"] = UNKNOWN


# --- Snapshots ------------------------------------------------------------------------------------------------------
#
# The selection of a snapshot: the current one, or one by id, by branch or tag, or by timestamp.
#
# The selection also determines the schema. The current snapshot and branches are read with the current schema; a
# snapshot id, a tag and a timestamp with the schema that the snapshot was written with.


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
    if snapshot_id is not None and (not isinstance(snapshot_id, int) or isinstance(snapshot_id, bool)):
        raise InvalidArgument(f"snapshot_id must be an integer, found {snapshot_id!r}")
    if ref is not None and not isinstance(ref, str):
        raise InvalidArgument(f"ref must be the name of a branch or a tag, found {ref!r}")
    arguments = {"snapshot_id": snapshot_id, "ref": ref, "timestamp": timestamp}
    given = [name for name, value in arguments.items() if value is not None]
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


_SHOWN_SNAPSHOTS = 5


def _get_snapshot(metadata: Metadata, snapshot_id: int, what: str = "snapshot") -> Snapshot:
    found = metadata.table.snapshot_by_id(snapshot_id) or metadata.table.snapshot_by_id(snapshot_id % 2**64)
    if found is None:
        named = f"{what} {snapshot_id}" if what == "snapshot" else f"snapshot {snapshot_id}, its {what}"
        folder = metadata.file_location.rpartition("/metadata/")[0] or metadata.file_location
        ordered = sorted(metadata.table.snapshots, key=lambda each: each.timestamp_ms, reverse=True)
        shown = [str(each.snapshot_id) for each in ordered[:_SHOWN_SNAPSHOTS]]
        shown += [f"… {len(ordered) - len(shown)} older"] if len(ordered) > len(shown) else []
        raise VersionNotFound(
            f"'{folder}' has no {named}: it was expired, or belongs to another table. Snapshots, newest first: "
            f"{', '.join(shown) or 'none'}"
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
