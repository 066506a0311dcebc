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

FORMAT_VERSIONS = (1, 2, 3)

_MOST_BYTES = 2**30
"""The most that a metadata file may have when it is decompressed."""

_GZIP = b"\x1f\x8b"

_EMBEDDED = "manifests"
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

    @property
    def location(self) -> str:
        return str(self.table.location)

    @property
    def current_schema_id(self) -> int:
        return int(self.table.current_schema_id)

    @cached_property
    def name_mapping(self) -> str | None:
        """The names of columns in files that have no ids: JSON."""
        found: str | None = self.table.properties.get("schema.name-mapping.default")
        return found


def parse_metadata(content: bytes, place: str) -> Metadata:
    """Read a metadata file. What pyiceberg does not know is an error that names the place."""
    given = _parse(_decompressed(content, place), place)
    version = given.get("format-version")
    if version not in FORMAT_VERSIONS:
        known = ", ".join(map(str, FORMAT_VERSIONS))
        raise UnsupportedFeature(f"'{place}' is of format version {version!r}; Tamis reads {known}")
    embedded: dict[int, tuple[str, ...]] = {}
    for snapshot in given.get("snapshots") or ():
        if isinstance(snapshot, dict) and not snapshot.get("manifest-list") and _EMBEDDED in snapshot:
            embedded[snapshot["snapshot-id"]] = tuple(map(str, snapshot[_EMBEDDED]))
            snapshot["manifest-list"] = _NO_LIST
    schemas = _schemas(given)
    _drop_defaults([given.get("schemas"), given.get("schema")])
    try:
        table = TableMetadataUtil.parse_obj(given)
    except (ValidationError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptFile(
            f"'{place}' is no metadata of an Iceberg table that pyiceberg reads: {one_line(error)[:500]}"
        ) from error
    return Metadata(table, place, embedded, schemas)


def _schemas(given: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    """As they stand in the file, before pyiceberg puts its own words in their place."""
    found = given.get("schemas") or [given.get("schema")]
    try:
        return {each.get("schema-id", 0): json.loads(json.dumps(each)) for each in found}
    except AttributeError:
        return {}  # no schema at all: parsing says so


def _drop_defaults(given: Any) -> None:
    """Defaults are read of the schemas as they are in the file: pyiceberg refuses those of structs, lists and maps."""
    waiting = [given]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            for name in ("initial-default", "write-default"):
                each.pop(name, None)
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


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
