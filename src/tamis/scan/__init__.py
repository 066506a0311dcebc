"""Scans: `scan` is what users hold; `planning` decides what to read, `reading` reads it, `aggregation` answers
counts, minima, maxima and top-n from metadata first, `report` explains it. `verify` proves that pruning loses no row.
"""
