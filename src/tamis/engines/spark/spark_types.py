"""Map Arrow types to Spark types, for rows and for metadata, and convert batches to them.

Rows keep their types if Spark supports them: unsigned integers become the next larger signed type, half floats become
floats, nanoseconds become microseconds. Metadata is only compared and computed with, so its timestamps are in UTC
without a zone (the session's time zone must not affect skipping), and times of day are numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile, UnsupportedFeature
from tamis.expr.functions.calendar import cast_to_unit
from tamis.expr.functions.kernels import to_evaluation_form
from tamis.expr.sql.printer import quote_name
from tamis.types import is_bytes, is_text, type_name

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}
_SAME = frozenset(
    (
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32()),
        *(pa.string(), pa.binary(), pa.null()),
    )
)


def to_row_type(data_type: pa.DataType, what: str) -> pa.DataType:
    """Return the Arrow type that Spark accepts for values of a type; `what` names the values in an error."""
    if data_type in _SAME:
        return data_type
    if data_type in _WIDER:
        return _WIDER[data_type]
    if pa.types.is_dictionary(data_type):
        return to_row_type(data_type.value_type, what)
    if is_text(data_type):
        return types.STRING
    if is_bytes(data_type):
        return types.BINARY
    if pa.types.is_timestamp(data_type):
        return types.TIMESTAMP if data_type.tz is not None else types.TIMESTAMP_NTZ
    if pa.types.is_duration(data_type):
        return pa.duration("us")
    if pa.types.is_decimal(data_type) and data_type.precision <= 38:
        return pa.decimal128(data_type.precision, data_type.scale)
    if pa.types.is_struct(data_type):
        return pa.struct([_to_row_field(field, f"{what}.{field.name}") for field in data_type])
    if pa.types.is_map(data_type):
        key, value = _to_row_field(data_type.key_field, what), _to_row_field(data_type.item_field, what)
        return pa.map_(key.with_name("key").with_nullable(False), value.with_name("value"))
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type) or pa.types.is_fixed_size_list(data_type):
        return pa.list_(_to_row_field(data_type.value_field, what).with_name("element"))
    raise UnsupportedFeature(
        f"{what} is {type_name(data_type)}, a type that Spark does not support: leave it out with columns=[…], or read "
        "with to_arrow()"
    )


def _to_row_field(field: pa.Field, what: str) -> pa.Field:
    return pa.field(field.name, to_row_type(field.type, what))


def to_row_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema in which Spark accepts the rows of a table.

    All columns are nullable, as those of Spark's own readers of files: a declared NOT NULL would need a check of each
    row, below which Spark pushes no filter.
    """
    return pa.schema([_to_row_field(field, f"the column {field.name!r}") for field in schema])


def to_spark_schema(schema: pa.Schema) -> StructType:
    """Return a schema of `to_row_schema` or `to_metadata_schema` as a Spark schema, with nullability."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(field.name, to_spark_type(field.type), field.nullable) for field in schema])


def to_spark_type(data_type: pa.DataType) -> DataType:
    """Return a type of `to_row_type` as a Spark type."""
    from pyspark.sql import types as spark

    if pa.types.is_struct(data_type):
        return spark.StructType(
            [spark.StructField(each.name, to_spark_type(each.type), each.nullable) for each in data_type]
        )
    if pa.types.is_map(data_type):
        key, value = to_spark_type(data_type.key_type), to_spark_type(data_type.item_type)
        return spark.MapType(key, value, data_type.item_field.nullable)
    if pa.types.is_list(data_type):
        return spark.ArrayType(to_spark_type(data_type.value_type), data_type.value_field.nullable)
    if pa.types.is_decimal(data_type):
        return spark.DecimalType(data_type.precision, data_type.scale)
    if pa.types.is_timestamp(data_type):
        return spark.TimestampType() if data_type.tz is not None else spark.TimestampNTZType()
    if pa.types.is_duration(data_type):
        return spark.DayTimeIntervalType()
    kinds = {
        pa.bool_(): spark.BooleanType,
        pa.int8(): spark.ByteType,
        pa.int16(): spark.ShortType,
        pa.int32(): spark.IntegerType,
        pa.int64(): spark.LongType,
        pa.float32(): spark.FloatType,
        pa.float64(): spark.DoubleType,
        pa.date32(): spark.DateType,
        pa.string(): spark.StringType,
        pa.binary(): spark.BinaryType,
        pa.null(): spark.NullType,
    }
    return kinds[data_type]()


def to_ddl(data_type: DataType) -> str:
    """Return the text of a Spark type, with quoted names of fields."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    match data_type:
        case StructType():
            fields = (f"{quote_name(field.name)}: {to_ddl(field.dataType)}" for field in data_type.fields)
            return f"struct<{', '.join(fields)}>"
        case MapType():
            return f"map<{to_ddl(data_type.keyType)}, {to_ddl(data_type.valueType)}>"
        case ArrayType():
            return f"array<{to_ddl(data_type.elementType)}>"
        case _:
            return str(data_type.simpleString())


def to_requested_schema(schema: pa.Schema, asked: StructType) -> pa.Schema:
    """Return a schema of `to_row_schema` with the names and nullability of a requested schema."""
    pairs = zip(schema, asked.fields, strict=True)
    return pa.schema(
        [pa.field(each.name, _to_requested_type(own.type, each.dataType), each.nullable) for own, each in pairs]
    )


def _to_requested_type(data_type: pa.DataType, asked: Any) -> pa.DataType:
    if pa.types.is_struct(data_type):
        return pa.struct(list(to_requested_schema(pa.schema(list(data_type)), asked)))
    if pa.types.is_map(data_type):
        key, value = data_type.key_field, data_type.item_field
        return pa.map_(
            key.with_type(_to_requested_type(key.type, asked.keyType)),
            value.with_type(_to_requested_type(value.type, asked.valueType)).with_nullable(asked.valueContainsNull),
        )
    if pa.types.is_list(data_type):
        element = data_type.value_field
        inner = _to_requested_type(element.type, asked.elementType)
        return pa.list_(element.with_type(inner).with_nullable(asked.containsNull))
    return data_type


def convert_rows(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of a table's rows in the schema of `to_row_schema`."""
    arrays = [_convert(values, field.type) for values, field in zip(batch.columns, schema, strict=True)]
    for values, field in zip(arrays, schema, strict=True):
        if values.null_count and not field.nullable:
            # Spark would read arbitrary memory as the value.
            raise CorruptFile(f"the column {field.name!r} has NULL in a file, but the given schema has it as NOT NULL")
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _convert(values: pa.Array, target: pa.DataType) -> pa.Array:
    if values.type == target:
        return values
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_timestamp(target) and values.type.unit != "us":
        # Round towards the past, unlike Arrow's cast.
        return cast_to_unit(values.view(pa.timestamp(values.type.unit)), "us").view(target)
    if pa.types.is_unsigned_integer(values.type) and pa.types.is_decimal(target):
        return pc.cast(values, target)
    return pc.cast(values, target, safe=False)


# --- Metadata -------------------------------------------------------------------------------------------------------


def to_metadata_type(data_type: pa.DataType) -> pa.DataType | None:
    """Return the type in which Spark computes with values of a type as metadata; None if it is unsupported."""
    if data_type in _SAME:
        return data_type
    if data_type in _WIDER:
        return _WIDER[data_type]
    if pa.types.is_dictionary(data_type):
        return to_metadata_type(data_type.value_type)
    if is_text(data_type):
        return types.STRING
    if is_bytes(data_type):
        return types.BINARY
    if pa.types.is_timestamp(data_type):
        # Spark has no nanoseconds, and rounding a bound to microseconds would change it.
        return types.TIMESTAMP_NTZ if data_type.unit != "ns" else None
    if pa.types.is_time(data_type) or pa.types.is_duration(data_type):
        return types.LONG
    if pa.types.is_decimal(data_type) and data_type.precision <= 38:
        return pa.decimal128(data_type.precision, data_type.scale)
    if pa.types.is_map(data_type) and is_text(data_type.key_type) and is_text(data_type.item_type):
        return pa.map_(types.STRING, types.STRING)
    return None


def to_metadata_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of the metadata columns that Spark can compute with."""
    found = [(field.name, to_metadata_type(field.type)) for field in schema]
    return pa.schema([(name, data_type) for name, data_type in found if data_type is not None])


def convert_metadata(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of metadata in the schema of `to_metadata_schema`."""
    schema = to_metadata_schema(batch.schema)
    arrays = []
    for field in schema:
        values = batch.column(batch.schema.get_field_index(field.name))
        if not pa.types.is_map(values.type):
            values = to_evaluation_form(values)
        if pa.types.is_time(values.type) or pa.types.is_duration(values.type):
            values = values.view(pa.int64() if values.type.bit_width == 64 else pa.int32())
        if pa.types.is_timestamp(values.type) and values.type.unit != "us":
            values = _limit_to_microseconds(values)
        arrays.append(values if values.type == field.type else pc.cast(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else _make_empty_rows(batch.num_rows)


def _limit_to_microseconds(values: pa.TimestampArray) -> pa.TimestampArray:
    """Return timestamps with NULL (unknown) instead of those outside the range of microseconds."""
    counts = values.view(pa.int64())
    most = (2**63 - 1) * types.UNITS_PER_SECOND[values.type.unit] // 1_000_000
    fits = pc.and_(pc.greater_equal(counts, -most), pc.less_equal(counts, most))
    return pc.if_else(fits, values, pa.scalar(None, values.type))


def _make_empty_rows(count: int) -> pa.RecordBatch:
    """Return a batch with a number of rows and one column of NULLs: a batch without columns has no length."""
    return pa.record_batch({"": pa.nulls(count, types.LONG)})
