"""Types of Arrow that the embedded engine does not take, as others that hold the same values."""

from __future__ import annotations

import pyarrow as pa

from tamis.errors import UnsupportedFeature

MOST_DIGITS = 38


def for_engine(schema: pa.Schema) -> pa.Schema:
    """The columns as the engine takes them; `UnsupportedFeature` where no type of it holds what a column may hold."""
    return pa.schema([field.with_type(_type(field)) for field in schema])


def _type(field: pa.Field) -> pa.DataType:
    if pa.types.is_float16(field.type):
        return pa.float32()
    if pa.types.is_decimal256(field.type):
        if field.type.precision > MOST_DIGITS:
            raise UnsupportedFeature(
                f"the column {field.name.rpartition('.')[2]!r} is a decimal of {field.type.precision} digits, where "
                f"queries compute with up to {MOST_DIGITS}: leave it out, or read it with scan()"
            )
        return pa.decimal128(field.type.precision, field.type.scale)
    return field.type
