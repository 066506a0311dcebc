"""Bloom filters of column chunks: split blocks of 256 bits, xxh64.

A filter says of a value that the chunk does not hold it, or that it may. It is an array of blocks, each of eight words
of 32 bits. The upper half of a value's hash picks the block, the lower half, multiplied by eight odd salts, one bit in
each of the words; a value whose eight bits are not all set was never written.

What cannot be believed is `Unavailable`, with a reason, and answers nothing: a header of another kind, a size that is
no whole number of blocks, or that contradicts the footer, or that the file does not have. Every value written sets a
bit in *each* word of its block, so a block with some empty words is damaged, and answers nothing either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tamis.parquet.thrift import INTEGER32, RAW_STRUCT, Malformed, read_struct, struct_of

Array = np.ndarray[Any, Any]

WORDS = 8
BLOCK_BYTES = 4 * WORDS
LARGEST_BITSET = 128 * 1024 * 1024
"""The largest filter that writers make, and the largest that is read."""
LONGEST_HEADER = 64
"""Headers take some 15 bytes; a later version of the format may add fields."""

SALTS = np.array(
    (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31), np.uint32
)
_ONE = np.uint32(1)
_SHIFT = np.uint32(27)
_HALF = np.uint64(32)
_FULL = np.uint32(0xFFFFFFFF)

# Of each of the three choices the format knows one, as the first field of a union.
_CHOICE = struct_of({1: RAW_STRUCT})
_HEADER = {1: INTEGER32, 2: _CHOICE, 3: _CHOICE, 4: _CHOICE}
_CHOICES = {2: "algorithm", 3: "hash", 4: "compression"}


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Nothing can be answered, and why: the row group is kept."""

    reason: str


@dataclass(frozen=True, slots=True)
class BloomHeader:
    """What stands before the bits of a filter: `size` is its own length, `bitset_size` theirs, in bytes."""

    size: int
    bitset_size: int

    @property
    def block_count(self) -> int:
        return self.bitset_size // BLOCK_BYTES


def parse_header(data: bytes) -> BloomHeader | Unavailable:
    """The header at the start of some bytes."""
    try:
        found, size = read_struct(data[:LONGEST_HEADER], 0, _HEADER)
    except IndexError:
        return Unavailable("the header of the Bloom filter is cut off")
    except Malformed as error:
        return Unavailable(f"the header of the Bloom filter is damaged: {error}")
    for identifier, name in _CHOICES.items():
        if found.get(identifier) is None or 1 not in found[identifier]:
            return Unavailable(f"the Bloom filter has an unknown {name}")
    bitset_size = found.get(1, 0)
    if bitset_size <= 0 or bitset_size % BLOCK_BYTES:
        return Unavailable(f"the Bloom filter would have {bitset_size} bytes, which is no number of blocks")
    if bitset_size > LARGEST_BITSET:
        return Unavailable(f"the Bloom filter would have {bitset_size} bytes, more than any writer makes")
    return BloomHeader(size, bitset_size)


@dataclass(frozen=True, slots=True, eq=False)
class BloomFilter:
    """The blocks of a filter: all of them, or those that a few hashes need, as far as they were read.

    `bits` has a row of eight words for each block at hand. `held` says which those are, ascending; None means all.
    """

    bits: Array
    block_count: int
    held: Array | None = None

    @staticmethod
    def from_bytes(bitset: Any) -> BloomFilter:
        """The filter of a whole bitset, which is not copied."""
        bits = np.frombuffer(bitset, "<u4").reshape(-1, WORDS)
        return BloomFilter(bits, len(bits))

    @staticmethod
    def from_blocks(blocks: Any, held: Array, block_count: int) -> BloomFilter:
        """The filter of which only some blocks were read."""
        return BloomFilter(np.frombuffer(blocks, "<u4").reshape(-1, WORDS), block_count, held)

    def might_contain_hashes(self, hashes: Array) -> Array:
        """For each hash whether the chunk may hold its value; False is certain."""
        return _is_set(self._words(blocks_of(hashes, self.block_count)), hashes)

    def _words(self, blocks: Array) -> Array:
        """The words of blocks; all bits are set in those that were not read."""
        if self.held is None:
            return self.bits[blocks]
        if not len(self.held):
            return np.full((len(blocks), WORDS), _FULL)
        places = np.minimum(np.searchsorted(self.held, blocks), len(self.held) - 1)
        return np.where((self.held[places] == blocks)[:, None], self.bits[places], _FULL)


def blocks_of(hashes: Array, block_count: int | Array) -> Array:
    """The block of each hash, in a filter of so many blocks."""
    return (((hashes >> _HALF) * np.asarray(block_count, np.uint64)) >> _HALF).astype(np.int64)


_ANSWERS_AT_ONCE = 1 << 16


def might_contain_any(filters: Sequence[BloomFilter], hashes: Array) -> Array:
    """For each filter whether it may contain one of the hashes.

    Many filters are asked about few hashes side by side, and few filters about many hashes one by one.
    """
    if not len(hashes):
        return np.zeros(len(filters), bool)
    step = _ANSWERS_AT_ONCE // len(hashes)
    if step < 2:
        return np.array([each.might_contain_hashes(hashes).any() for each in filters], bool)
    found = np.zeros(len(filters), bool)
    for start in range(0, len(filters), step):
        asked = filters[start : start + step]
        blocks = blocks_of(hashes, np.array([[each.block_count] for each in asked]))
        words = np.stack([each._words(own) for each, own in zip(asked, blocks, strict=True)])
        found[start : start + step] = _is_set(words, hashes).any(axis=1)
    return found


def _is_set(words: Array, hashes: Array) -> Array:
    """Whether the bits of the hashes are set in the words, of which the last axis has eight."""
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
    # A word without bits beside one with bits: no writer leaves a block like that.
    return found | (some_empty & ~all_empty)
