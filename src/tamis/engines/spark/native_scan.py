"""Native scans: Spark's own Parquet reader reads an exact list of files, below the filter and the partition values.

That reader skips row groups and pages in the JVM, and is the fastest one for files that match the table's schema.
The second part of this module decides which files do, and finds their physical column names;
`tamis.engines.spark.worker` reads all others.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tamis import types
from tamis.engines.spark.columns import EPOCH, ColumnCompiler, Constants, to_sql_type
from tamis.engines.spark.handler import quote_name
from tamis.engines.spark.sessions import import_functions, is_connect
from tamis.engines.spark.spark_types import (
    to_row_schema,
    to_row_type,
    to_spark_schema,
    to_spark_type,
)
from tamis.errors import EvaluationError, format_count
from tamis.expr.evaluate import to_physical_value
from tamis.expr.nodes import Column, Expr, Literal, and_, find_columns
from tamis.expr.sql.printer import to_display_sql
from tamis.formats.jobs import Arguments, Engine, Item, Job, can_serialise, read_table, storage_to_arguments
from tamis.formats.source import FILE_FORMAT, PARQUET, DeletedValues, FileListing, HasStoredTypes, TableSource
from tamis.io.storage import Storage
from tamis.io.threads import run_in_threads
from tamis.io.weighted_cache import WeightedCache
from tamis.parquet.footer.field_names import ELEMENT, KEY, VALUE, ColumnMapping, MappedField
from tamis.scan.planning.physical_names import (
    FieldsInFile,
    NativeScanColumns,
    fields_from_bytes,
    fields_to_bytes,
    find_columns_with_values,
)
from tamis.scan.planning.projection import Path, narrow_schema
from tamis.skipping.predicate import Predicate

_METADATA = "_metadata"
"""Spark's own column of files, which one of the same name hides."""

_SCHEMES = {"s3": "s3a"}
"""Spark's schemes for the object stores that it reads in the same way as Tamis."""


def can_scan_natively(spark: Any, source: TableSource, needed: Sequence[Path]) -> bool:
    """Return whether a native scan returns the same values for the needed columns as Tamis does."""
    if _choose_path_prefix(source.storage) is None:
        return False
    if str(spark.conf.get("spark.sql.parquet.int96TimestampConversion", "false")).lower() == "true":
        return False  # INT96 timestamps would shift by the session's time zone, except those written by Spark
    if len({name.casefold() for name in source.schema.names}) < len(source.schema.names):
        return False  # columns that differ only by case are ambiguous for Spark
    schema = narrow_schema(source.schema, needed)
    return all(_is_stored_alike(field.type) for field in schema)


def _is_stored_alike(data_type: pa.DataType) -> bool:
    """Return whether Parquet and Spark agree on a type and on how its values are read."""
    if pa.types.is_dictionary(data_type):
        return _is_stored_alike(data_type.value_type)
    if pa.types.is_timestamp(data_type):
        return data_type.unit in ("ms", "us")
    if data_type.num_fields:
        return all(_is_stored_alike(data_type.field(index).type) for index in range(data_type.num_fields))
    others = (pa.types.is_float16, pa.types.is_time, pa.types.is_duration, pa.types.is_null, pa.types.is_interval)
    return not (
        isinstance(data_type, pa.ExtensionType) or data_type == pa.date64() or any(is_(data_type) for is_ in others)
    )


def _choose_path_prefix(storage: Storage) -> str | None:
    """Return the prefix that makes a path a URI for Spark; None if Spark would read the storage differently."""
    if storage.filesystem.type_name == "local":
        return "file://"
    scheme, found, _ = storage.uri.partition("://")
    has_options = storage.given is None or bool(storage.given[1])
    # Spark does not have the credentials that were passed to Tamis.
    return f"{_SCHEMES[scheme]}://" if found and scheme in _SCHEMES and not has_options else None


class NativeScan:
    """Creates DataFrames that read files of a scan natively."""

    def __init__(self, spark: Any, source: TableSource, predicate: Predicate, projection: tuple[Path, ...]) -> None:
        self._spark = spark
        self._functions = import_functions(spark)
        self._source = source
        self._predicate = predicate
        self._projection = projection
        self._conditions: dict[Expr, Any] = {}

    def frame(self, files: NativeScanFiles) -> Any:
        """Return the matching rows of files."""
        listing, stored = files.listing, files.stored
        residual = self._find_residual(listing)
        tested = [column.path for column in find_columns(residual)] if residual is not None else []
        tested += [path for each in files.deleted_values for path in each.columns]
        texts = [pa.field(column.name, column.type) for column in self._predicate.partition_texts]
        needed = narrow_schema(pa.schema([*self._source.schema, *texts]), (*self._projection, *tested))
        constants = {*self._source.partition_columns, *(field.name for field in texts)}
        partitions = [name for name in needed.names if name in constants]
        # A struct has all fields that the filter and the projection need, in all files.
        fields = [each if each.name in partitions else stored.schema.field(each.name) for each in needed]
        needed = pa.schema(fields)
        of_files = to_row_schema(pa.schema([field for field in needed if field.name not in partitions]))
        read = to_row_schema(pa.schema([stored.fields[each.name] for each in of_files if each.name in stored.fields]))
        paths = listing.files["path"].to_pylist()
        own = (self._to_logical_column(field, stored.fields.get(field.name)) for field in of_files)
        values = to_row_schema(narrow_schema(needed, [(name,) for name in partitions]))
        base = find_base_path(listing, values, self._source.partition_columns) if partitions else None
        # Files with other names or types are read by those of their columns that are needed.
        known = self._add_other_columns(read) if read.equals(of_files) else read
        schema = pa.schema([*known, *values]) if base is not None else known
        columns = (base, schema.to_string())
        frame = _read_once(self._spark, listing.files, columns, lambda: self._read(paths, schema, base))
        if files.deleted_rows is not None:
            frame = self._leave_out_rows(frame, files.deleted_rows, listing)
        if partitions and base is None:
            frame = self._add_partition_values(frame, own, listing, values)
        elif not read.equals(of_files):
            frame = frame.select(*own, *(self._functions.col(quote_name(name)) for name in partitions))
        for each in files.deleted_values:
            frame = self._leave_out_values(frame, each)
        if residual is not None:
            frame = frame.where(self.condition(residual))
        return self._project(frame, needed)

    def _add_other_columns(self, read: pa.Schema) -> pa.Schema:
        """Return the columns of the files with all others that Spark knows.

        Spark prunes them, so that it knows which share of the files is read; and queries share the relation.
        """
        names = set(self._source.partition_columns)
        known = [each for each in self._source.schema if each.name not in names and _is_stored_alike(each.type)]
        others = to_row_schema(pa.schema([each for each in known if each.name not in read.names]))
        own = [others.field(each.name) for each in known if each.name in others.names and each.name != _METADATA]
        needed = {each.name: each for each in read}
        order = {name: number for number, name in enumerate(self._source.schema.names)}
        return pa.schema(sorted([*needed.values(), *own], key=lambda each: order[each.name]))

    def _leave_out_values(self, frame: Any, deleted: DeletedValues) -> Any:
        """Return the rows that differ from each deleted one in some compared column."""
        functions = self._functions
        schema = to_row_schema(deleted.keys.schema)
        keys = [column.cast(field.type) for column, field in zip(deleted.keys.columns, schema, strict=True)]
        names = _find_free_names([f"key {number}" for number in range(len(keys))], self._source)
        table = pa.table(keys, pa.schema([pa.field(name, key.type) for name, key in zip(names, keys, strict=True)]))
        few = functions.broadcast(self._spark.createDataFrame(table, to_spark_schema(table.schema)))
        columns = (functions.col(".".join(map(quote_name, path))) for path in deleted.columns)
        pairs = zip(columns, (functions.col(quote_name(name)) for name in names), strict=True)
        return frame.join(few, reduce(operator.and_, (column.eqNullSafe(key) for column, key in pairs)), "left_anti")

    def _leave_out_rows(self, frame: Any, deleted: Sequence[BitMap64], listing: FileListing) -> Any:
        """Return the rows of files that are not deleted, by a join with their bitmaps: see `make_bitmap_rows`."""
        functions = self._functions
        named = _find_free_names(("file", "block", "words", "hash", "file of row", "row"), self._source)
        file, block, words, hashed, path, row = (functions.col(quote_name(name)) for name in named)
        keys = self._list_file_keys(listing).to_pylist()
        bitmaps = self._spark.createDataFrame(make_bitmap_rows(keys, deleted).rename_columns(named[:3]))
        bitmaps = functions.broadcast(bitmaps.withColumn(named[3], functions.xxhash64(file, block)))
        row_index = frame.metadataColumn("_metadata").getField("row_index")
        # Selected alone: Spark would make a struct of both for each use in the condition.
        rows = frame.select("*", self._make_file_key(frame, listing).alias(named[4]), row_index.alias(named[5]))
        own_block = functions.shiftright(row, _BLOCK_BITS)
        word = functions.element_at(words, (functions.shiftright(row.bitwiseAND(_BLOCK_ROWS - 1), 6) + 1).cast("int"))
        is_deleted = functions.getbit(word, row.bitwiseAND(63).cast("int")) == 1
        # One 64-bit key joins several times as fast as a text and a number. Ranges are not join keys of Spark.
        is_same = (path >= file) & (path <= file) & (own_block >= block) & (own_block <= block)
        return rows.join(bitmaps, (functions.xxhash64(path, own_block) == hashed) & is_same & is_deleted, "left_anti")

    def _to_logical_column(self, field: pa.Field, stored: pa.Field | None) -> Any:
        """Return a column under its logical name and in its type; NULL if the files do not have it."""
        target = to_spark_type(field.type)
        if stored is None:
            return self._functions.lit(None).cast(target).alias(field.name)
        column = self._functions.col(quote_name(stored.name))
        # A cast of structs goes by position, and so renames the fields inside.
        is_same = to_spark_type(to_row_type(stored.type, field.name)) == target
        return (column if is_same else column.cast(target)).alias(field.name)

    def condition(self, predicate: Expr) -> Any:
        """Return a filter over rows as a Column; raise `EvaluationError` if it has no equivalent or may fail."""
        # Each node of a filter is several calls of the JVM.
        if predicate not in self._conditions:
            self._conditions[predicate] = self._compile(predicate)
        return self._conditions[predicate]

    def _compile(self, predicate: Expr) -> Any:
        functions = self._functions

        def raw(column: Column) -> Any:
            return functions.col(".".join(quote_name(part) for part in column.path))

        def read(column: Column) -> Any:
            data_type = column.type or types.NULL
            if pa.types.is_timestamp(data_type) and data_type.tz is not None:
                return functions.timestamp_add("MICROSECOND", functions.unix_micros(raw(column)), functions.expr(EPOCH))
            if pa.types.is_floating(data_type):
                # Bounds in files ignore NaN and are unreliable for zeros, but Spark's reader trusts them. So it must
                # not see a comparison of the column itself.
                return raw(column) + functions.lit(0.0).cast(to_sql_type(data_type))
            return raw(column)

        compiled = ColumnCompiler(functions, read, instant=raw).compile(predicate)
        if compiled.failed is not None:
            raise EvaluationError(
                f"{to_display_sql(predicate)} may fail for a row, and Spark would not raise the same error as Tamis"
            )
        return compiled.value

    def can_test(self) -> bool:
        """Return whether each conjunct of the filter has an equivalent in Spark."""
        try:
            self.condition(self._predicate.expr)
        except EvaluationError:
            return False
        return True

    def _find_residual(self, listing: FileListing) -> Expr | None:
        """Return the residual filter: the conjuncts that some file is not fully matched by."""
        conjuncts = self._predicate.conjuncts
        # The listing may have been pruned by more conjuncts, after those of the filter.
        is_left = np.ones(len(conjuncts), bool)
        if listing.matched is not None:
            is_left = ~np.all(listing.matched, axis=0, keepdims=False)
        residual = [each.predicate for each, left in zip(conjuncts, is_left, strict=False) if left]
        return and_(*residual) if residual else None

    def _read(self, paths: Sequence[str], schema: pa.Schema, base: str | None) -> Any:
        prefix = _choose_path_prefix(self._source.storage)
        for path in paths:
            self._source.storage.check_links(path)
        # Without the datetime rebase of old dates, and without partition discovery unless paths have the values.
        options = {"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"}
        options |= {"recursiveFileLookup": "true"} if base is None else {"basePath": f"{prefix}{base}"}
        # Files that cannot be read are errors, whatever the session's settings are.
        options |= {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
        nullable = pa.schema([field.with_nullable(True) for field in schema])
        reader = self._spark.read.schema(to_spark_schema(nullable)).options(**options)
        with list_in_driver(self._spark, len(paths), is_local=prefix == "file://"):
            return reader.parquet(*(f"{prefix}{path}" for path in paths))

    def _add_partition_values(self, frame: Any, own: Iterable[Any], listing: FileListing, schema: pa.Schema) -> Any:
        """Add the partition values of files to their rows: as constants if all files have the same, else by a join."""
        functions = self._functions
        columns = [listing.partitions[name].cast(schema.field(name).type) for name in schema.names]
        values = pa.table(columns, schema.names)
        if values.group_by(values.column_names, use_threads=False).aggregate([]).num_rows == 1:
            # The condition only makes the column nullable in the schema, even if this constant is not NULL.
            always = functions.lit(1) == functions.lit(1)
            constants = [functions.when(always, self._make_constant(values[name][0])) for name in schema.names]
            named = [value.alias(name) for value, name in zip(constants, schema.names, strict=True)]
            return frame.select(*own, *named)
        key, key_of_row, is_known, *value_names = _find_free_names(
            ("file", "file of row", "partition", *(f"value {number}" for number in range(len(schema)))), self._source
        )
        keys = self._list_file_keys(listing)
        small = pa.table(
            [*values.columns, keys, pa.repeat(pa.scalar(True), len(values))], [*value_names, key, is_known]
        )
        nullable = pa.schema([field.with_nullable(True) for field in small.schema])
        known = functions.broadcast(self._spark.createDataFrame(small, to_spark_schema(nullable)))
        keyed = frame.select(*own, self._make_file_key(frame, listing).alias(key_of_row))
        joined = keyed.join(known, functions.col(quote_name(key_of_row)) == functions.col(quote_name(key)), "left")
        unplanned = functions.raise_error(functions.lit(f"a file of '{self._source.storage.uri}' was not planned"))
        is_matched = functions.when(functions.col(quote_name(is_known)), functions.lit(True)).otherwise(
            unplanned.cast("boolean")
        )
        of_files = [functions.col(quote_name(name)) for name in keyed.columns if name != key_of_row]
        found = [
            functions.col(quote_name(given)).alias(name) for given, name in zip(value_names, schema.names, strict=True)
        ]
        return joined.where(is_matched).select(*of_files, *found)

    def _make_constant(self, value: pa.Scalar) -> Any:
        literal = Literal(to_physical_value(value), value.type)
        is_instant = pa.types.is_timestamp(value.type) and value.type.tz is not None
        constants = Constants(self._functions)
        return constants.instant(literal) if is_instant else constants.column(literal)

    def _list_file_keys(self, listing: FileListing) -> pa.Array:
        """Return the keys of files, as `_make_file_key` computes them in Spark for the same listing."""
        paths = listing.files["path"].combine_chunks()
        if not _has_plain_paths(listing):
            return pc.utf8_ltrim(paths, "/")
        prefix = _choose_path_prefix(self._source.storage)
        # Hadoop prints a local path with a single slash.
        return pc.binary_join_element_wise("file:" if prefix == "file://" else prefix, paths, "")

    def _make_file_key(self, frame: Any, listing: FileListing) -> Any:
        """Return a Column with the path of a row's file: as Spark has it, or decoded where that has escapes."""
        functions = self._functions
        path = frame.metadataColumn("_metadata").getField("file_path")
        if _has_plain_paths(listing):
            return path
        # In a path a plus is literal, but `url_decode` would decode it to a space.
        decoded = functions.url_decode(functions.replace(path, functions.lit("+"), functions.lit("%2B")))
        return functions.regexp_replace(decoded, "^[A-Za-z][A-Za-z0-9+.-]*:/*", "")

    def _project(self, frame: Any, read: pa.Schema) -> Any:
        """Return the columns of the scan in their order.

        `read` may have more fields of a struct than the scan returns, because the filter needs them.
        """
        output = narrow_schema(self._source.schema, self._projection)
        if all(read.field(each.name).type == each.type for each in output):
            # One call of the JVM, instead of some for each column. Aliases are new columns of Spark: two scans of one
            # relation can be joined.
            return frame.selectExpr(*(f"{quote_name(name)} AS {quote_name(name)}" for name in output.names))
        columns = [
            self._narrow_struct(self._functions.col(quote_name(each.name)), read.field(each.name).type, each.type)
            for each in output
        ]
        return frame.select(*(column.alias(each.name) for column, each in zip(columns, output, strict=True)))

    def _narrow_struct(self, column: Any, read: pa.DataType, wanted: pa.DataType) -> Any:
        """Return a struct with only the wanted fields."""
        if read == wanted or not pa.types.is_struct(wanted):
            return column
        fields = [
            self._narrow_struct(column.getField(each.name), read.field(each.name).type, each.type).alias(each.name)
            for each in wanted
        ]
        return self._functions.when(column.isNotNull(), self._functions.struct(*fields))


def _has_plain_paths(listing: FileListing) -> bool:
    """Return whether Spark has the paths of files as they are: it escapes some characters in URIs."""
    return bool(pc.all(pc.match_substring_regex(listing.files["path"], "^[A-Za-z0-9_./=,-]*$"), min_count=0).as_py())


def _find_free_names(wanted: Sequence[str], source: TableSource) -> list[str]:
    """Return names that no column of the table has."""
    prefix = "tamis"
    while any(name.casefold().startswith(prefix) for name in source.schema.names):
        prefix += "_"
    return [f"{prefix} {name}" for name in wanted]


# --- Deleted rows -----------------------------------------------------------------------------------------------------
#
# Rows that are deleted by their values are left out by an anti-join with these values, which are broadcast.
#
# Spark's reader numbers the rows of a file (`_metadata.row_index`). A bitmap for each block of rows with a deleted one
# is broadcast, and rows whose bit is set are left out by an anti-join, in the JVM.

_BLOCK_BITS = 12
_BLOCK_ROWS = 1 << _BLOCK_BITS


def estimate_bitmap_bytes(deleted: BitMap64) -> int:
    """Return the size of the bitmaps of a file, at most."""
    return min(len(deleted), (deleted.max() >> _BLOCK_BITS) + 1) * _BLOCK_ROWS // 8 if deleted else 0


def make_bitmap_rows(keys: Sequence[str], deleted: Sequence[BitMap64]) -> pa.Table:
    """Return the bitmaps of deleted rows by the key of a file: a row for each block of it that has some."""
    files, blocks, words = [], [np.zeros(0, np.int64)], [np.zeros((0, _BLOCK_ROWS // 64), np.uint64)]
    for file, bitmap in zip(keys, deleted, strict=True):
        rows = np.array(bitmap.to_array(), np.uint64)
        own, first = np.unique(rows >> np.uint64(_BLOCK_BITS), return_index=True)
        bits = np.zeros((len(own), _BLOCK_ROWS // 64), np.uint64)
        block = np.repeat(np.arange(len(own)), np.diff([*first, len(rows)]))
        word = (rows & np.uint64(_BLOCK_ROWS - 1)) >> np.uint64(6)
        np.bitwise_or.at(bits, (block, word.astype(np.int64)), np.uint64(1) << (rows & np.uint64(63)))
        files.append(pa.repeat(pa.scalar(file), len(own)))
        blocks.append(own.astype(np.int64))
        words.append(bits)
    values = pa.array(np.concatenate(words).view(np.int64).reshape(-1))
    lists = pa.FixedSizeListArray.from_arrays(values, _BLOCK_ROWS // 64).cast(pa.list_(pa.int64()))
    keys = pa.chunked_array(files, pa.string()).combine_chunks()
    return pa.table([keys, np.concatenate(blocks), lists], ["file", "block", "words"])


def can_compare(data_type: pa.DataType) -> bool:
    """Return whether Spark's joins compare values as deletes by value do: for floats, they take -0.0 for 0.0."""
    return not data_type.num_fields and not pa.types.is_floating(data_type) and _is_stored_alike(data_type)


# --- Partition columns that Spark reads from paths --------------------------------------------------------------------
#
# Columns that Spark finds in the paths are partition columns in its plans: their filters are partition filters, and a
# join with a filtered dimension prunes them dynamically. The table decides which values are right, so paths are used
# only where they say the same.


def find_base_path(listing: FileListing, values: pa.Schema, partition_columns: Sequence[str]) -> str | None:
    """Return the folder below which paths have the values of all partition columns, as Spark would read them.

    None where a path is different from its partition values, or Spark could read it differently: types other than
    integers, dates and texts depend on the session, escaped characters have several meanings.
    """
    if not all(_is_read_alike(field.type) for field in values) or any("/" in name for name in partition_columns):
        return None
    names = "/".join(f"{re.escape(name)}=(?P<p{number}>[^/%]+)" for number, name in enumerate(partition_columns))
    parts = pc.extract_regex(listing.files["path"], f"^(?P<base>.*)/{names}/[^/]*$").combine_chunks()
    bases = pc.unique(pc.struct_field(parts, "base"))
    if parts.null_count or len(bases) != 1 or "=" in bases[0].as_py():
        return None
    for number, name in enumerate(partition_columns):
        if name not in values.names:
            continue
        found = pc.struct_field(parts, f"p{number}")
        texts = pc.if_else(pc.equal(found, NULL_FOLDER), pa.scalar(None, pa.string()), found)
        expected = listing.partitions[name].cast(values.field(name).type)
        try:
            if not texts.cast(expected.type).equals(expected.combine_chunks()):
                return None
        except pa.ArrowInvalid:
            return None
    return str(bases[0])


NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""What Spark has in a path for NULL."""


def _is_read_alike(data_type: pa.DataType) -> bool:
    return any(is_(data_type) for is_ in (pa.types.is_signed_integer, pa.types.is_string, pa.types.is_date32))


# --- Keep what Spark knows of files -----------------------------------------------------------------------------------
#
# Spark looks up each file when a DataFrame of files is made, which takes longer than a short query. A later scan of the
# same files has the same relation. It may be of another filter: these are above the relation.


_RELATIONS: WeakKeyDictionary[Any, WeightedCache] = WeakKeyDictionary()
"""For each session the relations of files, as objects of the JVM: a DataFrame would keep its session alive."""

_RELATION_BYTES, _BYTES_PER_FILE = 8 << 20, 512


def _read_once(spark: Any, files: pa.Table, columns: Hashable, read: Callable[[], Any]) -> Any:
    """Return the DataFrame that `read` makes of files and columns, or that it made of the same before."""
    if is_connect(spark):
        # The server looks files up when it computes rows.
        return read()
    from pyspark.sql import DataFrame

    relations = _RELATIONS.setdefault(spark, WeightedCache(_RELATION_BYTES))
    key = (columns, *(tuple(files[name].to_pylist()) for name in ("path", "size", "modified_ns")))
    try:
        return DataFrame(relations.get(key), spark)
    except KeyError:
        frame = read()
        relations.put(key, frame._jdf, files.num_rows * _BYTES_PER_FILE)
        return frame


# --- Control how Spark lists the files of a DataFrame -----------------------------------------------------------------
#
# For more than 32 files, Spark starts a task for each, about 7 ms each, before the DataFrame exists. Listing local
# files one after another in the driver is faster.

_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
MAX_FILES = 10_000

_lock = Lock()
"""The setting belongs to the whole session, so only one thread at a time may change it temporarily."""


@contextmanager
def list_in_driver(spark: Any, files: int, *, is_local: bool) -> Iterator[None]:
    """Let the driver list this number of files within this context, if that is faster; then restore the setting.

    A Connect server lists files when it computes rows, so the setting has no effect there.
    """
    if not is_local or files > MAX_FILES or is_connect(spark):
        yield
        return
    with _lock:
        if int(spark.conf.get(_THRESHOLD)) >= files:
            yield
            return
        # None if only Spark's default applies.
        before = spark.conf.get(_THRESHOLD, None)
        spark.conf.set(_THRESHOLD, str(files))
        try:
            yield
        finally:
            if before is None:
                spark.conf.unset(_THRESHOLD)
            else:
                spark.conf.set(_THRESHOLD, before)


# --- Find the files that a native Spark scan reads correctly, and their physical fields -------------------------------
#
# A file may have other names for columns and for fields inside of structs than the table, narrower types, and may lack
# columns. A native scan reads what the file has, and casts it. Files with the same fields are read together.

MAX_FIELD_SETS = 4
"""The number of different sets of physical fields for which native scans are used, one scan for each set."""

NOT_READABLE = -1


@dataclass(frozen=True)
class PhysicalFields:
    """The columns that a scan needs, and the fields of files that they are read from; the others are NULL."""

    schema: pa.Schema
    fields: FieldsInFile


@dataclass(frozen=True)
class NativeScanFiles:
    """Files that one native scan reads: their physical fields, and the rows that it leaves out."""

    listing: FileListing
    stored: PhysicalFields
    deleted_rows: Sequence[BitMap64] | None = None
    """The positions of deleted rows, for each file."""
    deleted_values: Sequence[DeletedValues] = ()


_GLOB = re.compile(r"[{}\[\]*?\\]")
"""Characters that Spark interprets as glob patterns."""


@dataclass(frozen=True)
class NativeFiles:
    """For each file of a listing, the index of its physical fields, or `NOT_READABLE`."""

    field_set: npt.NDArray[np.int64]
    fields: Sequence[PhysicalFields]

    @staticmethod
    def none(count: int) -> NativeFiles:
        return NativeFiles(np.full(count, NOT_READABLE), ())


def find_native_files(
    source: TableSource, files: pa.Table, needed: Sequence[Path], engine: Engine, *, is_case_sensitive: bool = False
) -> NativeFiles:
    """Return which files a native scan reads correctly.

    These have paths without special characters. Delta's writers guarantee names and types, unless a column was
    widened; for other files, and for the case of names in a case-sensitive session, the footers tell them.
    """
    paths = [path for path in needed if path[0] not in source.partition_columns]
    schema = narrow_schema(source.schema, paths)
    is_plain = _find_plain_files(files)
    if pc.count_distinct(files["path"]).as_py() < len(files):
        # Rows of native scans are told apart by the paths of their files.
        return NativeFiles.none(len(files))
    if isinstance(source, HasStoredTypes) and source.has_uniform_files and not is_case_sensitive:
        fields = _map_to_physical_fields(source.field_names, schema)
        if fields is None:
            return NativeFiles.none(len(is_plain))
        return NativeFiles(np.where(is_plain, 0, NOT_READABLE), [PhysicalFields(schema, fields)])
    return _check_footers(source, files, schema, paths, is_plain, engine)


def _find_plain_files(files: pa.Table) -> npt.NDArray[np.bool_]:
    paths = files["path"]
    has_glob = pc.match_substring_regex(paths, _GLOB.pattern)
    # Spark ignores files whose names start or end like this.
    is_hidden = pc.match_substring_regex(paths, r"(^|/)[._][^/]*$|\._COPYING_$")
    plain = pc.invert(pc.or_(has_glob, is_hidden))
    if FILE_FORMAT in files.column_names:
        plain = pc.and_(plain, pc.equal(files[FILE_FORMAT].cast(pa.string()), PARQUET))
    return np.asarray(plain, bool)


def _map_to_physical_fields(names: ColumnMapping | None, schema: pa.Schema) -> FieldsInFile | None:
    """Return the fields that all files have; None if their names are ambiguous for Spark."""
    if names is None:
        return {field.name: field for field in schema}
    try:
        fields = _to_physical_fields(schema, names.fields)
    except _AmbiguousNames:
        return None
    return dict(zip(schema.names, fields, strict=True))


class _AmbiguousNames(Exception):
    """Physical names differ only by case."""


def _to_physical_fields(fields: pa.Schema | pa.StructType, names: Mapping[Hashable, MappedField]) -> list[pa.Field]:
    if len({str(key).casefold() for key in names}) < len(names):
        raise _AmbiguousNames
    physical = {each.name: (str(key), each.inner) for key, each in names.items()}
    found = [(each, *physical[each.name]) for each in fields]
    return [pa.field(name, _to_physical_type(each.type, inner), each.nullable) for each, name, inner in found]


def _to_physical_type(data_type: pa.DataType, names: Mapping[Hashable, MappedField]) -> pa.DataType:
    """Return a type whose fields have their physical names."""
    if not names:
        return data_type
    if pa.types.is_struct(data_type):
        return pa.struct(_to_physical_fields(data_type, names))
    if pa.types.is_map(data_type):
        inner = [names[part].inner if part in names else {} for part in (KEY, VALUE)]
        item = _to_physical_type(data_type.item_type, inner[1])
        return pa.map_(_to_physical_type(data_type.key_type, inner[0]), data_type.item_field.with_type(item))
    element = _to_physical_type(data_type.value_type, names[ELEMENT].inner if ELEMENT in names else {})
    return pa.list_(data_type.value_field.with_type(element))


def _check_footers(
    source: TableSource,
    files: pa.Table,
    schema: pa.Schema,
    paths: Sequence[Path],
    is_plain: npt.NDArray[np.bool_],
    engine: Engine,
) -> NativeFiles:
    candidates = np.flatnonzero(is_plain)
    asked = NativeScanColumns(schema, paths, source.field_names, find_columns_with_values(files))
    chosen = files.select(["path", "size", "modified_ns"]).take(pa.array(candidates))
    if len(candidates) <= source.storage.tuning.spark_max_local_footers:
        found = read_physical_fields(source.storage, chosen, asked)
    elif can_serialise(source.storage):
        found = read_physical_fields_in(engine, source.storage, chosen, asked, source.name)
    else:
        return NativeFiles.none(files.num_rows)
    kinds = {kind: number for number, kind in enumerate(dict.fromkeys(kind for kind in found if kind is not None))}
    field_set = np.full(files.num_rows, NOT_READABLE)
    field_set[candidates] = [NOT_READABLE if kind is None else kinds[kind] for kind in found]
    if len(kinds) > MAX_FIELD_SETS:
        counts = np.bincount(field_set[field_set >= 0], minlength=len(kinds))
        field_set[~np.isin(field_set, np.argsort(-counts, kind="stable")[:MAX_FIELD_SETS])] = NOT_READABLE
    return NativeFiles(field_set, [PhysicalFields(schema, fields_from_bytes(kind)) for kind in kinds])


# --- Read physical fields from footers, here or in Spark's executors: see `tamis.scan.planning.physical_names` --------

FILES_PER_TASK = 512

FUNCTION = "tamis.engines.spark.native_scan:read_fields_of_files"

_OUTPUT = pa.schema([("fields", types.BINARY)])


def read_physical_fields(storage: Storage, files: pa.Table, asked: NativeScanColumns) -> list[bytes | None]:
    """Return the physical fields of each file as bytes; None if a native scan would read it differently."""
    wanted = list(zip(*(files[name].to_pylist() for name in ("path", "size", "modified_ns")), strict=True))

    def read(file: tuple[str, int, int | None]) -> bytes | None:
        found = asked.read_fields(storage, *file)
        return None if found is None else fields_to_bytes(found)

    return run_in_threads(read, wanted, storage.threads)


def read_physical_fields_in(
    engine: Engine, storage: Storage, files: pa.Table, asked: NativeScanColumns, name: str
) -> list[bytes | None]:
    """Return the same as `read_physical_fields`, computed in an engine's executors."""
    arguments = {**storage_to_arguments(storage), "asked": asked.to_json()}
    what = f"read {format_count(files.num_rows, 'footer')} of {name}"
    job = Job(FUNCTION, arguments, _OUTPUT, what, storage.counters)
    starts = range(0, files.num_rows, FILES_PER_TASK)
    slices = [files.slice(start, FILES_PER_TASK).combine_chunks() for start in starts]
    found: list[bytes | None] = []
    for _, batch in engine.run(job, [Item.from_table(each, each.num_rows) for each in slices]):
        found += batch["fields"].to_pylist()
    return found


def read_fields_of_files(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the physical fields of some files. It is the function of a job."""
    found = read_physical_fields(arguments.storage, read_table(item), arguments.memoise(_parse_columns))
    yield pa.record_batch([pa.array(found, types.BINARY)], schema=_OUTPUT)


def _parse_columns(arguments: Arguments) -> NativeScanColumns:
    return NativeScanColumns.from_json(arguments["asked"])
