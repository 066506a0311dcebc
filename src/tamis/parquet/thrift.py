"""Thrift's compact protocol: what Parquet's metadata is written in, read from bytes that nobody vouches for.

A struct to read is a mapping from the ids of the wanted fields to their kinds; what it does not name is stepped over.

| what is found                                              | what happens                                         |
|------------------------------------------------------------|------------------------------------------------------|
| a length or a size beyond the bytes at hand                | `Malformed`, before anything is made of that size    |
| a wanted field of another type, or twice                   | `Malformed`                                          |
| a number that its type does not have                       | `Malformed`                                          |
| containers within containers, deeper than `DEEPEST`        | `Malformed`; there is no recursion over the input    |
| the bytes end                                              | `IndexError`                                         |

`decoded` runs a reader and turns both errors into a `CorruptFile` that names the place. All readers take the bytes and
a position, and return the value and the position after it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tamis.errors import CorruptFile

# Types of the compact protocol. In a list a boolean is either of two types, and a byte of its own.
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)
BOOLEAN = TRUE

DEEPEST = 32
"""Nothing in Parquet is nested half as deep."""

_LONGEST_VARINT = 10
_VARINTS = (I16, I32, I64)
_WIDTHS = {TRUE: 1, FALSE: 1, BYTE: 1, DOUBLE: 8, UUID: 16}
_UNTIL_IT_ENDS = -1

Value = TypeVar("Value")
Reader = Callable[[bytes, int], tuple[Any, int]]
Kind = tuple[int, Reader]
"""The type on the wire, and what reads a value of it."""
Struct = dict[int, Any]
Int64Array = npt.NDArray[np.int64]


class Malformed(ValueError):
    """Bytes that are no Thrift, or not the struct that was asked for."""


def decoded(read: Callable[[bytes, int], tuple[Value, int]], data: bytes, position: int, what: str) -> Value:
    """What a reader finds; `what` names the thing and the place in the message where it finds none."""
    try:
        return read(data, position)[0]
    except IndexError as error:
        raise CorruptFile(f"{what} is cut off; write the file again") from error
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
        raise Malformed(f"{length} bytes are announced where {len(data) - start} are left")
    return data[start:end], end


def read_list_header(data: bytes, position: int) -> tuple[int, int, int]:
    """The type of the elements, their number, and where the first is."""
    byte = data[position]
    size, position = byte >> 4, position + 1
    if size == 15:
        size, position = read_varint(data, position)
    # Every element takes a byte at least.
    if size > len(data) - position:
        raise Malformed(f"a list of {size} elements is announced where {len(data) - position} bytes are left")
    return byte & 15, size, position


def read_booleans(data: bytes, position: int) -> tuple[npt.NDArray[np.bool_], int]:
    element, size, position = read_list_header(data, position)
    if size and element not in (TRUE, FALSE):
        raise Malformed(f"a list of booleans has elements of type {element}")
    if size == 0:
        return np.empty(0, np.bool_), position
    values = np.frombuffer(data, np.uint8, size, position)
    # Some writers have 0 for false, as the specification once allowed.
    if values.max() > FALSE:
        raise Malformed("a list of booleans has other elements")
    return values == TRUE, position + size


def read_integers(data: bytes, position: int) -> tuple[Int64Array, int]:
    """A list of 64-bit numbers, as an array."""
    element, size, position = read_list_header(data, position)
    if size and element != I64:
        raise Malformed(f"a list of 64-bit numbers has elements of type {element}")
    numbers, _, position = read_varints(data, position, size)
    return unzigzag(numbers), position


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
        raise Malformed("a byte string is longer than the bytes that are left")
    return values, position


def read_varints(data: bytes, position: int, count: int) -> tuple[npt.NDArray[np.uint64], Int64Array, int]:
    """Numbers one after the other, as they are stored: the numbers, the lengths of each in bytes, where they end."""
    if count == 0:
        return np.empty(0, np.uint64), np.empty(0, np.int64), position
    stored = np.frombuffer(data, np.uint8, offset=position)[: count * _LONGEST_VARINT]
    last = np.flatnonzero(stored < 0x80)[:count]
    if len(last) < count:
        raise Malformed("a list of numbers is cut off")
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


def unzigzag(numbers: npt.NDArray[np.uint64]) -> Int64Array:
    one = np.uint64(1)
    return (numbers >> one).astype(np.int64) ^ -(numbers & one).astype(np.int64)


# --- Structs ---------------------------------------------------------------------------------------------------------

INTEGER16: Kind = (I16, read_i16)
INTEGER32: Kind = (I32, read_i32)
INTEGER64: Kind = (I64, read_i64)
BYTES: Kind = (BINARY, read_binary)
BOOLEANS: Kind = (LIST, read_booleans)
INTEGERS: Kind = (LIST, read_integers)
BINARIES: Kind = (LIST, read_binaries)


def _read_nothing(data: bytes, position: int) -> tuple[None, int]:
    return None, position


FLAG: Kind = (BOOLEAN, _read_nothing)
"""A boolean: the type in the header of its field is all there is of it."""


def read_struct(data: bytes, position: int, wanted: Mapping[int, Kind]) -> tuple[Struct, int]:
    """The wanted fields that are there, by their ids.

    What is short and comes often is read or stepped over right here: calls are what takes the time.
    """
    found: Struct = {}
    identifier = 0
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
            raise Malformed(f"field {identifier} comes twice")
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


def struct_of(wanted: Mapping[int, Kind]) -> Kind:
    return STRUCT, lambda data, position: read_struct(data, position, wanted)


def list_of(kind: Kind) -> Kind:
    """A list of what `kind` reads; only for lists that are short, or whose elements are large."""
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
"""A struct as the bytes that it is stored in."""


def required(found: Struct, identifier: int, name: str) -> Any:
    if identifier not in found:
        raise Malformed(f"it has no {name}")
    return found[identifier]


def _headers(*kinds: int) -> bytes:
    return b"[" + b"".join(re.escape(bytes([step << 4 | kind])) for step in range(1, 16) for kind in kinds) + b"]"


# Fields of numbers and booleans, as many as follow each other: most of what is stepped over. Matches nothing at least.
_NUMBERS = re.compile(
    b"(?:" + _headers(*_VARINTS) + rb"[\x80-\xff]*+[\x00-\x7f]|" + _headers(TRUE, FALSE) + b")*+", re.DOTALL
)


def skip(data: bytes, position: int, kind: int) -> int:
    """Where a value of this type, not a boolean in a struct, ends. Past the end of the bytes for one cut off."""
    # What is open around the value at hand: how many values are to come, and their types by turns.
    remaining, first, second = 1, kind, kind
    stack: list[tuple[int, int, int]] = []
    match_numbers = _NUMBERS.match
    while True:
        if remaining == _UNTIL_IT_ENDS:
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
            remaining = _UNTIL_IT_ENDS
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
                    raise Malformed(f"a map of {size} entries is announced where {len(data) - position} bytes are left")
                stack.append((remaining, first, second))
                remaining, first, second = 2 * size, data[position] >> 4, data[position] & 15
                position += 1
        else:
            raise Malformed(f"there is no type {kind}")
        if len(stack) > DEEPEST:
            raise Malformed(f"it is nested more than {DEEPEST} deep")


# --- Writing ---------------------------------------------------------------------------------------------------------


def encode_varint(number: int) -> bytes:
    """A number from 0 to 2^64 - 1.

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
    """A struct of `(id, type, value)`, ids growing; a field whose value is None is left out.

    Lists and structs are given as the bytes that `encode_list` and this function make of them.
    """
    return encode_fields(fields) + END_OF_STRUCT


END_OF_STRUCT = b"\0"


def encode_fields(fields: Iterable[tuple[int, int, Any]], after: int = 0) -> bytes:
    """Fields of a struct that follow the one with the id `after`, without its end."""
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
