"""The live manifest entries of a manifest, as columns.

An entry inherits missing values from its manifest: an added file has the manifest's sequence number and snapshot id. In
format version 1 there are neither content types nor sequence numbers: all files are data files with the sequence number
0. Some writers write a negative record count for an unknown one, which becomes null.

Statistics are maps by field id. They are most of a manifest, and many times larger when decoded, so only the entries of
the requested columns become columns: `lower:5`, `upper:5`, `nulls:5`, `nans:5`, `values:5`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile
from tamis.formats.errors import make_corrupt_snapshot_error
from tamis.formats.files.avro import AvroFile, open_avro
from tamis.formats.iceberg.manifests.manifest_list import Fields, find_map_values, read_file_bytes, reject_encrypted
from tamis.io.storage import Storage

DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2
_CONTENTS = pa.array([DATA, POSITION_DELETES, EQUALITY_DELETES], pa.int8())
_ADDED, _DELETED = 1, 2
PUFFIN = "puffin"

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
"""`location` is as in the manifest; `referenced`, `offset` and `length` are of deletes. `record_count` is null if it is
unknown."""

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
"""The field ids of the maps of statistics, by the prefix of their columns' names."""


@dataclass(frozen=True)
class Entries:
    """The live manifest entries of a manifest."""

    files: pa.Table
    """`ENTRIES`, and statistics of the requested columns."""
    partition: Mapping[int, pa.Array]
    """The values of partition fields by field id, in Avro's physical types: strings, bytes and plain numbers."""
    is_length_wrong: bool = False
    """Whether the length in the manifest list is wrong, which is reported."""


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
    """Read the live entries of a manifest, with `statistics` of the columns with these field ids.

    NaN counts are read only `with_nans`. With `of_compared`, statistics also cover the columns that the manifest's
    equality deletes compare. `length` and `live`, the number of live entries, are as in the manifest list, None if
    unknown. `sequence_number` and `snapshot_id` are those of the manifest, which its entries may inherit.
    """
    content = read_file_bytes(storage, path)
    file = open_avro(content, storage.format_path(path))
    own = file.text("partition-spec-id")
    if spec_id is not None and own is not None and own != str(spec_id):
        raise make_corrupt_snapshot_error(
            f"'{file.location}' was written with the partition spec {own}, but the manifest list says {spec_id}: "
            "its partition values cannot be read"
        )
    has_statistics = bool(statistics) or of_compared
    maps = {name: map_id for name, map_id in STATISTICS.items() if has_statistics and (with_nans or name != "nans")}
    names = _ENTRY_NAMES | _FILE_NAMES
    # These maps, and none of the other large ones.
    ids = set(names.values()) - (set(STATISTICS.values()) - set(maps.values()))
    read, schema = file.read_fields(lambda field: field.get("field-id", names.get(field["name"])) in ids)
    entries = Fields.of_table(read, schema, file.location, _ENTRY_NAMES)
    data = entries.get_struct(2, _FILE_NAMES)
    partition = data.get_struct(102, _read_partition_ids(file))
    status = entries.get_required(0, pa.int32())
    own_sequence = entries.get_optional(3, types.LONG)
    record_count = data.get_optional(103, types.LONG, -1)
    columns: dict[str, pa.Array] = {
        "location": data.get_required(100, types.STRING),
        "file_format": pc.utf8_lower(data.get_required(101, types.STRING)),
        "content": data.get_optional(134, pa.int8(), DATA),
        "record_count": pc.if_else(pc.less(record_count, 0), pa.scalar(None, types.LONG), record_count),
        "size": data.get_optional(104, types.LONG, 0),  # a size of 0 is looked up later
        "snapshot_id": pc.coalesce(entries.get_optional(1, types.LONG), pa.scalar(snapshot_id, types.LONG)),
        "sequence_number": pc.coalesce(own_sequence, pa.scalar(sequence_number, types.LONG)),
        "equality_ids": data.get_optional(135, ENTRIES.field("equality_ids").type),
        "referenced": data.get_optional(143, types.STRING),
        "offset": data.get_optional(144, types.LONG),
        "length": data.get_optional(145, types.LONG),
    }
    compared = pc.unique(columns["equality_ids"].flatten()).to_pylist() if of_compared else ()
    for field_id in dict.fromkeys((*statistics, *compared)):
        for name, map_id in maps.items():
            found = find_map_values(data.get_map(map_id), field_id, data.rows)
            if found is not None:
                columns[f"{name}:{field_id}"] = found
    if not pc.all(pc.is_in(columns["content"], _CONTENTS), min_count=0).as_py():
        raise make_corrupt_snapshot_error(
            f"'{file.location}' has a file with unsupported content, expected data or deletes: it is damaged, or "
            "too new"
        )
    files = pa.table(columns)
    is_live = pc.not_equal(status, _DELETED)
    if sequence_number and own_sequence.null_count:
        _check_inherited(pc.and_(is_live, own_sequence.is_null()), status, file.location)
    tuples = dict(partition.columns)
    keys = data.get_optional(131, types.BINARY)
    if not pc.all(is_live, min_count=0).as_py():
        files = files.filter(is_live)
        tuples = {field_id: values.filter(is_live) for field_id, values in tuples.items()}
        keys = keys.filter(is_live)
    reject_encrypted(keys, files["location"], file.location)
    _check_deletes(files, file.location)
    is_length_wrong = length is not None and length != content.size
    if is_length_wrong:
        _check_complete(length or 0, content.size, live, files.num_rows, file.location)
    return Entries(files, tuples, is_length_wrong)


def _read_partition_ids(file: AvroFile) -> dict[str, int]:
    """Return partition field ids by name, for writers that omit ids in partition tuples."""
    try:
        given = json.loads(file.text("partition-spec") or "[]")
        return {str(each["name"]): int(each["field-id"]) for each in given}
    except (ValueError, TypeError, KeyError):
        return {}  # optional: a mismatch is an error when tuples are compared with their spec


def _check_complete(recorded: int, size: int, recorded_live: int | None, live: int, location: str) -> None:
    """Raise for a manifest whose length differs from the manifest list, if entries may be missing.

    Some writers record 0 or another wrong length although the manifest is complete. A manifest that was truncated
    between two Avro blocks is shorter, and has fewer live entries than the manifest list records.
    """
    if recorded_live is not None and recorded_live != live:
        raise make_corrupt_snapshot_error(
            f"'{location}' has {size} bytes and {live} live files, but the manifest list says {recorded} bytes and "
            f"{recorded_live} files: the manifest was replaced or truncated"
        )
    if recorded_live is None and size < recorded:
        raise CorruptFile(
            f"'{location}' has {size} bytes, but the manifest list says {recorded} and does not count its files: the "
            "manifest may be truncated. Restore it from a backup, or rewrite the table's manifests"
        )


def _check_inherited(has_none: pa.BooleanArray, status: pa.Array, location: str) -> None:
    """Raise for existing files without a sequence number.

    With the manifest's sequence number they would be newer than the deletes that apply to them.
    """
    if pc.any(pc.and_(has_none, pc.not_equal(status, _ADDED)), min_count=0).as_py():
        raise CorruptFile(
            f"'{location}' has an existing file without a sequence number, so its deletes cannot be assigned. "
            "Rewrite the table's manifests"
        )


def _check_deletes(files: pa.Table, location: str) -> None:
    """Raise for delete files without the fields that say what they delete."""
    content = files["content"]
    if not pc.any(pc.not_equal(content, DATA), min_count=0).as_py():
        return
    is_vector = pc.and_(pc.equal(content, POSITION_DELETES), pc.equal(files["file_format"], PUFFIN))
    for name, what in {"referenced": "the data file", "offset": "its offset", "length": "its length"}.items():
        _check_present(pc.is_valid(files[name]), is_vector, f"'{location}' has a deletion vector without {what}")
    by_equality = pc.equal(content, EQUALITY_DELETES)
    has_ids = pc.fill_null(pc.greater(pc.list_value_length(files["equality_ids"]), 0), False)
    _check_present(has_ids, by_equality, f"'{location}' has equality deletes without the compared columns")


def _check_present(has_it: pa.ChunkedArray, must_have: pa.ChunkedArray, message: str) -> None:
    if pc.any(pc.and_not(must_have, has_it), min_count=0).as_py():
        raise make_corrupt_snapshot_error(f"{message}: it is damaged, so the deleted rows are unknown")
