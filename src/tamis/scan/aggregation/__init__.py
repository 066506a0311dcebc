"""Metadata-only aggregation and top-n pruning.

`measures` defines what can be aggregated, `metadata_answers` answers it from metadata of fully matched units,
`aggregate_scan` reads the other units, `top_n` reads units in the order of their bounds.
"""
