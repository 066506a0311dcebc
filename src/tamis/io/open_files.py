"""A cache of open files of object stores, shared by the steps of a scan.

Opening such a file takes a round trip, which requests its size. An open file holds no connection, but it holds the
size of the file, so it is dropped at the end of a scan or after some time: then a replaced file is detected. Files of
other file systems may hold a connection or a buffer, and are closed after each use.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic

import pyarrow as pa

OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})
"""The pyarrow file systems whose open files are only a name and a size."""

MAX_OPEN_FILES = 512
MAX_AGE_SECONDS = 60.0


@dataclass(slots=True)
class OpenFile:
    """An open file with its size, and its tail if that was read."""

    file: pa.NativeFile
    size: int
    tail: pa.Buffer | None = None
    looked_up_ns: int | None = None
    """The modification time, if opening did not return it and it was looked up."""
    opened_at: float = field(default_factory=monotonic)

    def keep_tail(self, tail: pa.Buffer) -> None:
        if self.tail is None or self.tail.size < tail.size:
            self.tail = tail

    def read_from_tail(self, start: int, length: int) -> pa.Buffer | None:
        """Return the bytes of a range if the cached tail has all of them, else None."""
        if self.tail is None or start < (first := self.size - self.tail.size):
            return None
        return self.tail.slice(start - first, length)


class OpenFiles:
    """The most recently opened files of one storage, by path. It is thread-safe."""

    __slots__ = ("_files", "_lock")

    def __init__(self) -> None:
        self._lock = Lock()
        self._files: OrderedDict[str, OpenFile] = OrderedDict()

    def __reduce__(self) -> tuple[type[OpenFiles], tuple[()]]:
        # Another process opens its own files.
        return OpenFiles, ()

    def get(self, path: str) -> OpenFile | None:
        with self._lock:
            found = self._files.get(path)
            if found is None or monotonic() - found.opened_at > MAX_AGE_SECONDS:
                return None
            self._files.move_to_end(path)
            return found

    def put(self, path: str, file: OpenFile) -> None:
        with self._lock:
            self._files[path] = file
            while len(self._files) > MAX_OPEN_FILES:
                self._files.popitem(last=False)

    def clear(self) -> None:
        """Drop all files. A file that is being read stays open until its reader is done."""
        with self._lock:
            self._files.clear()
