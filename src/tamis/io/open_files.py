"""Files of object stores that are open: what one step of a scan opened, the next one need not open again.

To open such a file takes a round trip, since someone has to ask for its size. What is kept holds no connection, but
it does hold the size that the file had, so it is dropped when a scan ends, or when it grows old: the next one asks
again, and a file that was replaced meanwhile shows. Files of other systems may hold a connection or a buffer, and are
closed each time.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic

import pyarrow as pa

OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})
"""The file systems of pyarrow whose open files are a name and a size."""

MOST_OPEN = 512
FRESH_SECONDS = 60.0


@dataclass(slots=True)
class OpenFile:
    """A file as it was when it was opened, and the end of it where that was read."""

    file: pa.NativeFile
    size: int
    tail: pa.Buffer | None = None
    looked_up_ns: int | None = None
    """When it was written, where opening did not tell and somebody looked it up."""
    opened_at: float = field(default_factory=monotonic)

    def keep_tail(self, tail: pa.Buffer) -> None:
        if self.tail is None or self.tail.size < tail.size:
            self.tail = tail

    def in_tail(self, start: int, length: int) -> pa.Buffer | None:
        """The bytes of a range, if they are all in memory."""
        if self.tail is None or start < (first := self.size - self.tail.size):
            return None
        return self.tail.slice(start - first, length)


class OpenFiles:
    """The files of one place that were opened last, by path. Any thread may use it at any time."""

    __slots__ = ("_files", "_lock")

    def __init__(self) -> None:
        self._lock = Lock()
        self._files: OrderedDict[str, OpenFile] = OrderedDict()

    def __reduce__(self) -> tuple[type[OpenFiles], tuple[()]]:
        # Another process opens its own.
        return OpenFiles, ()

    def get(self, path: str) -> OpenFile | None:
        with self._lock:
            found = self._files.get(path)
            if found is None or monotonic() - found.opened_at > FRESH_SECONDS:
                return None
            self._files.move_to_end(path)
            return found

    def put(self, path: str, file: OpenFile) -> None:
        with self._lock:
            self._files[path] = file
            while len(self._files) > MOST_OPEN:
                self._files.popitem(last=False)

    def clear(self) -> None:
        """Forget them all. Whoever still reads one keeps it; it is closed when nobody does."""
        with self._lock:
            self._files.clear()
