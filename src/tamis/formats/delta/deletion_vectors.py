"""Deletion vectors: bitmaps of the deleted rows of a data file, by position in the file.

A descriptor in the log locates the bitmap of a data file:

| storage type | `path_or_inline`                                                  | the bitmap is                     |
|--------------|-------------------------------------------------------------------|-----------------------------------|
| `u`          | a directory (may be empty), then 20 characters: a UUID in Z85     | in `prefix/deletion_vector_….bin` |
| `p`          | an absolute URI, percent-encoded                                  | in that file                      |
| `i`          | Z85 of the bitmap                                                 | inline                            |

A deletion vector file starts with a version byte (1) and holds the vectors of many data files. At `offset`, it has:

    size (4 bytes, big-endian) · bitmap (`size` bytes) · CRC-32 of the bitmap (4 bytes, big-endian)

A bitmap starts with a magic number that identifies its format (numbers are little-endian from here on):

    portable   1681511377 · the 64-bit Roaring format: number of groups (8 bytes), each: its number (4), 32-bit Roaring
    native     1681511376 · number of groups (4 bytes), each: its length (4), 32-bit Roaring, for groups 0, 1, 2, …

The inline example of the protocol is a native bitmap whose magic number, count and lengths are big-endian: that is
supported too.

Roaring bitmaps stay compressed, as do the runs of a `RowSelection`: a few bytes may mark four billion rows as deleted.
So `read_deletion_bitmaps` returns bitmaps, not positions, which would take 8 bytes per row.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from tamis.errors import CorruptFile, UnsupportedFeature, format_count
from tamis.formats.delta.paths import join_below_root, resolve_path
from tamis.formats.errors import make_corrupt_log_error
from tamis.io.ranges import RangedFile
from tamis.io.storage import Storage
from tamis.io.threads import run_in_threads

_PORTABLE, _NATIVE = 1681511377, 1681511376
_FILE_VERSION = 1
_UUID_CHARACTERS = 20
_FRAME = 4
"""The length in bytes of the size before a bitmap, and of the checksum after it."""

_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGITS = np.full(256, 255, np.uint8)
_DIGITS[np.frombuffer(_Z85, np.uint8)] = np.arange(85, dtype=np.uint8)
_POWERS = np.array([85**4, 85**3, 85**2, 85, 1], np.uint64)


@dataclass(frozen=True, slots=True)
class DeletionVectorDescriptor:
    """The log's descriptor of the deletion vector of one data file. `size` is the size of the bitmap in bytes."""

    storage_type: str
    path_or_inline: str
    offset: int | None
    size: int
    cardinality: int


def parse_descriptors(column: pa.StructArray | pa.ChunkedArray) -> list[DeletionVectorDescriptor | None]:
    """Return the descriptors in the column `deletion_vector` of live files; None for a file without one."""
    found = [None if each is None else DeletionVectorDescriptor(**each) for each in column.to_pylist()]
    for each in found:
        if each is not None and None in (each.storage_type, each.path_or_inline, each.size, each.cardinality):
            raise make_corrupt_log_error(
                f"the log has a deletion vector without storage type, path, size or cardinality: {each}"
            )
    return found


def read_deletion_bitmaps(
    storage: Storage, descriptors: Iterable[DeletionVectorDescriptor | None], *, allow_outside: bool = False
) -> list[BitMap64]:
    """Return the bitmap of deleted rows for each descriptor; an empty one for None.

    The vectors of one file are read together, in as few requests as their offsets allow, and several files are read
    concurrently. Absolute paths outside the table's directory are rejected unless `allow_outside`.
    """
    wanted = list(descriptors)
    found: list[BitMap64 | None] = [None] * len(wanted)
    files: dict[str, list[int]] = {}
    for position, descriptor in enumerate(wanted):
        if descriptor is None:
            found[position] = BitMap64()
        elif descriptor.storage_type == "i":
            found[position] = _decode_inline(storage, descriptor)
        else:
            path = resolve_deletion_vector_path(storage, descriptor, allow_outside=allow_outside)
            files.setdefault(path, []).append(position)
    read = partial(_read_file, storage)
    parts = [(path, [wanted[position] for position in positions]) for path, positions in files.items()]
    for positions, bitmaps in zip(files.values(), run_in_threads(read, parts, storage.threads), strict=True):
        for position, bitmap in zip(positions, bitmaps, strict=True):
            found[position] = bitmap
    return [bitmap for bitmap in found if bitmap is not None]


def resolve_deletion_vector_path(
    storage: Storage, descriptor: DeletionVectorDescriptor, *, allow_outside: bool = False
) -> str:
    """Return the path, in the file system, of the file that holds a vector."""
    text = descriptor.path_or_inline
    match descriptor.storage_type:
        case "u":
            prefix, encoded = text[:-_UUID_CHARACTERS], text[-_UUID_CHARACTERS:]
            if len(encoded) != _UUID_CHARACTERS:
                raise make_corrupt_log_error(
                    f"a deletion vector of '{storage.format_path(storage.root)}' is damaged: expected a UUID of "
                    f"{_UUID_CHARACTERS} characters, found {text!r}"
                )
            name = f"deletion_vector_{uuid.UUID(bytes=decode_z85(encoded, storage.format_path(storage.root)))}.bin"
            return join_below_root(storage, f"{prefix}/{name}" if prefix else name)
        case "p":
            return resolve_path(storage, text, allow_outside=allow_outside)
        case other:
            raise UnsupportedFeature(
                f"a deletion vector of '{storage.format_path(storage.root)}' has the storage type {other!r}: supported "
                "are 'u' (relative path), 'p' (absolute path) and 'i' (inline). A newer Tamis may read it"
            )


def decode_z85(text: str, location: str) -> bytes:
    """Decode Z85 text: four bytes for every five characters.

    >>> decode_z85("HelloWorld", "here").hex()
    '864fd26fb559f75b'
    """
    digits = _DIGITS[np.frombuffer(text.encode(), np.uint8)]
    values = digits.reshape(-1, 5).astype(np.uint64) @ _POWERS if digits.size % 5 == 0 else None
    if values is None or (digits == 255).any() or (values >= 2**32).any():
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        raise make_corrupt_log_error(
            f"a deletion vector of '{location}' has a damaged log entry: {shown!r} is not valid Z85"
        )
    return values.astype(">u4").tobytes()


def _decode_inline(storage: Storage, descriptor: DeletionVectorDescriptor) -> BitMap64:
    location = storage.format_path(storage.root)
    content = decode_z85(descriptor.path_or_inline, location)
    # Z85 encodes groups of four bytes, so up to three bytes of padding may follow the bitmap.
    if not len(content) - 4 < descriptor.size <= len(content):
        raise make_corrupt_log_error(
            f"a deletion vector of '{location}' is damaged: it has {len(content)} bytes inline, expected "
            f"{descriptor.size} by its descriptor"
        )
    return _decode(content[: descriptor.size], descriptor, f"an inline deletion vector of '{location}'")


def _read_file(storage: Storage, part: tuple[str, Sequence[DeletionVectorDescriptor | None]]) -> list[BitMap64]:
    path, wanted = part
    descriptors = [descriptor for descriptor in wanted if descriptor is not None]
    with RangedFile(storage, path) as file:
        starts = [descriptor.offset or 0 for descriptor in descriptors]
        for descriptor, start in zip(descriptors, starts, strict=True):
            if start < 1 or descriptor.size < 0 or start + descriptor.size + 2 * _FRAME > file.size:
                raise _make_vector_error(
                    f"the deletion vector of {descriptor.size} bytes at offset {start} is not within "
                    f"'{storage.format_path(path)}', which has {file.size} bytes: the file is truncated or its log "
                    "entry is damaged"
                )
        lengths = [descriptor.size + 2 * _FRAME for descriptor in descriptors]
        version, *frames = file.read([(0, 1), *zip(starts, lengths, strict=True)])
    if version[0] != _FILE_VERSION:
        raise UnsupportedFeature(
            f"'{storage.format_path(path)}' holds deletion vectors of format version {version[0]}; Tamis supports "
            f"version {_FILE_VERSION}. A newer Tamis may read it, or the file is damaged"
        )
    return [_decode_frame(storage, path, *each) for each in zip(descriptors, starts, frames, strict=True)]


def _decode_frame(
    storage: Storage, path: str, descriptor: DeletionVectorDescriptor, start: int, frame: pa.Buffer
) -> BitMap64:
    where = f"the deletion vector at offset {start} of '{storage.format_path(path)}'"
    content = frame.slice(_FRAME, descriptor.size)
    (size,) = struct.unpack(">I", frame.slice(0, _FRAME))
    if size != descriptor.size:
        raise _make_vector_error(f"{where} has {size} bytes, expected {descriptor.size} by the log")
    (checksum,) = struct.unpack(">I", frame.slice(_FRAME + descriptor.size, _FRAME))
    if (found := zlib.crc32(content)) != checksum:
        raise _make_vector_error(f"{where} is damaged: its checksum is {found:08x}, expected {checksum:08x}")
    return _decode(content.to_pybytes(), descriptor, where)


def _decode(content: bytes, descriptor: DeletionVectorDescriptor, where: str) -> BitMap64:
    try:
        bitmap = BitMap64.deserialize(_to_portable(content, where))
    except ValueError as error:
        # Deserialising checks every length and the order of the rows, so a returned bitmap is valid.
        raise _make_vector_error(f"{where} is not a valid Roaring bitmap ({error})") from error
    if bitmap and bitmap.max() >= 2**63:
        raise _make_vector_error(f"{where} deletes row {bitmap.max()}, which no file can have")
    if len(bitmap) != descriptor.cardinality:
        raise _make_vector_error(
            f"{where} deletes {format_count(len(bitmap), 'row')}, expected {descriptor.cardinality} by the log"
        )
    return bitmap


def _to_portable(content: bytes, where: str) -> bytes:
    """Return the bitmap in the portable 64-bit Roaring format, without its magic number."""
    magic = content[:4]
    if magic == struct.pack("<I", _PORTABLE):
        return content[4:] or b"\0"
    for order in "<>":
        if magic == struct.pack(f"{order}I", _NATIVE):
            return _to_portable_from_native(content, order, where)
    raise _make_vector_error(
        f"{where} has the unknown magic number {magic.hex(' ')}, expected {_PORTABLE} (portable) or {_NATIVE} (native)"
    )


def _to_portable_from_native(content: bytes, order: str, where: str) -> bytes:
    (count,) = struct.unpack(f"{order}I", content[4:8].ljust(4, b"\xff"))
    parts = [struct.pack("<Q", count)]
    offset = 8
    # One group for each 2^32 rows. Every group consumes bytes, so a wrong count stops at the end of the content.
    for group in range(count):
        (length,) = struct.unpack(f"{order}I", content[offset : offset + 4].ljust(4, b"\xff"))
        bitmap = content[offset + 4 : offset + 4 + length]
        if len(bitmap) != length or length == 0:
            raise _make_vector_error(f"{where} ends within the bitmap of group {group} of {count}")
        parts += [struct.pack("<I", group), bitmap]
        offset += 4 + length
    return b"".join(parts)


def _make_vector_error(problem: str) -> CorruptFile:
    return CorruptFile(f"{problem}. Restore the file, or open a version of the table that does not need it")
