"""Conversion of values that file formats store in simpler types: times as numbers, decimals as bytes, maps as lists."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tamis import types
from tamis.errors import CorruptFile, to_one_line

_DECIMAL_BYTES = 16


def restore_time_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert numbers in a batch to times where a schema has times, matching columns by name.

    ORC has no type for the time of day.
    """
    wanted = {each.name: each.type for each in schema}
    fields = [
        each.with_type(_restore_times(each.type, wanted[each.name])) if each.name in wanted else each
        for each in batch.schema
    ]
    if all(each.type == before.type for each, before in zip(fields, batch.schema, strict=True)):
        return batch
    # The types differ only in leaves of equal width.
    arrays = [array.view(each.type) for array, each in zip(batch.columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _restore_times(own: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    if pa.types.is_time(wanted) and own == types.LONG:
        return types.TIME
    if pa.types.is_struct(own) and pa.types.is_struct(wanted):
        known = {each.name: each.type for each in wanted}
        return pa.struct([each.with_type(_restore_times(each.type, known.get(each.name, each.type))) for each in own])
    if pa.types.is_list(own) and pa.types.is_list(wanted):
        return pa.list_(own.value_field.with_type(_restore_times(own.value_type, wanted.value_type)))
    if pa.types.is_map(own) and pa.types.is_map(wanted):
        key, item = own.key_field, own.item_field
        return pa.map_(
            key.with_type(_restore_times(key.type, wanted.key_type)),
            item.with_type(_restore_times(item.type, wanted.item_type)),
        )
    return own


def as_type(values: pa.Array, target: pa.DataType, location: str) -> pa.Array:
    """Convert values from Avro's physical types to a logical type; the fields of structs are in the same order."""
    if values.type == target:
        return values
    if pa.types.is_struct(target) and pa.types.is_struct(values.type):
        children = [as_type(values.field(index), each.type, location) for index, each in enumerate(target)]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=values.is_null())
    if pa.types.is_list(target) or pa.types.is_map(target):
        return _as_list(values, target, location)
    if pa.types.is_decimal(target):
        return _as_decimal(values, target, location)
    if pa.types.is_null(target):
        return pa.nulls(len(values))
    if values.type in (types.LONG, pa.int32()) and pa.types.is_temporal(target):
        return values.view(target)
    try:
        return values.cast(target)
    except pa.ArrowException as error:
        raise CorruptFile(f"'{location}' has values that are not valid as {target}: {to_one_line(error)}") from error


def _as_list(values: pa.Array, target: pa.DataType, location: str) -> pa.Array:
    if pa.types.is_large_list(values.type):
        # Decoded values are few enough for 32-bit offsets.
        values = values.cast(pa.list_(values.type.value_field))
    inner = target.field(0).type if pa.types.is_map(target) else target.value_type
    child = as_type(values.values, inner, location)
    validity, offsets = values.buffers()[:2]
    return pa.Array.from_buffers(
        target, len(values), [validity, offsets], null_count=values.null_count, offset=values.offset, children=[child]
    )


def _as_decimal(values: pa.Array, target: pa.DataType, location: str) -> pa.Array:
    """Decode big-endian numbers of any width."""
    given = values.cast(pa.large_binary())
    lengths = np.diff(np.frombuffer(given.buffers()[1], np.int64, len(given) + 1, given.offset * 8))
    starts = np.frombuffer(given.buffers()[1], np.int64, len(given), given.offset * 8)
    data = np.frombuffer(given.buffers()[2] or b"", np.uint8)
    if len(lengths) and int(lengths.max()) > _DECIMAL_BYTES:
        raise CorruptFile(f"'{location}' has a decimal of {lengths.max()} bytes, expected at most {_DECIMAL_BYTES}")
    whole = np.zeros((len(given), _DECIMAL_BYTES), np.uint8)
    # There is one step per length, at most 16.
    for length in np.unique(lengths).tolist():
        if length:
            own = np.flatnonzero(lengths == length)
            digits = data[starts[own][:, None] + np.arange(length)]
            whole[own] = np.where(digits[:, :1] >= 128, np.uint8(255), np.uint8(0))
            whole[own, :length] = digits[:, ::-1]
    buffer = pa.py_buffer(np.ascontiguousarray(whole))
    mask = pa.array(np.asarray(values.is_valid())).buffers()[1]
    wide = pa.Array.from_buffers(pa.decimal128(38, target.scale), len(given), [mask, buffer])
    try:
        return wide.cast(target)
    except pa.ArrowInvalid as error:
        raise CorruptFile(f"'{location}' has a decimal that does not fit into {target}: {error}") from error
