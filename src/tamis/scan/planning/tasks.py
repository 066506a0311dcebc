"""Tasks: the row groups to read, or parts of them, with their residual filters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from tamis.formats.source import PARQUET
from tamis.parquet.reading.conform import Constants
from tamis.parquet.selection.row_selection import RowSelection

MAX_TASKS_PER_GROUP = 64
MAX_BYTES_PER_GROUP = 1024 * 1024
"""The maximum number of row groups, and of their compressed bytes, that are read as one unit of work."""


@dataclass(frozen=True, slots=True)
class ScanTask:
    """A row group to read, or some of its rows, and the conjuncts of its residual filter."""

    path: str
    size: int
    modified_ns: int = field(repr=False)
    """The modification time, or a marker for files that never change."""
    row_group: int
    row_count: int
    """The number of rows to read."""
    bytes: int
    """The compressed bytes of the columns that are needed."""
    constants: Constants
    """The constants of the file: see `tamis.formats.constants`."""
    residual: tuple[int, ...]
    selection: RowSelection | None = None
    """The rows to read, numbered within the row group; None for all."""
    content: pa.Buffer | None = field(default=None, compare=False, repr=False)
    """The whole file, if it is small and was read with its footer."""
    file_format: str = PARQUET
    """The format of the file. A file that is not Parquet is one row group."""


def group_tasks(
    tasks: Iterable[ScanTask], most_rows: int | None = None, most: int = MAX_TASKS_PER_GROUP
) -> Iterator[list[ScanTask]]:
    """Yield the tasks in order, in groups of at most `most`: small tasks together, a large one alone.

    A group ends when it has `most_rows`, so that a scan with a limit reads no more than needed.
    """
    group: list[ScanTask] = []
    size = rows = 0
    for task in tasks:
        is_full = len(group) == most or (most_rows is not None and rows >= most_rows)
        if group and (is_full or size + task.bytes > MAX_BYTES_PER_GROUP):
            yield group
            group, size, rows = [], 0, 0
        group.append(task)
        size += task.bytes
        rows += task.row_count
    if group:
        yield group
