"""Footers rewritten without some fields, as some writers omit them, or with other values."""

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
"""The statistics of every column chunk: row groups, columns, metadata, statistics."""

FILE_ROWS, CREATED_BY = (3,), (6,)
GROUP_ROWS = (4, 3)
CHUNK_VALUES, COMPRESSED_SIZE, DATA_OFFSET, DICTIONARY_OFFSET = (4, 1, 3, 5), (4, 1, 3, 7), (4, 1, 3, 9), (4, 1, 3, 11)
"""Fields of a footer, by the path of their ids."""

_MAGIC = b"PAR1"

Change = Callable[[bytes], bytes | None]
"""Maps the bytes of a value to new bytes, or to None, which removes the field."""


def remove_statistics(path: Path) -> None:
    """Remove the statistics of column chunks. Page indexes stay, because they are outside the footer."""
    change_field(path, STATISTICS, lambda value: None)


def add_to_numbers(path: Path, field: tuple[int, ...], *steps: int) -> None:
    """Add steps to the numbers of a field, in the order of occurrence. The last step repeats."""
    left = list(steps)

    def add(value: bytes) -> bytes:
        step = left.pop(0) if len(left) > 1 else left[0]
        return encode_integer(read_i64(value, 0)[0] + step)

    change_field(path, field, add)


def change_field(path: Path, field: tuple[int, ...], change: Change) -> None:
    """Rewrite the footer of a file with other values of a field, wherever it occurs."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    start = len(data) - 8 - length
    footer, _ = _rewrite_struct(data[start:-8], 0, field, change)
    path.write_bytes(data[:start] + footer + len(footer).to_bytes(4, "little") + _MAGIC)


def _rewrite_struct(data: bytes, position: int, path: tuple[int, ...], change: Change) -> tuple[bytes, int]:
    """Return a struct with the field at a path of ids changed, and the position after it."""
    out = bytearray()
    identifier = last = 0
    while data[position]:
        kind, step = data[position] & 15, data[position] >> 4
        position += 1
        if step:
            identifier += step
        else:
            identifier, position = read_i16(data, position)
        start, position, value = position, *_rewrite_value(data, position, kind, identifier, path, change)
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


def _rewrite_value(
    data: bytes, position: int, kind: int, identifier: int, path: tuple[int, ...], change: Change
) -> tuple[int, bytes | None]:
    """Return the end of a value and its new bytes, or None if it stays."""
    if kind in (1, 2):
        return position, b""
    if identifier != path[0] or len(path) == 1:
        return skip(data, position, kind), None
    if kind == STRUCT:
        value, position = _rewrite_struct(data, position, path[1:], change)
        return position, value
    assert kind == LIST
    element, size, position = read_list_header(data, position)
    header = bytes([size << 4 | element]) if size < 15 else bytes([15 << 4 | element]) + encode_varint(size)
    values = []
    for _ in range(size):
        value, position = _rewrite_struct(data, position, path[1:], change)
        values.append(value)
    return position, header + b"".join(values)
