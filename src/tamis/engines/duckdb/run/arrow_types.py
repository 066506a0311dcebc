"""Replacements for Arrow types that DuckDB does not support."""

from __future__ import annotations

import pyarrow as pa

from tamis.errors import UnsupportedFeature, to_one_line
from tamis.types import type_name

MAX_DECIMAL_DIGITS = 38


def to_engine_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema that DuckDB supports; raise `UnsupportedFeature` where no type of DuckDB can hold a column."""
    return pa.schema([field.with_type(_replace_type(field.type, field.name)) for field in schema])


def cast_to_engine_schema(batch: pa.RecordBatch, schema: pa.Schema) -> list[pa.Array]:
    """Cast the columns of a batch to the types of a schema of `to_engine_schema`."""
    return [_cast_column(column, field) for column, field in zip(batch.columns, schema, strict=True)]


def _cast_column(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise UnsupportedFeature(
            f"the column {field.name.rpartition('.')[2]!r} holds a value that cannot be cast to "
            f"{type_name(field.type)}, the type that queries use ({to_one_line(error)}): leave it out, or "
            "read it with scan().to_arrow()"
        ) from error


def _replace_type(data_type: pa.DataType, column: str) -> pa.DataType:
    if pa.types.is_float16(data_type):
        return pa.float32()
    if data_type == pa.duration("ns"):
        # DuckDB would drop the nanoseconds silently.
        return pa.duration("us")
    if pa.types.is_decimal256(data_type):
        if data_type.precision > MAX_DECIMAL_DIGITS:
            raise UnsupportedFeature(
                f"the column {column.rpartition('.')[2]!r} is a decimal of {data_type.precision} digits, and "
                f"queries support at most {MAX_DECIMAL_DIGITS}: leave it out, or read it with scan().to_arrow()"
            )
        return pa.decimal128(data_type.precision, data_type.scale)
    if pa.types.is_struct(data_type):
        return pa.struct([_replace_field(field, column) for field in data_type])
    if pa.types.is_list(data_type):
        return pa.list_(_replace_field(data_type.value_field, column))
    if pa.types.is_large_list(data_type):
        return pa.large_list(_replace_field(data_type.value_field, column))
    if pa.types.is_fixed_size_list(data_type):
        return pa.list_(_replace_field(data_type.value_field, column), data_type.list_size)
    if pa.types.is_map(data_type):
        return pa.map_(_replace_field(data_type.key_field, column), _replace_field(data_type.item_field, column))
    return data_type


def _replace_field(field: pa.Field, column: str) -> pa.Field:
    return field.with_type(_replace_type(field.type, column))
