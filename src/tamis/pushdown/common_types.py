"""The common type of two types in Spark SQL with ANSI mode on.

| sides                          | UNION, INTERSECT, EXCEPT                  | VALUES                  |
|--------------------------------|-------------------------------------------|-------------------------|
| whole numbers                  | the wider one                             | the same                |
| whole number and DECIMAL(p, s) | a decimal that holds both                 | the same                |
| FLOAT and another number       | DOUBLE                                    | FLOAT, DOUBLE if one is |
| text and a whole number        | BIGINT                                    | none                    |
| text and another number        | DOUBLE                                    | none                    |
| text and BOOLEAN, DATE, …      | the other type                            | none                    |
| DATE, TIMESTAMP_NTZ, TIMESTAMP | the last of both in this order            | the same                |
| arrays, maps, structs          | the common type of each item              | the same                |
"""

from __future__ import annotations

import pyarrow as pa

from tamis import types
from tamis.types import decimal_digits, is_text

MAX_PRECISION = 38

_INTEGER_TYPES = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_TEMPORAL_TYPES = (pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"))


def find_common_type(left: pa.DataType, right: pa.DataType, *, converts_text: bool = True) -> pa.DataType | None:
    """Return the type of a column that holds values of both types; None if they are incompatible.

    Without `converts_text`, as in VALUES, a string has no common type with another type.
    """
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    if pa.types.is_nested(left) or pa.types.is_nested(right):
        return _find_common_nested(left, right, converts_text)
    if is_text(left) or is_text(right):
        other = right if is_text(left) else left
        return _cast_string_beside(other) if converts_text else None
    if types.is_number(left) and types.is_number(right):
        return _find_common_number(left, right, converts_text)
    if left in _TEMPORAL_TYPES and right in _TEMPORAL_TYPES:
        return max(left, right, key=_TEMPORAL_TYPES.index)
    return None


def _cast_string_beside(other: pa.DataType) -> pa.DataType | None:
    """Return the type that a string is cast to when the other side has this type."""
    if pa.types.is_integer(other):
        return types.LONG
    if pa.types.is_interval(other):
        return None
    return types.DOUBLE if types.is_number(other) else other


def _find_common_number(left: pa.DataType, right: pa.DataType, converts_text: bool) -> pa.DataType:
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        is_double = types.DOUBLE in (left, right) or converts_text
        return types.DOUBLE if is_double else pa.float32()
    if left in _INTEGER_TYPES and right in _INTEGER_TYPES:
        return max(left, right, key=_INTEGER_TYPES.index)
    (one, its_scale), (other, other_scale) = _get_precision_and_scale(left), _get_precision_and_scale(right)
    scale = max(its_scale, other_scale)
    whole = max(one - its_scale, other - other_scale)
    # If the precision exceeds the maximum, the scale is cut, never the integer digits.
    excess = max(0, whole + scale - MAX_PRECISION)
    return pa.decimal128(min(whole + scale, MAX_PRECISION), max(0, scale - excess))


def _get_precision_and_scale(data_type: pa.DataType) -> tuple[int, int]:
    """Return the precision and scale of a number as a decimal. Spark uses 20 digits for a BIGINT, which needs 19."""
    return (20, 0) if data_type == types.LONG else decimal_digits(data_type)


def _find_common_nested(left: pa.DataType, right: pa.DataType, converts_text: bool) -> pa.DataType | None:
    def common(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
        return find_common_type(one, other, converts_text=converts_text)

    if pa.types.is_list(left) and pa.types.is_list(right):
        item = common(left.value_type, right.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_map(left) and pa.types.is_map(right):
        key, value = common(left.key_type, right.key_type), common(left.item_type, right.item_type)
        return None if key is None or value is None else pa.map_(key, value)
    if pa.types.is_struct(left) and pa.types.is_struct(right) and left.num_fields == right.num_fields:
        fields = []
        for one, other in zip(left, right, strict=True):
            found = common(one.type, other.type)
            if found is None or one.name.casefold() != other.name.casefold():
                return None
            fields.append(pa.field(one.name, found))
        return pa.struct(fields)
    return None
