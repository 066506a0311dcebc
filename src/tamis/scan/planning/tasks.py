"""Tasks: the row groups to read, or parts of them, with their residual filters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
    modified_ns: int
    row_group: int
    row_count: int
    """The number of rows to read."""
    bytes: int
    """The compressed bytes of the columns that are needed."""
    partition_values: Mapping[str, pa.Scalar]
    """Adjacent tasks of one partition share one mapping: see `read_partition_values`."""
    residual: tuple[int, ...]
    selection: RowSelection | None = None
    """The rows to read, numbered within the row group; None for all."""
    content: pa.Buffer | None = field(default=None, compare=False, repr=False)
    """The whole file, if it is small and was read with its footer."""
    file_format: str = PARQUET
    """The format of the file. A file that is not Parquet is one row group."""
    where_absent: Constants = field(default_factory=dict)
    """The constant values of columns that the file lacks."""


def read_partition_values(partitions: pa.Table) -> list[Mapping[str, pa.Scalar]]:
    """Return the partition values of each file, as Arrow scalars: Python has no year 10000, and -0.0 equals 0.0 there.

    Adjacent files with identical values share one mapping, so that a reader can compare them by identity.
    """
    rows = partitions.num_rows
    columns = {name: partitions[name].combine_chunks() for name in partitions.column_names}
    is_first = np.zeros(rows, bool)
    is_first[:1] = True
    for values in columns.values():
        is_first[1:] |= _differs_from_previous(values)
    firsts = np.flatnonzero(is_first)
    found = [{name: values[first] for name, values in columns.items()} for first in firsts.tolist()]
    return [found[number] for number in (np.cumsum(is_first) - 1).tolist()]


def _differs_from_previous(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Return whether each value except the first differs from the one before, by its bits."""
    if pa.types.is_floating(values.type):
        values = values.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[values.type.bit_width])
    one, other = values[1:], values[:-1]
    if pa.types.is_null(values.type):
        return np.zeros(len(one), bool)
    differs = pc.or_(pc.fill_null(pc.not_equal(one, other), False), pc.xor(one.is_null(), other.is_null()))
    return np.asarray(differs)


def cast_partition_value(value: pa.Scalar, data_type: pa.DataType) -> pa.Scalar:
    """Return a partition value in the type that the reader has for the column."""
    return value if value.type == data_type else value.cast(data_type)


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
