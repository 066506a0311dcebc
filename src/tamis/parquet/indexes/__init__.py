"""The levels below row groups: Bloom filters, pages, dictionaries.

Reading order:

- `page_pruning`                   the driver: it applies the levels in order and keeps the remaining row ranges
- `page_index`, `page_units`       the page index; pages as units of pruning
- `bloom_filter`, `bloom_pruning`  Bloom filters, also from another source than the file; lookup with few requests
"""
