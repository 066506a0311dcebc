"""What is left to read of one file while levels below its row groups narrow it: stretches of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis.parquet.page_units import Stretches
from tamis.parquet.selection import RowSelection
from tamis.skipping.metadata import ROW_COUNT

Bits = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Remaining:
    """What is left to read of a file: stretches of rows, in the order of the file. At first each is a row group."""

    row_groups: Rows
    """The row group of each stretch."""
    starts: Rows
    ends: Rows
    """Rows, counted within the row group."""
    unmatched: Bits
    """`unmatched[i, j]`: rows of stretch i must still be tested by conjunct j."""
    units: pa.RecordBatch
    """The metadata of the stretches."""
    row_counts: Mapping[int, int]
    """How many rows the row groups have."""
    _selections: dict[int, RowSelection] = field(default_factory=dict, repr=False)

    @staticmethod
    def of_row_groups(row_groups: Sequence[int], units: pa.RecordBatch, unmatched: Bits) -> Remaining:
        """Whole row groups, whose metadata are `units`."""
        rows = np.asarray(units.column(ROW_COUNT.name), np.int64)
        counts = dict(zip(row_groups, rows.tolist(), strict=True))
        return Remaining(np.array(row_groups, np.int64), np.zeros(len(rows), np.int64), rows, unmatched, units, counts)

    @property
    def kept_row_groups(self) -> tuple[int, ...]:
        groups = self.row_groups
        is_first = np.ones(len(groups), bool)
        is_first[1:] = groups[1:] != groups[:-1]
        return tuple(groups[is_first].tolist())

    def _own(self, row_group: int) -> slice:
        """Where the stretches of a row group are."""
        first, last = np.searchsorted(self.row_groups, (row_group, row_group + 1))
        return slice(int(first), int(last))

    def keep(self, mask: Bits, units: pa.RecordBatch | None = None) -> Remaining:
        """Some of the stretches; `units` is the metadata of those, where somebody has it."""
        if mask.all():
            return self if units is None else replace(self, units=units)
        return Remaining(
            self.row_groups[mask],
            self.starts[mask],
            self.ends[mask],
            self.unmatched[mask],
            self.units.filter(pa.array(mask)) if units is None else units,
            self.row_counts,
        )

    def selection(self, row_group: int) -> RowSelection:
        """The rows of a row group that are left."""
        found = self._selections.get(row_group)
        if found is None:
            own = self._own(row_group)
            found = RowSelection(self.starts[own], self.ends[own], self.row_counts[row_group])
            self._selections[row_group] = found
        return found

    @property
    def in_part(self) -> tuple[int, ...]:
        """The row groups of which some rows are left, and not all."""
        groups, first = np.unique(self.row_groups, return_index=True)
        rows = np.add.reduceat(self.ends - self.starts, first) if len(groups) else groups
        return tuple(
            group for group, left in zip(groups.tolist(), rows.tolist(), strict=True) if left < self.row_counts[group]
        )

    def unmatched_in(self, row_group: int) -> Bits:
        """For each conjunct, whether rows of a row group must still be tested by it."""
        found: Bits = np.any(self.unmatched[self._own(row_group)], axis=0, keepdims=False)
        return found

    def of_row_group(self, row_group: int) -> range:
        """The stretches of a row group."""
        own = self._own(row_group)
        return range(own.start, own.stop)


def joined(one: Remaining, other: Remaining) -> Remaining:
    """The stretches of both, in the order of the file."""
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
        np.concatenate([one.unmatched, other.unmatched])[order],
        _as_batch(units),
        {**one.row_counts, **other.row_counts},
    )


def concatenated(stretches: Sequence[Stretches]) -> pa.RecordBatch:
    """What is known of the stretches of several row groups: what one of them lacks is unknown there."""
    if len(stretches) == 1:
        return pa.record_batch(dict(stretches[0].metadata))
    table = pa.concat_tables([pa.table(dict(each.metadata)) for each in stretches], promote_options="default")
    return _as_batch(table)


def _as_batch(table: pa.Table) -> pa.RecordBatch:
    return table.combine_chunks().to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], table.schema)
