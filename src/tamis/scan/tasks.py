"""Tasks: what is to be read of files, row group by row group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tamis.parquet.selection import RowSelection
from tamis.tables.source import PARQUET

MOST_TOGETHER = 64
MOST_BYTES_TOGETHER = 1024 * 1024
"""How many row groups, and how many compressed bytes of them, are read as one piece of work."""


@dataclass(frozen=True, slots=True)
class ScanTask:
    """A row group to read, or some of its rows, and the conjuncts that they must still be tested by."""

    path: str
    size: int
    modified_ns: int
    row_group: int
    row_count: int
    """How many rows are read."""
    bytes: int
    """The compressed bytes of the columns that are needed."""
    partition_values: dict[str, Any]
    residual: tuple[int, ...]
    selection: RowSelection | None = None
    """The rows to read, counted within the row group; None for all."""
    content: pa.Buffer | None = field(default=None, compare=False, repr=False)
    """The whole file, where it is small and came with its footer."""
    file_format: str = PARQUET
    """A file of another format than Parquet is one row group."""
    where_absent: Mapping[str, pa.Scalar] = field(default_factory=dict)
    """The values that columns have in every row, if the file does not have the columns."""


def put_together(
    tasks: Iterable[ScanTask], most_rows: int | None = None, most: int = MOST_TOGETHER
) -> Iterator[list[ScanTask]]:
    """The tasks in groups of at most so many, in their order: small ones together, a large one alone.

    A group ends where it has `most_rows`, so that whoever wants only so many reads no more than is needed.
    """
    group: list[ScanTask] = []
    size = rows = 0
    for task in tasks:
        is_full = len(group) == most or (most_rows is not None and rows >= most_rows)
        if group and (is_full or size + task.bytes > MOST_BYTES_TOGETHER):
            yield group
            group, size, rows = [], 0, 0
        group.append(task)
        size += task.bytes
        rows += task.row_count
    if group:
        yield group
