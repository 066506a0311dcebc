"""Rules for sorts of rows that a scan returns in order.

Reading order:

- `scan_order`              whether the rows of a node come in an order
- `drop_sort`               sorts
- `replace_top_n_by_limit`  a top-n over rows in order becomes a limit
"""
