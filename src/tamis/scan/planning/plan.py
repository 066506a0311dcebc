"""Plans: the files and row groups that a scan will read, and the report of what it skips."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import InvalidArgument, PlanBudgetExceeded, format_count, suggest_method_arguments
from tamis.formats.constants import read_constants, read_partitions
from tamis.formats.source import FILE_FORMAT, HasPartitionFields, TableSource, read_modified
from tamis.scan.planning.row_groups import RowGroups, take_rows
from tamis.scan.planning.tasks import ScanTask
from tamis.scan.report.report import Report
from tamis.skipping.metrics import LevelReport
from tamis.skipping.predicate import is_partition_text

DEPTHS = ("files", "row_groups", "pages")


@dataclass(frozen=True)
class PlannedFiles:
    """Some files of a scan, with the row groups to read from each."""

    files: pa.Table
    row_groups: RowGroups
    below: Sequence[LevelReport] = ()
    """The metrics of the levels below row groups."""
    source: TableSource | None = None
    """The table, for partition fields that are not columns."""

    def tasks(self) -> Iterator[ScanTask]:
        """Yield one task for each row group, in the order of the files."""
        units = self.row_groups.units
        wanted = np.unique(units.file)
        files = take_rows(self.files, wanted)
        names = ("path", "size", "modified_ns", *([FILE_FORMAT] if FILE_FORMAT in files.column_names else ()))
        known = {
            file: (path, size, modified_ns, constants, self.row_groups.contents[file], *file_format)
            for file, constants, path, size, modified_ns, *file_format in zip(
                wanted.tolist(), read_constants(files), *(files[name].to_pylist() for name in names), strict=True
            )
        }
        columns = (each.tolist() for each in units.columns)
        for file, row_group, row_count, size_to_read, is_residual in zip(
            *columns, self.row_groups.residual.tolist(), strict=True
        ):
            path, size, modified_ns, constants, content, *file_format = known[file]
            residual = tuple([index for index, is_left in enumerate(is_residual) if is_left])
            selection = self.row_groups.selections.get((file, row_group))
            of_unit = row_group, row_count, size_to_read, constants, residual, selection, content
            yield ScanTask(path, size, modified_ns, *of_unit, *file_format)

    def describe_files_to_read(self) -> pa.Table:
        """Return the files that are read: path, size, rows and bytes to read, partition values."""
        units = self.row_groups.units
        wanted, first, counts = np.unique(units.file, return_index=True, return_counts=True)
        none = np.zeros(0, np.int64)
        to_read = {
            "row_groups_to_read": counts,
            "rows_to_read": np.add.reduceat(units.row_count, first) if len(wanted) else none,
            "bytes_to_read": np.add.reduceat(units.bytes, first) if len(wanted) else none,
        }
        rows = [sum(self.row_groups.group_rows[file]) for file in wanted.tolist()]
        return describe_files(
            take_rows(self.files, wanted),
            pa.array(rows, types.LONG),
            {name: pa.array(numbers, types.LONG) for name, numbers in to_read.items()},
            source=self.source,
        )


def describe_files(
    files: pa.Table,
    num_records: pa.Array | pa.ChunkedArray | None = None,
    more: Mapping[str, pa.Array] | None = None,
    *,
    source: object = None,
) -> pa.Table:
    """Return files for users: path, size, rows and time of modification (null where unknown), then partition values."""
    if num_records is None:
        has_records = "num_records" in files.column_names
        num_records = files["num_records"] if has_records else pa.nulls(len(files), types.LONG)
    columns: dict[str, Any] = {"path": files["path"], "size": files["size"], "num_records": num_records}
    columns["modified"] = read_modified(files)
    columns |= dict(more or {})
    partitions = (
        source.read_partition_fields(files) if isinstance(source, HasPartitionFields) else read_partitions(files)
    )
    for name in partitions.column_names:
        if is_partition_text(name):
            continue
        # A partition column may have the name of one of the others.
        columns[name if name not in columns else f"partition.{name}"] = partitions[name]
    return pa.table(columns)


def _check_budget(most: object) -> None:
    if not isinstance(most, int) or isinstance(most, bool):
        raise InvalidArgument(f"the budget of a plan must be a whole number, found {most!r}")


@dataclass(frozen=True, slots=True)
class FilteredBatch:
    """A batch with all of its rows, and a selection vector that says which of them are live."""

    batch: pa.RecordBatch
    selection: pa.BooleanArray
    """One boolean per row, without nulls."""


@suggest_method_arguments("ScanPlan")
@dataclass(repr=False)
class ScanPlan:
    """The plan of a scan: the `files` to read, one row each, their row groups as `tasks`, and the `report`."""

    files: pa.Table
    depth: str
    report: Report
    _planned: PlannedFiles | None = field(default=None, repr=False)
    _filter_files: Callable[[], Iterator[FilteredBatch]] | None = field(default=None, repr=False)

    @cached_property
    def tasks(self) -> list[ScanTask]:
        """The row groups to read; none if the plan stops at files."""
        return [] if self._planned is None else list(self._planned.tasks())

    def file_batches(self) -> Iterator[FilteredBatch]:
        """Yield all files of the table in batches, each with the selection of files that this plan reads.

        The columns are those of a plan to files. Row counts that planning does not read are null, and so are partition
        values of skipped files that are invalid for their type. A plan does not keep the files that it skips: its
        batches are pruned once more, from metadata that is often cached. A plan under a policy has none.
        """
        return iter(()) if self._filter_files is None else self._filter_files()

    @property
    def num_files(self) -> int:
        """The number of files that will be read."""
        return int(self.files.num_rows)

    @property
    def bytes(self) -> int:
        """The bytes that will be read: of the needed columns if row groups were planned, else of whole files."""
        if self._planned is not None:
            return self._planned.row_groups.units.total_bytes
        return int(pc.sum(self.files["size"]).as_py() or 0)

    def assert_max_files(self, most: int) -> ScanPlan:
        """Raise an error if the plan has more than `most` files: for tests that guard against reading too much."""
        _check_budget(most)
        if self.num_files > most:
            raise PlanBudgetExceeded(
                f"the plan has {format_count(self.num_files, 'file')}, expected at most {most}.\n{self.report}"
            )
        return self

    def assert_max_bytes(self, most: int) -> ScanPlan:
        """Raise an error if the plan reads more than `most` bytes."""
        _check_budget(most)
        if self.bytes > most:
            raise PlanBudgetExceeded(f"the plan reads {self.bytes} bytes, expected at most {most}.\n{self.report}")
        return self

    def __str__(self) -> str:
        return str(self.report)

    def __repr__(self) -> str:
        return f"<tamis.ScanPlan of {self.report.table!r} to {self.depth}: {format_count(self.num_files, 'file')}>"

    def _repr_html_(self) -> str:
        return self.report._repr_html_()
