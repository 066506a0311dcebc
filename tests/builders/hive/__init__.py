"""Hive-style tables: `tables` writes them, `cases` and `scan_cases` make random ones.

Those of `scan_cases` have files that differ, and the rows that must come back. `partition_kinds` has values that tools
name differently, `indexed` writes tables for the statistics index.
"""
