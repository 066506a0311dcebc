"""Default values of fields, in the JSON single-value serialization: the `initial-default` in files that lack a field.

| type                      | JSON                                                                       |
|---------------------------|----------------------------------------------------------------------------|
| boolean, numbers          | a JSON boolean or number                                                   |
| decimal                   | string: `"14.20"`                                                          |
| date, time                | string: `"2017-11-16"`, `"22:31:08.123456"`                                |
| timestamps                | string: `"2017-11-16T22:31:08.123456"`, with `+00:00` if they have a zone  |
| uuid                      | string with dashes                                                         |
| fixed, binary             | hexadecimal string                                                         |
| list                      | an array                                                                   |
| map                       | `{"keys": […], "values": […]}`                                             |
| struct                    | `{}`: the struct is not null, and its fields have their own defaults       |
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

import pyarrow as pa

from tamis.errors import CorruptFile

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
        raise CorruptFile(
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
