"""Below row groups: `page_index`, `bloom_filter` and dictionaries.

`page_units` turns pages into units of pruning, `bloom_pruning` asks Bloom filters, `page_pruning` runs the levels in
order and keeps the row ranges that are left.
"""
