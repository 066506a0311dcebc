"""Statistics of Delta files as different writers put them into the log, and metadata of tables written by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tamis import types
from tamis.expr.datetime_text import format_date, format_timestamp
from tamis.expr.normalise import sort_key
from tamis.formats.delta.schema import TableMetadata, parse_metadata

SPARK, PARQUET_RS, OLD_SPARK, CARELESS = "Delta on Spark", "deltalake", "Delta on Spark of old", "one that just cuts"
_WITHOUT_SECONDS = 63_676_800_000_000
"""1972-01-08, in microseconds."""
WRITERS = (SPARK, PARQUET_RS, OLD_SPARK, CARELESS)

_CUT = 32
_NAMES = {
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
    pa.date32(): "date",
    types.TIMESTAMP: "timestamp",
    types.TIMESTAMP_NTZ: "timestamp_ntz",
}


def to_log_type(data_type: pa.DataType) -> Any:
    """Return the type name that the schema in the log uses."""
    if pa.types.is_decimal(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    if pa.types.is_struct(data_type):
        return {"type": "struct", "fields": [field(each.name, each.type) for each in data_type]}
    if pa.types.is_list(data_type):
        return {"type": "array", "elementType": to_log_type(data_type.value_type), "containsNull": True}
    if pa.types.is_map(data_type):
        key, value = to_log_type(data_type.key_type), to_log_type(data_type.item_type)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    return _NAMES[data_type]


def field(name: str, data_type: Any, **metadata: Any) -> dict[str, Any]:
    """Return a field of the schema in the log. The type may be Arrow's or the log's own."""
    named = to_log_type(data_type) if isinstance(data_type, pa.DataType) else data_type
    return {"name": name, "type": named, "nullable": True, "metadata": metadata}


def table_metadata(*fields: dict[str, Any], partitioned_by: Sequence[str] = (), **configuration: str) -> TableMetadata:
    action = {
        "id": "an-id",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": list(fields)}),
        "partitionColumns": list(partitioned_by),
        "configuration": {key.replace("__", "."): value for key, value in configuration.items()},
    }
    return parse_metadata(action, "t")


def mapping(number: int, name: str) -> dict[str, Any]:
    """Return the metadata of a column under column mapping."""
    return {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": name}


# --- Statistics ------------------------------------------------------------------------------------------------------


def format_bounds(values: Sequence[Any], data_type: pa.DataType, writer: str) -> tuple[str | None, str | None]:
    """Return the smallest and the largest value in JSON as a writer spells them, or None where it writes no bound."""
    present = sorted((value for value in values if value is not None), key=sort_key)
    numbers = [value for value in present if value == value]
    # To Spark NaN is the largest value; others leave it out.
    counted = present if writer in (SPARK, OLD_SPARK) else numbers
    if not counted or types.is_bytes(data_type) or pa.types.is_boolean(data_type):
        return None, None
    return _spell(counted[0], data_type, writer, False), _spell(counted[-1], data_type, writer, True)


def _spell(value: Any, data_type: pa.DataType, writer: str, is_largest: bool) -> str | None:
    if pa.types.is_floating(data_type):
        return _spell_float(value, data_type, writer)
    if pa.types.is_decimal(data_type):
        return _spell_decimal(value, data_type, writer)
    if pa.types.is_date(data_type):
        return json.dumps(format_date(value))
    if pa.types.is_timestamp(data_type):
        return json.dumps(_spell_timestamp(value, data_type, writer))
    if types.is_text(data_type):
        cut = _cut_largest(value, writer) if is_largest else value[:_CUT] if writer != PARQUET_RS else value
        return None if cut is None else json.dumps(cut, ensure_ascii=False)
    return str(value)


def _spell_float(value: float, data_type: pa.DataType, writer: str) -> str:
    if not math.isfinite(value):
        text = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return "null" if writer == PARQUET_RS else json.dumps(text)
    # Java writes a float with the fewest digits that identify it.
    return str(np.float32(value)) if pa.types.is_float32(data_type) and writer != PARQUET_RS else repr(value)


def _spell_decimal(value: Decimal, data_type: pa.DataType, writer: str) -> str:
    if writer != PARQUET_RS:
        return str(value)
    double = float(value)
    if double and len(str(int(abs(double)))) > data_type.precision - data_type.scale:
        double = math.nextafter(double, 0.0)
    return repr(double)


def _spell_timestamp(value: int, data_type: pa.DataType, writer: str) -> str:
    milliseconds = value // 1000
    if data_type.tz is None:
        text = format_timestamp(milliseconds, "ms", digits=3)
        return text if writer == PARQUET_RS else text.replace(" ", "T")
    offset = {SPARK: (0, "Z"), PARQUET_RS: (0, "Z"), OLD_SPARK: (-8 * 3600, "-08:00"), CARELESS: (-28_378, "-07:52:58")}
    if value < _WITHOUT_SECONDS:
        # Zones had seconds in their offsets once, and these two cut them off.
        offset |= {OLD_SPARK: (-28_378, "-07:52"), CARELESS: (3208, "+00:53")}
    seconds, zone = offset[writer]
    return format_timestamp(milliseconds + seconds * 1000, "ms", digits=3).replace(" ", "T") + zone


def _cut_largest(text: str, writer: str) -> str | None:
    """Return an upper bound for the largest text, truncated as the writer does it, or None if it writes no bound."""
    if writer == PARQUET_RS:
        return text
    if writer == OLD_SPARK:
        units = text.encode("utf-16-be")
        if len(units) <= 2 * _CUT:
            return text
        # Java cuts between the two halves of a character, and writes half a one as a question mark.
        kept = units[: 2 * _CUT].decode("utf-16-be", "surrogatepass")
        return kept.encode("utf-8", "replace").decode() + "\ufffd"
    if writer == CARELESS or len(text) <= _CUT:
        return text[:_CUT]
    for length in range(_CUT, min(len(text), 2 * _CUT)):
        following = text[length]
        if following < "\x7f":
            return text[:length] + "\x7f"
        if following < "\U0010ffff":
            return text[:length] + "\U0010ffff"
    return text if len(text) <= 2 * _CUT else None
