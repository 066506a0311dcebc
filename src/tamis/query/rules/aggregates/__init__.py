"""Rules that push aggregations down, or drop them.

Reading order:

- `push_aggregation_into_scan`  counts, minima, maxima and sums, computed by the connector
- `group_by_partitions`         distinct values of partition columns
- `drop_distinct`               DISTINCT over a unique key
"""
