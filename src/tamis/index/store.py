"""The folder of an index: parts written aside, one small file that makes them current, and the removal of the rest.

| name                     | what                                                                            |
|--------------------------|---------------------------------------------------------------------------------|
| `current.json`           | names the parts that count; see `tamis.index.store`                        |
| `part-<number>.tamis`    | entries of some data files, in Parquet; never written again once it is there    |
| `aside-<number>`         | a file on its way to one of the other names, or what a killed process left of it |

A local file gets its name in one step after it was written. Object stores show a file when it is whole. On other file
systems the small file is moved into its place, and where that takes two steps there is a moment without an index, which
costs time and no rows. What a machine without power left half on its disk does not have the checksums that it should,
and is taken for damaged.
"""

from __future__ import annotations

import json
import logging
import re
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from tamis.errors import CorruptFile, MissingFile, StorageError, TableNotFound, UnsupportedFeature, to_one_line
from tamis.formats.delta.checkpoint.checkpoint_rows import read_row_group
from tamis.index.finding import HIDDEN_FOLDER, INDEX_FOLDER
from tamis.index.spec import FORMAT, Asked, IndexSpec
from tamis.io.listing import FileEntry, list_directory
from tamis.io.open_files import OBJECT_STORES
from tamis.io.ranges import NEVER_CHANGES, RangedFile
from tamis.io.retries import with_retries
from tamis.io.storage import Storage
from tamis.parquet.footer.footer import Footer, load_footer

logger = logging.getLogger("tamis")

SPEC_KEY = b"tamis.index"
"""Where a part says which columns it describes, so that a later build can make use of it."""

SCHEMAS_KEY = b"tamis.index.schemas"
"""Where a part has the schemas of its files, each once; the column `schema` has their numbers."""

FILES_OF_A_ROW_GROUP = 4096
SCHEMA = "schema"
BLOOM = "bloom"
"""The kind of metadata that Bloom filters are, beside those of `tamis.skipping.metadata`."""

LARGEST_CURRENT = 64 * 1024 * 1024
OLD_SECONDS = 24 * 3600
"""What nobody refers to is removed once it is so old: until then it may belong to a build that is under way."""


class DamagedPart(CorruptFile):
    """A part of an index that cannot be read; its `name`."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


@dataclass(frozen=True, slots=True)
class IndexStore:
    """The folder of one index: `storage.root`."""

    storage: Storage

    @property
    def place(self) -> str:
        return self.storage.place(self.storage.root)

    def path(self, name: str) -> str:
        return f"{self.storage.root}/{name}"

    # --- Reading ------------------------------------------------------------------------------------------------

    def read_current(self) -> Current | None:
        """The index that is in force; None where there is none."""
        content = self._read_current_bytes()
        return None if content is None else Current.from_bytes(content, self.place)

    def read_readable(self) -> Current | None:
        """The index in force, if it can be read: a build makes good whatever is wrong with it."""
        try:
            return self.read_current()
        except (CorruptFile, UnsupportedFeature) as error:
            logger.warning("the index is built from the start: %s", error)
            return None

    def _read_current_bytes(self) -> bytes | None:
        try:
            with RangedFile(self.storage, self.path(CURRENT)) as file:
                if file.size > LARGEST_CURRENT:
                    raise CorruptFile(f"the index at '{self.place}' is damaged: {CURRENT} has {file.size} bytes")
                return bytes(file.read([(0, file.size)])[0].to_pybytes())
        except MissingFile:
            return None
        finally:
            # It is replaced by others, and an object store would be asked for the one that was opened.
            self.storage.open_files.clear()

    def open_part(self, part: Part) -> Footer:
        """The footer of a part, which must be the one that was written."""
        footer, _ = load_footer(self.storage, self.path(part.name), part.size, NEVER_CHANGES)
        if xxhash.xxh64_hexdigest(footer.content) != part.footer_hash or footer.metadata.num_rows != part.files:
            raise CorruptFile(f"'{self.storage.place(self.path(part.name))}' is not the part that the index names")
        return footer

    def read_part(
        self, part: Part, names: Collection[str], row_groups: Collection[int] | None = None
    ) -> Iterable[pa.RecordBatch]:
        """Some columns of a part, those that it has, in the order of its rows; a batch lies in one row group."""
        footer = self.open_part(part)
        columns = [(name,) for name in footer.schema.arrow.names if name in names]
        for row_group in range(footer.metadata.num_row_groups):
            if row_groups is None or row_group in row_groups:
                yield from read_row_group(
                    self.storage, self.path(part.name), part.size, footer, row_group, columns, None
                )

    def read_whole(self, part: Part) -> pa.Table:
        """All of a part; `DamagedPart` where that cannot be."""
        try:
            return pa.Table.from_batches(list(self.read_part(part, self.open_part(part).schema.arrow.names)))
        except CorruptFile as error:
            raise DamagedPart(str(error), part.name) from error

    def verify(self, part: Part) -> None:
        """`DamagedPart` where something of a part cannot be read."""
        try:
            names = self.open_part(part).schema.arrow.names
            for _ in self.read_part(part, names):
                pass
        except CorruptFile as error:
            raise DamagedPart(str(error), part.name) from error

    def spec_of(self, part: Part) -> IndexSpec:
        metadata = self.open_part(part).metadata.metadata or {}
        try:
            return IndexSpec.from_dict(json.loads(metadata[SPEC_KEY]))
        except (KeyError, ValueError) as error:
            raise CorruptFile(f"'{self.storage.place(self.path(part.name))}' is no part of an index") from error

    def schemas_of(self, part: Part) -> list[bytes]:
        """The distinct schemas of the files that a part describes, serialised."""
        metadata = self.open_part(part).metadata.metadata or {}
        try:
            return [b64decode(each) for each in json.loads(metadata[SCHEMAS_KEY])]
        except (KeyError, ValueError, TypeError) as error:
            raise CorruptFile(f"'{self.storage.place(self.path(part.name))}' is no part of an index") from error

    def leftover_parts(self, referred: Collection[str]) -> list[Part]:
        """Whole parts that no index names: those of builds that did not end, and those of builds under way."""
        found = []
        for file in self._files():
            name = _name(file.path)
            if PART_NAME.fullmatch(name) is None or name in referred:
                continue
            with suppress(CorruptFile, MissingFile):
                found.append(self._describe(name, file.size))
        return found

    def has_parts(self, parts: Iterable[Part]) -> bool:
        names = {_name(file.path): file.size for file in self._files()}
        return all(names.get(part.name) == part.size for part in parts)

    def _describe(self, name: str, size: int) -> Part:
        footer, _ = load_footer(self.storage, self.path(name), size, NEVER_CHANGES)
        return Part(name, size, footer.metadata.num_rows, xxhash.xxh64_hexdigest(footer.content))

    def _files(self) -> list[FileEntry]:
        try:
            listing = list_directory(self.storage, self.storage.root)
        except (TableNotFound, MissingFile):
            return []
        columns = (listing.file_paths, listing.file_sizes, listing.file_modified_ns)
        return [FileEntry(*each) for each in zip(*(column.to_pylist() for column in columns), strict=True)]

    # --- Writing ------------------------------------------------------------------------------------------------

    def write_part(self, entries: pa.Table, schemas: Sequence[bytes], spec: IndexSpec) -> Part:
        """Write entries under a new name, which nobody looks at before an index refers to it."""
        sink = pa.BufferOutputStream()
        metadata = {
            SPEC_KEY: json.dumps(spec.to_dict()).encode(),
            SCHEMAS_KEY: json.dumps([b64encode(schema).decode() for schema in schemas]).encode(),
        }
        filters = [name for name in entries.column_names if name.startswith(f"{BLOOM}:")]
        pq.write_table(
            entries.replace_schema_metadata(metadata),
            sink,
            row_group_size=FILES_OF_A_ROW_GROUP,
            # The bits of a good filter look random.
            compression={name: "none" if name in filters else "zstd" for name in _leaf_names(entries.schema)},
            use_dictionary=[SCHEMA],
            write_statistics=False,
            write_page_checksum=True,
        )
        content = sink.getvalue()
        name = f"part-{uuid4().hex}{PART_SUFFIX}"
        self._write(name, content)
        return self._describe(name, content.size)

    def publish(self, current: Current) -> None:
        """Make an index current, in one step."""
        self._write(CURRENT, pa.py_buffer(current.to_bytes()))

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(FileNotFoundError):
                self._do(partial(self.storage.filesystem.delete_file, self.path(name)), "remove", name)

    def remove_old(self, referred: Collection[str]) -> None:
        """Remove what nobody refers to and what is too old to belong to a build that is under way."""
        limit = (time.time() - OLD_SECONDS) * 1e9
        self.remove(
            _name(file.path)
            for file in self._files()
            if _is_ours(_name(file.path))
            and _name(file.path) not in referred
            and file.modified_ns is not None
            and file.modified_ns < limit
        )

    def drop(self) -> bool:
        """Remove the index: first the file that makes it current, then the rest. Whether there was anything."""
        names = [_name(file.path) for file in self._files()]
        ours = [name for name in names if name == CURRENT or _is_ours(name)]
        self.remove(sorted(ours))
        if ours and set(ours) == set(names) and self.storage.is_local:
            self._remove_folders(Path(self.storage.root))
        return bool(ours)

    def _remove_folders(self, folder: Path) -> None:
        """Remove the folders that a build made, unless others have put something there."""
        around = [folder, folder.parent, folder.parent.parent]
        names = [each.name for each in around]
        if names[0] != INDEX_FOLDER or HIDDEN_FOLDER not in names:
            return
        for each in around[: names.index(HIDDEN_FOLDER) + 1]:
            if any(each.iterdir()):
                return
            each.rmdir()

    def _write(self, name: str, content: pa.Buffer) -> None:
        path, filesystem = self.path(name), self.storage.filesystem
        if self.storage.is_local:
            self._do(partial(_write_locally, self.storage.root, path, content), "write", name)
            return
        if filesystem.type_name in OBJECT_STORES:
            self._do(partial(_write_through, filesystem, path, content), "write", name)
            return
        aside = self.path(f"aside-{uuid4().hex}")

        def write() -> None:
            filesystem.create_dir(self.storage.root, recursive=True)
            _write_through(filesystem, aside, content)
            try:
                filesystem.move(aside, path)
            except FileExistsError:
                filesystem.delete_file(path)
                filesystem.move(aside, path)

        self._do(write, "write", name)

    def _do(self, action: Callable[[], None], task: str, name: str) -> None:
        place = self.storage.place(self.path(name))

        def attempt() -> None:
            try:
                action()
            except PermissionError as error:
                if task != "write":
                    raise
                raise StorageError(
                    f"no permission to write '{place}'. Ask its owner, or put the index elsewhere with location=… "
                    "(--location …)"
                ) from error

        try:
            with_retries(attempt, self.storage.retries, task, place)
        except NotADirectoryError as error:
            raise StorageError(f"cannot {task} '{place}': something on the way to it is a file") from error


def _write_locally(folder: str, path: str, content: pa.Buffer) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    aside = Path(folder) / f"aside-{uuid4().hex}"
    try:
        with aside.open("xb") as file:
            file.write(memoryview(content))
        aside.replace(path)
    finally:
        # It is there no more where it took its place.
        aside.unlink(missing_ok=True)


def _write_through(filesystem: pa.fs.FileSystem, path: str, content: pa.Buffer) -> None:
    with filesystem.open_output_stream(path) as stream:
        stream.write(content)


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _is_ours(name: str) -> bool:
    return PART_NAME.fullmatch(name) is not None or name.startswith("aside-")


def _leaf_names(schema: pa.Schema) -> list[str]:
    """The columns as Parquet calls them, lists by their elements."""
    return [f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name for field in schema]


# --- The small file that makes an index current: what it is of, and of which parts it consists ------------------------
#
# Everything else of an index is written aside, under names that were never used before, and is there for nobody until
# this file names it. It is replaced in one step, so that whoever was killed while building left the old one in force.

CURRENT = "current.json"

PART_SUFFIX = ".tamis"
"""Parts are Parquet files, and have another suffix so that no `**/*.parquet` takes them for data."""

PART_NAME = re.compile(rf"part-[0-9a-f]{{32}}\{PART_SUFFIX}")


@dataclass(frozen=True, slots=True)
class Part:
    """A Parquet file of entries, a row for each data file."""

    name: str
    size: int
    files: int
    footer_hash: str
    """Of the bytes of its footer: another file of the same length does not pass for it."""

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "size": self.size, "files": self.files, "footer_hash": self.footer_hash}

    @staticmethod
    def from_dict(given: Mapping[str, Any]) -> Part:
        name = str(given["name"])
        if PART_NAME.fullmatch(name) is None:
            raise ValueError(f"no part is called {name!r}")
        return Part(name, int(given["size"]), int(given["files"]), str(given["footer_hash"]))


@dataclass(frozen=True, slots=True)
class Sample:
    """The schema of one file, as its footer has it: the one from which a folder takes its columns."""

    file: FileEntry
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Current:
    """An index, as `current.json` describes it."""

    build: str
    built_at: str
    """In UTC, as in 2024-03-01T12:00:00Z."""
    table_format: str
    table_version: int | None
    asked: Asked
    spec: IndexSpec
    parts: tuple[Part, ...]
    files: int
    """How many data files it describes, as of the version or the moment at which it was built."""
    rows: int
    total_bytes: int
    sample: Sample | None = None

    def to_bytes(self) -> bytes:
        content = {
            "format": FORMAT,
            "build": self.build,
            "built_at": self.built_at,
            "table": {"format": self.table_format, "version": self.table_version},
            "asked": self.asked.to_dict(),
            "spec": self.spec.to_dict(),
            "parts": [part.to_dict() for part in self.parts],
            "files": self.files,
            "rows": self.rows,
            "bytes": self.total_bytes,
            "sample": None if self.sample is None else _sample_to_dict(self.sample),
        }
        return json.dumps(content | {"checksum": _checksum(content)}, indent=1).encode()

    @staticmethod
    def from_bytes(text: bytes, place: str) -> Current:
        """Read what `to_bytes` wrote; anything else is a CorruptFile, or an UnsupportedFeature where it is newer."""
        try:
            content = json.loads(text)
            written = content.pop("checksum")
            if content["format"] != FORMAT:
                raise UnsupportedFeature(
                    f"the index at '{place}' has format {content['format']!r}, this version of Tamis reads {FORMAT}: "
                    "build it again"
                )
            _check(written, content)
            table = content["table"]
            return Current(
                content["build"],
                content["built_at"],
                table["format"],
                table["version"],
                Asked.from_dict(content["asked"]),
                IndexSpec.from_dict(content["spec"]),
                tuple(Part.from_dict(part) for part in content["parts"]),
                content["files"],
                content["rows"],
                content["bytes"],
                None if content["sample"] is None else _sample_from_dict(content["sample"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, pa.ArrowException, OSError) as error:
            raise CorruptFile(f"the index at '{place}' is damaged ({to_one_line(error)}): build it again") from error


def _check(written: object, content: Mapping[str, Any]) -> None:
    if written != _checksum(content):
        raise ValueError("its checksum is wrong")


def _checksum(content: Mapping[str, Any]) -> str:
    return xxhash.xxh64_hexdigest(json.dumps(content, sort_keys=True).encode())


def _sample_to_dict(sample: Sample) -> dict[str, Any]:
    return {
        "path": sample.file.path,
        "size": sample.file.size,
        "modified_ns": sample.file.modified_ns,
        "schema": b64encode(sample.schema.serialize().to_pybytes()).decode(),
    }


def _sample_from_dict(given: Mapping[str, Any]) -> Sample:
    schema = pa.ipc.read_schema(pa.py_buffer(b64decode(given["schema"])))
    return Sample(FileEntry(given["path"], given["size"], given["modified_ns"]), schema)
