"""The conversion of Iceberg schemas, as JSON in the table metadata, to Arrow.

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
_MAX_FIXED_BYTES = 2**20
"""The longest supported `fixed` values: Arrow allocates this many bytes for each value, NULL or not."""
_MAX_DEPTH = 100
_UNSUPPORTED = ("variant", "geometry", "geography")


def check_schema(schema: Any, location: str) -> None:
    """Raise if the JSON of a schema is malformed: its fields, their ids and names, or its nesting depth.

    The types themselves are checked when they are converted.
    """
    pending = [(schema, 0)]
    while pending:
        kind, depth = pending.pop()
        if depth > _MAX_DEPTH:
            raise CorruptFile(f"'{location}' has a schema whose types are nested more than {_MAX_DEPTH} levels deep")
        if isinstance(kind, str):
            continue
        if not isinstance(kind, dict):
            raise CorruptFile(f"'{location}' has a schema with an invalid type: {str(kind)[:80]!r}")
        if kind.get("type", "struct") == "struct":
            fields = kind.get("fields")
            if not isinstance(fields, list) or not all(map(_is_field, fields)):
                raise CorruptFile(f"'{location}' has a schema with invalid struct fields: {str(fields)[:80]!r}")
            pending += [(field["type"], depth + 1) for field in fields]
        else:
            pending += [(kind[part], depth + 1) for part in ("element", "key", "value") if part in kind]


def _is_field(given: Any) -> bool:
    if not isinstance(given, dict) or "type" not in given:
        return False
    number = given.get("id")
    return isinstance(number, int) and not isinstance(number, bool) and isinstance(given.get("name"), str)


def arrow_schema(schema: Json, location: str = "the table") -> pa.Schema:
    """Convert a schema; `location` names the table in messages."""
    return pa.schema([arrow_field(each, location) for each in schema["fields"]])


def arrow_field(given: Json, location: str = "the table") -> pa.Field:
    """Convert a field of a schema or of a struct."""
    try:
        name, kind, required = given["name"], given["type"], bool(given["required"])
    except (KeyError, TypeError) as error:
        raise CorruptFile(f"the schema of {location} has an invalid field: {str(given)[:80]!r}") from error
    return pa.field(name, arrow_type(kind, name, location), nullable=not required)


def arrow_type(given: Any, name: str = "", location: str = "the table") -> pa.DataType:
    """Convert a type; `name` is its column, for messages."""
    if isinstance(given, str):
        return _convert_primitive(given, name, location)
    try:
        match given["type"]:
            case "struct":
                return pa.struct([arrow_field(each, location) for each in given["fields"]])
            case "list":
                element = arrow_type(given["element"], f"{name}.element", location)
                return pa.list_(pa.field("element", element, nullable=not given["element-required"]))
            case "map":
                value = arrow_type(given["value"], f"{name}.value", location)
                return pa.map_(
                    pa.field("key", arrow_type(given["key"], f"{name}.key", location), nullable=False),
                    pa.field("value", value, nullable=not given["value-required"]),
                )
            case other:
                raise UnsupportedFeature(f"column '{name}' of {location} has the unsupported type {other!r}")
    except (KeyError, TypeError) as error:
        raise CorruptFile(f"column '{name}' of {location} has an invalid type: {str(given)[:80]!r}") from error


def _convert_primitive(given: str, name: str, location: str) -> pa.DataType:
    text = given.strip().lower()
    if text in _PRIMITIVES:
        return _PRIMITIVES[text]
    if match := _DECIMAL.fullmatch(text):
        precision, scale = int(match[1]), int(match[2])
        if 1 <= precision <= 38 and scale <= precision:
            return pa.decimal128(precision, scale)
    if match := _FIXED.fullmatch(text):
        length = int(match[1])
        return pa.binary(length) if length <= _MAX_FIXED_BYTES else types.UnsupportedType(text)
    if text.partition("(")[0] in _UNSUPPORTED:
        return types.UnsupportedType(given)
    raise UnsupportedFeature(f"column '{name}' of {location} has the type {given!r}, which is not an Iceberg type")
