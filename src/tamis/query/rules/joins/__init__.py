"""Rules for joins.

Reading order:

- `push_join_into_scan`         joins of two tables of one connector
- `prune_with_dynamic_filters`  dynamic filters from the smaller side
"""
