"""Schemas of Avro: resolved, put into words that polars understands, and the Arrow types that they mean.

The bytes of a record do not tell their types, so a schema may be replaced by any other that lays out the same bytes:

| in the file                  | for polars                             |
|------------------------------|----------------------------------------|
| a name of a type seen before | the type                               |
| a map                        | an array of records `key`, `value`     |
| null                         | a record without fields                |
| a logical type               | the type below it                      |
| an enumeration               | an int, the place of its symbol        |

What remains are unions of anything else than null and one type, which polars does not have, and arrays of what takes no
bytes, of which a damaged file may claim any number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from typing import Any

import pyarrow as pa

from tamis import types
from tamis.parquet.field_names import FIELD_ID

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")

_MOST_DEPTH = 64

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


def resolve(schema: Any) -> Any:
    """The schema with every type as an object or a list, and the types in the place of their names.

    A ValueError where it is none, or where a type holds itself.
    """
    return _resolve(schema, {}, 0)


def _resolve(schema: Any, named: dict[str, Any], depth: int) -> Any:
    if depth > _MOST_DEPTH:
        raise ValueError(f"its types are nested more than {_MOST_DEPTH} deep, or hold themselves")
    if isinstance(schema, str):
        if schema in PRIMITIVES:
            return {"type": schema}
        if schema in named:
            return _resolve(named[schema], named, depth + 1)
        raise ValueError(f"there is no type {schema!r}")
    if isinstance(schema, list):
        return [_resolve(each, named, depth + 1) for each in schema]
    if not isinstance(schema, Mapping) or "type" not in schema:
        raise ValueError(f"{str(schema)[:80]!r} is no type")
    kind = schema["type"]
    if not isinstance(kind, str):
        return _resolve(kind, named, depth + 1)
    if kind not in (*PRIMITIVES, "record", "array", "map", "fixed", "enum"):
        return _resolve(kind, named, depth + 1)
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
                {**each, "name": str(each["name"]), "type": _resolve(each["type"], named, depth + 1)}
                for each in schema["fields"]
            ]
        elif kind == "array":
            found["items"] = _resolve(schema["items"], named, depth + 1)
        elif kind == "map":
            found["values"] = _resolve(schema["values"], named, depth + 1)
        elif kind == "fixed" and (not isinstance(schema["size"], int) or schema["size"] < 0):
            raise ValueError(f"a fixed type has a size, not {schema['size']!r}")
        elif kind == "enum" and not all(isinstance(each, str) for each in list(schema["symbols"])):
            raise ValueError(f"an enumeration has symbols, not {str(schema['symbols'])[:80]!r}")
    except (KeyError, TypeError) as error:
        raise ValueError(f"a {kind} without {error}") from error
    return found


def nullable(schema: Any) -> tuple[Any, bool]:
    """What a union of one type, and maybe null, is besides null; another type is itself."""
    if not isinstance(schema, list):
        return schema, False
    others = [each for each in schema if _kind(each) != "null"]
    return (others[0], len(schema) == 2) if len(others) == 1 and len(schema) <= 2 else (schema, True)


def _kind(schema: Any) -> str:
    return "union" if isinstance(schema, list) else str(schema["type"])


class _Refused(ValueError):
    """A type that polars does not have."""


def text_for_polars(schema: Any) -> str | None:
    """The JSON of a resolved schema that lays out the same bytes; None where polars has no such types."""
    numbers = count()
    try:
        return json.dumps(_for_polars(schema, numbers))
    except _Refused:
        return None


def _takes_no_bytes(schema: Any) -> bool:
    if isinstance(schema, list):
        return False
    match schema["type"]:
        case "null":
            return True
        case "record":
            return all(_takes_no_bytes(each["type"]) for each in schema["fields"])
        case "fixed":
            return bool(schema["size"] == 0)
        case _:
            return False


def _for_polars(schema: Any, numbers: count[int]) -> Any:
    if isinstance(schema, list):
        inner, _ = nullable(schema)
        if isinstance(inner, list):
            raise _Refused
        other = _for_polars(inner, numbers)
        return ["null", other] if _kind(schema[0]) == "null" else [other, "null"]
    kind = schema["type"]
    name = f"t{next(numbers)}"
    if kind == "record":
        fields = [{"name": each["name"], "type": _for_polars(each["type"], numbers)} for each in schema["fields"]]
        return {"type": "record", "name": name, "fields": fields}
    if kind == "array":
        if _takes_no_bytes(schema["items"]):
            # Of such a type there may be any number of elements in no bytes at all, which polars would make.
            raise _Refused
        return {"type": "array", "items": _for_polars(schema["items"], numbers)}
    if kind == "map":
        fields = [{"name": "key", "type": "string"}, {"name": "value", "type": _for_polars(schema["values"], numbers)}]
        return {"type": "array", "items": {"type": "record", "name": name, "fields": fields}}
    if kind == "fixed":
        return {"type": "fixed", "size": schema["size"], "name": name}
    if kind == "null":
        return {"type": "record", "name": name, "fields": []}
    return "int" if kind == "enum" else kind


# --- What it means in Arrow -------------------------------------------------------------------------------------------


def physical_type(schema: Any) -> pa.DataType:
    """The Arrow type in which the records of a resolved schema are decoded."""
    inner, _ = nullable(schema)
    if isinstance(inner, list):
        return pa.struct([(f"member{index}", physical_type(each)) for index, each in enumerate(inner)])
    match inner["type"]:
        case "record":
            return pa.struct([pa.field(each["name"], physical_type(each["type"])) for each in inner["fields"]])
        case "array":
            return pa.large_list(physical_type(inner["items"]))
        case "map":
            return pa.large_list(pa.struct([("key", types.STRING), ("value", physical_type(inner["values"]))]))
        case "fixed":
            return types.BINARY
        case "enum":
            return pa.int32()
        case kind:
            return _PLAIN[kind]


class _NoColumn(ValueError):
    """A type that no column of a table has."""


def arrow_type(schema: Any) -> pa.DataType:
    """The Arrow type that a resolved schema means, its logical types included. A ValueError where it means none."""
    inner, _ = nullable(schema)
    if isinstance(inner, list):
        raise _NoColumn("a union of several types is no column of a table")
    match inner["type"]:
        case "record":
            return pa.struct([_arrow_field(each) for each in inner["fields"]])
        case "array" if inner.get("logicalType") == "map":
            key, value = inner["items"]["fields"]
            return pa.map_(_arrow_field(key).with_nullable(False), _arrow_field(value))
        case "array":
            return pa.list_(_field("element", inner["items"], inner.get("element-id")))
        case "map":
            key = pa.field("key", types.STRING, nullable=False, metadata=_id(inner.get("key-id")))
            return pa.map_(key, _field("value", inner["values"], inner.get("value-id")))
        case "fixed":
            return _fixed_type(inner)
        case "enum":
            return types.STRING
        case kind:
            return _logical_type(inner) or _PLAIN[kind]


def _arrow_field(given: Mapping[str, Any]) -> pa.Field:
    return _field(given["name"], given["type"], given.get("field-id"))


def _field(name: str, schema: Any, field_id: object) -> pa.Field:
    return pa.field(name, arrow_type(schema), nullable(schema)[1], metadata=_id(field_id))


def _id(field_id: object) -> dict[bytes, bytes] | None:
    return None if field_id is None else {FIELD_ID: str(field_id).encode()}


def _fixed_type(schema: Mapping[str, Any]) -> pa.DataType:
    if schema.get("logicalType") == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    return pa.binary(schema["size"])


def _logical_type(schema: Mapping[str, Any]) -> pa.DataType | None:
    zone = "UTC" if schema.get("adjust-to-utc", True) else None
    match schema["type"], schema.get("logicalType"):
        case "int", "date":
            return types.DATE
        case "int", "time-millis":
            return pa.time32("ms")
        case "long", "time-micros":
            return types.TIME
        case "long", "timestamp-millis":
            return pa.timestamp("ms", zone)
        case "long", "timestamp-micros":
            return pa.timestamp("us", zone)
        case "long", "timestamp-nanos":
            return pa.timestamp("ns", zone)
        case "long", "local-timestamp-millis":
            return pa.timestamp("ms")
        case "long", "local-timestamp-micros":
            return pa.timestamp("us")
        case "long", "local-timestamp-nanos":
            return pa.timestamp("ns")
        case "bytes", "decimal":
            return pa.decimal128(schema["precision"], schema.get("scale", 0))
        case _:
            return None
