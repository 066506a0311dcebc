"""Plain functions over Hive-style tables, from a location and a filter to Arrow, for threads and Spark executors."""

from tamis.formats.function_results import export_batch
from tamis.formats.hive.functions import TableInfo, list_partition_files, table_info

__all__ = ["TableInfo", "export_batch", "list_partition_files", "table_info"]
