"""Iceberg's types in Arrow: the schema of a table from the JSON of its metadata.

| Iceberg                                   | Arrow                                                 |
|-------------------------------------------|-------------------------------------------------------|
| boolean, int, long, float, double         | bool, int32, int64, float, double                     |
| decimal(p, s)                             | decimal128(p, s)                                      |
| date, time                                | date32, time64[us]                                    |
| timestamp, timestamptz                    | timestamp[us], timestamp[us, UTC]                     |
| timestamp_ns, timestamptz_ns              | timestamp[ns], timestamp[ns, UTC]                     |
| string, binary                            | string, binary                                        |
| uuid, fixed[n]                            | fixed_size_binary[16], fixed_size_binary[n]           |
| unknown                                   | null                                                  |
| variant, geometry, geography              | `types.NotRead`                                       |
| struct, list, map                         | struct, list<element>, map                            |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tamis import types
from tamis.errors import CorruptFile, UnsupportedFeature

Json = Mapping[str, Any]

_PRIMITIVES: dict[str, pa.DataType] = {
    "boolean": types.BOOLEAN,
    "int": pa.int32(),
    "long": types.LONG,
    "float": pa.float32(),
    "double": types.DOUBLE,
    "date": types.DATE,
    "time": types.TIME,
    "timestamp": types.TIMESTAMP_NTZ,
    "timestamptz": types.TIMESTAMP,
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "string": types.STRING,
    "binary": types.BINARY,
    "uuid": pa.binary(16),
    "unknown": types.NULL,
}

_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_FIXED = re.compile(r"fixed\[\s*(\d{1,10})\s*\]")
_MOST_BYTES = 2**20
"""The longest values of fixed length that are read: Arrow keeps so many bytes for each, NULL or not."""
_MOST_DEPTH = 100
_NOT_READ = ("variant", "geometry", "geography")


def check_schema(schema: Any, place: str) -> None:
    """An error where the JSON of a schema is not made as one: fields, their ids and names, and a depth that is sane.

    What types there are is told when they are wanted.
    """
    waiting = [(schema, 0)]
    while waiting:
        kind, depth = waiting.pop()
        if depth > _MOST_DEPTH:
            raise CorruptFile(f"'{place}' has a schema of types that are nested more than {_MOST_DEPTH} deep")
        if isinstance(kind, str):
            continue
        if not isinstance(kind, dict):
            raise CorruptFile(f"'{place}' has a schema with a type that is none: {str(kind)[:80]!r}")
        if kind.get("type", "struct") == "struct":
            fields = kind.get("fields")
            if not isinstance(fields, list) or not all(map(_is_field, fields)):
                raise CorruptFile(f"'{place}' has a schema with a struct whose fields are none: {str(fields)[:80]!r}")
            waiting += [(field["type"], depth + 1) for field in fields]
        else:
            waiting += [(kind[part], depth + 1) for part in ("element", "key", "value") if part in kind]


def _is_field(given: Any) -> bool:
    if not isinstance(given, dict) or "type" not in given:
        return False
    number = given.get("id")
    return isinstance(number, int) and not isinstance(number, bool) and isinstance(given.get("name"), str)


def arrow_schema(schema: Json, place: str = "the table") -> pa.Schema:
    """The columns of a table whose schema is this JSON; `place` names the table in messages."""
    return pa.schema([arrow_field(each, place) for each in schema["fields"]])


def arrow_field(given: Json, place: str = "the table") -> pa.Field:
    """A field of a struct."""
    try:
        name, kind, required = given["name"], given["type"], bool(given["required"])
    except (KeyError, TypeError) as error:
        raise CorruptFile(f"the schema of {place} has a field that is none: {str(given)[:80]!r}") from error
    return pa.field(name, arrow_type(kind, name, place), nullable=not required)


def arrow_type(given: Any, name: str = "", place: str = "the table") -> pa.DataType:
    """The type that a type of the metadata is, `name` being the column that has it."""
    if isinstance(given, str):
        return _primitive(given, name, place)
    try:
        match given["type"]:
            case "struct":
                return pa.struct([arrow_field(each, place) for each in given["fields"]])
            case "list":
                element = arrow_type(given["element"], f"{name}.element", place)
                return pa.list_(pa.field("element", element, nullable=not given["element-required"]))
            case "map":
                value = arrow_type(given["value"], f"{name}.value", place)
                return pa.map_(
                    pa.field("key", arrow_type(given["key"], f"{name}.key", place), nullable=False),
                    pa.field("value", value, nullable=not given["value-required"]),
                )
            case other:
                raise UnsupportedFeature(f"column '{name}' of {place} has the unknown type {other!r}")
    except (KeyError, TypeError) as error:
        raise CorruptFile(f"column '{name}' of {place} has no type that is one: {str(given)[:80]!r}") from error


def _primitive(given: str, name: str, place: str) -> pa.DataType:
    text = given.strip().lower()
    if text in _PRIMITIVES:
        return _PRIMITIVES[text]
    if match := _DECIMAL.fullmatch(text):
        precision, scale = int(match[1]), int(match[2])
        if 1 <= precision <= 38 and scale <= precision:
            return pa.decimal128(precision, scale)
    if match := _FIXED.fullmatch(text):
        length = int(match[1])
        return pa.binary(length) if length <= _MOST_BYTES else types.NotRead(text)
    if text.partition("(")[0] in _NOT_READ:
        return types.NotRead(given)
    raise UnsupportedFeature(f"column '{name}' of {place} is {given!r}, which is no type of Iceberg")
