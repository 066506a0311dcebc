"""Switches that send small files down the way of large ones: nothing is too small to be pruned and read by pages."""

from __future__ import annotations

import pytest

from tamis.parquet.footer import footer
from tamis.parquet.indexes import page_pruning as narrow
from tamis.scan.planning import slices as pages
from tamis.scan.reading import task_reader as paged
from tamis.scan.reading import task_reader as read


def read_by_pages(patch: pytest.MonkeyPatch) -> None:
    """Ask every level about every row group, read by pages whatever can be, filtered columns first."""
    patch.setattr(footer, "MAX_WHOLE_FILE_BYTES", 0)
    patch.setattr(pages, "MIN_BYTES_TO_PRUNE_PAGES", 0)
    patch.setattr(narrow, "DICTIONARY_SHARE", 0)
    patch.setattr(read, "MAX_SHARE_BY_PAGES", 1.0)
    patch.setattr(read, "MAX_SELECTIVITY_TO_FILTER_FIRST", 1.0)
    for is_local in paged.MIN_BYTES_FOR_SECOND_READ:
        patch.setitem(paged.MIN_BYTES_FOR_SECOND_READ, is_local, 0)
