"""Building an index: what is new is harvested, what is known is kept, what is gone drops out, and one file says so.

    list the files ─▶ which of them have an entry ─▶ harvest the others ─▶ merge small parts ─▶ current.json

Entries are found in the index that is in force, and in parts that a build left behind which did not end: what it had
done is not done again. Nothing that is in force changes before the last step, and that is one file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import CorruptFile, MissingFile, StorageError, format_count
from tamis.expr.nodes import TRUE
from tamis.formats.jobs import Engine, Item, Job, storage_to_arguments
from tamis.formats.source import TableSource, has_schemas_of_files
from tamis.index.collect import FUNCTION, RESULT, harvest_arguments
from tamis.index.entries import Entries, Rows, relative_paths
from tamis.index.spec import Asked, IndexSpec
from tamis.index.store import SCHEMA, Current, DamagedPart, IndexStore, Part, Sample
from tamis.io.listing import FileEntry
from tamis.parquet.footer.footer import load_footer
from tamis.skipping.metadata import ROW_COUNT
from tamis.skipping.predicate import Predicate

MOST_FILES_OF_AN_ITEM = 1000
FEWEST_FILES_OF_AN_ITEM = 32
ITEMS = 64
"""About how many pieces of work there are: each is a step of progress that is not lost."""
MOST_BYTES_OF_AN_ITEM = 256 * 1024 * 1024

FOOTER_BYTES = 64 * 1024
"""What is read of a file to find its footer."""

SETTLED_SECONDS = {True: 0.02, False: 2.0}
"""A file that was written so short a time ago may be written again within the same tick of its clock: local disks count
milliseconds, object stores seconds. Such files are waited for, and left out if there are still some."""

MOST_TRIES = 10
"""How often a build begins anew because another one, which ran at the same time, removed what it wanted to use, or
because a part is damaged."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a build is: files that are described, of those that had to be, and their bytes."""

    files: int
    total_files: int
    bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class BuildResult:
    """What a build did."""

    place: str
    files: int
    """Files that the index describes now."""
    rows: int
    bytes: int
    """Of the data files."""
    harvested: int
    """Files that were read for it."""
    reused: int
    """Files whose entries were there already."""
    removed: int
    """Entries that dropped out: their files are gone or were written again."""
    left_out: int
    """Files that have no entry."""
    left_out_because: str | None
    index_bytes: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Subject:
    """The table to index, and what was asked for."""

    source: TableSource
    asked: Asked
    spec: IndexSpec
    sample: FileEntry | None = None
    """The file that gives a folder its schema."""
    reopen: Callable[[], TableSource] | None = None
    """The table as it is now; None where its files are those of a version."""


def build_index(
    subject: Subject, store: IndexStore, engine: Engine, progress: Callable[[Progress], None] | None = None
) -> BuildResult:
    """Bring an index up to date; the one in force stays until the new one is whole."""
    started = time.monotonic()
    build = _Build(subject, store, engine, progress or (lambda _: None))
    for _ in range(MOST_TRIES):
        result = build.run()
        if result is not None:
            return BuildResult(**result, seconds=time.monotonic() - started)
    raise StorageError(f"other builds keep changing the index at '{store.place}': build it when they are done")


@dataclass(frozen=True)
class _Known:
    """Entries that can be used again."""

    entries: Entries
    rows: Rows
    """The entry of each listed file, -1 for none."""
    leftovers: tuple[Part, ...]

    @property
    def live(self) -> Rows:
        return np.unique(self.rows[self.rows >= 0])


class _Build:
    def __init__(
        self, subject: Subject, store: IndexStore, engine: Engine, progress: Callable[[Progress], None]
    ) -> None:
        self._subject = subject
        self._store = store
        self._engine = engine
        self._progress = progress
        self._harvested = self._left_out = 0
        self._because: str | None = None
        self._root = subject.source.storage.root
        self._made: set[str] = set()
        """Parts that this build wrote, which nobody else refers to."""
        self._damaged: set[str] = set()
        self._verified: set[str] = set()

    def run(self) -> dict[str, Any] | None:
        """What the build did; None where another one got in its way."""
        before = self._store.read_readable()
        files, unsettled = self._settled_files()
        known = self._known(before, files)
        new = self._harvest(files.filter(pa.array(known.rows < 0)))
        kept = [part for part, live in zip(known.entries.parts, self._live_counts(known), strict=True) if live]
        try:
            merged = merge_parts(
                self._store, self._subject.spec, [*self._with_rows(known), *((part, None) for part in new)]
            )
            self._verify(merged)
        except MissingFile:
            return None
        except DamagedPart as error:
            # Its files are harvested again.
            self._damaged.add(error.name)
            return None
        self._made |= {part.name for part in merged} - {part.name for part in (*kept, *known.entries.parts)}
        found = Entries(self._store, merged)
        rows = found.rows_of(files, self._root)
        if not self._store.has_parts(merged):
            return None
        described = np.unique(rows[rows >= 0])
        current = self._make_current(found, described, merged)
        if before is None or _differ(before, current):
            self._store.publish(current)
            if not self._store.has_parts(merged):
                return None
        self._clean(before, current, known)
        if not self._is_whole():
            return None
        reused = int((known.rows >= 0).sum())
        return {
            "place": self._store.place,
            "files": current.files,
            "rows": current.rows,
            "bytes": current.total_bytes,
            "harvested": self._harvested,
            "reused": reused,
            "removed": self._removed(before, known),
            "left_out": self._left_out + unsettled,
            "left_out_because": self._because or (_UNSETTLED if unsettled else None),
            "index_bytes": sum(part.size for part in merged),
        }

    def _settled_files(self) -> tuple[pa.Table, int]:
        """The files of the table, and how many others were written a moment ago."""
        storage = self._subject.source.storage
        moment = SETTLED_SECONDS[storage.is_local]
        files = _files(self._subject.source)
        is_recent = _is_recent(files, moment)
        if is_recent.true_count and self._subject.reopen is not None:
            time.sleep(moment)
            files = _files(self._subject.reopen())
            is_recent = _is_recent(files, moment)
        is_dated = pc.and_(pc.is_valid(files["size"]), pc.is_valid(files["modified_ns"])).combine_chunks()
        settled = files.filter(pc.and_not(is_dated, is_recent))
        return settled, files.num_rows - settled.num_rows

    def _known(self, before: Current | None, files: pa.Table) -> _Known:
        fingerprint = self._subject.spec.fingerprint
        in_force = before.parts if before is not None and before.spec.fingerprint == fingerprint else ()
        referred = [] if before is None else [part.name for part in before.parts]
        leftovers = tuple(
            part for part in self._store.leftover_parts(referred) if self._fingerprint_of(part) == fingerprint
        )
        usable = [part for part in (*in_force, *leftovers) if part.name not in self._damaged]
        entries = Entries(self._store, usable)
        return _Known(entries, entries.rows_of(files, self._root), leftovers)

    def _verify(self, parts: Sequence[Part]) -> None:
        """Look whether parts that stay as they are can still be read, every column of them."""
        for part in parts:
            if part.name not in self._made and part.name not in self._verified:
                self._store.verify(part)
                self._verified.add(part.name)

    def _fingerprint_of(self, part: Part) -> str | None:
        try:
            return self._store.spec_of(part).fingerprint
        except (CorruptFile, MissingFile):
            return None

    def _removed(self, before: Current | None, known: _Known) -> int:
        """How many entries of the index in force drop out; an index of other columns is another index."""
        if before is None or before.spec.fingerprint != self._subject.spec.fingerprint:
            return 0
        names = {part.name for part in before.parts}
        counts = zip(known.entries.parts, self._live_counts(known), strict=True)
        return max(0, before.files - sum(live for part, live in counts if part.name in names))

    def _live_counts(self, known: _Known) -> list[int]:
        return [int(count) for count in known.entries.live_counts(known.live)]

    def _with_rows(self, known: _Known) -> Iterator[tuple[Part, Rows]]:
        """The parts that have live entries, each with those."""
        for number, (part, live) in enumerate(zip(known.entries.parts, self._live_counts(known), strict=True)):
            if live:
                yield part, known.entries.rows_in(number, known.live)

    # --- Harvest ------------------------------------------------------------------------------------------------

    def _harvest(self, files: pa.Table) -> list[Part]:
        if not files.num_rows:
            return []
        subject = self._subject
        source = subject.source
        arguments = storage_to_arguments(source.storage)
        arguments["index"] = storage_to_arguments(self._store.storage)
        arguments |= harvest_arguments(
            source.schema,
            source.partition_columns,
            source.field_names,
            subject.spec,
            with_schemas=has_schemas_of_files(source.format),
        )
        pieces = list(_pieces(files, reads_values=bool(subject.spec.valued)))
        items = [Item.from_table(piece.combine_chunks(), _bytes_to_read(piece, subject.spec)) for piece in pieces]
        total_bytes = pc.sum(files["size"]).as_py() or 0
        done = size = most = 0

        def tell(files_done: int, bytes_done: int) -> None:
            nonlocal most
            # What was guessed while a job ran is not taken back when its results come one by one.
            if files_done >= most:
                most = files_done
                self._progress(Progress(files_done, files.num_rows, bytes_done, total_bytes))

        def guess(share: float) -> None:
            tell(int(share * files.num_rows), int(share * total_bytes))

        what = f"index {format_count(files.num_rows, 'file')} of {source.name}"
        job = Job(FUNCTION, arguments, RESULT, what, progress=guess)
        tell(0, 0)
        found: list[Part] = []
        for number, batch in self._engine.run(job, items):
            (said,) = batch.to_pylist()
            self._harvested += said["files"]
            self._left_out += said["left_out"]
            self._because = self._because or said["left_out_because"]
            if said["name"] is not None:
                found.append(Part(said["name"], said["size"], said["files"], said["footer_hash"]))
                self._made.add(said["name"])
            done += pieces[number].num_rows
            size += pc.sum(pieces[number]["size"]).as_py() or 0
            tell(done, size)
        return found

    # --- Making it current --------------------------------------------------------------------------------------

    def _make_current(self, entries: Entries, rows: Rows, parts: Sequence[Part]) -> Current:
        taken = pa.array(rows)
        source = self._subject.source
        return Current(
            build=uuid4().hex,
            built_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            table_format=source.format,
            table_version=source.version,
            asked=self._subject.asked,
            spec=self._subject.spec,
            parts=tuple(parts),
            files=len(rows),
            rows=pc.sum(entries.column(ROW_COUNT.name).take(taken)).as_py() or 0,
            total_bytes=pc.sum(entries.column("size").take(taken)).as_py() or 0,
            sample=self._sample(),
        )

    def _sample(self) -> Sample | None:
        sample, storage = self._subject.sample, self._subject.source.storage
        if sample is None or sample.modified_ns is None:
            return None
        try:
            footer, _ = load_footer(storage, sample.path, sample.size, sample.modified_ns)
        except (CorruptFile, MissingFile):
            return None
        path = relative_paths(pa.array([sample.path]), storage.root)[0].as_py()
        own = FileEntry(path, sample.size, sample.modified_ns)
        return Sample(own, footer.schema.arrow)

    def _clean(self, before: Current | None, current: Current, known: _Known) -> None:
        """Remove parts that nobody needs. Those of the index before stay, for whoever is reading them."""
        needed = {part.name for part in current.parts}
        needed |= set() if before is None else {part.name for part in before.parts}
        others = self._store.read_readable()
        needed |= set() if others is None else {part.name for part in others.parts}
        self._store.remove(sorted((self._made | {part.name for part in known.leftovers}) - needed))
        self._store.remove_old(needed)

    def _is_whole(self) -> bool:
        """Whether the index in force, ours or that of another build, has all its parts.

        Whoever publishes looks afterwards whether its parts are there, and whoever removes looks afterwards whether it
        took one that has become current: of two builds at a time, the later one sees what the earlier one did.
        """
        current = self._store.read_readable()
        return current is None or self._store.has_parts(current.parts)


_UNSETTLED = "written a moment ago, or at a time that the file system does not tell: build the index again"


def _files(source: TableSource) -> pa.Table:
    return source.list_files(Predicate(TRUE), ()).files.select(["path", "size", "modified_ns"])


def _is_recent(files: pa.Table, seconds: float) -> pa.Array:
    """Which files were written within the last moments."""
    now = time.time_ns()
    moment = int(seconds * 1e9)
    times = files["modified_ns"].combine_chunks()
    return pc.fill_null(pc.and_(pc.greater(times, now - moment), pc.less(times, now + moment)), False)


def _pieces(files: pa.Table, *, reads_values: bool) -> Iterator[pa.Table]:
    """The files in pieces of work, in their order."""
    most = min(MOST_FILES_OF_AN_ITEM, max(FEWEST_FILES_OF_AN_ITEM, -(-files.num_rows // ITEMS)))
    sizes = files["size"].to_pylist() if reads_values else [0] * files.num_rows
    start = size = 0
    for number, own in enumerate(sizes):
        if number > start and (number - start == most or size + own > MOST_BYTES_OF_AN_ITEM):
            yield files.slice(start, number - start)
            start, size = number, 0
        size += own
    yield files.slice(start)


def _bytes_to_read(files: pa.Table, spec: IndexSpec) -> int:
    if spec.valued:
        return int(pc.sum(files["size"]).as_py() or 0)
    return int(pc.sum(pc.min_element_wise(files["size"], FOOTER_BYTES)).as_py() or 0)


def _differ(one: Current, other: Current) -> bool:
    """Whether two indexes say something else, apart from when they were made."""

    def said(current: Current) -> Mapping[str, Any]:
        return {name: getattr(current, name) for name in _SAID}

    return said(one) != said(other)


_SAID = ("table_format", "table_version", "asked", "spec", "parts", "files", "rows", "total_bytes", "sample")

# --- Few large parts out of many small ones: to open a part costs as much as to read thousands of its entries ---------

FULL_FILES = 50_000
FULL_BYTES = 128 * 1024 * 1024
"""What a part has at most."""


def merge_parts(store: IndexStore, spec: IndexSpec, parts: Iterable[tuple[Part, Rows | None]]) -> list[Part]:
    """Parts with the entries that still count (None: all of them), the small ones written together.

    A part that is at least half full of such entries stays as it is.
    """
    large: list[Part] = []
    small: list[tuple[Part, Rows | None]] = []
    for part, rows in parts:
        live = part.files if rows is None else len(rows)
        is_full = max(live / FULL_FILES, part.size / FULL_BYTES) >= 0.5
        if is_full and 2 * live >= part.files:
            large.append(part)
        else:
            small.append((part, rows))
    if len(small) == 1 and _is_clean(*small[0]):
        return [*large, small[0][0]]
    return [*large, *(_write(store, spec, group) for group in _groups(small))]


def _is_clean(part: Part, rows: Rows | None) -> bool:
    return rows is None or 2 * len(rows) >= part.files


def _groups(parts: Sequence[tuple[Part, Rows | None]]) -> Iterator[list[tuple[Part, Rows | None]]]:
    group: list[tuple[Part, Rows | None]] = []
    files = size = 0
    for part, rows in parts:
        live = part.files if rows is None else len(rows)
        if group and (files + live > FULL_FILES or size + part.size > FULL_BYTES):
            yield group
            group, files, size = [], 0, 0
        group.append((part, rows))
        files, size = files + live, size + part.size
    if group:
        yield group


def _write(store: IndexStore, spec: IndexSpec, group: Sequence[tuple[Part, Rows | None]]) -> Part:
    schemas: dict[bytes, int] = {}
    tables = [_entries(store, part, rows, schemas) for part, rows in group]
    return store.write_part(pa.concat_tables(tables), list(schemas), spec)


def _entries(store: IndexStore, part: Part, rows: Rows | None, schemas: dict[bytes, int]) -> pa.Table:
    """The entries of a part that still count, with schemas numbered as in the part to come."""
    table = store.read_whole(part)
    if rows is not None and len(rows) < part.files:
        table = table.take(pa.array(rows))
    if SCHEMA in table.column_names:
        numbers = [schemas.setdefault(schema, len(schemas)) for schema in store.schemas_of(part)]
        renumbered = pa.array(np.array(numbers, np.int32)).take(pc.cast(table[SCHEMA].combine_chunks(), pa.int64()))
        table = table.set_column(table.column_names.index(SCHEMA), SCHEMA, renumbered)
    return table.replace_schema_metadata(None)
