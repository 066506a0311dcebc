"""Hive-style tables: directories named `column=value` with Parquet files, a flat directory, or a single file."""
