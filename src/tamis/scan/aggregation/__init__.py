"""Metadata-only aggregation, top-n pruning and sorted reads.

Reading order:

- `measures`          what can be aggregated
- `metadata_answers`  answers from the metadata of fully matched units
- `aggregate_scan`    the driver: it reads the other units
- `top_n`             units in the order of their bounds
- `sorted_rows`       all rows in order, from files in the order of their bounds
"""
