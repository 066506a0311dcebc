"""Enumerations of Avro: a record holds the place of a symbol among those of the schema, and means the symbol."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tamis import types
from tamis.errors import CorruptFile, counted
from tamis.tables.iceberg.avro_schema import nullable


def with_symbols(table: pa.Table, schema: Any, place: str) -> pa.Table:
    """Records of a resolved schema, as they are decoded, with texts in the place of their enumerations."""
    if not _has_enumeration(schema):
        return table
    columns = [
        _symbols(column.combine_chunks(), field["type"], place)
        for column, field in zip(table.columns, schema["fields"], strict=True)
    ]
    return pa.table(columns, names=table.column_names)


def _has_enumeration(schema: Any) -> bool:
    inner, _ = nullable(schema)
    if isinstance(inner, list):
        return False  # it is no column of a table, whatever is in it
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


def _symbols(values: pa.Array, schema: Any, place: str) -> pa.Array:
    if not _has_enumeration(schema):
        return values
    inner, _ = nullable(schema)
    match inner["type"]:
        case "enum":
            return _taken(values, inner["symbols"], place)
        case "record":
            children = [
                _symbols(values.field(index), field["type"], place) for index, field in enumerate(inner["fields"])
            ]
            names = [field.name for field in values.type]
            return pa.StructArray.from_arrays(children, names, mask=values.is_null())
        case "array":
            child = _symbols(values.values, inner["items"], place)
        case _:
            keys, items = values.values.field(0), values.values.field(1)
            child = pa.StructArray.from_arrays([keys, _symbols(items, inner["values"], place)], ["key", "value"])
    kind = pa.large_list(child.type) if pa.types.is_large_list(values.type) else pa.list_(child.type)
    validity, offsets = values.buffers()[:2]
    return pa.Array.from_buffers(
        kind, len(values), [validity, offsets], null_count=values.null_count, offset=values.offset, children=[child]
    )


def _taken(places: pa.Array, symbols: list[str], place: str) -> pa.Array:
    try:
        return pa.array(symbols, types.STRING).take(places)
    except pa.ArrowIndexError as error:
        raise CorruptFile(
            f"'{place}' has an enumeration of {counted(len(symbols), 'symbol')}, and a value that is none of them: it "
            "is damaged"
        ) from error
