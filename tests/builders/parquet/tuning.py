"""Thresholds that make Tamis prune and read small files like large ones."""

from __future__ import annotations

from tamis.tuning import Tuning

BY_PAGES = Tuning(
    max_whole_file_bytes=0,
    min_bytes_to_prune_pages=0,
    min_dictionary_saving=0,
    max_share_by_pages=1.0,
    max_selectivity_to_filter_first=1.0,
    min_bytes_for_second_read=0,
    min_local_bytes_for_second_read=0,
)
"""Every level prunes every row group. Rows are read by pages where that is possible, filtered columns first."""

PRUNE_PAGES = Tuning(min_bytes_to_prune_pages=0)
"""Pages of every row group are pruned."""
