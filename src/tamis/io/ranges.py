"""Ranged reads: byte ranges of files, coalesced, concurrent and counted.

Two ranges are coalesced if reading the bytes between them is cheaper than another request. A remote request waits about
30 ms, and several run concurrently, so that about 4 ms remain for each; at 60 MB/s per connection these are worth 256
KiB. A local read costs a few microseconds: a page of the operating system. Coalesced reads are limited to `max_bytes`,
so that large reads run concurrently and a small range does not keep a large buffer alive.
"""

from __future__ import annotations

import os
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from types import TracebackType

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import CorruptFile, MissingFile, StorageError
from tamis.io.retries import ShortRead, run_with_retries
from tamis.io.storage import OBJECT_STORES, OpenFile, Storage
from tamis.io.threads import run_in_threads

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Coalescing:
    """The rule for coalescing: ranges at most `gap` bytes apart become one read of at most `largest` bytes."""

    gap: int
    max_bytes: int

    def merge(self, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the reads that cover all ranges, in order.

        >>> Coalescing(gap=10, max_bytes=1000).merge([(200, 5), (0, 100), (105, 20), (50, 10)])
        [(0, 125), (200, 5)]
        """
        merged: list[tuple[int, int]] = []
        for start, length in sorted(ranges):
            end = start + length
            if merged:
                last_start, last_length = merged[-1]
                last_end = last_start + last_length
                joined = max(last_end, end) - last_start
                # Overlapping ranges are always merged, so that each range is within one read.
                if start < last_end or (start - last_end <= self.gap and joined <= self.max_bytes):
                    merged[-1] = (last_start, joined)
                    continue
            merged.append((start, length))
        return merged


MAX_SEQUENTIAL_BYTES = MIB
"""Up to this many bytes of a local file are read sequentially."""

LOCAL = Coalescing(gap=4 * KIB, max_bytes=8 * MIB)
REMOTE = Coalescing(gap=256 * KIB, max_bytes=16 * MIB)

MAX_BATCH_BYTES = 64 * MIB


def split_by_bytes(sizes: Sequence[int], most: int = MAX_BATCH_BYTES) -> Iterator[slice]:
    """Split consecutive reads into batches of at most `most` bytes; a larger read is a batch of its own.

    >>> list(split_by_bytes([40, 50, 30, 200, 5], most=100))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None), slice(4, 5, None)]
    """
    first = total = 0
    for index, size in enumerate(sizes):
        if index > first and total + size > most:
            yield slice(first, index)
            first, total = index, 0
        total += size
    if first < len(sizes):
        yield slice(first, len(sizes))


MAX_REMOTE_READS = 24
"""The number of concurrent reads of one remote file. They mostly wait, on as many connections as pyarrow's S3 client
has, and all requested bytes are in memory at the end in any case."""


IMMUTABLE = -(2**62)
"""The modification time of immutable files: the log of a table has their paths and sizes, and they are never
rewritten."""

_LAST_MARK = -(2**61)
"""Earlier than every real modification time."""


def make_immutable_marker(table: str) -> int:
    """Return the modification time for immutable files of a table. A table recreated at its location has another."""
    return IMMUTABLE + zlib.crc32(table.encode("utf-8", "surrogatepass"))


def is_immutable(modified_ns: int | None) -> bool:
    return modified_ns is not None and modified_ns < _LAST_MARK


def may_change(modified_ns: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return which files may change, from their modification times."""
    return pc.fill_null(pc.greater_equal(modified_ns, _LAST_MARK), True)


def make_replaced_error(location: str, what: str) -> CorruptFile:
    """Return the error for a file that was replaced since it was listed."""
    return CorruptFile(f"'{location}' was replaced: {what}; open the table again, or refresh() it")


_SECOND = 1_000_000_000


class RangedFile:
    """An open file for ranged reads. It is thread-safe.

    Opening a remote file costs a request, so files of object stores stay open when this is closed: see
    `tamis.io.storage`. A file with another size than `size` or another modification time than `modified_ns` (None:
    not checked) was replaced, which is a CorruptFile.
    """

    def __init__(self, storage: Storage, path: str, size: int | None = None, modified_ns: int | None = None) -> None:
        storage.check_links(path)
        self._storage = storage
        self._location = storage.format_path(path)
        self._is_local = storage.is_local
        self._stays_open = storage.filesystem.type_name in OBJECT_STORES
        self._open = (storage.open_files.get(path) if self._stays_open else None) or self._open_file(path)
        self._file = self._open.file
        self.size: int = self._open.size
        if size is not None and size != self.size:
            self.close()
            raise (
                self._make_size_error(size)
                if is_immutable(modified_ns)
                else make_replaced_error(self._location, f"it has {self.size} bytes, expected {size} as listed")
            )
        if modified_ns is not None and not is_immutable(modified_ns) and not self._was_modified_at(modified_ns, path):
            self.close()
            raise make_replaced_error(self._location, "it was rewritten after it was listed")

    def _make_size_error(self, size: int) -> CorruptFile:
        # Opening the table again reads the same log, so that does not help.
        recorded = f"records {size}" if size >= 0 else "does not record a size"
        return CorruptFile(
            f"'{self._location}' has {self.size} bytes, but the log of its table {recorded}: the log is wrong, or "
            "the file was replaced; restore the file that the log records, or let its writer rewrite it"
        )

    def _was_modified_at(self, modified_ns: int, path: str) -> bool:
        """Return whether the file has this modification time, as far as known without another request."""
        if self._is_local:
            return bool(self._storage.filesystem.get_file_info(path).mtime_ns == modified_ns)
        known = self.modified_ns
        if known is None:
            if self._open.tail is not None:
                return True  # the caller's footer was read from this open file
            # Some file systems do not return it on opening: then it is looked up, as for a listing.
            if self._open.looked_up_ns is None:
                self._storage.counters.add(requests=1)
                self._open.looked_up_ns = self._storage.filesystem.get_file_info(path).mtime_ns
            return self._open.looked_up_ns in (None, modified_ns)
        # Opening returns seconds, a listing may return fractions.
        return known // _SECOND == modified_ns // _SECOND

    def _open_file(self, path: str) -> OpenFile:
        try:
            file = run_with_retries(partial(self._try_to_open, path), self._storage.retries, "open", self._location)
            opened = OpenFile(file, file.size())
        except (FileNotFoundError, NotADirectoryError) as error:
            raise MissingFile(f"the file '{self._location}' is gone") from error
        except IsADirectoryError as error:
            raise CorruptFile(f"'{self._location}' is a directory, not a file") from error
        if self._stays_open:
            self._storage.open_files.put(path, opened)
        return opened

    def _try_to_open(self, path: str) -> pa.NativeFile:
        if not self._is_local:
            self._storage.counters.add(requests=1)
        return self._storage.filesystem.open_input_file(path)

    def __enter__(self) -> RangedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if not self._stays_open:
            self._file.close()

    @property
    def modified_ns(self) -> int | None:
        """The modification time, if opening the file returned it."""
        found = (self._file.metadata() or {}).get("Last-Modified")
        return None if found is None else int(datetime.fromisoformat(found.decode()).timestamp()) * _SECOND

    def read(self, ranges: Sequence[tuple[int, int]], *, coalesce_gap: int | None = None) -> list[pa.Buffer]:
        """Return the bytes of each `(start, length)`, in the order given, as slices of the coalesced reads."""
        for start, length in ranges:
            self._check(start, length)
        if self._open.tail is None:
            return self._fetch(ranges, coalesce_gap)
        known = [self._open.read_from_tail(start, length) for start, length in ranges]
        missing = [wanted for wanted, found in zip(ranges, known, strict=True) if found is None]
        fetched = iter(self._fetch(missing, coalesce_gap))
        return [found if found is not None else next(fetched) for found in known]

    def _fetch(self, ranges: Sequence[tuple[int, int]], coalesce_gap: int | None) -> list[pa.Buffer]:
        rule = LOCAL if self._is_local else REMOTE
        if coalesce_gap is not None:
            rule = Coalescing(coalesce_gap, rule.max_bytes)
        merged = rule.merge([wanted for wanted in ranges if wanted[1]])
        # Waking another thread takes longer than a small local read.
        is_small = self._is_local and sum(length for _, length in merged) <= MAX_SEQUENTIAL_BYTES
        at_once = MAX_REMOTE_READS if not self._is_local else 1 if is_small else self._storage.threads
        buffers = run_in_threads(self._read_range, merged, at_once)
        starts = [start for start, _ in merged]
        return [self._slice(starts, buffers, start, length) for start, length in ranges]

    def read_tail(self, length: int) -> pa.Buffer:
        """Return the last `length` bytes, or all if there are fewer."""
        start = max(0, self.size - length)
        tail = self.read([(start, self.size - start)])[0]
        if not self._is_local:
            # The bytes before a footer are mostly needed next.
            self._open.keep_tail(tail)
        return tail

    def _check(self, start: int, length: int) -> None:
        if start < 0 or length < 0 or start + length > self.size:
            raise CorruptFile(
                f"bytes {start} to {start + length} of '{self._location}' do not exist: it has {self.size} bytes, "
                "so it is damaged or was replaced"
            )

    def _read_range(self, wanted: tuple[int, int]) -> pa.Buffer:
        start, length = wanted
        try:
            return run_with_retries(
                partial(self._read_at, start, length), self._storage.retries, "read", self._location
            )
        except FileNotFoundError as error:
            raise MissingFile(f"the file '{self._location}' is gone") from error

    def _read_at(self, start: int, length: int) -> pa.Buffer:
        self._storage.counters.add(requests=1)
        found = pa.py_buffer(self._file.read_at(length, start))
        self._storage.counters.add(bytes_read=found.size)
        if found.size != length:
            raise ShortRead(f"expected {length} bytes at offset {start}, found {found.size}")
        return found

    @staticmethod
    def _slice(starts: list[int], buffers: list[pa.Buffer], start: int, length: int) -> pa.Buffer:
        if length == 0:
            return pa.py_buffer(b"")
        position = bisect_right(starts, start) - 1
        return buffers[position].slice(start - starts[position], length)


def read_ranges(
    storage: Storage,
    path: str,
    ranges: Sequence[tuple[int, int]],
    *,
    size: int | None = None,
    modified_ns: int | None = None,
    coalesce_gap: int | None = None,
) -> list[pa.Buffer]:
    """Return the bytes of each `(start, length)` of a file, in the order given.

    A missing file is a MissingFile; another size or modification time, or a range beyond the end, is a CorruptFile.
    """
    with RangedFile(storage, path, size, modified_ns) as file:
        return file.read(ranges, coalesce_gap=coalesce_gap)


MAX_BUFFERED_FILE_BYTES = 256 * KIB
"""A file of at most this size is laid out in memory, including the gaps between ranges."""


def make_prefetched_file(
    ranges: Sequence[tuple[int, pa.Buffer]], size: int, name: str = "file"
) -> pa.NativeFile | PrefetchedFile:
    """Return a file with only some ranges in memory.

    In a small one the other bytes are zeros: Arrow's memory file takes a hundredth of the time of a call into Python,
    once per column chunk.
    """
    if size > MAX_BUFFERED_FILE_BYTES:
        return PrefetchedFile(ranges, size, name)
    content = bytearray(size)
    for start, buffer in ranges:
        content[start : start + buffer.size] = memoryview(buffer)
    return pa.BufferReader(pa.py_buffer(content))


class BufferedFile:
    """A read-only file object that returns buffers. Subclasses implement `_fetch_range`."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._position = 0
        self.closed = False

    def size(self) -> int:
        return self._size

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = origin + offset
        return self._position

    def read(self, length: int = -1) -> pa.Buffer:
        start = self._position
        end = self._size if length < 0 else min(self._size, start + length)
        self._position = max(start, end)
        return self._fetch_range(start, end)

    # Arrow prefers this method, and then does not copy the buffer.
    read_buffer = read

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def _fetch_range(self, start: int, end: int) -> pa.Buffer:
        raise NotImplementedError


class PrefetchedFile(BufferedFile):
    """A file object with only some ranges in memory.

    Reads return slices of the fetched buffers, without a copy. A read outside the fetched ranges is a defect of the
    code that chose them; nothing more is fetched.
    """

    def __init__(self, ranges: Sequence[tuple[int, pa.Buffer]], size: int, name: str = "file") -> None:
        super().__init__(size)
        ordered = sorted(ranges, key=lambda fetched: fetched[0])
        self._starts = [start for start, _ in ordered]
        self._buffers = [buffer for _, buffer in ordered]
        self._name = name

    def _fetch_range(self, start: int, end: int) -> pa.Buffer:
        slices: list[pa.Buffer] = []
        current = start
        while current < end:
            position = bisect_right(self._starts, current) - 1
            buffer = self._buffers[position] if position >= 0 else None
            offset = current - self._starts[position]
            if buffer is None or offset >= buffer.size:
                raise StorageError(
                    f"bytes {start} to {end} of '{self._name}' were not fetched (byte {current} is missing): "
                    "this is a defect of Tamis, please report it"
                )
            slices.append(buffer.slice(offset, min(buffer.size - offset, end - current)))
            current += slices[-1].size
        match slices:
            case []:
                return pa.py_buffer(b"")
            case [whole]:
                return whole
            case _:
                return pa.py_buffer(b"".join(slices))
