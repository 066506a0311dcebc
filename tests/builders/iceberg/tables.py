"""Iceberg tables whose data and metadata are written by hand: versions 1 to 3, with any deletes.

table = IcebergFolder(tmp_path, [field(1, "id", "long"), field(2, "day", "date")], specs=[[(2, "identity", "day")]])
table.commit(table.data_file("1.parquet", pa.table({"id": [1, 2], "day": [day, day]})))
"""

from __future__ import annotations

import gzip
import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from builders.iceberg.avro_files import write_avro
from builders.iceberg.avro_rows import make_avro_rows, make_avro_schema
from builders.iceberg.manifests import (
    UNKNOWN,
    PartitionColumn,
    encode_partition_value,
    make_entry_schema,
    make_list_schema,
    make_pairs,
    summarize_partitions,
    to_avro_name,
)
from builders.iceberg.values import Field, apply_transform, compute_metrics, get_result_type, list_leaves, to_arrow_type
from tamis.expr.evaluate import to_physical_value

FIRST_TIMESTAMP = 1_700_000_000_000
"""The timestamp of the first snapshot, in milliseconds. Each further one is a second later."""

DATA, POSITIONS, EQUALITY = 0, 1, 2
EXISTING, ADDED, DELETED = 0, 1, 2

METRICS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")

SpecField = tuple[int, str, str]
"""Source id, transform, name. Field ids count from 1000 over all specs."""


@dataclass(frozen=True)
class File:
    """A data file or a delete file in a manifest."""

    path: str
    format: str
    content: int
    spec: int
    partition: tuple[Any, ...]
    rows: int
    size: int
    metrics: Mapping[str, Any]
    """Counts and bounds by field id, and other fields of the manifest entry."""

    def with_metrics(self, **metrics: Any) -> File:
        return replace(self, metrics={**self.metrics, **metrics})


@dataclass(frozen=True)
class Entry:
    file: File
    status: int = ADDED
    snapshot: int | None = None
    sequence: int | None = None


@dataclass(frozen=True)
class Manifest:
    """A manifest that was written: its record in the manifest list, and its entries."""

    listed: dict[str, Any]
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Snapshot:
    number: int
    parent: int | None
    sequence: int
    timestamp: int
    schema: int
    manifests: tuple[Manifest, ...]
    metadata: dict[str, Any]

    @property
    def files(self) -> list[tuple[File, int]]:
        """The live files, each with its sequence number."""
        return [
            (each.file, each.sequence if each.sequence is not None else manifest.listed["sequence_number"])
            for manifest in self.manifests
            for each in manifest.entries
            if each.status != DELETED
        ]


class IcebergFolder:
    """A table in a folder. Metadata may name another location."""

    def __init__(
        self,
        folder: Path,
        fields: list[Field],
        *,
        specs: Sequence[Sequence[SpecField]] = ((),),
        version: int = 2,
        properties: Mapping[str, str] | None = None,
        location: str | None = None,
        codec: str = "deflate",
        per_block: int = 1000,
        dates_as_ints: bool = False,
    ) -> None:
        self.folder = folder
        self.location = location or str(folder)
        self.version = version
        self.properties = dict(properties or {})
        self.schemas = [fields]
        self.specs = [list(each) for each in specs]
        self.snapshots: list[Snapshot] = []
        self.refs: dict[str, dict[str, Any]] = {}
        self.log: list[tuple[int, int]] = []
        self.codec, self.per_block, self.dates_as_ints = codec, per_block, dates_as_ints
        self.manifests_in_metadata = False
        self.counts_anew = False
        """Whether each spec counts its fields from 1000, as in version 1, so that ids are ambiguous."""
        self.forgets_types = False
        """Whether partition fields whose column is gone have the type `unsupported` in manifests, as in Java."""
        self._saved = 0
        self._made = 0
        self.save()

    # --- Schemas and specs -------------------------------------------------------------------------------------------

    @property
    def fields(self) -> list[Field]:
        return self.schemas[-1]

    @property
    def arrow_schema(self) -> pa.Schema:
        return pa.schema([(each["name"], to_arrow_type(each["type"])) for each in self.fields])

    def evolve(self, fields: list[Field]) -> None:
        """Make this the current schema."""
        self.schemas.append(fields)
        self.save()

    def partition_columns(self, spec: int) -> list[PartitionColumn]:
        before = 0 if self.counts_anew else sum(len(each) for each in self.specs[:spec])
        kinds = {each["id"]: each["type"] for each in self._list_all_fields()}
        forgotten = kinds.keys() - {each["id"] for each in self.fields} if self.forgets_types else set()
        return [
            (1000 + before + index, name, UNKNOWN if source in forgotten else get_result_type(transform, kinds[source]))
            for index, (source, transform, name) in enumerate(self.specs[spec])
        ]

    def _list_all_fields(self) -> list[Field]:
        """Return the fields of all schemas, those in structs too, the newest last."""
        found, left = [], [each for schema in self.schemas for each in schema]
        while left:
            each = left.pop(0)
            found.append(each)
            if isinstance(each["type"], dict) and each["type"]["type"] == "struct":
                left = [*each["type"]["fields"], *left]
        return found

    def partition_of(self, spec: int, rows: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the partition of a row, given its physical values by top-level column."""
        fields = {each["id"]: each for each in self.fields}
        return tuple(
            apply_transform(transform, fields[source]["type"], rows[fields[source]["name"]])
            for source, transform, _ in self.specs[spec]
        )

    # --- Files -------------------------------------------------------------------------------------------------------

    def path_of(self, name: str) -> str:
        return f"{self.location}/data/{name}"

    def data_file(
        self,
        name: str,
        rows: pa.Table,
        *,
        fields: list[Field] | None = None,
        spec: int | None = None,
        partition: tuple[Any, ...] | None = None,
        with_ids: bool = True,
        metrics: Mapping[str, Any] | None = None,
        truncate: int | None = 16,
        options: Mapping[str, Any] | None = None,
    ) -> File:
        """Write a data file in the format of its extension. `fields` are the fields of the file, with its names."""
        fields = self.fields if fields is None else fields
        columns = {each: rows[each].combine_chunks() for each in rows.column_names}
        spec = len(self.specs) - 1 if spec is None else spec
        if partition is None:
            first = {each: to_physical_value(rows[each][0]) for each in rows.column_names} if self.specs[spec] else {}
            partition = self.partition_of(spec, first)
        if metrics is None:
            metrics = compute_metrics(list_leaves(fields, columns), truncate)
        size = write_rows(self.folder / "data" / name, rows, fields if with_ids else None, options)
        return File(self.path_of(name), name.rpartition(".")[2], DATA, spec, partition, rows.num_rows, size, metrics)

    # --- Commits -----------------------------------------------------------------------------------------------------

    def commit(
        self,
        *files: File,
        removed: Collection[str] = (),
        ref: str = "main",
        per_manifest: int = 1000,
        sequence: int | None = None,
        operation: str = "append",
    ) -> int:
        """Commit a snapshot that adds files and removes some paths, and return its id."""
        number = 10**12 + 7 * len(self.snapshots)
        parent = self.snapshot(self.refs[ref]["snapshot-id"]) if ref in self.refs else None
        newest = max((each.sequence for each in self.snapshots), default=0) + 1
        sequence = (newest if sequence is None else sequence) if self.version > 1 else 0
        manifests = [
            self._rewrite_manifest(each, removed, number, sequence) for each in (parent.manifests if parent else ())
        ]
        for deletes in (False, True):
            for spec in range(len(self.specs)):
                some = [each for each in files if (each.content != DATA) is deletes and each.spec == spec]
                for start in range(0, len(some), per_manifest):
                    entries = [Entry(each, snapshot=number) for each in some[start : start + per_manifest]]
                    manifests.append(self.write_manifest(entries, number, sequence))
        made = Snapshot(
            number,
            parent.number if parent else None,
            sequence,
            FIRST_TIMESTAMP + 1000 * len(self.snapshots),
            len(self.schemas) - 1,
            tuple(manifests),
            self._write_manifest_list(number, parent, sequence, manifests) | {"summary": {"operation": operation}},
        )
        self.snapshots.append(made)
        self.refs[ref] = {**self.refs.get(ref, {"type": "branch"}), "snapshot-id": number}
        if ref == "main":
            self.log.append((made.timestamp, number))
        self.save()
        return number

    def tag(self, name: str, snapshot: int) -> None:
        self.refs[name] = {"snapshot-id": snapshot, "type": "tag"}
        self.save()

    def snapshot(self, number: int) -> Snapshot:
        return next(each for each in self.snapshots if each.number == number)

    def _rewrite_manifest(self, manifest: Manifest, removed: Collection[str], number: int, sequence: int) -> Manifest:
        if not any(each.file.path in removed for each in manifest.entries if each.status != DELETED):
            return manifest
        inherited = manifest.listed["sequence_number"] if self.version > 1 else None
        entries = [
            replace(
                each,
                status=DELETED if each.file.path in removed else EXISTING,
                snapshot=number if each.file.path in removed else each.snapshot,
                sequence=inherited if each.sequence is None else each.sequence,
            )
            for each in manifest.entries
            if each.status != DELETED
        ]
        return self.write_manifest(entries, number, sequence)

    def write_manifest(self, entries: Sequence[Entry], snapshot: int, sequence: int, **listed: Any) -> Manifest:
        """Write a manifest of files of one spec, either data or deletes."""
        self._made += 1
        spec = entries[0].file.spec
        content = 0 if entries[0].file.content == DATA else 1
        partition = self.partition_columns(spec)
        name = f"{snapshot}-m{self._made}.avro"
        size = write_avro(
            self.folder / "metadata" / name,
            make_entry_schema(self.version, partition, dates_as_ints=self.dates_as_ints),
            [self._make_record(each, partition) for each in entries],
            {
                "schema": json.dumps(self._make_schema_json(len(self.schemas) - 1)),
                "schema-id": str(len(self.schemas) - 1),
                "partition-spec": json.dumps(self._make_spec_json(spec)["fields"]),
                "partition-spec-id": str(spec),
                "format-version": str(self.version),
                "content": "deletes" if content else "data",
            },
            codec=self.codec,
            per_block=self.per_block,
        )
        live = [each for each in entries if each.status != DELETED]
        sequences = [sequence if each.sequence is None else each.sequence for each in live]
        counts: dict[str, int] = {}
        for status, kind in ((ADDED, "added"), (EXISTING, "existing"), (DELETED, "deleted")):
            some = [each.file.rows for each in entries if each.status == status]
            counts |= {f"{kind}_files_count": len(some), f"{kind}_rows_count": sum(some)}
        record = {
            "manifest_path": f"{self.location}/metadata/{name}",
            "manifest_length": size,
            "partition_spec_id": spec,
            "content": content,
            "sequence_number": sequence,
            "min_sequence_number": min(sequences, default=sequence),
            "added_snapshot_id": snapshot,
            **counts,
            "partitions": summarize_partitions(partition, [each.file.partition for each in entries]),
            "key_metadata": None,
        }
        return Manifest(record | listed, tuple(entries))

    def _make_record(self, entry: Entry, partition: list[PartitionColumn]) -> dict[str, Any]:
        file = entry.file
        metrics = {name: make_pairs(file.metrics.get(name)) for name in METRICS}
        others = {name: value for name, value in file.metrics.items() if name not in METRICS}
        stored = {
            to_avro_name(name): encode_partition_value(kind, value)
            for (_, name, kind), value in zip(partition, file.partition, strict=True)
        }
        record = {
            "content": file.content, "file_path": file.path, "file_format": _get_format_name(file.format),
            "partition": stored, "record_count": file.rows, "file_size_in_bytes": file.size, "block_size_in_bytes": 1,
        }  # fmt: skip
        return {
            "status": entry.status, "snapshot_id": entry.snapshot, "sequence_number": entry.sequence,
            "file_sequence_number": entry.sequence, "data_file": record | metrics | others,
        }  # fmt: skip

    def _write_manifest_list(
        self, number: int, parent: Snapshot | None, sequence: int, manifests: Sequence[Manifest]
    ) -> dict[str, Any]:
        if self.manifests_in_metadata:
            return {"manifests": [each.listed["manifest_path"] for each in manifests]}
        name = f"snap-{number}.avro"
        before = str(parent.number) if parent else "null"
        record = {"snapshot-id": str(number), "parent-snapshot-id": before, "sequence-number": str(sequence)}
        write_avro(
            self.folder / "metadata" / name,
            make_list_schema(self.version),
            [each.listed for each in manifests],
            record | {"format-version": str(self.version)},
            codec=self.codec,
            per_block=self.per_block,
        )
        return {"manifest-list": f"{self.location}/metadata/{name}"}

    # --- Metadata ----------------------------------------------------------------------------------------------------

    def save(self, name: str | None = None, *, hint: bool = True) -> Path:
        """Write the current metadata, under the next number or another name, and return its path."""
        self._saved += 1
        file_path = self.folder / "metadata" / (name or f"v{self._saved}.metadata.json")
        file_path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.metadata()).encode()
        file_path.write_bytes(gzip.compress(text) if ".gz" in file_path.name else text)
        if hint and name is None:
            (file_path.parent / "version-hint.text").write_text(str(self._saved))
        return file_path

    def metadata(self) -> dict[str, Any]:
        numbers = [each["id"] for each in self._list_all_fields()]
        record: dict[str, Any] = {
            "format-version": self.version,
            "table-uuid": str(uuid.UUID(int=1)),
            "location": self.location,
            "last-updated-ms": FIRST_TIMESTAMP + 1000 * len(self.snapshots),
            "last-column-id": max(numbers),
            "schemas": [self._make_schema_json(number) for number in range(len(self.schemas))],
            "current-schema-id": len(self.schemas) - 1,
            "partition-specs": [self._make_spec_json(number) for number in range(len(self.specs))],
            "default-spec-id": len(self.specs) - 1,
            "last-partition-id": 999 + sum(map(len, self.specs)),
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": self.properties,
            "snapshots": [self._make_snapshot_json(each) for each in self.snapshots],
            "snapshot-log": [{"timestamp-ms": timestamp, "snapshot-id": number} for timestamp, number in self.log],
            "metadata-log": [],
        }
        if "main" in self.refs:
            record["current-snapshot-id"] = self.refs["main"]["snapshot-id"]
        if self.version == 1:
            record |= {"schema": record["schemas"][-1], "partition-spec": record["partition-specs"][-1]["fields"]}
        else:
            newest = max((each.sequence for each in self.snapshots), default=0)
            record |= {"last-sequence-number": newest, "refs": self.refs}
        if self.version > 2:
            record["next-row-id"] = 0
        return record

    def _make_snapshot_json(self, snapshot: Snapshot) -> dict[str, Any]:
        record: dict[str, Any] = {
            "snapshot-id": snapshot.number,
            "timestamp-ms": snapshot.timestamp,
        } | snapshot.metadata
        if snapshot.parent is not None:
            record["parent-snapshot-id"] = snapshot.parent
        if self.version > 1:
            record |= {"sequence-number": snapshot.sequence, "schema-id": snapshot.schema}
        if self.version > 2:
            record |= {"first-row-id": 0, "added-rows": 0}
        return record

    def _make_schema_json(self, number: int) -> dict[str, Any]:
        return {"type": "struct", "schema-id": number, "fields": self.schemas[number]}

    def _make_spec_json(self, number: int) -> dict[str, Any]:
        before = 0 if self.counts_anew else sum(len(each) for each in self.specs[:number])
        fields = [
            {"source-id": source, "field-id": 1000 + before + index, "name": name, "transform": transform}
            for index, (source, transform, name) in enumerate(self.specs[number])
        ]
        return {"spec-id": number, "fields": fields}


def _get_format_name(ending: str) -> str:
    return "PUFFIN" if ending == "puffin" else ending.upper()


def write_rows(
    file_path: Path, rows: pa.Table, fields: list[Field] | None, options: Mapping[str, Any] | None = None
) -> int:
    """Write rows in the format of the extension, with field ids if given, and return the size."""
    file_path.parent.mkdir(parents=True, exist_ok=True)
    match file_path.suffix:
        case ".parquet":
            stored = rows if fields is None else add_field_ids(rows, fields)
            pq.write_table(stored, file_path, **(options or {}))
        case ".orc":
            orc.write_table(rows if fields is None else add_field_ids(rows, fields), file_path, **(options or {}))
        case ".avro":
            write_avro(file_path, make_avro_schema(rows.schema, fields), make_avro_rows(rows), **(options or {}))
        case _:
            raise ValueError(f"no rows are written as {file_path.suffix}")
    return file_path.stat().st_size


def add_field_ids(rows: pa.Table, fields: list[Field]) -> pa.Table:
    """Return rows with field ids in their metadata, where the Parquet and ORC writers look for them."""
    known = {each["name"]: each for each in fields}
    schema = pa.schema([_set_field_id(each, known[each.name]["id"], known[each.name]["type"]) for each in rows.schema])
    return pa.table([column.cast(each.type) for column, each in zip(rows.columns, schema, strict=True)], schema=schema)


def _set_field_id(one: pa.Field, number: int, kind: Any) -> pa.Field:
    data_type = one.type
    match kind:
        case {"type": "struct", "fields": fields}:
            known = {each["name"]: each for each in fields}
            data_type = pa.struct(
                [_set_field_id(each, known[each.name]["id"], known[each.name]["type"]) for each in one.type]
            )
        case {"type": "list"}:
            data_type = pa.list_(_set_field_id(one.type.value_field, kind["element-id"], kind["element"]))
        case {"type": "map"}:
            data_type = pa.map_(
                _set_field_id(one.type.key_field, kind["key-id"], kind["key"]),
                _set_field_id(one.type.item_field, kind["value-id"], kind["value"]),
            )
    return pa.field(one.name, data_type, one.nullable, {"PARQUET:field_id": str(number), "iceberg.id": str(number)})
