"""The metadata file of a table: JSON, maybe compressed, read by pyiceberg."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyiceberg.exceptions import ValidationError
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from tamis.errors import CorruptFile, UnsupportedFeature, one_line
from tamis.tables.iceberg.arrow_schema import check_schema
from tamis.tables.iceberg.for_pyiceberg import simplify

FORMAT_VERSIONS = (1, 2, 3)

_MOST_BYTES = 2**30
"""The most that a metadata file may have when it is decompressed."""

_GZIP = b"\x1f\x8b"

_EMBEDDED = "manifests"
_IDS = ("snapshot-id", "parent-snapshot-id")
_NO_LIST = ""


@dataclass(frozen=True)
class Metadata:
    """What a metadata file says."""

    table: TableMetadata
    place: str
    """Where it was read, for messages."""
    embedded_manifests: Mapping[int, tuple[str, ...]]
    """The manifests of snapshots that name them themselves, as tables of version 1 may, by the snapshot's id."""
    schemas: Mapping[int, Mapping[str, Any]]
    """The schemas as the file has them, by their ids."""
    encrypted_snapshots: frozenset[int] = frozenset()
    """The ids of snapshots whose lists of manifests are encrypted."""
    found_by: str | None = None
    """How the metadata file was found, where its name does not tell its version."""

    @property
    def location(self) -> str:
        return str(self.table.location)

    @cached_property
    def note(self) -> str | None:
        """What a report tells of the metadata."""
        large = [each.snapshot_id for each in self.table.snapshots if each.snapshot_id >= 2**63]
        notes = [self.found_by, f"the snapshot id {large[0]} has more than 63 bits" if large else None]
        return "; ".join(each for each in notes if each) or None

    @property
    def current_schema_id(self) -> int:
        return int(self.table.current_schema_id)

    @cached_property
    def name_mapping(self) -> str | None:
        """The names of columns in files that have no ids: JSON."""
        found: str | None = self.table.properties.get("schema.name-mapping.default")
        return found


def signed(snapshot_id: int) -> int:
    """An id as Avro has it, in 64 bits with a sign.

    >>> signed(5), signed(2**64 - 1)
    (5, -1)
    """
    return snapshot_id if snapshot_id < 2**63 else snapshot_id - 2**64


def parse_metadata(content: bytes, place: str) -> Metadata:
    """Read a metadata file. What pyiceberg does not know is an error that names the place."""
    given = _parse(_decompressed(content, place), place)
    version = given.get("format-version")
    if version not in FORMAT_VERSIONS:
        known = ", ".join(map(str, FORMAT_VERSIONS))
        raise UnsupportedFeature(f"'{place}' is of format version {version!r}; Tamis reads {known}")
    snapshots = _snapshots(given, place)
    embedded: dict[int, tuple[str, ...]] = {}
    for number, snapshot in snapshots.items():
        manifests = snapshot.get(_EMBEDDED)
        if isinstance(manifests, list) and not snapshot.get("manifest-list"):
            embedded[number] = tuple(map(str, manifests))
            snapshot["manifest-list"] = _NO_LIST
    encrypted = frozenset(number for number, each in snapshots.items() if each.get("key-id") is not None)
    schemas = _schemas(given, place)
    simplify(given)
    try:
        table = TableMetadataUtil.parse_obj(given)
    except (ValidationError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CorruptFile(
            f"'{place}' is no metadata of an Iceberg table that pyiceberg reads: {one_line(error)[:500]}"
        ) from error
    return Metadata(table, place, embedded, schemas, encrypted)


def _snapshots(given: Mapping[str, Any], place: str) -> dict[int, dict[str, Any]]:
    """By their ids."""
    found = given.get("snapshots") or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise CorruptFile(f"'{place}' is no metadata of an Iceberg table: it has no list of snapshots")
    numbers = [(name, value) for each in found for name, value in each.items() if isinstance(value, int)]
    # Some writers make ids of all 64 bits. They are names, and nothing is computed with them.
    if not all(-(2**63) <= number < 2 ** (64 if name in _IDS else 63) for name, number in numbers):
        raise CorruptFile(f"'{place}' has a snapshot with a number of more than 64 bits: it is damaged")
    return {each["snapshot-id"]: each for each in found if isinstance(each.get("snapshot-id"), int)}


def _schemas(given: Mapping[str, Any], place: str) -> dict[int, Mapping[str, Any]]:
    """As they stand in the file."""
    listed = given.get("schemas") or [given.get("schema")]
    found: dict[int, Mapping[str, Any]] = {}
    for each in listed if isinstance(listed, list) else (None,):
        number = each.get("schema-id", 0) if isinstance(each, dict) else None
        if each is None or not isinstance(number, int) or isinstance(number, bool):
            raise CorruptFile(f"'{place}' is no metadata of an Iceberg table: it has no schema that is one")
        check_schema(each, place)
        found[number] = dict(each)
    return found


def _decompressed(content: bytes, place: str) -> bytes:
    if not content.startswith(_GZIP):
        return content
    inflater = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        found = inflater.decompress(content, _MOST_BYTES)
    except zlib.error as error:
        raise CorruptFile(f"'{place}' is compressed, and damaged: {error}") from error
    if not inflater.eof:
        raise CorruptFile(f"'{place}' is compressed, and cut off or larger than any metadata")
    return found


def _parse(content: bytes, place: str) -> dict[str, Any]:
    try:
        found = json.loads(content, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"'{place}' is no JSON: {one_line(error)}") from error
    if not isinstance(found, dict):
        raise CorruptFile(f"'{place}' is no metadata of a table: it holds no JSON object")
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"{twice!r} comes twice in one object")
    return found
