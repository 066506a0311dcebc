"""Reads Bloom filters from a file with few requests, and only the needed blocks of large filters.

One rule decides how much is read, the same that coalesces neighbouring ranges (`tamis.io.ranges`): a request costs as
much as `gap` bytes.

- If the footer states the length of a filter, header and bitset are read in one round. A few hashes need a few blocks
  of 32 bytes. Only those are read if the extra requests cost less than the rest of the filter.
- Otherwise the first round reads `gap` bytes, or up to the next filter, and the second round reads the rest.

All reads of a round are issued together. A defect of a filter makes only that filter `Unavailable`; a missing file or
failing storage is an error.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from tamis.io.ranges import LOCAL, MAX_BATCH_BYTES, REMOTE, RangedFile, split_by_bytes
from tamis.io.storage import Storage
from tamis.parquet.footer.chunks import MAGIC_LENGTH, ChunkLayout
from tamis.parquet.footer.leaves import FieldPath, Leaf
from tamis.parquet.indexes.bloom_filter import (
    BLOCK_BYTES,
    MAX_BITSET_BYTES,
    MAX_HEADER_BYTES,
    Array,
    BloomFilter,
    BloomHeader,
    Chunk,
    Unavailable,
    find_blocks,
    hash_stored_values,
    might_contain_any,
    parse_header,
)
from tamis.skipping.membership import Question

Found = BloomFilter | Unavailable

NO_FILTER = Unavailable("no Bloom filter")

ASSUMED_FILTER_BYTES = 1024 * 1024
"""The assumed length of filters whose length is not in the footer."""


def read_bloom_filters(
    storage: Storage,
    path: str,
    layouts: Mapping[Chunk, ChunkLayout],
    hashes: Mapping[int, Array] | None = None,
    *,
    file: RangedFile | None = None,
    max_batch_bytes: int = MAX_BATCH_BYTES,
) -> Iterator[dict[Chunk, Found]]:
    """Yield the filters of column chunks in batches, so that they are not all in memory at once.

    `hashes` are the hashes to look up, by leaf; blocks that they do not need may be omitted. Without `hashes`, filters
    are read completely. `file` is the file if it is already open.
    """
    with nullcontext(file) if file is not None else RangedFile(storage, path) as opened:
        gap = (LOCAL if storage.is_local else REMOTE).gap
        offset_counts = Counter(
            layout.bloom_filter[0] for layout in layouts.values() if layout.bloom_filter is not None
        )
        offsets = sorted(offset_counts)
        requests = []
        unavailable: dict[Chunk, Found] = {}
        for chunk, layout in layouts.items():
            location = _check_location(layout.bloom_filter, opened.size)
            if isinstance(location, Unavailable):
                unavailable[chunk] = location
                continue
            offset, length = location
            if offset_counts[offset] > 1:
                unavailable[chunk] = Unavailable("another column chunk has the same Bloom filter offset")
                continue
            after = bisect_right(offsets, offset)
            end = min(opened.size, offsets[after] if after < len(offsets) else opened.size)
            asked = None if hashes is None else hashes.get(chunk[1])
            requests.append(_Request(chunk, offset, length, end, asked, gap))
        if unavailable:
            yield unavailable
        sizes = [request.length or ASSUMED_FILTER_BYTES for request in requests]
        for batch in split_by_bytes(sizes, max_batch_bytes):
            yield _read_filters(opened, requests[batch])


def _read_filters(file: RangedFile, requests: Sequence[_Request]) -> dict[Chunk, Found]:
    found: dict[Chunk, Found] = {}
    first = _read_ranges(file, [request.find_first_ranges() for request in requests])
    headers = _HeaderParser()
    unfinished, second = [], []
    for request, buffers in zip(requests, first, strict=True):
        result = request.take(buffers, headers)
        if isinstance(result, list):
            unfinished.append(request)
            second.append(result)
        else:
            found[request.chunk] = result
    for request, buffers in zip(unfinished, _read_ranges(file, second), strict=True):
        found[request.chunk] = request.complete(buffers)
    return found


def _check_location(location: tuple[int, int | None] | None, file_size: int) -> tuple[int, int | None] | Unavailable:
    if location is None:
        return NO_FILTER
    offset, length = location
    if not MAGIC_LENGTH <= offset < file_size:
        return Unavailable(f"the Bloom filter offset {offset} is outside the file of {file_size} bytes")
    if length is not None and not 0 < length <= min(file_size - offset, MAX_BITSET_BYTES + MAX_HEADER_BYTES):
        return Unavailable(
            f"the Bloom filter of {length} bytes at offset {offset} is outside the file of {file_size} bytes"
        )
    return offset, length


def _read_ranges(file: RangedFile, wanted: list[list[tuple[int, int]]]) -> list[list[pa.Buffer]]:
    buffers = iter(file.read([each for ranges in wanted for each in ranges]))
    return [[next(buffers) for _ in ranges] for ranges in wanted]


class _HeaderParser:
    """A parser that caches the last header, because most filters of a file have equal headers.

    Headers are self-delimiting, so bytes that start with a known header have that header.
    """

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
    """The state of reading one filter: the first ranges, the ranges still missing, the result."""

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

    def find_first_ranges(self) -> list[tuple[int, int]]:
        if self.length is None:
            return [(self.offset, min(self.gap, self.end - self.offset))]
        # Headers are shorter than a block, so the remainder is the header length. `take` verifies this guess.
        guessed = BloomHeader(self.length % BLOCK_BYTES, self.length - self.length % BLOCK_BYTES)
        self.blocks = self._select_blocks(guessed)
        if self.blocks is None:
            return [(self.offset, self.length)]
        self.header = guessed
        return [(self.offset, min(MAX_HEADER_BYTES, self.length)), *self._find_block_ranges(guessed, self.blocks)]

    def take(self, buffers: list[pa.Buffer], headers: _HeaderParser) -> Found | list[tuple[int, int]]:
        """Return the filter, or the ranges that are still missing."""
        self.head = buffers[0]
        guessed, guessed_blocks = self.header, self.blocks
        header = headers.parse(buffers[0][:MAX_HEADER_BYTES].to_pybytes())
        if isinstance(header, Unavailable):
            return header
        size = header.size + header.bitset_size
        if self.length is not None and size != self.length:
            return Unavailable(f"the Bloom filter has {size} bytes in its header and {self.length} in the footer")
        if size > self.end - self.offset:
            return Unavailable(
                f"the Bloom filter has {size} bytes, expected at most {self.end - self.offset} at its offset"
            )
        self.header = header
        if header == guessed and guessed_blocks is not None:
            return self._build_sparse(buffers[1:])
        if size <= self.head.size:
            self.blocks = None
            return BloomFilter.from_bytes(self.head.slice(header.size, header.bitset_size))
        self.blocks = self._select_blocks(header)
        if self.blocks is None:
            return [(self.offset + self.head.size, size - self.head.size)]
        return self._find_block_ranges(header, self.blocks)

    def complete(self, buffers: list[pa.Buffer]) -> Found:
        """Return the filter, given the ranges that were missing."""
        assert self.header is not None
        assert self.head is not None
        if self.blocks is not None:
            return self._build_sparse(buffers)
        return BloomFilter.from_bytes(b"".join((self.head.slice(self.header.size), *buffers)))

    def _build_sparse(self, buffers: list[pa.Buffer]) -> BloomFilter:
        assert self.header is not None
        assert self.blocks is not None
        return BloomFilter.from_blocks(b"".join(buffers), self.blocks, self.header.block_count)

    def _select_blocks(self, header: BloomHeader) -> Array | None:
        """Return the numbers of the blocks that the hashes need; None if reading the whole filter is cheaper."""
        if self.hashes is None or not header.block_count:
            return None
        if len(self.hashes) * self.gap >= header.bitset_size:
            return None
        return np.unique(find_blocks(self.hashes, header.block_count))

    def _find_block_ranges(self, header: BloomHeader, blocks: Array) -> list[tuple[int, int]]:
        start = self.offset + header.size
        return [(start + block * BLOCK_BYTES, BLOCK_BYTES) for block in blocks.tolist()]


# --- Row group pruning with Bloom filters: which row groups contain none of a predicate's values ----------------------


@dataclass(frozen=True)
class BloomQuestions:
    """The membership tests of a predicate that Bloom filters can answer, with the hashes of their items.

    Items are hashed once per physical representation of a column among the table's files, usually one.
    """

    questions: tuple[Question, ...]
    _hash_cache: dict[Hashable, Array | Unavailable] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(questions: Sequence[Question]) -> BloomQuestions:
        return BloomQuestions(tuple(question for question in questions if question.items is not None))

    def for_file(
        self, leaves: Mapping[FieldPath, Leaf], names: Mapping[FieldPath, FieldPath] | None = None
    ) -> FileQuestions:
        """Bind the questions to the leaf columns of a file.

        `names` maps table paths to paths in the file; without it both are the same.
        """
        found = []
        for question in self.questions:
            path = question.column.path
            in_file = path if names is None else names.get(path)
            leaf = None if in_file is None else leaves.get(in_file)
            if leaf is not None:
                found.append((question, leaf, self._hash_items(question, leaf)))
        return FileQuestions(tuple(found))

    def _hash_items(self, question: Question, leaf: Leaf) -> Array | Unavailable:
        stored = (leaf.physical, leaf.logical, tuple(leaf.parameters.items()), leaf.length, leaf.scale, leaf.arrow_type)
        key = (question.number, leaf.needs_rebase, *stored)
        if key not in self._hash_cache:
            # Two threads may both hash the items; their results are equal.
            self._hash_cache[key] = hash_stored_values(question.values, leaf)
        return self._hash_cache[key]


@dataclass(frozen=True)
class FileQuestions:
    """The questions bound to one file: each with its leaf and the hashes to look up, or why there are none."""

    asked: tuple[tuple[Question, Leaf, Array | Unavailable], ...]

    @cached_property
    def leaves(self) -> tuple[int, ...]:
        """The leaves whose filters are needed. Items that the file's type cannot represent need no filter."""
        return tuple(dict.fromkeys(leaf.index for _, leaf, hashes in self._usable if len(hashes)))

    @property
    def hashes(self) -> dict[int, Array]:
        """All hashes to look up, by leaf, so that only the needed blocks of the filters are read."""
        by_leaf: dict[int, list[Array]] = {}
        for _, leaf, hashes in self._usable:
            by_leaf.setdefault(leaf.index, []).append(hashes)
        return {leaf: np.concatenate(found) for leaf, found in by_leaf.items()}

    def find_answers(self, filters: Mapping[Chunk, Found], row_groups: Sequence[int]) -> dict[str, pa.BooleanArray]:
        """Return the metadata columns `true:…`: whether a row group may contain an item; null without a filter."""
        found = {}
        for question, leaf, hashes in self._usable:
            may_be_true = np.zeros(len(row_groups), bool)
            is_unknown = np.zeros(len(row_groups), bool)
            if len(hashes):
                given = [filters.get((group, leaf.index)) for group in row_groups]
                readable = [each for each in given if isinstance(each, BloomFilter)]
                is_unknown[:] = [not isinstance(each, BloomFilter) for each in given]
                may_be_true[~is_unknown] = might_contain_any(readable, hashes)
            found[question.true_name] = pa.array(may_be_true, pa.bool_(), mask=is_unknown)
        return found

    def find_reasons(self, read: Mapping[Chunk, Found | None], row_groups: Sequence[int]) -> dict[int, str]:
        """Return why questions, by number, have no answer in any of the row groups.

        Only the unavailable entries of `read` matter.
        """
        found = {}
        for question, leaf, hashes in self.asked:
            given = [read.get((group, leaf.index), NO_FILTER) for group in row_groups]
            if isinstance(hashes, Unavailable):
                found[question.number] = hashes.reason
            elif len(hashes) and (missing := [each for each in given if isinstance(each, Unavailable)]) == given:
                found[question.number] = missing[0].reason if missing else NO_FILTER.reason
        return found

    @cached_property
    def _usable(self) -> list[tuple[Question, Leaf, Array]]:
        return [(question, leaf, found) for question, leaf, found in self.asked if not isinstance(found, Unavailable)]
