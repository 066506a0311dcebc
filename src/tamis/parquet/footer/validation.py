"""Validation of footers before pyarrow's accessors read them, because the accessors cannot report an error.

`FileMetaData.row_group(i).column(j)` and `.statistics` abort the whole process (`std::terminate`) if the C++ code below
throws, and read out of bounds if a row group disagrees with the schema. So the bytes are walked once:

| input                                                               | result                                 |
|---------------------------------------------------------------------|----------------------------------------|
| a row group with more or fewer chunks than the schema has leaves,   | `CorruptFile`                          |
| or rows than the file states; a chunk of another type than its leaf |                                        |
| an encrypted column chunk                                           | `UnsupportedFeature`                   |
| statistics whose length is wrong for the type (parquet-rs truncates | min and max are removed from the       |
| the bounds of long fixed-length columns, for example)               | footer: unknown, as if never written   |
| level histograms of another length than the column has levels       | the same                               |
| byte arrays with only deprecated min and max: they were compared as | the same: pyarrow drops them for text, |
| signed bytes, which is wrong for text, bytes and decimals alike     | but trusts them for decimals           |

A walk in Python takes about 15 µs per chunk. Nearly all chunks have one of few shapes, which one regular expression
accepts as valid in 2 µs; only the other chunks are walked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import NamedTuple

from tamis.errors import CorruptFile, UnsupportedFeature
from tamis.parquet.footer.thrift import BINARY, BYTE, DOUBLE, FALSE, I16, I64, LIST, SET, STRUCT, TRUE, read_varint

# Parquet's physical types, in the order of their enum values.
PHYSICAL_TYPES = (
    "BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY",
)  # fmt: skip
_TYPES_BY_NUMBER = {2 * number: name for number, name in enumerate(PHYSICAL_TYPES)}  # as stored: zigzag doubles them
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8}
_BYTES = ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")

# Types of the compact protocol.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_INT16, _INT32, _INT64 = _VARINTS = (4, 5, 6)
_LONGEST_VARINT = 10

MANY_ROW_GROUPS = 16
"""The number of row groups from which learning the shapes of chunks pays."""


@dataclass(frozen=True, slots=True)
class LeafType:
    """The type of a leaf in the schema: its physical type, its length if that is fixed, its maximum levels."""

    physical: str
    length: int
    definition_level: int
    repetition_level: int

    @property
    def width(self) -> int | None:
        """The number of bytes of a value in the statistics; None if it varies."""
        return self.length if self.physical == "FIXED_LEN_BYTE_ARRAY" else _WIDTHS.get(self.physical)


class RowGroupPositions(NamedTuple):
    """The positions of row groups and chunks in a footer, found while validating it, for reuse."""

    rows: list[int]
    """The number of rows of each row group."""
    chunks: list[list[int]]
    """The positions of the chunks of each row group."""
    end: int
    """The end of the list of row groups."""


def validate_footer(footer: bytes, leaves: Sequence[LeafType], path: str) -> tuple[bytes, RowGroupPositions | None]:
    """Return the validated footer without unusable statistics, and the positions of row groups in the given footer if
    there are many.

    The footer is the same object if nothing was removed. The positions are None if the row groups have an unusual
    encoding.
    """
    walk = _Walk(footer, leaves, path)
    try:
        walk.walk_file()
    except (IndexError, RecursionError) as error:
        raise CorruptFile(f"the footer of {path} is truncated or malformed; write the file again") from error
    if not walk.unusable:
        return footer, walk.row_group_positions
    parts, start = [], 0
    for begin, end, replacement in sorted(walk.unusable):
        parts += [footer[start:begin], replacement]
        start = end
    return b"".join([*parts, footer[start:]]), walk.row_group_positions


class _SeenParts:
    """A thread-safe cache of the last few parts of footers that were found valid."""

    MOST = 8
    LONGEST = 64 * 1024

    def __init__(self) -> None:
        self.parts: tuple[bytes, ...] = ()

    def add(self, part: bytes) -> None:
        if len(part) <= self.LONGEST and part not in self.parts:
            self.parts = (part, *self.parts[: self.MOST - 1])


# The bytes before and after the row groups are mostly the same in all files: validating them again gives the same.
_starts = _SeenParts()
_ends = _SeenParts()


@dataclass(slots=True)
class _Statistics:
    lengths: dict[int, int]
    """The length of each binary field by its id: 1 and 2 are the deprecated max and min, 5 and 6 the current ones."""
    null_count: bytes
    begin: int
    end: int


@dataclass(slots=True)
class _Walk:
    """One pass over the bytes. Every method takes the start position of a structure and returns its end.

    Known fields are read by their ids, all others are skipped, as in generated Thrift code.
    """

    footer: bytes
    leaves: Sequence[LeafType]
    path: str
    unusable: list[tuple[int, int, bytes]] = field(default_factory=list)
    """The statistics to replace: begin, end, and the replacement bytes."""
    is_odd: bool = False
    """Whether the encoding of the row groups is unusual, so that `map_footer` must check it."""
    rows: int = 0
    row_group_positions: RowGroupPositions | None = None
    shapes: dict[int, ChunkShape | None] = field(default_factory=dict)
    """The shape of each leaf's first chunk in a file with many row groups, if that chunk is valid."""

    def walk_file(self) -> None:
        start = next((known for known in _starts.parts if self.footer.startswith(known)), b"")
        position, identifier, end, total = len(start), 2 if start else 0, None, None
        while True:
            identifier, kind, position = self.read_header(position, identifier)
            if kind == 0:
                break
            if identifier == 4 and kind == _LIST:
                if end is not None:
                    raise self.make_error("lists its row groups twice")
                self.check_elements(position)
                count, position = self.read_list_size(position)
                seen = RowGroupPositions([], [], 0)
                for row_group in range(count):
                    position = self.walk_row_group(position, row_group, seen if count >= MANY_ROW_GROUPS else None)
                end = self.footer[position:]
                if count >= MANY_ROW_GROUPS and not self.is_odd and len(seen.rows) == len(seen.chunks) == count:
                    self.row_group_positions = seen._replace(end=position)
                if total is not None and end in _ends.parts:
                    break
            elif identifier == 3 and kind == _INT64:
                total, position = self.read_varint(position)
            else:
                position = self.skip_value(kind, position)
                if identifier == 2 and end is None:
                    _starts.add(self.footer[:position])
        if end is not None:
            _ends.add(end)
        if total not in (None, 2 * self.rows):  # zigzag, as stored
            raise self.make_error(f"has {total // 2:,} rows for the file, but {self.rows:,} in its row groups")

    def walk_row_group(self, position: int, row_group: int, seen: RowGroupPositions | None) -> int:
        """Walk a row group; `seen` collects positions if there are many row groups."""
        identifier, chunks = 0, None
        while True:
            identifier, kind, position = self.read_header(position, identifier)
            if kind == 0:
                break
            if identifier == 1 and kind == _LIST and chunks is None:
                self.check_elements(position)
                chunks, position = self.read_list_size(position)
                if chunks != len(self.leaves):
                    break
                starts = []
                for number, leaf in enumerate(self.leaves):
                    starts.append(position)
                    end = self.match_known_chunk(position, number)
                    position = self.walk_chunk(position, leaf, row_group) if end is None else end
                    if seen is not None and row_group == 0 and not self.unusable:
                        any_bounds = leaf.physical == "BYTE_ARRAY"
                        self.shapes[number] = ChunkShape.of(self.footer, starts[-1], any_bounds=any_bounds)
                if seen is not None:
                    seen.chunks.append(starts)
            elif identifier == 3 and kind == _INT64:
                rows, position = self.read_varint(position)
                if rows & 1:  # zigzag: odd is negative
                    raise self.make_error(f"has a negative number of rows in row group {row_group}")
                self.rows += rows >> 1
                if seen is not None:
                    seen.rows.append(rows >> 1)
            else:
                self.is_odd |= identifier == 1
                position = self.skip_value(kind, position)
        if chunks != len(self.leaves):
            raise self.make_error(f"has {chunks} columns in row group {row_group} and {len(self.leaves)} in its schema")
        return position

    def check_elements(self, position: int) -> None:
        self.is_odd |= self.footer[position] & 15 != _STRUCT

    def match_known_chunk(self, position: int, leaf: int) -> int | None:
        """Return the end of a chunk that matches a known valid shape; None if it must be walked."""
        shape = self.shapes.get(leaf)
        end = None if shape is None else shape.match_end(self.footer, position)
        if end is not None:
            return end
        pattern = choose_chunk_pattern(self.leaves[leaf])
        match = None if pattern is None else pattern.match(self.footer, position)
        return None if match is None else match.end()

    def walk_chunk(self, position: int, leaf: LeafType, row_group: int) -> int:
        identifier, has_metadata = 0, False
        while True:
            identifier, kind, position = self.read_header(position, identifier)
            if kind == 0:
                break
            if identifier == 3 and kind == _STRUCT:
                if has_metadata:
                    raise self.make_error(f"has two sets of metadata for a column of row group {row_group}")
                has_metadata = True
                position = self.walk_chunk_metadata(position, leaf, row_group)
            elif identifier in (8, 9):
                raise UnsupportedFeature(
                    f"{self.path} has encrypted columns, which are not supported; decrypt the file first"
                )
            else:
                position = self.skip_value(kind, position)
        if not has_metadata:
            raise self.make_error(f"has a column without metadata in row group {row_group}")
        return position

    def walk_chunk_metadata(self, position: int, leaf: LeafType, row_group: int) -> int:
        identifier, physical, statistics = 0, None, None
        while True:
            identifier, kind, position = self.read_header(position, identifier)
            if kind == 0:
                break
            if identifier == 1 and kind == _INT32:
                number, position = self.read_varint(position)
                physical = _TYPES_BY_NUMBER.get(number, "an unknown type")
            elif identifier == 12 and kind == _STRUCT:
                if statistics is not None:
                    raise self.make_error(f"has two sets of statistics for a column of row group {row_group}")
                statistics = self.read_statistics(position)
                position = statistics.end
            elif identifier == 16 and kind == _STRUCT:
                position = self.check_size_statistics(position, leaf)
            else:
                position = self.skip_value(kind, position)
        if physical != leaf.physical:
            raise self.make_error(f"has a column of {physical} in row group {row_group}, expected {leaf.physical}")
        if statistics is not None and not _is_usable(statistics.lengths, leaf):
            # Only the null count is kept: field 3, a 64-bit integer.
            kept = b"\x36" + statistics.null_count if statistics.null_count else b""
            self.unusable.append((statistics.begin, statistics.end, kept + b"\x00"))
        return position

    def read_statistics(self, position: int) -> _Statistics:
        found = _Statistics({}, b"", position, position)
        identifier = 0
        while True:
            identifier, kind, position = self.read_header(position, identifier)
            if kind == 0:
                found.end = position
                return found
            if kind == _BINARY:
                found.lengths[identifier], position = self.read_varint(position)
                position += found.lengths[identifier]
            else:
                start, position = position, self.skip_value(kind, position)
                if identifier == 3 and kind == _INT64:
                    found.null_count = self.footer[start:position]

    def check_size_statistics(self, position: int, leaf: LeafType) -> int:
        begin, identifier, usable = position, 0, True
        while True:
            identifier, kind, position = self.read_header(position, identifier)
            if kind == 0:
                break
            if identifier in (2, 3) and kind == _LIST:
                level = leaf.repetition_level if identifier == 2 else leaf.definition_level
                usable &= self.read_list_size(position)[0] in (0, level + 1)
            elif identifier == 1:
                usable &= leaf.physical == "BYTE_ARRAY"
            position = self.skip_value(kind, position)
        if not usable:
            self.unusable.append((begin, position, b"\x00"))
        return position

    def read_header(self, position: int, identifier: int) -> tuple[int, int, int]:
        """Return the id and the type of the next field, and the position of its value; type 0 ends the struct."""
        byte = self.footer[position]
        position += 1
        if byte == 0:
            return identifier, 0, position
        if byte >> 4:
            return identifier + (byte >> 4), byte & 15, position
        number, position = self.read_varint(position)
        return (number >> 1) ^ -(number & 1), byte & 15, position

    def read_varint(self, position: int) -> tuple[int, int]:
        footer = self.footer
        value = shift = 0
        for at in range(position, position + _LONGEST_VARINT):
            value |= (footer[at] & 0x7F) << shift
            if footer[at] < 0x80:
                return value, at + 1
            shift += 7
        raise self.make_error("has a number of more than 64 bits")

    def read_list_size(self, position: int) -> tuple[int, int]:
        size = self.footer[position] >> 4
        return (size, position + 1) if size < 15 else self.read_varint(position + 1)

    def skip_value(self, kind: int, position: int) -> int:
        if kind in _VARINTS:
            return self.read_varint(position)[1]
        if kind == _BINARY:
            length, position = self.read_varint(position)
            return position + length
        if kind in (_TRUE, _FALSE):
            return position
        if kind == _STRUCT:
            identifier = 0
            while kind:
                identifier, kind, position = self.read_header(position, identifier)
                position = self.skip_value(kind, position) if kind else position
            return position
        if kind in (_LIST, _SET):
            element = self.footer[position] & 15
            size, position = self.read_list_size(position)
            return self.skip_elements((element,), size, position)
        if kind == _MAP:
            size, position = self.read_varint(position)
            if size == 0:
                return position
            both = self.footer[position]
            return self.skip_elements((both >> 4, both & 15), size, position + 1)
        if kind in (_BYTE, _DOUBLE):
            return position + (1 if kind == _BYTE else 8)
        raise self.make_error(f"has a field of the unsupported type {kind}")

    def skip_elements(self, kinds: tuple[int, ...], size: int, position: int) -> int:
        # Every element takes at least one byte, so a size beyond the remaining bytes ends in an IndexError.
        for _ in range(size):
            for kind in kinds:
                position = position + 1 if kind in (_TRUE, _FALSE) else self.skip_value(kind, position)
            self.footer[position - 1]
        return position

    def make_error(self, what: str) -> CorruptFile:
        return CorruptFile(f"the footer of {self.path} {what}; write the file again")


def _is_usable(lengths: dict[int, int], leaf: LeafType) -> bool:
    if leaf.physical in _BYTES and (1 in lengths or 2 in lengths) and not (5 in lengths and 6 in lengths):
        return False
    return leaf.width is None or all(length == leaf.width for length in lengths.values())


# --- Regular expressions for typical column chunks -------------------------------------------------------------------

_NUMBER = rb"[\x80-\xff]*+[\x00-\x7f]"
_LONGEST_TEXT = 64


def _match_header(*kinds: int) -> bytes:
    """Match any field header of these types with a relative id: ids can only grow, so no field occurs twice."""
    return b"[" + b"".join(re.escape(bytes([step << 4 | kind])) for step in range(1, 16) for kind in kinds) + b"]"


def _match_list(kind: int, element: bytes, sizes: Iterable[int] = range(15)) -> bytes:
    lists = (re.escape(bytes([size << 4 | kind])) + b"(?:%s){%d}" % (element, size) for size in sizes if size < 15)
    return b"(?>" + b"|".join(lists) + b")"


def _match_text(shortest: int = 0, longest: int = _LONGEST_TEXT) -> bytes:
    return b"(?>" + b"|".join(re.escape(bytes([n])) + b".{%d}" % n for n in range(shortest, longest + 1)) + b")"


_NUMBER_FIELD = _match_header(*_VARINTS) + _NUMBER
_NUMBER_STRUCTS = _match_header(_LIST) + _match_list(_STRUCT, b"(?:" + _NUMBER_FIELD + rb")*+\x00")

# file_offset; then the metadata: type, encodings, path, codec, three sizes, the offsets of the pages up to statistics.
_BEFORE_TYPE = rb"\x26" + _NUMBER + rb"\x1c\x15"
_BEFORE_STATISTICS = (
    rb"\x19" + _match_list(5, _NUMBER) + rb"\x19" + _match_list(8, _match_text(), range(5))
    + rb"\x15" + _NUMBER + (rb"\x16" + _NUMBER) * 3 + rb"\x26" + _NUMBER
    + rb"(?>\x26" + _NUMBER + rb"\x1c|\x3c|\x16" + _NUMBER + rb"(?>\x16" + _NUMBER + rb"\x1c|\x2c))"
)  # fmt: skip
_AFTER_METADATA = b"(?:(?:[\x15\x16\x25\x26]" + _NUMBER + rb"){2}){0,2}+\x00"


def _match_after_statistics(leaf: LeafType) -> bytes:
    repetition = _match_list(_INT64, _NUMBER, (0, leaf.repetition_level + 1))
    definition = _match_list(_INT64, _NUMBER, (0, leaf.definition_level + 1))
    sizes = rb"(?>\x29" + repetition + rb"(?:\x19" + definition + rb")?|\x39" + definition + b")?"
    if leaf.physical == "BYTE_ARRAY":
        with_bytes = (
            rb"\x16" + _NUMBER + rb"(?>\x19" + repetition + rb"(?:\x19" + definition + rb")?|\x29" + definition + b")?"
        )
        sizes = b"(?>" + with_bytes + b"|" + sizes + b")"
    fields = (_NUMBER_FIELD, _match_header(_TRUE, _FALSE), _NUMBER_STRUCTS, _match_header(_STRUCT) + sizes + rb"\x00")
    return b"(?:" + b"|".join(fields) + rb")*+\x00"


_WALKED_FIRST = 4000
_walked = count()


def choose_chunk_pattern(leaf: LeafType) -> re.Pattern[bytes] | None:
    """Return the pattern of a leaf once the process has seen enough chunks, else None.

    Compiling the patterns takes as long as walking some thousand chunks, more than a process that reads one file sees.
    """
    return compile_valid_chunk_pattern(leaf) if next(_walked) >= _WALKED_FIRST else None


@lru_cache(maxsize=64)
def compile_valid_chunk_pattern(leaf: LeafType) -> re.Pattern[bytes]:
    """Return a pattern that matches only valid chunks of this type; other chunks must be walked."""
    width = leaf.width
    value = _match_text() if width is None else _match_text(width, width) if 0 < width < 0x80 else b"(?!)"
    if leaf.physical in _BYTES:
        # Only max_value (5) and min_value (6): chunks that also have deprecated ones must be walked.
        statistics = (
            rb"(?>\x36" + _NUMBER + rb"(?>\x16" + _NUMBER + rb"\x18|\x28)|\x46" + _NUMBER + rb"\x18|\x58)" + value
            + rb"\x18" + value + b"(?:" + _match_header(_TRUE, _FALSE) + rb"){0,2}+"
        )  # fmt: skip
    else:
        statistics = (
            b"(?:"
            + _NUMBER_FIELD
            + b"|"
            + _match_header(_TRUE, _FALSE)
            + b"|"
            + _match_header(_BINARY)
            + value
            + b")*+"
        )
    kind = re.escape(bytes([PHYSICAL_TYPES.index(leaf.physical) * 2]))
    metadata = kind + _BEFORE_STATISTICS + statistics + rb"\x00" + _match_after_statistics(leaf)
    return re.compile(_BEFORE_TYPE + metadata + _AFTER_METADATA, re.DOTALL)


# --- The shape of a column chunk's metadata in a footer, to recognise chunks of the same shape ------------------------
#
# Whether a chunk is valid depends on its set of fields, the lengths of its lists and byte strings, and its physical
# type. Everything else is a number. So a chunk with the shape of a valid chunk is valid too, and the chunks of one
# column mostly have one shape in all row groups of a file. Comparing a shape takes a fifth of the time of a walk over
# the chunk, and learning one takes as long as one walk; compiling a regular expression would take as long as a hundred.

_DEEPEST = 8

# Ids of fields: the physical type and the statistics, both in the metadata of a chunk.
_PHYSICAL_TYPE = (3, 1)
_STATISTICS = (3, 12)

# What follows the fixed bytes of a step: a varint, a byte string of any length, or (>= 0) that many arbitrary bytes.
_SHAPE_NUMBER, _TEXT = -1, -2


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
            if then == _SHAPE_NUMBER:
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
                self._add_step(_SHAPE_NUMBER)
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
