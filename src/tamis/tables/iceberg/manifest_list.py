"""The manifest list of a snapshot, one row per manifest: its path, its partition spec, its contents."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.snapshots import Snapshot

from tamis import types
from tamis.errors import CorruptFile, MissingFile
from tamis.io.listing import find_file
from tamis.io.ranges import NEVER_CHANGES, RangedFile
from tamis.io.storage import Storage
from tamis.tables.iceberg.avro import open_avro
from tamis.tables.iceberg.avro_fields import Fields
from tamis.tables.iceberg.encryption import make_encryption_error, reject_encrypted
from tamis.tables.iceberg.metadata import Metadata, to_signed
from tamis.tables.iceberg.relocation import Relocation

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
"""The summary of one partition field over all files of a manifest."""

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
        raise make_encryption_error(f"'{storage.place(path)}', the manifest list of a snapshot,")
    file = open_avro(read_file_bytes(storage, path), storage.place(path))
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
        raise CorruptFile(
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
    """Describe manifests that are listed in the table metadata (format version 1), which has only their locations."""
    storage = relocation.storage
    found = []
    for location in locations:
        path = relocation.resolve(location)
        entry = find_file(storage, path)
        if entry is None:
            raise MissingFile(f"the manifest '{storage.place(path)}' does not exist")
        spec = open_avro(read_file_bytes(storage, path), storage.place(path)).number("partition-spec-id")
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


def read_file_bytes(storage: Storage, path: str, size: int | None = None) -> pa.Buffer:
    """Read all bytes of an immutable file."""
    with RangedFile(storage, path, size, NEVER_CHANGES) as file:
        return file.read([(0, file.size)])[0]
