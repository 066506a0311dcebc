"""Plain functions over an Iceberg table, for programs with planners of their own: in threads or in Spark executors.

`snapshot_info` returns the manifests of a snapshot. They can then be read anywhere, in any order. `list_files` does all
of it in one process. Filters compare the texts of partition values, as `PartitionFilter` describes, by the names of
partition fields or of identity-partitioned columns, and are evaluated before the other columns of a file are built.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import InvalidArgument, suggest_arguments
from tamis.expr.wire.partition_filter import PartitionFilter, check_partition_filter
from tamis.formats.errors import check_installed
from tamis.formats.function_results import UNKNOWN, check_column_addresses, concat_batches, export_columns
from tamis.io.storage import open_storage
from tamis.io.threads import run_in_threads

if TYPE_CHECKING:
    from tamis.formats.iceberg.partitioning.specs import Spec
    from tamis.formats.iceberg.planning.manifest_files import Manifest, PartitionedFiles
    from tamis.formats.iceberg.table import IcebergTable

Uri = str | os.PathLike[str]

FILE_SCHEMA = pa.schema(
    [
        ("path", types.STRING),
        ("file_format", types.STRING),
        ("record_count", types.LONG),
        ("file_size_bytes", types.LONG),
        ("partition_values", types.STRING),
        ("content_type", types.STRING),
        ("snapshot_id", types.LONG),
    ]
)
"""`path` is the current location of the file, also of a table that was moved; `partition_values` are JSON;
`content_type` is `data`, `position_deletes` or `equality_deletes`; `snapshot_id` is that of the snapshot that added the
file. Unknown numbers are -1."""

CONTENT_TYPES = ("data", "position_deletes", "equality_deletes")


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """The manifests of a snapshot. Paths are in the table's file system, sizes are in bytes."""

    snapshot_id: int | None
    schema: pa.Schema
    manifests: tuple[str, ...]
    """The manifests that may have live files: data manifests, then delete manifests."""
    manifest_sizes: tuple[int, ...]


@suggest_arguments("tamis.iceberg.snapshot_info")
def snapshot_info(
    uri: Uri,
    *,
    snapshot_id: int | None = None,
    ref: str | None = None,
    timestamp: datetime | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    catalog: object = None,
    relocate: bool = True,
    allow_outside: bool = False,
) -> SnapshotInfo:
    """Return the manifests of a snapshot: the current one, or by its id, by a branch or tag, or at a timestamp."""
    table = _open(uri, storage_options, catalog, relocate, allow_outside, snapshot_id, ref, timestamp)
    manifests = table.manifests.table.sort_by("content")
    return SnapshotInfo(
        table.version, table.schema, tuple(manifests["path"].to_pylist()), tuple(manifests["length"].to_pylist())
    )


@suggest_arguments("tamis.iceberg.list_files")
def list_files(
    uri: Uri,
    filter: PartitionFilter | None = None,
    *,
    snapshot_id: int | None = None,
    ref: str | None = None,
    timestamp: datetime | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    catalog: object = None,
    relocate: bool = True,
    allow_outside: bool = False,
) -> pa.RecordBatch:
    """Return the live data and delete files of a snapshot that the filter keeps: the columns are `FILE_SCHEMA`."""
    check_partition_filter(filter)
    table = _open(uri, storage_options, catalog, relocate, allow_outside, snapshot_id, ref, timestamp)
    from tamis.formats.iceberg.planning.manifest_files import Manifest

    manifests = Manifest.from_table(table.manifests.table.sort_by("content"))
    filters = _resolve_filters(table, filter)
    found = run_in_threads(lambda each: _read_manifest(table, each, filters), manifests, table.storage.threads)
    return concat_batches(found, FILE_SCHEMA)


@suggest_arguments("tamis.iceberg.read_manifest_file")
def read_manifest_file(
    uri: Uri,
    manifest: str,
    filter: PartitionFilter | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    catalog: object = None,
    relocate: bool = True,
    allow_outside: bool = False,
) -> pa.RecordBatch:
    """Return the live files of one manifest that the filter keeps: the columns are `FILE_SCHEMA`.

    `manifest` is a path in `snapshot_info(…).manifests`, or the manifest's location in the table's metadata.
    """
    check_partition_filter(filter)
    if not isinstance(manifest, str) or not manifest:
        raise InvalidArgument(f"manifest must be a path in snapshot_info(…).manifests, found {manifest!r}")
    table = _open(uri, storage_options, catalog, relocate, allow_outside)
    return _read_manifest(table, _find_manifest(table, manifest), _resolve_filters(table, filter))


@suggest_arguments("tamis.iceberg.read_manifest_file_arrow_ffi")
def read_manifest_file_arrow_ffi(
    uri: Uri,
    manifest: str,
    filter: PartitionFilter | None,
    array_addresses: Sequence[int],
    schema_addresses: Sequence[int],
    *,
    storage_options: Mapping[str, Any] | None = None,
    catalog: object = None,
    relocate: bool = True,
    allow_outside: bool = False,
) -> int:
    """Write the columns of `read_manifest_file` to structs of Arrow's C Data Interface; return the number of rows.

    There is one `ArrowArray` and one `ArrowSchema` for each of the seven columns. The caller owns them and calls
    `release` for each. An address that is not that of such a struct crashes the process, and cannot be checked.
    """
    check_column_addresses(FILE_SCHEMA, array_addresses, schema_addresses)
    batch = read_manifest_file(
        uri,
        manifest,
        filter,
        storage_options=storage_options,
        catalog=catalog,
        relocate=relocate,
        allow_outside=allow_outside,
    )
    return export_columns(batch, array_addresses, schema_addresses)


def _resolve_filters(table: IcebergTable, filter: PartitionFilter | None) -> Mapping[int, PartitionFilter]:
    from tamis.formats.iceberg.partitioning.specs import resolve_filter

    return {} if filter is None else resolve_filter(filter, table.layout.specs, table.name)


def _open(
    uri: Uri,
    storage_options: Mapping[str, Any] | None,
    catalog: object,
    relocate: bool,
    allow_outside: bool,
    snapshot_id: int | None = None,
    ref: str | None = None,
    timestamp: datetime | str | None = None,
) -> IcebergTable:
    check_installed()
    # Imported here, because only Iceberg tables need them.
    from tamis.formats.iceberg.metadata.open_metadata import open_location
    from tamis.formats.iceberg.table import IcebergTable

    if catalog is not None:
        from tamis.formats.iceberg.catalogs import open_in_catalog

        opened = open_in_catalog(
            os.fspath(uri), catalog, storage_options, relocate=relocate, allow_outside=allow_outside
        )
    else:
        opened = open_location(open_storage(uri, storage_options), relocate=relocate, allow_outside=allow_outside)
    return IcebergTable.open(opened, snapshot_id, ref, timestamp)


def _find_manifest(table: IcebergTable, path: str) -> Manifest:
    """Return a manifest by its path: from the manifest list, or from its own header if it belongs to another
    snapshot."""
    from tamis.formats.files.avro import open_avro
    from tamis.formats.iceberg.manifests.manifest_list import read_file_bytes
    from tamis.formats.iceberg.planning.manifest_files import Manifest

    known = {each.path: each for each in Manifest.from_table(table.manifests.table)}
    found = known.get(path) or known.get(resolved := table.opened.relocation.resolve(path))
    if found is not None:
        return found
    content = read_file_bytes(table.storage, resolved)
    spec = open_avro(content, table.storage.format_path(resolved)).number("partition-spec-id")
    return Manifest(resolved, content.size, spec or 0, 0, None, None)


def _read_manifest(table: IcebergTable, manifest: Manifest, filters: Mapping[int, PartitionFilter]) -> pa.RecordBatch:
    from tamis.formats.iceberg.planning.manifest_files import get_spec, join_entries, read_entries

    location = table.storage.format_path(manifest.path)
    spec = get_spec(table.layout.specs, manifest.spec_id, f"'{location}'")
    tuples = join_entries(spec, [read_entries(table.storage, manifest, ())], location)
    return _describe_files(table, spec, tuples, filters.get(spec.spec_id))


def _describe_files(
    table: IcebergTable, spec: Spec, tuples: PartitionedFiles, filter: PartitionFilter | None
) -> pa.RecordBatch:
    from tamis.formats.iceberg.partitioning.partition_keys import PartitionTexts

    texts = PartitionTexts.of(spec, tuples.typed, tuples.keys)
    files = tuples.files
    if filter is not None:
        tuples.check_texts()
        kept = texts.apply_filter(filter)
        if kept.true_count < files.num_rows:
            files, texts = files.filter(kept), PartitionTexts(texts.distinct, texts.indices.filter(kept))
    kinds = pa.array(CONTENT_TYPES, types.STRING).take(files["content"].combine_chunks())
    return pa.record_batch(
        [
            _resolve_locations(table, files["location"].combine_chunks()),
            files["file_format"].combine_chunks(),
            pc.fill_null(files["record_count"].combine_chunks(), UNKNOWN),
            files["size"].combine_chunks(),
            texts.to_json(),
            kinds,
            pc.fill_null(files["snapshot_id"].combine_chunks(), UNKNOWN),
        ],
        schema=FILE_SCHEMA,
    )


def _resolve_locations(table: IcebergTable, locations: pa.StringArray) -> pa.StringArray:
    """Return the current locations of files, also of a table that was moved."""
    relocation = table.opened.relocation
    paths = relocation.resolve_all(locations)
    if not relocation.is_moved:
        return locations
    scheme = table.storage.format_path("")
    return pc.binary_join_element_wise(scheme, paths, "") if scheme else paths
