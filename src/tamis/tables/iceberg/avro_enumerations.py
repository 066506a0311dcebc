"""Avro enumerations: a record stores the index of a symbol in the schema's list."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tamis import types
from tamis.errors import CorruptFile, format_count
from tamis.tables.iceberg.avro_schema import unwrap_nullable


def decode_enumerations(table: pa.Table, schema: Any, location: str) -> pa.Table:
    """Replace the enumeration indices in decoded records of a resolved schema by their symbols."""
    if not _has_enumeration(schema):
        return table
    columns = [
        _decode_symbols(column.combine_chunks(), field["type"], location)
        for column, field in zip(table.columns, schema["fields"], strict=True)
    ]
    return pa.table(columns, names=table.column_names)


def _has_enumeration(schema: Any) -> bool:
    inner, _ = unwrap_nullable(schema)
    if isinstance(inner, list):
        return False  # a union of several types is not a table column
    match inner["type"]:
        case "enum":
            return True
        case "record":
            return any(_has_enumeration(field["type"]) for field in inner["fields"])
        case "array":
            return _has_enumeration(inner["items"])
        case "map":
            return _has_enumeration(inner["values"])
        case _:
            return False


def _decode_symbols(values: pa.Array, schema: Any, location: str) -> pa.Array:
    if not _has_enumeration(schema):
        return values
    inner, _ = unwrap_nullable(schema)
    match inner["type"]:
        case "enum":
            return _take_symbols(values, inner["symbols"], location)
        case "record":
            children = [
                _decode_symbols(values.field(index), field["type"], location)
                for index, field in enumerate(inner["fields"])
            ]
            names = [field.name for field in values.type]
            return pa.StructArray.from_arrays(children, names, mask=values.is_null())
        case "array":
            child = _decode_symbols(values.values, inner["items"], location)
        case _:
            keys, items = values.values.field(0), values.values.field(1)
            child = pa.StructArray.from_arrays(
                [keys, _decode_symbols(items, inner["values"], location)], ["key", "value"]
            )
    kind = pa.large_list(child.type) if pa.types.is_large_list(values.type) else pa.list_(child.type)
    validity, offsets = values.buffers()[:2]
    return pa.Array.from_buffers(
        kind, len(values), [validity, offsets], null_count=values.null_count, offset=values.offset, children=[child]
    )


def _take_symbols(indices: pa.Array, symbols: list[str], location: str) -> pa.Array:
    try:
        return pa.array(symbols, types.STRING).take(indices)
    except pa.ArrowIndexError as error:
        raise CorruptFile(
            f"'{location}' has an enumeration value outside its {format_count(len(symbols), 'symbol')}: the file is damaged"
        ) from error
