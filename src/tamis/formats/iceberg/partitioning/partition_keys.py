"""Partition tuples as comparable keys, and as text.

Deletes apply to files of the same partition and spec, so tuples are compared. Their bytes are equal exactly if all
values are equal in the current types, regardless of the types in the manifest. The type of a field whose source column
was dropped is unknown, and some writers omit its values too: see `encode_dropped_keys`. As text, a tuple is JSON with
values as Iceberg writes them into paths: `{"day": "2024-03-01", "bucket": "7"}`.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.functions.kernels import look_up_key
from tamis.expr.wire.partition_filter import PartitionFilter
from tamis.formats.constants import name_absent
from tamis.formats.function_results import map_to_json
from tamis.formats.iceberg.partitioning.specs import PartitionField, Spec, is_of_unknown_type
from tamis.skipping.transforms import TIMES
from tamis.types import is_bytes, is_text

_EPOCH = date(1970, 1, 1)
TEXTS = pa.map_(types.STRING, types.STRING)
PARTITION_FIELD = "partition:"
"""The prefix of the columns of a listing with values of partition fields."""


def encode_partition_keys(
    spec: Spec, typed: Mapping[int, pa.Array], raw: Mapping[int, pa.Array], rows: int
) -> pa.Array:
    """Encode the partition tuples of files under one spec as bytes, without fields whose source column was dropped.

    Values are `typed` where possible. Fields without a supported transform, and values that are invalid for their type,
    use the `raw` Avro values.
    """
    parts = {
        field.field_id: _encode_part(typed.get(field.field_id, raw[field.field_id]))
        for field in spec.fields
        if field not in spec.dropped and field.field_id in raw
    }
    for field_id, is_wrong in spec.find_invalid(raw, typed).items():
        of_raw = pc.binary_join_element_wise(pa.scalar(b"raw", types.BINARY), _encode_part(raw[field_id]), b"")
        parts[field_id] = pc.if_else(is_wrong, of_raw, parts[field_id])
    return _join_parts(list(parts.values()), rows)


def encode_dropped_keys(spec: Spec, raw: Mapping[int, pa.Array], rows: int) -> pa.Array:
    """Encode the values of fields whose source column was dropped as bytes.

    They are null if the manifest has the unknown type for them: then they may be any value.
    """
    own = [raw[field.field_id] for field in spec.dropped if field.field_id in raw]
    if any(is_of_unknown_type(values) for values in own):
        return pa.nulls(rows, types.BINARY)
    return _join_parts([_encode_part(values) for values in own], rows)


def _join_parts(parts: list[pa.Array], rows: int) -> pa.Array:
    if not parts:
        return pa.repeat(pa.scalar(b"", types.BINARY), rows)
    return pc.binary_join_element_wise(*parts, b"")


def _encode_part(values: pa.Array) -> pa.Array:
    """Encode values as bytes prefixed by their length, so that the values of two fields cannot run together."""
    data_type = values.type
    if is_of_unknown_type(values):
        return pa.repeat(pa.scalar(b"-", types.BINARY), len(values))
    if pa.types.is_floating(data_type):
        # Floats are compared by their bits, because their text is rounded; NaN has many bit patterns.
        values = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), data_type), values)
        values = values.view(types.LONG if data_type.bit_width == 64 else pa.int32())
    elif pa.types.is_boolean(data_type):
        values = values.cast(pa.int8())
    elif pa.types.is_temporal(data_type):
        values = values.view(types.LONG if data_type.bit_width == 64 else pa.int32())
    found = values.cast(types.BINARY) if is_bytes(data_type) else values.cast(types.STRING).cast(types.BINARY)
    lengths = pc.binary_length(found).cast(types.STRING).cast(types.BINARY)
    joined = pc.binary_join_element_wise(lengths, found, b":")
    return pc.fill_null(joined, b"-")


@dataclass(frozen=True)
class PartitionTexts:
    """Partition tuples as text. Many files share a tuple, so each distinct tuple is formatted once."""

    distinct: pa.MapArray
    """Maps from partition field names to text; null if the meaning of a value is unknown."""
    indices: pa.Array

    @staticmethod
    def of(spec: Spec, values: Mapping[int, pa.Array], keys: pa.Array) -> PartitionTexts:
        """Format typed values, given by field id."""
        encoded = pc.dictionary_encode(keys)
        first = _find_first_indices(encoded.indices.to_numpy(), len(encoded.dictionary))
        columns = [(field.name, _format_values(field, values.get(field.field_id), first)) for field in spec.fields]
        rows = [[(name, texts[row]) for name, texts in columns] for row in range(len(first))]
        return PartitionTexts(pa.array(rows, TEXTS), encoded.indices)

    def apply_filter(self, partition_filter: PartitionFilter) -> pa.BooleanArray:
        """Return which files a partition filter keeps."""
        return partition_filter.evaluate(self.distinct).take(self.indices)

    def get_texts(self, name: str) -> pa.StringArray:
        """Return the texts of a partition field for each file; null for a field that the spec lacks."""
        return look_up_key(self.distinct, name).take(self.indices)

    def to_json(self) -> pa.StringArray:
        return map_to_json(self.distinct).take(self.indices)


def _find_first_indices(codes: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    positions = np.zeros(count, np.int64)
    positions[codes[::-1]] = np.arange(len(codes))[::-1]
    return positions


def _format_values(field: PartitionField, values: pa.Array | None, rows: np.ndarray[Any, Any]) -> list[str | None]:
    if values is None:
        return [None] * len(rows)
    own = values.take(pa.array(rows))
    if field.transform.kind == "day":
        own = own.view(types.DATE)
    if _is_formatted_by_arrow(own.type) and field.transform.kind not in ("year", "month", "hour"):
        # Arrow also formats dates and times outside the range of Python's.
        texts: list[str | None] = own.cast(types.STRING).to_pylist()
        if pa.types.is_timestamp(own.type):
            return [None if each is None else each.replace(" ", "T").replace("Z", "+00:00") for each in texts]
        return texts
    return [None if each is None else _format_value(field, each) for each in own.to_pylist()]


def _is_formatted_by_arrow(data_type: pa.DataType) -> bool:
    is_plain = pa.types.is_integer(data_type) or pa.types.is_boolean(data_type) or pa.types.is_decimal(data_type)
    return bool(is_plain or pa.types.is_temporal(data_type) or is_text(data_type))


def _format_value(field: PartitionField, value: Any) -> str:
    if field.transform.kind in TIMES:
        return format_period(field.transform.kind, value)
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)


def format_period(kind: str, value: int) -> str:
    """Format a period as Iceberg does.

    >>> format_period("day", 19783), format_period("month", -1), format_period("hour", 25), format_period("year", 54)
    ('2024-03-01', '1969-12', '1970-01-02-01', '2024')
    """
    if kind == "year":
        return f"{1970 + value:04d}"
    if kind == "month":
        return f"{1970 + value // 12:04d}-{value % 12 + 1:02d}"
    days, hour = (value, None) if kind == "day" else divmod(value, 24)
    try:
        text = (_EPOCH + timedelta(days=days)).isoformat()
    except OverflowError:
        return str(value)
    return text if hour is None else f"{text}-{hour:02d}"


# --- Partition fields -----------------------------------------------------------------------------------------------
#
# Partition values of Iceberg tables as people see them: a column for each partition field, in its type.
#
# | transform              | name                        | type                                  |
# |------------------------|-----------------------------|---------------------------------------|
# | identity               | the column, as it is called | that of the column                    |
# | bucket                 | the partition field         | int                                   |
# | truncate               | the partition field         | that of the column                    |
# | day                    | the partition field         | date                                  |
# | year                   | the partition field         | int, as 2024                          |
# | month, hour, unknown   | the partition field         | string, as 2024-03 and 2024-03-01-05  |
#
# A table may have had several partition specs. A file of another spec has NULL in the fields of this one.


def partition_field_names(spec: Spec) -> tuple[str, ...]:
    """Return the names of a spec's fields: those of columns for identity partitions. Void fields have none."""
    return tuple(_name(field) for field in spec.fields if field.transform.kind != "void")


def read_partition_fields(files: pa.Table, specs: Iterable[Spec]) -> pa.Table:
    """Return the typed partition values of listed files, those of the first spec first."""
    fields: dict[str, list[PartitionField]] = {}
    for spec in specs:
        for field in spec.fields:
            if field.transform.kind != "void":
                fields.setdefault(_name(field), []).append(field)
    columns = {name: _read_values(files, own) for name, own in fields.items()}
    return pa.table(columns) if columns else files.select([])


def _name(field: PartitionField) -> str:
    return field.identity_column.name if field.identity_column is not None else field.name


def _read_values(files: pa.Table, fields: list[PartitionField]) -> pa.Array:
    """Return the values of fields that have one name in several specs; as text if their types differ."""
    stored = [_get_stored_values(files, field) for field in fields]
    found = [_to_shown_type(values, field, files.num_rows) for values, field in zip(stored, fields, strict=True)]
    if len({values.type for values in found}) > 1:
        rows = np.arange(files.num_rows)
        texts = [_format_values(field, values, rows) for values, field in zip(stored, fields, strict=True)]
        found = [pa.array(each, types.STRING) for each in texts]
    return pc.coalesce(*found)


def name_partition_field(field: PartitionField) -> str:
    """Return the name under which a listing has the values of a field that computes them of its source column."""
    path = () if field.source is None else field.source.path
    return f"{PARTITION_FIELD}{json.dumps([field.field_id, field.transform.kind, field.transform.width, *path])}"


def _get_stored_values(files: pa.Table, field: PartitionField) -> pa.Array | None:
    """Return the values of a field as its transform has them; None if they are unknown."""
    column = field.identity_column
    name = name_partition_field(field) if column is None else name_absent(column.path)
    if name not in files.column_names:
        return None
    found = files[name].combine_chunks()
    return found if column is None else found.flatten()[0]


def _to_shown_type(values: pa.Array | None, field: PartitionField, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, _type(field))
    match field.transform.kind:
        case "year":
            return pc.add(values, pa.scalar(1970, pa.int32()))
        case "day":
            return values.view(types.DATE)
        case "month" | "hour":
            return pa.array(_format_values(field, values, np.arange(len(values))), types.STRING)
        case _:
            return values


def _type(field: PartitionField) -> pa.DataType:
    match field.transform.kind:
        case "bucket" | "year":
            return pa.int32()
        case "day":
            return types.DATE
        case "identity" | "truncate" if field.result_type is not None:
            return field.result_type
        case _:
            return types.STRING
