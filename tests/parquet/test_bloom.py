"""Split-block Bloom filters: headers, blocks, damage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tamis.parquet.footer.thrift import I32, STRUCT, encode_struct
from tamis.parquet.indexes.bloom_filter import (
    MAX_BITSET_BYTES,
    BloomFilter,
    BloomHeader,
    Unavailable,
    find_blocks,
    hash_byte_strings,
    might_contain_any,
    parse_header,
)

SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
CHOSEN = encode_struct([(1, STRUCT, encode_struct([]))])
OTHER = encode_struct([(2, STRUCT, encode_struct([]))])
NONE = encode_struct([])


def make_header(
    size: int | None = 1024,
    algorithm: bytes | None = CHOSEN,
    hash_: bytes | None = CHOSEN,
    codec: bytes | None = CHOSEN,
) -> bytes:
    return encode_struct([(1, I32, size), (2, STRUCT, algorithm), (3, STRUCT, hash_), (4, STRUCT, codec)])


def build_filter(hashes: list[int], block_count: int) -> np.ndarray:
    """Build a filter word by word, as the specification describes."""
    words = np.zeros((block_count, 8), "<u4")
    for each in hashes:
        block = ((each >> 32) * block_count) >> 32
        for word, salt in enumerate(SALTS):
            words[block, word] |= np.uint32(1 << (((each & 0xFFFFFFFF) * salt & 0xFFFFFFFF) >> 27))
    return words


def draw_hashes(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64)


# --- Headers ----------------------------------------------------------------------------------------------------------


def test_a_header_has_its_size_and_that_of_the_bitset() -> None:
    assert parse_header(make_header(1024) + b"bits") == BloomHeader(len(make_header(1024)), 1024)
    assert parse_header(make_header(MAX_BITSET_BYTES)).block_count == MAX_BITSET_BYTES // 32


def test_a_header_with_fields_of_a_later_version_is_read() -> None:
    fields = [(1, I32, 64), (2, STRUCT, CHOSEN), (3, STRUCT, CHOSEN), (4, STRUCT, CHOSEN), (9, I32, 7)]
    assert parse_header(encode_struct(fields)) == BloomHeader(len(encode_struct(fields)), 64)


@pytest.mark.parametrize("size", [0, -32, 1, 31, 33, 1000, MAX_BITSET_BYTES + 32, 2**31 - 32, None])
def test_B8_an_invalid_filter_size_is_unavailable(size: int | None) -> None:
    found = parse_header(make_header(size))
    assert isinstance(found, Unavailable)
    assert "bytes" in found.reason


@pytest.mark.parametrize("other", [OTHER, NONE, None])
@pytest.mark.parametrize("choice", ["algorithm", "hash_", "codec"])
def test_another_algorithm_hash_or_compression_is_unavailable(choice: str, other: bytes | None) -> None:
    found = parse_header(make_header(**{choice: other}))
    assert isinstance(found, Unavailable)
    assert "unsupported" in found.reason


@pytest.mark.parametrize("length", range(len(make_header())))
def test_a_truncated_header_is_unavailable(length: int) -> None:
    assert isinstance(parse_header(make_header()[:length]), Unavailable)


def test_X1_invalid_header_bytes_are_unavailable() -> None:
    generator = np.random.default_rng(0)
    found = [parse_header(generator.bytes(64)) for _ in range(5_000)]
    assert all(isinstance(each, Unavailable) for each in found)


# --- Blocks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_count", [1, 2, 3, 31, 32, 1000])
def test_written_values_are_found_and_most_others_are_not(block_count: int) -> None:
    inside, outside = draw_hashes(8 * block_count), draw_hashes(10_000, seed=1)
    found = BloomFilter.from_bytes(build_filter(inside.tolist(), block_count).tobytes())
    assert found.might_contain_hashes(inside).all()
    assert found.might_contain_hashes(outside).mean() < 0.1


def test_the_block_of_a_hash_is_its_upper_half_scaled() -> None:
    hashes = np.array([0, 2**32 - 1, 2**63, 2**64 - 1], np.uint64)
    assert find_blocks(hashes, 10).tolist() == [0, 0, 5, 9]
    assert find_blocks(hashes, MAX_BITSET_BYTES // 32).tolist() == [
        0,
        0,
        MAX_BITSET_BYTES // 64,
        MAX_BITSET_BYTES // 32 - 1,
    ]


def test_an_empty_filter_has_nothing_and_a_full_one_may_have_all() -> None:
    hashes = draw_hashes(100)
    assert not BloomFilter.from_bytes(bytes(320)).might_contain_hashes(hashes).any()
    assert BloomFilter.from_bytes(b"\xff" * 320).might_contain_hashes(hashes).all()
    assert BloomFilter.from_bytes(bytes(32)).might_contain_hashes(hashes[:0]).tolist() == []


def test_a_block_with_some_empty_words_is_damaged_and_may_hold_anything() -> None:
    words = build_filter(draw_hashes(40).tolist(), 4)
    words[2, 5] = 0
    found = BloomFilter.from_bytes(words.tobytes())
    hashes = draw_hashes(1_000, seed=1)
    assert found.might_contain_hashes(hashes)[find_blocks(hashes, 4) == 2].all()
    assert not found.might_contain_hashes(hashes)[find_blocks(hashes, 4) == 1].all()


def test_blocks_that_were_not_read_may_hold_anything() -> None:
    words, hashes = build_filter(draw_hashes(40).tolist(), 16), draw_hashes(1_000, seed=1)
    held = np.array([3, 7, 15])
    whole = BloomFilter.from_bytes(words.tobytes()).might_contain_hashes(hashes)
    some = BloomFilter.from_blocks(words[held].tobytes(), held, 16).might_contain_hashes(hashes)
    is_held = np.isin(find_blocks(hashes, 16), held)
    assert (some[is_held] == whole[is_held]).all()
    assert some[~is_held].all()
    assert BloomFilter.from_blocks(b"", held[:0], 16).might_contain_hashes(hashes).all()


@pytest.mark.parametrize(("filters", "hashes"), [(0, 3), (1, 0), (300, 1), (300, 7), (3, 70_000), (2, 200_000)])
def test_many_filters_and_many_hashes_give_the_same_result(filters: int, hashes: int) -> None:
    """For any split of the work, each filter reports whether it may contain one of the hashes."""
    given = [
        BloomFilter.from_bytes(build_filter(draw_hashes(4, seed=seed).tolist(), 1 + seed % 5).tobytes())
        for seed in range(filters)
    ]
    # The upper half decides the block; these all fall into blocks that are mostly empty.
    asked = draw_hashes(hashes, seed=99) & np.uint64(0xFFFFFFFF0000001F)
    expected = [bool(each.might_contain_hashes(asked).any()) for each in given]
    assert might_contain_any(given, asked).tolist() == expected


# --- Filters of other writers -----------------------------------------------------------------------------------------


def test_the_filter_of_the_format_specification(golden: Path) -> None:
    """The filter holds the values that the authors of the format added."""
    data = (golden / "parquet" / "bloom_filter.xxhash.bin").read_bytes()
    found = parse_header(data)
    assert isinstance(found, BloomHeader)
    bits = BloomFilter.from_bytes(data[found.size : found.size + found.bitset_size])
    assert bits.might_contain_hashes(hash_byte_strings([b"hello", b"parquet", b"bloom", b"filter"])).all()
    assert bits.might_contain_hashes(hash_byte_strings([f"absent {n}".encode() for n in range(1_000)])).mean() < 0.01


def test_a_filter_of_another_hash_is_unavailable(golden: Path) -> None:
    """An early form of the format, with other field ids and murmur3."""
    found = parse_header((golden / "parquet" / "bloom_filter.bin").read_bytes())
    assert isinstance(found, Unavailable)
