"""Harvest: read footers, and values where they are asked for, of some data files, and write what they say as a part.

One call is about some files and makes one part, in a thread or in a Spark executor alike. An entry is a row:

| column                   | meaning                                                                              |
|--------------------------|--------------------------------------------------------------------------------------|
| `path`                   | below the table's folder, or whole where it is elsewhere                             |
| `size`, `modified_ns`    | as they were listed: an entry counts only for a file that still has both             |
| `schema`                 | the number of the file's schema, see `tamis.index.store`; null where it is not noted |
| `footer_offset`, `footer_length` | where its footer is                                                          |
| `row_count`, `lower:x`, … | of the whole file, as `tamis.skipping.metadata` lays it out: by its footer, or where  |
|                          | that is silent by its page indexes                                                   |
| `bloom:x`                | the bits of a Bloom filter, see `tamis.index.bloom_bits`                             |
| `group:row_count`, `group:lower:x`, … | what the footer says of its row groups: lists, one value each           |
| `group:counted_nan_count:x` | how many NaN were counted in its row groups                                        |
| `group:sizes`            | the compressed bytes of every leaf in every row group; null where there are many     |

A file that cannot be read is left out, and told: a scan that needs it says the same.
"""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile, MissingFile, UnsupportedFeature
from tamis.expr.nodes import TRUE, Column
from tamis.expr.patterns import successor_of_bytes, successor_of_prefix
from tamis.formats.jobs import Arguments, read_table
from tamis.index.bloom_bits import ascending, bits_of, canonical_leaf, hashes_of_values, most_distinct
from tamis.index.entries import relative_paths
from tamis.index.file_aggregate import FileRows
from tamis.index.spec import IndexedColumn, IndexSpec, types_of_kinds
from tamis.index.store import BLOOM, SCHEMA, IndexStore
from tamis.io.storage import Storage, open_storage
from tamis.io.threads import LOCAL_PATIENCE, run_in_threads
from tamis.parquet.footer.field_names import ColumnMapping
from tamis.parquet.footer.footer import Footer, load_footer
from tamis.parquet.footer.leaves import FileSchema, Leaf
from tamis.parquet.footer.statistics import collect_column_metadata, group_similar_footers, row_counts
from tamis.parquet.indexes.bloom_filter import Array
from tamis.parquet.indexes.page_units import read_page_indexes
from tamis.parquet.reading.parquet_file import ParquetFile
from tamis.scan.planning.tasks import ScanTask
from tamis.scan.reading.task_reader import TaskReader
from tamis.skipping.metadata import ROW_COUNT, metadata_name
from tamis.skipping.predicate import Predicate

logger = logging.getLogger("tamis")

GROUP = "group:"
SIZES = f"{GROUP}sizes"
FUNCTION = "tamis.index.collect:harvest"

RESULT = pa.schema(
    [
        ("name", pa.string()),
        ("size", pa.int64()),
        ("files", pa.int64()),
        ("footer_hash", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("left_out", pa.int64()),
        ("left_out_because", pa.string()),
    ]
)
"""What a call says of the part that it wrote; `name` is null where no file was left to write about."""

MOST_LEAVES = 100
"""Of files with more columns it is not noted how many bytes each of them takes."""

_TRAILER = 8  # behind the footer: its length, then the magic

_Unreadable = (CorruptFile, MissingFile, UnsupportedFeature)


def harvest_arguments(
    schema: pa.Schema,
    partition_columns: Sequence[str],
    names: ColumnMapping | None,
    spec: IndexSpec,
    *,
    with_schemas: bool,
) -> dict[str, Any]:
    """What every call needs to know of the table, as JSON."""
    return {
        "schema": b64encode(schema.serialize().to_pybytes()).decode(),
        "partition_columns": list(partition_columns),
        "names": None if names is None else names.to_json(),
        "spec": spec.to_dict(),
        "with_schemas": with_schemas,
    }


@dataclass(frozen=True)
class Harvester:
    """What calls share: the table, and what to note of its files."""

    storage: Storage
    store: IndexStore
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    names: ColumnMapping | None
    spec: IndexSpec
    with_schemas: bool

    def entries(self, files: pa.Table) -> tuple[pa.Table, list[bytes], list[str]]:
        """The entries of files (`path`, `size`, `modified_ns`), their schemas, and why others have none."""
        wanted = list(zip(*(files[name].to_pylist() for name in ("path", "size", "modified_ns")), strict=True))
        patience = LOCAL_PATIENCE if self.storage.is_local else 0.0
        each = run_in_threads(self._read, wanted, self.storage.threads, patience=patience)
        read = [(file, *found) for file, found in zip(wanted, each, strict=True) if not isinstance(found, str)]
        reasons = [found for found in each if isinstance(found, str)]
        footers = [footer for _, footer, _ in read]
        serialised = {schema: _schema_bytes(schema) for schema in dict.fromkeys(footer.schema for footer in footers)}
        schemas: dict[bytes, int] = {}
        numbers = [schemas.setdefault(serialised[footer.schema], len(schemas)) for footer in footers]
        table = self._table([file for file, *_ in read], footers, [values for *_, values in read])
        if self.with_schemas:
            table = table.append_column(SCHEMA, pa.array(numbers, pa.int32()))
        return table, list(schemas) if self.with_schemas else [], reasons

    def _read(self, file: tuple[str, int, int | None]) -> tuple[Footer, ValuesOfFile] | str:
        path, size, modified_ns = file
        try:
            footer, content = load_footer(self.storage, path, size, modified_ns, self.names)
            for column in self.spec.columns:
                footer.schema.find(column.path)  # raises where two columns of the file are meant
            if not self.spec.valued:
                return footer, ValuesOfFile()
            return footer, read_values(self._reader, self.spec, file, row_counts(footer), content)
        except _Unreadable as error:
            logger.warning("left out of the index: %s", error)
            return str(error)

    @cached_property
    def _reader(self) -> TaskReader:
        projection = tuple(column.path for column in self.spec.valued)
        return TaskReader(
            self.storage, self.schema, Predicate(TRUE), projection, self.partition_columns, self.names, False
        )

    def _table(
        self, files: Sequence[tuple[str, int, int | None]], footers: Sequence[Footer], values: Sequence[ValuesOfFile]
    ) -> pa.Table:
        counts = np.array([footer.metadata.num_row_groups for footer in footers], np.int64)
        groups = self._groups(footers)
        counted = self._counted_nan(values)
        parquet = [ParquetFile(self.storage, *file, footer) for file, footer in zip(files, footers, strict=True)]
        with_pages = with_bounds_of_pages(groups, parquet, self.spec.columns, self.storage.threads)
        of_files = FileRows(counts).describe({**with_pages, **counted}, self.spec.columns)
        offsets = pa.array(np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), pa.int32())
        columns: dict[str, pa.Array] = {
            "path": relative_paths(pa.array([path for path, _, _ in files], pa.string()), self.storage.root),
            "size": pa.array([size for _, size, _ in files], types.LONG),
            "modified_ns": pa.array([modified_ns for *_, modified_ns in files], types.LONG),
            "footer_offset": pa.array(
                [size - _TRAILER - len(footer.content) for (_, size, _), footer in zip(files, footers, strict=True)],
                types.LONG,
            ),
            "footer_length": pa.array([len(footer.content) for footer in footers], types.LONG),
        }
        columns |= of_files
        for column in self.spec.columns:
            if column.has_bloom:
                bits = [found.filters.get(column) for found in values]
                columns[column.name(BLOOM)] = pa.array(bits, pa.large_binary())
        columns |= {f"{GROUP}{name}": _list(offsets, array) for name, array in groups.items()}
        columns |= {f"{GROUP}counted_{name}": _list(offsets, array) for name, array in counted.items()}
        columns[SIZES] = pa.array([_sizes(footer) for footer in footers], pa.list_(types.LONG))
        return pa.table(columns)

    def _counted_nan(self, values: Sequence[ValuesOfFile]) -> dict[str, pa.Array]:
        """How many NaN there are in all row groups, by the names of the index."""
        return {
            column.name("nan_count"): pa.array(
                [count for each in values for count in each.nan_counts[column]], types.LONG
            )
            for column in self.spec.columns
            if column.counts_nan
        }

    def _groups(self, footers: Sequence[Footer]) -> dict[str, pa.Array]:
        """What footers say of all row groups, one file after another, under the names of the index."""
        rows = [count for footer in footers for count in row_counts(footer)]
        found = {ROW_COUNT.name: pa.array(rows, types.LONG)}
        alike = group_similar_footers(footers)
        counts = [sum(footer.metadata.num_row_groups for footer in each) for each in alike]
        for column in self.spec.columns:
            described = [
                collect_column_metadata(each, column.column, each[0].schema.find(column.path) or column.path)
                for each in alike
            ]
            own = {
                column.name(kind): _concatenated([each.get(name) for each in described], counts, data_type)
                for kind, name, data_type in _kinds(column.column)
            }
            found |= cut_bounds(own, column)
        return found


def harvest(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """Describe the files of an item in a part of the index, and say what was written."""
    harvester = arguments.memoise(_harvester)
    entries, schemas, reasons = harvester.entries(read_table(item))
    part = harvester.store.write_part(entries, schemas, harvester.spec) if entries.num_rows else None
    said = {
        "name": None if part is None else part.name,
        "size": 0 if part is None else part.size,
        "files": entries.num_rows,
        "footer_hash": None if part is None else part.footer_hash,
        "rows": sum(entries[ROW_COUNT.name].to_pylist()),
        "bytes": sum(entries["size"].to_pylist()),
        "left_out": len(reasons),
        "left_out_because": reasons[0] if reasons else None,
    }
    yield pa.RecordBatch.from_pylist([said], schema=RESULT)


def _harvester(arguments: Arguments) -> Harvester:
    place = arguments["index"]["storage"]
    names = arguments["names"]
    return Harvester(
        arguments.storage,
        IndexStore(open_storage(place["uri"], place["options"] or None)),
        pa.ipc.read_schema(pa.py_buffer(b64decode(arguments["schema"]))),
        tuple(arguments["partition_columns"]),
        None if names is None else ColumnMapping.from_json(names),
        IndexSpec.from_dict(arguments["spec"]),
        arguments["with_schemas"],
    )


def _kinds(column: Column) -> list[tuple[str, str, pa.DataType]]:
    """The pieces of a column's metadata: kind, name in the layout of the table, type."""
    assert column.type is not None
    return [
        (kind, metadata_name(kind, column.path), data_type) for kind, data_type in types_of_kinds(column.type).items()
    ]


def _concatenated(arrays: Sequence[pa.Array | None], counts: Sequence[int], data_type: pa.DataType) -> pa.Array:
    known = [
        pa.nulls(count, data_type) if array is None else array for array, count in zip(arrays, counts, strict=True)
    ]
    return pa.concat_arrays(known) if known else pa.nulls(0, data_type)


def _schema_bytes(schema: FileSchema) -> bytes:
    """The schema of a file without what writers note besides: it differs from file to file, and nobody asks for it."""
    fields = [pa.field(field.name, field.type, field.nullable) for field in schema.arrow]
    return bytes(pa.schema(fields).serialize().to_pybytes())


def _list(offsets: pa.Array, values: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(offsets, values)


def _sizes(footer: Footer) -> list[int] | None:
    metadata = footer.metadata
    if metadata.num_columns > MOST_LEAVES:
        return None
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [
        max(0, group.column(leaf).total_compressed_size) for group in groups for leaf in range(metadata.num_columns)
    ]


# --- What only the values of a file tell: Bloom filters, and how many NaN there are -----------------------------------

FEW_HASHES = 256 * 1024
"""So many hashes wait before they are sorted into those that are known, or as many as are known."""


@dataclass
class ValuesOfFile:
    """What the values of one file tell of the columns that were asked for."""

    nan_counts: dict[IndexedColumn, list[int]] = field(default_factory=dict)
    """For each row group."""
    filters: dict[IndexedColumn, bytes | None] = field(default_factory=dict)
    """The bits of a Bloom filter of the whole file; None where it has none."""


def read_values(
    reader: TaskReader,
    spec: IndexSpec,
    file: tuple[str, int, int | None],
    rows: Sequence[int],
    content: pa.Buffer | None = None,
) -> ValuesOfFile:
    """Read the columns of `spec.valued`, which are the reader's projection, one row group after another.

    `file` is its path, size and time of change, `rows` how many each row group has, `content` all of it where it is at
    hand.
    """
    found = ValuesOfFile({column: [] for column in spec.valued if column.counts_nan})
    most = most_distinct(spec.false_positives)
    hashed = {column: _Hashes(column, most) for column in spec.valued if column.has_bloom}
    for row_group, count in enumerate(rows):
        task = ScanTask(*file, row_group, count, 0, {}, (), None, content)  # type: ignore[arg-type]
        for counts in found.nan_counts.values():
            counts.append(0)
        for batch in reader.read([task]):
            for column in spec.valued:
                values = _values(batch, column)
                if column in found.nan_counts:
                    found.nan_counts[column][-1] += pc.is_nan(values).true_count
                if column.has_bloom:
                    hashed[column].add(values)
    for column, collected in hashed.items():
        hashes = collected.all()
        found.filters[column] = None if hashes is None else bits_of(hashes, spec.false_positives)
    return found


class _Hashes:
    """The hashes of the values of a column, each once; none where there are too many, or some have no certain form."""

    def __init__(self, column: IndexedColumn, most: int) -> None:
        self._leaf = canonical_leaf(column.type)
        self._most = most
        self._known: Array | None = None if self._leaf is None else np.empty(0, np.uint64)
        self._waiting: list[Array] = []

    def add(self, values: pa.Array) -> None:
        if self._known is None or self._leaf is None:
            return
        more = hashes_of_values(values, self._leaf)
        if more is None:
            self._known, self._waiting = None, []
            return
        self._waiting.append(more)
        if sum(map(len, self._waiting)) > max(FEW_HASHES, len(self._known)):
            self.all()

    def all(self) -> Array | None:
        """All of them, ascending."""
        if self._known is not None and self._waiting:
            joined = ascending(np.concatenate([self._known, *self._waiting]))
            self._known = joined if len(joined) <= self._most else None
        self._waiting = []
        return self._known


def _values(batch: pa.RecordBatch, column: IndexedColumn) -> pa.Array:
    found = batch.column(column.path[0])
    for name in column.path[1:]:
        # Unlike `field`, `struct_field` makes the fields of a null struct null.
        found = pc.struct_field(found, [found.type.get_field_index(name)])
    if pa.types.is_dictionary(found.type):
        found = found.dictionary_decode()
    found = found.cast(types.replace_view_types(found.type))
    assert found.type == column.type, f"{column.path} was read as {found.type}"
    return found


# --- Bounds out of page indexes, for row groups of whose statistics a column is left out ------------------------------
#
# Some writers describe pages and not whole chunks. What the pages of a chunk say together is known of the chunk.


@dataclass(frozen=True, slots=True)
class _Silent:
    """A column of which the statistics of a row group say nothing, though its pages are described."""

    position: int
    """Of the row group, among those of all files."""
    row_group: int
    column: IndexedColumn
    leaf: Leaf


def with_bounds_of_pages(
    groups: Mapping[str, pa.Array], files: Sequence[ParquetFile], columns: Sequence[IndexedColumn], threads: int
) -> Mapping[str, pa.Array]:
    """What is known of the row groups of files, one file after another, and what their page indexes add to it."""
    silent = _silent(groups, files, columns)
    if not silent:
        return groups
    wanted = list(silent.items())
    each = run_in_threads(lambda one: _read(files[one[0]], one[1]), wanted, threads)
    found = dict(groups)
    for column in columns:
        known = {position: said for one in each for (position, about), said in one.items() if about == column}
        if not known:
            continue
        rows = sorted(known)
        mask = np.zeros(len(groups[ROW_COUNT.name]), np.bool_)
        mask[rows] = True
        for kind, data_type in types_of_kinds(column.type).items():
            name = column.name(kind)
            values = [known[row].get(name, pa.nulls(1, data_type)).cast(data_type) for row in rows]
            found[name] = pc.replace_with_mask(found[name], pa.array(mask), pa.concat_arrays(values))
    return found


def _silent(
    groups: Mapping[str, pa.Array], files: Sequence[ParquetFile], columns: Sequence[IndexedColumn]
) -> dict[int, list[_Silent]]:
    """By the number of the file."""
    counts = [file.footer.metadata.num_row_groups for file in files]
    owner = np.repeat(np.arange(len(files)), counts)
    first = np.cumsum([0, *counts])
    found: dict[int, list[_Silent]] = {}
    for column in columns:
        lower, nulls = groups[column.name("lower")], groups[column.name("null_count")]
        has_values = pc.fill_null(pc.not_equal(nulls, groups[ROW_COUNT.name]), True)
        for position in np.flatnonzero(np.asarray(pc.and_(lower.is_null(), has_values))).tolist():
            number = int(owner[position])
            footer = files[number].footer
            leaf = footer.schema.leaves.get(footer.schema.find(column.path) or column.path)
            row_group = position - int(first[number])
            if leaf is None or not footer.metadata.row_group(row_group).column(leaf.index).has_column_index:
                continue
            found.setdefault(number, []).append(_Silent(position, row_group, column, leaf))
    return found


def _read(file: ParquetFile, silent: Sequence[_Silent]) -> dict[tuple[int, IndexedColumn], dict[str, pa.Array]]:
    """What the page indexes of a file say of whole row groups."""
    try:
        with file.open() as opened:
            asked = [(each.row_group, each.column.column, each.leaf) for each in silent]
            indexes = read_page_indexes(file, opened, (), asked)
    except CorruptFile:
        # Whoever reads such pages says so; for an index it is as if there were none.
        return {}
    found = {}
    for each in silent:
        pages = indexes.columns[each.row_group, each.column.column]
        if pages is None:
            continue
        column = each.column
        named = {metadata_name(kind, column.path): column.name(kind) for kind in types_of_kinds(column.type)}
        metadata = {named.get(name, name): array for name, array in pages.metadata.items()}
        count = len(metadata[ROW_COUNT.name])
        described = FileRows(np.array([count])).describe(metadata, (column,))
        if column.name("lower") in described:
            found[each.position, column] = cut_bounds(described, column)
    return found


# --- Long bounds cut short: an index is read often, and the first characters of a bound say nearly all ----------------

LONGEST_BOUND = 64
"""Characters of a text, or bytes."""


def cut_bounds(metadata: Mapping[str, pa.Array], column: IndexedColumn) -> dict[str, pa.Array]:
    """The metadata of a column with bounds of at most `LONGEST_BOUND`; one that is cut is not exact any more."""
    found = dict(metadata)
    is_text = types.is_text(column.type)
    if not (is_text or types.is_bytes(column.type)) or pa.types.is_fixed_size_binary(column.type):
        return found
    for kind in ("lower", "upper"):
        bounds = found[column.name(kind)]
        length = pc.utf8_length(bounds) if is_text else pc.binary_length(bounds)
        is_long = pc.fill_null(pc.greater(length, LONGEST_BOUND), False)
        if not is_long.true_count:
            continue
        # Whatever a text starts with is at most the text; above it is what comes after all texts that start so.
        heads = [bound[:LONGEST_BOUND] for bound in bounds.filter(is_long).to_pylist()]
        if kind == "upper":
            after = successor_of_prefix if is_text else successor_of_bytes
            heads = [after(head) for head in heads]
        cut = pc.replace_with_mask(bounds, is_long, pa.array(heads, bounds.type))
        found[column.name(kind)] = cut
        exact = found[column.name(f"{kind}_exact")]
        inexact = pc.if_else(is_long, pa.scalar(False), exact)
        found[column.name(f"{kind}_exact")] = pc.if_else(cut.is_valid(), inexact, pa.scalar(None, types.BOOLEAN))
    return found
