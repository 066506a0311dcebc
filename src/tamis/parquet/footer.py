"""Footers of Parquet files: few requests to read one, and none to read it again.

A footer is at the end of its file, behind it four bytes with its length and four of magic. One read of the last
64 KiB holds most footers whole; for a larger one exactly the missing bytes are read. Another read of a local file
costs nothing to speak of, so there the first one is a quarter of that, and what is not needed is not read.

What comes back is pyarrow's `FileMetaData`, safe to use: see `tamis.parquet.vetting`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from tamis.errors import CorruptFile, UnsupportedFeature, one_line
from tamis.io.ranges import RangedFile, is_never_changed
from tamis.io.storage import Storage
from tamis.parquet.arrow_reader import open_reader
from tamis.parquet.field_names import FieldNames
from tamis.parquet.leaves import FileSchema, file_schema
from tamis.parquet.vetting import RowGroupPlaces, vet_footer

TAIL_LENGTH = 64 * 1024
LOCAL_TAIL_LENGTH = 16 * 1024
"""How much of the end of a file is read first."""

NAMES_OF_FILES = (".parquet", ".parq", ".pq")

MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
_TRAILER = 8  # the length of the footer, then the magic
_SHORTEST_FILE = len(MAGIC) + _TRAILER


WHOLE_FILE = 32 * 1024
"""A file of at most so many bytes comes whole with its footer, and is handed on so that nobody reads it again."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Footer:
    """The footer of one file, and what was worked out from it so far. Any number of threads may use it."""

    content: bytes
    """As it is in the file, without length and magic."""
    metadata: pq.FileMetaData
    schema: FileSchema
    names: FieldNames | None = None
    """How the table calls the columns of the file, where the schema is in its words."""
    places: RowGroupPlaces | None = field(default=None, repr=False)
    _kept: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    @property
    def serialized_size(self) -> int:
        return int(self.metadata.serialized_size)

    def renamed(self, names: FieldNames) -> Footer:
        """The same footer with a schema in the words of a table."""
        return self.keep(
            ("renamed", names), lambda: replace(self, schema=names.renamed(self.schema), names=names, _kept={})
        )

    def keep(self, key: Hashable, work_out: Callable[[], T]) -> T:
        """What `work_out` returns, worked out once. Meant for what is smaller than the footer itself, never None."""
        found: T | None = self._kept.get(key)
        if found is None:
            # Two threads may both work it out: they find the same.
            found = self._kept[key] = work_out()
        return found


def read_footer(storage: Storage, path: str, size: int, modified_ns: int | None) -> pq.FileMetaData:
    """The metadata of a file, from memory where a file of this size and time was read before.

    A file whose time of change is not known (None) is read each time.
    """
    return load_footer(storage, path, size, modified_ns)[0].metadata


def load_footer(
    storage: Storage, path: str, size: int, modified_ns: int | None, names: FieldNames | None = None
) -> tuple[Footer, pa.Buffer | None]:
    """The footer of a file, as `read_footer` finds it, and the whole file where it is small and had to be read.

    With `names` its schema is in the words of a table.
    """
    # What is in memory may have been read for a caller who allowed it.
    storage.check_links(path)
    footer, content = _load(storage, path, size, modified_ns)
    if names is None:
        return footer, content
    names.check(footer.schema, storage.place(path))
    return footer.renamed(names), content


def _load(storage: Storage, path: str, size: int, modified_ns: int | None) -> tuple[Footer, pa.Buffer | None]:
    key = (storage.filesystem.type_name, path, size, modified_ns)
    footer = FOOTERS.get(key, storage.filesystem) if modified_ns is not None else None
    if footer is not None:
        return footer, None
    content, tail = _read_footer_bytes(storage, path, size, modified_ns)
    footer = footer_from_bytes(content, storage.place(path))
    if modified_ns is not None:
        FOOTERS.put(key, storage.filesystem, footer)
    return footer, tail if size <= WHOLE_FILE else None


def _read_footer_bytes(storage: Storage, path: str, size: int, modified_ns: int | None) -> tuple[bytes, pa.Buffer]:
    """The footer, and the end of the file with which it came."""
    place = storage.place(path)
    # Whether the file is the one that was listed matters to those who read more of it than this.
    with RangedFile(storage, path, size, modified_ns if is_never_changed(modified_ns) else None) as file:
        _check_size(size, place)
        is_short = storage.is_local and size > WHOLE_FILE
        tail = file.read_tail(LOCAL_TAIL_LENGTH if is_short else TAIL_LENGTH)
        length = _footer_length(tail[-_TRAILER:].to_pybytes(), size, place)
        missing = length + _TRAILER - tail.size
        if missing > 0:
            before = file.read([(size - length - _TRAILER, missing)])[0]
            return before.to_pybytes() + tail[:-_TRAILER].to_pybytes(), tail
        return tail[-_TRAILER - length : -_TRAILER].to_pybytes(), tail


def about_empty_file(place: str) -> str:
    return (
        f"the file '{place}' is empty: it has 0 bytes, and a Parquet file without rows has a footer. "
        "Its writer did not finish: write it again"
    )


def _way_out(place: str) -> str:
    if place.lower().endswith(NAMES_OF_FILES):
        return "If its writer did not finish, write it again"
    return "If it is no data of a table, a name that starts with _ or . hides it"


def _check_size(size: int, place: str) -> None:
    if not size:
        raise CorruptFile(about_empty_file(place))
    if size < _SHORTEST_FILE:
        raise CorruptFile(
            f"'{place}' is no Parquet file: it has {size} bytes, the shortest has {_SHORTEST_FILE}. {_way_out(place)}"
        )


def _footer_length(trailer: bytes, size: int, place: str) -> int:
    magic = trailer[4:]
    if magic == ENCRYPTED_MAGIC:
        raise UnsupportedFeature(f"'{place}' has an encrypted footer, which Tamis cannot read; decrypt the file first")
    if magic != MAGIC:
        raise CorruptFile(f"'{place}' is no Parquet file, or is cut off: it does not end in PAR1. {_way_out(place)}")
    length = int.from_bytes(trailer[:4], "little")
    if not 0 < length <= size - _SHORTEST_FILE:
        raise CorruptFile(f"'{place}' is damaged: its footer would have {length} bytes, in a file of {size}")
    return length


def parse_footer(footer: bytes, place: str) -> pq.FileMetaData:
    """The metadata in the bytes of a footer, without length and magic; `place` names the file in messages."""
    return footer_from_bytes(footer, place).metadata


def footer_from_bytes(content: bytes, place: str) -> Footer:
    """The footer in these bytes, without length and magic; `place` names the file in messages."""
    metadata = _parse(content, place)
    schema = file_schema(metadata, place)
    vetted, places = vet_footer(content, schema.types, f"'{place}'")
    metadata = metadata if vetted is content else _parse(vetted, place)
    # One column of each row group is enough to see whether a number of rows is wrong; others are checked when read.
    leaf = next((number for number, each in enumerate(schema.types) if not each.repetition_level), 0)
    for number in range(metadata.num_row_groups if schema.types else 0):
        check_values(metadata, schema, number, leaf, place)
    return Footer(content, metadata, schema, places=places)


def check_values(metadata: pq.FileMetaData, schema: FileSchema, row_group: int, leaf: int, place: str) -> None:
    """Raise where a column has fewer values than its row group has rows, or more and no lists."""
    group = metadata.row_group(row_group)
    rows, values = group.num_rows, group.column(leaf).num_values
    if values == rows or (values > rows and schema.types[leaf].repetition_level):
        return
    name = schema.parquet.column(leaf).path
    raise CorruptFile(
        f"the footer of '{place}' gives row group {row_group} {rows:,} rows, and its column {name!r} "
        f"{values:,} values; write the file again"
    )


def _parse(footer: bytes, place: str) -> pq.FileMetaData:
    try:
        return _read_metadata(footer)
    except NotImplementedError as error:
        wide = _wide_integers(footer) if "more than 64 bits" in str(error) else []
        if not wide:
            raise UnsupportedFeature(f"'{place}' cannot be read: {one_line(error)}") from error
        names, casts = " and ".join(map(repr, wide)), ", ".join(f"{name!r}: polars.Decimal(38, 0)" for name in wide)
        raise UnsupportedFeature(
            f"'{place}' cannot be read, because Arrow has no integers of 128 bits ({names}): write it again with "
            f"decimals, as in polars.read_parquet(…).cast({{{casts}}}).write_parquet(…), or without "
            f"{'them' if len(wide) > 1 else 'the column'}"
        ) from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFile(f"the footer of '{place}' is damaged: {one_line(error)}") from error


def _read_metadata(footer: bytes) -> pq.FileMetaData:
    source = pa.BufferReader(footer + len(footer).to_bytes(4, "little") + MAGIC)
    # Nothing in a footer can be longer than the footer, whatever a list or a string claims to be.
    limits = {"thrift_string_size_limit": len(footer), "thrift_container_size_limit": len(footer)}
    return open_reader(source, **limits).metadata


def _wide_integers(footer: bytes) -> list[str]:
    """Return the columns that hold 128 bits without a logical type, as Polars writes such integers."""
    try:
        # The types are those of Parquet where the note about Arrow's has another name.
        schema = _read_metadata(footer.replace(b"ARROW:schema", b"ARROW.schema")).schema
    except (pa.ArrowException, OSError, ValueError):
        return []
    leaves = [schema.column(number) for number in range(len(schema))]
    wide = [leaf for leaf in leaves if leaf.length == 16 and leaf.logical_type.type == "NONE"]
    return list(dict.fromkeys(leaf.path.partition(".")[0] for leaf in wide))


_Key = tuple[str, str, int, int | None]


class _Sized(Protocol):
    @property
    def serialized_size(self) -> int: ...


F = TypeVar("F", bound=_Sized)


@dataclass(frozen=True, slots=True)
class _Entry(Generic[F]):
    filesystem: pafs.FileSystem
    footer: F
    weight: int


class FooterCache(Generic[F]):
    """The footers used last, up to a number of bytes. Any thread may use it at any time.

    Keys name the kind of file system; whether it is the same one (endpoint, credentials) is asked of pyarrow,
    since file systems have no hash.
    """

    MEMORY_PER_BYTE = 10
    """What a footer takes in memory for each byte in the file: itself, and parsed 9 more, over many small chunks."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._weight = 0
        self._entries: OrderedDict[_Key, _Entry[F]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: _Key, filesystem: pafs.FileSystem) -> F | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.filesystem != filesystem:
                return None
            self._entries.move_to_end(key)
            return entry.footer

    def put(self, key: _Key, filesystem: pafs.FileSystem, footer: F) -> None:
        entry = _Entry(filesystem, footer, footer.serialized_size * self.MEMORY_PER_BYTE)
        if entry.weight > self.capacity:
            return
        with self._lock:
            replaced = self._entries.pop(key, None)
            self._weight += entry.weight - (replaced.weight if replaced else 0)
            self._entries[key] = entry
            while self._weight > self.capacity:
                self._weight -= self._entries.popitem(last=False)[1].weight

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._weight = 0

    @property
    def weight(self) -> int:
        """The bytes that the footers in it take, as estimated."""
        return self._weight

    def __len__(self) -> int:
        return len(self._entries)


FOOTERS: FooterCache[Footer] = FooterCache(capacity=256 * 1024 * 1024)
"""The footers of this process."""
