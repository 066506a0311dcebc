"""The files of a table as rows of a DataFrame: executors read a format's metadata, or footers, into one layout.

| column            | meaning                                                                                    |
|-------------------|--------------------------------------------------------------------------------------------|
| `path`            | as in the log or the listing                                                               |
| `size`            | bytes                                                                                      |
| `modified`        | modification time; NULL if the format does not record it                                   |
| `num_records`     | rows, including deleted ones; NULL if unknown                                              |
| `logical_rows`    | rows after deletes                                                                         |
| `deletion_vector` | the descriptor of the deletion vector                                                      |
| `partition`       | the typed partition values, one field for each                                             |
| `partition_text`  | the texts that a `PartitionFilter` compares; NULL if the metadata has typed values only    |
| `lower`, `upper`, `null_count`, `nan_count` | column statistics (see `tamis.skipping.metadata`), one field for each |

Timestamps are in UTC, without a zone. Columns of types that Spark does not support are left out, and so are unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
import pyarrow as pa

from tamis import types
from tamis.engines.spark.spark_types import convert_metadata, to_metadata_type
from tamis.engines.spark.worker import error_to_bytes
from tamis.errors import TamisError
from tamis.expr.nodes import Column
from tamis.expr.wire.expression_json import schema_from_text, schema_to_text
from tamis.formats.constants import read_partitions
from tamis.formats.file_rows import (
    DELETION_VECTOR,
    KEY,
    FileRowsFunction,
    FilesWithStatistics,
    columns_to_json,
    read_columns,
)
from tamis.formats.jobs import Arguments, find_function, read_table
from tamis.formats.source import MODIFIED, read_modified
from tamis.index.collect import FileAggregator
from tamis.index.spec import IndexedColumn
from tamis.io.threads import LOCAL_SOLO_SECONDS, run_in_threads
from tamis.parquet.footer.footer import Footer, load_footer
from tamis.parquet.footer.statistics import collect_metadata, list_row_counts
from tamis.skipping.metadata import ROW_COUNT, metadata_name
from tamis.skipping.predicate import make_partition_text

PARQUET_FILES = "tamis.engines.spark.file_rows:read_parquet_footers"

TEXTS = "partition_text"
KINDS = ("lower", "upper", "null_count", "nan_count")
LISTED = "modified_ns"
"""The column with the time of a listed file, by which a replaced file is noticed."""

ERROR = "error"
"""The column with the error of a failed task, or of a file."""

INTERNAL = (KEY, LISTED, ERROR)
"""Columns that the public DataFrame does not have."""


@dataclass(frozen=True)
class FileLayout:
    """The layout of file rows: the partition columns, the columns with statistics, and texts of partition values."""

    partitions: pa.Schema
    columns: tuple[Column, ...]
    texts: tuple[str, ...] = ()
    """The names that a `PartitionFilter` may use."""

    @cached_property
    def partition_fields(self) -> dict[str, str]:
        """The fields of `partition`, by column name."""
        known = [field.name for field in self.partitions if to_metadata_type(field.type) is not None]
        return _make_distinct({name: name for name in known})

    @cached_property
    def text_fields(self) -> dict[str, str]:
        """The fields of `partition_text`, by the names of `make_partition_text`."""
        return _make_distinct({make_partition_text(name).name: name for name in self.texts})

    def fields(self, kind: str) -> dict[str, str]:
        """Return the fields of a kind of metadata, by the names of `tamis.skipping.metadata`."""
        return _make_distinct(
            {
                # Names that do not belong to a column start with a NUL character, which Spark must not see.
                metadata_name(kind, column.path): metadata_name("", column.path)[1:].replace("\0", "")
                for column in self.columns
                if column.type is not None and self._type(kind, column) is not None
            }
        )

    def _type(self, kind: str, column: Column) -> pa.DataType | None:
        assert column.type is not None
        if kind in ("lower", "upper"):
            return to_metadata_type(column.type) if types.is_ordered(column.type) else None
        return types.LONG if kind != "nan_count" or pa.types.is_floating(column.type) else None

    @cached_property
    def schema(self) -> pa.Schema:
        fields: list[tuple[str, pa.DataType]] = [
            ("path", types.STRING),
            ("size", types.LONG),
            ("modified", MODIFIED),
            ("num_records", types.LONG),
            ("logical_rows", types.LONG),
            ("deletion_vector", DELETION_VECTOR),
        ]
        values = [
            (field, to_metadata_type(self.partitions.field(name).type)) for name, field in self.partition_fields.items()
        ]
        structs = {"partition": values, TEXTS: [(field, types.STRING) for field in self.text_fields.values()]}
        for kind in KINDS:
            by_name = {metadata_name(kind, column.path): column for column in self.columns}
            structs[kind] = [(field, self._type(kind, by_name[name])) for name, field in self.fields(kind).items()]
        # Spark does not support structs without fields.
        fields += [(name, pa.struct(inner)) for name, inner in structs.items() if inner]
        return pa.schema([*fields, (LISTED, types.LONG), (KEY, types.BINARY), (ERROR, types.BINARY)])

    def batch(self, found: FilesWithStatistics) -> pa.RecordBatch:
        """Return rows of files."""
        count = len(found.files["path"])
        statistics = pa.record_batch(dict(found.statistics))
        statistics = convert_metadata(statistics) if found.statistics else statistics
        values = convert_metadata(_to_batch(found.partitions, count))
        inner: dict[str, pa.Array] = {}
        for each in self.schema:
            if each.name == "partition":
                inner[each.name] = _make_struct(each.type, values, self.partition_fields, count)
            elif each.name == TEXTS and self.text_fields.keys() <= set(values.schema.names):
                inner[each.name] = _make_struct(each.type, values, self.text_fields, count)
            elif each.name in KINDS:
                inner[each.name] = _make_struct(each.type, statistics, self.fields(each.name), count)
        known = {**found.files, **inner}
        if LISTED in found.files:
            known["modified"] = read_modified(pa.table({LISTED: found.files[LISTED]})).combine_chunks()
        if found.errors:
            errors = {row: error_to_bytes(error) for row, error in found.errors.items()}
            known[ERROR] = pa.array([errors.get(row) for row in range(count)], types.BINARY)
        arrays = [known[each.name] if each.name in known else pa.nulls(count, each.type) for each in self.schema]
        return pa.record_batch(arrays, schema=self.schema)

    def error_row(self, error: TamisError) -> pa.RecordBatch:
        """Return a row that carries an error."""
        arrays = [
            pa.array([error_to_bytes(error)] if field.name == ERROR else [None], field.type) for field in self.schema
        ]
        return pa.record_batch(arrays, schema=self.schema)

    def to_arguments(self) -> dict[str, Any]:
        """Return the arguments of a job, which `parse_layout` and `read_columns` read."""
        return {
            "partitions": schema_to_text(self.partitions),
            "columns": columns_to_json(self.columns),
            "texts": self.texts,
        }


def _make_distinct(named: Mapping[str, str]) -> dict[str, str]:
    """Return field names that are distinct for Spark, which ignores case."""
    used: set[str] = set()
    found = {}
    for name, wanted in named.items():
        field, number = wanted, 1
        while field.casefold() in used:
            number += 1
            field = f"{wanted}_{number}"
        used.add(field.casefold())
        found[name] = field
    return found


def _to_batch(table: pa.Table, rows: int) -> pa.RecordBatch:
    if not table.num_columns:
        return pa.record_batch({"": pa.nulls(rows)})
    return pa.record_batch([column.combine_chunks() for column in table.columns], names=table.column_names)


def _make_struct(
    data_type: pa.DataType, batch: pa.RecordBatch, fields: Mapping[str, str], count: int
) -> pa.StructArray:
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
    """Runs a function over the items of a task, for `mapInArrow`. A Tamis error becomes a row."""

    function: str
    arguments: str = field(repr=False)
    __name__: str = "tamis"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arguments = Arguments(self.arguments)
        layout = parse_layout(arguments)
        try:
            function = cast(FileRowsFunction, find_function(self.function))
            for batch in batches:
                for item in batch.column("item").to_pylist():
                    yield from map(layout.batch, function(arguments, item))
        except TamisError as error:
            yield layout.error_row(error)


def parse_layout(arguments: Arguments) -> FileLayout:
    """Return the layout in the arguments of a job."""
    texts = tuple(arguments["texts"])
    return FileLayout(schema_from_text(arguments["partitions"]), read_columns(arguments), texts)


# --- Footers ----------------------------------------------------------------------------------------------------------


def read_parquet_footers(arguments: Arguments, item: bytes) -> Iterator[FilesWithStatistics]:
    """Yield files with the statistics of their footers; the item has `path`, `size`, `modified_ns` and constants."""
    storage, layout, given = arguments.storage, arguments.memoise(parse_layout), read_table(item)
    files = {name: given[name].combine_chunks() for name in ("path", "size", "modified_ns")}
    wanted = zip(*(array.to_pylist() for array in files.values()), strict=True)
    patience = LOCAL_SOLO_SECONDS if storage.is_local else 0.0
    footers = run_in_threads(lambda file: load_footer(storage, *file)[0], wanted, storage.threads, patience=patience)
    statistics = _collect_statistics(list(footers), layout.columns)
    rows = statistics[ROW_COUNT.name]
    yield FilesWithStatistics({**files, "num_records": rows, "logical_rows": rows}, statistics, read_partitions(given))


def _collect_statistics(footers: Sequence[Footer], columns: Sequence[Column]) -> dict[str, pa.Array]:
    """Return the statistics of whole files, aggregated from their footers."""
    groups = {ROW_COUNT.name: pa.array([count for footer in footers for count in list_row_counts(footer)], types.LONG)}
    groups |= collect_metadata(footers, columns)
    of_files = FileAggregator(np.array([footer.metadata.num_row_groups for footer in footers], np.int64))
    return of_files.aggregate(groups, tuple(IndexedColumn(column.path, column.path, column.type) for column in columns))
