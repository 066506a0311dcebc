"""Metadata-only aggregation and top-n pruning.

Reading order:

- `measures`          what can be aggregated
- `metadata_answers`  answers from the metadata of fully matched units
- `aggregate_scan`    the driver: it reads the other units
- `top_n`             units in the order of their bounds
"""
