"""Hive-style directories `column=value` over Parquet files, flat folders, and single files.

Reading order:

- `tree`                directories, listed lazily, and the escapes in their names
- `partition_types`     partition columns and their types
- `layout`              the levels of directories, and the data files that a filter needs
- `table`, `functions`  what a scan sees; the functions of `tamis.hive`
"""
