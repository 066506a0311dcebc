"""Bloom filters fetched from a file: few requests, and of large filters only the blocks that are asked about.

One rule decides how much is read, the one by which neighbours are read together (`tamis.io.ranges`): a request is worth
`gap` bytes.

- Where the footer says how long a filter is, header and bits come in one round. A few hashes need a few blocks of 32
  bytes: those are read alone where the rest of the filter is longer than the requests that they cost are worth.
- Where it does not, the first round reads `gap` bytes, or up to the next filter, and the second what is missing.

All reads of a round are made together. Whatever is wrong with a filter makes that one `Unavailable`; only a file that
is gone, or storage that fails, is an error.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tamis.io.ranges import LOCAL, REMOTE, RangedFile, batches_of_bytes
from tamis.io.storage import Storage
from tamis.parquet.bloom import (
    BLOCK_BYTES,
    LARGEST_BITSET,
    LONGEST_HEADER,
    Array,
    BloomFilter,
    BloomHeader,
    Unavailable,
    blocks_of,
    parse_header,
)
from tamis.parquet.chunks import MAGIC_LENGTH, ChunkLayout

Chunk = tuple[int, int]
"""A row group and a leaf."""
Found = BloomFilter | Unavailable

NO_FILTER = Unavailable("no Bloom filter")

USUAL_LENGTH = 1024 * 1024
"""Filters of which the footer does not tell the length are taken to have about this one."""


def read_bloom_filters(
    storage: Storage,
    path: str,
    layouts: Mapping[Chunk, ChunkLayout],
    hashes: Mapping[int, Array] | None = None,
    *,
    file: RangedFile | None = None,
) -> Iterator[dict[Chunk, Found]]:
    """The filters of column chunks, some at a time, so that they are not all in memory together.

    `hashes` are what will be asked of the filters, by leaf; blocks that they do not need may be left out. Without them
    filters are read whole. `file` is the open file, where there is one.
    """
    with nullcontext(file) if file is not None else RangedFile(storage, path) as opened:
        gap = (LOCAL if storage.is_local else REMOTE).gap
        noted = Counter(layout.bloom_filter[0] for layout in layouts.values() if layout.bloom_filter is not None)
        offsets = sorted(noted)
        requests = []
        unavailable: dict[Chunk, Found] = {}
        for chunk, layout in layouts.items():
            place = _place(layout.bloom_filter, opened.size)
            if isinstance(place, Unavailable):
                unavailable[chunk] = place
                continue
            offset, length = place
            if noted[offset] > 1:
                unavailable[chunk] = Unavailable("another column chunk claims the same Bloom filter")
                continue
            after = bisect_right(offsets, offset)
            end = min(opened.size, offsets[after] if after < len(offsets) else opened.size)
            asked = None if hashes is None else hashes.get(chunk[1])
            requests.append(_Request(chunk, offset, length, end, asked, gap))
        if unavailable:
            yield unavailable
        for batch in batches_of_bytes([request.length or USUAL_LENGTH for request in requests]):
            yield _read_filters(opened, requests[batch])


def _read_filters(file: RangedFile, requests: Sequence[_Request]) -> dict[Chunk, Found]:
    found: dict[Chunk, Found] = {}
    first = _read(file, [request.first_ranges() for request in requests])
    headers = _Headers()
    unfinished, second = [], []
    for request, buffers in zip(requests, first, strict=True):
        result = request.take(buffers, headers)
        if isinstance(result, list):
            unfinished.append(request)
            second.append(result)
        else:
            found[request.chunk] = result
    for request, buffers in zip(unfinished, _read(file, second), strict=True):
        found[request.chunk] = request.complete(buffers)
    return found


def _place(place: tuple[int, int | None] | None, file_size: int) -> tuple[int, int | None] | Unavailable:
    if place is None:
        return NO_FILTER
    offset, length = place
    if not MAGIC_LENGTH <= offset < file_size:
        return Unavailable(f"the Bloom filter would be at byte {offset} of a file of {file_size}")
    if length is not None and not 0 < length <= min(file_size - offset, LARGEST_BITSET + LONGEST_HEADER):
        return Unavailable(f"the Bloom filter would have {length} bytes at byte {offset} of a file of {file_size}")
    return offset, length


def _read(file: RangedFile, wanted: list[list[tuple[int, int]]]) -> list[list[pa.Buffer]]:
    """The ranges of all requests in one round."""
    buffers = iter(file.read([each for ranges in wanted for each in ranges]))
    return [[next(buffers) for _ in ranges] for ranges in wanted]


class _Headers:
    """Headers of filters, which mostly are the same throughout a file. They say themselves where they end, so bytes
    that begin like a known one have that one."""

    def __init__(self) -> None:
        self._last: tuple[bytes, BloomHeader] | None = None

    def parse(self, data: bytes) -> BloomHeader | Unavailable:
        if self._last is not None and data.startswith(self._last[0]):
            return self._last[1]
        found = parse_header(data)
        if isinstance(found, BloomHeader):
            self._last = data[: found.size], found
        return found


@dataclass
class _Request:
    """One filter on its way: what to read first, what that leaves to be read, what comes of it."""

    chunk: Chunk
    offset: int
    length: int | None
    end: int
    """Where the next filter starts, or the file ends."""
    hashes: Array | None
    gap: int
    head: pa.Buffer | None = None
    header: BloomHeader | None = None
    blocks: Array | None = None
    """The blocks to read; None means all."""

    def first_ranges(self) -> list[tuple[int, int]]:
        if self.length is None:
            return [(self.offset, min(self.gap, self.end - self.offset))]
        # Headers are shorter than a block, so what is no whole block is the header. If it is not, that will show.
        guessed = BloomHeader(self.length % BLOCK_BYTES, self.length - self.length % BLOCK_BYTES)
        self.blocks = self._needed(guessed)
        if self.blocks is None:
            return [(self.offset, self.length)]
        self.header = guessed
        return [(self.offset, min(LONGEST_HEADER, self.length)), *self._ranges(guessed, self.blocks)]

    def take(self, buffers: list[pa.Buffer], headers: _Headers) -> Found | list[tuple[int, int]]:
        """The filter, or the ranges that it still lacks."""
        self.head = buffers[0]
        guessed, guessed_blocks = self.header, self.blocks
        header = headers.parse(buffers[0][:LONGEST_HEADER].to_pybytes())
        if isinstance(header, Unavailable):
            return header
        size = header.size + header.bitset_size
        if self.length is not None and size != self.length:
            return Unavailable(f"the Bloom filter has {size} bytes by its header and {self.length} by the footer")
        if size > self.end - self.offset:
            return Unavailable(
                f"the Bloom filter would have {size} bytes where there is room for {self.end - self.offset}"
            )
        self.header = header
        if header == guessed and guessed_blocks is not None:
            return self._sparse(buffers[1:])
        if size <= self.head.size:
            self.blocks = None
            return BloomFilter.from_bytes(self.head.slice(header.size, header.bitset_size))
        self.blocks = self._needed(header)
        if self.blocks is None:
            return [(self.offset + self.head.size, size - self.head.size)]
        return self._ranges(header, self.blocks)

    def complete(self, buffers: list[pa.Buffer]) -> Found:
        """The filter, with the ranges that it lacked."""
        assert self.header is not None
        assert self.head is not None
        if self.blocks is not None:
            return self._sparse(buffers)
        return BloomFilter.from_bytes(b"".join((self.head.slice(self.header.size), *buffers)))

    def _sparse(self, buffers: list[pa.Buffer]) -> BloomFilter:
        assert self.header is not None
        assert self.blocks is not None
        return BloomFilter.from_blocks(b"".join(buffers), self.blocks, self.header.block_count)

    def _needed(self, header: BloomHeader) -> Array | None:
        """The blocks that the hashes are in; None where the whole filter is cheaper."""
        if self.hashes is None or not header.block_count:
            return None
        if len(self.hashes) * self.gap >= header.bitset_size:
            return None
        return np.unique(blocks_of(self.hashes, header.block_count))

    def _ranges(self, header: BloomHeader, blocks: Array) -> list[tuple[int, int]]:
        start = self.offset + header.size
        return [(start + block * BLOCK_BYTES, BLOCK_BYTES) for block in blocks.tolist()]
