"""Reading of tasks: exactly the column chunks that are needed, decoded, made to fit the table, filtered, projected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tamis.errors import CorruptFile
from tamis.io.ranges import PrefetchedFile, read_ranges
from tamis.io.storage import Storage
from tamis.parquet.footer import read_footer
from tamis.parquet.leaves import leaf_indices
from tamis.parquet.statistics import chunk_ranges
from tamis.scan.conform import conform_batch, path_to_read
from tamis.scan.projection import Path, flat_paths, narrow
from tamis.scan.residual import Residual
from tamis.skipping.predicate import Predicate

MOST_ROWS = 128 * 1024
"""The most rows of a batch."""

MOST_BYTES = 16 * 1024 * 1024
"""About the most bytes of a batch, where rows are wide."""

FEW_ROWS = 32 * 1024
"""A row group of so few rows is decoded faster by one thread than it takes to wake others."""


@dataclass(frozen=True, slots=True)
class ScanTask:
    """One row group to read, and the conjuncts that its rows must still be tested by."""

    path: str
    size: int
    modified_ns: int
    row_group: int
    row_count: int
    bytes: int
    """The compressed bytes of the columns that are needed."""
    partition_values: dict[str, Any]
    residual: tuple[int, ...]


@dataclass
class TaskReader:
    """Reads the tasks of one scan. Any number of threads may use it."""

    storage: Storage
    schema: pa.Schema
    predicate: Predicate
    projection: tuple[Path, ...]
    partition_columns: tuple[str, ...]
    output_schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        self.output_schema = narrow(self.schema, self.projection)
        self._residual = lru_cache(maxsize=None)(self._make_residual)

    def _make_residual(self, indices: tuple[int, ...]) -> Residual:
        return Residual([self.predicate.conjuncts[index].predicate for index in indices])

    def read(self, task: ScanTask) -> Iterator[pa.RecordBatch]:
        """The rows of a task that satisfy the filter, batch by batch, with the projected columns."""
        for batch in self._matching(task, self.projection):
            if batch.num_rows:
                yield project(batch, self.output_schema)

    def count(self, task: ScanTask) -> int:
        """How many rows of a task satisfy the filter; no column is read where all of them do."""
        return sum(batch.num_rows for batch in self._matching(task, ())) if task.residual else task.row_count

    def _matching(self, task: ScanTask, projection: tuple[Path, ...]) -> Iterator[pa.RecordBatch]:
        residual = self._residual(task.residual) if task.residual else None
        tested = tuple(column.path for column in residual.columns) if residual is not None else ()
        read_schema = narrow(self.schema, (*projection, *tested))
        constants = {
            name: pa.scalar(task.partition_values[name], read_schema.field(name).type)
            for name in self.partition_columns
            if name in read_schema.names
        }
        for batch in self._decode(task, read_schema):
            conformed = conform_batch(batch, read_schema, constants, f"'{self.storage.place(task.path)}'")
            yield conformed if residual is None else residual.filter(conformed)

    def _decode(self, task: ScanTask, read_schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        footer = read_footer(self.storage, task.path, task.size, task.modified_ns)
        file_schema = footer.schema.to_arrow_schema()
        paths = [
            found
            for path in flat_paths(read_schema)
            if path[0] not in self.partition_columns and (found := path_to_read(file_schema, path)) is not None
        ]
        leaves = leaf_indices(file_schema, paths)
        if not leaves:
            yield from _rows_without_columns(task.row_count)
            return
        place = self.storage.place(task.path)
        ranges = chunk_ranges(footer, task.row_group, leaves, size=task.size, place=place)
        buffers = read_ranges(self.storage, task.path, ranges)
        fetched = [(start, buffer) for (start, _), buffer in zip(ranges, buffers, strict=True)]
        source = PrefetchedFile(fetched, task.size, place)
        group = footer.row_group(task.row_group)
        uncompressed = sum(group.column(leaf).total_uncompressed_size for leaf in leaves)
        rows = max(1, min(MOST_ROWS, MOST_BYTES * group.num_rows // max(uncompressed, 1)))
        decoded = 0
        try:
            with pq.ParquetFile(source, metadata=footer, pre_buffer=False) as file:
                batches = file.reader.iter_batches(
                    rows, row_groups=[task.row_group], column_indices=leaves, use_threads=group.num_rows > FEW_ROWS
                )
                for batch in batches:
                    decoded += batch.num_rows
                    yield batch
        except (pa.ArrowException, OSError) as error:
            raise CorruptFile(f"row group {task.row_group} of '{place}' cannot be decoded: {error}") from error
        if decoded != group.num_rows:
            # Pages that end early would otherwise be rows that silently went missing.
            raise CorruptFile(
                f"row group {task.row_group} of '{place}' has {group.num_rows} rows by its footer, "
                f"and {decoded} in its pages"
            )


def _rows_without_columns(count: int) -> Iterator[pa.RecordBatch]:
    """Rows of which nothing needs to be read: a batch needs some column to know its length."""
    for start in range(0, count, MOST_ROWS):
        yield pa.record_batch({"": pa.nulls(min(MOST_ROWS, count - start))})


def project(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a schema, structs narrowed to the fields that it has."""
    arrays = [_narrowed(batch.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _narrowed(values: pa.Array, target: pa.DataType) -> pa.Array:
    if values.type == target or not pa.types.is_struct(target):
        return values
    children = [_narrowed(values.field(field.name), field.type) for field in target]
    return pa.StructArray.from_arrays(children, fields=list(target), mask=values.is_null())
