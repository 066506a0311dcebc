"""The shape of a column chunk in a footer, and the chunks that are shaped alike.

Whatever `tamis.parquet.vetting` objects to shows in which fields a chunk has, how long its lists and its byte strings
are, and in its physical type. All else are numbers. So a chunk that has the shape of one without an objection has none
either, and the chunks of one column mostly have one shape in all row groups of a file. To compare takes a fifth of the
time of a walk, and to learn a shape takes that of one; a regular expression would take that of a hundred to compile.
"""

from __future__ import annotations

from dataclasses import dataclass

from tamis.parquet.thrift import BINARY, BYTE, DOUBLE, FALSE, I16, I64, LIST, SET, STRUCT, TRUE, read_varint

_DEEPEST = 8

# Ids of fields: the physical type and the statistics, both in the metadata of a chunk.
_PHYSICAL_TYPE = (3, 1)
_STATISTICS = (3, 12)

# What comes after some given bytes: a number, a byte string of any length, or else so many bytes of whatever kind.
_NUMBER, _TEXT = -1, -2


@dataclass(frozen=True, slots=True)
class ChunkShape:
    """What all chunks of a shape have in common: bytes that they have, and what comes after each of these."""

    steps: tuple[tuple[bytes, int], ...]

    @staticmethod
    def of(footer: bytes, position: int, *, any_bounds: bool) -> ChunkShape | None:
        """The shape of a chunk; None for an odd one. With `any_bounds`, its minima and maxima may have any length."""
        reader = _ShapeReader(footer, any_bounds)
        try:
            reader.struct(position, ())
        except _OddShape:
            return None
        return ChunkShape((*reader.steps, (reader.given, 0)))

    def end_of(self, footer: bytes, position: int) -> int | None:
        """Where the chunk at a position ends, if it has this shape."""
        for given, then in self.steps:
            if not footer.startswith(given, position):
                return None
            position += len(given)
            if then == _NUMBER:
                # All bytes of a number but the last have their highest bit set.
                while footer[position] >= 0x80:
                    position += 1
                position += 1
            elif then == _TEXT:
                if footer[position] >= 0x80:
                    return None
                position += 1 + footer[position]
            else:
                position += then
        return position


class _OddShape(Exception):
    """Something that no writer of chunks is known to write."""


class _ShapeReader:
    """Takes the bytes of a chunk apart. Every method takes a position and returns where the thing there ends."""

    def __init__(self, footer: bytes, any_bounds: bool) -> None:
        self._footer = footer
        self._any_bounds = any_bounds
        self.steps: list[tuple[bytes, int]] = []
        self.given = b""
        """What chunks must have after the last of the steps."""

    def _then(self, what: int) -> None:
        self.steps.append((self.given, what))
        self.given = b""

    def struct(self, position: int, path: tuple[int, ...]) -> int:
        """`path` are the ids of the fields that lead to it."""
        identifier = 0
        while (header := self._footer[position]) != 0:
            if len(path) > _DEEPEST or not header >> 4:
                raise _OddShape
            identifier += header >> 4
            self.given += self._footer[position : position + 1]
            position = self._value(position + 1, header & 15, (*path, identifier))
        self.given += b"\0"
        return position + 1

    def _value(self, position: int, kind: int, path: tuple[int, ...]) -> int:
        if kind in (TRUE, FALSE):
            return position
        if kind == STRUCT:
            return self.struct(position, path)
        if kind in (LIST, SET):
            return self._list(position, path)
        if I16 <= kind <= I64:
            end = read_varint(self._footer, position)[1]
            if path == _PHYSICAL_TYPE:
                self.given += self._footer[position:end]
            else:
                self._then(_NUMBER)
            return end
        if kind == BINARY:
            length, start = read_varint(self._footer, position)
            if self._any_bounds and path[:-1] == _STATISTICS:
                self._then(_TEXT)
            else:
                self.given += self._footer[position:start]
                self._then(length)
            return start + length
        if kind in (BYTE, DOUBLE):
            width = 1 if kind == BYTE else 8
            self._then(width)
            return position + width
        raise _OddShape

    def _list(self, position: int, path: tuple[int, ...]) -> int:
        size, element = self._footer[position] >> 4, self._footer[position] & 15
        if size == 15 or element in (TRUE, FALSE):
            raise _OddShape
        self.given += self._footer[position : position + 1]
        position += 1
        for _ in range(size):
            position = self._value(position, element, path)
        return position
