"""The statistics index of a table: build it, show its status, drop it.

    tamis.index.build("orders")                              # every column, footers only
    tamis.index.build("orders", bloom=["customer"])          # and a Bloom filter of each file for one of them
    tamis.open("orders").scan("customer = 'c-42'")           # finds it and uses it

A second build reads only new files. See docs/reference/statistics-index.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from tamis.errors import InvalidArgument, UnsupportedFeature, make_argument_error, suggest_arguments
from tamis.expr.nodes import TRUE
from tamis.formats.jobs import Engine, can_serialise, get_job_engines
from tamis.formats.open_source import open_source
from tamis.formats.source import HasCollations, SampledSchema, TableSource, Versioned
from tamis.index.building import BuildResult, IndexedTable, Progress, build_index
from tamis.index.finding import open_store
from tamis.index.spec import IndexRequest, check_names, choose_columns
from tamis.index.store import IndexStore
from tamis.index.table_index import TableIndex
from tamis.io.storage import open_storage
from tamis.parquet.footer.leaves import Int96
from tamis.skipping.predicate import Predicate
from tamis.tuning import Tuning

__all__ = ["BuildResult", "IndexStatus", "Progress", "build", "drop", "status"]


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """An index, compared with the current files of the table."""

    location: str
    exists: bool
    built_at: str | None = None
    columns: tuple[str, ...] = ()
    bloom: tuple[str, ...] = ()
    count_nan: tuple[str, ...] = ()
    files: int = 0
    """The files in the index."""
    rows: int = 0
    parts: int = 0
    index_bytes: int = 0
    table_files: int = 0
    """The files of the table."""
    fresh_files: int = 0
    """The files of the table whose entries in the index are up to date."""
    version: int | None = None
    """The version of a Delta table for which the index was built."""
    is_useful: bool = True
    """False for an Iceberg table: its manifests have the statistics of its files."""

    @property
    def is_complete(self) -> bool:
        """Whether every file of the table is in the index."""
        return self.exists and self.fresh_files == self.table_files

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as `--json` prints them."""
        return asdict(self) | {"is_complete": self.is_complete}


@suggest_arguments("tamis.index.build")
def build(
    uri: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    bloom: Sequence[str] | None = None,
    count_nan: Sequence[str] | None = None,
    false_positives: float | None = None,
    engine: str | Engine | Any = "local",
    location: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    format: str | None = None,
    partitioning: Mapping[str, str | pa.DataType] | None = None,
    merge_schema: bool = False,
    allow_outside: bool = False,
    int96: Int96 = "instant",
    tuning: Tuning | None = None,
) -> BuildResult:
    """Build the index of a table, or bring it up to date.

    - `columns`: the columns whose bounds are indexed, by default all whose values have an order.
    - `bloom`: columns whose values are read for a Bloom filter of each file, with a share of `false_positives`.
    - `count_nan`: float columns whose NaN are counted. Without the count, `x > 5` skips no file of floats.
    - `engine`: `local`, `spark` (the active session), a Spark session or an engine.
    - `location`: the folder of the index, for `tamis.open(…, index=…)`. By default it is beside the table, where
      `tamis.open` finds it.
    - `progress`: a function that is called with the state of the build.

    `columns`, `bloom`, `count_nan` and `false_positives` keep the values of the existing index if they are not given.
    The other arguments are those of `tamis.open`.

    A build that is killed leaves the index unchanged, and the next build continues from there.
    """
    if progress is not None and not callable(progress):
        raise make_argument_error("progress", "a function of the progress", progress)
    reopen = partial(
        open_source,
        uri,
        format,
        storage_options=storage_options,
        partitioning=partitioning,
        merge_schema=merge_schema,
        allow_outside=allow_outside,
        index=False,
        int96=int96,
        tuning=tuning,
    )
    source = reopen()
    refusal = source.index_support.refusal
    if refusal is not None:
        raise UnsupportedFeature(f"'{source.storage.uri}' {refusal}")
    store = open_store(source.storage, location, storage_options)
    if not (can_serialise(source.storage) and can_serialise(store.storage)):
        raise InvalidArgument(
            f"an index of '{source.storage.uri}' is built in other processes, to which a file system object in "
            "storage_options cannot be sent: give the options by name"
        )
    asked = _resolve_request(
        store, check_names(columns, "columns"), check_names(bloom, "bloom"), check_names(count_nan, "count_nan")
    )
    if false_positives is not None:
        asked = replace(asked, false_positives=false_positives)
    return build_index(_make_subject(source, asked, reopen), store, _make_engine(engine), progress)


@suggest_arguments("tamis.index.status")
def status(
    uri: str | os.PathLike[str],
    *,
    location: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    format: str | None = None,
    partitioning: Mapping[str, str | pa.DataType] | None = None,
    merge_schema: bool = False,
    allow_outside: bool = False,
    int96: Int96 = "instant",
) -> IndexStatus:
    """Return what is indexed, and how many files of the table the index describes. A damaged index is an error."""
    source = open_source(
        uri,
        format,
        storage_options=storage_options,
        partitioning=partitioning,
        merge_schema=merge_schema,
        allow_outside=allow_outside,
        index=False,
        int96=int96,
    )
    store = open_store(source.storage, location, storage_options)
    current = store.read_current()
    if current is None:
        return IndexStatus(store.location, exists=False, is_useful=source.index_support.is_useful)
    index = TableIndex(store, source.storage, table_id=source.index_support.table_id, is_required=True)
    files = source.list_files(Predicate(TRUE), ()).files
    return IndexStatus(
        store.location,
        exists=True,
        built_at=current.built_at,
        columns=tuple(".".join(column.path) for column in current.spec.columns),
        bloom=tuple(".".join(column.path) for column in current.spec.columns if column.has_bloom),
        count_nan=tuple(".".join(column.path) for column in current.spec.columns if column.counts_nan),
        files=current.files,
        rows=current.rows,
        parts=len(current.parts),
        index_bytes=sum(part.size for part in current.parts),
        table_files=files.num_rows,
        fresh_files=int(np.count_nonzero(index.find_entries(files) >= 0)),
        version=current.table_version,
    )


@suggest_arguments("tamis.index.drop")
def drop(
    uri: str | os.PathLike[str],
    *,
    location: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> bool:
    """Remove the index of a table, even a damaged one, and return whether there was one. The table is not read."""
    return open_store(open_storage(uri, storage_options), location, storage_options).drop()


def _resolve_request(
    store: IndexStore,
    columns: tuple[str, ...] | None,
    bloom: tuple[str, ...] | None,
    count_nan: tuple[str, ...] | None,
) -> IndexRequest:
    """Return what to index: the given columns, else those of the existing index."""
    current = store.read_if_usable()
    before = IndexRequest() if current is None else current.request
    return replace(
        before,
        columns=before.columns if columns is None else columns,
        bloom=before.bloom if bloom is None else bloom,
        count_nan=before.count_nan if count_nan is None else count_nan,
    )


def _make_subject(source: TableSource, asked: IndexRequest, reopen: Callable[[], TableSource]) -> IndexedTable:
    support = source.index_support
    spec = choose_columns(
        asked,
        source.schema,
        source.partition_columns,
        source.name,
        key_of=support.to_physical_path,
        unordered=source.collated_columns if isinstance(source, HasCollations) else (),
        table_id=support.table_id,
    )
    sample = source.sample_file if isinstance(source, SampledSchema) else None
    return IndexedTable(source, asked, spec, sample, None if isinstance(source, Versioned) else reopen)


def _make_engine(given: object) -> Engine:
    if given == "local":
        return get_job_engines().make_local()
    if given == "spark":
        return get_job_engines().make_spark(None)
    if isinstance(given, str):
        raise InvalidArgument(f"engine must be 'local', 'spark', a Spark session or an engine, found {given!r}")
    if hasattr(given, "run") and hasattr(given, "name"):
        return given
    if type(given).__module__.startswith("pyspark."):
        return get_job_engines().make_spark(given)
    raise make_argument_error("engine", "'local', 'spark', a Spark session or an engine", given)
