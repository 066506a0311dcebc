"""Plain functions over Iceberg tables, from a location and a filter to Arrow, for threads and Spark executors."""

from tamis.tables.c_interface import export_batch
from tamis.tables.iceberg.functions import SnapshotInfo, list_files, read_manifest_file, snapshot_info

__all__ = ["SnapshotInfo", "export_batch", "list_files", "read_manifest_file", "snapshot_info"]
