"""Rows that were deleted without rewriting their file: taken out of what is read, by their positions in the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis import types
from tamis.errors import CorruptFile
from tamis.parquet.selection import RowSelection
from tamis.scan.row_groups import RowGroups

Positions = npt.NDArray[np.int64]


def without_deleted(row_groups: RowGroups, deleted: Mapping[int, Positions], places: Mapping[int, str]) -> RowGroups:
    """The row groups without the deleted rows of files, which are given in order, by the indices of the files.

    What was known of all rows of a row group holds for those that are left. `places` name the files in messages.
    """
    if not any(len(positions) for positions in deleted.values()):
        return row_groups
    for file, positions in deleted.items():
        rows = sum(row_groups.group_rows[file])
        if len(positions) and positions[-1] >= rows:
            raise CorruptFile(
                f"row {positions[-1]} of '{places[file]}' is said to be deleted, and the file has {rows} rows"
            )
    starts = {file: np.concatenate([[0], np.cumsum(row_groups.group_rows[file])]) for file in deleted}
    files, groups = (row_groups.units[name].to_pylist() for name in ("file", "row_group"))
    counts = row_groups.units["row_count"].to_pylist()
    selections = dict(row_groups.selections)
    for index, (file, group) in enumerate(zip(files, groups, strict=True)):
        if file not in deleted:
            continue
        first, end = starts[file][group : group + 2].tolist()
        own = slice(*np.searchsorted(deleted[file], (first, end)).tolist())
        gone = RowSelection.from_indices(deleted[file][own] - first, end - first)
        if gone.is_empty:
            continue
        kept = selections.get((file, group), RowSelection.all(end - first)) - gone
        selections[file, group] = kept
        counts[index] = kept.row_count
    is_left = np.array([count > 0 for count in counts], bool)
    position = row_groups.units.schema.get_field_index("row_count")
    units = row_groups.units.set_column(position, "row_count", pa.array(counts, types.LONG))
    return replace(
        row_groups,
        units=units.filter(pa.array(is_left)),
        unmatched=row_groups.unmatched[is_left],
        selections={key: selection for key, selection in selections.items() if not selection.is_empty},
    )
