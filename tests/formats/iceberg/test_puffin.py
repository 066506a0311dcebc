"""Deletion vectors in Puffin files: range reads, and every kind of damage."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from pyroaring import BitMap64

from tamis.errors import CorruptFile
from tamis.formats.iceberg.deletes.position_deletes import (
    FILE_MAGIC,
    VECTOR_MAGIC,
    DeletionVector,
    read_deletion_vectors,
)
from tamis.io.storage import Storage, open_storage


def make_blob(
    rows: BitMap64, *, magic: bytes = VECTOR_MAGIC, checksum: int | None = None, length: int | None = None
) -> bytes:
    body = magic + rows.serialize()
    crc = zlib.crc32(body) if checksum is None else checksum
    return struct.pack(">I", len(body) if length is None else length) + body + struct.pack(">I", crc)


def write(
    folder: Path, *blobs: bytes, magic: bytes = FILE_MAGIC, name: str = "v.puffin"
) -> tuple[Storage, list[DeletionVector]]:
    content = magic
    ranges = []
    for each in blobs:
        ranges.append((len(content), len(each)))
        content += each
    content += b"a footer that is not read"
    path = folder / name
    path.write_bytes(content)
    return open_storage(folder), [
        DeletionVector(str(path), len(content), start, length, None) for start, length in ranges
    ]


def test_I6_vectors_of_one_file_are_read_together_and_in_order(tmp_path: Path) -> None:
    bitmaps = [BitMap64([1, 5]), BitMap64(), BitMap64([2**33, 7]), BitMap64(range(1000))]
    storage, vectors = write(tmp_path, *map(make_blob, bitmaps))
    _, others = write(tmp_path, make_blob(BitMap64([3])), name="w.puffin")
    wanted = [vectors[2], others[0], vectors[0], vectors[3], vectors[1]]
    assert read_deletion_vectors(storage, wanted) == [bitmaps[2], BitMap64([3]), bitmaps[0], bitmaps[3], bitmaps[1]]
    # Each file takes one request: reading the gap between two vectors is cheaper than a second request.
    assert storage.counters.counts().requests == 2


def test_only_the_ranges_of_vectors_are_read(tmp_path: Path) -> None:
    far = b"\0" * 1_000_000
    storage, vectors = write(tmp_path, make_blob(BitMap64([1])), far, make_blob(BitMap64([2])))
    assert read_deletion_vectors(storage, [vectors[2]]) == [BitMap64([2])]
    assert storage.counters.counts().bytes_read < 1000


ROWS = BitMap64([1, 5, 9])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (make_blob(ROWS, checksum=1), "is damaged: expected the checksum 00000001, found"),
        (make_blob(ROWS, magic=b"\x64\x39\xd3\xd1"), "has wrong magic bytes"),
        (make_blob(ROWS, length=3), "has 3 bytes, but the manifest says"),
        (make_blob(ROWS)[:-8] + make_blob(ROWS)[-4:], "bytes, but the manifest says"),
        (
            struct.pack(">I", 6) + VECTOR_MAGIC + b"xy" + struct.pack(">I", zlib.crc32(VECTOR_MAGIC + b"xy")),
            "not a valid Roaring",
        ),
        (make_blob(BitMap64([2**63 + 1])), "which no file can have"),
    ],
    ids=["checksum", "magic", "length", "cut off", "no bitmap", "row"],
)
def test_damaged_vectors_are_errors(tmp_path: Path, content: bytes, message: str) -> None:
    storage, vectors = write(tmp_path, content)
    with pytest.raises(CorruptFile, match=message):
        read_deletion_vectors(storage, vectors)


def test_a_cardinality_that_differs_from_the_manifest_is_an_error(tmp_path: Path) -> None:
    storage, (vector,) = write(tmp_path, make_blob(ROWS))
    assert read_deletion_vectors(storage, [replace(vector, cardinality=3)]) == [ROWS]
    with pytest.raises(CorruptFile, match="deletes 3 rows, but the manifest says 4"):
        read_deletion_vectors(storage, [replace(vector, cardinality=4)])


@pytest.mark.parametrize(("offset", "length"), [(-1, 40), (4, 10**12), (10**12, 40), (4, 0), (4, 11), (4, -3)])
def test_X3_an_invalid_byte_range_is_an_error_before_anything_is_read(tmp_path: Path, offset: int, length: int) -> None:
    storage, (vector,) = write(tmp_path, make_blob(ROWS))
    with pytest.raises(CorruptFile, match=r"invalid deletion vector of .*: the file has"):
        read_deletion_vectors(storage, [replace(vector, offset=offset, length=length)])
    assert storage.counters.counts().bytes_read == 0


def test_a_file_that_is_not_puffin_is_an_error(tmp_path: Path) -> None:
    storage, vectors = write(tmp_path, make_blob(ROWS), magic=b"PAR1")
    with pytest.raises(CorruptFile, match="is not a Puffin file"):
        read_deletion_vectors(storage, vectors)
