"""Rules that push aggregations down.

Reading order:

- `push_aggregation_into_scan`  counts, minima, maxima and sums, computed by the connector
"""
