"""A reference reader of Iceberg tables: slow and simple, file by file and row by row.

Metadata is read as JSON, manifests by fastavro, rows by pyarrow and deletes by comparing values in Python; nothing is
skipped. Version 2 tables of Parquet files, moved or not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from builders.iceberg.avro_files import read_avro
from builders.iceberg.values import Field, to_arrow_type


class ReferenceTable:
    def __init__(self, folder: Path, metadata: Path | None = None) -> None:
        self.folder = folder
        self.metadata = json.loads((metadata or _find_newest(folder)).read_text())
        self.snapshots = {each["snapshot-id"]: each for each in self.metadata.get("snapshots", [])}
        self.specs = {each["spec-id"]: each["fields"] for each in self.metadata["partition-specs"]}
        names = json.loads(self.metadata.get("properties", {}).get("schema.name-mapping.default", "[]"))
        self._mapping = {name: each["field-id"] for each in names for name in each["names"]}

    def fields(self, snapshot: int | None = None) -> list[Field]:
        """Return the fields of the current schema, or those of a snapshot."""
        number = self.metadata["current-schema-id"]
        if snapshot is not None:
            number = self.snapshots[snapshot].get("schema-id", number)
        found = next(each["fields"] for each in self.metadata["schemas"] if each["schema-id"] == number)
        assert isinstance(found, list)
        return found

    def resolve_path(self, path: str) -> Path:
        """Return the path of a file that metadata names, below the folder, with any prefix removed."""
        part = next(each for each in ("/metadata/", "/data/") if each in path)
        return self.folder / part.strip("/") / path.rpartition(part)[2]

    def entries(self, snapshot: int) -> Iterator[tuple[dict[str, Any], int, int]]:
        """Yield the live files, their sequence numbers and their specs."""
        for manifest in read_avro(self.resolve_path(self.snapshots[snapshot]["manifest-list"])):
            for entry in read_avro(self.resolve_path(manifest["manifest_path"])):
                if entry["status"] != 2:
                    sequence = entry.get("sequence_number")
                    inherited = manifest.get("sequence_number", 0)
                    yield entry["data_file"], inherited if sequence is None else sequence, manifest["partition_spec_id"]

    def rows(self, snapshot: int | None = None) -> pa.Table:
        fields = self.fields(snapshot)
        schema = pa.schema([(each["name"], to_arrow_type(each["type"])) for each in fields])
        number = self.metadata.get("current-snapshot-id") if snapshot is None else snapshot
        if number in (None, -1):
            return schema.empty_table()
        entries = list(self.entries(number))
        live = [
            self._read_live_rows(fields, file, sequence, spec, entries)
            for file, sequence, spec in entries
            if file.get("content", 0) == 0
        ]
        return pa.concat_tables([schema.empty_table(), *live])

    def _read_live_rows(self, fields: list[Field], file: Any, sequence: int, spec: int, entries: list[Any]) -> pa.Table:
        rows = self._read(fields, file, spec)
        gone: set[int] = set()
        for delete, own, own_spec in entries:
            is_near = (own_spec, delete["partition"]) == (spec, file["partition"])
            match delete.get("content", 0):
                case 1 if is_near and sequence <= own:
                    stored = pq.read_table(self.resolve_path(delete["file_path"])).to_pylist()
                    gone |= {each["pos"] for each in stored if each["file_path"] == file["file_path"]}
                case 2 if (is_near or not self.specs[own_spec]) and sequence < own:
                    names = [each["name"] for each in fields if each["id"] in delete["equality_ids"]]
                    deleted = self._read(fields, delete, own_spec).select(names).to_pylist()
                    gone |= {index for index, row in enumerate(rows.select(names).to_pylist()) if row in deleted}
        kept = [index for index in range(len(rows)) if index not in gone]
        return rows.take(pa.array(kept, pa.int64()))

    def _read(self, fields: list[Field], file: Any, spec: int) -> pa.Table:
        """Return the rows of a file with the current column names."""
        table = pq.ParquetFile(self.resolve_path(file["file_path"])).read()
        numbers = [int(each.metadata[b"PARQUET:field_id"]) if each.metadata else None for each in table.schema]
        if None in numbers:
            numbers = [self._mapping.get(each.name) for each in table.schema]
        constants = {
            each["source-id"]: file["partition"].get(each["name"])
            for each in self.specs[spec]
            if each["transform"] == "identity"
        }
        columns = {}
        for each in fields:
            kind = to_arrow_type(each["type"])
            if each["id"] in numbers:
                columns[each["name"]] = table.column(numbers.index(each["id"])).cast(kind)
            else:
                value = constants.get(each["id"], each.get("initial-default"))
                columns[each["name"]] = pa.array([value] * table.num_rows, kind)
        return pa.table(columns)


def _find_newest(folder: Path) -> Path:
    hint = folder / "metadata" / "version-hint.text"
    version = hint.read_text().strip() if hint.exists() else None
    names = {each.name: each for each in (folder / "metadata").glob("*.metadata.json")}
    for name in (f"v{version}.metadata.json", f"{version}.metadata.json"):
        if name in names:
            return names[name]
    return names[max(names)]
