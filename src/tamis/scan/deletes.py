"""Rows that were deleted without rewriting their file: taken out of what is read, by their positions in the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from pyroaring import BitMap64

from tamis.errors import CorruptFile, format_count
from tamis.parquet.selection import RowSelection
from tamis.scan.row_groups import RowGroups


def without_deleted(row_groups: RowGroups, deleted: Mapping[int, BitMap64], places: Mapping[int, str]) -> RowGroups:
    """The row groups without the deleted rows of files, which are given by the indices of the files.

    What was known of all rows of a row group holds for those that are left. `places` name the files in messages.
    """
    kept = {
        file: kept_rows(rows, row_groups.group_rows[file], places[file]) for file, rows in deleted.items() if len(rows)
    }
    if not kept:
        return row_groups
    by_group = {file: selection.split(row_groups.group_rows[file]) for file, selection in kept.items()}
    units = row_groups.units
    files, groups, counts = units.file.tolist(), units.row_group.tolist(), units.row_count.tolist()
    selections = dict(row_groups.selections)
    for index, (file, group) in enumerate(zip(files, groups, strict=True)):
        if file not in by_group or by_group[file][group].is_all:
            continue
        left = by_group[file][group]
        selections[file, group] = selections[file, group] & left if (file, group) in selections else left
        counts[index] = selections[file, group].row_count
    is_left = np.array([count > 0 for count in counts], bool)
    return replace(
        row_groups,
        units=replace(units, row_count=np.array(counts, np.int64)).take(is_left),
        unmatched=row_groups.unmatched[is_left],
        selections={key: selection for key, selection in selections.items() if not selection.is_empty},
    )


def kept_rows(deleted: BitMap64, row_group_rows: Sequence[int], place: str) -> RowSelection:
    """The rows of a file that are not deleted, of all its row groups, which have these numbers of rows."""
    total = int(np.sum(row_group_rows, dtype=np.int64))
    # Looked at first: a few bytes can claim billions of rows.
    if len(deleted) and deleted.max() >= total:
        raise CorruptFile(
            f"row {deleted.max()} of '{place}' is said to be deleted, and the file has {format_count(total, 'row')}: "
            "one of the two belongs to another file"
        )
    return ~RowSelection.from_roaring(deleted, total)
