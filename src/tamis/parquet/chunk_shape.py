"""The shape of a column chunk's metadata in a footer, to recognise chunks of the same shape.

`tamis.parquet.vetting` judges a chunk by its set of fields, the lengths of its lists and byte strings, and its physical
type. Everything else is a number. So a chunk with the shape of a valid chunk is valid too, and the chunks of one column
mostly have one shape in all row groups of a file. Comparing a shape takes a fifth of the time of a walk over the chunk,
and learning one takes as long as one walk; compiling a regular expression would take as long as a hundred.
"""

from __future__ import annotations

from dataclasses import dataclass

from tamis.parquet.thrift import BINARY, BYTE, DOUBLE, FALSE, I16, I64, LIST, SET, STRUCT, TRUE, read_varint

_DEEPEST = 8

# Ids of fields: the physical type and the statistics, both in the metadata of a chunk.
_PHYSICAL_TYPE = (3, 1)
_STATISTICS = (3, 12)

# What follows the fixed bytes of a step: a varint, a byte string of any length, or (>= 0) that many arbitrary bytes.
_NUMBER, _TEXT = -1, -2


@dataclass(frozen=True, slots=True)
class ChunkShape:
    """The steps that all chunks of a shape share: fixed bytes, and what follows them."""

    steps: tuple[tuple[bytes, int], ...]

    @staticmethod
    def of(footer: bytes, position: int, *, any_bounds: bool) -> ChunkShape | None:
        """Return the shape of a chunk; None for an unusual one. With `any_bounds`, min and max may have any length."""
        reader = _ShapeReader(footer, any_bounds)
        try:
            reader.read_struct(position, ())
        except _UnusualShape:
            return None
        return ChunkShape((*reader.steps, (reader.given, 0)))

    def match_end(self, footer: bytes, position: int) -> int | None:
        """Return the end of the chunk at a position; None if it has another shape."""
        for given, then in self.steps:
            if not footer.startswith(given, position):
                return None
            position += len(given)
            if then == _NUMBER:
                # All bytes of a varint except the last have their highest bit set.
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


class _UnusualShape(Exception):
    """The chunk has an encoding that no known writer produces."""


class _ShapeReader:
    """Splits the bytes of a chunk into steps. Every method takes a start position and returns the end position."""

    def __init__(self, footer: bytes, any_bounds: bool) -> None:
        self._footer = footer
        self._any_bounds = any_bounds
        self.steps: list[tuple[bytes, int]] = []
        self.given = b""
        """The fixed bytes after the last step."""

    def _add_step(self, what: int) -> None:
        self.steps.append((self.given, what))
        self.given = b""

    def read_struct(self, position: int, path: tuple[int, ...]) -> int:
        """Read a struct; `path` are the field ids that lead to it."""
        identifier = 0
        while (header := self._footer[position]) != 0:
            if len(path) > _DEEPEST or not header >> 4:
                raise _UnusualShape
            identifier += header >> 4
            self.given += self._footer[position : position + 1]
            position = self._read_value(position + 1, header & 15, (*path, identifier))
        self.given += b"\0"
        return position + 1

    def _read_value(self, position: int, kind: int, path: tuple[int, ...]) -> int:
        if kind in (TRUE, FALSE):
            return position
        if kind == STRUCT:
            return self.read_struct(position, path)
        if kind in (LIST, SET):
            return self._read_list(position, path)
        if I16 <= kind <= I64:
            end = read_varint(self._footer, position)[1]
            if path == _PHYSICAL_TYPE:
                self.given += self._footer[position:end]
            else:
                self._add_step(_NUMBER)
            return end
        if kind == BINARY:
            length, start = read_varint(self._footer, position)
            if self._any_bounds and path[:-1] == _STATISTICS:
                self._add_step(_TEXT)
            else:
                self.given += self._footer[position:start]
                self._add_step(length)
            return start + length
        if kind in (BYTE, DOUBLE):
            width = 1 if kind == BYTE else 8
            self._add_step(width)
            return position + width
        raise _UnusualShape

    def _read_list(self, position: int, path: tuple[int, ...]) -> int:
        size, element = self._footer[position] >> 4, self._footer[position] & 15
        if size == 15 or element in (TRUE, FALSE):
            raise _UnusualShape
        self.given += self._footer[position : position + 1]
        position += 1
        for _ in range(size):
            position = self._read_value(position, element, path)
        return position
