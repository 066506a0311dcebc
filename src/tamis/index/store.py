"""The folder of an index: immutable parts, one small file that makes them current, and the removal of old files.

| name                     | content                                                                         |
|--------------------------|---------------------------------------------------------------------------------|
| `current.json`           | the names of the current parts: see `Current`                                   |
| `part-<number>.tamis`    | the entries of some data files, in Parquet; never rewritten                     |
| `aside-<number>`         | a temporary file, renamed when complete, or left by a killed process            |

A local file is renamed atomically after it was written. Object stores show only complete files. On other file systems
the small file is moved, and if that takes two steps there is briefly no index, which costs time but no rows. A file
that was truncated by a power failure has a wrong checksum, and is treated as damaged.
"""

from __future__ import annotations

import json
import logging
import re
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from tamis.errors import CorruptFile, MissingFile, StorageError, TableNotFound, UnsupportedFeature, to_one_line
from tamis.expr.wire.expression_json import schema_from_text, schema_to_text
from tamis.index.finding import HIDDEN_FOLDER, INDEX_FOLDER
from tamis.index.spec import FORMAT, IndexRequest, IndexSpec
from tamis.io.listing import FileEntry, list_directory
from tamis.io.ranges import IMMUTABLE, RangedFile
from tamis.io.retries import run_with_retries
from tamis.io.storage import OBJECT_STORES, Storage
from tamis.parquet.footer.footer import Footer, load_footer
from tamis.parquet.reading.row_group_reader import read_row_group

logger = logging.getLogger("tamis")

Parsed = TypeVar("Parsed")

SPEC_KEY = b"tamis.index"
"""The key of a part's metadata with its specification, so that a later build can reuse it."""

SCHEMAS_KEY = b"tamis.index.schemas"
"""The key of a part's metadata with the distinct schemas of its files; the column `schema` has their numbers."""

FILES_PER_ROW_GROUP = 4096
SCHEMA = "schema"
BLOOM = "bloom"
"""The kind of metadata of Bloom filters, besides those of `tamis.skipping.metadata`."""

MAX_CURRENT_BYTES = 64 * 1024 * 1024
MIN_GARBAGE_AGE_SECONDS = 24 * 3600
"""The age at which unreferenced files are removed: until then they may belong to a running build."""


class DamagedPart(CorruptFile):
    """The error for an unreadable part of an index, with its `name`."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


@dataclass(frozen=True, slots=True)
class IndexStore:
    """Reads and writes the folder of one index, `storage.root`."""

    storage: Storage

    @property
    def location(self) -> str:
        return self.storage.format_path(self.storage.root)

    def join_path(self, name: str) -> str:
        return f"{self.storage.root}/{name}"

    # --- Reading ------------------------------------------------------------------------------------------------

    def read_current(self) -> Current | None:
        """Return the current index; None if there is none."""
        content = self._read_current_bytes()
        return None if content is None else Current.from_bytes(content, self.location)

    def read_if_usable(self) -> Current | None:
        """Return the current index; None if there is none, or if it is unreadable, which a build repairs."""
        try:
            return self.read_current()
        except (CorruptFile, UnsupportedFeature) as error:
            logger.warning("the index is rebuilt: %s", error)
            return None

    def _read_current_bytes(self) -> bytes | None:
        try:
            with RangedFile(self.storage, self.join_path(CURRENT)) as file:
                if file.size > MAX_CURRENT_BYTES:
                    raise CorruptFile(
                        f"the index at '{self.location}' is damaged: {CURRENT} has {file.size} bytes. Build it again"
                    )
                return bytes(file.read([(0, file.size)])[0].to_pybytes())
        except MissingFile:
            return None
        finally:
            # The file may be replaced, and an open file of an object store keeps the old size.
            self.storage.open_files.clear()

    def open_part(self, part: Part) -> Footer:
        """Return the footer of a part, after checking that it is the one that was written."""
        footer, _ = load_footer(self.storage, self.join_path(part.name), part.size, IMMUTABLE)
        if xxhash.xxh64_hexdigest(footer.content) != part.footer_hash or footer.metadata.num_rows != part.files:
            location = self.storage.format_path(self.join_path(part.name))
            raise CorruptFile(f"'{location}' is not the part that the index refers to: build the index again")
        return footer

    def read_part(
        self, part: Part, names: Collection[str], row_groups: Collection[int] | None = None
    ) -> Iterable[pa.RecordBatch]:
        """Yield some columns of a part, those that it has, in row order; a batch is of one row group."""
        footer = self.open_part(part)
        columns = [(name,) for name in footer.schema.arrow.names if name in names]
        for row_group in range(footer.metadata.num_row_groups):
            if row_groups is None or row_group in row_groups:
                yield from read_row_group(
                    self.storage, self.join_path(part.name), part.size, footer, row_group, columns, None
                )

    def read_whole(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Yield all of a part; raise `DamagedPart` if it is unreadable."""
        try:
            yield from self.read_part(part, self.open_part(part).schema.arrow.names)
        except CorruptFile as error:
            raise DamagedPart(str(error), part.name) from error

    def read_fingerprint(self, part: Part) -> str | None:
        """Return the fingerprint of a part's specification; None if it is unreadable."""
        try:
            return self._parse_metadata(part, SPEC_KEY, IndexSpec.from_dict).fingerprint
        except (CorruptFile, MissingFile):
            return None

    def read_schemas(self, part: Part) -> list[bytes]:
        """Return the distinct schemas of the files of a part, serialised."""
        return self._parse_metadata(part, SCHEMAS_KEY, lambda texts: [b64decode(each) for each in texts])

    def _parse_metadata(self, part: Part, key: bytes, parse: Callable[[Any], Parsed]) -> Parsed:
        metadata = self.open_part(part).metadata.metadata or {}
        try:
            return parse(json.loads(metadata[key]))
        except (KeyError, ValueError, TypeError, pa.ArrowException, OSError) as error:
            raise CorruptFile(
                f"'{self.storage.format_path(self.join_path(part.name))}' is not a part of an index: build it again"
            ) from error

    def find_unreferenced_parts(self, referred: Collection[str]) -> list[Part]:
        """Return complete parts that are not referenced: those of interrupted and of running builds."""
        found = []
        for file in self._list_files():
            name = _get_name(file.path)
            if PART_NAME.fullmatch(name) is None or name in referred:
                continue
            with suppress(CorruptFile, MissingFile):
                found.append(self._describe(name, file.size))
        return found

    def has_parts(self, parts: Iterable[Part]) -> bool:
        names = {_get_name(file.path): file.size for file in self._list_files()}
        return all(names.get(part.name) == part.size for part in parts)

    def _describe(self, name: str, size: int) -> Part:
        footer, _ = load_footer(self.storage, self.join_path(name), size, IMMUTABLE)
        return Part(name, size, footer.metadata.num_rows, xxhash.xxh64_hexdigest(footer.content))

    def _list_files(self) -> list[FileEntry]:
        try:
            return list_directory(self.storage, self.storage.root).list_entries()
        except (TableNotFound, MissingFile):
            return []

    # --- Writing ------------------------------------------------------------------------------------------------

    def write_part(self, entries: pa.Table, schemas: Sequence[bytes], spec: IndexSpec) -> Part:
        """Write entries as a new part, which is not read before an index refers to it."""
        sink = pa.BufferOutputStream()
        metadata = {
            SPEC_KEY: json.dumps(spec.to_dict()).encode(),
            SCHEMAS_KEY: json.dumps([b64encode(schema).decode() for schema in schemas]).encode(),
        }
        # The names of the leaf columns in Parquet.
        leaves = [f"{each.name}.list.element" if pa.types.is_list(each.type) else each.name for each in entries.schema]
        filters = [name for name in entries.column_names if name.startswith(f"{BLOOM}:")]
        pq.write_table(
            entries.replace_schema_metadata(metadata),
            sink,
            row_group_size=FILES_PER_ROW_GROUP,
            # The bits of a good filter are random, so they do not compress.
            compression={name: "none" if name in filters else "zstd" for name in leaves},
            use_dictionary=[SCHEMA],
            write_statistics=False,
            write_page_checksum=True,
        )
        content = sink.getvalue()
        name = f"part-{uuid4().hex}{PART_SUFFIX}"
        self._write(name, content)
        return self._describe(name, content.size)

    def publish(self, current: Current) -> None:
        """Make an index current, atomically."""
        self._write(CURRENT, pa.py_buffer(current.to_bytes()))

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(FileNotFoundError):
                self._run_with_retries(
                    partial(self.storage.filesystem.delete_file, self.join_path(name)), "remove", name
                )

    def remove_old(self, referred: Collection[str]) -> None:
        """Remove unreferenced files that are too old to belong to a running build."""
        limit = (time.time() - MIN_GARBAGE_AGE_SECONDS) * 1e9
        self.remove(
            _get_name(file.path)
            for file in self._list_files()
            if _is_ours(_get_name(file.path))
            and _get_name(file.path) not in referred
            and file.modified_ns is not None
            and file.modified_ns < limit
        )

    def drop(self) -> bool:
        """Remove the index, `current.json` first, and return whether there was one."""
        names = [_get_name(file.path) for file in self._list_files()]
        ours = [name for name in names if name == CURRENT or _is_ours(name)]
        self.remove(sorted(ours))
        if ours and set(ours) == set(names) and self.storage.is_local:
            self._remove_folders(Path(self.storage.root))
        return bool(ours)

    def _remove_folders(self, folder: Path) -> None:
        """Remove the folders that a build made, unless they have other files."""
        around = [folder, folder.parent, folder.parent.parent]
        names = [each.name for each in around]
        if names[0] != INDEX_FOLDER or HIDDEN_FOLDER not in names:
            return
        for each in around[: names.index(HIDDEN_FOLDER) + 1]:
            if any(each.iterdir()):
                return
            each.rmdir()

    def _write(self, name: str, content: pa.Buffer) -> None:
        path, filesystem = self.join_path(name), self.storage.filesystem
        if self.storage.is_local:
            self._run_with_retries(partial(_write_local_file, self.storage.root, path, content), "write", name)
            return
        if filesystem.type_name in OBJECT_STORES:
            self._run_with_retries(partial(_write_stream, filesystem, path, content), "write", name)
            return
        aside = self.join_path(f"aside-{uuid4().hex}")

        def write() -> None:
            filesystem.create_dir(self.storage.root, recursive=True)
            _write_stream(filesystem, aside, content)
            try:
                filesystem.move(aside, path)
            except FileExistsError:
                filesystem.delete_file(path)
                filesystem.move(aside, path)

        self._run_with_retries(write, "write", name)

    def _run_with_retries(self, action: Callable[[], None], task: str, name: str) -> None:
        location = self.storage.format_path(self.join_path(name))

        def attempt() -> None:
            try:
                action()
            except PermissionError as error:
                if task != "write":
                    raise
                raise StorageError(
                    f"no permission to write '{location}'. Ask its owner, or put the index elsewhere with location=… "
                    "(--location …)"
                ) from error

        try:
            run_with_retries(attempt, self.storage.retries, task, location)
        except NotADirectoryError as error:
            raise StorageError(
                f"cannot {task} '{location}': one of its parent folders is a file. Choose another location"
            ) from error


def _write_local_file(folder: str, path: str, content: pa.Buffer) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    aside = Path(folder) / f"aside-{uuid4().hex}"
    try:
        with aside.open("xb") as file:
            file.write(memoryview(content))
        aside.replace(path)
    finally:
        # It is gone if it was renamed.
        aside.unlink(missing_ok=True)


def _write_stream(filesystem: pa.fs.FileSystem, path: str, content: pa.Buffer) -> None:
    with filesystem.open_output_stream(path) as stream:
        stream.write(content)


def _get_name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _is_ours(name: str) -> bool:
    return PART_NAME.fullmatch(name) is not None or name.startswith("aside-")


# --- current.json -----------------------------------------------------------------------------------------------------
#
# All other files of an index have new, unique names, and are not read until this file refers to them. It is replaced
# atomically, so that a killed build leaves the previous index current.

CURRENT = "current.json"

PART_SUFFIX = ".tamis"
"""The suffix of parts. They are Parquet files, but `**/*.parquet` must not match them."""

PART_NAME = re.compile(rf"part-[0-9a-f]{{32}}\{PART_SUFFIX}")


@dataclass(frozen=True, slots=True)
class Part:
    """A Parquet file of entries, one row for each data file."""

    name: str
    size: int
    files: int
    footer_hash: str
    """The hash of its footer, which detects another file of the same size."""

    @staticmethod
    def from_dict(given: Mapping[str, Any]) -> Part:
        name = str(given["name"])
        if PART_NAME.fullmatch(name) is None:
            raise ValueError(f"invalid part name {name!r}")
        return Part(name, int(given["size"]), int(given["files"]), str(given["footer_hash"]))


@dataclass(frozen=True, slots=True)
class Sample:
    """The schema in the footer of one file: the one from which a folder takes its columns."""

    file: FileEntry
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Current:
    """An index, as `current.json` describes it."""

    build: str
    built_at: str
    """The time of the build in UTC, as in 2024-03-01T12:00:00Z."""
    table_format: str
    table_version: int | None
    request: IndexRequest
    spec: IndexSpec
    parts: tuple[Part, ...]
    files: int
    """The number of data files in the index when it was built."""
    rows: int
    total_bytes: int
    sample: Sample | None = None

    def to_bytes(self) -> bytes:
        content = {
            "format": FORMAT,
            "build": self.build,
            "built_at": self.built_at,
            "table": {"format": self.table_format, "version": self.table_version},
            "asked": asdict(self.request),
            "spec": self.spec.to_dict(),
            "parts": [asdict(part) for part in self.parts],
            "files": self.files,
            "rows": self.rows,
            "bytes": self.total_bytes,
            "sample": self.sample and {**asdict(self.sample.file), "schema": schema_to_text(self.sample.schema)},
        }
        return json.dumps(content | {"checksum": _compute_checksum(content)}, indent=1).encode()

    @staticmethod
    def from_bytes(text: bytes, location: str) -> Current:
        """Parse the result of `to_bytes`; raise CorruptFile if it is invalid, UnsupportedFeature if it is newer."""
        try:
            content = json.loads(text)
            written = content.pop("checksum")
            if content["format"] != FORMAT:
                raise UnsupportedFeature(
                    f"the index at '{location}' has format {content['format']!r}, this version of Tamis reads "
                    f"{FORMAT}: build it again"
                )
            if written != _compute_checksum(content):
                raise CorruptFile(f"the index at '{location}' is damaged (wrong checksum): build it again")
            table, sample = content["table"], content["sample"]
            return Current(
                content["build"],
                content["built_at"],
                table["format"],
                table["version"],
                IndexRequest.from_dict(content["asked"]),
                IndexSpec.from_dict(content["spec"]),
                tuple(Part.from_dict(part) for part in content["parts"]),
                content["files"],
                content["rows"],
                content["bytes"],
                None
                if sample is None
                else Sample(
                    FileEntry(sample["path"], sample["size"], sample["modified_ns"]), schema_from_text(sample["schema"])
                ),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, pa.ArrowException, OSError) as error:
            raise CorruptFile(f"the index at '{location}' is damaged ({to_one_line(error)}): build it again") from error


def _compute_checksum(content: Mapping[str, Any]) -> str:
    return xxhash.xxh64_hexdigest(json.dumps(content, sort_keys=True).encode())
