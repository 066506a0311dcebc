"""Metadata-only aggregation and top-n pruning.

`measures` says what can be aggregated, `metadata_answers` what metadata of fully matched units answers,
`aggregate_scan` reads the rest, `top_n` reads units in the order of their bounds.
"""
