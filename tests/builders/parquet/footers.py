"""Footers written again without some of their fields, as writers leave them out, or with other values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tamis.parquet.footer.thrift import (
    END_OF_STRUCT,
    LIST,
    STRUCT,
    encode_integer,
    encode_varint,
    read_i16,
    read_i64,
    read_list_header,
    skip,
)

STATISTICS = (4, 1, 3, 12)
"""Of every column chunk: row groups, columns, metadata, statistics."""

FILE_ROWS, CREATED_BY = (3,), (6,)
GROUP_ROWS = (4, 3)
CHUNK_VALUES, COMPRESSED_SIZE, DATA_OFFSET, DICTIONARY_OFFSET = (4, 1, 3, 5), (4, 1, 3, 7), (4, 1, 3, 9), (4, 1, 3, 11)
"""Fields of a footer, by the path of their ids."""

_MAGIC = b"PAR1"

Change = Callable[[bytes], bytes | None]
"""From the bytes of a value to those that stand there instead; None leaves the field away."""


def remove_statistics(path: Path) -> None:
    """Leave the statistics of column chunks away. Page indexes stay, which are outside of the footer."""
    change_field(path, STATISTICS, lambda value: None)


def add_to_numbers(path: Path, field: tuple[int, ...], *steps: int) -> None:
    """Add to the numbers of a field, wherever it occurs: the first step to the first, and so on, the last to others."""
    left = list(steps)

    def add(value: bytes) -> bytes:
        step = left.pop(0) if len(left) > 1 else left[0]
        return encode_integer(read_i64(value, 0)[0] + step)

    change_field(path, field, add)


def change_field(path: Path, field: tuple[int, ...], change: Change) -> None:
    """Write the footer of a file again, with other values of a field, wherever it occurs."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    start = len(data) - 8 - length
    footer, _ = _rewritten(data[start:-8], 0, field, change)
    path.write_bytes(data[:start] + footer + len(footer).to_bytes(4, "little") + _MAGIC)


def _rewritten(data: bytes, position: int, path: tuple[int, ...], change: Change) -> tuple[bytes, int]:
    """A struct with the field at a path of ids changed, in which lists of structs do not count."""
    out = bytearray()
    identifier = last = 0
    while data[position]:
        kind, step = data[position] & 15, data[position] >> 4
        position += 1
        if step:
            identifier += step
        else:
            identifier, position = read_i16(data, position)
        start, position, value = position, *_value(data, position, kind, identifier, path, change)
        if (identifier,) == path:
            value = change(data[start:position])
            if value is None:
                continue
        out += (
            bytes([identifier - last << 4 | kind])
            if identifier - last < 16
            else bytes([kind]) + encode_integer(identifier)
        )
        out += data[start:position] if value is None else value
        last = identifier
    return bytes(out) + END_OF_STRUCT, position + 1


def _value(
    data: bytes, position: int, kind: int, identifier: int, path: tuple[int, ...], change: Change
) -> tuple[int, bytes | None]:
    """Where a value ends, and how it is written instead; None: as it is."""
    if kind in (1, 2):
        return position, b""
    if identifier != path[0] or len(path) == 1:
        return skip(data, position, kind), None
    if kind == STRUCT:
        value, position = _rewritten(data, position, path[1:], change)
        return position, value
    assert kind == LIST
    element, size, position = read_list_header(data, position)
    header = bytes([size << 4 | element]) if size < 15 else bytes([15 << 4 | element]) + encode_varint(size)
    values = []
    for _ in range(size):
        value, position = _rewritten(data, position, path[1:], change)
        values.append(value)
    return position, header + b"".join(values)
