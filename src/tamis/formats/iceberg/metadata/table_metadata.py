"""The table metadata file: JSON, possibly compressed, parsed by pyiceberg."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyiceberg.exceptions import ValidationError
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from tamis.errors import CorruptFile, UnsupportedFeature, add_article, to_one_line
from tamis.formats.errors import make_corrupt_metadata_error
from tamis.formats.iceberg.partitioning.transforms import UNKNOWN, Transform
from tamis.formats.iceberg.schema import NAME_MAPPING, check_schema

FORMAT_VERSIONS = (1, 2, 3)

_MAX_BYTES = 2**30
"""The largest decompressed size of a metadata file."""

_GZIP = b"\x1f\x8b"

_EMBEDDED = "manifests"
_IDS = ("snapshot-id", "parent-snapshot-id")
_NO_MANIFEST_LIST = ""


@dataclass(frozen=True)
class Metadata:
    """The content of a table metadata file."""

    table: TableMetadata
    file_location: str
    """The location of the metadata file, for messages."""
    embedded_manifests: Mapping[int, tuple[str, ...]]
    """The manifests of snapshots that list them directly, as format version 1 allows, by snapshot id."""
    schemas: Mapping[int, Mapping[str, Any]]
    """The schemas as JSON, by schema id."""
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
    """Return the snapshots by id."""
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
    """Return the schemas as JSON, by schema id."""
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
            _simplify_field(each)


def _simplify_field(field: dict[str, Any]) -> None:
    transform, sources = field.get("transform"), field.get("source-ids")
    has_many_sources = False
    if isinstance(sources, list) and len(sources) > 1:
        has_many_sources = True
        field.setdefault("source-id", sources[0])
    if has_many_sources or (isinstance(transform, str) and Transform.parse(transform).kind == UNKNOWN):
        field["transform"] = UNKNOWN
