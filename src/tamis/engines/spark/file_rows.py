"""The files of a table as rows of a DataFrame: executors read checkpoint parts, footers and manifests into one layout.

| column            | meaning                                                                                    |
|-------------------|--------------------------------------------------------------------------------------------|
| `path`            | as in the log or the listing                                                               |
| `size`            | bytes                                                                                      |
| `modified_ns`     | modification time, if known                                                                |
| `num_records`     | rows, including deleted ones; NULL if unknown                                              |
| `logical_rows`    | rows after deletes                                                                         |
| `deletion_vector` | the descriptor of the deletion vector                                                      |
| `partition`       | the typed partition values, one field for each                                             |
| `lower`, `upper`, `null_count`, `nan_count` | column statistics (see `tamis.skipping.metadata`), one field for each |

Timestamps are in UTC, without a zone. Columns of types that Spark does not support are left out, and so are unknown.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from tamis import types
from tamis.engines.spark.spark_types import convert_metadata, metadata_type
from tamis.engines.spark.worker import error_to_bytes
from tamis.errors import TamisError
from tamis.expr.nodes import Column
from tamis.formats.delta.log.actions import DELETION_VECTOR
from tamis.formats.delta.log.log_segment import LogFile
from tamis.formats.delta.log.replay import make_action_keys
from tamis.formats.delta.planning.checkpoint_job import metadata_from_json
from tamis.formats.delta.planning.file_batches import (
    PARTITION_VALUES,
    STATISTICS,
    FileBatch,
    LogColumns,
    compute_logical_rows,
    read_batches,
)
from tamis.formats.delta.planning.log_fragments import FilePart
from tamis.formats.delta.schema import TableMetadata
from tamis.formats.iceberg.manifests.manifest_list import DATA, DELETES
from tamis.formats.iceberg.manifests.manifest_pruning import get_spec
from tamis.formats.iceberg.partitioning.partition_bounds import (
    compute_partition_bounds,
    project_conjuncts,
    tighten_bounds,
)
from tamis.formats.iceberg.partitioning.specs import PartitionField, Spec
from tamis.formats.iceberg.planning.file_request import Layout
from tamis.formats.iceberg.planning.manifest_files import (
    Manifest,
    compute_statistics_bounds,
    group_manifests,
    join_entries,
    read_entries,
)
from tamis.formats.iceberg.table import IcebergTable
from tamis.formats.jobs import Arguments, Item, find_function, read_table
from tamis.index.file_aggregate import FileRows
from tamis.index.spec import IndexedColumn
from tamis.io.threads import LOCAL_PATIENCE, run_in_threads
from tamis.parquet.footer.footer import Footer, load_footer
from tamis.parquet.footer.statistics import collect_column_metadata, group_similar_footers, row_counts
from tamis.skipping.metadata import ROW_COUNT, metadata_name
from tamis.skipping.predicate import Predicate
from tamis.skipping.rewrite import Conjunct

DELTA_PART = "tamis.engines.spark.file_rows:read_delta_part"
PARQUET_FILES = "tamis.engines.spark.file_rows:read_parquet_footers"

KINDS = ("lower", "upper", "null_count", "nan_count")
KEY, ERROR = "key", "error"
"""Internal columns, dropped from the public DataFrame: the replay key of a file, and the error of a failed task."""


@dataclass(frozen=True)
class FileLayout:
    """The layout of file rows: the partition columns, and the columns with statistics."""

    partitions: pa.Schema
    columns: tuple[Column, ...]

    @cached_property
    def partition_fields(self) -> dict[str, str]:
        """The fields of `partition`, by column name."""
        known = [field.name for field in self.partitions if metadata_type(field.type) is not None]
        return _make_distinct({name: name for name in known})

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
        # Spark does not support structs without fields.
        fields += [(name, pa.struct(inner)) for name, inner in structs.items() if inner]
        return pa.schema([*fields, (KEY, types.BINARY), (ERROR, types.BINARY)])

    def batch(
        self, files: Mapping[str, pa.Array], partitions: pa.Table, described: Mapping[str, pa.Array]
    ) -> pa.RecordBatch:
        """Return rows of files from the plain columns, the typed partition values, and the metadata by name."""
        count = len(files["path"])
        metadata = convert_metadata(pa.record_batch(dict(described))) if described else pa.record_batch({})
        values = convert_metadata(_to_batch(partitions, count))
        inner: dict[str, pa.Array] = {}
        for each in self.schema:
            if each.name == "partition":
                inner[each.name] = _make_struct(each.type, values, self.partition_fields, count)
            elif each.name in KINDS:
                inner[each.name] = _make_struct(each.type, metadata, self.fields(each.name), count)
        known = {**files, **inner}
        arrays = [known[each.name] if each.name in known else pa.nulls(count, each.type) for each in self.schema]
        return pa.record_batch(arrays, schema=self.schema)

    def error_row(self, error: TamisError) -> pa.RecordBatch:
        """Return a row that carries an error."""
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
        kinds = _parse_schema(given["types"])
        columns = [Column(tuple(path), type=kind) for path, kind in zip(given["paths"], kinds.types, strict=True)]
        return FileLayout(_parse_schema(given["partitions"]), tuple(columns))


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


def _parse_schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.BufferReader(b64decode(text)))


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
        try:
            for batch in batches:
                for item in batch.column("item").to_pylist():
                    yield from find_function(self.function)(arguments, item)
        except TamisError as error:
            yield arguments.memoise(parse_layout).error_row(error)


def parse_layout(arguments: Arguments) -> FileLayout:
    """Return the layout in the arguments of a job."""
    return FileLayout.from_json(arguments["layout"])


# --- Delta ------------------------------------------------------------------------------------------------------------


def read_delta_part(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the files that a checkpoint part adds, including those that newer commits replace."""
    file = LogFile(*json.loads(item))
    part = FilePart(arguments.storage, ("part", file.path), arguments["version"], file.size, file)
    yield from read_delta_rows(part, arguments.memoise(_parse_metadata), arguments.memoise(parse_layout))


def _parse_metadata(arguments: Arguments) -> TableMetadata:
    return metadata_from_json(arguments["metadata"])


def read_delta_rows(part: FilePart, metadata: TableMetadata, layout: FileLayout) -> Iterator[pa.RecordBatch]:
    """Yield the files of a part of the log as rows."""
    columns = ("path", "size", "deletion_vector", *PARTITION_VALUES, *STATISTICS)
    for batch, log in read_batches(part, metadata, columns):
        yield _delta_batch(batch, log, layout)


def _delta_batch(batch: FileBatch, log: LogColumns, layout: FileLayout) -> pa.RecordBatch:
    rows = np.arange(batch.rows)
    described = batch.statistics(layout.columns, rows, log)
    chosen = batch.select_files(rows, described[ROW_COUNT.name])
    files = {name: chosen[name].combine_chunks() for name in ("path", "size", "deletion_vector", "num_records")}
    files["logical_rows"] = compute_logical_rows(described[ROW_COUNT.name], batch.count_deleted(pa.array(rows)))
    files[KEY] = make_action_keys(files["path"], files["deletion_vector"])
    return layout.batch(files, batch.partitions, described)


# --- Footers ----------------------------------------------------------------------------------------------------------


def read_parquet_footers(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """Read the footers of files into rows.

    The item has the columns `path`, `size`, `modified_ns`, then partition values under their numbers.
    """
    storage, layout, given = arguments.storage, arguments.memoise(parse_layout), read_table(item)
    files = {name: given[name].combine_chunks() for name in ("path", "size", "modified_ns")}
    wanted = zip(*(array.to_pylist() for array in files.values()), strict=True)
    patience = LOCAL_PATIENCE if storage.is_local else 0.0
    footers = run_in_threads(lambda file: load_footer(storage, *file)[0], wanted, storage.threads, patience=patience)
    partitions = pa.table(given.columns[3:], names=layout.partitions.names)
    described = _collect_statistics(list(footers), layout.columns)
    rows = described[ROW_COUNT.name]
    yield layout.batch({**files, "num_records": rows, "logical_rows": rows}, partitions, described)


def _collect_statistics(footers: Sequence[Footer], columns: Sequence[Column]) -> dict[str, pa.Array]:
    """Return the statistics of whole files, aggregated from their footers."""
    groups = {ROW_COUNT.name: pa.array([count for footer in footers for count in row_counts(footer)], types.LONG)}
    alike = group_similar_footers(footers)
    counts = [sum(footer.metadata.num_row_groups for footer in each) for each in alike]
    for column in columns:
        found = [
            collect_column_metadata(each, column, each[0].schema.find(column.path) or column.path) for each in alike
        ]
        for name in {name: None for each in found for name in each}:
            kind = next(each[name].type for each in found if name in each)
            arrays = [each.get(name, pa.nulls(count, kind)) for each, count in zip(found, counts, strict=True)]
            groups[name] = pa.concat_arrays(arrays)
    of_files = FileRows(np.array([footer.metadata.num_row_groups for footer in footers], np.int64))
    return of_files.describe(groups, tuple(IndexedColumn(column.path, column.path, column.type) for column in columns))


# --- The files of an Iceberg table as rows of a DataFrame: executors read manifests, with statistics and partition
#
# A partition value bounds its source column, so these bounds are combined with the statistics of the file. Further
# information in it (buckets, truncated strings) becomes a column of its own. Files of other specs lack this column:
# it is unknown there, and skips nothing.


@dataclass(frozen=True)
class IcebergFiles:
    """The files of an Iceberg table, as a `FilesDataFrame` needs them."""

    table: IcebergTable

    @cached_property
    def _fields(self) -> tuple[PartitionField, ...]:
        """The partition fields of all specs, without those that share their id with a different field.

        Tables of version 1 numbered the fields of each spec from the start, so such ids are ambiguous.
        """
        by_id: dict[int, list[PartitionField]] = {}
        for spec in self.table.layout.specs.values():
            for each in spec.fields:
                by_id.setdefault(each.field_id, []).append(each)
        unambiguous = [own[0] for own in by_id.values() if len({(each.transform, each.source) for each in own}) == 1]
        return tuple(unambiguous)

    def columns(self, own: Sequence[Column]) -> tuple[Column, ...]:
        """Return the columns with metadata: the given ones, the source columns of partitions, and partition values."""
        useful = Spec(-1, self._fields).prunable_fields
        more = [
            each.source for spec in self.table.layout.specs.values() for each in spec.prunable_fields if each.source
        ]
        found = {each.path: each for each in (*own, *more, *(field.column for field in useful))}
        return tuple(found.values())

    def conjuncts(self, predicate: Predicate) -> Sequence[Conjunct]:
        return project_conjuncts(predicate, Spec(-1, self._fields))

    def items(self) -> list[Item]:
        groups = group_manifests(Manifest.from_table(self.table.manifests.select_content(DATA)))
        return [Item.from_json([astuple(each) for each in own], sum(each.length for each in own)) for own in groups]

    def arguments(self) -> dict[str, Any]:
        has_deletes = self.table.manifests.select_content(DELETES).num_rows > 0
        return {"table": self.table.layout.to_json(), "has_deletes": has_deletes}

    def resolve_paths(self, files: pa.Table) -> pa.Table:
        """Return files with their paths resolved in the file system."""
        relocation = self.table.opened.relocation
        paths = relocation.resolve_all(files["path"])
        sizes = relocation.look_up_sizes(paths, files["size"].combine_chunks())
        return files.set_column(0, "path", paths).set_column(1, "size", sizes)


def read_manifest_files(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the data files of some manifests of one spec. It is the function of a job."""
    storage, layout, table = arguments.storage, arguments.memoise(parse_layout), arguments.memoise(_parse_layout)
    manifests = [Manifest(*each) for each in json.loads(item)]
    location = storage.place(manifests[0].path)
    spec = get_spec(table.specs, manifests[0].spec_id, f"'{location}'")
    columns = {table.ids[each.path]: each for each in layout.columns if each.path in table.ids}
    found = join_entries(spec, [read_entries(storage, each, tuple(columns)) for each in manifests], location)
    rows = found.files["record_count"].combine_chunks()
    known = {ROW_COUNT.name: rows, **compute_statistics_bounds(found.files, columns, rows)}
    known = tighten_bounds(known, compute_partition_bounds(spec, found.typed, rows), tuple(columns.values()))
    files = {
        "path": found.files["location"].combine_chunks().cast(pa.string()),
        "size": found.files["size"].combine_chunks(),
        "num_records": rows,
        # Deletes are matched to files later, when these are read.
        "logical_rows": pa.nulls(len(rows), rows.type) if arguments["has_deletes"] else rows,
    }
    yield layout.batch(files, pa.table({}), known)


def _parse_layout(arguments: Arguments) -> Layout:
    return Layout.from_json(arguments["table"])
