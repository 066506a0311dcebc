"""Footers are checked before pyarrow's accessors touch them, because those cannot report an error.

`FileMetaData.row_group(i).column(j)` and `.statistics` end the whole process (`std::terminate`) where the C++ below
throws, and read past memory where a row group disagrees with the schema. So the bytes are walked once:

| what is found                                                       | what is done                           |
|---------------------------------------------------------------------|----------------------------------------|
| a row group with more or fewer chunks than the schema has leaves,   | `CorruptFile`                          |
| or rows than the file says; a chunk of another type than its leaf   |                                        |
| an encrypted column chunk                                           | `UnsupportedFeature`                   |
| statistics whose bytes do not fit the type (parquet-rs cuts the     | min and max are cut out of the footer: |
| bounds of long fixed-length columns, for one)                       | unknown, as if never written           |
| level histograms of another length than the column has levels       | the same                               |
| byte arrays with deprecated min and max only: they were compared as | the same: pyarrow drops them for text, |
| signed bytes, which is wrong for text, bytes and decimals alike     | but believes them for decimals         |

A walk in Python costs some 15 µs a chunk. Nearly all chunks have one of few shapes, for which one regular
expression says "nothing to object" in 2 µs; the walk proper is for the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import NamedTuple

from tamis.errors import CorruptFile, UnsupportedFeature
from tamis.parquet.chunk_shape import ChunkShape

# Parquet's physical types, in the order of their numbers in the format.
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
"""Of so many row groups, it pays to learn the shapes of their chunks: see `tamis.parquet.chunk_shape`."""


@dataclass(frozen=True, slots=True)
class LeafType:
    """What the schema says of a leaf: its physical type, the length where that is fixed, the levels of nesting."""

    physical: str
    length: int
    definition_level: int
    repetition_level: int

    @property
    def width(self) -> int | None:
        """The bytes of a value in the statistics; None where any number will do."""
        return self.length if self.physical == "FIXED_LEN_BYTE_ARRAY" else _WIDTHS.get(self.physical)


class RowGroupPlaces(NamedTuple):
    """What a walk over a footer saw of its row groups, for whoever needs to find them again."""

    rows: list[int]
    """Of each row group."""
    chunks: list[list[int]]
    """Where each of its chunks is."""
    end: int
    """Where the list of row groups ends."""


def vetted_footer(footer: bytes, leaves: Sequence[LeafType], path: str) -> bytes:
    """The footer without statistics that cannot be used; the very same bytes where there are none such."""
    return vet_footer(footer, leaves, path)[0]


def vet_footer(footer: bytes, leaves: Sequence[LeafType], path: str) -> tuple[bytes, RowGroupPlaces | None]:
    """The same, and where the row groups are in the footer that was given, if there are many and nothing is odd."""
    walk = _Walk(footer, leaves, path)
    try:
        walk.file()
    except (IndexError, RecursionError) as error:
        raise CorruptFile(f"the footer of {path} is cut off or malformed; write the file again") from error
    if not walk.unusable:
        return footer, walk.places
    pieces, start = [], 0
    for begin, end, replacement in sorted(walk.unusable):
        pieces += [footer[start:begin], replacement]
        start = end
    return b"".join([*pieces, footer[start:]]), walk.places


class _SeenParts:
    """Parts of footers that were walked without an objection, the last few. Any thread may use it."""

    MOST = 8
    LONGEST = 64 * 1024

    def __init__(self) -> None:
        self.parts: tuple[bytes, ...] = ()

    def add(self, part: bytes) -> None:
        if len(part) <= self.LONGEST and part not in self.parts:
            self.parts = (part, *self.parts[: self.MOST - 1])


# What comes before the row groups of files and after them is mostly the same: a walk over the same bytes ends alike.
_starts = _SeenParts()
_ends = _SeenParts()


@dataclass(slots=True)
class _Statistics:
    lengths: dict[int, int]
    """Of each binary field, by its id: 1 and 2 are the deprecated max and min, 5 and 6 the ones to use."""
    null_count: bytes
    begin: int
    end: int


@dataclass(slots=True)
class _Walk:
    """One pass over the bytes. Every method takes the position where a thing starts and returns where it ends.

    Known fields are read by their ids, everything else is stepped over, as generated Thrift code does.
    """

    footer: bytes
    leaves: Sequence[LeafType]
    path: str
    unusable: list[tuple[int, int, bytes]] = field(default_factory=list)
    """Statistics to replace: begin, end, and the bytes to put there."""
    is_odd: bool = False
    """Whether something about the row groups is wrong that whoever looks for them will object to."""
    rows: int = 0
    places: RowGroupPlaces | None = None
    shapes: dict[int, ChunkShape | None] = field(default_factory=dict)
    """By leaf, in a file of many row groups: that of its first chunk, if there was nothing to object to."""

    def file(self) -> None:
        start = next((known for known in _starts.parts if self.footer.startswith(known)), b"")
        position, identifier, end, total = len(start), 2 if start else 0, None, None
        while True:
            identifier, kind, position = self.header(position, identifier)
            if kind == 0:
                break
            if identifier == 4 and kind == _LIST:
                if end is not None:
                    raise self.corrupt("lists its row groups twice")
                self.note_elements(position)
                count, position = self.list_size(position)
                seen = RowGroupPlaces([], [], 0)
                for row_group in range(count):
                    position = self.row_group(position, row_group, seen if count >= MANY_ROW_GROUPS else None)
                end = self.footer[position:]
                if count >= MANY_ROW_GROUPS and not self.is_odd and len(seen.rows) == len(seen.chunks) == count:
                    self.places = seen._replace(end=position)
                if total is not None and end in _ends.parts:
                    break
            elif identifier == 3 and kind == _INT64:
                total, position = self.varint(position)
            else:
                position = self.skip(kind, position)
                if identifier == 2 and end is None:
                    _starts.add(self.footer[:position])
        if end is not None:
            _ends.add(end)
        if total not in (None, 2 * self.rows):  # zigzag, as stored
            raise self.corrupt(f"says that the file has {total // 2:,} rows, and its row groups have {self.rows:,}")

    def row_group(self, position: int, row_group: int, seen: RowGroupPlaces | None) -> int:
        """With `seen` the row group is one of many."""
        identifier, chunks = 0, None
        while True:
            identifier, kind, position = self.header(position, identifier)
            if kind == 0:
                break
            if identifier == 1 and kind == _LIST and chunks is None:
                self.note_elements(position)
                chunks, position = self.list_size(position)
                if chunks != len(self.leaves):
                    break
                starts = []
                for number, leaf in enumerate(self.leaves):
                    starts.append(position)
                    end = self.known_chunk(position, number)
                    position = self.chunk(position, leaf, row_group) if end is None else end
                    if seen is not None and row_group == 0 and not self.unusable:
                        any_bounds = leaf.physical == "BYTE_ARRAY"
                        self.shapes[number] = ChunkShape.of(self.footer, starts[-1], any_bounds=any_bounds)
                if seen is not None:
                    seen.chunks.append(starts)
            elif identifier == 3 and kind == _INT64:
                rows, position = self.varint(position)
                if rows & 1:  # zigzag: odd is negative
                    raise self.corrupt(f"has a negative number of rows in row group {row_group}")
                self.rows += rows >> 1
                if seen is not None:
                    seen.rows.append(rows >> 1)
            else:
                self.is_odd |= identifier == 1
                position = self.skip(kind, position)
        if chunks != len(self.leaves):
            raise self.corrupt(f"has {chunks} columns in row group {row_group} and {len(self.leaves)} in its schema")
        return position

    def note_elements(self, position: int) -> None:
        self.is_odd |= self.footer[position] & 15 != _STRUCT

    def known_chunk(self, position: int, leaf: int) -> int | None:
        """Where a chunk ends that looks like many others, to which there is nothing to object."""
        shape = self.shapes.get(leaf)
        end = None if shape is None else shape.end_of(self.footer, position)
        if end is not None:
            return end
        pattern = patterns_when_worthwhile(self.leaves[leaf])
        match = None if pattern is None else pattern.match(self.footer, position)
        return None if match is None else match.end()

    def chunk(self, position: int, leaf: LeafType, row_group: int) -> int:
        identifier, has_metadata = 0, False
        while True:
            identifier, kind, position = self.header(position, identifier)
            if kind == 0:
                break
            if identifier == 3 and kind == _STRUCT:
                if has_metadata:
                    raise self.corrupt(f"describes a column of row group {row_group} twice")
                has_metadata = True
                position = self.chunk_metadata(position, leaf, row_group)
            elif identifier in (8, 9):
                raise UnsupportedFeature(
                    f"{self.path} has encrypted columns, which Tamis cannot read; decrypt the file first"
                )
            else:
                position = self.skip(kind, position)
        if not has_metadata:
            raise self.corrupt(f"has a column without metadata in row group {row_group}")
        return position

    def chunk_metadata(self, position: int, leaf: LeafType, row_group: int) -> int:
        identifier, physical, statistics = 0, None, None
        while True:
            identifier, kind, position = self.header(position, identifier)
            if kind == 0:
                break
            if identifier == 1 and kind == _INT32:
                number, position = self.varint(position)
                physical = _TYPES_BY_NUMBER.get(number, "an unknown type")
            elif identifier == 12 and kind == _STRUCT:
                if statistics is not None:
                    raise self.corrupt(f"has two sets of statistics for a column of row group {row_group}")
                statistics = self.statistics(position)
                position = statistics.end
            elif identifier == 16 and kind == _STRUCT:
                position = self.size_statistics(position, leaf)
            else:
                position = self.skip(kind, position)
        if physical != leaf.physical:
            raise self.corrupt(
                f"has a column of {physical} in row group {row_group} that its schema calls {leaf.physical}"
            )
        if statistics is not None and not _usable(statistics.lengths, leaf):
            # Only the count of nulls stays: field 3, a 64-bit number.
            kept = b"\x36" + statistics.null_count if statistics.null_count else b""
            self.unusable.append((statistics.begin, statistics.end, kept + b"\x00"))
        return position

    def statistics(self, position: int) -> _Statistics:
        found = _Statistics({}, b"", position, position)
        identifier = 0
        while True:
            identifier, kind, position = self.header(position, identifier)
            if kind == 0:
                found.end = position
                return found
            if kind == _BINARY:
                found.lengths[identifier], position = self.varint(position)
                position += found.lengths[identifier]
            else:
                start, position = position, self.skip(kind, position)
                if identifier == 3 and kind == _INT64:
                    found.null_count = self.footer[start:position]

    def size_statistics(self, position: int, leaf: LeafType) -> int:
        begin, identifier, usable = position, 0, True
        while True:
            identifier, kind, position = self.header(position, identifier)
            if kind == 0:
                break
            if identifier in (2, 3) and kind == _LIST:
                level = leaf.repetition_level if identifier == 2 else leaf.definition_level
                usable &= self.list_size(position)[0] in (0, level + 1)
            elif identifier == 1:
                usable &= leaf.physical == "BYTE_ARRAY"
            position = self.skip(kind, position)
        if not usable:
            self.unusable.append((begin, position, b"\x00"))
        return position

    def header(self, position: int, identifier: int) -> tuple[int, int, int]:
        """The id and the type of the next field, and where its value starts; type 0 ends the struct."""
        byte = self.footer[position]
        position += 1
        if byte == 0:
            return identifier, 0, position
        if byte >> 4:
            return identifier + (byte >> 4), byte & 15, position
        number, position = self.varint(position)
        return (number >> 1) ^ -(number & 1), byte & 15, position

    def varint(self, position: int) -> tuple[int, int]:
        footer = self.footer
        value = shift = 0
        for at in range(position, position + _LONGEST_VARINT):
            value |= (footer[at] & 0x7F) << shift
            if footer[at] < 0x80:
                return value, at + 1
            shift += 7
        raise self.corrupt("holds a number of more than 64 bits")

    def list_size(self, position: int) -> tuple[int, int]:
        size = self.footer[position] >> 4
        return (size, position + 1) if size < 15 else self.varint(position + 1)

    def skip(self, kind: int, position: int) -> int:
        if kind in _VARINTS:
            return self.varint(position)[1]
        if kind == _BINARY:
            length, position = self.varint(position)
            return position + length
        if kind in (_TRUE, _FALSE):
            return position
        if kind == _STRUCT:
            identifier = 0
            while kind:
                identifier, kind, position = self.header(position, identifier)
                position = self.skip(kind, position) if kind else position
            return position
        if kind in (_LIST, _SET):
            element = self.footer[position] & 15
            size, position = self.list_size(position)
            return self.skip_elements((element,), size, position)
        if kind == _MAP:
            size, position = self.varint(position)
            if size == 0:
                return position
            both = self.footer[position]
            return self.skip_elements((both >> 4, both & 15), size, position + 1)
        if kind in (_BYTE, _DOUBLE):
            return position + (1 if kind == _BYTE else 8)
        raise self.corrupt(f"holds a field of the unknown type {kind}")

    def skip_elements(self, kinds: tuple[int, ...], size: int, position: int) -> int:
        # Every element takes a byte at least, so a size beyond the bytes at hand ends in an IndexError.
        for _ in range(size):
            for kind in kinds:
                position = position + 1 if kind in (_TRUE, _FALSE) else self.skip(kind, position)
            self.footer[position - 1]
        return position

    def corrupt(self, what: str) -> CorruptFile:
        return CorruptFile(f"the footer of {self.path} {what}; write the file again")


def _usable(lengths: dict[int, int], leaf: LeafType) -> bool:
    if leaf.physical in _BYTES and (1 in lengths or 2 in lengths) and not (5 in lengths and 6 in lengths):
        return False
    return leaf.width is None or all(length == leaf.width for length in lengths.values())


# --- The usual shapes of a column chunk, as regular expressions ------------------------------------------------------

_NUMBER = rb"[\x80-\xff]*+[\x00-\x7f]"
_LONGEST_TEXT = 64


def _header(*kinds: int) -> bytes:
    """Any field of these types whose id follows from the one before: ids can only grow, so none comes twice."""
    return b"[" + b"".join(re.escape(bytes([step << 4 | kind])) for step in range(1, 16) for kind in kinds) + b"]"


def _list_of(kind: int, element: bytes, sizes: Iterable[int] = range(15)) -> bytes:
    lists = (re.escape(bytes([size << 4 | kind])) + b"(?:%s){%d}" % (element, size) for size in sizes if size < 15)
    return b"(?>" + b"|".join(lists) + b")"


def _text(shortest: int = 0, longest: int = _LONGEST_TEXT) -> bytes:
    return b"(?>" + b"|".join(re.escape(bytes([n])) + b".{%d}" % n for n in range(shortest, longest + 1)) + b")"


_NUMBER_FIELD = _header(*_VARINTS) + _NUMBER
_NUMBER_STRUCTS = _header(_LIST) + _list_of(_STRUCT, b"(?:" + _NUMBER_FIELD + rb")*+\x00")

# file_offset; then the metadata: type, encodings, path, codec, three sizes, the offsets of the pages up to statistics.
_BEFORE_TYPE = rb"\x26" + _NUMBER + rb"\x1c\x15"
_BEFORE_STATISTICS = (
    rb"\x19" + _list_of(5, _NUMBER) + rb"\x19" + _list_of(8, _text(), range(5))
    + rb"\x15" + _NUMBER + (rb"\x16" + _NUMBER) * 3 + rb"\x26" + _NUMBER
    + rb"(?>\x26" + _NUMBER + rb"\x1c|\x3c|\x16" + _NUMBER + rb"(?>\x16" + _NUMBER + rb"\x1c|\x2c))"
)  # fmt: skip
_AFTER_METADATA = b"(?:(?:[\x15\x16\x25\x26]" + _NUMBER + rb"){2}){0,2}+\x00"


def _after_statistics(leaf: LeafType) -> bytes:
    repetition = _list_of(_INT64, _NUMBER, (0, leaf.repetition_level + 1))
    definition = _list_of(_INT64, _NUMBER, (0, leaf.definition_level + 1))
    sizes = rb"(?>\x29" + repetition + rb"(?:\x19" + definition + rb")?|\x39" + definition + b")?"
    if leaf.physical == "BYTE_ARRAY":
        with_bytes = (
            rb"\x16" + _NUMBER + rb"(?>\x19" + repetition + rb"(?:\x19" + definition + rb")?|\x29" + definition + b")?"
        )
        sizes = b"(?>" + with_bytes + b"|" + sizes + b")"
    fields = (_NUMBER_FIELD, _header(_TRUE, _FALSE), _NUMBER_STRUCTS, _header(_STRUCT) + sizes + rb"\x00")
    return b"(?:" + b"|".join(fields) + rb")*+\x00"


_WALKED_FIRST = 4000
_walked = count()


def patterns_when_worthwhile(leaf: LeafType) -> re.Pattern[bytes] | None:
    """The pattern of a leaf, once the process has seen enough chunks.

    To compile the patterns takes as long as to walk some thousand chunks, and a process that asks one question of one
    file never sees as many.
    """
    return harmless_chunk(leaf) if next(_walked) >= _WALKED_FIRST else None


@lru_cache(maxsize=64)
def harmless_chunk(leaf: LeafType) -> re.Pattern[bytes]:
    """Matches a whole chunk of this type to which there is nothing to object; what it leaves needs the walk."""
    width = leaf.width
    value = _text() if width is None else _text(width, width) if 0 < width < 0x80 else b"(?!)"
    if leaf.physical in _BYTES:
        # max_value (5) and min_value (6) only: deprecated ones beside them are for the walk to judge.
        statistics = (
            rb"(?>\x36" + _NUMBER + rb"(?>\x16" + _NUMBER + rb"\x18|\x28)|\x46" + _NUMBER + rb"\x18|\x58)" + value
            + rb"\x18" + value + b"(?:" + _header(_TRUE, _FALSE) + rb"){0,2}+"
        )  # fmt: skip
    else:
        statistics = b"(?:" + _NUMBER_FIELD + b"|" + _header(_TRUE, _FALSE) + b"|" + _header(_BINARY) + value + b")*+"
    kind = re.escape(bytes([PHYSICAL_TYPES.index(leaf.physical) * 2]))
    metadata = kind + _BEFORE_STATISTICS + statistics + rb"\x00" + _after_statistics(leaf)
    return re.compile(_BEFORE_TYPE + metadata + _AFTER_METADATA, re.DOTALL)
