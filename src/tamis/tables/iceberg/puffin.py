"""Deletion vectors in Puffin files: each is fetched by its byte range, which the manifest contains, and checked.

A deletion vector blob is: the length of magic and bitmap (4 bytes, big-endian), magic bytes, a 64-bit Roaring bitmap in
the portable format, and a CRC-32 of magic and bitmap (big-endian). One file holds the vectors of many data files, so
the other blobs and the footer are not read.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyroaring import BitMap64

from tamis.errors import CorruptFile, format_count
from tamis.io.ranges import RangedFile
from tamis.io.storage import Storage
from tamis.io.threads import run_in_threads

FILE_MAGIC = b"PFA1"
VECTOR_MAGIC = b"\xd1\xd3\x39\x64"

_NUMBER_SIZE = 4
_MIN_BLOB_SIZE = 3 * _NUMBER_SIZE

_ADVICE = "restore the file, or read a snapshot of the table without it"


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """The byte range of a deletion vector, and its cardinality (None: unknown)."""

    path: str
    size: int
    """The size of the file."""
    offset: int
    length: int
    cardinality: int | None


def read_deletion_vectors(storage: Storage, vectors: Sequence[DeletionVector]) -> list[BitMap64]:
    """Read deletion vectors, in order. Those of one file are read together."""
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


def _read_file(storage: Storage, vectors: Sequence[DeletionVector]) -> list[BitMap64]:
    first = vectors[0]
    location = storage.place(first.path)
    with RangedFile(storage, first.path, first.size) as file:
        for vector in vectors:
            # Checked first, so that nothing beyond the file is read.
            if vector.length < _MIN_BLOB_SIZE or vector.offset < 0 or vector.offset + vector.length > file.size:
                raise CorruptFile(
                    f"invalid deletion vector of {vector.length} bytes at offset {vector.offset} of '{location}': the "
                    f"file has {file.size} bytes, so it is truncated, or the manifest is damaged; {_ADVICE}"
                )
        magic, *blobs = file.read([(0, len(FILE_MAGIC)), *((each.offset, each.length) for each in vectors)])
    if magic.to_pybytes() != FILE_MAGIC:
        raise CorruptFile(f"'{location}' is not a Puffin file: its magic bytes are wrong; {_ADVICE}")
    return [
        _decode(blob, vector, f"the deletion vector at offset {vector.offset} of '{location}'")
        for blob, vector in zip(blobs, vectors, strict=True)
    ]


def _decode(blob: pa.Buffer, vector: DeletionVector, where: str) -> BitMap64:
    (length,) = struct.unpack(">I", blob.slice(0, _NUMBER_SIZE))
    if length != blob.size - 2 * _NUMBER_SIZE:
        raise CorruptFile(
            f"{where} has {length} bytes, but the manifest says {blob.size - 2 * _NUMBER_SIZE}; {_ADVICE}"
        )
    content = blob.slice(_NUMBER_SIZE, length)
    if content[: len(VECTOR_MAGIC)].to_pybytes() != VECTOR_MAGIC:
        raise CorruptFile(f"{where} has wrong magic bytes; {_ADVICE}")
    (checksum,) = struct.unpack(">I", blob.slice(_NUMBER_SIZE + length, _NUMBER_SIZE))
    if (found := zlib.crc32(content)) != checksum:
        raise CorruptFile(f"{where} is damaged: expected the checksum {checksum:08x}, found {found:08x}; {_ADVICE}")
    try:
        bitmap = BitMap64.deserialize(content.slice(len(VECTOR_MAGIC)).to_pybytes() or b"\0")
    except ValueError as error:
        # Deserializing checks every length and the order of the rows, so a returned bitmap is valid.
        raise CorruptFile(f"{where} is not a valid Roaring bitmap ({error}); {_ADVICE}") from error
    if bitmap and bitmap.max() >= 2**63:
        raise CorruptFile(f"{where} deletes row {bitmap.max()}, which no file can have; {_ADVICE}")
    if vector.cardinality is not None and len(bitmap) != vector.cardinality:
        raise CorruptFile(
            f"{where} deletes {format_count(len(bitmap), 'row')}, but the manifest says {vector.cardinality}; {_ADVICE}"
        )
    return bitmap
