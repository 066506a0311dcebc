"""Plain functions over Iceberg tables, from a location and a filter to Arrow, for threads and Spark executors."""

from tamis.formats.function_results import export_batch
from tamis.formats.iceberg.functions import (
    SnapshotInfo,
    list_files,
    read_manifest_file,
    read_manifest_file_arrow_ffi,
    snapshot_info,
)

__all__ = [
    "SnapshotInfo",
    "export_batch",
    "list_files",
    "read_manifest_file",
    "read_manifest_file_arrow_ffi",
    "snapshot_info",
]
