"""Values that formats store as plainer types than the table has: times as numbers, decimals as bytes, maps as lists."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tamis import types
from tamis.errors import CorruptFile, one_line

_DECIMAL_BYTES = 16


def meant_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch in which plain numbers are times wherever the columns of a schema, found by their names, are.

    ORC has no type for a time of the day.
    """
    wanted = {each.name: each.type for each in schema}
    fields = [
        each.with_type(_meant(each.type, wanted[each.name])) if each.name in wanted else each for each in batch.schema
    ]
    if all(each.type == before.type for each, before in zip(fields, batch.schema, strict=True)):
        return batch
    # The types differ in leaves of the same width only.
    arrays = [array.view(each.type) for array, each in zip(batch.columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _meant(own: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    if pa.types.is_time(wanted) and own == types.LONG:
        return types.TIME
    if pa.types.is_struct(own) and pa.types.is_struct(wanted):
        known = {each.name: each.type for each in wanted}
        return pa.struct([each.with_type(_meant(each.type, known.get(each.name, each.type))) for each in own])
    if pa.types.is_list(own) and pa.types.is_list(wanted):
        return pa.list_(own.value_field.with_type(_meant(own.value_type, wanted.value_type)))
    if pa.types.is_map(own) and pa.types.is_map(wanted):
        key, item = own.key_field, own.item_field
        return pa.map_(
            key.with_type(_meant(key.type, wanted.key_type)), item.with_type(_meant(item.type, wanted.item_type))
        )
    return own


def as_type(values: pa.Array, target: pa.DataType, place: str) -> pa.Array:
    """Values as Avro stores them, in the type that they mean; the fields of structs are in the same order."""
    if values.type == target:
        return values
    if pa.types.is_struct(target) and pa.types.is_struct(values.type):
        children = [as_type(values.field(index), each.type, place) for index, each in enumerate(target)]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=values.is_null())
    if pa.types.is_list(target) or pa.types.is_map(target):
        return _as_list(values, target, place)
    if pa.types.is_decimal(target):
        return _as_decimal(values, target, place)
    if pa.types.is_null(target):
        return pa.nulls(len(values))
    if values.type in (types.LONG, pa.int32()) and pa.types.is_temporal(target):
        return values.view(target)
    try:
        return values.cast(target)
    except pa.ArrowException as error:
        raise CorruptFile(f"'{place}' has values that are no {target}: {one_line(error)}") from error


def _as_list(values: pa.Array, target: pa.DataType, place: str) -> pa.Array:
    if pa.types.is_large_list(values.type):
        # Few enough to have been decoded, so that smaller offsets hold them.
        values = values.cast(pa.list_(values.type.value_field))
    inner = target.field(0).type if pa.types.is_map(target) else target.value_type
    child = as_type(values.values, inner, place)
    validity, offsets = values.buffers()[:2]
    return pa.Array.from_buffers(
        target, len(values), [validity, offsets], null_count=values.null_count, offset=values.offset, children=[child]
    )


def _as_decimal(values: pa.Array, target: pa.DataType, place: str) -> pa.Array:
    """Numbers of any width, the highest byte first."""
    given = values.cast(pa.large_binary())
    lengths = np.diff(np.frombuffer(given.buffers()[1], np.int64, len(given) + 1, given.offset * 8))
    starts = np.frombuffer(given.buffers()[1], np.int64, len(given), given.offset * 8)
    data = np.frombuffer(given.buffers()[2] or b"", np.uint8)
    if len(lengths) and int(lengths.max()) > _DECIMAL_BYTES:
        raise CorruptFile(f"'{place}' has a decimal of {lengths.max()} bytes, where {_DECIMAL_BYTES} are the most")
    whole = np.zeros((len(given), _DECIMAL_BYTES), np.uint8)
    # As many steps as there are lengths, at most 16.
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
        raise CorruptFile(f"'{place}' has a decimal that does not fit into {target}: {error}") from error
