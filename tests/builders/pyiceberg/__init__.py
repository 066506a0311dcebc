"""Iceberg tables that pyiceberg writes: `tables`, random `cases`, and their `nested_columns`."""
