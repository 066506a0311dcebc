"""Values as the JSON of metadata writes them: what a field is in files that are older than it.

| type                      | JSON                                                                  |
|---------------------------|-----------------------------------------------------------------------|
| boolean, numbers          | as they are                                                           |
| decimal                   | text: `"14.20"`                                                       |
| date, time                | text: `"2017-11-16"`, `"22:31:08.123456"`                             |
| timestamps                | text: `"2017-11-16T22:31:08.123456"`, with `+00:00` where they have a zone |
| uuid                      | text with dashes                                                      |
| fixed, binary             | hexadecimal text                                                      |
| list                      | an array                                                              |
| map                       | `{"keys": […], "values": […]}`                                        |
| struct                    | `{}`: it is there, and its fields have defaults of their own          |
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
    r"(?P<whole>(?:\d{4}-\d\d-\d\dT)?\d\d:\d\d:\d\d)(?:\.(?P<part>\d{1,9}))?(?P<zone>Z|[+-]\d\d:?\d\d)?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NANOSECONDS = 1_000_000_000


def default_value(value: Any, kind: Any, data_type: pa.DataType, name: str) -> pa.Scalar:
    """The value of a field from its JSON, of which `kind` is the type in the metadata and `data_type` in Arrow."""
    if pa.types.is_struct(data_type):
        return pa.scalar({}, pa.struct([]))
    try:
        return pa.scalar(_plain(value, kind, data_type), data_type)
    except (ValueError, TypeError, KeyError, OverflowError, InvalidOperation, pa.ArrowException) as error:
        raise CorruptFile(
            f"column '{name}' has the default {str(value)[:80]!r}, which is no value of the type {kind}: the metadata "
            "of its table is damaged"
        ) from error


def _plain(value: Any, kind: Any, data_type: pa.DataType) -> Any:
    """What `pa.scalar` takes for a value of the type."""
    if value is None:
        return None
    if pa.types.is_list(data_type):
        return [_plain(each, kind["element"], data_type.value_type) for each in value]
    if pa.types.is_map(data_type):
        keys = [_plain(each, kind["key"], data_type.key_type) for each in value["keys"]]
        items = [_plain(each, kind["value"], data_type.item_type) for each in value["values"]]
        return list(zip(keys, items, strict=True))
    if pa.types.is_struct(data_type):
        fields = {str(each["id"]): (each, data_type.field(index)) for index, each in enumerate(kind["fields"])}
        return {
            field.name: _plain(value.get(number), each["type"], field.type) for number, (each, field) in fields.items()
        }
    if pa.types.is_boolean(data_type) != isinstance(value, bool):
        raise ValueError("a truth value is no other value")
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
    return _time_or_text(value, data_type)


def _time_or_text(value: Any, data_type: pa.DataType) -> Any:
    if not isinstance(value, str):
        raise TypeError("a text was expected")
    if pa.types.is_date(data_type):
        return date.fromisoformat(value)
    if not (pa.types.is_time(data_type) or pa.types.is_timestamp(data_type)):
        return value
    match = _SECONDS.fullmatch(value)
    if match is None:
        raise ValueError("it has no seconds")
    units = 1_000 if data_type.unit == "us" else 1
    part = int((match["part"] or "").ljust(9, "0") or "0")
    if pa.types.is_time(data_type):
        at = time.fromisoformat(match["whole"])
        seconds = at.hour * 3600 + at.minute * 60 + at.second
    else:
        moment = datetime.fromisoformat(match["whole"] + (match["zone"] or "+00:00"))
        seconds = (moment - _EPOCH).days * 86_400 + (moment - _EPOCH).seconds
    return (seconds * _NANOSECONDS + part) // units
