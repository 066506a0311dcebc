"""Partition specs. Transforms are in `skipping.transforms`.

Reading order:

- `specs`             partition specs and their fields
- `partition_bounds`  bounds of source columns from partition values, and projected predicates
- `partition_keys`    partition tuples as comparable keys, as text, and as columns that users see
"""
