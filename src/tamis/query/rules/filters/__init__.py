"""Rules that push predicates down, through each kind of node and into scans.

Reading order:

- `merge_filters`                                              adjacent filters
- `push_filter_through_project`, `push_filter_through_filter`  below projections and row filters
- `push_filter_through_join`, `push_filter_through_union`      into the sources of joins and unions
- `push_filter_through_aggregate`                              below aggregations
- `push_filter_into_scan`, `drop_residual`                     into scans; conjuncts that a scan guarantees
"""
