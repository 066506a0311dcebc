"""Split-block Bloom filters of column chunks (256-bit blocks, xxh64).

A filter answers whether a chunk may contain a value; "no" is certain. It is an array of blocks of eight 32-bit words.
The upper half of a value's hash selects the block. The lower half, multiplied by eight odd salts, selects one bit in
each word. A value whose eight bits are not all set was never written.

An untrustworthy filter is `Unavailable`, with a reason: an unsupported header, a size that is not a multiple of the
block size, that contradicts the footer or that exceeds the file. Every written value sets a bit in *each* word of its
block, so a block with only some empty words is damaged and also excludes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tamis.parquet.thrift import INTEGER32, RAW_STRUCT, Malformed, make_struct_kind, read_struct

Array = np.ndarray[Any, Any]

WORDS_PER_BLOCK = 8
BLOCK_BYTES = 4 * WORDS_PER_BLOCK
MAX_BITSET_BYTES = 128 * 1024 * 1024
"""The largest filter that writers produce, and the largest that is read."""
MAX_HEADER_BYTES = 64
"""The maximum header length in bytes. Headers take about 15 bytes; a later format version may add fields."""

SALTS = np.array(
    (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31), np.uint32
)
_ONE = np.uint32(1)
_SHIFT = np.uint32(27)
_HALF = np.uint64(32)
_FULL = np.uint32(0xFFFFFFFF)

# The format defines one option for each of the three unions, always as field 1.
_UNION = make_struct_kind({1: RAW_STRUCT})
_HEADER = {1: INTEGER32, 2: _UNION, 3: _UNION, 4: _UNION}
_UNIONS = {2: "algorithm", 3: "hash", 4: "compression"}


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The reason why a filter cannot be used; the row group is kept."""

    reason: str


@dataclass(frozen=True, slots=True)
class BloomHeader:
    """The header before the bitset: `size` is the length of the header, `bitset_size` that of the bitset, in bytes."""

    size: int
    bitset_size: int

    @property
    def block_count(self) -> int:
        return self.bitset_size // BLOCK_BYTES


def parse_header(data: bytes) -> BloomHeader | Unavailable:
    """Parse the header at the start of the bytes."""
    try:
        found, size = read_struct(data[:MAX_HEADER_BYTES], 0, _HEADER)
    except IndexError:
        return Unavailable("the Bloom filter header is truncated")
    except Malformed as error:
        return Unavailable(f"the Bloom filter header is damaged: {error}")
    for identifier, name in _UNIONS.items():
        if found.get(identifier) is None or 1 not in found[identifier]:
            return Unavailable(f"the Bloom filter has an unsupported {name}")
    bitset_size = found.get(1, 0)
    if bitset_size <= 0 or bitset_size % BLOCK_BYTES:
        return Unavailable(f"the Bloom filter has {bitset_size} bytes, expected a multiple of {BLOCK_BYTES}")
    if bitset_size > MAX_BITSET_BYTES:
        return Unavailable(f"the Bloom filter has {bitset_size} bytes, expected at most {MAX_BITSET_BYTES}")
    return BloomHeader(size, bitset_size)


@dataclass(frozen=True, slots=True, eq=False)
class BloomFilter:
    """The blocks of a filter: all of them, or only those that were read because some hashes need them.

    `bits` has a row of eight words for each available block. `held` lists their numbers in ascending order; None means
    all blocks.
    """

    bits: Array
    block_count: int
    block_numbers: Array | None = None

    @staticmethod
    def from_bytes(bitset: Any) -> BloomFilter:
        """Wrap a complete bitset without copying it."""
        bits = np.frombuffer(bitset, "<u4").reshape(-1, WORDS_PER_BLOCK)
        return BloomFilter(bits, len(bits))

    @staticmethod
    def from_blocks(blocks: Any, held: Array, block_count: int) -> BloomFilter:
        """Build a filter from the blocks that were read; `held` are their numbers."""
        return BloomFilter(np.frombuffer(blocks, "<u4").reshape(-1, WORDS_PER_BLOCK), block_count, held)

    def might_contain_hashes(self, hashes: Array) -> Array:
        """Return for each hash whether the chunk may contain its value; False is certain."""
        return _has_bits(self._gather_words(find_blocks(hashes, self.block_count)), hashes)

    def _gather_words(self, blocks: Array) -> Array:
        """Return the words of the given blocks, with all bits set for blocks that were not read."""
        if self.block_numbers is None:
            return self.bits[blocks]
        if not len(self.block_numbers):
            return np.full((len(blocks), WORDS_PER_BLOCK), _FULL)
        positions = np.minimum(np.searchsorted(self.block_numbers, blocks), len(self.block_numbers) - 1)
        return np.where((self.block_numbers[positions] == blocks)[:, None], self.bits[positions], _FULL)


def find_blocks(hashes: Array, block_count: int | Array) -> Array:
    """Return the block number of each hash in a filter with `block_count` blocks."""
    return (((hashes >> _HALF) * np.asarray(block_count, np.uint64)) >> _HALF).astype(np.int64)


_PROBES_PER_STEP = 1 << 16


def might_contain_any(filters: Sequence[BloomFilter], hashes: Array) -> Array:
    """Return for each filter whether it may contain one of the hashes.

    Many filters with few hashes are probed together; few filters with many hashes are probed one after the other.
    """
    if not len(hashes):
        return np.zeros(len(filters), bool)
    step = _PROBES_PER_STEP // len(hashes)
    if step < 2:
        return np.array([each.might_contain_hashes(hashes).any() for each in filters], bool)
    found = np.zeros(len(filters), bool)
    for start in range(0, len(filters), step):
        step_filters = filters[start : start + step]
        blocks = find_blocks(hashes, np.array([[each.block_count] for each in step_filters]))
        words = np.stack([each._gather_words(own) for each, own in zip(step_filters, blocks, strict=True)])
        found[start : start + step] = _has_bits(words, hashes).any(axis=1)
    return found


def _has_bits(words: Array, hashes: Array) -> Array:
    """Return whether the bits of each hash are set in its words; the last axis holds the eight words."""
    lower = hashes.astype(np.uint32)
    shape = words.shape[:-1]
    found, some_empty, all_empty = np.ones(shape, bool), np.zeros(shape, bool), np.ones(shape, bool)
    with np.errstate(over="ignore"):
        for position, salt in enumerate(SALTS):
            word = words[..., position]
            empty = word == 0
            found &= (word & (_ONE << ((lower * salt) >> _SHIFT))) != 0
            some_empty |= empty
            all_empty &= empty
    # No writer produces a block with both empty and non-empty words, so that block excludes nothing.
    return found | (some_empty & ~all_empty)
