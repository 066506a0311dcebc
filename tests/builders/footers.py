"""Footers written again without some of their fields, as writers leave them out."""

from __future__ import annotations

from pathlib import Path

from tamis.parquet.thrift import (
    END_OF_STRUCT,
    LIST,
    STRUCT,
    encode_integer,
    encode_varint,
    read_i16,
    read_list_header,
    skip,
)

STATISTICS = (4, 1, 3, 12)
"""Of every column chunk: row groups, columns, metadata, statistics."""

_MAGIC = b"PAR1"


def remove_statistics(path: Path) -> None:
    """Leave the statistics of column chunks away. Page indexes stay, which are outside of the footer."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    start = len(data) - 8 - length
    footer, _ = _without(data[start:-8], 0, STATISTICS)
    path.write_bytes(data[:start] + footer + len(footer).to_bytes(4, "little") + _MAGIC)


def _without(data: bytes, position: int, path: tuple[int, ...]) -> tuple[bytes, int]:
    """A struct without the field at a path of ids, in which lists of structs do not count."""
    out = bytearray()
    identifier = last = 0
    while data[position]:
        kind, step = data[position] & 15, data[position] >> 4
        position += 1
        if step:
            identifier += step
        else:
            identifier, position = read_i16(data, position)
        start, position, value = position, *_value(data, position, kind, identifier, path)
        if (identifier,) == path:
            continue
        out += (
            bytes([identifier - last << 4 | kind])
            if identifier - last < 16
            else bytes([kind]) + encode_integer(identifier)
        )
        out += data[start:position] if value is None else value
        last = identifier
    return bytes(out) + END_OF_STRUCT, position + 1


def _value(data: bytes, position: int, kind: int, identifier: int, path: tuple[int, ...]) -> tuple[int, bytes | None]:
    """Where a value ends, and how it is written instead; None: as it is."""
    if kind in (1, 2):
        return position, b""
    if identifier != path[0] or len(path) == 1:
        return skip(data, position, kind), None
    if kind == STRUCT:
        value, position = _without(data, position, path[1:])
        return position, value
    assert kind == LIST
    element, size, position = read_list_header(data, position)
    header = bytes([size << 4 | element]) if size < 15 else bytes([15 << 4 | element]) + encode_varint(size)
    values = []
    for _ in range(size):
        value, position = _without(data, position, path[1:])
        values.append(value)
    return position, header + b"".join(values)
