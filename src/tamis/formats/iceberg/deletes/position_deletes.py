"""Position delete files: rows of a file path and a row position, for any number of data files."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tamis import types
from tamis.errors import format_count
from tamis.formats.errors import make_corrupt_snapshot_error
from tamis.formats.files.data_files import DataFile
from tamis.io.ranges import RangedFile
from tamis.io.storage import Storage
from tamis.io.threads import run_in_threads
from tamis.parquet.footer.field_names import ColumnMapping, MappedField

PATH_ID, POSITION_ID = 2147483546, 2147483545
"""The reserved field ids of the two columns."""

_SCHEMA = pa.schema([("file_path", types.STRING), ("pos", types.LONG)])
_BY_NAME = ColumnMapping({name: MappedField(name) for name in _SCHEMA.names}, by_id=False)
_NAMES = ColumnMapping(
    {PATH_ID: MappedField("file_path"), POSITION_ID: MappedField("pos")}, by_id=True, without_ids=_BY_NAME
)


@dataclass(frozen=True, eq=False)
class PositionDeletes:
    """The deleted positions of a position delete file, grouped by data file."""

    paths: pa.Array
    """The distinct data file paths, as in the manifests."""
    starts: npt.NDArray[np.int64]
    """The offset of each path's first position, and the end of the last."""
    positions: npt.NDArray[np.int64]

    @staticmethod
    def read(file: DataFile) -> PositionDeletes:
        """Read a position delete file of any format."""
        batches = list(file.read(_SCHEMA, _NAMES, must_have_all=True))
        table = pa.Table.from_batches(batches, _SCHEMA)
        if table["pos"].null_count or table["file_path"].null_count:
            raise make_corrupt_snapshot_error(
                f"'{file.location}' has position deletes without a path or a position: the file is damaged"
            )
        positions = np.asarray(table["pos"].combine_chunks())
        if len(positions) and positions.min() < 0:
            raise make_corrupt_snapshot_error(f"'{file.location}' deletes row {positions.min()}: the file is damaged")
        encoded = table["file_path"].combine_chunks().dictionary_encode()
        codes = np.asarray(encoded.indices)
        counts = np.bincount(codes, minlength=len(encoded.dictionary))
        return PositionDeletes(
            encoded.dictionary,
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            positions[np.argsort(codes, kind="stable")],
        )

    @property
    def nbytes(self) -> int:
        return int(self.paths.nbytes + self.starts.nbytes + self.positions.nbytes)

    def find_positions(self, paths: pa.Array) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """Yield the index of each data file that has deleted rows, and their positions."""
        found = pc.index_in(paths, value_set=self.paths)
        indices = np.flatnonzero(np.asarray(found.is_valid()))
        numbers = found.drop_null().to_numpy()
        for index, start, end in zip(
            indices.tolist(), self.starts[numbers].tolist(), self.starts[numbers + 1].tolist(), strict=True
        ):
            yield index, self.positions[start:end]


# --- Deletion vectors in Puffin files: each is fetched by its byte range, which the manifest contains, and checked
#
# A deletion vector blob is: the length of magic and bitmap (4 bytes, big-endian), magic bytes, a 64-bit Roaring
# bitmap in the portable format, and a CRC-32 of magic and bitmap (big-endian). One file holds the vectors of many
# data files, so the other blobs and the footer are not read.

FILE_MAGIC = b"PFA1"
VECTOR_MAGIC = b"\xd1\xd3\x39\x64"

_NUMBER_SIZE = 4
_MIN_BLOB_SIZE = 3 * _NUMBER_SIZE


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
    location = storage.format_path(first.path)
    with RangedFile(storage, first.path, first.size) as file:
        for vector in vectors:
            # Checked first, so that nothing beyond the file is read.
            if vector.length < _MIN_BLOB_SIZE or vector.offset < 0 or vector.offset + vector.length > file.size:
                raise make_corrupt_snapshot_error(
                    f"invalid deletion vector of {vector.length} bytes at offset {vector.offset} of '{location}': the "
                    f"file has {file.size} bytes, so it is truncated, or the manifest is damaged"
                )
        magic, *blobs = file.read([(0, len(FILE_MAGIC)), *((each.offset, each.length) for each in vectors)])
    if magic.to_pybytes() != FILE_MAGIC:
        raise make_corrupt_snapshot_error(f"'{location}' is not a Puffin file: its magic bytes are wrong")
    return [
        _decode(blob, vector, f"the deletion vector at offset {vector.offset} of '{location}'")
        for blob, vector in zip(blobs, vectors, strict=True)
    ]


def _decode(blob: pa.Buffer, vector: DeletionVector, where: str) -> BitMap64:
    (length,) = struct.unpack(">I", blob.slice(0, _NUMBER_SIZE))
    if length != blob.size - 2 * _NUMBER_SIZE:
        raise make_corrupt_snapshot_error(
            f"{where} has {length} bytes, but the manifest says {blob.size - 2 * _NUMBER_SIZE}"
        )
    content = blob.slice(_NUMBER_SIZE, length)
    if content[: len(VECTOR_MAGIC)].to_pybytes() != VECTOR_MAGIC:
        raise make_corrupt_snapshot_error(f"{where} has wrong magic bytes")
    (checksum,) = struct.unpack(">I", blob.slice(_NUMBER_SIZE + length, _NUMBER_SIZE))
    if (found := zlib.crc32(content)) != checksum:
        raise make_corrupt_snapshot_error(
            f"{where} is damaged: expected the checksum {checksum:08x}, found {found:08x}"
        )
    try:
        bitmap = BitMap64.deserialize(content.slice(len(VECTOR_MAGIC)).to_pybytes() or b"\0")
    except ValueError as error:
        # Deserializing checks every length and the order of the rows, so a returned bitmap is valid.
        raise make_corrupt_snapshot_error(f"{where} is not a valid Roaring bitmap ({error})") from error
    if bitmap and bitmap.max() >= 2**63:
        raise make_corrupt_snapshot_error(f"{where} deletes row {bitmap.max()}, which no file can have")
    if vector.cardinality is not None and len(bitmap) != vector.cardinality:
        raise make_corrupt_snapshot_error(
            f"{where} deletes {format_count(len(bitmap), 'row')}, but the manifest says {vector.cardinality}"
        )
    return bitmap
