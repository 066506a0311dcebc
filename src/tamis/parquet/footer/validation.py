"""Validation of footers before pyarrow's accessors read them, because the accessors cannot report an error.

`FileMetaData.row_group(i).column(j)` and `.statistics` abort the whole process (`std::terminate`) if the C++ code below
throws, and read out of bounds if a row group disagrees with the schema. So the bytes are walked once:

| input                                                               | result                                 |
|---------------------------------------------------------------------|----------------------------------------|
| a row group with more or fewer chunks than the schema has leaves;   | `CorruptFile`                          |
| a chunk of another type than its leaf                               |                                        |
| an encrypted column chunk                                           | `UnsupportedFeature`                   |
| statistics whose length is wrong for the type (parquet-rs truncates | min and max are removed from the       |
| the bounds of long fixed-length columns, for example)               | footer: unknown, as if never written   |
| level histograms of another length than the column has levels       | the same                               |
| byte arrays with only deprecated min and max: they were compared as | the same: pyarrow drops them for text, |
| signed bytes, which is wrong for text, bytes and decimals alike     | but trusts them for decimals           |

Nearly all chunks of a column have one of few shapes, in all files of a table. A chunk with the shape of a valid chunk
is valid too, and comparing a shape takes a tenth of the time of a walk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tamis.errors import CorruptFile, UnsupportedFeature
from tamis.parquet.footer.chunks import ChunkShape, ChunkSkipper, FooterMap, FooterMemory, map_footer
from tamis.parquet.footer.thrift import (
    BYTES,
    I64,
    INTEGER32,
    INTEGER64,
    LIST,
    RAW_STRUCT,
    STRUCT,
    Kind,
    Struct,
    encode_struct,
    make_struct_kind,
    read_list_header,
    read_struct,
    skip,
)

# Parquet's physical types, in the order of their enum values.
PHYSICAL_TYPES = (
    "BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY",
)  # fmt: skip
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8}
_BYTES = ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")


MOST_SHAPES = 4
"""The number of shapes that are learned for each leaf."""


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


def validate_footer(
    footer: bytes, leaves: Sequence[LeafType], location: str, memory: FooterMemory
) -> tuple[bytes, FooterMap]:
    """Return the validated footer without unusable statistics, and the positions of chunks in the given footer.

    The footer is the same object if nothing was removed. `memory` is that of other footers with the same schema.
    """
    chunks = _ChunkValidator(leaves, location, memory)
    found = map_footer(footer, location, chunks, memory)
    if not chunks.unusable:
        return footer, found
    parts, start = [], 0
    for begin, end, replacement in sorted(chunks.unusable):
        parts += [footer[start:begin], replacement]
        start = end
    return b"".join([*parts, footer[start:]]), found


def _make_located_kind(wanted: dict[int, Kind]) -> Kind:
    """Return the kind of a struct that is read with its position and its end."""

    def read(data: bytes, position: int) -> tuple[tuple[Struct, int, int], int]:
        found, end = read_struct(data, position, wanted)
        return (found, position, end), end

    return STRUCT, read


def _read_list_size(data: bytes, position: int) -> tuple[int, int]:
    return read_list_header(data, position)[1], skip(data, position, LIST)


_NULL_COUNT = 3
_STATISTICS = {1: BYTES, 2: BYTES, _NULL_COUNT: INTEGER64, 5: BYTES, 6: BYTES}
"""1 and 2 are the deprecated max and min, 5 and 6 the current ones."""
_SIZE_STATISTICS = {1: INTEGER64, 2: (LIST, _read_list_size), 3: (LIST, _read_list_size)}
_METADATA = {1: INTEGER32, 12: _make_located_kind(_STATISTICS), 16: _make_located_kind(_SIZE_STATISTICS)}
_ENCRYPTED = {8: RAW_STRUCT, 9: BYTES}
_CHUNK = {3: make_struct_kind(_METADATA), **_ENCRYPTED}


class _ChunkValidator(ChunkSkipper):
    def __init__(self, leaves: Sequence[LeafType], location: str, memory: FooterMemory) -> None:
        self._leaves = leaves
        self._location = location
        self._memory = memory
        self.unusable: list[tuple[int, int, bytes]] = []
        """The statistics to replace: begin, end, and the replacement bytes."""

    def check_columns(self, row_group: int, columns: int) -> None:
        if columns != len(self._leaves):
            raise self._make_error(
                f"has {columns} columns in row group {row_group} and {len(self._leaves)} in its schema"
            )

    def find_end(self, footer: bytes, position: int, row_group: int, leaf: int) -> int:
        known = self._memory.shapes.get(leaf)
        for shape in known or ():
            matched = shape.match_end(footer, position)
            if matched is not None:
                return matched
        removed = len(self.unusable)
        end = self._walk(footer, position, row_group, self._leaves[leaf])
        self._memory.walked += 1
        is_learned = self._memory.walked > self._memory.walked_first and len(self.unusable) == removed
        if known is None:
            # The column may have no other chunk.
            self._memory.shapes[leaf] = ()
        elif is_learned and len(known) < MOST_SHAPES:
            is_text = self._leaves[leaf].physical == "BYTE_ARRAY"
            learned = ChunkShape.of(footer, position, any_bounds=is_text)
            self._memory.shapes[leaf] = known if learned is None else (*known, learned)
        return end

    def _walk(self, footer: bytes, position: int, row_group: int, leaf: LeafType) -> int:
        chunk, end = read_struct(footer, position, _CHUNK)
        if not chunk.keys().isdisjoint(_ENCRYPTED):
            raise UnsupportedFeature(
                f"'{self._location}' has encrypted columns, which are not supported; decrypt the file first"
            )
        if 3 not in chunk:
            raise self._make_error(f"has a column without metadata in row group {row_group}")
        metadata = chunk[3]
        number = metadata.get(1, -1)
        physical = PHYSICAL_TYPES[number] if 0 <= number < len(PHYSICAL_TYPES) else "an unknown type"
        if physical != leaf.physical:
            raise self._make_error(f"has a column of {physical} in row group {row_group}, expected {leaf.physical}")
        statistics, begin, after = metadata.get(12, ({}, 0, 0))
        if not _are_usable(statistics, leaf):
            kept = encode_struct([(_NULL_COUNT, I64, statistics.get(_NULL_COUNT))])
            self.unusable.append((begin, after, kept))
        sizes, begin, after = metadata.get(16, ({}, 0, 0))
        if not _are_sizes_usable(sizes, leaf):
            self.unusable.append((begin, after, encode_struct([])))
        return end

    def _make_error(self, what: str) -> CorruptFile:
        return CorruptFile(f"the footer of '{self._location}' {what}; write the file again")


def _are_usable(statistics: Struct, leaf: LeafType) -> bool:
    has_deprecated, has_current = 1 in statistics or 2 in statistics, 5 in statistics and 6 in statistics
    if leaf.physical in _BYTES and has_deprecated and not has_current:
        return False
    bounds = (value for identifier, value in statistics.items() if identifier != _NULL_COUNT)
    return leaf.width is None or all(len(value) == leaf.width for value in bounds)


def _are_sizes_usable(sizes: Struct, leaf: LeafType) -> bool:
    levels = {2: leaf.repetition_level, 3: leaf.definition_level}
    return (1 not in sizes or leaf.physical == "BYTE_ARRAY") and all(
        sizes.get(identifier, 0) in (0, level + 1) for identifier, level in levels.items()
    )
