"""Single-value serialization: what pyiceberg encodes is decoded."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import types as iceberg
from pyiceberg.conversions import to_bytes

from tamis.formats.iceberg.manifests.single_values import decode_values


def make_decimal(unscaled: int, scale: int) -> Decimal:
    """Return a decimal without the rounding of Python's decimal context."""
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


INTS, LONGS = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
KINDS: list[tuple[Any, pa.DataType, st.SearchStrategy[Any]]] = [
    (iceberg.BooleanType(), pa.bool_(), st.booleans()),
    (iceberg.IntegerType(), pa.int32(), INTS),
    (iceberg.LongType(), pa.int64(), LONGS),
    (iceberg.FloatType(), pa.float32(), st.floats(width=32, allow_nan=False)),
    (iceberg.DoubleType(), pa.float64(), st.floats(allow_nan=False)),
    (iceberg.DateType(), pa.date32(), INTS),
    (iceberg.TimeType(), pa.time64("us"), st.integers(0, 86_400_000_000 - 1)),
    (iceberg.TimestampType(), pa.timestamp("us"), LONGS),
    (iceberg.TimestamptzType(), pa.timestamp("us", "UTC"), LONGS),
    (iceberg.TimestampNanoType(), pa.timestamp("ns"), LONGS),
    (iceberg.TimestamptzNanoType(), pa.timestamp("ns", "UTC"), LONGS),
    (iceberg.StringType(), pa.string(), st.text(max_size=20)),
    (iceberg.BinaryType(), pa.binary(), st.binary(max_size=20)),
    (iceberg.FixedType(3), pa.binary(3), st.binary(min_size=3, max_size=3)),
    (iceberg.DecimalType(9, 2), pa.decimal128(9, 2), st.integers(-(10**9) + 1, 10**9 - 1)),
    (iceberg.DecimalType(38, 10), pa.decimal128(38, 10), st.integers(-(10**38) + 1, 10**38 - 1)),
    (iceberg.DecimalType(3, 0), pa.decimal128(3, 0), st.integers(-999, 999)),
]


@pytest.mark.parametrize(("kind", "data_type", "values"), KINDS, ids=[str(kind) for kind, _, _ in KINDS])
@pytest.mark.one_in(3)
def test_values_encoded_by_pyiceberg_are_decoded(
    kind: Any, data_type: pa.DataType, values: st.SearchStrategy[Any]
) -> None:
    @given(st.lists(st.none() | values, max_size=20), st.integers(0, 2))
    @settings(max_examples=40, deadline=None)
    def check(drawn: list[Any], start: int) -> None:
        if pa.types.is_decimal(data_type):
            drawn = [None if each is None else make_decimal(each, data_type.scale) for each in drawn]
        encoded = [None if each is None else to_bytes(kind, each) for each in drawn]
        found = decode_values(pa.array(encoded, pa.binary()).slice(start), data_type)
        found.validate(full=True)
        assert found.type == data_type
        plain = found
        if pa.types.is_temporal(data_type):
            plain = found.view(pa.int32() if data_type.bit_width == 32 else pa.int64())
        assert plain.to_pylist() == drawn[start:]

    check()


def test_T11_values_of_narrower_types_are_read_by_their_width() -> None:
    given_bytes = pa.array([b"\xff\xff\xff\xff", b"\x01" + b"\0" * 7, None, b"", b"12345"])
    assert decode_values(given_bytes, pa.int64()).to_pylist() == [-1, 1, None, None, None]
    single, double = bytes.fromhex("0000c03f"), bytes.fromhex("000000000000f83f")
    assert decode_values(pa.array([single, double]), pa.float64()).to_pylist() == [1.5, 1.5]
    days = decode_values(pa.array([b"\xff\xff\xff\xff", b"\x05" + b"\0" * 7, b"\xff\xff\xff\x7f"]), pa.timestamp("us"))
    assert days.view(pa.int64()).to_pylist() == [-86_400_000_000, 5, None]
    in_nanoseconds = decode_values(pa.array([b"\x01\0\0\0", b"\xff\xff\xff\x7f"]), pa.timestamp("ns"))
    assert in_nanoseconds.view(pa.int64()).to_pylist() == [86_400 * 10**9, None]


def test_a_wider_value_in_a_narrower_column_is_unknown() -> None:
    assert decode_values(pa.array([b"\x01" + b"\0" * 7]), pa.int32()).to_pylist() == [None]
    assert decode_values(pa.array([b"\x01" + b"\0" * 7]), pa.float32()).to_pylist() == [None]


def test_S3_invalid_utf8_is_unknown() -> None:
    assert decode_values(pa.array([b"a", b"\xff", None, b""]), pa.string()).to_pylist() == ["a", None, None, ""]


def test_decimals_of_any_length_and_out_of_range() -> None:
    given_bytes = pa.array([b"\xff" * 16, b"\x00\x00\x01", b"\x7f", b"", b"\0" * 17, b"\x03\xe8"])
    found = decode_values(given_bytes, pa.decimal128(3, 1))
    assert found.to_pylist() == [Decimal("-0.1"), Decimal("0.1"), Decimal("12.7"), None, None, None]


def test_booleans_are_zero_or_one() -> None:
    assert decode_values(pa.array([b"\0", b"\1", b"\2", b"", None]), pa.bool_()).to_pylist() == [
        False,
        True,
        None,
        None,
        None,
    ]


def test_truncated_fixed_bounds_are_padded_with_zeros() -> None:
    assert decode_values(pa.array([b"ab", b"abc", b"abcd", None, b""]), pa.binary(3)).to_pylist() == [
        b"ab\0",
        b"abc",
        None,
        None,
        b"\0\0\0",
    ]


def test_types_without_single_value_serialization_are_unknown() -> None:
    assert decode_values(pa.array([b"a"]), pa.list_(pa.int32())).null_count == 1
