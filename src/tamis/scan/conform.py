"""Batches of a file in the shape of the table: names, order, types, columns that the file does not have."""

from __future__ import annotations

import pyarrow as pa

from tamis.errors import CorruptFile
from tamis.types import type_name


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


def find_name(names: list[str], wanted: str) -> int | None:
    """Where a file spells a column of the table: exactly, or with other case where that is the only one."""
    if wanted in names:
        return names.index(wanted)
    folded = wanted.casefold()
    matches = [index for index, name in enumerate(names) if name.casefold() == folded]
    return matches[0] if len(matches) == 1 else None


def find_path(schema: pa.Schema, path: tuple[str, ...]) -> tuple[str, ...] | None:
    """The path of a file's schema that a path of the table means, or None where the file does not have it."""
    fields = list(schema)
    found: list[str] = []
    for part in path:
        index = find_name([field.name for field in fields], part)
        if index is None:
            return None
        found.append(fields[index].name)
        inner = fields[index].type
        fields = list(inner) if pa.types.is_struct(inner) else []
    return tuple(found)


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
    try:
        return values.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise CorruptFile(
            f"column {name!r} of {place} is a {type_name(values.type)} that does not fit the table's "
            f"{type_name(target)}: {error}"
        ) from error
