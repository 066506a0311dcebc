"""Rules that push limits and top-n down.

Reading order:

- `push_limit_through_project`, `push_limit_through_union`  below projections, into the sources of unions
- `push_limit_into_scan`, `push_top_n_into_scan`            into scans
"""
