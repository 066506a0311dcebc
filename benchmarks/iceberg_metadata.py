"""Writes Iceberg tables that have metadata and no data: planning reads nothing else.

File n has the thousand ids from 1,000 n on. Days follow the order of the files, as in a table that grows day by day, so
a manifest has the files of some days. Regions take turns. All entries have the same length, so numpy encodes whole
columns of a manifest instead of single entries.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ROWS = 1_000
"""The number of rows of each file."""
DAYS = 1_000
REGIONS = 10
FIRST_DAY = 18_993
"""2022-01-01, in days since 1970."""
PER_BLOCK = 100
"""The number of entries in a block. Entries have about 600 bytes, and Iceberg on Java writes blocks of 64 kB."""
DELETED_ROWS = 10
"""The number of rows that each delete file deletes."""

_DAY_MICROSECONDS = 86_400 * 10**6
_SNAPSHOT = 4_000_000_000_000_000_001
_SYNC = bytes(range(16))
_FIELDS = (
    (1, "id", "long"),
    (2, "ts", "timestamptz"),
    (3, "region", "string"),
    (4, "amount", "double"),
    (5, "qty", "int"),
    (6, "name", "string"),
)
_SPEC = ((2, 1000, "day", "ts_day"), (3, 1001, "identity", "region"))
_PATH_ID, _POSITION_ID = 2147483546, 2147483545

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a table."""

    files: int
    manifests: int
    deletes: int = 0
    per_block: int = PER_BLOCK
    by_values: bool = False
    """Whether delete files have values instead of positions."""

    def get_day(self, number: int) -> str:
        return str(np.datetime64("1970-01-01", "D") + int(self.get_days(np.array([number]))[0]))

    def get_days(self, numbers: Numbers) -> Numbers:
        return FIRST_DAY + numbers * DAYS // self.files

    def list_files_with_deletes(self) -> Numbers:
        """Return the numbers of the files that have deleted rows."""
        return np.arange(self.deletes, dtype=np.int64) * (self.files // max(self.deletes, 1))


def get_region(number: int) -> str:
    return f"r{number % REGIONS}"


def write_table(folder: Path, location: str, shape: Shape) -> None:
    """Write the metadata of a table whose final location is `location`."""
    metadata = folder / "metadata"
    metadata.mkdir(parents=True)
    listed = []
    for index, numbers in enumerate(np.array_split(np.arange(shape.files, dtype=np.int64), shape.manifests)):
        entries = _make_data_entries(numbers, location, shape)
        listed.append(_write_manifest(metadata, location, f"m{index}.avro", entries, shape, numbers, is_delete=False))
    if shape.deletes:
        numbers = shape.list_files_with_deletes()
        make_entries = _make_equality_deletes if shape.by_values else _make_position_deletes
        entries = make_entries(numbers, location, shape)
        listed.append(_write_manifest(metadata, location, "deletes.avro", entries, shape, numbers, is_delete=True))
    _write_manifest_list(metadata / "snap.avro", listed)
    (metadata / "v1.metadata.json").write_text(json.dumps(_make_metadata(location)))
    (metadata / "version-hint.text").write_text("1")


# --- Entries of the same length --------------------------------------------------------------------------------------


def _make_data_entries(numbers: Numbers, location: str, shape: Shape) -> Bytes:
    days = shape.get_days(numbers)
    ids = numbers * ROWS
    start = days * _DAY_MICROSECONDS + numbers % 1000 * 1_000_000
    amounts = (numbers % 10_000).astype(np.float64) / 4
    quantities = (numbers % 100).astype(np.int32)
    names = _encode_digits(numbers, 8, b"name-")
    region = _encode_digits(numbers % REGIONS, 1, b"r")
    counts = [(number, _encode_varint(ROWS)) for number, _, _ in _FIELDS]
    nulls = [(number, b"\0") for number, _, _ in _FIELDS]
    lower = [_view_bytes(ids), _view_bytes(start), region, _view_bytes(amounts), _view_bytes(quantities), names]
    upper = [
        _view_bytes(ids + ROWS - 1),
        _view_bytes(start + 3_600_000_000),
        region,
        _view_bytes(amounts + 100),
        _view_bytes(quantities + 50),
        names,
    ]
    return _join_columns(
        len(numbers),
        [
            *_encode_start(
                0, _make_paths(numbers, location, shape), b"PARQUET", days, region, rows=ROWS, size=120_000_000
            ),
            *_encode_map(counts),
            *_encode_map(counts),
            *_encode_map(nulls),
            *_encode_map([(4, b"\0")]),
            *_encode_map([(number, _add_length(each)) for (number, _, _), each in zip(_FIELDS, lower, strict=True)]),
            *_encode_map([(number, _add_length(each)) for (number, _, _), each in zip(_FIELDS, upper, strict=True)]),
            b"\0\0\0\0",
        ],
    )


def _make_position_deletes(numbers: Numbers, location: str, shape: Shape) -> Bytes:
    """Return position deletes: each one references one data file, whose path is both bounds of its paths."""
    days = shape.get_days(numbers)
    region = _encode_digits(numbers % REGIONS, 1, b"r")
    targets = _make_paths(numbers, location, shape)
    own = _encode_digits(numbers, 8, f"{location}/data/deletes-".encode(), b".parquet")
    counts = [(_PATH_ID, _encode_varint(DELETED_ROWS)), (_POSITION_ID, _encode_varint(DELETED_ROWS))]
    first, last = (_view_bytes(np.full(len(numbers), each, dtype=np.int64)) for each in (0, DELETED_ROWS - 1))
    return _join_columns(
        len(numbers),
        [
            *_encode_start(1, own, b"PARQUET", days, region, rows=DELETED_ROWS, size=2_000),
            b"\0",
            *_encode_map(counts),
            b"\0\0",
            *_encode_map([(_PATH_ID, _add_length(targets)), (_POSITION_ID, _add_length(first))]),
            *_encode_map([(_PATH_ID, _add_length(targets)), (_POSITION_ID, _add_length(last))]),
            b"\0\0\0\0",
        ],
    )


def _make_equality_deletes(numbers: Numbers, location: str, shape: Shape) -> Bytes:
    """Return equality deletes: each one has the first ids of one data file, in the same partition."""
    days = shape.get_days(numbers)
    region = _encode_digits(numbers % REGIONS, 1, b"r")
    own = _encode_digits(numbers, 8, f"{location}/data/deletes-".encode(), b".parquet")
    first, last = (_view_bytes(numbers * ROWS + each) for each in (0, DELETED_ROWS - 1))
    return _join_columns(
        len(numbers),
        [
            *_encode_start(2, own, b"PARQUET", days, region, rows=DELETED_ROWS, size=2_000),
            b"\0",
            *_encode_map([(1, _encode_varint(DELETED_ROWS))]),
            *_encode_map([(1, b"\0")]),
            b"\0",
            *_encode_map([(1, _add_length(first))]),
            *_encode_map([(1, _add_length(last))]),
            # The field ids of the compared columns: a list of one.
            b"\0\0" + b"\x02" + _encode_varint(1) + _encode_varint(1) + b"\0" + b"\0",
        ],
    )


Part = bytes | Bytes


def _encode_start(
    content: int, paths: Bytes, file_format: bytes, days: Numbers, region: Bytes, *, rows: int, size: int
) -> Iterator[Part]:
    """Encode the fields from the status to the size of the file."""
    yield b"\x02" + b"\x02" + _encode_varint(_SNAPSHOT)
    # Sequence numbers are inherited from the manifest.
    yield b"\0\0" + _encode_varint(content)
    yield from _add_length(paths)
    yield _encode_varint(len(file_format)) + file_format
    yield b"\x02"
    yield _encode_varints(days)
    yield b"\x02"
    yield from _add_length(region)
    yield _encode_varint(rows) + _encode_varint(size)


def _encode_map(values: Sequence[tuple[int, Part | Sequence[Part]]]) -> Iterator[Part]:
    yield b"\x02" + _encode_varint(len(values))
    for key, value in values:
        yield _encode_varint(key)
        if isinstance(value, bytes | np.ndarray):
            yield value
        else:
            yield from value
    yield b"\0"


def _join_columns(count: int, parts: Sequence[Part]) -> Bytes:
    """Concatenate columns of bytes, with one row for each entry."""
    columns = [
        np.broadcast_to(np.frombuffer(each, np.uint8), (count, len(each))) if isinstance(each, bytes) else each
        for each in parts
    ]
    return np.ascontiguousarray(np.concatenate(columns, axis=1))


def _add_length(values: Bytes) -> list[Part]:
    return [_encode_varint(values.shape[1]), values]


def _view_bytes(values: npt.NDArray[Any]) -> Bytes:
    return values[:, None].view(np.uint8)


def _encode_digits(numbers: Numbers, width: int, before: bytes = b"", behind: bytes = b"") -> Bytes:
    powers = 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)
    digits = (numbers[:, None] // powers % 10 + ord("0")).astype(np.uint8)
    return _join_columns(len(numbers), [before, digits, behind])


def _make_paths(numbers: Numbers, location: str, shape: Shape) -> Bytes:
    days = np.datetime_as_string(shape.get_days(numbers).astype("datetime64[D]")).astype("S10")
    return _join_columns(
        len(numbers),
        [
            f"{location}/data/ts_day=".encode(),
            np.frombuffer(days.tobytes(), np.uint8).reshape(len(numbers), 10),
            b"/region=",
            _encode_digits(numbers % REGIONS, 1, b"r", b"/00000-0-6b55fc2b-ce03-407e-9585-"),
            _encode_digits(numbers, 12, b"", b"-00001.parquet"),
        ],
    )


def _encode_varint(value: int) -> bytes:
    left = value << 1
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def _encode_varints(values: Numbers) -> Bytes:
    """Encode numbers that all take three bytes."""
    left = values << 1
    assert ((left >= 1 << 14) & (left < 1 << 21)).all()
    return np.stack([left & 0x7F | 0x80, left >> 7 & 0x7F | 0x80, left >> 14], axis=1).astype(np.uint8)


# --- Files -----------------------------------------------------------------------------------------------------------


def _write_manifest(
    folder: Path, location: str, name: str, entries: Bytes, shape: Shape, numbers: Numbers, *, is_delete: bool
) -> dict[str, Any]:
    from pyiceberg.manifest import data_file_with_partition, manifest_entry_schema_with_data_file
    from pyiceberg.utils.schema_conversion import AvroSchemaConversion

    schema, spec = _make_schema_and_spec()
    file_type = data_file_with_partition(spec.partition_type(schema), 2)
    avro = AvroSchemaConversion().iceberg_to_avro(
        manifest_entry_schema_with_data_file(2, file_type), schema_name="manifest_entry"
    )
    header = {
        "avro.schema": json.dumps(avro),
        "avro.codec": "deflate",
        "schema": schema.model_dump_json(),
        "partition-spec": json.dumps(_make_spec_fields()),
        "partition-spec-id": "0",
        "format-version": "2",
        "content": "deletes" if is_delete else "data",
    }
    pairs = ((key.encode(), value.encode()) for key, value in header.items())
    content = [b"Obj\x01", _encode_varint(len(header))]
    content += [_encode_varint(len(each)) + each for pair in pairs for each in pair]
    content += [b"\0", _SYNC]
    for start in range(0, len(entries), shape.per_block):
        some = entries[start : start + shape.per_block]
        packer = zlib.compressobj(1, wbits=-15)
        data = packer.compress(some.tobytes()) + packer.flush()
        content += [_encode_varint(len(some)), _encode_varint(len(data)), data, _SYNC]
    written = b"".join(content)
    (folder / name).write_bytes(written)
    days = shape.get_days(numbers)
    regions = [get_region(number).encode() for number in range(REGIONS)]
    return {
        "manifest_path": f"{location}/metadata/{name}",
        "manifest_length": len(written),
        "content": int(is_delete),
        "files": len(entries),
        "rows": len(entries) * (DELETED_ROWS if is_delete else ROWS),
        "bounds": [
            (int(days.min()).to_bytes(4, "little"), int(days.max()).to_bytes(4, "little")),
            (regions[0], regions[-1]),
        ],
    }


def _write_manifest_list(path: Path, listed: list[dict[str, Any]]) -> None:
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.manifest import ManifestContent, ManifestFile, PartitionFieldSummary, write_manifest_list

    output = PyArrowFileIO().new_output(str(path))
    with write_manifest_list(2, output, _SNAPSHOT, None, 2, "deflate") as writer:
        for each in listed:
            summaries = [
                PartitionFieldSummary.from_args(
                    contains_null=False, contains_nan=False, lower_bound=lower, upper_bound=upper
                )
                for lower, upper in each["bounds"]
            ]
            # Deletes have a higher sequence number than the files they apply to.
            sequence = 1 + each["content"]
            writer.add_manifests(
                [
                    ManifestFile.from_args(
                        manifest_path=each["manifest_path"],
                        manifest_length=each["manifest_length"],
                        partition_spec_id=0,
                        content=ManifestContent(each["content"]),
                        sequence_number=sequence,
                        min_sequence_number=sequence,
                        added_snapshot_id=_SNAPSHOT,
                        added_files_count=each["files"],
                        existing_files_count=0,
                        deleted_files_count=0,
                        added_rows_count=each["rows"],
                        existing_rows_count=0,
                        deleted_rows_count=0,
                        partitions=summaries,
                        key_metadata=None,
                    )
                ]
            )


def _make_schema_and_spec() -> tuple[Any, Any]:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

    fields = [{"id": number, "name": name, "type": kind, "required": False} for number, name, kind in _FIELDS]
    schema = Schema.model_validate({"type": "struct", "schema-id": 0, "fields": fields})
    return schema, PartitionSpec.model_validate({"spec-id": 0, "fields": _make_spec_fields()})


def _make_spec_fields() -> list[dict[str, Any]]:
    return [
        {"source-id": source, "field-id": number, "transform": transform, "name": name}
        for source, number, transform, name in _SPEC
    ]


def _make_metadata(location: str) -> dict[str, Any]:
    fields = [{"id": number, "name": name, "type": kind, "required": False} for number, name, kind in _FIELDS]
    timestamp = 1_700_000_000_000
    return {
        "format-version": 2,
        "table-uuid": str(uuid.UUID(int=1)),
        "location": location,
        "last-sequence-number": 2,
        "last-updated-ms": timestamp,
        "last-column-id": len(_FIELDS),
        "schemas": [{"type": "struct", "schema-id": 0, "fields": fields}],
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": _make_spec_fields()}],
        "default-spec-id": 0,
        "last-partition-id": 1001,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": {},
        "current-snapshot-id": _SNAPSHOT,
        "snapshots": [
            {
                "snapshot-id": _SNAPSHOT,
                "sequence-number": 2,
                "timestamp-ms": timestamp,
                "manifest-list": f"{location}/metadata/snap.avro",
                "summary": {"operation": "append"},
                "schema-id": 0,
            }
        ],
        "snapshot-log": [{"snapshot-id": _SNAPSHOT, "timestamp-ms": timestamp}],
        "metadata-log": [],
        "refs": {"main": {"snapshot-id": _SNAPSHOT, "type": "branch"}},
    }
