"""Pages as units of pruning, for filters on any number of columns.

Pages of two columns begin at different rows. So a row group is cut wherever a page of some filtered column begins:

    a      |----page 0----|-------page 1-------|
    b      |------page 0------|----page 1------|
    units  |------0-------|-1-|-------2--------|

In each *stretch* every column lies within one page, and what is true of all rows of the page is true of those of the
stretch. All conjuncts, also those on several columns, are then judged by the same rules as at every other level.
With one filtered column the stretches are its pages.
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
    """What is known of one column in one row group: a row of metadata for each page."""

    first_rows: Rows
    """Where each page begins, from 0 on. A page without rows begins where the next one does."""
    metadata: Mapping[str, pa.Array]


@dataclass(frozen=True, slots=True, eq=False)
class Stretches:
    """The stretches of a row group: `starts[i]` to `ends[i]`, and a row of metadata for each."""

    starts: Rows
    ends: Rows
    metadata: Mapping[str, pa.Array]

    @property
    def row_counts(self) -> Rows:
        return self.ends - self.starts


def cut_into_stretches(columns: Sequence[ColumnPages], row_count: int) -> Stretches:
    """The common refinement of the pages of some columns of a row group."""
    begins = [column.first_rows for column in columns]
    starts = np.unique(np.concatenate([np.zeros(1, np.int64), *begins]))
    starts = starts[starts < row_count]
    ends = np.append(starts[1:], row_count) if len(starts) else starts
    metadata: dict[str, pa.Array] = {}
    for column in columns:
        if not column.metadata:
            continue
        metadata |= _spread(column, starts, ends, row_count)
    metadata[ROW_COUNT.name] = pa.array(ends - starts, types.LONG)
    return Stretches(starts, ends, metadata)


def _spread(column: ColumnPages, starts: Rows, ends: Rows, row_count: int) -> dict[str, pa.Array]:
    # Of several pages that begin at one row all but the last are empty.
    pages = np.searchsorted(column.first_rows, starts, side="right") - 1
    page_rows = np.diff(column.first_rows, append=row_count)[pages]
    is_whole = page_rows == ends - starts
    if len(pages) == len(column.first_rows) and is_whole.all():
        # Each of the stretches is one of the pages, in their order.
        return dict(column.metadata)
    indices = pa.array(pages)
    spread: dict[str, pa.Array] = {}
    for name, values in column.metadata.items():
        taken = values.take(indices)
        if not is_whole.all():
            if name.startswith(_COUNTS):
                taken = _counts_of_parts(taken, is_whole, page_rows, ends - starts)
            elif name.startswith(_EXACT):
                # The value is that of some row of the page, which may lie in another stretch.
                taken = pc.if_else(pa.array(is_whole), taken, pa.scalar(False))
        spread[name] = taken
    return spread


def _counts_of_parts(counts: pa.Array, is_whole: npt.NDArray[np.bool_], page_rows: Rows, rows: Rows) -> pa.Array:
    """How many rows of a part are counted: none or all where that is so in the page, else nobody knows."""
    of_part = pc.case_when(
        pc.make_struct(pc.equal(counts, 0), pc.equal(counts, pa.array(page_rows))),
        pa.scalar(0, types.LONG),
        pa.array(rows, types.LONG),
    )
    return pc.if_else(pa.array(is_whole), counts, of_part)
