"""Collecting statistics: reads footers, and values if requested, of some data files, and writes them as one part.

One call handles some files and writes one part, in a thread or in a Spark executor. An entry is a row:

| column                   | meaning                                                                              |
|--------------------------|--------------------------------------------------------------------------------------|
| `path`                   | relative to the table's folder, or absolute if it is elsewhere                      |
| `size`, `modified_ns`    | as listed: an entry is valid only for a file that still has both                     |
| `schema`                 | the number of the file's schema, see `tamis.index.store`; null if not recorded       |
| `footer_offset`, `footer_length` | the position of its footer                                                   |
| `row_count`, `lower:x`, … | of the whole file, in the layout of `tamis.skipping.metadata`: from its footer, or    |
|                          | from its page indexes if the footer has no bounds                                    |
| `bloom:x`                | the bits of a Bloom filter, see the end of this module                               |
| `group:row_count`, `group:lower:x`, … | the footer's metadata of its row groups: lists, one value each          |
| `group:counted_nan_count:x` | the NaN counts of its row groups, from values                                     |
| `group:sizes`            | the compressed bytes of every leaf in every row group; null if there are many leaves |

A file that cannot be read is left out and reported; a scan that needs it raises the same error.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile, MissingFile, UnsupportedFeature
from tamis.expr.nodes import TRUE
from tamis.expr.patterns import find_successor_of_prefix
from tamis.expr.wire.expression_json import schema_from_text
from tamis.formats.jobs import Arguments, read_table
from tamis.index.entries import make_relative
from tamis.index.spec import IndexedColumn, IndexSpec, list_metadata_types
from tamis.index.store import BLOOM, SCHEMA, IndexStore
from tamis.io.storage import Storage, open_storage
from tamis.io.threads import LOCAL_SOLO_SECONDS, run_in_threads
from tamis.parquet.footer.field_names import ColumnMapping
from tamis.parquet.footer.footer import Footer, load_footer
from tamis.parquet.footer.leaves import Leaf
from tamis.parquet.footer.statistics import collect_metadata, list_row_counts
from tamis.parquet.indexes.bloom_filter import (
    BLOCK_BYTES,
    SALTS,
    WORDS_PER_BLOCK,
    Array,
    Unavailable,
    find_blocks,
    hash_stored_values,
)
from tamis.parquet.indexes.page_units import read_page_indexes
from tamis.parquet.reading.parquet_file import ParquetFile
from tamis.scan.planning.tasks import ScanTask
from tamis.scan.reading.task_reader import TaskReader
from tamis.skipping.metadata import ROW_COUNT, metadata_name
from tamis.skipping.predicate import Predicate

# --- File aggregate -------------------------------------------------------------------------------------------------
#
# Metadata of files from the metadata of their row groups.
#
# | of the file             | from its row groups                                                                     |
# |-------------------------|-----------------------------------------------------------------------------------------|
# | rows, NULLs, NaN        | the sum, unknown if one of them is                                                      |
# | lower and upper bound   | the minimum and maximum, unknown if a row group that may have values has none           |
# | exact                   | that of the row group with the bound                                                    |


class FileAggregator:
    """Aggregates row groups by file; `counts` are the row group counts of the files, in order."""

    def __init__(self, counts: npt.NDArray[np.int64]) -> None:
        self._has_any = counts > 0
        starts = np.cumsum(counts) - counts
        self._starts = starts[self._has_any]
        # The position among the files that have row groups; null for those that have none.
        positions = np.cumsum(self._has_any) - 1
        self._positions = pa.array(np.maximum(positions, 0), mask=~self._has_any)

    def aggregate(self, groups: Mapping[str, pa.Array], columns: tuple[IndexedColumn, ...]) -> dict[str, pa.Array]:
        """Return the metadata of files, under the names of the metadata of row groups."""
        rows = groups[ROW_COUNT.name]
        found = {ROW_COUNT.name: self._sum(rows)}
        for column in columns:
            nulls, nans = (groups.get(column.metadata_name(kind)) for kind in ("null_count", "nan_count"))
            for kind, counts in (("null_count", nulls), ("nan_count", nans)):
                if counts is not None:
                    found[column.metadata_name(kind)] = self._sum(counts)
            is_empty = _has_no_value(rows, nulls, nans)
            for kind in ("lower", "upper"):
                bounds = groups.get(column.metadata_name(kind))
                if bounds is None:
                    continue
                picked = self._pick(bounds, is_empty, smallest=kind == "lower")
                found[column.metadata_name(kind)] = bounds.take(picked)
                exact = groups.get(column.metadata_name(f"{kind}_exact"))
                if exact is not None:
                    found[column.metadata_name(f"{kind}_exact")] = exact.take(picked)
        return found

    def _sum(self, counts: pa.Array) -> pa.Array:
        if not len(self._starts):
            return pa.array(np.zeros(len(self._has_any), np.int64))
        totals = np.add.reduceat(np.asarray(pc.fill_null(counts, 0), np.int64), self._starts)
        is_unknown = np.logical_or.reduceat(np.asarray(counts.is_null()), self._starts)
        each = pa.array(totals, types.LONG, mask=is_unknown).take(self._positions)
        return pc.if_else(pa.array(self._has_any), each, pa.scalar(0, types.LONG))

    def _pick(self, bounds: pa.Array, is_empty: Array, *, smallest: bool) -> pa.Array:
        """Return the row group that has the bound of its file; null if the file has none."""
        if not len(self._starts):
            return pa.nulls(len(self._has_any), types.LONG)
        count = len(bounds)
        order = np.asarray(pc.sort_indices(_to_sortable(bounds)), np.int64)
        rank = np.empty(count, np.int64)
        rank[order] = np.arange(count)
        is_null = np.asarray(bounds.is_null())
        rank[is_null] = count if smallest else -1
        best = (np.minimum if smallest else np.maximum).reduceat(rank, self._starts)
        is_unknown = np.logical_or.reduceat(is_null & ~is_empty, self._starts) | (best < 0) | (best >= count)
        picked = order[np.where(is_unknown, 0, best)]
        return pa.array(picked, mask=is_unknown).take(self._positions)


def _to_sortable(bounds: pa.Array) -> pa.Array:
    if pa.types.is_float16(bounds.type):
        return bounds.cast(pa.float32())
    if pa.types.is_decimal(bounds.type) and bounds.type.bit_width < 128:
        return bounds.cast(pa.decimal128(bounds.type.precision, bounds.type.scale))
    return bounds


def _has_no_value(rows: pa.Array, nulls: pa.Array | None, nans: pa.Array | None) -> Array:
    """Return the row groups that have only NULL and NaN: there, missing bounds mean 'no value', not 'unknown'."""
    found = pc.equal(rows, 0)
    if nulls is not None:
        found = pc.or_kleene(found, pc.equal(nulls, rows))
        if nans is not None:
            found = pc.or_kleene(found, pc.equal(pc.add(nulls, nans), rows))
    return np.asarray(pc.fill_null(found, False))


logger = logging.getLogger("tamis")

GROUP = "group:"
SIZES = f"{GROUP}sizes"
FUNCTION = "tamis.index.collect:collect_entries"

RESULT = pa.schema(
    [
        ("name", pa.string()),
        ("size", pa.int64()),
        ("files", pa.int64()),
        ("footer_hash", pa.string()),
        ("left_out", pa.int64()),
        ("left_out_because", pa.string()),
    ]
)
"""The result of a call: the part that it wrote; `name` is null if no file could be read."""

MAX_LEAVES_WITH_SIZES = 100
"""The largest number of leaf columns whose bytes are recorded for a file."""

_TRAILER = 8  # behind the footer: its length, then the magic

_Unreadable = (CorruptFile, MissingFile, UnsupportedFeature)


@dataclass(frozen=True)
class EntryCollector:
    """Collects the entries of files: the table, and what to record of its files."""

    storage: Storage
    store: IndexStore
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    names: ColumnMapping | None
    spec: IndexSpec
    with_schemas: bool

    def collect(self, files: pa.Table) -> tuple[pa.Table, list[bytes], list[str]]:
        """Return the entries of files (`path`, `size`, `modified_ns`), their schemas, and why others have none."""
        wanted = list(zip(*(files[name].to_pylist() for name in ("path", "size", "modified_ns")), strict=True))
        patience = LOCAL_SOLO_SECONDS if self.storage.is_local else 0.0
        each = run_in_threads(self._read, wanted, self.storage.threads, patience=patience)
        read = [(file, *found) for file, found in zip(wanted, each, strict=True) if not isinstance(found, str)]
        reasons = [found for found in each if isinstance(found, str)]
        footers = [footer for _, footer, _ in read]
        # Without metadata of its writer, which differs from file to file and is not needed.
        serialised = {
            schema: pa.schema([pa.field(field.name, field.type, field.nullable) for field in schema.arrow])
            .serialize()
            .to_pybytes()
            for schema in dict.fromkeys(footer.schema for footer in footers)
        }
        schemas: dict[bytes, int] = {}
        numbers = [schemas.setdefault(serialised[footer.schema], len(schemas)) for footer in footers]
        table = self._make_table([file for file, *_ in read], footers, [values for *_, values in read])
        if self.with_schemas:
            table = table.append_column(SCHEMA, pa.array(numbers, pa.int32()))
        return table, list(schemas) if self.with_schemas else [], reasons

    def _read(self, file: tuple[str, int, int | None]) -> tuple[Footer, ValueStatistics] | str:
        path, size, modified_ns = file
        try:
            footer, content = load_footer(self.storage, path, size, modified_ns, self.names)
            for column in self.spec.columns:
                footer.schema.find(column.path)  # raises if the name is ambiguous in the file
            if not self.spec.columns_with_values:
                return footer, ValueStatistics()
            return footer, read_values(self._reader, self.spec, file, list_row_counts(footer), content)
        except _Unreadable as error:
            logger.warning("left out of the index: %s", error)
            return str(error)

    @cached_property
    def _reader(self) -> TaskReader:
        projection = tuple(column.path for column in self.spec.columns_with_values)
        return TaskReader(
            self.storage, self.schema, Predicate(TRUE), projection, self.partition_columns, self.names, False
        )

    def _make_table(
        self, files: Sequence[tuple[str, int, int | None]], footers: Sequence[Footer], values: Sequence[ValueStatistics]
    ) -> pa.Table:
        counts = np.array([footer.metadata.num_row_groups for footer in footers], np.int64)
        groups = self._read_groups(footers)
        counted = {
            column.metadata_name("nan_count"): pa.array(
                [count for each in values for count in each.nan_counts[column]], types.LONG
            )
            for column in self.spec.columns
            if column.counts_nan
        }
        parquet = [ParquetFile(self.storage, *file, footer) for file, footer in zip(files, footers, strict=True)]
        with_pages = add_page_bounds(groups, parquet, self.spec.columns, self.storage.threads)
        of_files = FileAggregator(counts).aggregate({**with_pages, **counted}, self.spec.columns)
        offsets = pa.array(np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), pa.int32())
        columns: dict[str, pa.Array] = {
            "path": make_relative(pa.array([path for path, _, _ in files], pa.string()), self.storage.root),
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
                columns[column.metadata_name(BLOOM)] = pa.array(bits, pa.large_binary())
        columns |= {f"{GROUP}{name}": pa.ListArray.from_arrays(offsets, array) for name, array in groups.items()}
        columns |= {
            f"{GROUP}counted_{name}": pa.ListArray.from_arrays(offsets, array) for name, array in counted.items()
        }
        columns[SIZES] = pa.array([_read_leaf_sizes(footer) for footer in footers], pa.list_(types.LONG))
        return pa.table(columns)

    def _read_groups(self, footers: Sequence[Footer]) -> dict[str, pa.Array]:
        """Return the footers' metadata of all row groups in file order, by the names of the index."""
        rows = [count for footer in footers for count in list_row_counts(footer)]
        found = {ROW_COUNT.name: pa.array(rows, types.LONG)}
        by_path = collect_metadata(footers, [column.column for column in self.spec.columns])
        for column in self.spec.columns:
            own = {
                column.metadata_name(kind): by_path.get(
                    metadata_name(kind, column.path), pa.nulls(len(rows), data_type)
                )
                for kind, data_type in list_metadata_types(column.type).items()
            }
            found |= truncate_bounds(own, column)
        return found


def collect_entries(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """Collect the entries of the files of a work item, write them as a part, and yield the result."""
    collector = arguments.memoise(_make_collector)
    entries, schemas, reasons = collector.collect(read_table(item))
    part = collector.store.write_part(entries, schemas, collector.spec) if entries.num_rows else None
    result = {
        "name": None if part is None else part.name,
        "size": 0 if part is None else part.size,
        "files": entries.num_rows,
        "footer_hash": None if part is None else part.footer_hash,
        "left_out": len(reasons),
        "left_out_because": reasons[0] if reasons else None,
    }
    yield pa.RecordBatch.from_pylist([result], schema=RESULT)


def _make_collector(arguments: Arguments) -> EntryCollector:
    storage = arguments["index"]["storage"]
    names = arguments["names"]
    return EntryCollector(
        arguments.storage,
        IndexStore(open_storage(storage["uri"], storage["options"] or None)),
        schema_from_text(arguments["schema"]),
        tuple(arguments["partition_columns"]),
        None if names is None else ColumnMapping.from_json(names),
        IndexSpec.from_dict(arguments["spec"]),
        arguments["with_schemas"],
    )


def _read_leaf_sizes(footer: Footer) -> list[int] | None:
    metadata = footer.metadata
    if metadata.num_columns > MAX_LEAVES_WITH_SIZES:
        return None
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [
        max(0, group.column(leaf).total_compressed_size) for group in groups for leaf in range(metadata.num_columns)
    ]


# --- Statistics from values: Bloom filters and NaN counts -------------------------------------------------------------

MAX_UNSORTED_HASHES = 256 * 1024
"""New hashes are merged into the sorted ones when there are more than this, and more than the sorted ones."""


@dataclass
class ValueStatistics:
    """The statistics of one file that are computed from its values."""

    nan_counts: dict[IndexedColumn, list[int]] = field(default_factory=dict)
    """The NaN count of each row group."""
    filters: dict[IndexedColumn, bytes | None] = field(default_factory=dict)
    """The Bloom filter of the whole file; None if it has none."""


def read_values(
    reader: TaskReader,
    spec: IndexSpec,
    file: tuple[str, int, int | None],
    rows: Sequence[int],
    content: pa.Buffer | None = None,
) -> ValueStatistics:
    """Read the columns `spec.columns_with_values`, which are the reader's projection, one row group after another.

    `file` is its path, size and modification time, `rows` the row counts of its row groups, `content` the whole file if
    it is in memory.
    """
    found = ValueStatistics({column: [] for column in spec.columns_with_values if column.counts_nan})
    most = compute_max_distinct(spec.false_positives)
    hashed = {column: _HashSet(column, most) for column in spec.columns_with_values if column.has_bloom}
    for row_group, count in enumerate(rows):
        task = ScanTask(*file, row_group, count, 0, {}, (), None, content)  # type: ignore[arg-type]
        for counts in found.nan_counts.values():
            counts.append(0)
        for batch in reader.read([task]):
            for column in spec.columns_with_values:
                values = _get_values(batch, column)
                if column in found.nan_counts:
                    found.nan_counts[column][-1] += pc.is_nan(values).true_count
                if column.has_bloom:
                    hashed[column].add(values)
    for column, collected in hashed.items():
        hashes = collected.all()
        found.filters[column] = None if hashes is None else build_filter(hashes, spec.false_positives)
    return found


class _HashSet:
    """The distinct hashes of a column's values; None if there are too many, or if some have no canonical form."""

    def __init__(self, column: IndexedColumn, most: int) -> None:
        self._leaf = find_canonical_leaf(column.type)
        self._most = most
        self._known: Array | None = None if self._leaf is None else np.empty(0, np.uint64)
        self._waiting: list[Array] = []

    def add(self, values: pa.Array) -> None:
        if self._known is None or self._leaf is None:
            return
        more = hash_column_values(values, self._leaf)
        if more is None:
            self._known, self._waiting = None, []
            return
        self._waiting.append(more)
        if sum(map(len, self._waiting)) > max(MAX_UNSORTED_HASHES, len(self._known)):
            self.all()

    def all(self) -> Array | None:
        """Return all hashes, ascending."""
        if self._known is not None and self._waiting:
            joined = sort_distinct(np.concatenate([self._known, *self._waiting]))
            self._known = joined if len(joined) <= self._most else None
        self._waiting = []
        return self._known


def _get_values(batch: pa.RecordBatch, column: IndexedColumn) -> pa.Array:
    found = batch.column(column.path[0])
    for name in column.path[1:]:
        # Unlike `field`, `struct_field` makes the fields of a null struct null.
        found = pc.struct_field(found, [found.type.get_field_index(name)])
    if pa.types.is_dictionary(found.type):
        found = found.dictionary_decode()
    found = found.cast(types.replace_view_types(found.type))
    assert found.type == column.type, f"{column.path} was read as {found.type}"
    return found


# --- Bounds from page indexes, for column chunks without statistics ---------------------------------------------------
#
# Some writers write statistics of pages but not of whole chunks. Those of all pages of a chunk give those of the chunk.


@dataclass(frozen=True, slots=True)
class _ChunkWithoutStatistics:
    """A column chunk that has a page index but no statistics."""

    position: int
    """The position of the row group among those of all files."""
    row_group: int
    column: IndexedColumn
    leaf: Leaf


def add_page_bounds(
    groups: Mapping[str, pa.Array], files: Sequence[ParquetFile], columns: Sequence[IndexedColumn], threads: int
) -> Mapping[str, pa.Array]:
    """Return the metadata of the row groups of files, completed by their page indexes."""
    chunks = _find_chunks_without_statistics(groups, files, columns)
    if not chunks:
        return groups
    wanted = list(chunks.items())
    each = run_in_threads(lambda one: _read(files[one[0]], one[1]), wanted, threads)
    found = dict(groups)
    for column in columns:
        known = {position: found for one in each for (position, owner), found in one.items() if owner == column}
        if not known:
            continue
        rows = sorted(known)
        mask = np.zeros(len(groups[ROW_COUNT.name]), np.bool_)
        mask[rows] = True
        for kind, data_type in list_metadata_types(column.type).items():
            name = column.metadata_name(kind)
            values = [known[row].get(name, pa.nulls(1, data_type)).cast(data_type) for row in rows]
            found[name] = pc.replace_with_mask(found[name], pa.array(mask), pa.concat_arrays(values))
    return found


def _find_chunks_without_statistics(
    groups: Mapping[str, pa.Array], files: Sequence[ParquetFile], columns: Sequence[IndexedColumn]
) -> dict[int, list[_ChunkWithoutStatistics]]:
    """Return the column chunks without statistics, by the number of the file."""
    counts = [file.footer.metadata.num_row_groups for file in files]
    owner = np.repeat(np.arange(len(files)), counts)
    first = np.cumsum([0, *counts])
    found: dict[int, list[_ChunkWithoutStatistics]] = {}
    for column in columns:
        lower, nulls = groups[column.metadata_name("lower")], groups[column.metadata_name("null_count")]
        has_values = pc.fill_null(pc.not_equal(nulls, groups[ROW_COUNT.name]), True)
        for position in np.flatnonzero(np.asarray(pc.and_(lower.is_null(), has_values))).tolist():
            number = int(owner[position])
            footer = files[number].footer
            leaf = footer.schema.leaves.get(footer.schema.find(column.path) or column.path)
            row_group = position - int(first[number])
            if leaf is None or not footer.metadata.row_group(row_group).column(leaf.index).has_column_index:
                continue
            found.setdefault(number, []).append(_ChunkWithoutStatistics(position, row_group, column, leaf))
    return found


def _read(
    file: ParquetFile, chunks: Sequence[_ChunkWithoutStatistics]
) -> dict[tuple[int, IndexedColumn], dict[str, pa.Array]]:
    """Return the metadata of column chunks from the page indexes of a file."""
    try:
        with file.open() as opened:
            asked = [(each.row_group, each.column.column, each.leaf) for each in chunks]
            indexes = read_page_indexes(file, opened, (), asked)
    except CorruptFile:
        # A reader of the pages raises the error; the index records no bounds.
        return {}
    found = {}
    for each in chunks:
        pages = indexes.columns[each.row_group, each.column.column]
        if pages is None:
            continue
        column = each.column
        named = {
            metadata_name(kind, column.path): column.metadata_name(kind) for kind in list_metadata_types(column.type)
        }
        metadata = {named.get(name, name): array for name, array in pages.metadata.items()}
        count = len(metadata[ROW_COUNT.name])
        aggregated = FileAggregator(np.array([count])).aggregate(metadata, (column,))
        if column.metadata_name("lower") in aggregated:
            found[each.position, column] = truncate_bounds(aggregated, column)
    return found


# --- Truncation of long bounds ----------------------------------------------------------------------------------------

MAX_BOUND_LENGTH = 64
"""The maximum length of a bound, in characters of a string or in bytes."""


def truncate_bounds(metadata: Mapping[str, pa.Array], column: IndexedColumn) -> dict[str, pa.Array]:
    """Truncate the bounds of a column to `MAX_BOUND_LENGTH`. A truncated bound is inexact."""
    found = dict(metadata)
    is_text = types.is_text(column.type)
    if not (is_text or types.is_bytes(column.type)) or pa.types.is_fixed_size_binary(column.type):
        return found
    for kind in ("lower", "upper"):
        bounds = found[column.metadata_name(kind)]
        length = pc.utf8_length(bounds) if is_text else pc.binary_length(bounds)
        is_long = pc.fill_null(pc.greater(length, MAX_BOUND_LENGTH), False)
        if not is_long.true_count:
            continue
        # A prefix is at most the string. The upper bound is the successor of all strings with that prefix.
        heads = [bound[:MAX_BOUND_LENGTH] for bound in bounds.filter(is_long).to_pylist()]
        if kind == "upper":
            heads = [find_successor_of_prefix(head) for head in heads]
        cut = pc.replace_with_mask(bounds, is_long, pa.array(heads, bounds.type))
        found[column.metadata_name(kind)] = cut
        exact = found[column.metadata_name(f"{kind}_exact")]
        inexact = pc.if_else(is_long, pa.scalar(False), exact)
        found[column.metadata_name(f"{kind}_exact")] = pc.if_else(
            cut.is_valid(), inexact, pa.scalar(None, types.BOOLEAN)
        )
    return found


# --- Bloom filters of whole files -------------------------------------------------------------------------------------
#
# They are split blocks of 256 bits with xxh64, as `tamis.parquet.indexes.bloom_filter` reads them.
#
# A filter inside a Parquet file hashes values in the file's types. These hash values in the *table's* types, so that
# files that store a column in different types are probed alike: every type has one canonical form that is hashed, given
# by the leaf of `find_canonical_leaf`. That form is part of the format of an index and must never change.

MAX_FILTER_BYTES = 8 * 1024 * 1024
"""The maximum size of a filter. A file with more distinct values has no filter, and is always kept."""

SAMPLE_SIZE = 4096
"""The number of first values that are checked for duplicates."""

_BITS_PER_BLOCK = 8 * BLOCK_BYTES
_NO_HASHES = np.empty(0, np.uint64)
_VARIABLE_LENGTHS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
_UNITS = {"s": "milliseconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


@lru_cache(maxsize=256)
def find_canonical_leaf(data_type: pa.DataType) -> Leaf | None:
    """Return the Parquet leaf in whose physical form values of a type are hashed; None if they cannot be hashed."""
    kinds = pa.types
    parameters: dict[str, object] = {}
    length = scale = 0
    if kinds.is_integer(data_type):
        physical, logical = "INT64", "INT"
        parameters = {"bitWidth": data_type.bit_width, "isSigned": bool(kinds.is_signed_integer(data_type))}
    elif kinds.is_floating(data_type):
        physical, logical = "DOUBLE", "NONE"
    elif kinds.is_date(data_type):
        physical, logical = "INT32", "DATE"
    elif kinds.is_time(data_type):
        physical, logical, parameters = "INT64", "TIME", {"timeUnit": "nanoseconds"}
    elif kinds.is_timestamp(data_type):
        physical, logical = "INT64", "TIMESTAMP"
        parameters = {"timeUnit": _UNITS[data_type.unit], "isAdjustedToUTC": data_type.tz is not None}
    elif kinds.is_duration(data_type):
        physical, logical = "INT64", "NONE"
    elif kinds.is_decimal(data_type):
        physical, logical, length, scale = "FIXED_LEN_BYTE_ARRAY", "DECIMAL", 32, data_type.scale
    elif kinds.is_fixed_size_binary(data_type):
        physical, logical, length = "FIXED_LEN_BYTE_ARRAY", "NONE", data_type.byte_width
    elif any(is_kind(data_type) for is_kind in _VARIABLE_LENGTHS):
        physical, logical = "BYTE_ARRAY", "NONE"
    else:
        return None
    return Leaf(0, ("value",), physical, logical, parameters, length, 0, scale, True, data_type)


def hash_column_values(values: pa.Array, leaf: Leaf) -> Array | None:
    """Return the hashes of the values of a column, possibly with duplicates; None if some have no canonical form."""
    values = values.drop_null()
    # If few values repeat, finding duplicates takes longer than hashing them.
    if pc.count_distinct(values[:SAMPLE_SIZE]).as_py() <= min(len(values), SAMPLE_SIZE) // 2:
        values = pc.unique(values)
    if pa.types.is_floating(values.type):
        # NaN is never looked up in a filter.
        values = values.filter(pc.invert(pc.is_nan(values)))
    return hash_distinct_values(values, leaf)


def sort_distinct(hashes: Array) -> Array:
    """Return the distinct hashes, ascending. `np.unique` builds a hash table first, and took fifty times as long."""
    ordered = np.sort(hashes)
    is_first = np.ones(len(ordered), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    found: Array = ordered[is_first]
    return found


def hash_distinct_values(values: pa.Array, leaf: Leaf) -> Array | None:
    """Return the hashes of distinct values; None if one of them (NaN) has none."""
    found = hash_stored_values(values, leaf) if len(values) else _NO_HASHES
    # Each value must have a hash: these are values of the table, which every file can hold.
    return None if isinstance(found, Unavailable) or len(found) < len(values) else found


@lru_cache(maxsize=64)
def compute_bits_per_value(false_positives: float) -> float:
    """Return the number of bits per value for a share of false positives.

    Values are distributed over blocks at random. With k values in a block, each of its eight 32-bit words has a given
    bit set with probability 1 - (31/32)^k, and a value is a false positive if all eight are set.

    >>> [round(compute_bits_per_value(share), 1) for share in (0.1, 0.01, 0.001)]
    [6.0, 10.5, 16.9]
    """
    fewest, most = 1.0, 1024.0
    while most - fewest > 0.001:
        bits = (fewest + most) / 2
        fewest, most = (bits, most) if _compute_false_positives(bits) > false_positives else (fewest, bits)
    return most


def _compute_false_positives(bits: float) -> float:
    load = _BITS_PER_BLOCK / bits
    chance = math.exp(-load)
    total = 0.0
    for count in range(1, int(load + 12 * math.sqrt(load) + 24)):
        chance *= load / count
        total += chance * (1 - (31 / 32) ** count) ** WORDS_PER_BLOCK
    return total


def compute_filter_size(distinct: int, false_positives: float) -> int:
    """Return the size in bytes of a filter for a number of distinct values.

    >>> compute_filter_size(0, 0.01), compute_filter_size(1000, 0.01), compute_filter_size(1000, 0.001)
    (32, 1344, 2112)
    """
    bits = distinct * compute_bits_per_value(false_positives)
    return max(1, math.ceil(bits / _BITS_PER_BLOCK)) * BLOCK_BYTES


def compute_max_distinct(false_positives: float, max_bytes: int = MAX_FILTER_BYTES) -> int:
    """Return the maximum number of distinct values of a file with a filter."""
    return int(8 * max_bytes / compute_bits_per_value(false_positives))


def build_filter(hashes: Array, false_positives: float, max_bytes: int = MAX_FILTER_BYTES) -> bytes | None:
    """Return the filter for ascending hashes; None if it would have more than `max_bytes`."""
    size = compute_filter_size(len(hashes), false_positives)
    if size > max_bytes:
        return None
    bits = np.zeros((size // BLOCK_BYTES, WORDS_PER_BLOCK), np.uint32)
    if len(hashes):
        # Ascending hashes are in ascending blocks, so that the hashes of a block are adjacent.
        blocks = find_blocks(hashes, len(bits))
        starts = np.flatnonzero(np.diff(blocks, prepend=-1))
        lower = hashes.astype(np.uint32)
        with np.errstate(over="ignore"):
            for position, salt in enumerate(SALTS):
                marks = np.uint32(1) << ((lower * salt) >> np.uint32(27))
                bits[blocks[starts], position] = np.bitwise_or.reduceat(marks, starts)
    return bits.astype("<u4").tobytes()
