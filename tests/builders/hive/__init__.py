"""Hive-style tables: `tables` writes them, `cases` makes random ones, `partition_kinds` has values that tools name
differently, `indexed` writes tables for the statistics index."""
