"""The Avro schemas of manifests and manifest lists, versions 1 to 3, as the specification lists their fields."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from builders.iceberg.values import encode_single_value, encode_unscaled

AvroField = dict[str, Any]
PartitionColumn = tuple[int, str, str]
"""The id, the name and the type of a partition field."""


UNKNOWN = "unknown"
"""The type of a partition field whose column is gone, for writers that do not know its type."""


def _make_required(number: int, name: str, kind: Any) -> AvroField:
    return {"name": name, "type": kind, "field-id": number}


def _make_optional(number: int, name: str, kind: Any) -> AvroField:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": number}


def _make_map(number: int, name: str, key: int, value: int, kind: str) -> AvroField:
    pair = {
        "type": "record",
        "name": f"k{key}_v{value}",
        "fields": [_make_required(key, "key", "int"), _make_required(value, "value", kind)],
    }
    return _make_optional(number, name, {"type": "array", "items": pair, "logicalType": "map"})


def _make_list(number: int, name: str, element: int, kind: Any) -> AvroField:
    return _make_optional(number, name, {"type": "array", "items": kind, "element-id": element})


def to_partition_type(kind: str, name: str, *, dates_as_ints: bool = False) -> Any:
    """Return the Avro type of a partition value."""
    if kind.startswith("decimal"):
        precision, scale = map(int, kind[8:-1].split(","))
        length = next(size for size in range(1, 17) if 10**precision <= 1 << 8 * size - 1)
        return {
            "type": "fixed", "name": f"decimal_{name}", "size": length, "logicalType": "decimal",
            "precision": precision, "scale": scale,
        }  # fmt: skip
    if kind.startswith("fixed"):
        return {"type": "fixed", "name": f"fixed_{name}", "size": int(kind[6:-1])}
    match kind:
        case "date" if not dates_as_ints:
            return {"type": "int", "logicalType": "date"}
        case "int" | "date":
            return "int"
        case "time":
            return {"type": "long", "logicalType": "time-micros"}
        case "timestamp" | "timestamptz":
            return {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": kind == "timestamptz"}
        case "timestamp_ns" | "timestamptz_ns":
            return {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": kind == "timestamptz_ns"}
        case "uuid":
            return {"type": "fixed", "name": f"uuid_{name}", "size": 16, "logicalType": "uuid"}
        case "binary":
            return "bytes"
    return kind


def encode_partition_value(kind: str, value: Any) -> Any:
    """Return a partition value as a manifest stores it."""
    if not isinstance(value, Decimal):
        return value
    size = to_partition_type(kind, "")["size"]
    return encode_unscaled(value, size)


def make_entry_schema(version: int, partition: Sequence[PartitionColumn], *, dates_as_ints: bool = False) -> AvroField:
    tuple_type = {
        "type": "record",
        "name": "r102",
        "fields": [
            _make_required(number, to_avro_name(name), "null")
            if kind == UNKNOWN
            else _make_optional(
                number, to_avro_name(name), to_partition_type(kind, f"p{number}", dates_as_ints=dates_as_ints)
            )
            for number, name, kind in partition
        ],
    }
    file = [
        *([_make_required(134, "content", "int")] if version > 1 else []),
        _make_required(100, "file_path", "string"),
        _make_required(101, "file_format", "string"),
        _make_required(102, "partition", tuple_type),
        _make_required(103, "record_count", "long"),
        _make_required(104, "file_size_in_bytes", "long"),
        *([_make_required(105, "block_size_in_bytes", "long")] if version == 1 else []),
        _make_map(108, "column_sizes", 117, 118, "long"),
        _make_map(109, "value_counts", 119, 120, "long"),
        _make_map(110, "null_value_counts", 121, 122, "long"),
        _make_map(137, "nan_value_counts", 138, 139, "long"),
        _make_map(125, "lower_bounds", 126, 127, "bytes"),
        _make_map(128, "upper_bounds", 129, 130, "bytes"),
        _make_optional(131, "key_metadata", "bytes"),
        _make_list(132, "split_offsets", 133, "long"),
        *([_make_list(135, "equality_ids", 136, "int")] if version > 1 else []),
        _make_optional(140, "sort_order_id", "int"),
        *([_make_optional(142, "first_row_id", "long")] if version > 2 else []),
        *([_make_optional(143, "referenced_data_file", "string")] if version > 1 else []),
        *([_make_optional(144, "content_offset", "long")] if version > 2 else []),
        *([_make_optional(145, "content_size_in_bytes", "long")] if version > 2 else []),
    ]
    fields = [
        _make_required(0, "status", "int"),
        _make_required(1, "snapshot_id", "long") if version == 1 else _make_optional(1, "snapshot_id", "long"),
        *([_make_optional(3, "sequence_number", "long")] if version > 1 else []),
        *([_make_optional(4, "file_sequence_number", "long")] if version > 1 else []),
        _make_required(2, "data_file", {"type": "record", "name": "r2", "fields": file}),
    ]
    return {"type": "record", "name": "manifest_entry", "fields": fields}


def make_list_schema(version: int) -> AvroField:
    summary = {
        "type": "record",
        "name": "r508",
        "fields": [
            _make_required(509, "contains_null", "boolean"),
            _make_optional(518, "contains_nan", "boolean"),
            _make_optional(510, "lower_bound", "bytes"),
            _make_optional(511, "upper_bound", "bytes"),
        ],
    }
    counted = _make_required if version > 1 else _make_optional
    names = ("added", "existing", "deleted")
    fields = [
        _make_required(500, "manifest_path", "string"),
        _make_required(501, "manifest_length", "long"),
        _make_required(502, "partition_spec_id", "int"),
        *([_make_required(517, "content", "int")] if version > 1 else []),
        *([_make_required(515, "sequence_number", "long")] if version > 1 else []),
        *([_make_required(516, "min_sequence_number", "long")] if version > 1 else []),
        _make_required(503, "added_snapshot_id", "long"),
        *(counted(504 + index, f"{name}_files_count", "int") for index, name in enumerate(names)),
        *(counted(512 + index, f"{name}_rows_count", "long") for index, name in enumerate(names)),
        _make_optional(507, "partitions", {"type": "array", "items": summary, "element-id": 508}),
        _make_optional(519, "key_metadata", "bytes"),
        *([_make_optional(520, "first_row_id", "long")] if version > 2 else []),
    ]
    return {"type": "record", "name": "manifest_file", "fields": fields}


def summarize_partitions(partition: Sequence[PartitionColumn], tuples: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the partition summaries of a manifest with files of these partitions."""
    found = []
    for index, (_, _, kind) in enumerate(partition):
        values = [each[index] for each in tuples]
        present = [value for value in values if value is not None]
        ordered = [value for value in present if value == value]
        found.append(
            {
                "contains_null": len(present) < len(values),
                "contains_nan": len(ordered) < len(present),
                "lower_bound": encode_single_value(kind, min(ordered)) if ordered else None,
                "upper_bound": encode_single_value(kind, max(ordered)) if ordered else None,
            }
        )
    return found


def make_pairs(values: dict[int, Any] | None) -> list[dict[str, Any]] | None:
    """Return a map with integer keys as a list of pairs, because Avro keys are texts."""
    return None if values is None else [{"key": key, "value": value} for key, value in values.items()]


def to_avro_name(name: str) -> str:
    """Return a name that Avro allows, with other characters as numbers."""
    text = "".join(each if (each.isascii() and each.isalnum()) or each == "_" else f"_x{ord(each):X}" for each in name)
    return f"_{text}" if text[:1].isdigit() else text
