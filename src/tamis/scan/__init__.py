"""Scans of tables.

Reading order:

- `scan`         what users hold, and rows for pandas, polars and DuckDB
- `planning`     from files to tasks
- `reading`      from tasks to rows
- `aggregation`  metadata-only aggregation and top-n pruning
- `report`       what was skipped, level by level
- `verify`       the proof that pruning loses no row
- `engine`       what a scan needs of an engine
"""
