"""Avro schemas: resolving named types, rewriting a schema for polars, and converting it to Arrow types.

The bytes of a record do not contain types, so a schema may be replaced by any other schema with the same encoding:

| in the file                  | for polars                             |
|------------------------------|----------------------------------------|
| a reference to a named type  | the type                               |
| a map                        | an array of records `key`, `value`     |
| null                         | a record without fields                |
| a logical type               | its underlying type                    |
| an enumeration               | an int, the index of its symbol        |

polars does not support unions other than null with one type. Arrays of elements without bytes are not passed to it,
because a damaged file may claim any number of elements.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from typing import Any

import pyarrow as pa

from tamis import types
from tamis.parquet.footer.field_names import FIELD_ID

_MAX_DEPTH = 64

_PLAIN: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": types.BOOLEAN,
    "int": pa.int32(),
    "long": types.LONG,
    "float": pa.float32(),
    "double": types.DOUBLE,
    "bytes": types.BINARY,
    "string": types.STRING,
}
PRIMITIVES = tuple(_PLAIN)

_LOGICAL: dict[tuple[str, str | None], pa.DataType] = {
    ("int", "date"): types.DATE,
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): types.TIME,
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
_TIMESTAMP_UNITS: dict[tuple[str, str | None], str] = {
    ("long", "timestamp-millis"): "ms",
    ("long", "timestamp-micros"): "us",
    ("long", "timestamp-nanos"): "ns",
}


def resolve(schema: Any, named: dict[str, Any] | None = None, depth: int = 0) -> Any:
    """Return the schema with every type as an object or a list, and references to `named` types replaced by these.

    Raise a ValueError for an invalid schema, or a type that contains itself.
    """
    named = {} if named is None else named
    if depth > _MAX_DEPTH:
        raise ValueError(f"types are nested more than {_MAX_DEPTH} levels deep, or contain themselves")
    if isinstance(schema, str):
        if schema in PRIMITIVES:
            return {"type": schema}
        if schema in named:
            return resolve(named[schema], named, depth + 1)
        raise ValueError(f"unknown type {schema!r}")
    if isinstance(schema, list):
        return [resolve(each, named, depth + 1) for each in schema]
    if not isinstance(schema, Mapping) or "type" not in schema:
        raise ValueError(f"invalid type {str(schema)[:80]!r}")
    kind = schema["type"]
    if not isinstance(kind, str) or kind not in (*PRIMITIVES, "record", "array", "map", "fixed", "enum"):
        return resolve(kind, named, depth + 1)
    if "name" in schema:
        name = str(schema["name"])
        space = schema.get("namespace")
        named[name] = named[name.rsplit(".", 1)[-1]] = schema
        if space:
            named[f"{space}.{name}"] = schema
    found = dict(schema)
    try:
        if kind == "record":
            found["fields"] = [
                {**each, "name": str(each["name"]), "type": resolve(each["type"], named, depth + 1)}
                for each in schema["fields"]
            ]
        elif kind == "array":
            found["items"] = resolve(schema["items"], named, depth + 1)
        elif kind == "map":
            found["values"] = resolve(schema["values"], named, depth + 1)
        elif kind == "fixed" and (not isinstance(schema["size"], int) or schema["size"] < 0):
            raise ValueError(f"invalid size of a fixed type: {schema['size']!r}")
        elif kind == "enum" and not all(isinstance(each, str) for each in list(schema["symbols"])):
            raise ValueError(f"invalid symbols of an enumeration: {str(schema['symbols'])[:80]!r}")
    except (KeyError, TypeError) as error:
        raise ValueError(f"a {kind} without {error}") from error
    return found


def unwrap_nullable(schema: Any) -> tuple[Any, bool]:
    """Return the type besides null in a union of at most one type and null, and whether it is nullable.

    Other types are returned unchanged.
    """
    if not isinstance(schema, list):
        return schema, False
    others = [each for each in schema if _get_kind(each) != "null"]
    return (others[0], len(schema) == 2) if len(others) == 1 and len(schema) <= 2 else (schema, True)


def _get_kind(schema: Any) -> str:
    return "union" if isinstance(schema, list) else str(schema["type"])


class _UnsupportedByPolars(ValueError):
    """A type that polars does not support."""


def to_polars_schema(schema: Any) -> str | None:
    """Return the JSON of a schema with the same encoding as a resolved schema; None if polars cannot support it."""
    numbers = count()
    try:
        return json.dumps(_rewrite_for_polars(schema, numbers))
    except _UnsupportedByPolars:
        return None


def _is_empty(schema: Any) -> bool:
    if isinstance(schema, list):
        return False
    match schema["type"]:
        case "null":
            return True
        case "record":
            return all(_is_empty(each["type"]) for each in schema["fields"])
        case "fixed":
            return bool(schema["size"] == 0)
        case _:
            return False


def _rewrite_for_polars(schema: Any, numbers: count[int]) -> Any:
    if isinstance(schema, list):
        inner, _ = unwrap_nullable(schema)
        if isinstance(inner, list):
            raise _UnsupportedByPolars
        other = _rewrite_for_polars(inner, numbers)
        return ["null", other] if _get_kind(schema[0]) == "null" else [other, "null"]
    kind = schema["type"]
    name = f"t{next(numbers)}"
    if kind == "record":
        fields = [
            {"name": each["name"], "type": _rewrite_for_polars(each["type"], numbers)} for each in schema["fields"]
        ]
        return {"type": "record", "name": name, "fields": fields}
    if kind == "array":
        if _is_empty(schema["items"]):
            # An array of such elements may claim any length without having any bytes, and polars would allocate it.
            raise _UnsupportedByPolars
        return {"type": "array", "items": _rewrite_for_polars(schema["items"], numbers)}
    if kind == "map":
        fields = [
            {"name": "key", "type": "string"},
            {"name": "value", "type": _rewrite_for_polars(schema["values"], numbers)},
        ]
        return {"type": "array", "items": {"type": "record", "name": name, "fields": fields}}
    if kind == "fixed":
        return {"type": "fixed", "size": schema["size"], "name": name}
    if kind == "null":
        return {"type": "record", "name": name, "fields": []}
    return "int" if kind == "enum" else kind


# --- Conversion to Arrow ----------------------------------------------------------------------------------------------


def to_physical_type(schema: Any) -> pa.DataType:
    """Return the Arrow type as which records of a resolved schema are decoded."""
    inner, _ = unwrap_nullable(schema)
    if isinstance(inner, list):
        return pa.struct([(f"member{index}", to_physical_type(each)) for index, each in enumerate(inner)])
    match inner["type"]:
        case "record":
            return pa.struct([pa.field(each["name"], to_physical_type(each["type"])) for each in inner["fields"]])
        case "array":
            return pa.large_list(to_physical_type(inner["items"]))
        case "map":
            return pa.large_list(pa.struct([("key", types.STRING), ("value", to_physical_type(inner["values"]))]))
        case "fixed":
            return types.BINARY
        case "enum":
            return pa.int32()
        case kind:
            return _PLAIN[kind]


def arrow_type(schema: Any) -> pa.DataType:
    """Return the Arrow type of a resolved schema, with logical types; raise a ValueError if it has none."""
    inner, _ = unwrap_nullable(schema)
    if _get_kind(inner) == "union":
        raise ValueError("a union of several types cannot be a table column")
    match inner["type"]:
        case "record":
            return pa.struct([_to_arrow_field(each) for each in inner["fields"]])
        case "array" if inner.get("logicalType") == "map":
            key, value = inner["items"]["fields"]
            return pa.map_(_to_arrow_field(key).with_nullable(False), _to_arrow_field(value))
        case "array":
            return pa.list_(_make_field("element", inner["items"], inner.get("element-id")))
        case "map":
            key = pa.field("key", types.STRING, nullable=False, metadata=_make_id_metadata(inner.get("key-id")))
            return pa.map_(key, _make_field("value", inner["values"], inner.get("value-id")))
        case "fixed":
            return _convert_logical_type(inner) or pa.binary(inner["size"])
        case "enum":
            return types.STRING
        case kind:
            return _convert_logical_type(inner) or _PLAIN[kind]


def _to_arrow_field(given: Mapping[str, Any]) -> pa.Field:
    return _make_field(given["name"], given["type"], given.get("field-id"))


def _make_field(name: str, schema: Any, field_id: object) -> pa.Field:
    return pa.field(name, arrow_type(schema), unwrap_nullable(schema)[1], metadata=_make_id_metadata(field_id))


def _make_id_metadata(field_id: object) -> dict[bytes, bytes] | None:
    return None if field_id is None else {FIELD_ID: str(field_id).encode()}


def _convert_logical_type(schema: Mapping[str, Any]) -> pa.DataType | None:
    kind = (schema["type"], schema.get("logicalType"))
    if kind in (("bytes", "decimal"), ("fixed", "decimal")):
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if kind in _TIMESTAMP_UNITS:
        return pa.timestamp(_TIMESTAMP_UNITS[kind], "UTC" if schema.get("adjust-to-utc", True) else None)
    return _LOGICAL.get(kind)
