"""Parquet: footers, leaf columns, statistics."""
