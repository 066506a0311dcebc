"""Native scans: Spark's own Parquet reader reads an exact list of files, below the filter and the partition values.

That reader skips row groups and pages in the JVM, and is the fastest one for files that match the table's schema.
The second part of this module decides which files do, and finds their physical column names;
`tamis.engines.spark.worker` reads all others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.engines.spark.columns import EPOCH, ColumnCompiler, Constants, to_sql_type
from tamis.engines.spark.handler import quote_name
from tamis.engines.spark.sessions import import_functions, is_connect
from tamis.engines.spark.spark_types import (
    describe_null_error,
    has_nested_requirement,
    to_row_schema,
    to_spark_schema,
    to_spark_type,
)
from tamis.errors import EvaluationError, format_count
from tamis.expr.evaluate import to_physical_value
from tamis.expr.nodes import Column, Expr, Literal, and_, find_columns
from tamis.expr.sql.printer import to_display_sql
from tamis.formats.jobs import Arguments, Engine, Item, Job, can_serialise, read_table, storage_to_arguments
from tamis.formats.source import FILE_FORMAT, PARQUET, FileListing, HasStoredTypes, TableSource
from tamis.io.storage import Storage
from tamis.io.threads import run_in_threads
from tamis.parquet.footer.field_names import ColumnMapping, MappedField
from tamis.scan.planning.physical_names import NamesInFile, NativeScanColumns, find_columns_with_values
from tamis.scan.planning.projection import Path, narrow_schema
from tamis.skipping.predicate import Predicate

_SCHEMES = {"s3": "s3a"}
"""Spark's schemes for the object stores that it reads in the same way as Tamis."""

_ZEROS = {
    pa.bool_(): "false",
    pa.int8(): "0Y",
    pa.int16(): "0S",
    pa.int32(): "0",
    pa.int64(): "0L",
    pa.float32(): "0.0F",
    pa.float64(): "0.0D",
    pa.string(): "''",
    pa.binary(): "X''",
    pa.date32(): "DATE'1970-01-01'",
    types.TIMESTAMP: "TIMESTAMP'1970-01-01 00:00:00Z'",
    types.TIMESTAMP_NTZ: EPOCH,
}


def can_scan_natively(spark: Any, source: TableSource, needed: Sequence[Path]) -> bool:
    """Return whether a native scan returns the same values for the needed columns as Tamis does."""
    if _choose_path_prefix(source.storage) is None:
        return False
    if str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true":
        return False  # Spark would not find a column whose case differs in a file
    if str(spark.conf.get("spark.sql.parquet.int96TimestampConversion", "false")).lower() == "true":
        return False  # INT96 timestamps would shift by the session's time zone, except those written by Spark
    if isinstance(source, HasStoredTypes) and source.has_changed_types:
        return False
    if len({name.casefold() for name in source.schema.names}) < len(source.schema.names):
        return False  # columns that differ only by case are ambiguous for Spark
    schema = narrow_schema(source.schema, needed)
    if has_nested_requirement(schema) or not all(_is_stored_alike(field.type) for field in schema):
        return False
    return all(field.nullable or _make_zero(field.type) is not None for field in to_row_schema(schema))


def _make_zero(data_type: pa.DataType) -> str | None:
    """Return a SQL constant of a type, which Spark knows is not NULL; None for unsupported types."""
    if pa.types.is_decimal(data_type):
        digits = f"0.{'0' * data_type.scale}" if data_type.scale else "0"
        return f"CAST({digits}BD AS DECIMAL({data_type.precision},{data_type.scale}))"
    return _ZEROS.get(data_type)


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

    def frame(self, listing: FileListing, names: PhysicalNames) -> Any:
        """Return the matching rows of files with the physical column names `names`."""
        residual = self._find_residual(listing)
        tested = [column.path for column in find_columns(residual)] if residual is not None else []
        texts = [pa.field(column.name, column.type) for column in self._predicate.partition_texts]
        needed = narrow_schema(pa.schema([*self._source.schema, *texts]), (*self._projection, *tested))
        constants = {*self._source.partition_columns, *(field.name for field in texts)}
        partitions = [name for name in needed.names if name in constants]
        of_files = to_row_schema(pa.schema([field for field in needed if field.name not in partitions]))
        physical = {field.name: names.get(field.name, field.name) for field in of_files}
        read = pa.schema([field.with_name(name) for field in of_files if (name := physical[field.name]) is not None])
        frame = self._read(listing.files["path"].to_pylist(), read)
        own = [self._to_logical_column(field, physical[field.name]) for field in of_files]
        if partitions:
            values = to_row_schema(narrow_schema(needed, [(name,) for name in partitions]))
            frame = self._add_partition_values(frame, own, listing, values)
        elif any(name != column for column, name in physical.items()):
            frame = frame.select(*own)
        if residual is not None:
            frame = frame.where(self.condition(residual))
        return self._project(frame, needed)

    def _to_logical_column(self, field: pa.Field, physical: str | None) -> Any:
        """Return a column under its logical name; NULL if the files do not have it."""
        if physical is None:
            return self._functions.lit(None).cast(to_spark_type(field.type)).alias(field.name)
        return self._functions.col(quote_name(physical)).alias(field.name)

    def condition(self, predicate: Expr) -> Any:
        """Return a filter over rows as a Column; raise `EvaluationError` if it has no equivalent or may fail."""
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

    def _read(self, paths: Sequence[str], schema: pa.Schema) -> Any:
        prefix = _choose_path_prefix(self._source.storage)
        for path in paths:
            self._source.storage.check_links(path)
        # The first two options disable the datetime rebase of old dates; the last one disables partition discovery
        # from paths.
        options = {"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED", "recursiveFileLookup": "true"}
        # Files that cannot be read are errors, whatever the session's settings are.
        options |= {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
        nullable = pa.schema([field.with_nullable(True) for field in schema])
        reader = self._spark.read.schema(to_spark_schema(nullable)).options(**options)
        with list_in_driver(self._spark, len(paths), is_local=prefix == "file://"):
            return reader.parquet(*(f"{prefix}{path}" for path in paths))

    def _add_partition_values(self, frame: Any, own: Sequence[Any], listing: FileListing, schema: pa.Schema) -> Any:
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
        prefix = "tamis"
        while any(name.casefold().startswith(prefix) for name in self._source.schema.names):
            prefix += "_"
        key, key_of_row, is_known = f"{prefix} file", f"{prefix} file of row", f"{prefix} partition"
        value_names = [f"{prefix} value {number}" for number in range(len(schema))]
        keys = pa.array([path.lstrip("/") for path in listing.files["path"].to_pylist()])
        small = pa.table(
            [*values.columns, keys, pa.repeat(pa.scalar(True), len(values))], [*value_names, key, is_known]
        )
        nullable = pa.schema([field.with_nullable(True) for field in small.schema])
        known = functions.broadcast(self._spark.createDataFrame(small, to_spark_schema(nullable)))
        keyed = frame.select(*own, self._make_file_key(frame).alias(key_of_row))
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

    def _make_file_key(self, frame: Any) -> Any:
        """Return a Column with the path of a row's file, without the scheme of Spark's URI."""
        functions = self._functions
        path = frame.metadataColumn("_metadata").getField("file_path")
        # In a path a plus is literal, but `url_decode` would decode it to a space.
        decoded = functions.url_decode(functions.replace(path, functions.lit("+"), functions.lit("%2B")))
        return functions.regexp_replace(decoded, "^[A-Za-z][A-Za-z0-9+.-]*:/*", "")

    def _project(self, frame: Any, read: pa.Schema) -> Any:
        """Return the columns of the scan in their order; required columns are declared not NULL, and checked.

        `read` may have more fields of a struct than the scan returns, because the filter needs them.
        """
        functions = self._functions
        output = narrow_schema(self._source.schema, self._projection)
        required = [field for field in to_row_schema(output) if not field.nullable]
        for field in required:
            broken = functions.raise_error(functions.lit(describe_null_error(field.name))).cast("boolean")
            is_null = functions.col(quote_name(field.name)).isNull()
            frame = frame.where(functions.when(is_null, broken).otherwise(functions.lit(True)))
        columns = [
            self._build_column(each, to_row_schema(output).field(each.name), read.field(each.name).type)
            for each in output
        ]
        return frame.select(*columns)

    def _build_column(self, field: pa.Field, stored: pa.Field, read: pa.DataType) -> Any:
        functions = self._functions
        column = self._narrow_struct(functions.col(quote_name(field.name)), read, field.type)
        if not field.nullable:
            # The constant is never used: it only lets Spark infer that the column is not NULL.
            column = functions.coalesce(column, functions.expr(_make_zero(stored.type)))
        return column.alias(field.name)

    def _narrow_struct(self, column: Any, read: pa.DataType, wanted: pa.DataType) -> Any:
        """Return a struct with only the wanted fields."""
        if read == wanted or not pa.types.is_struct(wanted):
            return column
        fields = [
            self._narrow_struct(column.getField(each.name), read.field(each.name).type, each.type).alias(each.name)
            for each in wanted
        ]
        return self._functions.when(column.isNotNull(), self._functions.struct(*fields))


# --- Control how Spark lists the files of a DataFrame -----------------------------------------------------------------
#
# For more than 32 files, Spark starts a task for each, about 7 ms each, before the DataFrame exists. Listing local
# files one after another in the driver is faster.

_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
MOST_FILES = 10_000

_lock = Lock()
"""The setting belongs to the whole session, so only one thread at a time may change it temporarily."""


@contextmanager
def list_in_driver(spark: Any, files: int, *, is_local: bool) -> Iterator[None]:
    """Let the driver list this number of files within this context, if that is faster; then restore the setting.

    A Connect server lists files when it computes rows, so the setting has no effect there.
    """
    if not is_local or files > MOST_FILES or is_connect(spark):
        yield
        return
    with _lock:
        before = spark.conf.get(_THRESHOLD, None)
        was_set = _THRESHOLD in spark.conf.getAll
        if before is not None and int(before) >= files:
            yield
            return
        spark.conf.set(_THRESHOLD, str(files))
        try:
            yield
        finally:
            if was_set:
                spark.conf.set(_THRESHOLD, before)
            else:
                spark.conf.unset(_THRESHOLD)


# --- Find the files that a native Spark scan reads correctly, and their physical column names -------------------------
#
# The physical names of columns in files may differ from the logical ones, and older files may lack columns. A native
# scan reads such files by their physical names, and renames the columns. Files with the same names are read together.

MAX_NAME_SETS = 4
"""The number of different sets of physical column names for which native scans are used, one scan for each set."""

NOT_READABLE = -1

PhysicalNames = Mapping[str, str | None]
"""Physical column names by logical names; None if the file has no such column, and its values are NULL."""

_GLOB = re.compile(r"[{}\[\]*?\\]")
"""Characters that Spark interprets as glob patterns."""


@dataclass(frozen=True)
class NativeFiles:
    """For each file of a listing, the index of its physical names, or `NOT_READABLE`."""

    name_set: npt.NDArray[np.int64]
    names: Sequence[PhysicalNames]

    @staticmethod
    def none(count: int) -> NativeFiles:
        return NativeFiles(np.full(count, NOT_READABLE), ())


def find_native_files(source: TableSource, files: pa.Table, needed: Sequence[Path], engine: Engine) -> NativeFiles:
    """Return which files a native scan reads correctly.

    These have no deleted rows, paths without special characters, and the types of the table. Delta's writers
    guarantee the types; for other formats, they are checked in the footers.
    """
    paths = [path for path in needed if path[0] not in source.partition_columns]
    is_plain = _find_plain_files(files)
    if isinstance(source, HasStoredTypes) and source.has_uniform_files:
        names = _map_to_physical_names(source.field_names, narrow_schema(source.schema, paths).names)
        return (
            NativeFiles.none(len(is_plain))
            if names is None
            else NativeFiles(np.where(is_plain, 0, NOT_READABLE), [names])
        )
    return _check_footers(source, files, paths, is_plain, engine)


def _find_plain_files(files: pa.Table) -> npt.NDArray[np.bool_]:
    paths = files["path"]
    has_glob = pc.match_substring_regex(paths, _GLOB.pattern)
    # Spark ignores files whose names start or end like this.
    is_hidden = pc.match_substring_regex(paths, r"(^|/)[._][^/]*$|\._COPYING_$")
    plain = pc.invert(pc.or_(has_glob, is_hidden))
    if "deletion_vector" in files.column_names:
        plain = pc.and_(plain, pc.is_null(files["deletion_vector"]))
    if "deletes" in files.column_names:
        plain = pc.and_(plain, pc.equal(pc.fill_null(pc.list_value_length(files["deletes"]), 0), 0))
    if FILE_FORMAT in files.column_names:
        plain = pc.and_(plain, pc.equal(files[FILE_FORMAT].cast(pa.string()), PARQUET))
    return np.array(plain.combine_chunks() if isinstance(plain, pa.ChunkedArray) else plain)


def _map_to_physical_names(names: ColumnMapping | None, columns: Sequence[str]) -> PhysicalNames | None:
    """Return the physical column names that all files have; None if nested fields are renamed."""
    if names is None:
        return {}
    physical = {each.name: (str(key), each) for key, each in names.fields.items()}
    wanted = [physical[name] for name in columns]
    is_distinct = len({key.casefold() for key, _ in physical.values()}) == len(physical)
    if not is_distinct or any(_has_renamed_fields(each) for _, each in wanted):
        return None
    return {each.name: key for key, each in wanted}


def _has_renamed_fields(field: MappedField) -> bool:
    return any(key != inner.name or _has_renamed_fields(inner) for key, inner in field.inner.items())


def _check_footers(
    source: TableSource, files: pa.Table, paths: Sequence[Path], is_plain: npt.NDArray[np.bool_], engine: Engine
) -> NativeFiles:
    candidates = np.flatnonzero(is_plain)
    asked = NativeScanColumns(
        narrow_schema(source.schema, paths), paths, source.field_names, find_columns_with_values(files)
    )
    chosen = files.select(["path", "size", "modified_ns"]).take(pa.array(candidates))
    if len(candidates) <= source.storage.tuning.spark_max_local_footers:
        found = read_physical_names(source.storage, chosen, asked)
    elif can_serialise(source.storage):
        found = read_physical_names_in(engine, source.storage, chosen, asked, source.name)
    else:
        return NativeFiles.none(files.num_rows)
    kinds = {kind: number for number, kind in enumerate(dict.fromkeys(kind for kind in found if kind is not None))}
    naming = np.full(files.num_rows, NOT_READABLE)
    naming[candidates] = [NOT_READABLE if kind is None else kinds[kind] for kind in found]
    if len(kinds) > MAX_NAME_SETS:
        counts = np.bincount(naming[naming >= 0], minlength=len(kinds))
        naming[~np.isin(naming, np.argsort(-counts, kind="stable")[:MAX_NAME_SETS])] = NOT_READABLE
    return NativeFiles(naming, [dict(zip(asked.schema.names, kind, strict=True)) for kind in kinds])


# --- Read physical column names from footers, here or in Spark's executors: see `tamis.scan.planning.physical_names`

FILES_PER_TASK = 512

FUNCTION = "tamis.engines.spark.native_scan:read_names_of_files"

_OUTPUT = (("is_readable", types.BOOLEAN), ("names", pa.list_(types.STRING)))


def read_physical_names(storage: Storage, files: pa.Table, asked: NativeScanColumns) -> list[NamesInFile | None]:
    """Return the physical column names of each file; None if a native scan would read it differently."""
    wanted = list(zip(*(files[name].to_pylist() for name in ("path", "size", "modified_ns")), strict=True))
    return run_in_threads(lambda file: asked.read_names(storage, *file), wanted, storage.threads)


def read_physical_names_in(
    engine: Engine, storage: Storage, files: pa.Table, asked: NativeScanColumns, name: str
) -> list[NamesInFile | None]:
    """Return the same as `read_physical_names`, computed in an engine's executors."""
    arguments = {**storage_to_arguments(storage), "asked": asked.to_json()}
    what = f"read {format_count(files.num_rows, 'footer')} of {name}"
    job = Job(FUNCTION, arguments, pa.schema(_OUTPUT), what, storage.counters)
    starts = range(0, files.num_rows, FILES_PER_TASK)
    slices = [files.slice(start, FILES_PER_TASK).combine_chunks() for start in starts]
    found: list[NamesInFile | None] = []
    for _, batch in engine.run(job, [Item.from_table(each, each.num_rows) for each in slices]):
        pairs = zip(batch["is_readable"].to_pylist(), batch["names"].to_pylist(), strict=True)
        found += [tuple(names) if is_readable else None for is_readable, names in pairs]
    return found


def read_names_of_files(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the physical column names of some files. It is the function of a job."""
    found = read_physical_names(arguments.storage, read_table(item), arguments.memoise(_parse_columns))
    columns = [[names is not None for names in found], [None if names is None else list(names) for names in found]]
    yield pa.record_batch(columns, schema=pa.schema(_OUTPUT))


def _parse_columns(arguments: Arguments) -> NativeScanColumns:
    return NativeScanColumns.from_json(arguments["asked"])
