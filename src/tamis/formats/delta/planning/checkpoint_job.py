"""Pruning of checkpoint parts in an engine's executors: the function that runs there, and the format of its results.

Executors get all they need as data: the table's schema, the filter, the path of the part, and the keys of files that
newer commits add or remove. Commits are in memory and are pruned by the driver.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple
from typing import Any

import pyarrow as pa

from tamis import types
from tamis.errors import CorruptFile, format_count
from tamis.formats.delta.log.log_segment import LogFile
from tamis.formats.delta.planning.file_batches import get_cached_batches
from tamis.formats.delta.planning.file_request import Request
from tamis.formats.delta.planning.log_fragments import FilePart
from tamis.formats.delta.planning.prune_files import PRUNED_FILE_SCHEMA, PartPruner, PrunedFiles
from tamis.formats.delta.schema import TableMetadata, parse_fields
from tamis.formats.delta.snapshot import Snapshot
from tamis.formats.jobs import Arguments, Engine, Item, Job, read_table, storage_to_arguments
from tamis.formats.source import LIMIT, Sizes
from tamis.skipping.predicate import predicate_from_json, predicate_to_json
from tamis.skipping.prune import ConjunctOutcome

FUNCTION = "tamis.formats.delta.planning.checkpoint_job:prune_part"

_SIZES = ("total", "after_partitions", "after_statistics")
_OUTCOMES = ("partition_outcomes", "partition_filter_outcomes", "statistics_outcomes")


def prune_files_in(engine: Engine, snapshot: Snapshot, request: Request, name: str) -> PrunedFiles:
    """Return the files of a snapshot that may hold a matching row, like `prune_files` but in an engine's executors."""
    pruner = PartPruner(snapshot.metadata, request, snapshot.storage.threads)
    parts = snapshot.list_parts()
    sent = [part for part in parts if part.changes is None]
    found = iter(_run_job(engine, snapshot, request, sent, name, pruner.make_empty()))
    each = [next(found) if part.changes is None else pruner.prune(part) for part in parts]
    return PrunedFiles.concatenate([pruner.make_empty(), *each])


def find_unread_parts(snapshot: Snapshot, *, in_memory: bool) -> list[FilePart]:
    """Return the checkpoint parts that a plan has to read; with `in_memory`, without those that this process cached."""
    parts = [part for part in snapshot.list_parts() if part.changes is None]
    return [part for part in parts if get_cached_batches(part, snapshot.metadata) is None] if in_memory else parts


def _run_job(
    engine: Engine, snapshot: Snapshot, request: Request, parts: Sequence[FilePart], name: str, nothing: PrunedFiles
) -> list[PrunedFiles]:
    if not parts:
        return []
    storage = snapshot.storage
    touched = parts[0].touched
    arguments = {
        **storage_to_arguments(storage),
        "metadata": metadata_to_json(snapshot.metadata),
        "version": snapshot.version,
        "request": _request_to_json(request),
        "touched": None if touched is None or not len(touched) else _keys_to_text(touched),
    }
    what = f"read {format_count(len(parts), 'checkpoint part')} of {name}@{snapshot.version}"
    job = Job(FUNCTION, arguments, _make_schema(nothing), what, storage.counters)
    files = [part.file for part in parts if part.file is not None]
    batches: list[list[pa.RecordBatch]] = [[] for _ in parts]
    for number, batch in engine.run(job, [Item.from_json(astuple(file), file.size) for file in files]):
        batches[number].append(batch)
    return [_decode_result(own, nothing) for own in batches]


def prune_part(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """Prune the files that a checkpoint part adds. Yield a batch of metrics, then a batch of the remaining files."""
    file = LogFile(*json.loads(item))
    part = FilePart(
        arguments.storage,
        ("part", file.path),
        arguments["version"],
        file.size,
        file,
        touched=arguments.memoise(_read_touched),
    )
    pruner = arguments.memoise(_make_pruner)
    yield from _encode_result(pruner.prune(part), pruner.make_empty())


def _make_pruner(arguments: Arguments) -> PartPruner:
    metadata = metadata_from_json(arguments["metadata"])
    return PartPruner(metadata, _request_from_json(arguments["request"], metadata), threads=1, keep=False)


# --- Serialisation ----------------------------------------------------------------------------------------------------


def metadata_to_json(metadata: TableMetadata) -> dict[str, Any]:
    """Convert a table's metadata to JSON values."""
    return {
        "id": metadata.id,
        "name": metadata.name,
        "partition_columns": list(metadata.partition_columns),
        "mapping_mode": metadata.mapping_mode,
        "configuration": dict(metadata.configuration),
        "location": metadata.location,
        "schema_text": metadata.schema_text,
    }


def metadata_from_json(given: Mapping[str, Any]) -> TableMetadata:
    """Convert the result of `metadata_to_json` back to metadata."""
    fields = parse_fields(given["schema_text"], given["location"], is_mapped=given["mapping_mode"] != "none")
    return TableMetadata(**{**given, "fields": fields, "partition_columns": tuple(given["partition_columns"])})


def _request_to_json(request: Request) -> dict[str, Any]:
    levels = {"partitions": request.by_partitions, "files": request.by_statistics}
    return {
        "predicate": predicate_to_json(request.predicate),
        "levels": [name for name, is_on in levels.items() if is_on],
        # Executors only return row counts. The driver chooses the files once all counts are known.
        "limit": 0 if request.skipping == LIMIT else None,
        "with_rows": request.with_rows,
    }


def _request_from_json(given: Mapping[str, Any], metadata: TableMetadata) -> Request:
    predicate = predicate_from_json(given["predicate"])
    return Request.of(predicate, metadata, given["levels"], given["limit"], given["with_rows"])


def _keys_to_text(keys: pa.Array) -> str:
    return base64.b64encode(Item.from_table(pa.table({"key": keys})).value).decode()


def _read_touched(arguments: Arguments) -> pa.Array | None:
    text = arguments["touched"]
    return None if text is None else read_table(base64.b64decode(text))["key"].combine_chunks()


def _make_schema(nothing: PrunedFiles) -> pa.Schema:
    fields = [("metrics", types.STRING), ("files", pa.struct(list(PRUNED_FILE_SCHEMA))), ("matched", types.BOOLEAN)]
    if nothing.partitions.num_columns:
        fields.append(("partitions", pa.struct(list(nothing.partitions.schema))))
    return pa.schema(fields)


def _encode_result(chosen: PrunedFiles, nothing: PrunedFiles) -> Iterator[pa.RecordBatch]:
    schema = _make_schema(nothing)
    sizes = {name: asdict(getattr(chosen, name)) for name in _SIZES}
    outcomes = {name: [asdict(each) for each in getattr(chosen, name)] for name in _OUTCOMES}
    unreadable = {name: str(error) for name, error in chosen.unreadable.items()}
    metrics = pa.array([json.dumps({**sizes, **outcomes, "unreadable": unreadable})])
    yield pa.record_batch([metrics, *(pa.nulls(1, field.type) for field in list(schema)[1:])], schema=schema)
    rows = chosen.files.num_rows
    if not rows:
        return
    values = [
        pa.nulls(rows, types.STRING),
        _as_struct(chosen.files.select(PRUNED_FILE_SCHEMA.names)),
        pa.array(chosen.fully_matched),
    ]
    if chosen.partitions.num_columns:
        values.append(_as_struct(chosen.partitions))
    yield pa.record_batch(values, schema=schema)


def _as_struct(table: pa.Table) -> pa.StructArray:
    return pa.StructArray.from_arrays([column.combine_chunks() for column in table.columns], fields=list(table.schema))


def _decode_result(batches: Sequence[pa.RecordBatch], nothing: PrunedFiles) -> PrunedFiles:
    """Decode the result of a part: the first batch holds the metrics."""
    metrics = json.loads(batches[0].column("metrics")[0].as_py())
    found = pa.Table.from_batches(batches[1:], _make_schema(nothing))
    partitions = nothing.partitions
    if partitions.num_columns:
        partitions = _from_struct(found["partitions"], partitions.schema)
    total, after_partitions, after_statistics = (Sizes(**metrics[name]) for name in _SIZES)
    of_partitions, of_filter, of_statistics = (
        tuple(ConjunctOutcome(**each) for each in metrics[name]) for name in _OUTCOMES
    )
    return PrunedFiles(
        _from_struct(found["files"], PRUNED_FILE_SCHEMA),
        partitions,
        found["matched"].to_numpy().astype(bool),
        total,
        after_partitions,
        after_statistics,
        of_partitions,
        of_filter,
        of_statistics,
        {name: CorruptFile(text) for name, text in metrics["unreadable"].items()},
    )


def _from_struct(column: pa.ChunkedArray, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([pa.record_batch(chunk.flatten(), schema=schema) for chunk in column.chunks], schema)
