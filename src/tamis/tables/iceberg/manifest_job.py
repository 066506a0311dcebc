"""Reading and pruning manifests on an engine's executors: the task function and its result.

The task arguments contain all that an executor needs: schema and specs of the table, the filter, and the manifests.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import astuple

import pyarrow as pa

from tamis import types
from tamis.errors import format_count
from tamis.io.storage import Storage
from tamis.tables.iceberg.account import FileMetrics
from tamis.tables.iceberg.file_request import Request
from tamis.tables.iceberg.files import FilePruner, Manifest
from tamis.tables.jobs import Arguments, Engine, Item, Job, storage_to_arguments

FUNCTION = "tamis.tables.iceberg.manifest_job:prune_manifest_group"


def prune_on_engine(
    engine: Engine,
    storage: Storage,
    request: Request,
    compared: Collection[int],
    groups: Sequence[Sequence[Manifest]],
    name: str,
) -> list[tuple[pa.Table, FileMetrics]]:
    """Run `FilePruner.prune` on executors, and return its result for each group of manifests."""
    arguments = {**storage_to_arguments(storage), "request": request.to_json(), "compared": list(compared)}
    what = f"read {format_count(sum(map(len, groups)), 'manifest')} of {name}"
    schema = _make_schema(FilePruner(request, compared))
    job = Job(FUNCTION, arguments, schema, what, storage.counters)
    sizes = [sum(max(each.length, 0) for each in group) for group in groups]
    items = [Item.from_json([astuple(each) for each in group], size) for group, size in zip(groups, sizes, strict=True)]
    batches: list[list[pa.RecordBatch]] = [[] for _ in groups]
    for number, batch in engine.run(job, items):
        batches[number].append(batch)
    return [_read_result(own, schema) for own in batches]


def prune_manifest_group(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the files of some manifests of one spec that may hold a matching row."""
    pruner = arguments.memoise(_make_pruner)
    table, metrics = pruner.prune(arguments.storage, [Manifest(*each) for each in json.loads(item)])
    schema = _make_schema(pruner)
    serialized = pa.array([json.dumps(metrics.to_json())], types.STRING)
    yield pa.record_batch([serialized, pa.nulls(1, schema.field("files").type)], schema=schema)
    for batch in table.to_batches():
        files = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
        yield pa.record_batch([pa.nulls(batch.num_rows, types.STRING), files], schema=schema)


def _make_pruner(arguments: Arguments) -> FilePruner:
    return FilePruner(Request.from_json(arguments["request"]), arguments["compared"])


def _make_schema(pruner: FilePruner) -> pa.Schema:
    return pa.schema([("metrics", types.STRING), ("files", pa.struct(list(pruner.schema)))])


def _read_result(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> tuple[pa.Table, FileMetrics]:
    """Assemble the result of a group; its first batch contains the metrics."""
    metrics = FileMetrics.from_json(json.loads(batches[0].column("metrics")[0].as_py()))
    own = pa.schema(list(schema.field("files").type))
    files = [pa.record_batch(batch.column("files").flatten(), schema=own) for batch in batches[1:]]
    return pa.Table.from_batches(files, own), metrics
