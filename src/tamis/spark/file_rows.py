"""Files of a table as rows of a DataFrame: what executors read of checkpoint parts, of footers and of manifests, laid
out alike.

| column            | meaning                                                                                    |
|-------------------|--------------------------------------------------------------------------------------------|
| `path`            | as the log or the listing has it                                                           |
| `size`            | bytes                                                                                      |
| `modified_ns`     | when it was written, where that is known                                                   |
| `num_records`     | rows, deleted ones included; NULL where that is not known                                  |
| `logical_rows`    | rows after deletes                                                                         |
| `deletion_vector` | where the deleted rows are noted                                                           |
| `partition`       | the typed partition values, a field each                                                   |
| `lower`, `upper`, `null_count`, `nan_count` | what is known of columns (see `tamis.skipping.metadata`), a field each |

Timestamps are those of UTC, without a zone. What Spark has no type for is left out, and so is unknown.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from tamis import types
from tamis.engines.worker import error_to_bytes
from tamis.errors import TamisError
from tamis.expr.nodes import Column
from tamis.indexing.aggregate import FileRows
from tamis.indexing.spec import IndexedColumn
from tamis.io.threads import LOCAL_PATIENCE, run_in_threads
from tamis.parquet.footer import Footer, load_footer
from tamis.parquet.statistics import column_metadata, described_alike, row_counts
from tamis.skipping.metadata import ROW_COUNT, metadata_name
from tamis.spark.types import fit_metadata, metadata_type
from tamis.tables.delta.actions import DELETION_VECTOR
from tamis.tables.delta.file_batches import (
    PARTITION_VALUES,
    STATISTICS,
    FileBatch,
    LogColumns,
    logical_rows,
    read_batches,
)
from tamis.tables.delta.file_parts import FilePart
from tamis.tables.delta.log import LogFile
from tamis.tables.delta.part_job import metadata_from_json
from tamis.tables.delta.replay_keys import replay_keys
from tamis.tables.delta.schema import TableMetadata
from tamis.tables.jobs import Arguments, find_function, read_table

DELTA_PART = "tamis.spark.file_rows:delta_part"
PARQUET_FILES = "tamis.spark.file_rows:parquet_files"

KINDS = ("lower", "upper", "null_count", "nan_count")
KEY, ERROR = "key", "error"
"""Columns that are gone once the DataFrame is made: what newer commits know a file by, and what went wrong."""


@dataclass(frozen=True)
class FileLayout:
    """Which columns of a table the rows of files tell of."""

    partitions: pa.Schema
    columns: tuple[Column, ...]

    @cached_property
    def partition_fields(self) -> dict[str, str]:
        """The fields of `partition` by the names of columns."""
        known = [field.name for field in self.partitions if metadata_type(field.type) is not None]
        return _fields({name: name for name in known})

    def fields(self, kind: str) -> dict[str, str]:
        """The fields of a kind of metadata by the names of `tamis.skipping.metadata`."""
        return _fields(
            {
                # Names that are no column's begin with a sign that Spark should not see.
                metadata_name(kind, column.path): metadata_name("", column.path)[1:].replace("\0", "")
                for column in self.columns
                if column.type is not None and self._type(kind, column) is not None
            }
        )

    def _type(self, kind: str, column: Column) -> pa.DataType | None:
        assert column.type is not None
        if kind in ("lower", "upper"):
            return metadata_type(column.type) if types.is_ordered(column.type) else None
        return types.LONG if kind != "nan_count" or pa.types.is_floating(column.type) else None

    @cached_property
    def schema(self) -> pa.Schema:
        fields: list[tuple[str, pa.DataType]] = [
            ("path", types.STRING),
            ("size", types.LONG),
            ("modified_ns", types.LONG),
            ("num_records", types.LONG),
            ("logical_rows", types.LONG),
            ("deletion_vector", DELETION_VECTOR),
        ]
        values = [
            (field, metadata_type(self.partitions.field(name).type)) for name, field in self.partition_fields.items()
        ]
        structs = {"partition": values}
        for kind in KINDS:
            by_name = {metadata_name(kind, column.path): column for column in self.columns}
            structs[kind] = [(field, self._type(kind, by_name[name])) for name, field in self.fields(kind).items()]
        # Spark has no struct without fields.
        fields += [(name, pa.struct(inner)) for name, inner in structs.items() if inner]
        return pa.schema([*fields, (KEY, types.BINARY), (ERROR, types.BINARY)])

    def batch(
        self, files: Mapping[str, pa.Array], partitions: pa.Table, described: Mapping[str, pa.Array]
    ) -> pa.RecordBatch:
        """Rows of files: the plain columns, the typed partition values, and metadata by its names."""
        count = len(files["path"])
        metadata = fit_metadata(pa.record_batch(dict(described))) if described else pa.record_batch({})
        values = fit_metadata(_as_batch(partitions, count))
        inner: dict[str, pa.Array] = {}
        for each in self.schema:
            if each.name == "partition":
                inner[each.name] = _struct(each.type, values, self.partition_fields, count)
            elif each.name in KINDS:
                inner[each.name] = _struct(each.type, metadata, self.fields(each.name), count)
        known = {**files, **inner}
        arrays = [known[each.name] if each.name in known else pa.nulls(count, each.type) for each in self.schema]
        return pa.record_batch(arrays, schema=self.schema)

    def failed(self, error: TamisError) -> pa.RecordBatch:
        """A row that tells what went wrong."""
        arrays = [
            pa.array([error_to_bytes(error)] if field.name == ERROR else [None], field.type) for field in self.schema
        ]
        return pa.record_batch(arrays, schema=self.schema)

    def to_json(self) -> dict[str, Any]:
        kinds = pa.schema([pa.field(str(number), column.type) for number, column in enumerate(self.columns)])
        return {
            "partitions": b64encode(self.partitions.serialize()).decode(),
            "paths": [list(column.path) for column in self.columns],
            "types": b64encode(kinds.serialize()).decode(),
        }

    @staticmethod
    def from_json(given: Mapping[str, Any]) -> FileLayout:
        kinds = _schema(given["types"])
        columns = [Column(tuple(path), type=kind) for path, kind in zip(given["paths"], kinds.types, strict=True)]
        return FileLayout(_schema(given["partitions"]), tuple(columns))


def _fields(named: Mapping[str, str]) -> dict[str, str]:
    """Names that Spark, which does not tell capitals from small letters, takes for different ones."""
    taken: set[str] = set()
    found = {}
    for name, wanted in named.items():
        field, number = wanted, 1
        while field.casefold() in taken:
            number += 1
            field = f"{wanted}_{number}"
        taken.add(field.casefold())
        found[name] = field
    return found


def _schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.BufferReader(b64decode(text)))


def _as_batch(table: pa.Table, rows: int) -> pa.RecordBatch:
    if not table.num_columns:
        return pa.record_batch({"": pa.nulls(rows)})
    return pa.record_batch([column.combine_chunks() for column in table.columns], names=table.column_names)


def _struct(data_type: pa.DataType, batch: pa.RecordBatch, fields: Mapping[str, str], count: int) -> pa.StructArray:
    present = set(batch.schema.names)
    arrays = [
        batch.column(name).cast(data_type.field(field).type)
        if name in present
        else pa.nulls(count, data_type.field(field).type)
        for name, field in fields.items()
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(data_type))


@dataclass(frozen=True)
class FileRowsRunner:
    """Runs a function over the items of a task, for `mapInArrow`; an error of ours is a row."""

    function: str
    arguments: str = field(repr=False)
    __name__: str = "tamis"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arguments = Arguments(self.arguments)
        try:
            for batch in batches:
                for item in batch.column("item").to_pylist():
                    yield from find_function(self.function)(arguments, item)
        except TamisError as error:
            yield arguments.once(layout_of).failed(error)


def layout_of(arguments: Arguments) -> FileLayout:
    """The layout that the arguments of a job have."""
    return FileLayout.from_json(arguments["layout"])


# --- Delta ------------------------------------------------------------------------------------------------------------


def delta_part(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """The files that a part of a checkpoint adds, whatever newer commits say of them."""
    file = LogFile(*json.loads(item))
    part = FilePart(arguments.storage, ("part", file.path), arguments["version"], file.size, file)
    yield from delta_rows(part, arguments.once(_metadata), arguments.once(layout_of))


def _metadata(arguments: Arguments) -> TableMetadata:
    return metadata_from_json(arguments["metadata"])


def delta_rows(part: FilePart, metadata: TableMetadata, layout: FileLayout) -> Iterator[pa.RecordBatch]:
    """The files of a piece of a log as rows."""
    columns = ("path", "size", "deletion_vector", *PARTITION_VALUES, *STATISTICS)
    for batch, log in read_batches(part, metadata, columns):
        yield _delta_batch(batch, log, layout)


def _delta_batch(batch: FileBatch, log: LogColumns, layout: FileLayout) -> pa.RecordBatch:
    rows = np.arange(batch.rows)
    described = batch.statistics(layout.columns, rows, log)
    chosen = batch.chosen(rows, described[ROW_COUNT.name])
    files = {name: chosen[name].combine_chunks() for name in ("path", "size", "deletion_vector", "num_records")}
    files["logical_rows"] = logical_rows(described[ROW_COUNT.name], batch.deleted(pa.array(rows)))
    files[KEY] = replay_keys(files["path"], files["deletion_vector"])
    return layout.batch(files, batch.partitions, described)


# --- Footers ----------------------------------------------------------------------------------------------------------


def parquet_files(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """Files whose footers are read: `path`, `size`, `modified_ns`, then partition values by their numbers."""
    storage, layout, given = arguments.storage, arguments.once(layout_of), read_table(item)
    files = {name: given[name].combine_chunks() for name in ("path", "size", "modified_ns")}
    wanted = zip(*(array.to_pylist() for array in files.values()), strict=True)
    patience = LOCAL_PATIENCE if storage.is_local else 0.0
    footers = run_in_threads(lambda file: load_footer(storage, *file)[0], wanted, storage.threads, patience=patience)
    partitions = pa.table(given.columns[3:], names=layout.partitions.names)
    described = _described(list(footers), layout.columns)
    rows = described[ROW_COUNT.name]
    yield layout.batch({**files, "num_records": rows, "logical_rows": rows}, partitions, described)


def _described(footers: Sequence[Footer], columns: Sequence[Column]) -> dict[str, pa.Array]:
    """What footers say of whole files."""
    groups = {ROW_COUNT.name: pa.array([count for footer in footers for count in row_counts(footer)], types.LONG)}
    alike = described_alike(footers)
    counts = [sum(footer.metadata.num_row_groups for footer in each) for each in alike]
    for column in columns:
        found = [column_metadata(each, column, each[0].schema.find(column.path) or column.path) for each in alike]
        for name in {name: None for each in found for name in each}:
            kind = next(each[name].type for each in found if name in each)
            pieces = [each.get(name, pa.nulls(count, kind)) for each, count in zip(found, counts, strict=True)]
            groups[name] = pa.concat_arrays(pieces)
    of_files = FileRows(np.array([footer.metadata.num_row_groups for footer in footers], np.int64))
    return of_files.describe(groups, tuple(IndexedColumn(column.path, column.path, column.type) for column in columns))
