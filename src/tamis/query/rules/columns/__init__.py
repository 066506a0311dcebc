"""Rules that narrow columns.

Reading order:

- `prune_columns`              columns that are not read
- `extract_dereferences`       struct fields below operations
- `push_projection_into_scan`  columns and struct fields that a scan returns
- `narrowing`                  the narrowing of nodes that the rules share
"""
