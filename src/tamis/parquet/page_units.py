"""Pages as units of pruning, for filters on any number of columns.

Pages of two columns start at different rows. So a row group is split wherever a page of some filtered column starts:

    a      |----page 0----|-------page 1-------|
    b      |------page 0------|----page 1------|
    units  |------0-------|-1-|-------2--------|

In each *row range* every column lies within one page, and what is true for all rows of the page is true for the row
range. All conjuncts, also those on several columns, are then evaluated by the same rules as at every other level.
With one filtered column, the row ranges are its pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.skipping.metadata import ROW_COUNT

Rows = npt.NDArray[np.int64]

_COUNTS = ("null_count:", "nan_count:")
_EXACT = ("lower_exact:", "upper_exact:")


@dataclass(frozen=True, slots=True, eq=False)
class ColumnPages:
    """The metadata of one column in one row group, one row per page."""

    first_rows: Rows
    """The first row of each page, from 0 on. An empty page starts at the same row as the next one."""
    metadata: Mapping[str, pa.Array]


@dataclass(frozen=True, slots=True, eq=False)
class RowRanges:
    """The row ranges of a row group: `starts[i]` to `ends[i]` (exclusive), with one row of metadata each."""

    starts: Rows
    ends: Rows
    metadata: Mapping[str, pa.Array]

    @property
    def row_counts(self) -> Rows:
        return self.ends - self.starts


def split_into_row_ranges(columns: Sequence[ColumnPages], row_count: int) -> RowRanges:
    """Return the common refinement of the pages of some columns of a row group."""
    first_rows = [column.first_rows for column in columns]
    starts = np.unique(np.concatenate([np.zeros(1, np.int64), *first_rows]))
    starts = starts[starts < row_count]
    ends = np.append(starts[1:], row_count) if len(starts) else starts
    metadata: dict[str, pa.Array] = {}
    for column in columns:
        if not column.metadata:
            continue
        metadata |= _spread_metadata(column, starts, ends, row_count)
    metadata[ROW_COUNT.name] = pa.array(ends - starts, types.LONG)
    return RowRanges(starts, ends, metadata)


def _spread_metadata(column: ColumnPages, starts: Rows, ends: Rows, row_count: int) -> dict[str, pa.Array]:
    # If several pages start at the same row, all but the last are empty.
    pages = np.searchsorted(column.first_rows, starts, side="right") - 1
    page_rows = np.diff(column.first_rows, append=row_count)[pages]
    is_whole = page_rows == ends - starts
    if len(pages) == len(column.first_rows) and is_whole.all():
        # Each row range is exactly one page, in order.
        return dict(column.metadata)
    indices = pa.array(pages)
    spread: dict[str, pa.Array] = {}
    for name, values in column.metadata.items():
        values_of_ranges = values.take(indices)
        if not is_whole.all():
            if name.startswith(_COUNTS):
                values_of_ranges = _count_in_parts(values_of_ranges, is_whole, page_rows, ends - starts)
            elif name.startswith(_EXACT):
                # The exact value belongs to some row of the page, which may be in another row range.
                values_of_ranges = pc.if_else(pa.array(is_whole), values_of_ranges, pa.scalar(False))
        spread[name] = values_of_ranges
    return spread


def _count_in_parts(counts: pa.Array, is_whole: npt.NDArray[np.bool_], page_rows: Rows, rows: Rows) -> pa.Array:
    """Return the counts for parts of pages: none or all rows if that is true for the page, else unknown."""
    part_counts = pc.case_when(
        pc.make_struct(pc.equal(counts, 0), pc.equal(counts, pa.array(page_rows))),
        pa.scalar(0, types.LONG),
        pa.array(rows, types.LONG),
    )
    return pc.if_else(pa.array(is_whole), counts, part_counts)
