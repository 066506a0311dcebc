"""Execution on the embedded connection.

Reading order:

- `evaluate`  filters of batches
- `run_plan`  plans over their scans, and replacements for types that DuckDB does not have
- `errors`    DuckDB's errors in the user's terms
"""
