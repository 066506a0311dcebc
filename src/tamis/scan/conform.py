"""Batches of a file in the shape of the table: names, order, types, columns that the file does not have."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import CorruptFile, one_line
from tamis.parquet.matching import can_convert, find_name, misfit


def conform_batch(
    batch: pa.RecordBatch, schema: pa.Schema, constants: dict[str, pa.Scalar], place: str
) -> pa.RecordBatch:
    """The batch with exactly the columns of a schema: constants where given, else the file's, else NULL."""
    arrays = []
    for field in schema:
        if field.name in constants:
            arrays.append(pa.repeat(constants[field.name], batch.num_rows))
            continue
        index = find_name(batch.schema.names, field.name)
        values = pa.nulls(batch.num_rows, field.type) if index is None else batch.column(index)
        arrays.append(_conform(values, field.type, place, field.name))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _loses_digits(values: pa.Array, cast: pa.Array) -> bool:
    """Whether Arrow rounded without a word, as it does from wider floats to narrower ones."""
    if not (pa.types.is_floating(values.type) and pa.types.is_floating(cast.type)):
        return False
    if cast.type.bit_width >= values.type.bit_width:
        return False
    changed = pc.and_(pc.not_equal(cast.cast(values.type), values), pc.invert(pc.is_nan(values)))
    return bool(pc.any(changed, min_count=0).as_py())


def _conform(values: pa.Array, target: pa.DataType, place: str, name: str) -> pa.Array:
    if values.type == target:
        return values
    if pa.types.is_struct(target) and pa.types.is_struct(values.type):
        names = [child.name for child in values.type]
        children = []
        for child in target:
            index = find_name(names, child.name)
            inner = pa.nulls(len(values), child.type) if index is None else values.field(index)
            children.append(_conform(inner, child.type, place, f"{name}.{child.name}"))
        return pa.StructArray.from_arrays(children, fields=list(target), mask=values.is_null())
    if not can_convert(target, values.type):
        raise CorruptFile(misfit(name, place, target, values.type))
    try:
        cast = values.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise CorruptFile(f"{misfit(name, place, target, values.type)} ({one_line(error)})") from error
    if _loses_digits(values, cast):
        raise CorruptFile(f"{misfit(name, place, target, values.type)} (a value would be rounded)")
    return cast
