"""Footers of Parquet files: few requests to read one, and none to read it again.

A footer is at the end of its file, behind it four bytes with its length and four of magic. One read of the last
64 KiB holds most footers whole; for a larger one exactly the missing bytes are read.

What comes back is pyarrow's `FileMetaData`, safe to use: see `tamis.parquet.vetting`.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from tamis.errors import CorruptFile, UnsupportedFeature
from tamis.io.ranges import RangedFile
from tamis.io.storage import Storage
from tamis.parquet.leaves import leaf_types
from tamis.parquet.vetting import vetted_footer

TAIL_LENGTH = 64 * 1024

MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
_TRAILER = 8  # the length of the footer, then the magic
_SHORTEST_FILE = len(MAGIC) + _TRAILER


def read_footer(storage: Storage, path: str, size: int, modified_ns: int | None) -> pq.FileMetaData:
    """The metadata of a file, from memory where a file of this size and time was read before.

    A file whose time of change is not known (None) is read each time.
    """
    key = (storage.filesystem.type_name, path, size, modified_ns)
    metadata = FOOTERS.get(key, storage.filesystem) if modified_ns is not None else None
    if metadata is None:
        metadata = parse_footer(_read_footer_bytes(storage, path, size), storage.place(path))
        if modified_ns is not None:
            FOOTERS.put(key, storage.filesystem, metadata)
    return metadata


def _read_footer_bytes(storage: Storage, path: str, size: int) -> bytes:
    place = storage.place(path)
    if size < _SHORTEST_FILE:
        raise CorruptFile(f"'{place}' is no Parquet file: it has {size} bytes, the shortest has {_SHORTEST_FILE}")
    with RangedFile(storage, path) as file:
        if file.size != size:
            raise CorruptFile(
                f"'{place}' was replaced: it has {file.size} bytes, it had {size} when listed; plan again"
            )
        tail = file.read_tail(TAIL_LENGTH).to_pybytes()
        length = _footer_length(tail[-_TRAILER:], size, place)
        missing = length + _TRAILER - len(tail)
        if missing > 0:
            tail = file.read([(size - length - _TRAILER, missing)])[0].to_pybytes() + tail
        footer: bytes = tail[-_TRAILER - length : -_TRAILER]
    return footer


def _footer_length(trailer: bytes, size: int, place: str) -> int:
    magic = trailer[4:]
    if magic == ENCRYPTED_MAGIC:
        raise UnsupportedFeature(f"'{place}' has an encrypted footer, which Tamis cannot read; decrypt the file first")
    if magic != MAGIC:
        raise CorruptFile(f"'{place}' is no Parquet file, or is cut off: it ends in {magic!r}, not in {MAGIC!r}")
    length = int.from_bytes(trailer[:4], "little")
    if not 0 < length <= size - _SHORTEST_FILE:
        raise CorruptFile(f"'{place}' is damaged: its footer would have {length} bytes, in a file of {size}")
    return length


def parse_footer(footer: bytes, place: str) -> pq.FileMetaData:
    """The metadata in the bytes of a footer, without length and magic; `place` names the file in messages."""
    metadata = _parse(footer, place)
    vetted = vetted_footer(footer, leaf_types(metadata, place), f"'{place}'")
    return metadata if vetted is footer else _parse(vetted, place)


def _parse(footer: bytes, place: str) -> pq.FileMetaData:
    source = pa.BufferReader(footer + len(footer).to_bytes(4, "little") + MAGIC)
    try:
        # Nothing in a footer can be longer than the footer, whatever a list or a string claims to be.
        with pq.ParquetFile(
            source, thrift_string_size_limit=len(footer), thrift_container_size_limit=len(footer)
        ) as file:
            return file.metadata
    except NotImplementedError as error:
        raise UnsupportedFeature(f"'{place}' cannot be read: {_one_line(error)}") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFile(f"the footer of '{place}' is damaged: {_one_line(error)}") from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


_Key = tuple[str, str, int, int | None]


@dataclass(frozen=True, slots=True)
class _Entry:
    filesystem: pafs.FileSystem
    metadata: pq.FileMetaData
    weight: int


class FooterCache:
    """The footers used last, up to a number of bytes. Any thread may use it at any time.

    Keys name the kind of file system; whether it is the same one (endpoint, credentials) is asked of pyarrow,
    since file systems have no hash.
    """

    MEMORY_PER_BYTE = 10
    """What a parsed footer takes in memory for each byte in the file: 9 measured over many small chunks."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._weight = 0
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._lock = Lock()

    def get(self, key: _Key, filesystem: pafs.FileSystem) -> pq.FileMetaData | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.filesystem != filesystem:
                return None
            self._entries.move_to_end(key)
            return entry.metadata

    def put(self, key: _Key, filesystem: pafs.FileSystem, metadata: pq.FileMetaData) -> None:
        entry = _Entry(filesystem, metadata, metadata.serialized_size * self.MEMORY_PER_BYTE)
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


FOOTERS = FooterCache(capacity=256 * 1024 * 1024)
"""The footers of this process."""
