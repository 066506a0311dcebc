"""Arrow tasks: Tamis's own reader reads row groups or single pages in Spark's Python workers.

Only data is sent to the workers: tasks as Arrow tables, and the reader's settings as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from tamis.scan.pipeline import run_tasks
from tamis.scan.read import TaskReader
from tamis.scan.run import estimate_bytes
from tamis.scan.task_data import reader_from_json, reader_to_json, tasks_from_table, tasks_to_table
from tamis.scan.tasks import ScanTask, put_together
from tamis.spark.on_workers import on_workers
from tamis.spark.types import fit_rows, row_schema, spark_schema
from tamis.tables.jobs import Arguments, Item, read_table

PIECES = 64
SMALLEST, LARGEST = 1024 * 1024, 64 * 1024 * 1024
"""The number of Spark tasks over which the bytes to read are distributed, and the bounds of the bytes of a task."""

INPUT = pa.schema([pa.field("task", pa.int32(), nullable=False), pa.field("tasks", pa.binary(), nullable=False)])


def read_batches(arguments: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the scan tasks in one Spark task."""
    for batch in batches:
        for given in batch.column("tasks").to_pylist():
            yield from read_packed(arguments, given)


def read_packed(arguments: str, given: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the rows of serialised tasks, in the schema that Spark expects."""
    reader = reader_from_json(Arguments(arguments))
    schema = row_schema(reader.output_schema)
    for found in read_tasks(reader, tasks_from_table(read_table(given))):
        yield fit_rows(found, schema)


def read_tasks(reader: TaskReader, tasks: Sequence[ScanTask]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of tasks, in a worker."""
    groups = put_together(tasks)
    if reader.storage.is_local:
        # Spark already runs one task on each core.
        for group in groups:
            yield from reader.read(group)
        return
    yield from run_tasks(groups, reader.read, estimate_bytes)


def arrow_frame(spark: Any, reader: TaskReader, tasks: Sequence[ScanTask], title: str) -> Any:
    """Return a lazy DataFrame of the filtered rows of tasks."""
    groups = packed_tasks(reader, tasks)
    given = pa.table([pa.array(range(len(groups)), pa.int32()), pa.array(groups, pa.binary())], schema=INPUT)
    # Spark shows the name in its plan.
    runner = on_workers(__name__, read_batches.__name__, reader_text(reader), re.sub(r"\W+", "_", title))
    return (
        spark.createDataFrame(given, spark_schema(INPUT))
        .repartitionById(max(1, len(groups)), "task")
        .mapInArrow(runner, spark_schema(row_schema(reader.output_schema)))
    )


def reader_text(reader: TaskReader) -> str:
    """Return the settings of a reader as JSON, for `read_packed`."""
    return json.dumps(reader_to_json(reader), allow_nan=False)


def packed_tasks(reader: TaskReader, tasks: Iterable[ScanTask]) -> list[bytes]:
    """Return the serialised tasks of a scan, in groups of about the same number of bytes to read."""
    return [packed(reader, group) for group in pack(tasks)]


def packed(reader: TaskReader, tasks: Sequence[ScanTask]) -> bytes:
    """Return serialised tasks of a scan."""
    return Item.from_table(tasks_to_table(tasks, reader.schema, reader.partition_columns)).value


def pack(tasks: Iterable[ScanTask]) -> list[list[ScanTask]]:
    """Group tasks, in their order, into about the same numbers of bytes; a row group is never split."""
    given = list(tasks)
    total = sum(task.bytes for task in given)
    most = min(LARGEST, max(SMALLEST, total // PIECES))
    groups: list[list[ScanTask]] = []
    size = 0
    for task in given:
        if not groups or size + task.bytes > most:
            groups.append([])
            size = 0
        groups[-1].append(task)
        size += task.bytes
    return groups
