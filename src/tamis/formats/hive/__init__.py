"""Hive-style directories `column=value` over Parquet files, flat folders, and single files.

Read `names` (escaping), `tree` (listing), `discovery` and `partition_types` (partition columns and their types),
`layout`, then `table`. `functions` is what `tamis.hive` offers.
"""
