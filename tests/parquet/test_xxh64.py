"""The vectorised hash against the library, and against published values."""

from __future__ import annotations

import numpy as np
import pytest
import xxhash

from tamis.parquet.indexes.bloom_filter import hash_byte_strings, hash_rows


@pytest.mark.parametrize("width", range(40))
def test_rows_of_every_width_hash_as_the_library_does(width: int) -> None:
    rows = np.random.default_rng(width).integers(0, 256, (64, width), dtype=np.uint8)
    rows[:2] = [[0] * width, [255] * width]
    assert hash_rows(rows).tolist() == [xxhash.xxh64_intdigest(row.tobytes()) for row in rows]


def test_published_hashes() -> None:
    """Hashes with seed 0, as published by the authors."""
    assert hash_byte_strings([b"", b"a", b"abc"]).tolist() == [
        0xEF46DB3751D8E999,
        0xD24EC4F1A98C6E5B,
        0x44BC2CF5AD770999,
    ]


def test_no_rows_have_no_hashes() -> None:
    assert hash_rows(np.empty((0, 8), np.uint8)).tolist() == []
    assert hash_byte_strings([]).dtype == np.uint64


def test_slices_of_wider_rows_hash_by_their_own_bytes() -> None:
    wide = np.arange(64, dtype=np.uint8).reshape(4, 16)
    assert hash_rows(wide[:, 3:11]).tolist() == [xxhash.xxh64_intdigest(row[3:11].tobytes()) for row in wide]
