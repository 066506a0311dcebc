"""Files read by Spark's own Parquet reader: an exact list of them, the filter on top, partition values put in place.

That reader skips row groups and pages by itself, in the JVM, and is the fastest way for files that hold what the table
says, no more and no less. `tamis.spark.readable_files` tells which ones do, and what they call columns; all others are
read by `tamis.spark.task_runner`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.engines.sessions import session_functions
from tamis.errors import EvaluationError
from tamis.expr.evaluate import physical_value
from tamis.expr.nodes import Column, Expr, Literal, and_, columns_of
from tamis.expr.printer import shown
from tamis.io.storage import Storage
from tamis.scan.projection import Path, narrow
from tamis.skipping.metadata import constant_bounds
from tamis.skipping.predicate import Predicate
from tamis.skipping.prune import prune
from tamis.spark.columns import ColumnCompiler
from tamis.spark.constants import EPOCH, Constants, sql_type
from tamis.spark.handler import quoted
from tamis.spark.listing import listed_by_the_driver
from tamis.spark.readable_files import Names
from tamis.spark.types import about_null, has_nested_requirement, row_schema, spark_schema, spark_type
from tamis.tables.delta.table import DeltaTable
from tamis.tables.source import FileListing, TableSource

_SCHEMES = {"s3": "s3a"}
"""How Spark calls the file systems that it reads here as Tamis does."""

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


def reads_table(spark: Any, source: TableSource, needed: Sequence[Path]) -> bool:
    """Whether Spark's reader gives the columns of a scan the values that they have here."""
    if _path_prefix(source.storage) is None:
        return False
    if str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true":
        return False  # a file that spells a column otherwise would have none of it
    if str(spark.conf.get("spark.sql.parquet.int96TimestampConversion", "false")).lower() == "true":
        return False  # timestamps of 96 bits would move by the zone of the session, but those of Spark itself
    if isinstance(source, DeltaTable) and _has_widened(source):
        return False
    if len({name.casefold() for name in source.schema.names}) < len(source.schema.names):
        return False  # Spark would not know which of two it is asked for
    schema = narrow(source.schema, needed)
    if has_nested_requirement(schema) or not all(_is_stored_alike(field.type) for field in schema):
        return False
    return all(field.nullable or _zero(field.type) is not None for field in row_schema(schema))


def _zero(data_type: pa.DataType) -> str | None:
    """A constant of a type, as SQL writes it, that Spark knows is not NULL."""
    if pa.types.is_decimal(data_type):
        digits = f"0.{'0' * data_type.scale}" if data_type.scale else "0"
        return f"CAST({digits}BD AS DECIMAL({data_type.precision},{data_type.scale}))"
    return _ZEROS.get(data_type)


def _has_widened(source: DeltaTable) -> bool:
    features = source.snapshot.protocol.reader_features or ()
    return any(feature.startswith(("typeWidening", "variant")) for feature in features)


def _is_stored_alike(data_type: pa.DataType) -> bool:
    """Whether Parquet and Spark agree about a type and about how its values are read."""
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


def _path_prefix(storage: Storage) -> str | None:
    """What comes before a path of the file system to make one of Spark's; None where Spark would read otherwise."""
    if storage.filesystem.type_name == "local":
        return "file://"
    scheme, found, _ = storage.uri.partition("://")
    has_options = storage.given is None or bool(storage.given[1])
    # Spark knows nothing of credentials that were given to Tamis.
    return f"{_SCHEMES[scheme]}://" if found and scheme in _SCHEMES and not has_options else None


class OwnReader:
    """Makes the DataFrame of some files of a scan."""

    def __init__(self, spark: Any, source: TableSource, predicate: Predicate, projection: tuple[Path, ...]) -> None:
        self._spark = spark
        self._functions = session_functions(spark)
        self._source = source
        self._predicate = predicate
        self._projection = projection

    def frame(self, listing: FileListing, names: Names, *, matches: bool) -> Any:
        """The matching rows of files that have `names` for columns; with `matches`, all rows are known to match."""
        rest = None if matches else self._rest(listing)
        tested = [column.path for column in columns_of(rest)] if rest is not None else []
        needed = narrow(self._source.schema, (*self._projection, *tested))
        partitions = [name for name in needed.names if name in self._source.partition_columns]
        of_files = row_schema(pa.schema([field for field in needed if field.name not in partitions]))
        stored = {field.name: names.get(field.name, field.name) for field in of_files}
        read = pa.schema([field.with_name(name) for field in of_files if (name := stored[field.name]) is not None])
        frame = self._read(listing.files["path"].to_pylist(), read)
        own = [self._own_column(field, stored[field.name]) for field in of_files]
        if partitions:
            values = row_schema(narrow(needed, [(name,) for name in partitions]))
            frame = self._with_partition_values(frame, own, listing, values)
        elif any(name != column for column, name in stored.items()):
            frame = frame.select(*own)
        if rest is not None:
            frame = frame.where(self.condition(rest))
        return self._projected(frame, needed)

    def _own_column(self, field: pa.Field, stored: str | None) -> Any:
        """A column under the table's name, which files call otherwise or lack."""
        if stored is None:
            return self._functions.lit(None).cast(spark_type(field.type)).alias(field.name)
        return self._functions.col(quoted(stored)).alias(field.name)

    def condition(self, predicate: Expr) -> Any:
        """A filter over rows as a Column; `EvaluationError` where Spark has no like of it, or where it may fail."""
        functions = self._functions

        def raw(column: Column) -> Any:
            return functions.col(".".join(quoted(part) for part in column.path))

        def read(column: Column) -> Any:
            data_type = column.type or types.NULL
            if pa.types.is_timestamp(data_type) and data_type.tz is not None:
                return functions.timestamp_add("MICROSECOND", functions.unix_micros(raw(column)), functions.expr(EPOCH))
            if pa.types.is_floating(data_type):
                # Bounds in files say nothing of NaN and little of zeros, and Spark's reader trusts them: it must not
                # see a comparison of the column itself.
                return raw(column) + functions.lit(0.0).cast(sql_type(data_type))
            return raw(column)

        compiled = ColumnCompiler(functions, read, instant=raw).compile(predicate)
        if compiled.failed is not None:
            raise EvaluationError(
                f"{shown(predicate)} may fail for a row, which Spark would not tell as it is told here"
            )
        return compiled.value

    def can_test(self) -> bool:
        """Whether Spark has the like of every part of the filter."""
        try:
            self.condition(self._predicate.expr)
        except EvaluationError:
            return False
        return True

    def _rest(self, listing: FileListing) -> Expr | None:
        """The part of the filter that rows must be tested by: what partition values prove is left out."""
        conjuncts = self._predicate.conjuncts
        count = listing.files.num_rows
        one_row = pa.repeat(pa.scalar(1, types.LONG), count)
        units = {"row_count": one_row}
        for name in listing.partitions.column_names:
            values = listing.partitions[name].combine_chunks()
            units |= constant_bounds(Column((name,), type=values.type), values, one_row)
        matched = prune(pa.record_batch(units), conjuncts).matched
        rest = [
            each.predicate
            for each, whole in zip(conjuncts, matched, strict=True)
            if len(whole) < count or not pc.all(whole, min_count=0).as_py()
        ]
        return and_(*rest) if rest else None

    def _read(self, paths: Sequence[str], schema: pa.Schema) -> Any:
        prefix = _path_prefix(self._source.storage)
        for path in paths:
            self._source.storage.check_links(path)
        # Without the first two options Spark would take old dates for those of another calendar, without the last it
        # would look for partition values in the paths.
        options = {"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED", "recursiveFileLookup": "true"}
        # Whatever a session says, rows that cannot be read are not left out.
        options |= {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
        nullable = pa.schema([field.with_nullable(True) for field in schema])
        reader = self._spark.read.schema(spark_schema(nullable)).options(**options)
        with listed_by_the_driver(self._spark, len(paths), is_local=prefix == "file://"):
            return reader.parquet(*(f"{prefix}{path}" for path in paths))

    def _with_partition_values(self, frame: Any, own: Sequence[Any], listing: FileListing, schema: pa.Schema) -> Any:
        """Columns of files with the partition values of those: constants where all have the same, else a join."""
        functions = self._functions
        columns = [listing.partitions[name].cast(schema.field(name).type) for name in schema.names]
        values = pa.table(columns, schema.names)
        if values.group_by(values.column_names, use_threads=False).aggregate([]).num_rows == 1:
            # The condition is for the schema alone: a column may be NULL although this constant is not.
            always = functions.lit(1) == functions.lit(1)
            constants = [functions.when(always, self._constant(values[name][0])) for name in schema.names]
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
        known = functions.broadcast(self._spark.createDataFrame(small, spark_schema(nullable)))
        keyed = frame.select(*own, self._file_key(frame).alias(key_of_row))
        joined = keyed.join(known, functions.col(quoted(key_of_row)) == functions.col(quoted(key)), "left")
        unmatched = functions.raise_error(functions.lit(f"a file of '{self._source.storage.uri}' was not planned"))
        is_matched = functions.when(functions.col(quoted(is_known)), functions.lit(True)).otherwise(
            unmatched.cast("boolean")
        )
        of_files = [functions.col(quoted(name)) for name in keyed.columns if name != key_of_row]
        found = [
            functions.col(quoted(given)).alias(name) for given, name in zip(value_names, schema.names, strict=True)
        ]
        return joined.where(is_matched).select(*of_files, *found)

    def _constant(self, value: pa.Scalar) -> Any:
        literal = Literal(physical_value(value), value.type)
        is_instant = pa.types.is_timestamp(value.type) and value.type.tz is not None
        constants = Constants(self._functions)
        return constants.moment(literal) if is_instant else constants.column(literal)

    def _file_key(self, frame: Any) -> Any:
        """The path of the file of a row, without the scheme: Spark tells it as a URI."""
        functions = self._functions
        path = frame.metadataColumn("_metadata").getField("file_path")
        # A plus is a plus in a path, and a space to whoever decodes forms.
        decoded = functions.url_decode(functions.replace(path, functions.lit("+"), functions.lit("%2B")))
        return functions.regexp_replace(decoded, "^[A-Za-z][A-Za-z0-9+.-]*:/*", "")

    def _projected(self, frame: Any, read: pa.Schema) -> Any:
        """The columns of the scan in their order; those that the table says are never NULL are not.

        `read` may have more of a struct than the scan returns, for the filter.
        """
        functions = self._functions
        output = narrow(self._source.schema, self._projection)
        required = [field for field in row_schema(output) if not field.nullable]
        for field in required:
            told = about_null(field.name)
            broken = functions.raise_error(functions.lit(told)).cast("boolean")
            is_null = functions.col(quoted(field.name)).isNull()
            frame = frame.where(functions.when(is_null, broken).otherwise(functions.lit(True)))
        columns = [
            self._column(each, row_schema(output).field(each.name), read.field(each.name).type) for each in output
        ]
        return frame.select(*columns)

    def _column(self, field: pa.Field, stored: pa.Field, read: pa.DataType) -> Any:
        functions = self._functions
        column = self._narrowed(functions.col(quoted(field.name)), read, field.type)
        if not field.nullable:
            # The constant is never taken: it makes Spark see that the column is not NULL.
            column = functions.coalesce(column, functions.expr(_zero(stored.type)))
        return column.alias(field.name)

    def _narrowed(self, column: Any, read: pa.DataType, wanted: pa.DataType) -> Any:
        """A struct with the wanted fields alone, of one of which more was read."""
        if read == wanted or not pa.types.is_struct(wanted):
            return column
        fields = [
            self._narrowed(column.getField(each.name), read.field(each.name).type, each.type).alias(each.name)
            for each in wanted
        ]
        return self._functions.when(column.isNotNull(), self._functions.struct(*fields))
