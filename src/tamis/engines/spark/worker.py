"""The code that runs in Spark's executors: a job over the items of a task, which returns results as rows of bytes.

Spark imports `JobRunner` by name; it carries the name of the job's function and JSON arguments, never code. Each result
is a row with an Arrow batch as bytes, so results may have types that Spark does not support. A Tamis error is a row
too: otherwise Spark would report a failed task, retry it, and wrap the error in a Java stack trace.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tamis import errors
from tamis.engines.spark.sessions import describe_state, hide_size, make_missing_file_error, may_broadcast
from tamis.engines.spark.spark_types import convert_rows, to_row_schema, to_spark_schema
from tamis.errors import CorruptFile, MissingFile, TamisError, to_one_line
from tamis.formats.jobs import Arguments, Item, find_function, read_table
from tamis.formats.source import PARQUET, TableSource
from tamis.io.counters import IoCounts
from tamis.parquet.footer.chunks import BIT_PACKED, PLAIN, RLE
from tamis.parquet.reading.parquet_file import ParquetFile
from tamis.scan.planning.task_data import reader_from_json, reader_to_json, tasks_from_table, tasks_to_table
from tamis.scan.planning.tasks import ScanTask, group_tasks
from tamis.scan.reading.pipeline import run_tasks
from tamis.scan.reading.task_reader import ReadSchema, TaskReader

BATCH, ERROR, DONE = "batch", "error", "done"

RESULT_SCHEMA = (
    "number bigint, position bigint, kind string, payload binary, listings bigint, requests bigint, bytes_read bigint"
)
_RESULT = pa.schema(
    [
        ("number", pa.int64()),
        ("position", pa.int64()),
        ("kind", pa.string()),
        ("payload", pa.binary()),
        ("listings", pa.int64()),
        ("requests", pa.int64()),
        ("bytes_read", pa.int64()),
    ]
)
"""`position` orders the batches of an item. The last row of each item has its I/O counts."""

MAX_ROWS = 256 * 1024
"""The number of rows in one result value: Spark's limit is 2 GiB, and much less is better."""


@dataclass(frozen=True)
class JobRunner:
    """Runs a job over the items of a task: a function for `mapInArrow`."""

    function: str
    arguments: str = field(repr=False)
    __name__: str = "tamis"
    """The name that Spark shows in its plans."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        function = find_function(self.function)
        arguments = Arguments(self.arguments)
        for batch in batches:
            for number, item in zip(batch["number"].to_pylist(), batch["item"].to_pylist(), strict=True):
                before = arguments.counts()
                position = 0
                try:
                    for found in function(arguments, item):
                        for start in range(0, max(1, found.num_rows), MAX_ROWS):
                            yield _make_row(number, position, BATCH, _to_bytes(found.slice(start, MAX_ROWS)))
                            position += 1
                except TamisError as error:
                    yield _make_row(number, position, ERROR, error_to_bytes(error))
                    return
                yield _make_row(number, position, DONE, b"", arguments.counts() - before)


def _make_row(number: int, position: int, kind: str, payload: bytes, spent: IoCounts | None = None) -> pa.RecordBatch:
    spent = spent or IoCounts()
    values = (number, position, kind, payload, spent.listing_calls, spent.requests, spent.bytes_read)
    return pa.record_batch(
        [pa.array([value], field.type) for value, field in zip(values, _RESULT, strict=True)], schema=_RESULT
    )


def _to_bytes(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def batch_from_bytes(payload: pa.Buffer) -> pa.RecordBatch:
    """Return the batch in the payload of a result row."""
    with pa.ipc.open_stream(payload) as reader:
        return reader.read_next_batch()


def error_to_bytes(error: TamisError) -> bytes:
    """Return an error as JSON: the nearest class in `tamis.errors`, its message and its attributes."""
    name = next(each.__name__ for each in type(error).__mro__ if vars(errors).get(each.__name__) is each)
    facts = {key: value for key, value in vars(error).items() if isinstance(value, str | int | float | None)}
    return json.dumps({"class": name, "message": str(error), "facts": facts}).encode()


def error_from_bytes(payload: bytes) -> TamisError:
    """Return the error that `error_to_bytes` serialised."""
    fields = json.loads(payload)
    kind = vars(errors).get(fields["class"])
    if not (isinstance(kind, type) and issubclass(kind, TamisError)):
        kind = TamisError
    # Bypass the constructor, which would add its attributes to the message again.
    error = kind.__new__(kind, fields["message"])
    Exception.__init__(error, fields["message"])
    vars(error).update(fields["facts"])
    return error


# --- Functions for Spark's workers that report clearly if a package is missing there ----------------------------------

if TYPE_CHECKING:
    import pyarrow as pa

    Batches = Iterator[pa.RecordBatch]


def make_worker_function(module: str, function: str, arguments: str, name: str) -> Callable[[Batches], Batches]:
    """Return a function for `mapInArrow` that calls a function of tamis with the arguments and the batches.

    PySpark serialises a nested function as code, but imports a module-level one by name, which fails with a Java stack
    trace if tamis is missing. So the returned function is nested, and uses nothing from outside of itself.
    """

    def call(batches: Batches) -> Batches:
        from importlib import import_module

        try:
            found = getattr(import_module(module), function)
        except ModuleNotFoundError as error:
            missing = (error.name or "").split(".")[0]
            alternative = ", or send it with tamis.spark.ship(spark)" if missing == "tamis" else ""
            raise ModuleNotFoundError(
                f"{missing} is not installed on Spark's workers, which need it to read the table: install it there"
                f"{alternative}"
            ) from error
        return found(arguments, batches)  # type: ignore[no-any-return]

    call.__name__ = name
    return call


# --- Arrow tasks: the page reader reads row groups or single pages in Spark's Python workers --------------------------
#
# Only data is sent to the workers: tasks as Arrow tables, and the reader's settings as JSON.

TARGET_TASKS = 64
SMALLEST, LARGEST = 1024 * 1024, 64 * 1024 * 1024
"""The number of Spark tasks over which the bytes to read are distributed, and the bounds of the bytes of a task."""

INPUT = pa.schema([pa.field("task", pa.int32(), nullable=False), pa.field("tasks", pa.binary(), nullable=False)])


def read_batches(arguments: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the scan tasks in one Spark task."""
    for batch in batches:
        for given in batch.column("tasks").to_pylist():
            yield from read_packed(arguments, given)


def read_packed(text: str, given: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the rows of serialised tasks, in the schema that Spark expects."""
    arguments = Arguments(text)
    with raise_in_one_line(arguments["state"]):
        reader = reader_from_json(arguments)
        schema = to_row_schema(reader.output_schema)
        for found in read_tasks(reader, tasks_from_table(read_table(given))):
            yield convert_rows(found, schema)


@contextmanager
def raise_in_one_line(state: str | None = None) -> Iterator[None]:
    """Let Spark show errors without the traceback, those of files with the table at its version."""
    try:
        yield
    except TamisError as error:
        main = getattr(sys.modules["__main__"], "__spec__", None)
        if main is not None and main.name.startswith("pyspark."):
            # What `spark.sql.execution.pyspark.udf.hideTraceback.enabled` sets. Workers end with an error, so that no
            # function of the user runs with it.
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        if state is not None and isinstance(error, MissingFile):
            raise make_missing_file_error(to_one_line(error), state) from None
        if state is not None and isinstance(error, CorruptFile):
            raise CorruptFile(f"{state}: {to_one_line(error)}") from None
        raise


def read_tasks(reader: TaskReader, tasks: Sequence[ScanTask]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of tasks, in a worker."""
    groups = group_tasks(tasks)
    if reader.storage.is_local:
        # Spark already runs one task on each core.
        for group in groups:
            yield from reader.read(group)
        return
    yield from run_tasks(groups, reader.read, reader.estimate_bytes)


def build_arrow_frame(
    spark: Any, source: TableSource, reader: TaskReader, tasks: Sequence[ScanTask], title: str
) -> Any:
    """Return a lazy DataFrame of the filtered rows of tasks."""
    groups = serialize_task_groups(reader, tasks)
    given = pa.table([pa.array(range(len(groups)), pa.int32()), pa.array(groups, pa.binary())], schema=INPUT)
    # Spark shows the name in its plan.
    name = re.sub(r"\W+", "_", title)
    runner = make_worker_function(__name__, read_batches.__name__, serialize_reader(reader, source), name)
    frame = (
        spark.createDataFrame(given, to_spark_schema(INPUT))
        .repartitionById(max(1, len(groups)), "task")
        .mapInArrow(runner, to_spark_schema(to_row_schema(reader.output_schema)))
    )
    return frame if may_broadcast(spark, bound_size(reader, tasks)) else hide_size(spark, frame)


# --- The size of the rows of tasks ------------------------------------------------------------------------------------
#
# Spark believes the size of a frame, and broadcasts small ones, which fails or is slow if the rows are large. So it is
# a bound, from the footers: 300,000 rows of one text of 3,000 characters are 600 kB in a file, and 900 MB in memory.
#
# | a column chunk                                          | its rows take at most                           |
# |---------------------------------------------------------|-------------------------------------------------|
# | of a type of fixed width                                | the width of each value                         |
# | of byte arrays whose total length the writer states     | that                                            |
# | of others with plain values alone                       | the uncompressed chunk                          |
# | of others (dictionaries, prefixes of the value before)  | the uncompressed chunk for each row             |

MAX_BOUNDED_TASKS = 64
"""More row groups have an unknown size: their footers would have to be read again."""

SMALLEST_WIDTH = 8
"""The bytes of a value in Spark's rows, at least."""

_LONGEST_VALUES = {"INT96": 12, "BOOLEAN": 1, "INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8}
_PLAIN_ENCODINGS = frozenset((PLAIN, RLE, BIT_PACKED))


def bound_size(reader: TaskReader, tasks: Sequence[ScanTask]) -> int | None:
    """Return how many bytes the rows of tasks take at most, not counting the filter; None if that is unknown."""
    if len(tasks) > MAX_BOUNDED_TASKS or any(task.file_format != PARQUET for task in tasks):
        return None
    reading = ReadSchema(reader.schema, reader.projection, reader.partition_columns, None)
    return sum(_bound_task(reader, reading, task) for task in tasks)


def _bound_task(reader: TaskReader, reading: ReadSchema, task: ScanTask) -> int:
    source = ParquetFile.load(reader.storage, task.path, task.size, task.modified_ns, reader.names)
    total = sum(_bound_chunk(source, task, leaf) for leaf in reading.find_leaves(source.footer.schema))
    total += task.row_count * SMALLEST_WIDTH * len(reader.output_schema)
    constants = (value.as_py() for value in task.constants.values())
    return total + task.row_count * sum(len(value) for value in constants if isinstance(value, str | bytes))


def _bound_chunk(source: ParquetFile, task: ScanTask, leaf: int) -> int:
    chunk = source.chunk(task.row_group, leaf)
    column = source.footer.metadata.schema.column(leaf)
    width = _LONGEST_VALUES.get(column.physical_type)
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        width = column.length
    if width is not None:
        return chunk.num_values * max(width, SMALLEST_WIDTH)
    if chunk.text_bytes is not None:
        return chunk.text_bytes + chunk.num_values * SMALLEST_WIDTH
    if chunk.dictionary_page_offset is None and _PLAIN_ENCODINGS.issuperset(chunk.encodings):
        return chunk.total_uncompressed_size + chunk.num_values * SMALLEST_WIDTH
    # Each value is made of bytes in the chunk, and repeats no byte.
    values = min(chunk.num_values, task.row_count) if column.max_repetition_level == 0 else chunk.num_values
    return chunk.total_uncompressed_size * values


def serialize_reader(reader: TaskReader, source: TableSource) -> str:
    """Return the settings of a reader as JSON, for `read_packed`."""
    return json.dumps({**reader_to_json(reader), "state": describe_state(source)}, allow_nan=False)


def serialize_task_groups(reader: TaskReader, tasks: Iterable[ScanTask]) -> list[bytes]:
    """Return the serialised tasks of a scan, in groups of about the same number of bytes to read."""
    return [serialize_tasks(reader, group) for group in pack_tasks(tasks)]


def serialize_tasks(reader: TaskReader, tasks: Sequence[ScanTask]) -> bytes:
    """Return serialised tasks of a scan."""
    return Item.from_table(tasks_to_table(tasks)).value


def pack_tasks(tasks: Iterable[ScanTask]) -> list[list[ScanTask]]:
    """Group tasks, in their order, into about the same numbers of bytes; a row group is never split."""
    given = list(tasks)
    total = sum(task.bytes for task in given)
    most = min(LARGEST, max(SMALLEST, total // TARGET_TASKS))
    groups: list[list[ScanTask]] = []
    size = 0
    for task in given:
        if not groups or size + task.bytes > most:
            groups.append([])
            size = 0
        groups[-1].append(task)
        size += task.bytes
    return groups
