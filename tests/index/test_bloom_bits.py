"""Bloom filters of files: they find every value that was added and few others, and their format never changes."""

from __future__ import annotations

import datetime
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tamis.index.collect import (
    build_filter,
    compute_filter_size,
    compute_max_distinct,
    find_canonical_leaf,
    hash_column_values,
    hash_distinct_values,
)
from tamis.parquet.footer.leaves import Leaf
from tamis.parquet.indexes.bloom_filter import BloomFilter


def make_leaf(data_type: pa.DataType) -> Leaf:
    found = find_canonical_leaf(data_type)
    assert found is not None
    return found


@given(st.sets(st.integers(0, 2**64 - 1)), st.sampled_from([0.5, 0.01, 0.0001]))
def test_every_hash_that_was_put_in_is_there(numbers: set[int], share: float) -> None:
    hashes = np.array(sorted(numbers), np.uint64)
    bits = build_filter(hashes, share)
    assert bits is not None
    assert len(bits) == compute_filter_size(len(numbers), share)
    assert BloomFilter.from_bytes(bits).might_contain_hashes(hashes).all()


@pytest.mark.parametrize("share", [0.1, 0.01, 0.001])
def test_the_false_positive_rate_is_as_requested(share: float) -> None:
    generator = np.random.default_rng(7)
    inside, others = (generator.integers(0, 2**64, 20_000, np.uint64) for _ in range(2))
    bits = build_filter(np.unique(inside), share)
    assert bits is not None
    wrong = BloomFilter.from_bytes(bits).might_contain_hashes(others).mean()
    assert share / 2 < wrong < share * 1.5


def test_nothing_is_in_an_empty_filter() -> None:
    bits = build_filter(np.empty(0, np.uint64), 0.01)
    assert bits == bytes(32)
    assert not BloomFilter.from_bytes(bits).might_contain_hashes(np.arange(9, dtype=np.uint64)).any()


def test_a_filter_that_would_be_too_large_is_not_built() -> None:
    assert build_filter(np.arange(10, dtype=np.uint64), 0.01, max_bytes=64) is not None
    assert build_filter(np.arange(1000, dtype=np.uint64), 0.01, max_bytes=64) is None
    assert compute_filter_size(compute_max_distinct(0.01, max_bytes=64), 0.01) <= 64


def encode_little_endian(number: int, width: int) -> bytes:
    return number.to_bytes(width, "little", signed=True)


FORMS: list[tuple[pa.DataType, object, bytes]] = [
    (pa.int8(), -5, encode_little_endian(-5, 8)),
    (pa.int64(), -5, encode_little_endian(-5, 8)),
    (pa.uint64(), 2**63 + 1, encode_little_endian(1 - 2**63, 8)),
    (pa.float16(), 1.5, struct.pack("<d", 1.5)),
    (pa.float32(), 1.5, struct.pack("<d", 1.5)),
    (pa.float64(), 0.1, struct.pack("<d", 0.1)),
    (pa.date32(), datetime.date(1970, 1, 5), encode_little_endian(4, 4)),
    (pa.timestamp("s"), datetime.datetime(1970, 1, 1, 0, 0, 7), encode_little_endian(7_000, 8)),
    (pa.timestamp("ms"), datetime.datetime(1970, 1, 1, 0, 0, 7), encode_little_endian(7_000, 8)),
    (
        pa.timestamp("us", "UTC"),
        datetime.datetime(1970, 1, 1, 0, 0, 7, tzinfo=datetime.UTC),
        encode_little_endian(7_000_000, 8),
    ),
    (pa.timestamp("ns"), datetime.datetime(1970, 1, 1, 0, 0, 7), encode_little_endian(7_000_000_000, 8)),
    (pa.time32("s"), datetime.time(0, 0, 7), encode_little_endian(7_000_000_000, 8)),
    (pa.duration("ms"), datetime.timedelta(seconds=7), encode_little_endian(7_000, 8)),
    (pa.decimal128(10, 2), Decimal("-1.50"), (-150).to_bytes(32, "big", signed=True)),
    (pa.string(), "é", "é".encode()),
    (pa.large_string(), "é", "é".encode()),
    (pa.binary(), b"abc", b"abc"),
    (pa.binary(3), b"abc", b"abc"),
]
"""The hashes in existing indexes. A change here would lose rows."""


@pytest.mark.parametrize(("data_type", "value", "form"), FORMS, ids=[str(data_type) for data_type, *_ in FORMS])
def test_the_form_in_which_values_are_hashed_is_part_of_the_format(
    data_type: pa.DataType, value: object, form: bytes
) -> None:
    hashes = hash_distinct_values(pa.array([value], data_type), make_leaf(data_type))
    assert hashes is not None
    assert hashes.tolist() == [xxhash.xxh64_intdigest(form)]


def test_F5_zeros_are_one_value_and_nan_is_never_looked_up() -> None:
    leaf = make_leaf(pa.float64())
    stored = hash_column_values(pa.array([-0.0, float("nan"), None, 2.0]), leaf)
    searched = hash_distinct_values(pa.array([0.0]), leaf)
    assert stored is not None
    assert searched is not None
    assert set(searched.tolist()) <= set(stored.tolist())
    assert hash_distinct_values(pa.array([float("nan")]), leaf) is None


@pytest.mark.parametrize("data_type", [pa.bool_(), pa.list_(pa.int8()), pa.month_day_nano_interval()])
def test_other_types_have_no_filter(data_type: pa.DataType) -> None:
    assert find_canonical_leaf(data_type) is None
