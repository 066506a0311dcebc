"""Plain functions over Delta tables, from a location and a filter to Arrow, for threads and Spark executors."""

from tamis.formats.delta.functions import (
    SnapshotInfo,
    list_files,
    read_checkpoint_part,
    read_checkpoint_part_arrow_ffi,
    read_post_checkpoint_changes,
    snapshot_info,
)
from tamis.formats.delta.planning.partition_values import rewrite_partition_predicate
from tamis.formats.function_results import export_batch

__all__ = [
    "SnapshotInfo",
    "export_batch",
    "list_files",
    "read_checkpoint_part",
    "read_checkpoint_part_arrow_ffi",
    "read_post_checkpoint_changes",
    "rewrite_partition_predicate",
    "snapshot_info",
]
