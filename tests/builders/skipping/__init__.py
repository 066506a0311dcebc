"""Metadata of units: `units` writes it by hand, `small_worlds` enumerates it for a few values.

`duckdb_handler` evaluates expressions over it with DuckDB.
"""
