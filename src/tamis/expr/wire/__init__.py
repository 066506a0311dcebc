"""Expressions for other processes.

Reading order:

- `expression_json`   exact JSON, between processes of Tamis
- `partition_filter`  `PartitionFilter`, a portable filter on partition values
"""
