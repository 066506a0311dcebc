"""Delete files of Iceberg tables: by position, by values, and deletion vectors in a Puffin file."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from builders.iceberg.tables import EQUALITY, POSITIONS, Field, File, IcebergFolder, write_rows
from builders.iceberg.values import compute_metrics, field, list_leaves

PATH_ID, POSITION_ID = 2147483546, 2147483545
POSITION_FIELDS = [field(PATH_ID, "file_path", "string"), field(POSITION_ID, "pos", "long")]

DV_MAGIC = bytes([0xD1, 0xD3, 0x39, 0x64])
PUFFIN_MAGIC = b"PFA1"


def position_deletes(
    table: IcebergFolder,
    name: str,
    deleted: Sequence[tuple[str, int]],
    *,
    spec: int | None = None,
    partition: tuple[Any, ...] = (),
    referenced: str | None = None,
    truncate: int | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> File:
    """Write a position delete file. `deleted` are paths of data files and positions. `truncate` cuts path bounds."""
    rows = pa.table(
        {
            "file_path": pa.array([path for path, _ in deleted], pa.string()),
            "pos": pa.array([position for _, position in deleted], pa.int64()),
        }
    )
    size = write_rows(table.folder / "data" / name, rows, POSITION_FIELDS)
    columns = {each: rows[each].combine_chunks() for each in rows.column_names}
    if metrics is None:
        metrics = compute_metrics(list_leaves(POSITION_FIELDS, columns), truncate)
    if referenced is not None:
        metrics = {**metrics, "referenced_data_file": referenced}
    return _make_delete_file(table, name, POSITIONS, spec, partition, rows.num_rows, size, metrics)


def equality_deletes(
    table: IcebergFolder,
    name: str,
    rows: pa.Table,
    *,
    ids: Sequence[int] | None = None,
    fields: list[Field] | None = None,
    spec: int | None = None,
    partition: tuple[Any, ...] = (),
    metrics: Mapping[str, Any] | None = None,
) -> File:
    """Write an equality delete file. Only the columns with these field ids are compared."""
    fields = table.fields if fields is None else fields
    known = {each["name"]: each["id"] for each in fields}
    size = write_rows(table.folder / "data" / name, rows, fields)
    columns = {each: rows[each].combine_chunks() for each in rows.column_names}
    if metrics is None:
        metrics = compute_metrics(list_leaves(fields, columns))
    numbers = [known[each] for each in rows.column_names] if ids is None else list(ids)
    metrics = {**metrics, "equality_ids": numbers}
    return _make_delete_file(table, name, EQUALITY, spec, partition, rows.num_rows, size, metrics)


def deletion_vectors(
    table: IcebergFolder, name: str, deleted: Mapping[str, Sequence[int]], files: Mapping[str, File]
) -> list[File]:
    """Write one Puffin file with a deletion vector for each path. `files` are the data files, with their partitions."""
    content = PUFFIN_MAGIC
    blobs, found = [], []
    for path, positions in deleted.items():
        vector = encode_vector(positions)
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": [POSITION_ID],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": len(content),
                "length": len(vector),
                "properties": {"referenced-data-file": path, "cardinality": str(len(set(positions)))},
            }
        )
        found.append((path, len(content), len(vector), len(set(positions))))
        content += vector
    footer = json.dumps({"blobs": blobs, "properties": {}}).encode()
    content += PUFFIN_MAGIC + footer + struct.pack("<i", len(footer)) + bytes(4) + PUFFIN_MAGIC
    file_path = table.folder / "data" / name
    file_path.parent.mkdir(parents=True, exist_ok=True)
    file_path.write_bytes(content)
    return [
        _make_delete_file(
            table, name, POSITIONS, files[path].spec, files[path].partition, cardinality, len(content),
            {"referenced_data_file": path, "content_offset": offset, "content_size_in_bytes": length},
        )
        for path, offset, length, cardinality in found
    ]  # fmt: skip


def encode_vector(positions: Sequence[int]) -> bytes:
    """Return a deletion vector blob: length, magic, bitmap, checksum."""
    body = DV_MAGIC + BitMap64(positions).serialize()
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def _make_delete_file(
    table: IcebergFolder,
    name: str,
    content: int,
    spec: int | None,
    partition: tuple[Any, ...],
    rows: int,
    size: int,
    metrics: Mapping[str, Any],
) -> File:
    spec = len(table.specs) - 1 if spec is None else spec
    ending = name.rpartition(".")[2]
    return File(table.path_of(name), ending, content, spec, partition, rows, size, metrics)
