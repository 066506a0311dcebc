"""The manifest list of a snapshot, one row per manifest: its path, its partition spec, its contents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.snapshots import Snapshot

from tamis import types
from tamis.errors import MissingFile, UnsupportedFeature
from tamis.formats.errors import make_corrupt_snapshot_error
from tamis.formats.files.avro import open_avro
from tamis.formats.files.avro_schema import unwrap_nullable
from tamis.formats.iceberg.metadata.relocation import Relocation
from tamis.formats.iceberg.metadata.table_metadata import Metadata, to_signed
from tamis.formats.source import to_single_array
from tamis.io.listing import find_file
from tamis.io.ranges import IMMUTABLE, RangedFile
from tamis.io.storage import Storage

DATA, DELETES = 0, 1
_CONTENTS = pa.array([DATA, DELETES], pa.int32())

SUMMARY = pa.struct(
    [
        ("contains_null", types.BOOLEAN),
        ("contains_nan", types.BOOLEAN),
        ("lower_bound", types.BINARY),
        ("upper_bound", types.BINARY),
    ]
)

MANIFESTS = pa.schema(
    [
        ("path", types.STRING),
        ("length", types.LONG),
        ("spec_id", pa.int32()),
        ("content", pa.int32()),
        ("sequence_number", types.LONG),
        ("added_snapshot_id", types.LONG),
        ("files", types.LONG),
        ("rows", types.LONG),
        ("summaries", pa.list_(SUMMARY)),
    ]
)
"""`path` is in the file system; `files` and `rows` count live files and their rows, null if unknown."""

_NAMES = {
    "manifest_path": 500,
    "manifest_length": 501,
    "partition_spec_id": 502,
    "added_snapshot_id": 503,
    "added_files_count": 504,
    "added_data_files_count": 504,
    "existing_files_count": 505,
    "existing_data_files_count": 505,
    "partitions": 507,
    "added_rows_count": 512,
    "existing_rows_count": 513,
    "sequence_number": 515,
    "content": 517,
    "key_metadata": 519,
}
_SUMMARY_NAMES = {"contains_null": 509, "lower_bound": 510, "upper_bound": 511, "contains_nan": 518}


@dataclass(frozen=True)
class ManifestList:
    """The manifests of a snapshot that may hold live files; the columns are `MANIFESTS`."""

    table: pa.Table

    def select_content(self, content: int) -> pa.Table:
        """Return the data manifests, or the delete manifests."""
        return self.table.filter(pc.equal(self.table["content"], content))


def read_manifest_list(metadata: Metadata, snapshot: Snapshot | None, relocation: Relocation) -> ManifestList:
    """Read the manifests of a snapshot; a table without a snapshot has none."""
    if snapshot is None:
        return ManifestList(MANIFESTS.empty_table())
    embedded = metadata.embedded_manifests.get(snapshot.snapshot_id)
    if embedded is not None:
        return ManifestList(_describe_embedded(embedded, snapshot, relocation))
    storage = relocation.storage
    path = relocation.resolve(snapshot.manifest_list)
    if snapshot.snapshot_id in metadata.encrypted_snapshots:
        raise make_encryption_error(f"'{storage.format_path(path)}', the manifest list of a snapshot,")
    file = open_avro(read_file_bytes(storage, path), storage.format_path(path))
    fields = Fields.of_table(file.read(), file.schema, file.location, _NAMES)
    files = pc.add(fields.get_optional(504, types.LONG), fields.get_optional(505, types.LONG))
    found = pa.table(
        {
            "path": relocation.resolve_all(fields.get_required(500, types.STRING)),
            "length": fields.get_optional(501, types.LONG, 0),
            "spec_id": fields.get_required(502, pa.int32()),
            "content": fields.get_optional(517, pa.int32(), DATA),
            "sequence_number": fields.get_optional(515, types.LONG, 0),
            "added_snapshot_id": fields.get_optional(503, types.LONG),
            "files": files,
            "rows": pc.add(fields.get_optional(512, types.LONG), fields.get_optional(513, types.LONG)),
            "summaries": _read_summaries(fields),
        },
        MANIFESTS,
    )
    if not pc.all(pc.is_in(found["content"], _CONTENTS), min_count=0).as_py():
        raise make_corrupt_snapshot_error(
            f"'{file.location}' has a manifest with unsupported content, expected data or deletes: it is damaged, or "
            "too new"
        )
    is_live = pc.fill_null(pc.not_equal(files, 0), True)
    found, keys = found.filter(is_live), fields.get_optional(519, types.BINARY).filter(is_live)
    reject_encrypted(keys, found["path"], file.location)
    return ManifestList(found)


def _read_summaries(fields: Fields) -> pa.Array:
    given = fields.columns.get(507)
    if given is None:
        return pa.nulls(fields.rows, MANIFESTS.field("summaries").type)
    element = fields.schemas[507]
    inner = element if not isinstance(element, list) else next(each for each in element if each["type"] != "null")
    values = Fields.of_table(pa.Table.from_struct_array(given.values), inner["items"], fields.location, _SUMMARY_NAMES)
    columns = [
        values.get_optional(field_id, SUMMARY.field(name).type)
        for name, field_id in zip(SUMMARY.names, (509, 518, 510, 511), strict=True)
    ]
    summaries = pa.StructArray.from_arrays(columns, fields=list(SUMMARY))
    mask = given.is_null() if given.null_count else None
    return pa.ListArray.from_arrays(given.offsets.cast(pa.int32()), summaries, mask=mask)


def _describe_embedded(locations: tuple[str, ...], snapshot: Snapshot, relocation: Relocation) -> pa.Table:
    """Return the manifests that the table metadata lists (format version 1). Only their locations are known."""
    storage = relocation.storage
    found = []
    for location in locations:
        path = relocation.resolve(location)
        entry = find_file(storage, path)
        if entry is None:
            raise MissingFile(
                f"the manifest '{storage.format_path(path)}' does not exist. Restore it from a backup, or open another "
                "snapshot with snapshot_id="
            )
        spec = open_avro(read_file_bytes(storage, path), storage.format_path(path)).number("partition-spec-id")
        found.append(
            {
                "path": path,
                "length": entry.size,
                "spec_id": spec or 0,
                "content": DATA,
                "sequence_number": 0,
                "added_snapshot_id": to_signed(snapshot.snapshot_id),
            }
        )
    return pa.Table.from_pylist(found, MANIFESTS)


def read_file_bytes(storage: Storage, path: str) -> pa.Buffer:
    """Read all bytes of an immutable file."""
    with RangedFile(storage, path, None, IMMUTABLE) as file:
        return file.read([(0, file.size)])[0]


# --- Encrypted tables, which are unsupported: the metadata of each make_encryption_error file has a key ---------------


def reject_encrypted(keys: pa.Array, paths: pa.Array, location: str) -> None:
    """Raise if a file has key metadata; `location` is the manifest or manifest list that names the files."""
    if keys.null_count == len(keys):
        return
    has_key = pc.fill_null(pc.greater(pc.binary_length(keys), 0), False)
    found = paths.filter(has_key)
    if len(found):
        raise make_encryption_error(f"'{found[0].as_py()}', listed in '{location}',")


def make_encryption_error(what: str) -> UnsupportedFeature:
    """Return the error for an encrypted file."""
    return UnsupportedFeature(f"{what} is encrypted, which Tamis does not support: read the table with Spark")


# --- Access to the fields of manifests and manifest lists by field id, because writers use different names ------------


@dataclass(frozen=True)
class Fields:
    """The fields of a record, as columns."""

    columns: Mapping[int, pa.Array]
    schemas: Mapping[int, Any]
    rows: int
    location: str

    @staticmethod
    def of_table(table: pa.Table, schema: Any, location: str, names: Mapping[str, int]) -> Fields:
        columns = [to_single_array(each) for each in table.columns]
        return _collect_fields(columns, schema, table.num_rows, location, names)

    def get_struct(self, field_id: int, names: Mapping[str, int]) -> Fields:
        """Return the fields of a struct that is never null."""
        column, schema = self.columns.get(field_id), self.schemas.get(field_id)
        if column is None or not pa.types.is_struct(column.type) or column.null_count:
            raise make_corrupt_snapshot_error(
                f"'{self.location}' is not a manifest or manifest list: it has no record with the field id {field_id}"
            )
        return _collect_fields(column.flatten(), unwrap_nullable(schema)[0], self.rows, self.location, names)

    def get_required(self, field_id: int, data_type: pa.DataType) -> pa.Array:
        """Return a column without nulls."""
        found = self.get_optional(field_id, data_type)
        if found.null_count:
            raise make_corrupt_snapshot_error(f"'{self.location}' lacks a required value of the field {field_id}")
        return found

    def get_optional(self, field_id: int, data_type: pa.DataType, default: object = None) -> pa.Array:
        """Return a column that may be absent; its missing values are the default."""
        found = self.columns.get(field_id)
        if found is None:
            return pa.repeat(pa.scalar(default, data_type), self.rows)
        try:
            found = found.cast(data_type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise make_corrupt_snapshot_error(
                f"'{self.location}' has the type {found.type} for the field {field_id}, expected {data_type}"
            ) from error
        return found if default is None or not found.null_count else found.fill_null(default)

    def get_map(self, field_id: int) -> pa.Array | None:
        """Return a column of maps, stored as lists of `key` and `value`; None if it is absent."""
        found = self.columns.get(field_id)
        if found is None:
            return None
        inner = found.type.value_type if pa.types.is_large_list(found.type) or pa.types.is_list(found.type) else None
        names = [each.name for each in inner] if inner is not None and pa.types.is_struct(inner) else []
        if names != ["key", "value"]:
            raise make_corrupt_snapshot_error(
                f"'{self.location}' has the type {found.type} for the field {field_id}, expected a map"
            )
        return found


def _collect_fields(columns: list[pa.Array], schema: Any, rows: int, location: str, names: Mapping[str, int]) -> Fields:
    found: dict[int, pa.Array] = {}
    schemas: dict[int, Any] = {}
    for column, field in zip(columns, schema["fields"], strict=True):
        field_id = field.get("field-id", names.get(field["name"]))
        if isinstance(field_id, int):
            found[field_id] = column
            schemas[field_id] = field["type"]
    return Fields(found, schemas, rows, location)


def find_map_values(maps: pa.Array | None, key: int, rows: int) -> pa.Array | None:
    """Return each map's value for a key, null if it has none. Maps are lists of `key` and `value`."""
    if maps is None:
        return None
    entries = maps.values
    keys, values = entries.field("key"), entries.field("value")
    hits = np.flatnonzero(keys.to_numpy(zero_copy_only=False) == key)
    offsets = maps.offsets.to_numpy()
    # Entries of null lists, and of lists before a slice, have no owner.
    owners = np.searchsorted(offsets, hits, side="right") - 1
    is_owned = (owners >= 0) & (owners < rows)
    hits, owners = hits[is_owned], owners[is_owned]
    positions = np.full(rows, -1, np.int64)
    positions[owners] = hits
    if maps.null_count:
        positions[np.asarray(maps.is_null())] = -1
    return values.take(pa.array(positions, mask=positions < 0))
