"""A Bloom join filter lets every key pass, and few other values."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.scan.reading.bloom_join_filter import BloomJoinFilter, apply_join_filter

INTEGERS = st.integers(-(2**63), 2**63 - 1)


@given(keys=st.lists(INTEGERS | st.none()), others=st.lists(INTEGERS | st.none()))
def test_every_key_passes_and_null_does_not(keys: list[int | None], others: list[int | None]) -> None:
    join_filter = BloomJoinFilter(pa.array(keys, pa.int64()))
    passed = join_filter.may_contain(pa.array([*keys, *others], pa.int64()))
    for value, has_passed in zip([*keys, *others], passed.tolist(), strict=True):
        assert has_passed or value not in keys or value is None
        assert not (has_passed and value is None)


@pytest.mark.parametrize(
    "data_type",
    [pa.int8(), pa.uint32(), pa.uint64(), pa.date32(), pa.time32("s"), pa.time64("us"), pa.timestamp("us", "UTC"),
     pa.timestamp("ns"), pa.date64()],
)  # fmt: skip
def test_keys_of_many_types(data_type: pa.DataType) -> None:
    assert BloomJoinFilter.can_hold(data_type)
    day = 86_400_000 if data_type == pa.date64() else 1
    whole = pa.array([0, day, None], pa.int32() if data_type.bit_width == 32 else pa.int64())
    keys = whole.cast(data_type)
    assert BloomJoinFilter(keys).may_contain(keys).tolist() == [True, True, False]


def test_negative_and_unsigned_keys_are_distinguished() -> None:
    keys = pa.array([2**64 - 1], pa.uint64())
    assert BloomJoinFilter(keys).may_contain(pa.array([2**64 - 1, 1], pa.uint64())).tolist() == [True, False]
    assert not BloomJoinFilter.can_hold(pa.string())
    assert not BloomJoinFilter.can_hold(pa.float64())


def test_few_others_pass() -> None:
    join_filter = BloomJoinFilter(pa.array(range(0, 2_000_000, 20)))
    assert join_filter.may_contain(pa.array(range(0, 2_000_000, 20))).all()
    assert join_filter.may_contain(pa.array(range(1, 2_000_000, 20))).mean() < 0.15


def test_a_filter_that_nearly_all_rows_pass_is_no_longer_applied() -> None:
    batches = [pa.record_batch({"a": [1, 2]}), pa.record_batch({"a": [2, 9]}), pa.record_batch({"a": [9, 9]})]
    assert filter_by_keys(batches, [1, 2]) == [[1, 2], [2], [9, 9]]
    assert filter_by_keys(batches[::-1], [1]) == [[1]]


def filter_by_keys(batches: list[pa.RecordBatch], keys: list[int]) -> list[list[int]]:
    found = apply_join_filter(batches, BloomJoinFilter(pa.array(keys)), ("a",), min_rows_to_decide=3)
    return [batch["a"].to_pylist() for batch in found]
