"""Pruning of checkpoint parts in an engine's executors: the function that runs there, and the format of its results.

Executors get all they need as data: the table's schema, the filter, the path of the part, and the keys of files that
newer commits add or remove. Commits are in memory and are pruned by the driver.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tamis.errors import format_count
from tamis.expr.nodes import Column
from tamis.formats.constants import name_partition
from tamis.formats.delta.deletion_vectors import parse_descriptors, read_deletion_bitmaps
from tamis.formats.delta.log.log_segment import LogFile
from tamis.formats.delta.log.replay import make_action_keys
from tamis.formats.delta.paths import resolve_paths
from tamis.formats.delta.planning.file_batches import (
    FILE_COLUMNS,
    PARTITION_VALUES,
    STATISTICS,
    FileBatch,
    FilePart,
    LogColumns,
    compute_logical_rows,
    get_cached_batches,
    read_batches,
)
from tamis.formats.delta.planning.partition_values import (
    get_partition_strings,
    make_unreadable_value_error,
)
from tamis.formats.delta.planning.prune_files import PartPruner, Request, resolve_files
from tamis.formats.delta.schema import TableMetadata, parse_fields
from tamis.formats.delta.snapshot import Snapshot
from tamis.formats.file_funnel import FileRequest, PrunedFiles, encode_result, make_result_schema, prune_in_executors
from tamis.formats.file_rows import KEY, FileRowsJob, FilesWithStatistics, read_columns
from tamis.formats.jobs import Arguments, Engine, Item, Job, read_table, storage_to_arguments
from tamis.formats.listing_parts import ListingJob
from tamis.formats.source import LEVELS, FileListing
from tamis.io.storage import Storage
from tamis.io.threads import run_in_threads
from tamis.parquet.footer.footer import load_footer
from tamis.skipping.metadata import ROW_COUNT
from tamis.skipping.predicate import Predicate, make_partition_text
from tamis.skipping.rewrite import Conjunct

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


def prune_commits(snapshot: Snapshot, request: Request) -> PrunedFiles:
    """Return the files that may hold a matching row, of the parts of the log that are in memory."""
    pruner = PartPruner(snapshot.metadata, request, snapshot.storage.threads)
    each = [pruner.prune(part) for part in snapshot.list_parts() if part.changes is not None]
    return PrunedFiles.concatenate([pruner.make_empty(), *each])


def _run_job(
    engine: Engine, snapshot: Snapshot, request: Request, parts: Sequence[FilePart], name: str, nothing: PrunedFiles
) -> list[PrunedFiles]:
    if not parts:
        return []
    what = f"read {format_count(len(parts), 'checkpoint part')} of {name}@{snapshot.version}"
    arguments = _make_arguments(snapshot, request)
    job = Job(FUNCTION, arguments, make_result_schema(nothing), what, snapshot.storage.counters)
    return prune_in_executors(engine, job, _make_items(parts), nothing)


def _make_arguments(snapshot: Snapshot, request: Request) -> dict[str, Any]:
    keys = snapshot.changes.touched
    touched = base64.b64encode(Item.from_table(pa.table({"key": keys})).value).decode() if len(keys) else None
    return {
        **storage_to_arguments(snapshot.storage),
        "metadata": metadata_to_json(snapshot.metadata),
        "version": snapshot.version,
        "request": request.asked.to_json(),
        "touched": touched,
    }


def _list_files(parts: Sequence[FilePart]) -> list[LogFile]:
    """Return the files of the checkpoint among parts of the log."""
    return [part.file for part in parts if part.changes is None and part.file is not None]


def _make_items(parts: Sequence[FilePart]) -> list[Item]:
    return [Item.from_json(astuple(file), file.size) for file in _list_files(parts)]


def prune_part(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """Prune the files that a checkpoint part adds. Yield a batch of metrics, then a batch of the remaining files."""
    yield from encode_result(_prune_item(arguments, item))


def _prune_item(arguments: Arguments, item: bytes) -> PrunedFiles:
    return arguments.memoise(_make_pruner).prune(_make_part(arguments, item, arguments.memoise(_read_touched)))


def _make_part(arguments: Arguments, item: bytes, touched: pa.Array | None = None) -> FilePart:
    file = LogFile(*json.loads(item))
    source = ("part", file.path)
    return FilePart(arguments.storage, source, arguments["version"], file.size, file, touched=touched)


def _make_pruner(arguments: Arguments) -> PartPruner:
    metadata = metadata_from_json(arguments["metadata"])
    request = Request.of(FileRequest.from_json(arguments["request"]), metadata)
    return PartPruner(metadata, request, threads=1, keep=False)


# --- Listing: executors list the files of checkpoint parts, and read their deletion vectors ---------------------------

LIST_FUNCTION = "tamis.formats.delta.planning.checkpoint_job:list_part"
DELETES_FUNCTION = "tamis.formats.delta.planning.checkpoint_job:make_vector_reader"


def count_files(snapshot: Snapshot) -> int:
    """Return how many files a snapshot has at most, from the footers of its checkpoint and the commits after it."""
    storage, parts = snapshot.storage, snapshot.list_parts()
    in_memory = sum(len(part.changes.added_keys) for part in parts if part.changes is not None)

    def count(file: LogFile) -> int:
        footer, _ = load_footer(storage, file.path, file.size, file.modified_ns)
        return int(footer.metadata.num_rows)

    return in_memory + sum(run_in_threads(count, _list_files(parts), storage.threads))


def plan_listing_job(snapshot: Snapshot, request: Request, name: str, more: Mapping[str, Any]) -> ListingJob:
    """Return the job that lists the files of checkpoint parts; `more` are the arguments of `resolve_files`."""
    items = _make_items(snapshot.list_parts())
    what = f"list {format_count(len(items), 'checkpoint part')} of {name}@{snapshot.version}"
    return ListingJob(LIST_FUNCTION, {**_make_arguments(snapshot, request), **more}, items, what)


def list_part(arguments: Arguments, item: bytes) -> Iterator[FileListing]:
    """Yield the files of a checkpoint part that may hold a matching row."""
    found = _prune_item(arguments, item)
    listed, _ = resolve_files(
        arguments.storage, found.files, arguments["mark"], allow_outside=arguments["allow_outside"]
    )
    listed = listed.drop_columns([name_partition(name) for name in found.unreadable])
    yield FileListing(listed, (), matched=found.matched, unreadable=found.unreadable)


@dataclass(frozen=True)
class VectorReader:
    """Reads the rows that deletion vectors delete."""

    allow_outside: bool

    def read_deleted_rows(
        self, storage: Storage, files: pa.Table, row_groups: Sequence[Collection[int]] | None = None
    ) -> Mapping[int, BitMap64]:
        """Return the deleted rows of the files with deletion vectors, by position in `files`."""
        has_vector = np.flatnonzero(np.asarray(pc.is_valid(files["deletion_vector"])))
        if not len(has_vector):
            return {}
        descriptors = parse_descriptors(files["deletion_vector"].take(pa.array(has_vector)))
        found = read_deletion_bitmaps(storage, descriptors, allow_outside=self.allow_outside)
        return dict(zip(has_vector.tolist(), found, strict=True))


def make_vector_reader(arguments: Arguments) -> VectorReader:
    """Return the reader of a table's deletion vectors, in an executor."""
    return VectorReader(arguments["allow_outside"])


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


def _read_touched(arguments: Arguments) -> pa.Array | None:
    text = arguments["touched"]
    return None if text is None else read_table(base64.b64decode(text))["key"].combine_chunks()


# --- File rows ------------------------------------------------------------------------------------------------------
#
# The files of a snapshot with their statistics: executors read the checkpoint parts, this process the commits.


FILES_FUNCTION = "tamis.formats.delta.planning.checkpoint_job:read_checkpoint_files"


@dataclass(frozen=True)
class DeltaFileRows:
    """Reads the files of a snapshot with their statistics."""

    snapshot: Snapshot
    name: str
    allow_outside: bool

    def list_columns(self, columns: Sequence[Column]) -> tuple[Column, ...]:
        return tuple(columns)

    def plan(self, columns: Sequence[Column]) -> FileRowsJob:
        """Return the job that reads checkpoint parts. The commits are read now, and replace files of those parts."""
        snapshot = self.snapshot
        metadata = snapshot.metadata
        parts = snapshot.list_parts()
        items = _make_items(parts)
        return FileRowsJob(
            FILES_FUNCTION,
            {"metadata": metadata_to_json(metadata), "version": snapshot.version},
            items,
            f"read {format_count(len(items), 'checkpoint part')} of {self.name}@{snapshot.version}",
            [found for part in parts if part.changes is not None for found in _read_files(part, metadata, columns)],
            snapshot.changes.touched,
        )

    def split_conjuncts(self, predicate: Predicate) -> tuple[Sequence[Conjunct], Sequence[Conjunct]]:
        request = Request.of(FileRequest(predicate, frozenset(LEVELS)), self.snapshot.metadata)
        return request.partition_conjuncts, predicate.conjuncts

    def resolve_paths(self, files: pa.Table) -> pa.Table:
        paths = files["path"].combine_chunks()
        return files.set_column(
            0, "path", resolve_paths(self.snapshot.storage, paths, allow_outside=self.allow_outside)
        )


def read_checkpoint_files(arguments: Arguments, item: bytes) -> Iterator[FilesWithStatistics]:
    """Yield the files that a checkpoint part adds, including those that newer commits replace."""
    part = _make_part(arguments, item)
    yield from _read_files(part, arguments.memoise(_parse_metadata), arguments.memoise(read_columns))


def _parse_metadata(arguments: Arguments) -> TableMetadata:
    return metadata_from_json(arguments["metadata"])


def _read_files(part: FilePart, metadata: TableMetadata, columns: Sequence[Column]) -> Iterator[FilesWithStatistics]:
    needed = (*FILE_COLUMNS, *PARTITION_VALUES, *STATISTICS)
    for batch, log in read_batches(part, metadata, needed):
        yield _to_files(batch, log, columns)


def _to_files(batch: FileBatch, log: LogColumns, columns: Sequence[Column]) -> FilesWithStatistics:
    rows = np.arange(batch.rows)
    statistics = batch.read_statistics(columns, rows, log)
    row_counts = statistics[ROW_COUNT.name]
    chosen = batch.select_files(rows, row_counts)
    names = ("path", "size", "modified", "deletion_vector", "num_records")
    files = {name: chosen[name].combine_chunks() for name in names}
    files["logical_rows"] = compute_logical_rows(row_counts, batch.count_deleted(pa.array(rows)))
    files[KEY] = make_action_keys(files["path"], files["deletion_vector"])
    typed = batch.partition_values.expand()
    partitions = typed.values
    if batch.partition_values.has_strings:
        codes = pa.array(batch.partition_values.codes)
        for name in batch.metadata.partition_columns:
            texts = get_partition_strings(batch.partition_values, name, batch.metadata)
            partitions = partitions.append_column(make_partition_text(name).name, texts.take(codes))
    return FilesWithStatistics(
        files,
        statistics,
        partitions,
        {
            int(row): make_unreadable_value_error(texts[int(row)].as_py(), name, batch.metadata)
            for name, texts in typed.wrong.items()
            for row in np.flatnonzero(np.asarray(texts.is_valid()))
        },
    )
