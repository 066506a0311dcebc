"""Scans of many files: executors list files, plan their row groups and pages, and read them.

    parts of metadata ── mapInArrow(list_files) ── files in chunks ── repartition(by bytes) ── mapInArrow(read_chunks)

A chunk is a row with some files of a listing as an Arrow stream. Chunks have about the same number of bytes to read, so
that the same number of them makes a task. The driver holds the parts of metadata, never a row for each file: it only
counts files and bytes first, which another job finds. For fewer files the driver lists them, and cuts its listing into
chunks; executors still plan and read them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa

from tamis.engines.spark.jobs import SparkEngine, balance_tasks
from tamis.engines.spark.sessions import describe_state, hide_size, name_table_at_version
from tamis.engines.spark.spark_types import convert_rows, to_row_schema, to_spark_schema
from tamis.engines.spark.worker import (
    LARGEST,
    SMALLEST,
    TARGET_TASKS,
    make_worker_function,
    raise_in_one_line,
    read_tasks,
)
from tamis.formats.jobs import SMALL_READ, Arguments, Item, Job, can_serialise, find_function, read_table
from tamis.formats.listing_parts import DeletesFunction, ListFunction, ListingJob, ListsInParts, ReadsDeletedRows
from tamis.formats.source import FileListing
from tamis.scan.planning.plan import PlannedFiles
from tamis.scan.planning.scan_planner import ScanPlanner, drop_pruning_conjuncts, exclude_deleted_rows
from tamis.scan.planning.slices import (
    SlicePlanner,
    listing_to_table,
    planner_from_json,
    planner_to_json,
    table_to_listing,
)
from tamis.scan.planning.task_data import reader_from_json, reader_to_json
from tamis.scan.planning.tasks import ScanTask
from tamis.scan.reading.task_reader import TaskReader

CHUNKS_PER_TASK = 8
"""Tasks get whole chunks, so that more of them make tasks more alike."""

MAX_LISTING_TASKS = 512

MEASURE_FUNCTION = "tamis.engines.spark.distributed_scan:measure_part"
_MEASURES = pa.schema([("files", pa.int64()), ("bytes", pa.int64())])
_ITEM = pa.schema([("task", pa.int32()), ("item", pa.binary())])
_CHUNK = pa.schema([("files", pa.binary())])


def build_distributed_frame(spark: Any, planner: ScanPlanner) -> Any | None:
    """Return the DataFrame of a scan of more files than the driver should plan; None for fewer files."""
    storage = planner.storage
    if not isinstance(planner.source, ListsInParts) or planner.source.index is not None or not can_serialise(storage):
        return None
    most = storage.tuning.spark_max_planned_files
    job = planner.plan_listing_job(storage.tuning.spark_max_listed_files)
    if job is not None:
        files, size = _measure_files(spark, job, planner)
        if files > most:
            return _read_chunks(spark, planner, size, lambda most: _list_in_executors(spark, planner, job, most))
    elif planner.listing.files.num_rows > most:
        size = int(_weigh_files(planner.listing).sum())
        return _read_chunks(spark, planner, size, lambda most: _to_chunk_frame(spark, planner.listing, most))
    return None


def _read_chunks(spark: Any, planner: ScanPlanner, size: int, make_chunks: Callable[[int], Any]) -> Any:
    """Return the rows of files of this size together. `make_chunks` returns chunks of a number of bytes."""
    per_task = min(LARGEST, max(SMALLEST, size // TARGET_TASKS))
    schema = to_spark_schema(to_row_schema(planner.reader.output_schema))
    frame = make_chunks(per_task // CHUNKS_PER_TASK).repartition(max(1, -(-size // per_task)))
    runner = _make_runner(
        read_chunks, _describe_reading(planner), f"tamis: read {name_table_at_version(planner.source)}"
    )
    # Spark knows the size of the list of parts only, and would broadcast all rows.
    found = hide_size(spark, frame.mapInArrow(runner, schema))
    # Spark's limits are 32-bit integers.
    return found if planner.limit is None or planner.limit >= 2**31 else found.limit(planner.limit)


def _make_runner(function: Callable[..., Any], arguments: Mapping[str, Any], title: str) -> Any:
    # Spark shows the name in its plan.
    text = json.dumps(arguments, allow_nan=False)
    return make_worker_function(__name__, function.__name__, text, re.sub(r"\W+", "_", title))


# --- Chunks -----------------------------------------------------------------------------------------------------------


def _weigh_files(listing: FileListing) -> Any:
    """Return the bytes that each file counts for: opening one costs as much as reading some."""
    sizes = listing.files["size"].fill_null(0).to_numpy().astype(np.int64)
    return np.maximum(sizes, 0) + SMALL_READ


def _cut_chunks(listing: FileListing, most: int) -> list[bytes]:
    """Return the files of a listing in chunks of about `most` bytes."""
    count = listing.files.num_rows
    if not count:
        return []
    bucket = (np.cumsum(_weigh_files(listing)) - 1) // max(1, most)
    starts = np.unique(bucket, return_index=True)[1]
    table = listing_to_table(listing).combine_chunks()
    return [
        Item.from_table(table.slice(start, end - start)).value
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), count], strict=True)
    ]


def _to_chunk_frame(spark: Any, listing: FileListing, most: int) -> Any:
    chunks = pa.table([pa.array(_cut_chunks(listing, most), pa.binary())], schema=_CHUNK)
    return spark.createDataFrame(chunks if chunks.num_rows else [], to_spark_schema(_CHUNK))


def _list_in_executors(spark: Any, planner: ScanPlanner, job: ListingJob, most: int) -> Any:
    frames = []
    if job.items:
        tasks = balance_tasks([item.size for item in job.items], MAX_LISTING_TASKS)
        given = pa.table([pa.array(tasks, pa.int32()), [item.value for item in job.items]], schema=_ITEM)
        arguments = {**_describe_listing(job, planner), "most": most}
        runner = _make_runner(list_files, arguments, f"tamis: {job.description}")
        items = spark.createDataFrame(given, to_spark_schema(_ITEM)).repartitionById(max(tasks) + 1, "task")
        frames.append(items.mapInArrow(runner, to_spark_schema(_CHUNK)))
    if job.known is not None and job.known.files.num_rows:
        frames.append(_to_chunk_frame(spark, job.known, most))
    first, *others = frames
    return first.unionAll(others[0]) if others else first


def _measure_files(spark: Any, job: ListingJob, planner: ScanPlanner) -> tuple[int, int]:
    """Return the number of files that remain, and the bytes that they count for, found by executors."""
    files = size = 0
    if job.known is not None:
        weights = _weigh_files(job.known.require(path[0] for path in planner.projection))
        files, size = len(weights), int(weights.sum())
    measures = Job(
        MEASURE_FUNCTION, _describe_listing(job, planner), _MEASURES, job.description, planner.storage.counters
    )
    for _, batch in SparkEngine(spark).run(measures, job.items):
        own_files, own_size = (batch.column(name)[0].as_py() for name in _MEASURES.names)
        files, size = files + own_files, size + own_size
    return files, size


def _describe_listing(job: ListingJob, planner: ScanPlanner) -> dict[str, Any]:
    return {**job.arguments, "function": job.function, "projected": [path[0] for path in planner.projection]}


def _describe_reading(planner: ScanPlanner) -> dict[str, Any]:
    source = planner.source
    deletes = source.describe_deletes() if isinstance(source, ListsInParts) else None
    return {
        **reader_to_json(planner.reader),
        "state": describe_state(source),
        "planner": planner_to_json(planner.get_slice_planner(planner.projection, to_pages=True)),
        "deletes": None if deletes is None else [deletes[0], json.dumps(dict(deletes[1]), allow_nan=False)],
    }


# --- On workers -------------------------------------------------------------------------------------------------------


def _list_item(arguments: Arguments, item: bytes) -> Iterator[FileListing]:
    function = cast(ListFunction, find_function(arguments["function"]))
    for listing in function(arguments, item):
        yield listing.require(arguments["projected"])


def measure_part(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the number and the bytes of the files of a part. It is the function of a job."""
    weights = [_weigh_files(listing) for listing in _list_item(arguments, item)]
    files, size = sum(map(len, weights)), sum(int(each.sum()) for each in weights)
    yield pa.record_batch([[files], [size]], schema=_MEASURES)


def list_files(text: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the files of the parts of one Spark task, in chunks."""
    arguments = Arguments(text)
    items = (item for batch in batches for item in batch.column("item").to_pylist())
    for item in items:
        for listing in _list_item(arguments, item):
            for chunk in _cut_chunks(listing, arguments["most"]):
                yield pa.record_batch([pa.array([chunk], pa.binary())], schema=_CHUNK)


def read_chunks(text: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the files in the chunks of one Spark task."""
    arguments = Arguments(text)
    reader = reader_from_json(arguments)
    planner = planner_from_json(arguments.storage, arguments["planner"])
    deletes = _make_deletes_reader(arguments)
    schema = to_row_schema(reader.output_schema)
    chunks = (chunk for batch in batches for chunk in batch.column("files").to_pylist())
    for chunk in chunks:
        with raise_in_one_line(arguments["state"]):
            listing = table_to_listing(read_table(chunk), len(planner.predicate.conjuncts))
            for found in read_tasks(reader, _plan_tasks(planner, reader, deletes, listing)):
                yield convert_rows(found, schema)


def _make_deletes_reader(arguments: Arguments) -> ReadsDeletedRows | None:
    if arguments["deletes"] is None:
        return None
    name, given = arguments["deletes"]
    return cast(DeletesFunction, find_function(name))(Arguments(given))


def _plan_tasks(
    planner: SlicePlanner, reader: TaskReader, deletes: ReadsDeletedRows | None, listing: FileListing
) -> Sequence[ScanTask]:
    row_groups, _ = planner.plan(listing, keep_contents=True)
    if deletes is not None:
        row_groups = exclude_deleted_rows(reader.storage, deletes, listing.files, row_groups)
    return list(PlannedFiles(listing.files, drop_pruning_conjuncts(row_groups, reader)).tasks())
