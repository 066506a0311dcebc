"""Files read by Spark's own Parquet reader: an exact list of them, the filter on top, partition values put in place.

That reader skips row groups and pages by itself, in the JVM, and is the fastest way for files that hold what the table
says, no more and no less. Which ones do is decided here; all others are read by `tamis.spark.task_runner`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
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
from tamis.spark.constants import EPOCH, Constants
from tamis.spark.handler import quoted
from tamis.spark.types import about_null, has_nested_requirement, row_schema, spark_schema
from tamis.tables.delta.table import DeltaTable
from tamis.tables.source import FileListing, TableSource

_SCHEMES = {"s3": "s3a"}
"""How Spark calls the file systems that it reads here as Tamis does."""

_GLOB = re.compile(r"[{}\[\]*?\\]")
"""Signs that Spark takes for a pattern."""

_KEY, _MATCHED = "tamis file", "tamis partition"

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


def reads_table(source: TableSource, needed: Sequence[Path]) -> bool:
    """Whether Spark's reader gives the columns of a scan the values that they have here."""
    if source.field_names is not None or _path_prefix(source.storage) is None:
        return False
    if isinstance(source, DeltaTable) and _has_widened(source):
        return False
    if len({name.casefold() for name in source.schema.names}) < len(source.schema.names):
        return False  # Spark would not know which of two it is asked for
    schema = narrow(source.schema, needed)
    if has_nested_requirement(schema) or not all(_is_stored_alike(field.type) for field in schema):
        return False
    return all(field.nullable or _zero(field.type) is not None for field in row_schema(schema))


def readable_files(storage: Storage, files: pa.Table) -> npt.NDArray[np.bool_]:
    """Which files Spark's reader can be given: without deleted rows, under names that it takes as they are."""
    paths = files["path"]
    odd = pc.match_substring_regex(paths, _GLOB.pattern)
    # Files whose names start so are invisible to Spark.
    hidden = pc.match_substring_regex(paths, r"(^|/)[._][^/]*$")
    readable = pc.invert(pc.or_(odd, hidden))
    if "deletion_vector" in files.column_names:
        readable = pc.and_(readable, pc.is_null(files["deletion_vector"]))
    return np.asarray(readable.combine_chunks() if isinstance(readable, pa.ChunkedArray) else readable)


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
    if storage.is_local:
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

    def frame(self, listing: FileListing, *, matches: bool) -> Any:
        """The matching rows of files; with `matches`, all rows are known to match."""
        rest = None if matches else self._rest(listing)
        tested = [column.path for column in columns_of(rest)] if rest is not None else []
        needed = narrow(self._source.schema, (*self._projection, *tested))
        partitions = [name for name in needed.names if name in self._source.partition_columns]
        of_files = row_schema(pa.schema([field for field in needed if field.name not in partitions]))
        frame = self._read(listing.files["path"].to_pylist(), of_files)
        if partitions:
            frame = self._with_partition_values(frame, listing, row_schema(narrow(needed, [(p,) for p in partitions])))
        if rest is not None:
            frame = frame.where(self.condition(rest))
        return self._projected(frame)

    def condition(self, predicate: Expr) -> Any:
        """A filter over rows as a Column; `EvaluationError` where Spark has no like of it, or where it may fail."""
        functions = self._functions

        def raw(column: Column) -> Any:
            return functions.col(".".join(quoted(part) for part in column.path))

        def read(column: Column) -> Any:
            data_type = column.type
            if data_type is not None and pa.types.is_timestamp(data_type) and data_type.tz is not None:
                return functions.timestamp_add("MICROSECOND", functions.unix_micros(raw(column)), functions.expr(EPOCH))
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
        # Without the first two options Spark would take old dates for those of another calendar, without the last it
        # would look for partition values in the paths.
        options = {"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED", "recursiveFileLookup": "true"}
        nullable = pa.schema([field.with_nullable(True) for field in schema])
        reader = self._spark.read.schema(spark_schema(nullable)).options(**options)
        return reader.parquet(*(f"{prefix}{path}" for path in paths))

    def _with_partition_values(self, frame: Any, listing: FileListing, schema: pa.Schema) -> Any:
        """The rows with the partition values of their files: constants where all files have the same, else a join."""
        functions = self._functions
        columns = [listing.partitions[name].cast(schema.field(name).type) for name in schema.names]
        values = pa.table(columns, schema.names)
        own = [functions.col(quoted(name)) for name in frame.columns]
        if values.group_by(values.column_names, use_threads=False).aggregate([]).num_rows == 1:
            # The condition is for the schema alone: a column may be NULL although this constant is not.
            always = functions.lit(1) == functions.lit(1)
            constants = [functions.when(always, self._constant(values[name][0])) for name in schema.names]
            named = [value.alias(name) for value, name in zip(constants, schema.names, strict=True)]
            return frame.select(*own, *named)
        keys = pa.array([path.lstrip("/") for path in listing.files["path"].to_pylist()])
        small = values.append_column(_KEY, keys)
        small = small.append_column(_MATCHED, pa.repeat(pa.scalar(True), len(small)))
        renamed = small.rename_columns([*(f"tamis value {number}" for number in range(len(schema))), _KEY, _MATCHED])
        nullable = pa.schema([field.with_nullable(True) for field in renamed.schema])
        known = functions.broadcast(self._spark.createDataFrame(renamed, spark_schema(nullable)))
        keyed = frame.select(*own, self._file_key(frame).alias(f"{_KEY} of row"))
        joined = keyed.join(known, functions.col(quoted(f"{_KEY} of row")) == functions.col(quoted(_KEY)), "left")
        unmatched = functions.raise_error(functions.lit(f"a file of '{self._source.storage.uri}' was not planned"))
        is_matched = functions.when(functions.col(quoted(_MATCHED)), functions.lit(True)).otherwise(
            unmatched.cast("boolean")
        )
        found = [functions.col(f"`tamis value {number}`").alias(name) for number, name in enumerate(schema.names)]
        return joined.where(is_matched).select(*own, *found)

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

    def _projected(self, frame: Any) -> Any:
        """The columns of the scan in their order; those that the table says are never NULL are not."""
        functions = self._functions
        output = narrow(self._source.schema, self._projection)
        required = [field for field in row_schema(output) if not field.nullable]
        for field in required:
            told = about_null(field.name)
            broken = functions.raise_error(functions.lit(told)).cast("boolean")
            is_null = functions.col(quoted(field.name)).isNull()
            frame = frame.where(functions.when(is_null, broken).otherwise(functions.lit(True)))
        return frame.select(*(self._column(field, row_schema(output).field(field.name)) for field in output))

    def _column(self, field: pa.Field, stored: pa.Field) -> Any:
        functions = self._functions
        column = functions.col(quoted(field.name))
        if not field.nullable:
            # The constant is never taken: it makes Spark see that the column is not NULL.
            column = functions.coalesce(column, functions.expr(_zero(stored.type)))
        return column.alias(field.name)
