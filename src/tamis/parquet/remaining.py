"""The row ranges of one file that remain to be read while levels below its row groups prune it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis.parquet.page_units import RowRanges
from tamis.parquet.selection import RowSelection
from tamis.skipping.metadata import ROW_COUNT

Bits = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Remaining:
    """The remaining row ranges of a file, in file order. At first each is a whole row group."""

    row_groups: Rows
    """The row group of each row range."""
    starts: Rows
    ends: Rows
    """The first row and the row after the last of each row range, counted within the row group."""
    residual: Bits
    """`unmatched[i, j]`: conjunct j is a residual filter for row range i, which is not fully matched by it."""
    units: pa.RecordBatch
    """The metadata of the row ranges."""
    row_counts: Mapping[int, int]
    """The number of rows of each row group."""
    _selections: dict[int, RowSelection] = field(default_factory=dict, repr=False)

    @staticmethod
    def from_row_groups(row_groups: Sequence[int], units: pa.RecordBatch, unmatched: Bits) -> Remaining:
        """Start with whole row groups, whose metadata is `units`."""
        rows = np.asarray(units.column(ROW_COUNT.name), np.int64)
        counts = dict(zip(row_groups, rows.tolist(), strict=True))
        return Remaining(np.array(row_groups, np.int64), np.zeros(len(rows), np.int64), rows, unmatched, units, counts)

    @property
    def kept_row_groups(self) -> tuple[int, ...]:
        groups = self.row_groups
        is_first = np.ones(len(groups), bool)
        is_first[1:] = groups[1:] != groups[:-1]
        return tuple(groups[is_first].tolist())

    def _slice_of_group(self, row_group: int) -> slice:
        """Return the positions of a row group's row ranges."""
        first, last = np.searchsorted(self.row_groups, (row_group, row_group + 1))
        return slice(int(first), int(last))

    def keep(self, mask: Bits, units: pa.RecordBatch | None = None) -> Remaining:
        """Return the row ranges selected by a mask; `units` is their metadata, if already computed."""
        if mask.all():
            return self if units is None else replace(self, units=units)
        return Remaining(
            self.row_groups[mask],
            self.starts[mask],
            self.ends[mask],
            self.residual[mask],
            self.units.filter(pa.array(mask)) if units is None else units,
            self.row_counts,
        )

    def selection(self, row_group: int) -> RowSelection:
        """Return the remaining rows of a row group."""
        found = self._selections.get(row_group)
        if found is None:
            own = self._slice_of_group(row_group)
            found = RowSelection(self.starts[own], self.ends[own], self.row_counts[row_group])
            self._selections[row_group] = found
        return found

    @property
    def partial_row_groups(self) -> tuple[int, ...]:
        """The row groups that are partially pruned."""
        groups, first = np.unique(self.row_groups, return_index=True)
        rows = np.add.reduceat(self.ends - self.starts, first) if len(groups) else groups
        return tuple(
            group for group, left in zip(groups.tolist(), rows.tolist(), strict=True) if left < self.row_counts[group]
        )

    def find_residual(self, row_group: int) -> Bits:
        """Return for each conjunct whether it is a residual filter for rows of a row group."""
        found: Bits = np.any(self.residual[self._slice_of_group(row_group)], axis=0, keepdims=False)
        return found

    def find_ranges(self, row_group: int) -> range:
        """Return the positions of a row group's row ranges as a range."""
        own = self._slice_of_group(row_group)
        return range(own.start, own.stop)


def merge_remaining(one: Remaining, other: Remaining) -> Remaining:
    """Merge the row ranges of both, in file order."""
    if not len(one.starts):
        return other
    order = np.lexsort((np.concatenate([one.starts, other.starts]), np.concatenate([one.row_groups, other.row_groups])))
    units = pa.concat_tables(
        [pa.Table.from_batches([each.units]) for each in (one, other)], promote_options="default"
    ).take(pa.array(order))
    return Remaining(
        np.concatenate([one.row_groups, other.row_groups])[order],
        np.concatenate([one.starts, other.starts])[order],
        np.concatenate([one.ends, other.ends])[order],
        np.concatenate([one.residual, other.residual])[order],
        _as_batch(units),
        {**one.row_counts, **other.row_counts},
    )


def concatenate_metadata(row_ranges: Sequence[RowRanges]) -> pa.RecordBatch:
    """Concatenate the metadata of row ranges of several row groups; columns that one lacks are unknown there."""
    if len(row_ranges) == 1:
        return pa.record_batch(dict(row_ranges[0].metadata))
    table = pa.concat_tables([pa.table(dict(each.metadata)) for each in row_ranges], promote_options="default")
    return _as_batch(table)


def _as_batch(table: pa.Table) -> pa.RecordBatch:
    return table.combine_chunks().to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], table.schema)
