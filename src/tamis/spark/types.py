"""Types of Arrow as types of Spark, for rows and for metadata, and batches made to fit them.

Rows keep what they are as far as Spark has it: unsigned numbers become the next larger signed ones, half floats
floats, times of a nanosecond those of a microsecond. Metadata is only compared and computed with, so there timestamps
are of UTC and without a zone (the zone of a session must not change what is skipped), and times of day are numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile, UnsupportedFeature
from tamis.expr.calendar import in_unit
from tamis.expr.kernels import to_evaluation_form
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


def row_type(data_type: pa.DataType, what: str) -> pa.DataType:
    """The type of Arrow that Spark takes for values of a type; `what` names them in an error."""
    if data_type in _SAME:
        return data_type
    if data_type in _WIDER:
        return _WIDER[data_type]
    if pa.types.is_dictionary(data_type):
        return row_type(data_type.value_type, what)
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
        return pa.struct([_row_field(field, f"{what}.{field.name}") for field in data_type])
    if pa.types.is_map(data_type):
        key, value = _row_field(data_type.key_field, what), _row_field(data_type.item_field, what)
        return pa.map_(key.with_name("key").with_nullable(False), value.with_name("value"))
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type) or pa.types.is_fixed_size_list(data_type):
        return pa.list_(_row_field(data_type.value_field, what).with_name("element"))
    raise UnsupportedFeature(
        f"{what} is {type_name(data_type)}, a type that Spark does not have: leave it out with columns=[…], or read "
        "with to_arrow()"
    )


def _row_field(field: pa.Field, what: str) -> pa.Field:
    return pa.field(field.name, row_type(field.type, what), field.nullable)


def row_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in which Spark takes rows of a table."""
    return pa.schema([_row_field(field, f"the column {field.name!r}") for field in schema])


def spark_schema(schema: pa.Schema) -> StructType:
    """A schema made by `row_schema` or `metadata_schema` in Spark's words, nullability and all."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(field.name, spark_type(field.type), field.nullable) for field in schema])


def spark_type(data_type: pa.DataType) -> DataType:
    """One of the types that `row_type` gives in Spark's words."""
    from pyspark.sql import types as spark

    if pa.types.is_struct(data_type):
        return spark.StructType(
            [spark.StructField(each.name, spark_type(each.type), each.nullable) for each in data_type]
        )
    if pa.types.is_map(data_type):
        key, value = spark_type(data_type.key_type), spark_type(data_type.item_type)
        return spark.MapType(key, value, data_type.item_field.nullable)
    if pa.types.is_list(data_type):
        return spark.ArrayType(spark_type(data_type.value_type), data_type.value_field.nullable)
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


def asked_schema(schema: pa.Schema, asked: StructType) -> pa.Schema:
    """A schema made by `row_schema` with the names, and what may be NULL, of one that somebody asked for."""
    pairs = zip(schema, asked.fields, strict=True)
    return pa.schema([pa.field(each.name, _asked_type(own.type, each.dataType), each.nullable) for own, each in pairs])


def _asked_type(data_type: pa.DataType, asked: Any) -> pa.DataType:
    if pa.types.is_struct(data_type):
        return pa.struct(list(asked_schema(pa.schema(list(data_type)), asked)))
    if pa.types.is_map(data_type):
        key, value = data_type.key_field, data_type.item_field
        return pa.map_(
            key.with_type(_asked_type(key.type, asked.keyType)),
            value.with_type(_asked_type(value.type, asked.valueType)).with_nullable(asked.valueContainsNull),
        )
    if pa.types.is_list(data_type):
        element = data_type.value_field
        inner = _asked_type(element.type, asked.elementType)
        return pa.list_(element.with_type(inner).with_nullable(asked.containsNull))
    return data_type


def has_nested_requirement(schema: pa.Schema) -> bool:
    """Whether something inside a column may not be NULL."""
    waiting = [field.type for field in schema]
    while waiting:
        data_type = waiting.pop()
        if pa.types.is_map(data_type):
            fields = [data_type.item_field]  # keys are never NULL, in Spark neither
            waiting.append(data_type.key_type)
        else:
            fields = [data_type.field(index) for index in range(data_type.num_fields)]
        if not all(field.nullable for field in fields):
            return True
        waiting += [field.type for field in fields]
    return False


def fit_rows(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch of a table's rows in the schema that `row_schema` made for them."""
    arrays = [_fitted(values, field.type) for values, field in zip(batch.columns, schema, strict=True)]
    for values, field in zip(arrays, schema, strict=True):
        if values.null_count and not field.nullable:
            # Spark would take it for whatever lies in memory.
            raise CorruptFile(about_null(field.name))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def about_null(column: str) -> str:
    return f"the column {column!r} holds NULL in a file, and its table says that it never does"


def _fitted(values: pa.Array, target: pa.DataType) -> pa.Array:
    if values.type == target:
        return values
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_timestamp(target) and values.type.unit != "us":
        # Cut off towards the past, as Arrow's own cast does not.
        return in_unit(values.view(pa.timestamp(values.type.unit)), "us").view(target)
    if pa.types.is_unsigned_integer(values.type) and pa.types.is_decimal(target):
        return pc.cast(values, target)
    return pc.cast(values, target, safe=False)


# --- Metadata -------------------------------------------------------------------------------------------------------


def metadata_type(data_type: pa.DataType) -> pa.DataType | None:
    """The type in which Spark computes with values of a type as metadata; None where it cannot."""
    if data_type in _SAME:
        return data_type
    if data_type in _WIDER:
        return _WIDER[data_type]
    if pa.types.is_dictionary(data_type):
        return metadata_type(data_type.value_type)
    if is_text(data_type):
        return types.STRING
    if is_bytes(data_type):
        return types.BINARY
    if pa.types.is_timestamp(data_type):
        # Of a nanosecond Spark knows nothing, and counted in microseconds a bound would be another.
        return types.TIMESTAMP_NTZ if data_type.unit != "ns" else None
    if pa.types.is_time(data_type) or pa.types.is_duration(data_type):
        return types.LONG
    if pa.types.is_decimal(data_type) and data_type.precision <= 38:
        return pa.decimal128(data_type.precision, data_type.scale)
    if pa.types.is_map(data_type) and is_text(data_type.key_type) and is_text(data_type.item_type):
        return pa.map_(types.STRING, types.STRING)
    return None


def metadata_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of metadata that Spark can compute with."""
    found = [(field.name, metadata_type(field.type)) for field in schema]
    return pa.schema([(name, data_type) for name, data_type in found if data_type is not None])


def fit_metadata(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of metadata in the schema of `metadata_schema`."""
    schema = metadata_schema(batch.schema)
    arrays = []
    for field in schema:
        values = batch.column(batch.schema.get_field_index(field.name))
        if not pa.types.is_map(values.type):
            values = to_evaluation_form(values)
        if pa.types.is_time(values.type) or pa.types.is_duration(values.type):
            values = values.view(pa.int64() if values.type.bit_width == 64 else pa.int32())
        if pa.types.is_timestamp(values.type) and values.type.unit != "us":
            values = _within_microseconds(values)
        arrays.append(values if values.type == field.type else pc.cast(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else _rows(batch.num_rows)


def _within_microseconds(values: pa.TimestampArray) -> pa.TimestampArray:
    """Timestamps, and NULL (which is unknown) in place of those that are too far away to be counted so."""
    counts = values.view(pa.int64())
    most = (2**63 - 1) * types.UNITS_PER_SECOND[values.type.unit] // 1_000_000
    fits = pc.and_(pc.greater_equal(counts, -most), pc.less_equal(counts, most))
    return pc.if_else(fits, values, pa.scalar(None, values.type))


def _rows(count: int) -> pa.RecordBatch:
    """So many rows of nothing: a batch needs a column to know its length."""
    return pa.record_batch({"": pa.nulls(count, types.LONG)})
