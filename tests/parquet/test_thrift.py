"""Thrift's compact protocol: round trips, and errors for hostile input."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.errors import CorruptFile
from tamis.parquet.footer import thrift
from tamis.parquet.footer.thrift import (
    BINARY,
    BOOLEAN,
    BYTES,
    FLAG,
    I16,
    I32,
    I64,
    INTEGER32,
    INTEGER64,
    LIST,
    MAP,
    RAW_STRUCT,
    STRUCT,
    Malformed,
    decode_or_raise,
    encode_integer,
    encode_list,
    encode_struct,
    encode_varint,
    make_list_kind,
    make_struct_kind,
    read_binaries,
    read_booleans,
    read_i16,
    read_integers,
    read_struct,
    read_varint,
    read_varints,
    skip,
)

INT64 = st.integers(-(2**63), 2**63 - 1)


def read(data: bytes, wanted: dict[int, thrift.Kind]) -> dict[int, Any]:
    return decode_or_raise(
        lambda content, position: read_struct(content, position, wanted), data, 0, "the struct of 'f'"
    )


# --- Round trips ------------------------------------------------------------------------------------------------------


@given(
    INT64, st.integers(-(2**31), 2**31 - 1), st.integers(-(2**15), 2**15 - 1), st.binary(max_size=200), st.booleans()
)
def test_fields_of_a_struct_come_back(long: int, number: int, short: int, text: bytes, flag: bool) -> None:
    fields = [(1, I64, long), (3, I32, number), (40, I16, short), (41, BINARY, text), (42, BOOLEAN, flag)]
    data = encode_struct([*fields, (50, I32, None)])
    wanted = {1: INTEGER64, 3: INTEGER32, 40: (I16, read_i16), 41: BYTES, 42: FLAG, 50: INTEGER32}
    assert read_struct(data + b"rest", 0, wanted) == ({1: long, 3: number, 40: short, 41: text, 42: flag}, len(data))


@given(st.lists(INT64, max_size=40), st.lists(st.binary(max_size=150), max_size=20))
def test_lists_come_back(numbers: list[int], texts: list[bytes]) -> None:
    data = encode_struct([(1, LIST, encode_list(I64, numbers)), (2, LIST, encode_list(BINARY, texts))])
    assert read(data, {1: make_list_kind(INTEGER64), 2: make_list_kind(BYTES)}) == {1: numbers, 2: texts}
    assert read(data, {2: thrift.BINARIES}) == {2: texts}
    assert read(data, {1: thrift.INTEGERS})[1].tolist() == numbers


@given(st.lists(st.integers(0, 2**64 - 1), max_size=50))
def test_numbers_read_at_once_are_those_read_one_by_one(numbers: list[int]) -> None:
    data = b"".join(map(encode_varint, numbers))
    found, lengths, end = read_varints(b"xx" + data + b"\x05", 2, len(numbers))
    assert found.tolist() == numbers
    assert lengths.tolist() == [len(encode_varint(number)) for number in numbers]
    assert end == 2 + len(data)
    position = 0
    for number in numbers:
        value, position = read_varint(data, position)
        assert value == number


def test_an_id_may_be_absolute_and_smaller_than_the_previous() -> None:
    data = bytes([I32]) + encode_integer(300) + encode_integer(7) + bytes([I32]) + encode_integer(2) + b"\x04\x00"
    assert read(data, {300: INTEGER32, 2: INTEGER32}) == {300: 7, 2: 2}


def test_booleans_in_lists_are_one_byte_each_and_false_has_two_spellings() -> None:
    for kind in (thrift.TRUE, thrift.FALSE):
        found, end = read_booleans(bytes([4 << 4 | kind, 1, 2, 0, 1]), 0)
        assert found.tolist() == [True, False, False, True]
        assert end == 5
    assert read_booleans(b"\x01", 0)[0].tolist() == []
    with pytest.raises(Malformed):
        read_booleans(b"\x11\x03", 0)


def test_structs_can_be_kept_encoded() -> None:
    inner = encode_struct([(1, BINARY, b"abc"), (2, STRUCT, encode_struct([(1, BOOLEAN, False)]))])
    assert read(encode_struct([(9, STRUCT, inner)]), {9: RAW_STRUCT}) == {9: inner}


# --- Skipping unwanted fields -----------------------------------------------------------------------------------------


def values(depth: int = 3) -> st.SearchStrategy[tuple[int, bytes]]:
    """Draw the type and the bytes of any value."""
    simple = st.one_of(
        st.tuples(st.sampled_from((I16, I32, I64)), INT64.map(encode_integer)),
        st.tuples(st.just(BINARY), st.binary(max_size=300).map(lambda text: encode_varint(len(text)) + text)),
        st.tuples(st.just(thrift.BYTE), st.binary(min_size=1, max_size=1)),
        st.tuples(st.just(thrift.DOUBLE), st.binary(min_size=8, max_size=8)),
        st.tuples(st.just(thrift.UUID), st.binary(min_size=16, max_size=16)),
    )
    if depth == 0:
        return simple
    inner = values(depth - 1)
    structs = st.lists(inner | st.tuples(st.sampled_from((1, 2)), st.just(b"")), max_size=4).map(
        lambda fields: (STRUCT, b"".join(bytes([1 << 4 | kind]) + data for kind, data in fields) + b"\x00")
    )
    lists = st.tuples(inner, st.integers(0, 20), st.sampled_from((LIST, thrift.SET))).map(
        lambda made: (made[2], encode_list_of(made[0], made[1]))
    )
    maps = st.tuples(inner, inner, st.integers(0, 5)).map(lambda made: (MAP, encode_map_of(*made)))
    return st.one_of(simple, structs, lists, maps)


def encode_list_of(element: tuple[int, bytes], size: int) -> bytes:
    kind, data = element
    header = bytes([min(size, 15) << 4 | kind]) + (encode_varint(size) if size >= 15 else b"")
    return header + data * size


def encode_map_of(key: tuple[int, bytes], value: tuple[int, bytes], size: int) -> bytes:
    return encode_varint(size) + (bytes([key[0] << 4 | value[0]]) + (key[1] + value[1]) * size if size else b"")


@given(values())
def test_a_value_of_any_type_is_skipped(value: tuple[int, bytes]) -> None:
    kind, data = value
    assert skip(data + b"\x15", 0, kind) == len(data)


@given(values(), INT64)
def test_unwanted_fields_do_not_disturb_wanted_ones(value: tuple[int, bytes], number: int) -> None:
    kind, data = value
    content = bytes([5 << 4 | kind]) + data + b"\x12" + bytes([2 << 4 | I64]) + encode_integer(number) + b"\x00"
    assert read(content, {8: INTEGER64}) == {8: number}


# --- Hostile bytes ----------------------------------------------------------------------------------------------------

WANTED = {
    1: INTEGER32,
    2: INTEGER64,
    3: BYTES,
    4: make_struct_kind({1: INTEGER32}),
    5: make_list_kind(INTEGER32),
    6: FLAG,
}
GOOD = encode_struct(
    [
        (1, I32, -5),
        (2, I64, 2**40),
        (3, BINARY, b"text"),
        (4, STRUCT, encode_struct([(1, I32, 3), (2, BINARY, b"unknown")])),
        (5, LIST, encode_list(I32, list(range(20)))),
        (6, BOOLEAN, True),
        (7, STRUCT, encode_struct([(1, LIST, encode_list(STRUCT, [b"\x00"] * 3))])),
    ]
)


def test_X1_bytes_truncated_anywhere_are_an_error() -> None:
    for length in range(len(GOOD)):
        with pytest.raises(CorruptFile, match=r"the struct of 'f' is (truncated|damaged)"):
            read(GOOD[:length], WANTED)


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        pytest.param(bytes([1 << 4 | BINARY]) + encode_varint(2**40), {1: BYTES}, id="wanted text"),
        pytest.param(bytes([1 << 4 | BINARY]) + encode_varint(2**63), {}, id="unwanted text"),
        pytest.param(
            bytes([1 << 4 | LIST, 0xF6]) + encode_varint(2**40), {1: make_list_kind(INTEGER64)}, id="wanted list"
        ),
        pytest.param(bytes([1 << 4 | LIST, 0xF6]) + encode_varint(2**40), {1: thrift.INTEGERS}, id="numbers"),
        pytest.param(bytes([1 << 4 | LIST, 0xF1]) + encode_varint(2**40), {1: thrift.BOOLEANS}, id="booleans"),
        pytest.param(bytes([1 << 4 | LIST, 0xF8]) + encode_varint(2**40), {1: thrift.BINARIES}, id="texts"),
        pytest.param(bytes([1 << 4 | LIST, 0xF1]) + encode_varint(2**60), {}, id="unwanted booleans"),
        pytest.param(bytes([1 << 4 | LIST, 0xFC]) + encode_varint(2**60), {}, id="unwanted structs"),
        pytest.param(bytes([1 << 4 | MAP]) + encode_varint(2**60) + b"\x55", {}, id="unwanted map"),
        pytest.param(bytes([1 << 4 | LIST, 0x28, 1, 65, 9, 65]), {1: thrift.BINARIES}, id="last text too long"),
    ],
)
def test_X1_lengths_beyond_the_remaining_bytes_are_an_error(data: bytes, wanted: dict[int, thrift.Kind]) -> None:
    with pytest.raises(CorruptFile):
        read(data + b"\x00", wanted)


@pytest.mark.parametrize("opening", [bytes([1 << 4 | STRUCT]), bytes([0x19]), bytes([1 << 4 | MAP, 1, 0xCC])])
def test_X2_nesting_is_limited_without_recursion(opening: bytes) -> None:
    deep = bytes([1 << 4 | LIST]) + b"\x19" * 100_000 if opening == b"\x19" else opening * 100_000
    with pytest.raises(CorruptFile, match=r"nested deeper than|but only"):
        read(deep + b"\x00" * 100_001, {})


def test_nesting_below_the_limit_is_fine() -> None:
    depth = thrift.MAX_NESTING - 2
    assert read(bytes([1 << 4 | STRUCT]) * depth + b"\x00" * (depth + 1), {}) == {}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x15\x02\x05\x02\x04\x00", "field 1 occurs twice"),
        (b"\x18\x01a\x00", "field 1 has type 8, not 5"),
        (b"\x11\x00", "field 1 has type 1, not 5"),
        (b"\x65\x02\x00", "field 6 has type 5, not 1"),
        (bytes([0x15]) + encode_varint(2**32) + b"\x00", "more than 32 bits"),
        (bytes([0x26]) + b"\xff" * 9 + b"\x02\x00", "more than 64 bits"),
        (bytes([0x26]) + b"\x80" * 11 + b"\x00\x00", "more than 64 bits"),
        (bytes([0x59, 0x16, 0x02]) + b"\x00", "elements of type 6, not 5"),
        (b"\x8e\x00", "type 14 is not supported"),
        (b"\x80\x00", "has no type"),
        (bytes([I32]) + encode_varint(2**16) + b"\x00\x00", "more than 16 bits"),
    ],
)
def test_invalid_structs_are_an_error(data: bytes, message: str) -> None:
    with pytest.raises(CorruptFile, match=message):
        read(data, WANTED)


def test_numbers_read_at_once_have_64_bits_at_most() -> None:
    for stored in (b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\x00", b"\x80" * 30):
        with pytest.raises(Malformed):
            read_varints(stored, 0, 1)
    largest = np.iinfo(np.uint64).max
    assert read_varints(b"\xff" * 9 + b"\x01", 0, 1)[0].tolist() == [largest]


@given(st.binary(max_size=300))
def test_any_bytes_give_a_value_or_CorruptFile(data: bytes) -> None:
    readers = (read_integers, read_binaries, read_booleans, lambda content, at: read_struct(content, at, WANTED))
    for reader in readers:
        with suppress(CorruptFile):
            decode_or_raise(reader, data, 0, "it")


def test_damaged_structs_give_a_value_or_CorruptFile() -> None:
    generator = random.Random(1)
    for _ in range(5_000):
        changed = bytearray(GOOD)
        for _ in range(generator.randrange(1, 4)):
            changed[generator.randrange(len(changed))] = generator.randrange(256)
        with suppress(CorruptFile):
            assert set(read(bytes(changed), WANTED)) <= set(WANTED)
