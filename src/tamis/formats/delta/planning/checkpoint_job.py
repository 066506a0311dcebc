"""Pruning of checkpoint parts in an engine's executors: the function that runs there, and the format of its results.

Executors get all they need as data: the table's schema, the filter, the path of the part, and the keys of files that
newer commits add or remove. Commits are in memory and are pruned by the driver.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import Any

import pyarrow as pa

from tamis.errors import format_count
from tamis.formats.delta.log.log_segment import LogFile
from tamis.formats.delta.planning.file_batches import get_cached_batches
from tamis.formats.delta.planning.file_request import Request
from tamis.formats.delta.planning.log_fragments import FilePart
from tamis.formats.delta.planning.prune_files import PartPruner
from tamis.formats.delta.schema import TableMetadata, parse_fields
from tamis.formats.delta.snapshot import Snapshot
from tamis.formats.file_funnel import FileRequest, PrunedFiles, encode_result, make_result_schema, prune_in_executors
from tamis.formats.jobs import Arguments, Engine, Item, Job, read_table, storage_to_arguments

FUNCTION = "tamis.formats.delta.planning.checkpoint_job:prune_part"


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
        "request": request.asked.to_json(),
        "touched": None if touched is None or not len(touched) else _keys_to_text(touched),
    }
    what = f"read {format_count(len(parts), 'checkpoint part')} of {name}@{snapshot.version}"
    job = Job(FUNCTION, arguments, make_result_schema(nothing), what, storage.counters)
    files = [part.file for part in parts if part.file is not None]
    return prune_in_executors(engine, job, [Item.from_json(astuple(file), file.size) for file in files], nothing)


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
    yield from encode_result(arguments.memoise(_make_pruner).prune(part))


def _make_pruner(arguments: Arguments) -> PartPruner:
    metadata = metadata_from_json(arguments["metadata"])
    request = Request.of(FileRequest.from_json(arguments["request"]), metadata)
    return PartPruner(metadata, request, threads=1, keep=False)


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


def _keys_to_text(keys: pa.Array) -> str:
    return base64.b64encode(Item.from_table(pa.table({"key": keys})).value).decode()


def _read_touched(arguments: Arguments) -> pa.Array | None:
    text = arguments["touched"]
    return None if text is None else read_table(base64.b64decode(text))["key"].combine_chunks()
