"""Types and values as Iceberg writes them: types by their texts, single values as bytes, bounds and counts of columns.

The code follows the specification value by value, independently of the reader. Values are in the physical form of
literals: days and ticks as integers, decimals as `Decimal`.
"""

from __future__ import annotations

import math
import re
import struct
import uuid
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.transforms import Transform, parse_transform
from pyiceberg.types import PrimitiveType

from tamis.expr.evaluate import to_physical_value

TRUNCATED_AT = 16
"""The default truncation of bounds of texts and bytes."""

_PLAIN: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
    "uuid": pa.binary(16),
}
_STRUCTS = {"int": "<i", "date": "<i", "float": "<f", "double": "<d"}

Field = dict[str, Any]
"""A schema field in metadata."""


def field(number: int, name: str, kind: Any, *, required: bool = False, **more: Any) -> Field:
    """Return a schema field. `kind` is the text of a type, a list of struct fields, or a nested type."""
    if isinstance(kind, list):
        kind = {"type": "struct", "fields": kind}
    return {"id": number, "name": name, "required": required, "type": kind, **more}


def list_of(number: int, kind: Any) -> dict[str, Any]:
    return {"type": "list", "element-id": number, "element": kind, "element-required": False}


def map_of(key: int, value: int, key_kind: Any, value_kind: Any) -> dict[str, Any]:
    return {
        "type": "map", "key-id": key, "key": key_kind, "value-id": value, "value": value_kind, "value-required": False,
    }  # fmt: skip


def to_arrow_type(kind: Any) -> pa.DataType:
    """Return the Arrow type of an Iceberg type."""
    match kind:
        case {"type": "struct", "fields": fields}:
            return pa.struct([pa.field(each["name"], to_arrow_type(each["type"])) for each in fields])
        case {"type": "list", "element": element}:
            return pa.list_(pa.field("element", to_arrow_type(element)))
        case {"type": "map", "key": key, "value": value}:
            return pa.map_(to_arrow_type(key), to_arrow_type(value))
    if found := re.fullmatch(r"decimal\((\d+), ?(\d+)\)", kind):
        return pa.decimal128(int(found[1]), int(found[2]))
    if found := re.fullmatch(r"fixed\[(\d+)\]", kind):
        return pa.binary(int(found[1]))
    return _PLAIN[kind]


def to_iceberg_type(data_type: pa.DataType) -> str:
    """Return the text of an Iceberg type. Bytes of a fixed length are `fixed`, never `uuid`."""
    if pa.types.is_decimal(data_type):
        return f"decimal({data_type.precision}, {data_type.scale})"
    if pa.types.is_fixed_size_binary(data_type):
        return f"fixed[{data_type.byte_width}]"
    return next(text for text, each in _PLAIN.items() if each == data_type)


def parse_primitive_type(kind: str) -> PrimitiveType:
    """Return the type of pyiceberg."""
    found = Schema.model_validate({"type": "struct", "fields": [field(1, "x", kind)]}).fields[0].field_type
    assert isinstance(found, PrimitiveType)
    return found


def encode_single_value(kind: str, value: Any) -> bytes:
    """Return the bytes of a bound (single-value serialisation)."""
    if kind == "boolean":
        return b"\x01" if value else b"\x00"
    if kind in _STRUCTS:
        return struct.pack(_STRUCTS[kind], value)
    if kind == "string":
        return bytes(value.encode())
    if kind.startswith("decimal"):
        return encode_unscaled(value)
    return bytes(value) if isinstance(value, bytes) else struct.pack("<q", value)


def to_physical(value: Any) -> Any:
    """Return a value of pyiceberg in physical form."""
    return value.bytes if isinstance(value, uuid.UUID) else value


def encode_unscaled(value: Decimal, length: int | None = None) -> bytes:
    """Return the unscaled number, big-endian, in the fewest bytes or in `length` bytes."""
    sign, digits, _ = value.as_tuple()
    unscaled = (-1 if sign else 1) * int("".join(map(str, digits)))
    return unscaled.to_bytes(length or (unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)


# --- Transforms ------------------------------------------------------------------------------------------------------


def apply_transform(transform: str, kind: str, value: Any) -> Any:
    """Return a partition value, computed by pyiceberg. That of an unknown transform is a text."""
    if not is_known(transform):
        return "?"
    found: Transform[Any, Any] = parse_transform(transform)
    return found.transform(parse_primitive_type(kind))(value)


def get_result_type(transform: str, kind: str) -> str:
    """Return the type of partition values."""
    return str(parse_transform(transform).result_type(parse_primitive_type(kind))) if is_known(transform) else "string"


def is_known(transform: str) -> bool:
    return bool(re.fullmatch(r"identity|year|month|day|hour|void|(bucket|truncate)\[\d+\]", transform))


# --- Bounds and counts -----------------------------------------------------------------------------------------------


class Leaf(NamedTuple):
    """A column without fields of its own, perhaps in a struct."""

    number: int
    kind: str
    values: list[Any]


def list_leaves(fields: list[Field], columns: Mapping[str, pa.Array]) -> Iterator[Leaf]:
    """Yield all leaves that have metrics: none in lists and maps."""
    for each in fields:
        if each["name"] not in columns:
            continue
        array = columns[each["name"]]
        if isinstance(each["type"], str):
            yield Leaf(each["id"], each["type"], [to_physical_value(value) for value in array])
        elif each["type"]["type"] == "struct":
            inner = {child.name: part for child, part in zip(array.type, array.flatten(), strict=True)}
            yield from list_leaves(each["type"]["fields"], inner)


def compute_metrics(found: Iterator[Leaf], truncate: int | None = TRUNCATED_AT) -> dict[str, dict[int, Any]]:
    """Return the metrics of a file, by the field names of a manifest."""
    metrics: dict[str, dict[int, Any]] = {
        name: {} for name in ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
    }
    for leaf in found:
        present = [value for value in leaf.values if value is not None]
        ordered = [value for value in present if value == value]
        metrics["value_counts"][leaf.number] = len(leaf.values)
        metrics["null_value_counts"][leaf.number] = len(leaf.values) - len(present)
        if leaf.kind in ("float", "double"):
            metrics["nan_value_counts"][leaf.number] = len(present) - len(ordered)
        if not ordered:
            continue
        lower, upper = _find_bounds(ordered)
        if truncate is not None and leaf.kind in ("string", "binary"):
            lower, upper = lower[:truncate], truncate_up(upper, truncate)
        metrics["lower_bounds"][leaf.number] = encode_single_value(leaf.kind, lower)
        if upper is not None:
            metrics["upper_bounds"][leaf.number] = encode_single_value(leaf.kind, upper)
    return metrics


def _find_bounds(ordered: list[Any]) -> tuple[Any, Any]:
    lower, upper = min(ordered), max(ordered)
    if isinstance(lower, float):
        # The two zeros are equal, and the negative one comes first.
        lower = -0.0 if lower == 0 and any(math.copysign(1, each) < 0 for each in ordered if each == 0) else lower
        upper = 0.0 if upper == 0 and any(math.copysign(1, each) > 0 for each in ordered if each == 0) else upper
    return lower, upper


def truncate_up(value: Any, length: int) -> Any:
    """Return the shortest upper bound of all values with this prefix, or None if there is no such bound."""
    if len(value) <= length:
        return value
    for end in range(length, 0, -1):
        last = value[end - 1]
        if isinstance(value, bytes):
            if last < 0xFF:
                return value[: end - 1] + bytes([last + 1])
        elif last < "\U0010ffff":
            following = ord(last) + 1
            return value[: end - 1] + chr(0xE000 if following == 0xD800 else following)
    return None
