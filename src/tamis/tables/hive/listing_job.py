"""Listing of many directories in an engine's executors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tamis import types
from tamis.io.listing import Listing, list_directories
from tamis.io.storage import Storage
from tamis.tables.jobs import Arguments, Engine, Item, Job, storage_to_arguments
from tamis.tables.planning import SMALL_READ, Planning

FUNCTION = "tamis.tables.hive.listing_job:list_call"

DIRECTORIES_PER_CALL = 256
"""The number of directories that one call lists."""

_SCHEMA = pa.schema(
    [
        ("directory", types.LONG),
        ("path", types.STRING),
        ("is_file", types.BOOLEAN),
        ("size", types.LONG),
        ("modified_ns", types.LONG),
    ]
)
"""The entries of directories; `directory` is the position of the parent directory among the paths of the call."""


@dataclass(frozen=True)
class Lister:
    """Lists the directories of a table, in the engine that `planning` chooses; None: in this process."""

    storage: Storage
    planning: Planning | None = None

    def list(self, paths: Sequence[str]) -> list[Listing]:
        """Return the listing of each directory, in the order of the paths."""
        engine = None
        # Listing one directory takes less time than starting a job, and discovery descends one by one.
        if self.planning is not None and len(paths) > 1:
            calls = -(-len(paths) // DIRECTORIES_PER_CALL)
            engine = self.planning.choose_engine(self.storage, calls, len(paths) * SMALL_READ)
        return (
            list_directories(self.storage, paths)
            if engine is None
            else list_directories_in(engine, self.storage, paths)
        )


def list_directories_in(engine: Engine, storage: Storage, paths: Sequence[str]) -> list[Listing]:
    """Return the same as `list_directories`, listed by an engine."""
    calls = [paths[start : start + DIRECTORIES_PER_CALL] for start in range(0, len(paths), DIRECTORIES_PER_CALL)]
    what = f"list {len(paths):,} {'directory' if len(paths) == 1 else 'directories'} of {storage.uri}"
    job = Job(FUNCTION, storage_to_arguments(storage), _SCHEMA, what, storage.counters)
    batches: list[list[pa.RecordBatch]] = [[] for _ in calls]
    for number, batch in engine.run(job, [Item.from_json(call, len(call) * SMALL_READ) for call in calls]):
        batches[number].append(batch)
    return [listing for call, own in zip(calls, batches, strict=True) for listing in _decode_listings(own, len(call))]


def list_call(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the entries of some directories: for each its files, then its directories, both ordered by name."""
    for number, listing in enumerate(list_directories(arguments.storage, json.loads(item))):
        files, directories = len(listing.file_paths), len(listing.directory_paths)
        if not files + directories:
            continue
        none = pa.nulls(directories, types.LONG)
        yield pa.record_batch(
            [
                pa.repeat(pa.scalar(number, types.LONG), files + directories),
                pa.concat_arrays([listing.file_paths, listing.directory_paths]),
                pa.array(np.arange(files + directories) < files),
                pa.concat_arrays([listing.file_sizes, none]),
                pa.concat_arrays([listing.file_modified_ns, none]),
            ],
            schema=_SCHEMA,
        )


def _decode_listings(batches: Sequence[pa.RecordBatch], count: int) -> list[Listing]:
    found = pa.Table.from_batches(batches, _SCHEMA).combine_chunks()
    directory = found["directory"].to_numpy()
    is_file = found["is_file"].to_numpy().astype(bool)
    numbers = np.arange(count)
    starts, ends = np.searchsorted(directory, numbers), np.searchsorted(directory, numbers, side="right")
    files = np.concatenate([[0], np.cumsum(is_file)])
    paths, sizes, times = (
        found[name].chunk(0) if found.num_rows else pa.array([], _SCHEMA.field(name).type)
        for name in ("path", "size", "modified_ns")
    )
    listings = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        own = int(files[end] - files[start])
        listings.append(
            Listing(
                paths.slice(start, own),
                sizes.slice(start, own),
                times.slice(start, own),
                paths.slice(start + own, end - start - own),
            )
        )
    return listings
