"""Hive-style tables: directories named `column=value` with Parquet files in them; a folder or a file alone, too."""
