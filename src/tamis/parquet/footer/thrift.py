"""Reader and writer for Thrift's compact protocol, the encoding of Parquet's metadata. The input is untrusted.

A struct to read is a mapping from the ids of the wanted fields to their kinds; other fields are skipped.

| input                                                      | result                                               |
|------------------------------------------------------------|------------------------------------------------------|
| a length or a size beyond the remaining bytes              | `Malformed`, before that size is allocated           |
| a wanted field of another type, or twice                   | `Malformed`                                          |
| a number outside the range of its type                     | `Malformed`                                          |
| containers nested deeper than `MAX_NESTING`                | `Malformed`; there is no recursion over the input    |
| the bytes end                                              | `IndexError`                                         |

`decode_or_raise` runs a reader and turns both errors into a `CorruptFile` that names the location. All readers take the
bytes and a position, and return the value and the position after it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tamis.errors import CorruptFile

# Types of the compact protocol. In a list, a boolean has either of the two types and takes one byte.
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)
BOOLEAN = TRUE

MAX_NESTING = 32
"""The maximum nesting depth. Parquet's own structures are nested less than half as deep."""

_LONGEST_VARINT = 10
_VARINTS = (I16, I32, I64)
_WIDTHS = {TRUE: 1, FALSE: 1, BYTE: 1, DOUBLE: 8, UUID: 16}
_UNTIL_STOP = -1

Value = TypeVar("Value")
Reader = Callable[[bytes, int], tuple[Any, int]]
Kind = tuple[int, Reader]
"""The wire type, and the reader of its values."""
Struct = dict[int, Any]
Int64Array = npt.NDArray[np.int64]


class Malformed(ValueError):
    """The bytes are not valid Thrift, or not the requested struct."""


def decode_or_raise(read: Callable[[bytes, int], tuple[Value, int]], data: bytes, position: int, what: str) -> Value:
    """Return the result of a reader; `what` names the structure and its location in the error message."""
    try:
        return read(data, position)[0]
    except IndexError as error:
        raise CorruptFile(f"{what} is truncated; write the file again") from error
    except Malformed as error:
        raise CorruptFile(f"{what} is damaged: {error}; write the file again") from error


# --- Numbers and bytes -----------------------------------------------------------------------------------------------


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value, shift = byte & 0x7F, 7
    for at in range(position + 1, position + _LONGEST_VARINT):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 0x1_0000_0000_0000_0000:
                break
            return value, at + 1
        shift += 7
    raise Malformed("a number has more than 64 bits")


def read_i64(data: bytes, position: int) -> tuple[int, int]:
    number, position = read_varint(data, position)
    return (number >> 1) ^ -(number & 1), position


def read_i32(data: bytes, position: int) -> tuple[int, int]:
    number, position = read_varint(data, position)
    if number >= 0x1_0000_0000:
        raise Malformed("a number has more than 32 bits")
    return (number >> 1) ^ -(number & 1), position


def read_i16(data: bytes, position: int) -> tuple[int, int]:
    number, position = read_varint(data, position)
    if number >= 0x1_0000:
        raise Malformed("a number has more than 16 bits")
    return (number >> 1) ^ -(number & 1), position


def read_binary(data: bytes, position: int) -> tuple[bytes, int]:
    length, start = read_varint(data, position)
    end = start + length
    if end > len(data):
        raise Malformed(f"a byte string has {length} bytes, but only {len(data) - start} remain")
    return data[start:end], end


def read_list_header(data: bytes, position: int) -> tuple[int, int, int]:
    """Return the type of the elements, their number, and the position of the first."""
    byte = data[position]
    size, position = byte >> 4, position + 1
    if size == 15:
        size, position = read_varint(data, position)
    # Every element takes at least one byte.
    if size > len(data) - position:
        raise Malformed(f"a list has {size} elements, but only {len(data) - position} bytes remain")
    return byte & 15, size, position


def read_booleans(data: bytes, position: int) -> tuple[npt.NDArray[np.bool_], int]:
    element, size, position = read_list_header(data, position)
    if size and element not in (TRUE, FALSE):
        raise Malformed(f"a list of booleans has elements of type {element}")
    if size == 0:
        return np.empty(0, np.bool_), position
    values = np.frombuffer(data, np.uint8, size, position)
    # Some writers use 0 for false, as the specification once allowed.
    if values.max() > FALSE:
        raise Malformed("a list of booleans has other elements")
    return values == TRUE, position + size


def read_integers(data: bytes, position: int) -> tuple[Int64Array, int]:
    """Read a list of 64-bit integers as an array."""
    element, size, position = read_list_header(data, position)
    if size and element != I64:
        raise Malformed(f"a list of 64-bit numbers has elements of type {element}")
    numbers, _, position = read_varints(data, position, size)
    return decode_zigzag(numbers), position


def read_binaries(data: bytes, position: int) -> tuple[list[bytes], int]:
    element, size, position = read_list_header(data, position)
    if size and element != BINARY:
        raise Malformed(f"a list of byte strings has elements of type {element}")
    values = []
    for _ in range(size):
        length = data[position]
        position += 1
        if length >= 0x80:
            length, position = read_varint(data, position - 1)
        end = position + length
        values.append(data[position:end])
        position = end
    if position > len(data):
        raise Malformed("a byte string is longer than the remaining bytes")
    return values, position


def read_varints(data: bytes, position: int, count: int) -> tuple[npt.NDArray[np.uint64], Int64Array, int]:
    """Read consecutive varints; return the numbers, their lengths in bytes, and the end position."""
    if count == 0:
        return np.empty(0, np.uint64), np.empty(0, np.int64), position
    stored = np.frombuffer(data, np.uint8, offset=position)[: count * _LONGEST_VARINT]
    last = np.flatnonzero(stored < 0x80)[:count]
    if len(last) < count:
        raise Malformed("a list of numbers is truncated")
    lengths = np.diff(last, prepend=-1)
    first = last - lengths + 1
    longest = int(lengths.max())
    if longest > _LONGEST_VARINT or (longest == _LONGEST_VARINT and stored[last[lengths == longest]].max() > 1):
        raise Malformed("a number has more than 64 bits")
    if longest == 1:
        return stored[:count].astype(np.uint64), lengths, position + count
    stored = stored[: last[-1] + 1]
    shifts = (np.arange(len(stored)) - np.repeat(first, lengths)).astype(np.uint64) * np.uint64(7)
    parts = (stored & 0x7F).astype(np.uint64) << shifts
    return np.add.reduceat(parts, first), lengths, position + len(stored)


def decode_zigzag(numbers: npt.NDArray[np.uint64]) -> Int64Array:
    one = np.uint64(1)
    return (numbers >> one).astype(np.int64) ^ -(numbers & one).astype(np.int64)


# --- Structs ---------------------------------------------------------------------------------------------------------

INTEGER32: Kind = (I32, read_i32)
INTEGER64: Kind = (I64, read_i64)
BYTES: Kind = (BINARY, read_binary)
BOOLEANS: Kind = (LIST, read_booleans)
INTEGERS: Kind = (LIST, read_integers)
BINARIES: Kind = (LIST, read_binaries)


FLAG: Kind = (BOOLEAN, lambda data, position: (None, position))
"""A boolean field, whose value is encoded in the type of its header."""


def read_struct(data: bytes, position: int, wanted: Mapping[int, Kind], identifier: int = 0) -> tuple[Struct, int]:
    """Read the wanted fields that are present, by their ids; `identifier` is the id of the field before the position.

    Short and frequent values are read or skipped inline, because calls dominate the time.
    """
    found: Struct = {}
    while True:
        byte = data[position]
        position += 1
        if byte == 0:
            return found, position
        kind = byte & 15
        if byte >> 4:
            identifier += byte >> 4
        else:
            identifier, position = read_i16(data, position)
        expected = wanted.get(identifier)
        if expected is None:
            if I16 <= kind <= I64:
                while data[position] >= 0x80:
                    position += 1
                position += 1
            elif kind == BINARY and data[position] < 0x80:
                position += 1 + data[position]
            elif kind > FALSE:
                position = skip(data, position, kind)
            elif kind == 0:
                raise Malformed("a field has no type")
            continue
        if identifier in found:
            raise Malformed(f"field {identifier} occurs twice")
        if kind == expected[0]:
            if I16 <= kind <= I64 and data[position] < 0x80:
                byte = data[position]
                found[identifier] = (byte >> 1) ^ -(byte & 1)
                position += 1
            elif kind == TRUE:
                found[identifier] = True
            else:
                found[identifier], position = expected[1](data, position)
        elif kind == FALSE and expected is FLAG:
            found[identifier] = False
        else:
            raise Malformed(f"field {identifier} has type {kind}, not {expected[0]}")


def make_struct_kind(wanted: Mapping[int, Kind]) -> Kind:
    return STRUCT, lambda data, position: read_struct(data, position, wanted)


def make_list_kind(kind: Kind) -> Kind:
    """Return the kind of a list; only for short lists, or lists with large elements."""
    element_type, read_element = kind

    def read(data: bytes, position: int) -> tuple[list[Any], int]:
        element, size, position = read_list_header(data, position)
        if size and element != element_type:
            raise Malformed(f"a list has elements of type {element}, not {element_type}")
        values = []
        for _ in range(size):
            value, position = read_element(data, position)
            values.append(value)
        return values, position

    return LIST, read


def _read_raw_struct(data: bytes, position: int) -> tuple[bytes, int]:
    end = skip(data, position, STRUCT)
    return data[position:end], end


RAW_STRUCT: Kind = (STRUCT, _read_raw_struct)
"""A struct as its encoded bytes."""


def get_required(found: Struct, identifier: int, name: str) -> Any:
    if identifier not in found:
        raise Malformed(f"it has no {name}")
    return found[identifier]


def _match_headers(*kinds: int) -> bytes:
    return b"[" + b"".join(re.escape(bytes([step << 4 | kind])) for step in range(1, 16) for kind in kinds) + b"]"


# Consecutive fields of numbers and booleans, which are most of what is skipped. May match the empty string.
_NUMBERS = re.compile(
    b"(?:" + _match_headers(*_VARINTS) + rb"[\x80-\xff]*+[\x00-\x7f]|" + _match_headers(TRUE, FALSE) + b")*+", re.DOTALL
)


def skip(data: bytes, position: int, kind: int) -> int:
    """Return the end of a value of this type (not a boolean field); past the end of the bytes if it is truncated."""
    # The container around the current value: the number of values to come, and their types, which alternate.
    remaining, first, second = 1, kind, kind
    stack: list[tuple[int, int, int]] = []
    match_numbers = _NUMBERS.match
    while True:
        if remaining == _UNTIL_STOP:
            position = match_numbers(data, position).end()  # type: ignore[union-attr]
            byte = data[position]
            position += 1
            if byte == 0:
                remaining, first, second = stack.pop()
                continue
            kind = byte & 15
            if byte < 16:
                _, position = read_i16(data, position)
            if kind <= FALSE:
                if kind == 0:
                    raise Malformed("a field has no type")
                continue
        elif remaining == 0:
            if not stack:
                return position
            remaining, first, second = stack.pop()
            continue
        else:
            remaining -= 1
            kind, first, second = first, second, first
        if I16 <= kind <= I64:
            while data[position] >= 0x80:
                position += 1
            position += 1
        elif kind == BINARY:
            length, position = read_varint(data, position)
            position += length
        elif kind == STRUCT:
            stack.append((remaining, first, second))
            remaining = _UNTIL_STOP
        elif kind in _WIDTHS:
            position += _WIDTHS[kind]
        elif kind in (LIST, SET):
            element, size, position = read_list_header(data, position)
            if element in _WIDTHS:
                position += size * _WIDTHS[element]
            else:
                stack.append((remaining, first, second))
                remaining, first, second = size, element, element
        elif kind == MAP:
            size, position = read_varint(data, position)
            if size:
                if 2 * size > len(data) - position:
                    raise Malformed(f"a map has {size} entries, but only {len(data) - position} bytes remain")
                stack.append((remaining, first, second))
                remaining, first, second = 2 * size, data[position] >> 4, data[position] & 15
                position += 1
        else:
            raise Malformed(f"the type {kind} is not supported")
        if len(stack) > MAX_NESTING:
            raise Malformed(f"it is nested deeper than {MAX_NESTING} levels")


# --- Writing ---------------------------------------------------------------------------------------------------------


def encode_varint(number: int) -> bytes:
    """Encode a number from 0 to 2^64 - 1.

    >>> encode_varint(1).hex(), encode_varint(300).hex()
    ('01', 'ac02')
    """
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def encode_integer(number: int) -> bytes:
    return encode_varint((number << 1) ^ (number >> 63))


def encode_struct(fields: Iterable[tuple[int, int, Any]]) -> bytes:
    """Encode a struct of `(id, type, value)` with ascending ids; fields with the value None are omitted.

    Lists and structs are given as the bytes from `encode_list` and this function.
    """
    return encode_fields(fields) + END_OF_STRUCT


END_OF_STRUCT = b"\0"


def encode_fields(fields: Iterable[tuple[int, int, Any]], after: int = 0) -> bytes:
    """Encode fields of a struct that follow the field with the id `after`, without the end of the struct."""
    out = bytearray()
    last = after
    for identifier, kind, value in fields:
        if value is None:
            continue
        if kind == BOOLEAN and not value:
            kind = FALSE
        step = identifier - last
        last = identifier
        if 0 < step < 16:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            out += encode_integer(identifier)
        if kind in _VARINTS:
            out += encode_integer(value)
        elif kind == BINARY:
            out += encode_varint(len(value))
            out += value
        elif kind in (LIST, STRUCT):
            out += value
    return bytes(out)


def encode_list(kind: int, values: Sequence[Any]) -> bytes:
    size = len(values)
    header = bytes((size << 4 | kind,)) if size < 15 else bytes((15 << 4 | kind,)) + encode_varint(size)
    if kind in _VARINTS:
        return header + b"".join(map(encode_integer, values))
    if kind == BINARY:
        return header + b"".join(encode_varint(len(value)) + value for value in values)
    return header + b"".join(values)
