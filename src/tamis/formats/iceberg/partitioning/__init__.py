"""Partition specs and transforms.

Reading order:

- `specs`             partition specs and their fields
- `transforms`        what a partition value says about its source column
- `partition_bounds`  bounds of source columns from partition values, and projected predicates
- `partition_keys`    partition tuples as comparable keys, and as text
- `partition_fields`  partition values as columns that users see
"""
