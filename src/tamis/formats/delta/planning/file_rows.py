"""The files of a snapshot with their statistics: executors read the checkpoint parts, this process the commits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import TamisError, format_count
from tamis.expr.nodes import Column
from tamis.formats.delta.log.log_segment import LogFile
from tamis.formats.delta.log.replay import make_action_keys
from tamis.formats.delta.paths import resolve_paths
from tamis.formats.delta.planning.checkpoint_job import metadata_from_json, metadata_to_json
from tamis.formats.delta.planning.file_batches import (
    PARTITION_VALUES,
    STATISTICS,
    FileBatch,
    LogColumns,
    compute_logical_rows,
    read_batches,
)
from tamis.formats.delta.planning.file_request import Request
from tamis.formats.delta.planning.log_fragments import FilePart
from tamis.formats.delta.planning.partition_values import make_unreadable_value_error
from tamis.formats.delta.schema import TableMetadata
from tamis.formats.delta.snapshot import Snapshot
from tamis.formats.file_funnel import FileRequest
from tamis.formats.file_rows import KEY, FileRowsJob, FilesWithStatistics, read_columns
from tamis.formats.jobs import Arguments, Item
from tamis.formats.source import LEVELS
from tamis.skipping.metadata import ROW_COUNT
from tamis.skipping.predicate import Predicate
from tamis.skipping.rewrite import Conjunct

FUNCTION = "tamis.formats.delta.planning.file_rows:read_checkpoint_files"


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
        files = [part.file for part in parts if part.changes is None and part.file is not None]
        return FileRowsJob(
            FUNCTION,
            {"metadata": metadata_to_json(metadata), "version": snapshot.version},
            [Item.from_json(astuple(file), file.size) for file in files],
            f"read {format_count(len(files), 'checkpoint part')} of {self.name}@{snapshot.version}",
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
    file = LogFile(*json.loads(item))
    part = FilePart(arguments.storage, ("part", file.path), arguments["version"], file.size, file)
    yield from _read_files(part, arguments.memoise(_parse_metadata), arguments.memoise(read_columns))


def _parse_metadata(arguments: Arguments) -> TableMetadata:
    return metadata_from_json(arguments["metadata"])


def _read_files(part: FilePart, metadata: TableMetadata, columns: Sequence[Column]) -> Iterator[FilesWithStatistics]:
    needed = ("path", "size", "modification_time", "deletion_vector", *PARTITION_VALUES, *STATISTICS)
    for batch, log in read_batches(part, metadata, needed):
        yield _to_files(batch, log, columns)


def _to_files(batch: FileBatch, log: LogColumns, columns: Sequence[Column]) -> FilesWithStatistics:
    rows = np.arange(batch.rows)
    statistics = batch.read_statistics(columns, rows, log)
    row_counts = statistics[ROW_COUNT.name]
    chosen = batch.select_files(rows, row_counts)
    files = {name: chosen[name].combine_chunks() for name in ("path", "size", "deletion_vector", "num_records")}
    files["modified_ns"] = pc.multiply(batch.read_modification_times(log), 1_000_000)
    files["logical_rows"] = compute_logical_rows(row_counts, batch.count_deleted(pa.array(rows)))
    files[KEY] = make_action_keys(files["path"], files["deletion_vector"])
    return FilesWithStatistics(files, statistics, batch.partitions, _find_errors(batch))


def _find_errors(batch: FileBatch) -> dict[int, TamisError]:
    """Return the errors of files with a partition value that is invalid for its type."""
    return {
        int(row): make_unreadable_value_error(texts[int(row)].as_py(), name, batch.metadata)
        for name, texts in batch.invalid.items()
        for row in np.flatnonzero(np.asarray(texts.is_valid()))
    }
