"""Tables that pyiceberg writes, with a catalog in memory. Delete files and vectors are added by hand."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import transforms
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from builders.iceberg.avro_files import edit_avro, read_avro, write_avro
from builders.iceberg.manifests import make_entry_schema, make_pairs, to_avro_name
from builders.iceberg.tables import METRICS, File
from builders.values.by_type import make_array
from tamis.expr.evaluate import to_physical_value

_SPLIT = (
    transforms.BucketTransform, transforms.TruncateTransform, transforms.YearTransform, transforms.MonthTransform,
    transforms.DayTransform, transforms.HourTransform,
)  # fmt: skip


@cache
def make_catalog() -> InMemoryCatalog:
    """Return the catalog that all tests share. Each table has its own location."""
    made = InMemoryCatalog("tests", warehouse="/nowhere")
    made.create_namespace("tests")
    return made


_numbers = itertools.count()


def make_name() -> str:
    return f"tests.t{next(_numbers)}"


def create_table(
    folder: Path, schema: Schema, spec: PartitionSpec | None = None, version: int = 2, **properties: str
) -> Table:
    """Return a new table in a folder."""
    merged = {"format-version": str(version), **{key.replace("_", "."): value for key, value in properties.items()}}
    more = {} if spec is None else {"partition_spec": spec}
    return make_catalog().create_table(make_name(), schema, location=str(folder), properties=merged, **more)


def make_spec(schema: Schema, *fields: tuple[str, str]) -> PartitionSpec:
    """Return a partition spec, given column names and transforms as texts."""
    return PartitionSpec(
        *(
            PartitionField(
                schema.find_field(name).field_id, 1000 + index, transforms.parse_transform(each), f"p{index}"
            )
            for index, (name, each) in enumerate(fields)
        )
    )


@contextmanager
def transform_by_value() -> Iterator[None]:
    """Apply pyiceberg's own transforms value by value during the body, instead of its Rust library."""

    def transform(self: transforms.Transform[Any, Any], source: Any) -> Callable[[Any], Any]:
        of_value = self.transform(source)

        def of_column(column: pa.ChunkedArray) -> pa.Array:
            values = [of_value(to_physical_value(value)) for value in column]
            is_truncated = isinstance(self, transforms.TruncateTransform)
            return make_array(column.type, values) if is_truncated else pa.array(values, pa.int32())

        return of_column

    with pytest.MonkeyPatch.context() as patch:
        for each in _SPLIT:
            patch.setattr(each, "pyarrow_transform", transform)
        yield


# --- What pyiceberg does not write -----------------------------------------------------------------------------------


def find_latest_metadata(folder: Path) -> Path:
    return max((folder / "metadata").glob("*.metadata.json"))


def list_live_manifests(folder: Path) -> list[Path]:
    """Return the manifests of the newest snapshot."""
    metadata = json.loads(find_latest_metadata(folder).read_text())
    snapshot = next(each for each in metadata["snapshots"] if each["snapshot-id"] == metadata["current-snapshot-id"])
    return [
        Path(each["manifest_path"].removeprefix("file://"))
        for each in read_avro(_strip_scheme(snapshot["manifest-list"]))
    ]


def list_live_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the manifest entries of the data files of the newest snapshot, by path."""
    entries = [entry for manifest in list_live_manifests(folder) for entry in read_avro(manifest)]
    return {
        entry["data_file"]["file_path"]: entry["data_file"]
        for entry in entries
        if entry["status"] != 2 and not entry["data_file"].get("content")
    }


def add_deletes(folder: Path, files: Sequence[File], partition: Sequence[tuple[int, str, str]] = ()) -> int:
    """Add a snapshot with delete files of one spec to a version 2 table, and return its id."""
    file_path = find_latest_metadata(folder)
    metadata = json.loads(file_path.read_text())
    number = metadata["current-snapshot-id"] + 1
    sequence = metadata["last-sequence-number"] + 1
    manifest = folder / "metadata" / f"{number}-deletes.avro"
    entries = [_make_entry(file, partition, number) for file in files]
    header = {"content": "deletes", "partition-spec-id": str(files[0].spec), "format-version": "2"}
    size = write_avro(manifest, make_entry_schema(2, partition), entries, header)
    snapshots = {each["snapshot-id"]: each for each in metadata["snapshots"]}
    before = snapshots[metadata["current-snapshot-id"]]
    listed = {
        "manifest_path": str(manifest), "manifest_length": size, "partition_spec_id": files[0].spec, "content": 1,
        "sequence_number": sequence, "min_sequence_number": sequence, "added_snapshot_id": number,
        "added_files_count": len(files), "existing_files_count": 0, "deleted_files_count": 0,
        "added_rows_count": sum(file.rows for file in files), "existing_rows_count": 0, "deleted_rows_count": 0,
        "partitions": None, "key_metadata": None,
    }  # fmt: skip
    manifest_list = folder / "metadata" / f"snap-{number}.avro"
    manifest_list.write_bytes(Path(_strip_scheme(before["manifest-list"])).read_bytes())
    edit_avro(manifest_list, lambda records: [*records, listed])
    metadata["snapshots"].append(
        before
        | {
            "snapshot-id": number, "parent-snapshot-id": before["snapshot-id"], "sequence-number": sequence,
            "timestamp-ms": before["timestamp-ms"] + 1, "manifest-list": str(manifest_list),
            "summary": {"operation": "delete"},
        }
    )  # fmt: skip
    metadata |= {"current-snapshot-id": number, "last-sequence-number": sequence}
    metadata["refs"]["main"]["snapshot-id"] = number
    metadata["snapshot-log"].append({"snapshot-id": number, "timestamp-ms": before["timestamp-ms"] + 1})
    version = int(file_path.name.partition("-")[0]) + 1
    (file_path.parent / f"{version:05}-{uuid.UUID(int=version)}.metadata.json").write_text(json.dumps(metadata))
    return number


def _make_entry(file: File, partition: Sequence[tuple[int, str, str]], snapshot: int) -> dict[str, Any]:
    metrics = {name: make_pairs(file.metrics.get(name)) for name in METRICS}
    others = {name: value for name, value in file.metrics.items() if name not in METRICS}
    data_file = {
        "content": file.content, "file_path": file.path, "file_format": file.format.upper(),
        "partition": {to_avro_name(name): value for (_, name, _), value in zip(partition, file.partition, strict=True)},
        "record_count": file.rows, "file_size_in_bytes": file.size,
    }  # fmt: skip
    return {"status": 1, "snapshot_id": snapshot, "data_file": data_file | metrics | others}


def _strip_scheme(location: str) -> str:
    return location.removeprefix("file://")
