"""Tasks: what is to be read of files, row group by row group."""

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
    partition_values: Mapping[str, pa.Scalar]
    """Tasks of one partition that stand together share one mapping: see `partition_values_of`."""
    residual: tuple[int, ...]
    selection: RowSelection | None = None
    """The rows to read, counted within the row group; None for all."""
    content: pa.Buffer | None = field(default=None, compare=False, repr=False)
    """The whole file, where it is small and came with its footer."""
    file_format: str = PARQUET
    """A file of another format than Parquet is one row group."""
    where_absent: Constants = field(default_factory=dict)
    """The values that columns have in every row, if the file does not have the columns."""


def partition_values_of(partitions: pa.Table) -> list[Mapping[str, pa.Scalar]]:
    """The values of each row, in Arrow: Python has no year 10000, and takes -0.0 for 0.0. Neighbours with the very same
    values share one mapping, so that whoever reads them together need not compare."""
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
    """For each value but the first, by its bits."""
    if pa.types.is_floating(values.type):
        values = values.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[values.type.bit_width])
    one, other = values[1:], values[:-1]
    if pa.types.is_null(values.type):
        return np.zeros(len(one), bool)
    differs = pc.or_(pc.fill_null(pc.not_equal(one, other), False), pc.xor(one.is_null(), other.is_null()))
    return np.asarray(differs)


def as_type(value: pa.Scalar, data_type: pa.DataType) -> pa.Scalar:
    """A partition value in the type that whoever reads it has for the column."""
    return value if value.type == data_type else value.cast(data_type)


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
