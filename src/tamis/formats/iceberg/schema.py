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
| variant, geometry, geography              | `types.UnsupportedType`                               |
| struct, list, map                         | struct, list<element>, map                            |
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any
from uuid import UUID

import pyarrow as pa

from tamis import types
from tamis.errors import CorruptFile, UnsupportedFeature
from tamis.formats.errors import make_corrupt_metadata_error
from tamis.parquet.footer.field_names import ELEMENT, KEY, VALUE, ColumnMapping, MappedField

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
            raise CorruptFile(
                f"'{location}' has a schema whose types are nested more than {_MAX_DEPTH} levels deep. "
                "Store such a column as JSON text, or split it into several columns"
            )
        if isinstance(kind, str):
            continue
        if not isinstance(kind, dict):
            raise make_corrupt_metadata_error(f"'{location}' has a schema with an invalid type: {str(kind)[:80]!r}")
        if kind.get("type", "struct") == "struct":
            fields = kind.get("fields")
            if not isinstance(fields, list) or not all(map(_is_field, fields)):
                raise make_corrupt_metadata_error(
                    f"'{location}' has a schema with invalid struct fields: {str(fields)[:80]!r}"
                )
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
        raise make_corrupt_metadata_error(
            f"the schema of {location} has an invalid field: {str(given)[:80]!r}"
        ) from error
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
                raise UnsupportedFeature(
                    f"column '{name}' of {location} has the unsupported type {other!r}. Look for a newer Tamis"
                )
    except (KeyError, TypeError) as error:
        raise make_corrupt_metadata_error(
            f"column '{name}' of {location} has an invalid type: {str(given)[:80]!r}"
        ) from error


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
    raise UnsupportedFeature(
        f"column '{name}' of {location} has the type {given!r}, which is not an Iceberg type. Look for a newer Tamis"
    )


# --- Column mapping of data files: by field id, or by a name mapping; with the initial-default of fields that files
#
# A field id never changes, whereas names may. Files that were not written for Iceberg have no field ids: for those a
# table may have a name mapping from names to ids, with several names for a field that was renamed. Since format
# version 3 a field may have an `initial-default`, its value in files that are older than the field.

NAME_MAPPING = "schema.name-mapping.default"


def make_field_names(schema: Json, name_mapping: str | None = None) -> ColumnMapping:
    """Return the field names of a schema, given as JSON of the metadata.

    `name_mapping` is the text of the table property `schema.name-mapping.default`. The same schema returns the same
    object, so that caches keyed by it are hit.
    """
    return _make_field_names(json.dumps(schema, sort_keys=True), name_mapping)


@lru_cache(maxsize=64)
def _make_field_names(schema_text: str, name_mapping: str | None) -> ColumnMapping:
    by_id = _make_inner_names({**json.loads(schema_text), "type": "struct"})
    if name_mapping is None:
        return ColumnMapping(by_id, by_id=True, is_always_gregorian=True)
    try:
        mapping = json.loads(name_mapping)
        by_name = _map_names(mapping, by_id)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        # Only files without field ids need the name mapping, and a table may have none.
        wrong = f"the table property {NAME_MAPPING} is not a valid name mapping ({error}): rewrite it"
        return ColumnMapping(by_id, by_id=True, mapping_error=wrong, is_always_gregorian=True)
    return ColumnMapping(by_id, by_id=True, without_ids=ColumnMapping(by_name, by_id=False), is_always_gregorian=True)


def _make_inner_names(kind: Any) -> dict[Hashable, MappedField]:
    if isinstance(kind, str):
        return {}
    match kind["type"]:
        case "struct":
            return {
                each["id"]: MappedField(each["name"], _make_inner_names(each["type"]), _parse_field_default(each))
                for each in kind["fields"]
            }
        case "list":
            return {ELEMENT: MappedField("", _make_inner_names(kind["element"]))}
        case _:
            return {
                KEY: MappedField("", _make_inner_names(kind["key"])),
                VALUE: MappedField("", _make_inner_names(kind["value"])),
            }


def _parse_field_default(given: Json) -> Any:
    value = given.get("initial-default")
    return None if value is None else parse_default(value, given["type"], arrow_type(given["type"]), given["name"])


def _map_names(mapping: Sequence[Json], known: Mapping[Hashable, MappedField]) -> dict[Hashable, MappedField]:
    """Map the names in files without field ids to fields. Names without an id, or with an unknown id, are ignored."""
    found: dict[Hashable, MappedField] = {}
    for each in mapping:
        field = known.get(each.get("field-id"))
        if field is None:
            continue
        inner = _map_nested_names(each.get("fields") or (), field)
        for name in _read_names(each):
            if name in found and found[name].name != field.name:
                raise ValueError(f"the name {name!r} maps to two fields")
            found[name] = MappedField(field.name, inner)
    return found


def _read_names(mapped: Json) -> list[str]:
    names = mapped["names"]
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise ValueError(f"names must be a list of strings, found {str(names)[:80]!r}")
    return names


def _map_nested_names(mapping: Sequence[Json], field: MappedField) -> dict[Hashable, MappedField]:
    if not any(part in field.inner for part in (ELEMENT, KEY, VALUE)):
        return _map_names(mapping, field.inner)
    # The parts of lists and maps are mapped by their roles.
    found: dict[Hashable, MappedField] = {}
    for part, own in field.inner.items():
        inner = next((each.get("fields") or () for each in mapping if part in _read_names(each)), ())
        found[part] = MappedField("", _map_nested_names(inner, own))
    return found


# --- Default values of fields, in the JSON single-value serialization: the `initial-default` in files that lack a field
#
# | type                      | JSON                                                                       |
# |---------------------------|----------------------------------------------------------------------------|
# | boolean, numbers          | a JSON boolean or number                                                   |
# | decimal                   | string: `"14.20"`                                                          |
# | date, time                | string: `"2017-11-16"`, `"22:31:08.123456"`                                |
# | timestamps                | string: `"2017-11-16T22:31:08.123456"`, with `+00:00` if they have a zone  |
# | uuid                      | string with dashes                                                         |
# | fixed, binary             | hexadecimal string                                                         |
# | list                      | an array                                                                   |
# | map                       | `{"keys": […], "values": […]}`                                             |
# | struct                    | `{}`: the struct is not null, and its fields have their own defaults       |

_SECONDS = re.compile(
    r"(?P<whole>(?:\d{4}-\d\d-\d\dT)?\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d{1,9}))?(?P<zone>Z|[+-]\d\d:?\d\d)?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NANOSECONDS = 1_000_000_000


def parse_default(value: Any, kind: Any, data_type: pa.DataType, name: str) -> pa.Scalar:
    """Parse the default of a field; `kind` is its type in the metadata, `data_type` its Arrow type."""
    if pa.types.is_struct(data_type):
        return pa.scalar({}, pa.struct([]))
    try:
        return pa.scalar(_to_python(value, kind, data_type), data_type)
    except (ValueError, TypeError, KeyError, OverflowError, InvalidOperation, pa.ArrowException) as error:
        raise make_corrupt_metadata_error(
            f"column '{name}' has the default {str(value)[:80]!r}, which is not a valid {kind}: the table metadata is "
            "damaged"
        ) from error


def _to_python(value: Any, kind: Any, data_type: pa.DataType) -> Any:
    """Convert a JSON value to the Python value that `pa.scalar` expects for the type."""
    if value is None:
        return None
    if pa.types.is_list(data_type):
        return [_to_python(each, kind["element"], data_type.value_type) for each in value]
    if pa.types.is_map(data_type):
        keys = [_to_python(each, kind["key"], data_type.key_type) for each in value["keys"]]
        items = [_to_python(each, kind["value"], data_type.item_type) for each in value["values"]]
        return list(zip(keys, items, strict=True))
    if pa.types.is_struct(data_type):
        fields = {str(each["id"]): (each, data_type.field(index)) for index, each in enumerate(kind["fields"])}
        return {
            field.name: _to_python(value.get(number), each["type"], field.type)
            for number, (each, field) in fields.items()
        }
    if pa.types.is_boolean(data_type) != isinstance(value, bool):
        raise ValueError("expected a boolean if and only if the type is boolean")
    if pa.types.is_boolean(data_type):
        return value
    if pa.types.is_floating(data_type):
        return float(value)
    if pa.types.is_integer(data_type):
        return int(value)
    if pa.types.is_decimal(data_type):
        return Decimal(str(value))
    if kind == "uuid":
        return UUID(value).bytes
    if pa.types.is_binary(data_type) or pa.types.is_fixed_size_binary(data_type):
        return bytes.fromhex(value)
    return _parse_string(value, data_type)


def _parse_string(value: Any, data_type: pa.DataType) -> Any:
    if not isinstance(value, str):
        raise TypeError("expected a string")
    if pa.types.is_date(data_type):
        return date.fromisoformat(value)
    if not (pa.types.is_time(data_type) or pa.types.is_timestamp(data_type)):
        return value
    match = _SECONDS.fullmatch(value)
    if match is None:
        raise ValueError("expected a time with seconds")
    units = 1_000 if data_type.unit == "us" else 1
    fraction = int((match["fraction"] or "").ljust(9, "0") or "0")
    if pa.types.is_time(data_type):
        time_of_day = time.fromisoformat(match["whole"])
        seconds = time_of_day.hour * 3600 + time_of_day.minute * 60 + time_of_day.second
    else:
        instant = datetime.fromisoformat(match["whole"] + (match["zone"] or "+00:00"))
        seconds = (instant - _EPOCH).days * 86_400 + (instant - _EPOCH).seconds
    return (seconds * _NANOSECONDS + fraction) // units
