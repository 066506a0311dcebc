"""Plain functions over Hive-style tables, from a place and a filter to Arrow: for threads and Spark executors alike."""

from tamis.tables.hive.functions import TableInfo, list_partition_files, table_info

__all__ = ["TableInfo", "list_partition_files", "table_info"]
