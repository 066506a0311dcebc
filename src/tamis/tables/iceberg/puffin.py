"""Deletion vectors in Puffin files: each fetched by its range, which the manifest tells, and checked.

A blob of a vector is: its length (4 bytes, the highest first, of what follows but for the checksum), magic, a 64-bit
Roaring bitmap in its portable form, CRC-32 of magic and bitmap (the highest byte first). One file holds the vectors of
many data files, so the others of it, and its footer, are not read.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyroaring import BitMap64

from tamis.errors import CorruptFile, counted
from tamis.io.ranges import RangedFile
from tamis.io.storage import Storage
from tamis.io.threads import run_in_threads

FILE_MAGIC = b"PFA1"
VECTOR_MAGIC = b"\xd1\xd3\x39\x64"

_NUMBER = 4
_SHORTEST = 3 * _NUMBER

_WAY_OUT = "restore the file, or read a snapshot of the table without it"


@dataclass(frozen=True, slots=True)
class Vector:
    """Where a deletion vector is, and how many rows it deletes (None: not told)."""

    path: str
    size: int
    """Of the file."""
    offset: int
    length: int
    cardinality: int | None


def read_vectors(storage: Storage, vectors: Sequence[Vector]) -> list[BitMap64]:
    """The vectors, in their order. Those of one file are read together."""
    files: dict[tuple[str, int], list[int]] = {}
    for position, vector in enumerate(vectors):
        files.setdefault((vector.path, vector.size), []).append(position)
    parts = [[vectors[position] for position in positions] for positions in files.values()]
    found = run_in_threads(partial(_read_file, storage), parts, storage.threads)
    by_position = dict(
        pair
        for positions, bitmaps in zip(files.values(), found, strict=True)
        for pair in zip(positions, bitmaps, strict=True)
    )
    return [by_position[position] for position in range(len(vectors))]


def _read_file(storage: Storage, vectors: Sequence[Vector]) -> list[BitMap64]:
    first = vectors[0]
    place = storage.place(first.path)
    with RangedFile(storage, first.path, first.size) as file:
        for vector in vectors:
            # Looked at first: nothing larger than the file is read.
            if vector.length < _SHORTEST or vector.offset < 0 or vector.offset + vector.length > file.size:
                raise CorruptFile(
                    f"the deletion vector of {vector.length} bytes at byte {vector.offset} of '{place}' is none: the "
                    f"file has {file.size} bytes, so it is cut off, or the manifest is damaged; {_WAY_OUT}"
                )
        magic, *blobs = file.read([(0, len(FILE_MAGIC)), *((each.offset, each.length) for each in vectors)])
    if magic.to_pybytes() != FILE_MAGIC:
        raise CorruptFile(f"'{place}' is no Puffin file: it does not begin as one; {_WAY_OUT}")
    return [
        _decode(blob, vector, f"the deletion vector at byte {vector.offset} of '{place}'")
        for blob, vector in zip(blobs, vectors, strict=True)
    ]


def _decode(blob: pa.Buffer, vector: Vector, where: str) -> BitMap64:
    (length,) = struct.unpack(">I", blob.slice(0, _NUMBER))
    if length != blob.size - 2 * _NUMBER:
        raise CorruptFile(
            f"{where} says that it has {length} bytes, and the manifest {blob.size - 2 * _NUMBER}; {_WAY_OUT}"
        )
    content = blob.slice(_NUMBER, length)
    if content[: len(VECTOR_MAGIC)].to_pybytes() != VECTOR_MAGIC:
        raise CorruptFile(f"{where} does not begin as one: its magic number is another; {_WAY_OUT}")
    (checksum,) = struct.unpack(">I", blob.slice(_NUMBER + length, _NUMBER))
    if (found := zlib.crc32(content)) != checksum:
        raise CorruptFile(f"{where} is damaged: its checksum is {found:08x}, and {checksum:08x} is stored; {_WAY_OUT}")
    try:
        bitmap = BitMap64.deserialize(content.slice(len(VECTOR_MAGIC)).to_pybytes() or b"\0")
    except ValueError as error:
        # Deserialising checks every length and the order of the rows, so a bitmap that comes back can be relied on.
        raise CorruptFile(f"{where} is no Roaring bitmap ({error}); {_WAY_OUT}") from error
    if bitmap and bitmap.max() >= 2**63:
        raise CorruptFile(f"{where} deletes row {bitmap.max()}, more than any file holds; {_WAY_OUT}")
    if vector.cardinality is not None and len(bitmap) != vector.cardinality:
        raise CorruptFile(
            f"{where} deletes {counted(len(bitmap), 'row')}, and the manifest says {vector.cardinality}; {_WAY_OUT}"
        )
    return bitmap
