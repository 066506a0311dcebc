"""Literals of the table's type, hashed in their stored form."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from builders.parquet.bloom import read_leaves
from tamis.parquet.footer.leaves import Leaf
from tamis.parquet.indexes.bloom_filter import Unavailable, hash_stored_values


def make_leaf(folder: Path, stored: pa.DataType, **options: Any) -> Leaf:
    """Return the leaf of a file in which a column has this type."""
    path = folder / "stored.parquet"
    pq.write_table(pa.table({"x": pa.array([], stored)}), path, **options)
    return read_leaves(path)["x"]


def hash_with_xxhash(stored: Sequence[bytes]) -> list[int]:
    return sorted(map(xxhash.xxh64_intdigest, stored))


def hash_values(values: Sequence[Any], table: pa.DataType, leaf: Leaf) -> list[int]:
    hashes = hash_stored_values(pa.array(values, table), leaf)
    assert isinstance(hashes, np.ndarray), hashes
    assert hashes.dtype == np.uint64
    return sorted(hashes.tolist())


def make_decimal(digits: int, scale: int) -> Decimal:
    """Return a decimal without the rounding of Python's decimal context."""
    return Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -scale))


# --- Numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data_type", "values", "form"),
    [
        (pa.int8(), [-128, -1, 0, 127], "<i"),
        (pa.int16(), [-(2**15), 2**15 - 1], "<i"),
        (pa.int32(), [-(2**31), 2**31 - 1], "<i"),
        (pa.uint8(), [0, 255], "<I"),
        (pa.uint16(), [0, 2**16 - 1], "<I"),
        (pa.uint32(), [0, 2**31, 2**32 - 1], "<I"),
        (pa.int64(), [-(2**63), -1, 2**63 - 1], "<q"),
        (pa.uint64(), [0, 2**63, 2**64 - 1], "<Q"),
        (pa.float32(), [1.5, -2.0, float("inf")], "<f"),
        (pa.float64(), [1.5, -0.1, float("-inf")], "<d"),
        (pa.float16(), [1.5, -2.0], "<e"),
    ],
)
def test_B1_numbers_are_hashed_in_their_physical_form(
    tmp_path: Path, data_type: pa.DataType, values: list[Any], form: str
) -> None:
    expected = hash_with_xxhash([struct.pack(form, value) for value in values])
    assert hash_values(values, data_type, make_leaf(tmp_path, data_type)) == expected


@pytest.mark.parametrize(
    ("table", "stored", "form"),
    [
        (pa.int64(), pa.int32(), "<i"),
        (pa.int64(), pa.int8(), "<i"),
        (pa.int32(), pa.int16(), "<i"),
        (pa.int64(), pa.uint32(), "<I"),
        (pa.int8(), pa.int64(), "<q"),
        (pa.uint64(), pa.uint8(), "<I"),
        (pa.decimal128(20, 0), pa.int32(), "<i"),
        (pa.decimal128(10, 2), pa.int64(), "<q"),
        (pa.float64(), pa.int32(), "<i"),
        (pa.float32(), pa.int16(), "<i"),
        (pa.float64(), pa.float32(), "<f"),
        (pa.float32(), pa.float16(), "<e"),
    ],
)
def test_B2_promoted_columns_are_hashed_at_the_width_of_the_file(
    tmp_path: Path, table: pa.DataType, stored: pa.DataType, form: str
) -> None:
    assert hash_values([3, 100], table, make_leaf(tmp_path, stored)) == hash_with_xxhash(
        [struct.pack(form, each) for each in (3, 100)]
    )


@pytest.mark.parametrize(
    ("value", "table", "stored"),
    [
        (2**31, pa.int64(), pa.int32()),
        (-(2**63), pa.int64(), pa.int32()),
        (300, pa.int32(), pa.int8()),
        (-1, pa.int64(), pa.uint64()),
        (2**63, pa.uint64(), pa.int64()),
        (Decimal("1.5"), pa.decimal128(5, 1), pa.int32()),
        (Decimal(10**15), pa.decimal128(20, 0), pa.int32()),
        (1.5, pa.float64(), pa.int32()),
        (float("inf"), pa.float64(), pa.int32()),
        (float("nan"), pa.float64(), pa.int32()),
        (0.1, pa.float64(), pa.float32()),
        (1e300, pa.float64(), pa.float32()),
        (1e6, pa.float32(), pa.float16()),
        (Decimal("1.005"), pa.decimal128(10, 3), pa.decimal128(8, 2)),
        (1, pa.timestamp("us"), pa.timestamp("ms")),
        (2**62, pa.timestamp("ms"), pa.timestamp("ns")),
        (datetime(2020, 1, 1, 12), pa.timestamp("us"), pa.date32()),
        (b"four", pa.binary(), pa.binary(3)),
    ],
)
def test_B2_values_outside_the_stored_type_are_absent(
    tmp_path: Path, value: Any, table: pa.DataType, stored: pa.DataType
) -> None:
    assert hash_values([value], table, make_leaf(tmp_path, stored)) == []


@pytest.mark.parametrize("value", [2.0**53, -(2.0**60), 1e300])
def test_a_float_that_equals_several_integers_is_not_looked_up(tmp_path: Path, value: float) -> None:
    assert isinstance(hash_stored_values(pa.array([value]), make_leaf(tmp_path, pa.int64())), Unavailable)
    assert isinstance(
        hash_stored_values(pa.array([2.0**24], pa.float32()), make_leaf(tmp_path, pa.int64())), Unavailable
    )


@pytest.mark.parametrize(
    ("table", "stored", "form"),
    [(pa.float64(), pa.float64(), "<d"), (pa.float64(), pa.float32(), "<f"), (pa.float32(), pa.float16(), "<e")],
)
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_F5_both_zeros_are_probed(
    tmp_path: Path, table: pa.DataType, stored: pa.DataType, form: str, zero: float
) -> None:
    both = [struct.pack(form, 0.0), struct.pack(form, -0.0)]
    assert hash_values([zero, 1.5], table, make_leaf(tmp_path, stored)) == hash_with_xxhash(
        [*both, struct.pack(form, 1.5)]
    )


@pytest.mark.parametrize("data_type", [pa.float16(), pa.float32(), pa.float64()])
def test_F5_NaN_is_never_looked_up(tmp_path: Path, data_type: pa.DataType) -> None:
    values = pa.array(np.array([1.0, np.nan]).astype(data_type.to_pandas_dtype()))
    assert isinstance(hash_stored_values(values, make_leaf(tmp_path, data_type)), Unavailable)


# --- Decimals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "scale", "width"), [(1, 0, 1), (4, 2, 2), (9, 2, 4), (18, 4, 8), (20, 0, 9), (38, 10, 16)]
)
def test_B3_fixed_length_decimals_are_big_endian_at_the_width_of_the_file(
    tmp_path: Path, precision: int, scale: int, width: int
) -> None:
    leaf = make_leaf(tmp_path, pa.decimal128(precision, scale))
    assert (leaf.physical, leaf.length) == ("FIXED_LEN_BYTE_ARRAY", width)
    digits = [0, 9, -9, -(10**precision) + 1]
    values = [make_decimal(each, scale) for each in digits]
    expected = hash_with_xxhash([each.to_bytes(width, "big", signed=True) for each in digits])
    assert hash_values(values, pa.decimal128(precision, scale), leaf) == expected


def test_B3_decimals_of_another_width_and_scale_are_hashed_in_their_stored_form(tmp_path: Path) -> None:
    leaf = make_leaf(tmp_path, pa.decimal128(10, 2))
    expected = hash_with_xxhash([each.to_bytes(leaf.length, "big", signed=True) for each in (150, -1)])
    assert hash_values([Decimal("1.5000"), Decimal("-0.01")], pa.decimal128(30, 4), leaf) == expected
    assert hash_values([Decimal("1.5"), None], pa.decimal128(9, 1), leaf) == hash_with_xxhash(
        [(150).to_bytes(leaf.length, "big")]
    )


def test_B3_decimals_wider_than_128_bits(tmp_path: Path) -> None:
    data_type = pa.decimal256(60, 3)
    leaf = make_leaf(tmp_path, data_type)
    digits = -(10**50) - 7
    assert hash_values([make_decimal(digits, 3)], data_type, leaf) == hash_with_xxhash(
        [digits.to_bytes(leaf.length, "big", signed=True)]
    )


@pytest.mark.parametrize(("precision", "form"), [(9, "<i"), (18, "<q")])
def test_decimals_stored_as_integers(tmp_path: Path, precision: int, form: str) -> None:
    leaf = make_leaf(tmp_path, pa.decimal128(precision, 2), store_decimal_as_integer=True)
    assert leaf.physical in ("INT32", "INT64")
    expected = hash_with_xxhash([struct.pack(form, -150)])
    assert hash_values([Decimal("-1.50")], pa.decimal128(precision, 2), leaf) == expected
    # With its scale a thousand million takes more than 32 bits.
    assert len(hash_values([Decimal(10**9)], pa.decimal128(38, 0), leaf)) == (0 if precision == 9 else 1)


def test_decimals_of_variable_length_are_not_looked_up(tmp_path: Path) -> None:
    leaf = make_leaf(tmp_path, pa.decimal128(10, 2))
    variable = Leaf(**{name: getattr(leaf, name) for name in Leaf.__slots__} | {"physical": "BYTE_ARRAY", "length": 0})
    refused = hash_stored_values(pa.array([Decimal("1.50")], pa.decimal128(10, 2)), variable)
    assert isinstance(refused, Unavailable)
    assert "more than one stored form" in refused.reason


# --- Time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "table", "stored", "expected"),
    [
        (date(1969, 12, 31), pa.date32(), pa.date32(), struct.pack("<i", -1)),
        (date(1970, 1, 3), pa.date64(), pa.date32(), struct.pack("<i", 2)),
        (date(1970, 1, 3), pa.date32(), pa.date64(), struct.pack("<i", 2)),
        (datetime(1970, 1, 3), pa.timestamp("us"), pa.date32(), struct.pack("<i", 2)),
        (time(0, 0, 1), pa.time32("s"), pa.time32("s"), struct.pack("<i", 1000)),
        (time(0, 0, 1), pa.time64("us"), pa.time32("ms"), struct.pack("<i", 1000)),
        (time(0, 0, 1), pa.time32("ms"), pa.time64("ns"), struct.pack("<q", 10**9)),
        (-1500, pa.timestamp("us"), pa.timestamp("us"), struct.pack("<q", -1500)),
        (-2000, pa.timestamp("us"), pa.timestamp("ms"), struct.pack("<q", -2)),
        (-2, pa.timestamp("ms"), pa.timestamp("us"), struct.pack("<q", -2000)),
        (-2, pa.timestamp("s"), pa.timestamp("ns"), struct.pack("<q", -2 * 10**9)),
        (7, pa.duration("us"), pa.duration("us"), struct.pack("<q", 7)),
        (7000, pa.duration("us"), pa.duration("ms"), struct.pack("<q", 7)),
    ],
)
def test_T5_times_are_hashed_in_the_unit_of_the_file(
    tmp_path: Path, value: Any, table: pa.DataType, stored: pa.DataType, expected: bytes
) -> None:
    assert hash_values([value], table, make_leaf(tmp_path, stored)) == hash_with_xxhash([expected])


def test_T7_instants_are_hashed_as_UTC_whatever_the_zone(tmp_path: Path) -> None:
    noon = datetime(2020, 6, 1, 12, tzinfo=UTC)
    expected = hash_with_xxhash([struct.pack("<q", int(noon.timestamp()) * 10**6)])
    for zone in ("UTC", "Europe/Paris"):
        assert hash_values(
            [noon], pa.timestamp("us", zone), make_leaf(tmp_path, pa.timestamp("us", "America/New_York"))
        ) == (expected)


@pytest.mark.parametrize(
    ("table", "stored"),
    [
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us", "UTC"), pa.timestamp("us")),
        (pa.timestamp("us", "UTC"), pa.date32()),
        (pa.date32(), pa.timestamp("us")),
        (pa.int64(), pa.timestamp("us")),
        (pa.timestamp("us"), pa.int64()),
    ],
)
def test_T7_a_local_timestamp_is_not_an_instant_or_a_number(
    tmp_path: Path, table: pa.DataType, stored: pa.DataType
) -> None:
    assert isinstance(hash_stored_values(pa.array([0], table), make_leaf(tmp_path, stored)), Unavailable)


# --- Bytes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("stored", [pa.string(), pa.binary()])
def test_texts_are_hashed_without_their_length(tmp_path: Path, table: pa.DataType, stored: pa.DataType) -> None:
    values = ["", "é", "a" * 100]
    given = values if pa.types.is_string(table) or "string" in str(table) else [each.encode() for each in values]
    assert hash_values(given, table, make_leaf(tmp_path, stored)) == hash_with_xxhash(
        [each.encode() for each in values]
    )


def test_fixed_length_bytes_and_UUIDs(tmp_path: Path) -> None:
    values = [bytes(range(16)), bytes(16)]
    for stored in (pa.binary(16), pa.uuid()):
        leaf = make_leaf(tmp_path, stored)
        assert hash_values(values, pa.binary(16), leaf) == hash_with_xxhash(values)
        assert hash_values([*values, b"short"], pa.binary(), leaf) == hash_with_xxhash(values)
        assert isinstance(hash_stored_values(pa.array(["text"]), leaf), Unavailable)
    identifiers = pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))
    assert sorted(hash_stored_values(identifiers, make_leaf(tmp_path, pa.uuid()))) == hash_with_xxhash(values)


def test_values_in_a_dictionary_are_hashed_by_value(tmp_path: Path) -> None:
    data_type = pa.dictionary(pa.int32(), pa.string())
    values = pa.array(["a", "b", "a"]).dictionary_encode()
    assert set(hash_stored_values(values, make_leaf(tmp_path, data_type)).tolist()) == set(
        hash_with_xxhash([b"a", b"b"])
    )


# --- Values without hash ----------------------------------------------------------------------------------------------


def test_B7_NULL_is_in_no_filter(tmp_path: Path) -> None:
    leaf = make_leaf(tmp_path, pa.int32())
    assert hash_values([None], pa.int32(), leaf) == []
    assert hash_values([None, 1], pa.int32(), leaf) == hash_with_xxhash([struct.pack("<i", 1)])


def test_booleans_are_not_looked_up(tmp_path: Path) -> None:
    assert isinstance(hash_stored_values(pa.array([True]), make_leaf(tmp_path, pa.bool_())), Unavailable)


def test_T3_INT96_is_not_looked_up(tmp_path: Path) -> None:
    leaf = make_leaf(tmp_path, pa.timestamp("ns"), use_deprecated_int96_timestamps=True)
    assert leaf.physical == "INT96"
    assert isinstance(hash_stored_values(pa.array([0], pa.timestamp("ns")), leaf), Unavailable)


@pytest.mark.parametrize(
    ("table", "stored"),
    [
        (pa.string(), pa.int32()),
        (pa.int32(), pa.string()),
        (pa.int64(), pa.float64()),
        (pa.decimal128(25, 2), pa.float64()),
        (pa.float64(), pa.decimal128(5, 2)),
        (pa.int64(), pa.decimal128(5, 0)),
        (pa.bool_(), pa.int32()),
        (pa.int32(), pa.bool_()),
    ],
)
def test_inexactly_convertible_types_are_not_looked_up(tmp_path: Path, table: pa.DataType, stored: pa.DataType) -> None:
    assert isinstance(hash_stored_values(pa.array([1]).cast(table), make_leaf(tmp_path, stored)), Unavailable)
