"""The levels below row groups: Bloom filters, pages and dictionaries of the files that are left."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis.expr.nodes import Column
from tamis.io.storage import Storage
from tamis.io.threads import run_in_threads
from tamis.parquet.field_names import ColumnMapping
from tamis.parquet.file import ParquetFile
from tamis.parquet.narrow import Filter, RowRangePruner
from tamis.parquet.remaining import Remaining
from tamis.parquet.selection import RowSelection
from tamis.scan.projection import Path
from tamis.scan.row_groups import RowGroups, Units, concatenated, is_parquet, taken
from tamis.skipping.account import LevelReport
from tamis.tables.source import FILE_FORMAT

LEVELS_BELOW = ("bloom", "pages", "dictionary")

SMALLEST = 256 * 1024
"""A row group of which fewer bytes are needed is read as it is: to ask about its pages would cost as much."""

READ_WHOLE = f"read as they are: fewer than {SMALLEST // 1024} KiB of each are needed"


@dataclass(frozen=True)
class PageLevels:
    """The levels below row groups of one scan. Any number of threads may use it."""

    storage: Storage
    given: Filter
    needed: tuple[Path, ...]
    partition_columns: Collection[str]
    levels: Collection[str]
    names: ColumnMapping | None = None

    def narrow(self, files: pa.Table, row_groups: RowGroups) -> tuple[RowGroups, list[LevelReport]]:
        """What these levels leave of row groups, and the account of each level."""
        enabled = [level for level in LEVELS_BELOW if level in self.levels]
        units = row_groups.units
        asked = row_groups.unmatched.any(axis=1) & (units.bytes >= SMALLEST)
        if FILE_FORMAT in files.column_names:
            asked &= is_parquet(files)[units.file]
        if not enabled:
            return row_groups, []
        if not asked.any():
            if row_groups.unmatched.any():
                row_groups.report.note = READ_WHOLE
            return row_groups, []
        wanted = np.unique(units.file[asked])
        chosen = taken(files, wanted)
        paths, sizes, times = (chosen[name].to_pylist() for name in ("path", "size", "modified_ns"))

        def narrow_file(index: int) -> tuple[Remaining, dict[int, int], list[LevelReport]]:
            source = ParquetFile.load(self.storage, paths[index], sizes[index], times[index], self.names)
            own = np.flatnonzero(asked & (units.file == wanted[index]))
            return self._narrow_file(source, row_groups, own)

        narrowed = run_in_threads(narrow_file, range(len(wanted)), self.storage.threads)
        return _merged(row_groups, asked, dict(zip(wanted.tolist(), narrowed, strict=True)), enabled)

    def _narrow_file(
        self, source: ParquetFile, row_groups: RowGroups, own: npt.NDArray[np.int64]
    ) -> tuple[Remaining, dict[int, int], list[LevelReport]]:
        schema = source.footer.schema
        names = {column.path: found for column in self._columns() if (found := schema.find(column.path)) is not None}
        paths = [
            found
            for path in self.needed
            if path[0] not in self.partition_columns and (found := schema.find(path)) is not None
        ]
        units, metadata = row_groups.units.take(own), row_groups.metadata
        described = metadata if len(own) == metadata.num_rows else metadata.take(pa.array(own))
        before = Remaining.from_row_groups(units.row_group.tolist(), described, row_groups.unmatched[own])
        sizes = dict(zip(units.row_group.tolist(), units.bytes.tolist(), strict=True))
        with source.open() as opened:
            narrower = RowRangePruner(source, opened, self.given, schema.find_leaves_at(paths), names, sizes)
            after, reports = narrower.narrow(before, self.levels)
            return after, narrower.count_remaining_bytes(after), reports

    def _columns(self) -> list[Column]:
        return [column for column in self.given.columns if column.path[0] not in self.partition_columns]


def _merged(
    row_groups: RowGroups,
    asked: npt.NDArray[np.bool_],
    narrowed: Mapping[int, tuple[Remaining, dict[int, int], list[LevelReport]]],
    levels: Sequence[str],
) -> tuple[RowGroups, list[LevelReport]]:
    """The row groups that were not asked about, and what is left of the others, in the order of the files."""
    kept = [row_groups.units.take(~asked)]
    unmatched = [row_groups.unmatched[~asked]]
    selections: dict[tuple[int, int], RowSelection] = {}
    reports: dict[str, LevelReport] = {}
    for file, (remaining, sizes, own_reports) in narrowed.items():
        groups = remaining.kept_row_groups
        rows = []
        for group in groups:
            selection = remaining.selection(group)
            rows.append(selection.row_count)
            if not selection.is_all:
                selections[file, group] = selection
        columns = ([file] * len(groups), groups, rows, list(sizes.values()))
        kept.append(Units(*(np.array(column, np.int64) for column in columns)))
        of_groups = [remaining.find_residual(group) for group in groups]
        unmatched.append(np.array(of_groups, bool).reshape(len(groups), row_groups.unmatched.shape[1]))
        for report in own_reports:
            if report.level in reports:
                reports[report.level].add(report)
            else:
                reports[report.level] = report
    for report in reports.values():
        report.add_bypassed(len(kept[0]), kept[0].size)
    units = concatenated(kept)
    order = np.lexsort((units.row_group, units.file))
    merged = replace(
        row_groups,
        units=units.take(order),
        unmatched=np.concatenate(unmatched)[order],
        selections=selections,
    )
    return merged, [reports[level] for level in levels if level in reports and _tells(reports[level])]


def _tells(report: LevelReport) -> bool:
    """Whether a level was asked, or left something out all the same: row groups without rows have no pages."""
    return bool(report.by_predicate) or (report.kept, report.bytes_kept) != (report.total, report.bytes_total)
