"""The statistics index of a table: build it, show its status, drop it.

    tamis.index.build("orders")                              # every column, footers only
    tamis.index.build("orders", bloom=["customer"])          # and a Bloom filter of each file for one of them
    tamis.open("orders").scan("customer = 'c-42'")           # finds it and uses it

A second build reads only new files. See docs/reference/statistics-index.md.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import (
    CorruptFile,
    InvalidArgument,
    MissingFile,
    StorageError,
    UnsupportedFeature,
    format_count,
    make_argument_error,
    suggest_arguments,
)
from tamis.expr.nodes import TRUE
from tamis.expr.wire.expression_json import schema_to_text
from tamis.formats.jobs import Engine, Item, Job, can_serialise, get_job_engines, storage_to_arguments
from tamis.formats.open_source import open_source
from tamis.formats.source import TABLE_FORMATS, HasCollations, SampledSchema, TableSource, Versioned
from tamis.index.collect import FUNCTION, RESULT
from tamis.index.entries import Entries, Rows, make_relative
from tamis.index.finding import open_store
from tamis.index.spec import IndexRequest, IndexSpec, check_names, choose_columns
from tamis.index.store import SCHEMA, Current, DamagedPart, IndexStore, Part, Sample
from tamis.index.table_index import TableIndex
from tamis.io.listing import FileEntry
from tamis.io.storage import open_storage
from tamis.parquet.footer.footer import load_footer
from tamis.parquet.footer.leaves import Int96
from tamis.skipping.metadata import ROW_COUNT
from tamis.skipping.predicate import Predicate
from tamis.tuning import Tuning

# --- Building -------------------------------------------------------------------------------------------------------
#
# Building an index: entries of new files are collected, existing entries are reused, and entries of removed files are
# dropped.
#
#     list the files ─▶ find their entries ─▶ collect the others ─▶ merge small parts ─▶ current.json
#
# Entries are reused from the current index, and from parts that an interrupted build left. The current index does not
# change before the last step, which replaces one file.


MIN_FILES_PER_ITEM = 32
ITEMS = 64
"""The approximate number of work items: each finished item survives an interruption."""
MAX_BYTES_PER_ITEM = 256 * 1024 * 1024

FOOTER_BYTES = 64 * 1024
"""The bytes that are read from a file to find its footer."""

SETTLED_SECONDS = {True: 0.02, False: 2.0}
"""A file that was written within this time may be rewritten with the same modification time: local disks (True) have
milliseconds, object stores seconds. A build waits for such files, and leaves out the files that are still too new."""

MAX_ATTEMPTS = 10
"""The maximum number of restarts of a build because a concurrent build removed a part that it needs, or because a part
is damaged."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a build: indexed files of those to index, and their bytes."""

    files: int
    total_files: int
    bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The result of a build."""

    location: str
    files: int
    """The files in the index."""
    rows: int
    bytes: int
    """The bytes of the data files."""
    collected: int
    """The files that were read by this build."""
    reused: int
    """The files whose entries were reused."""
    removed: int
    """The entries that were dropped because their files were removed or rewritten."""
    left_out: int
    """The files without an entry."""
    left_out_because: str | None
    index_bytes: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as `--json` prints them."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class IndexedTable:
    """The table to index, and the requested columns."""

    source: TableSource
    asked: IndexRequest
    spec: IndexSpec
    sample: FileEntry | None = None
    """The file from which a folder takes its schema."""
    reopen: Callable[[], TableSource] | None = None
    """Opens the table again; None if the table has versions."""


def build_index(
    subject: IndexedTable, store: IndexStore, engine: Engine, progress: Callable[[Progress], None] | None = None
) -> BuildResult:
    """Build or update an index. The current one stays until the new one is complete."""
    started = time.monotonic()
    build = _Build(subject, store, engine, progress or (lambda _: None))
    for _ in range(MAX_ATTEMPTS):
        result = build.run()
        if result is not None:
            return BuildResult(**result, seconds=time.monotonic() - started)
    raise StorageError(f"other builds keep changing the index at '{store.location}': build it after they finish")


@dataclass(frozen=True)
class _KnownEntries:
    rows: Rows
    """The entry of each listed file; -1 for none."""
    parts: Sequence[tuple[Part, Rows]]
    """The parts, each with its entries of listed files."""
    leftovers: tuple[Part, ...]


class _Build:
    def __init__(
        self, subject: IndexedTable, store: IndexStore, engine: Engine, progress: Callable[[Progress], None]
    ) -> None:
        self._subject = subject
        self._store = store
        self._engine = engine
        self._progress = progress
        self._collected = self._left_out = 0
        self._because: str | None = None
        self._root = subject.source.storage.root
        self._made: set[str] = set()
        """The parts that this build wrote; no other build refers to them."""
        self._damaged: set[str] = set()
        self._verified: set[str] = set()

    def run(self) -> dict[str, Any] | None:
        """Run the build and return the fields of its result; None if a concurrent build interfered."""
        before = self._store.read_if_usable()
        files, unsettled = self._list_settled_files()
        known = self._find_known(before, files)
        new = self._collect(files.filter(pa.array(known.rows < 0)))
        live = [(part, rows) for part, rows in known.parts if len(rows)]
        try:
            merged = merge_parts(
                self._store,
                self._subject.spec,
                [*live, *((part, np.arange(part.files)) for part in new)],
                self._subject.source.storage.tuning,
            )
            # Every column of the unchanged parts must be readable.
            for part in merged:
                if part.name not in self._made and part.name not in self._verified:
                    deque(self._store.read_whole(part), maxlen=0)
                    self._verified.add(part.name)
        except MissingFile:
            return None
        except DamagedPart as error:
            # Its entries are collected again.
            self._damaged.add(error.name)
            return None
        self._made |= {part.name for part in merged} - {part.name for part, _ in known.parts}
        found = Entries(self._store, merged)
        rows = found.find_rows(files, self._root)
        if not self._store.has_parts(merged):
            return None
        indexed = np.unique(rows[rows >= 0])
        current = self._make_current(found, indexed, merged)
        # Without the id and the time of their build.
        if before is None or replace(before, build="", built_at="") != replace(current, build="", built_at=""):
            self._store.publish(current)
            if not self._store.has_parts(merged):
                return None
        self._remove_unneeded(before, current, known)
        if not self._is_complete():
            return None
        reused = int((known.rows >= 0).sum())
        return {
            "location": self._store.location,
            "files": current.files,
            "rows": current.rows,
            "bytes": current.total_bytes,
            "collected": self._collected,
            "reused": reused,
            "removed": self._count_removed(before, known),
            "left_out": self._left_out + unsettled,
            "left_out_because": self._because or (_UNSETTLED if unsettled else None),
            "index_bytes": sum(part.size for part in merged),
        }

    def _list_settled_files(self) -> tuple[pa.Table, int]:
        """Return the files of the table, and the number of others that were written too recently."""
        storage = self._subject.source.storage
        seconds = SETTLED_SECONDS[storage.is_local]
        files = _list_files(self._subject.source)
        is_recent = _is_recent(files, seconds)
        if is_recent.true_count and self._subject.reopen is not None:
            time.sleep(seconds)
            files = _list_files(self._subject.reopen())
            is_recent = _is_recent(files, seconds)
        is_dated = pc.and_(pc.is_valid(files["size"]), pc.is_valid(files["modified_ns"])).combine_chunks()
        settled = files.filter(pc.and_not(is_dated, is_recent))
        return settled, files.num_rows - settled.num_rows

    def _find_known(self, before: Current | None, files: pa.Table) -> _KnownEntries:
        fingerprint = self._subject.spec.fingerprint
        in_force = before.parts if before is not None and before.spec.fingerprint == fingerprint else ()
        referred = [] if before is None else [part.name for part in before.parts]
        leftovers = tuple(
            part
            for part in self._store.find_unreferenced_parts(referred)
            if self._store.read_fingerprint(part) == fingerprint
        )
        usable = [part for part in (*in_force, *leftovers) if part.name not in self._damaged]
        entries = Entries(self._store, usable)
        rows = entries.find_rows(files, self._root)
        return _KnownEntries(rows, entries.split_by_part(np.unique(rows[rows >= 0])), leftovers)

    def _count_removed(self, before: Current | None, known: _KnownEntries) -> int:
        """Return how many entries of the current index are dropped; 0 if it has other columns."""
        if before is None or before.spec.fingerprint != self._subject.spec.fingerprint:
            return 0
        names = {part.name for part in before.parts}
        return max(0, before.files - sum(len(rows) for part, rows in known.parts if part.name in names))

    # --- Collecting entries -------------------------------------------------------------------------------------

    def _collect(self, files: pa.Table) -> list[Part]:
        if not files.num_rows:
            return []
        subject = self._subject
        source = subject.source
        arguments = storage_to_arguments(source.storage) | {
            "index": storage_to_arguments(self._store.storage),
            "schema": schema_to_text(source.schema),
            "partition_columns": list(source.partition_columns),
            "names": None if source.field_names is None else source.field_names.to_json(),
            "spec": subject.spec.to_dict(),
            "with_schemas": TABLE_FORMATS[source.format].has_schemas_of_files,
        }
        most = source.storage.tuning.max_files_per_index_item
        slices = list(_split_files(files, most, reads_values=bool(subject.spec.columns_with_values)))
        # Without values, only the footers are read.
        largest = pa.scalar(None if subject.spec.columns_with_values else FOOTER_BYTES, pa.int64())
        read = [pc.sum(pc.min_element_wise(each["size"], largest)).as_py() or 0 for each in slices]
        items = [Item.from_table(each.combine_chunks(), size) for each, size in zip(slices, read, strict=True)]
        total_bytes = pc.sum(files["size"]).as_py() or 0
        done = size = most = 0

        def report(files_done: int, bytes_done: int) -> None:
            nonlocal most
            # An estimate during the job is not reduced when its results arrive one by one.
            if files_done >= most:
                most = files_done
                self._progress(Progress(files_done, files.num_rows, bytes_done, total_bytes))

        def estimate(share: float) -> None:
            report(int(share * files.num_rows), int(share * total_bytes))

        what = f"index {format_count(files.num_rows, 'file')} of {source.name}"
        job = Job(FUNCTION, arguments, RESULT, what, progress=estimate)
        report(0, 0)
        found: list[Part] = []
        for number, batch in self._engine.run(job, items):
            (result,) = batch.to_pylist()
            self._collected += result["files"]
            self._left_out += result["left_out"]
            self._because = self._because or result["left_out_because"]
            if result["name"] is not None:
                found.append(Part(result["name"], result["size"], result["files"], result["footer_hash"]))
                self._made.add(result["name"])
            done += slices[number].num_rows
            size += pc.sum(slices[number]["size"]).as_py() or 0
            report(done, size)
        return found

    # --- Making it current --------------------------------------------------------------------------------------

    def _make_current(self, entries: Entries, rows: Rows, parts: Sequence[Part]) -> Current:
        indices = pa.array(rows)
        source = self._subject.source
        return Current(
            build=uuid4().hex,
            built_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            table_format=source.format,
            table_version=source.version,
            request=self._subject.asked,
            spec=self._subject.spec,
            parts=tuple(parts),
            files=len(rows),
            rows=pc.sum(entries.column(ROW_COUNT.name).take(indices)).as_py() or 0,
            total_bytes=pc.sum(entries.column("size").take(indices)).as_py() or 0,
            sample=self._read_sample(),
        )

    def _read_sample(self) -> Sample | None:
        sample, storage = self._subject.sample, self._subject.source.storage
        if sample is None or sample.modified_ns is None:
            return None
        try:
            footer, _ = load_footer(storage, sample.path, sample.size, sample.modified_ns)
        except (CorruptFile, MissingFile):
            return None
        path = make_relative(pa.array([sample.path]), storage.root)[0].as_py()
        own = FileEntry(path, sample.size, sample.modified_ns)
        return Sample(own, footer.schema.arrow)

    def _remove_unneeded(self, before: Current | None, current: Current, known: _KnownEntries) -> None:
        """Remove unneeded parts. The parts of the previous index stay, for queries that are reading them."""
        needed = {part.name for part in current.parts}
        needed |= set() if before is None else {part.name for part in before.parts}
        others = self._store.read_if_usable()
        needed |= set() if others is None else {part.name for part in others.parts}
        self._store.remove(sorted((self._made | {part.name for part in known.leftovers}) - needed))
        self._store.remove_old(needed)

    def _is_complete(self) -> bool:
        """Return whether the current index, of this or another build, has all its parts.

        Each build checks after publishing that its parts exist, and after removing parts that none of them has become
        current: of two concurrent builds, the later one sees what the earlier one did.
        """
        current = self._store.read_if_usable()
        return current is None or self._store.has_parts(current.parts)


_UNSETTLED = "written just now, or without a modification time: build the index again"


def _list_files(source: TableSource) -> pa.Table:
    return source.list_files(Predicate(TRUE), ()).files.select(["path", "size", "modified_ns"])


def _is_recent(files: pa.Table, seconds: float) -> pa.Array:
    now = time.time_ns()
    nanoseconds = int(seconds * 1e9)
    times = files["modified_ns"].combine_chunks()
    return pc.fill_null(pc.and_(pc.greater(times, now - nanoseconds), pc.less(times, now + nanoseconds)), False)


def _split_files(files: pa.Table, max_files: int, *, reads_values: bool) -> Iterator[pa.Table]:
    most = min(max_files, max(MIN_FILES_PER_ITEM, -(-files.num_rows // ITEMS)))
    sizes = files["size"].to_pylist() if reads_values else [0] * files.num_rows
    start = size = 0
    for number, own in enumerate(sizes):
        if number > start and (number - start == most or size + own > MAX_BYTES_PER_ITEM):
            yield files.slice(start, number - start)
            start, size = number, 0
        size += own
    yield files.slice(start)


# --- Merging small parts: opening a part costs as much as reading thousands of its entries ----------------------------


def merge_parts(store: IndexStore, spec: IndexSpec, parts: Iterable[tuple[Part, Rows]], tuning: Tuning) -> list[Part]:
    """Merge small parts, and return all parts. Each comes with its live entries.

    A part that is at least half full of live entries is not rewritten.
    """
    large: list[Part] = []
    small: list[tuple[Part, Rows]] = []
    for part, rows in parts:
        fullness = max(len(rows) / tuning.max_files_per_index_part, part.size / tuning.max_bytes_per_index_part)
        if fullness >= 0.5 and 2 * len(rows) >= part.files:
            large.append(part)
        else:
            small.append((part, rows))
    if len(small) == 1 and 2 * len(small[0][1]) >= small[0][0].files:
        return [*large, small[0][0]]
    for group in _group_parts(small, tuning):
        schemas: dict[bytes, int] = {}
        tables = [_read_live_entries(store, part, rows, schemas) for part, rows in group]
        large.append(store.write_part(pa.concat_tables(tables), list(schemas), spec))
    return large


def _group_parts(parts: Sequence[tuple[Part, Rows]], tuning: Tuning) -> Iterator[list[tuple[Part, Rows]]]:
    group: list[tuple[Part, Rows]] = []
    files = size = 0
    for part, rows in parts:
        files, size = files + len(rows), size + part.size
        if group and (files > tuning.max_files_per_index_part or size > tuning.max_bytes_per_index_part):
            yield group
            group, files, size = [], len(rows), part.size
        group.append((part, rows))
    if group:
        yield group


def _read_live_entries(store: IndexStore, part: Part, rows: Rows, schemas: dict[bytes, int]) -> pa.Table:
    """Return the live entries of a part, with schemas numbered as in the merged part."""
    table = pa.Table.from_batches(list(store.read_whole(part)))
    if len(rows) < part.files:
        table = table.take(pa.array(rows))
    if SCHEMA in table.column_names:
        numbers = [schemas.setdefault(schema, len(schemas)) for schema in store.read_schemas(part)]
        renumbered = pa.array(np.array(numbers, np.int32)).take(pc.cast(table[SCHEMA].combine_chunks(), pa.int64()))
        table = table.set_column(table.column_names.index(SCHEMA), SCHEMA, renumbered)
    return table.replace_schema_metadata(None)


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
        """Return whether every file of the table is in the index."""
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
    given = {
        "columns": check_names(columns, "columns"),
        "bloom": check_names(bloom, "bloom"),
        "count_nan": check_names(count_nan, "count_nan"),
        "false_positives": false_positives,
    }
    current = store.read_if_usable()
    before: Any = IndexRequest() if current is None else current.request
    asked = replace(before, **{name: value for name, value in given.items() if value is not None})
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
