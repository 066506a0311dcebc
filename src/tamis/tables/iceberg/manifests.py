"""The entries of a manifest as columns, those of live files only.

What an entry leaves out it has from its manifest: an added file has the manifest's sequence number and snapshot. Tables
of version 1 have neither content nor sequence numbers, and then these are data files of the sequence number 0. Writers
that did not count rows wrote a negative number of them, which is null here.

Statistics are maps by field id. They are most of a manifest, and decoded they are many times larger, so only the
entries for columns that somebody asks about become columns: `lower:5`, `upper:5`, `nulls:5`, `nans:5`, `values:5`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile
from tamis.io.storage import Storage
from tamis.tables.iceberg.avro import AvroFile, open_avro
from tamis.tables.iceberg.avro_fields import Fields, values_of
from tamis.tables.iceberg.avro_schema import nullable
from tamis.tables.iceberg.encryption import refuse_encrypted
from tamis.tables.iceberg.manifest_list import read_whole

DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2
_CONTENTS = pa.array([DATA, POSITION_DELETES, EQUALITY_DELETES], pa.int8())
_ADDED, _DELETED = 1, 2
VECTORS = "puffin"
"""The format of files of deletion vectors."""

ENTRIES = pa.schema(
    [
        ("location", types.STRING),
        ("file_format", types.STRING),
        ("content", pa.int8()),
        ("record_count", types.LONG),
        ("size", types.LONG),
        ("snapshot_id", types.LONG),
        ("sequence_number", types.LONG),
        ("equality_ids", pa.list_(pa.int32())),
        ("referenced", types.STRING),
        ("offset", types.LONG),
        ("length", types.LONG),
    ]
)
"""`location` is as the manifest has it; `referenced`, `offset` and `length` are of deletes. `record_count` is null
where nobody counted."""

_ENTRY_NAMES = {"status": 0, "snapshot_id": 1, "data_file": 2, "sequence_number": 3}
_FILE_NAMES = {
    "content": 134,
    "file_path": 100,
    "file_format": 101,
    "partition": 102,
    "record_count": 103,
    "file_size_in_bytes": 104,
    "value_counts": 109,
    "null_value_counts": 110,
    "nan_value_counts": 137,
    "lower_bounds": 125,
    "upper_bounds": 128,
    "key_metadata": 131,
    "equality_ids": 135,
    "referenced_data_file": 143,
    "content_offset": 144,
    "content_size_in_bytes": 145,
}

STATISTICS = {"lower": 125, "upper": 128, "nulls": 110, "nans": 137, "values": 109}
"""The maps of statistics, by the beginning of the names of their columns."""


@dataclass(frozen=True)
class Entries:
    """The live entries of a manifest."""

    files: pa.Table
    """`ENTRIES`, and statistics of the columns that were asked for."""
    partition: Mapping[int, pa.Array]
    """The values of partition fields by their ids, as Avro has them: texts, bytes and numbers without a unit."""
    partition_schemas: Mapping[int, Any]
    """The types that the manifest says they have."""
    is_length_wrong: bool = False
    """Whether the manifest list says another length, which is reported."""


def read_manifest(
    storage: Storage,
    path: str,
    length: int | None,
    live: int | None = None,
    *,
    spec_id: int | None,
    sequence_number: int,
    snapshot_id: int | None,
    statistics: Collection[int] = (),
    of_compared: bool = False,
    with_nans: bool = True,
) -> Entries:
    """The live entries of a manifest, with statistics of the columns with these ids, counts of NaN only on request.

    With `of_compared` also of the columns that its equality deletes compare.

    `length` and `live`, the number of live entries, are what the manifest list says of it, where it does.
    `sequence_number` and `snapshot_id` are those of the manifest, which its entries may have from it.
    """
    content = read_whole(storage, path)
    file = open_avro(content, storage.place(path))
    _check_spec(file, spec_id)
    has_statistics = bool(statistics) or of_compared
    maps = {name: map_id for name, map_id in STATISTICS.items() if has_statistics and (with_nans or name != "nans")}
    read, schema = file.read_fields(_wanted(maps.values()))
    entries = Fields.of_table(read, schema, file.place, _ENTRY_NAMES)
    data = entries.inside(2, _FILE_NAMES)
    partition = data.inside(102, _partition_names(file))
    status = entries.required(0, pa.int32())
    own_sequence = entries.optional(3, types.LONG)
    record_count = data.optional(103, types.LONG, -1)
    columns: dict[str, pa.Array] = {
        "location": data.required(100, types.STRING),
        "file_format": pc.utf8_lower(data.required(101, types.STRING)),
        "content": data.optional(134, pa.int8(), DATA),
        "record_count": pc.if_else(pc.less(record_count, 0), pa.scalar(None, types.LONG), record_count),
        "size": data.optional(104, types.LONG, 0),  # 0 is looked up
        "snapshot_id": pc.coalesce(entries.optional(1, types.LONG), pa.scalar(snapshot_id, types.LONG)),
        "sequence_number": pc.coalesce(own_sequence, pa.scalar(sequence_number, types.LONG)),
        "equality_ids": data.optional(135, ENTRIES.field("equality_ids").type),
        "referenced": data.optional(143, types.STRING),
        "offset": data.optional(144, types.LONG),
        "length": data.optional(145, types.LONG),
    }
    compared = pc.unique(columns["equality_ids"].flatten()).to_pylist() if of_compared else ()
    for field_id in dict.fromkeys((*statistics, *compared)):
        for name, map_id in maps.items():
            found = values_of(data.map(map_id), field_id, data.rows)
            if found is not None:
                columns[f"{name}:{field_id}"] = found
    if not pc.all(pc.is_in(columns["content"], _CONTENTS), min_count=0).as_py():
        raise CorruptFile(f"'{file.place}' has files that are neither data nor deletes: it is damaged, or too new")
    files = pa.table(columns)
    is_live = pc.not_equal(status, _DELETED)
    if sequence_number and own_sequence.null_count:
        _check_inherited(pc.and_(is_live, own_sequence.is_null()), status, file.place)
    tuples = dict(partition.columns)
    keys = data.optional(131, types.BINARY)
    if not pc.all(is_live, min_count=0).as_py():
        files = files.filter(is_live)
        tuples = {field_id: values.filter(is_live) for field_id, values in tuples.items()}
        keys = keys.filter(is_live)
    refuse_encrypted(keys, files["location"], file.place)
    _check_deletes(files, file.place)
    is_length_wrong = length is not None and length != content.size
    if is_length_wrong:
        _check_whole(length or 0, content.size, live, files.num_rows, file.place)
    schemas = {key: nullable(value)[0] for key, value in partition.schemas.items()}
    return Entries(files, tuples, schemas, is_length_wrong)


def _wanted(maps: Collection[int]) -> Callable[[Mapping[str, Any]], bool]:
    """Which fields of entries and files are read, with these maps: others are as large, and nobody asks for them."""
    names = _ENTRY_NAMES | _FILE_NAMES
    ids = set(names.values()) - (set(STATISTICS.values()) - set(maps))
    return lambda field: field.get("field-id", names.get(field["name"])) in ids


def _partition_names(file: AvroFile) -> dict[str, int]:
    """The ids of partition fields by their names, for writers that give the fields of tuples none."""
    try:
        given = json.loads(file.text("partition-spec") or "[]")
        return {str(each["name"]): int(each["field-id"]) for each in given}
    except (ValueError, TypeError, KeyError):
        return {}  # only a help: what fits nothing is an error when tuples are compared with their spec


def _check_spec(file: AvroFile, spec_id: int | None) -> None:
    own = file.text("partition-spec-id")
    if spec_id is not None and own is not None and own != str(spec_id):
        raise CorruptFile(
            f"'{file.place}' was written under the partition spec {own}, and its snapshot says {spec_id}: "
            "its partition values cannot be read"
        )


def _check_whole(told: int, size: int, told_live: int | None, live: int, place: str) -> None:
    """An error for a manifest of another length than its list says, where it may lack entries.

    Some writers put 0 or another number there, and all entries are there nevertheless. One that was cut off between two
    blocks of Avro is short, and has fewer entries than the list counts.
    """
    if told_live is not None and told_live != live:
        raise CorruptFile(
            f"'{place}' has {size} bytes and {live} live files, and the list of manifests says {told} bytes and "
            f"{told_live} files: another file took its place, or it is cut off; restore it from a backup"
        )
    if told_live is None and size < told:
        raise CorruptFile(
            f"'{place}' has {size} bytes, and the list of manifests says {told} and not how many files it has: it may "
            "be cut off; restore it from a backup, or write the table's manifests again"
        )


def _check_inherited(has_none: pa.BooleanArray, status: pa.Array, place: str) -> None:
    """An error for files that were there before the manifest, and have no sequence number of their own.

    With the manifest's they would be newer than the deletes that are for them.
    """
    if pc.any(pc.and_(has_none, pc.not_equal(status, _ADDED)), min_count=0).as_py():
        raise CorruptFile(
            f"'{place}' leaves out the sequence number of a file that it did not add: which deletes are for the file "
            "cannot be told; write the table's manifests again"
        )


def _check_deletes(files: pa.Table, place: str) -> None:
    """An error for deletes that do not say what they delete."""
    content = files["content"]
    if not pc.any(pc.not_equal(content, DATA), min_count=0).as_py():
        return
    is_vector = pc.and_(pc.equal(content, POSITION_DELETES), pc.equal(files["file_format"], VECTORS))
    for name, what in {"referenced": "the data file", "offset": "its offset", "length": "its length"}.items():
        _check_has(pc.is_valid(files[name]), is_vector, f"'{place}' has a deletion vector without {what}")
    by_equality = pc.equal(content, EQUALITY_DELETES)
    has_ids = pc.fill_null(pc.greater(pc.list_value_length(files["equality_ids"]), 0), False)
    _check_has(has_ids, by_equality, f"'{place}' has equality deletes without the columns that they compare")


def _check_has(has_it: pa.ChunkedArray, must_have: pa.ChunkedArray, message: str) -> None:
    if pc.any(pc.and_not(must_have, has_it), min_count=0).as_py():
        raise CorruptFile(f"{message}: it is damaged, so nobody knows which rows are deleted")
