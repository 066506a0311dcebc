"""Partition tuples told apart, and shown to people.

Deletes are for the files of their own partition, under their own spec, so that tuples are compared: as bytes that are
the same exactly where all values are, in the types of today, whatever those were when a manifest was written. Of a
field whose column is gone from the table nobody knows the type, and some writers know no value of it either: see
`keys_of_gone`. For people a tuple is JSON, with values as Iceberg writes them into paths:
`{"day": "2024-03-01", "bucket": "7"}`.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.partition_filter import PartitionFilter
from tamis.tables.iceberg.specs import PartitionField, Spec, is_of_unknown_type
from tamis.tables.iceberg.transforms import TIMES
from tamis.tables.map_json import map_to_json
from tamis.types import is_bytes, is_text

_EPOCH = date(1970, 1, 1)
TEXTS = pa.map_(types.STRING, types.STRING)


def keys_of(spec: Spec, typed: Mapping[int, pa.Array], raw: Mapping[int, pa.Array], rows: int) -> pa.Array:
    """The tuples of files under one spec as bytes, without fields whose column is gone.

    Of fields that say nothing of their column, and of values that their type cannot represent, the values are `raw`, as
    Avro has them; the others are `typed`.
    """
    parts = {
        field.field_id: _part(typed.get(field.field_id, raw[field.field_id]))
        for field in spec.fields
        if field not in spec.gone and field.field_id in raw
    }
    for field_id, is_wrong in spec.wrong(raw, typed).items():
        of_raw = pc.binary_join_element_wise(pa.scalar(b"raw", types.BINARY), _part(raw[field_id]), b"")
        parts[field_id] = pc.if_else(is_wrong, of_raw, parts[field_id])
    return _joined(list(parts.values()), rows)


def keys_of_gone(spec: Spec, raw: Mapping[int, pa.Array], rows: int) -> pa.Array:
    """The values of fields whose column is gone, as bytes; null where a manifest has none for them, but an unknown
    type: they may be any."""
    own = [raw[field.field_id] for field in spec.gone if field.field_id in raw]
    if any(is_of_unknown_type(values) for values in own):
        return pa.nulls(rows, types.BINARY)
    return _joined([_part(values) for values in own], rows)


def _joined(parts: list[pa.Array], rows: int) -> pa.Array:
    if not parts:
        return pa.repeat(pa.scalar(b"", types.BINARY), rows)
    return pc.binary_join_element_wise(*parts, b"")


def _part(values: pa.Array) -> pa.Array:
    """Values as bytes with their length before them, so that those of two fields do not run into each other."""
    data_type = values.type
    if is_of_unknown_type(values):
        return pa.repeat(pa.scalar(b"-", types.BINARY), len(values))
    if pa.types.is_floating(data_type):
        # By their bits, since texts of floats are rounded; of NaN there are many.
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
class Texts:
    """Partition tuples in words: many files share one, so each is put into words once."""

    distinct: pa.MapArray
    """Maps of texts by the names of partition fields; null where nobody knows what a value means."""
    places: pa.Array
    """Which of them each file has."""

    @staticmethod
    def of(spec: Spec, values: Mapping[int, pa.Array], keys: pa.Array) -> Texts:
        """Of typed values by the ids of fields."""
        encoded = pc.dictionary_encode(keys)
        first = _first_places(encoded.indices.to_numpy(), len(encoded.dictionary))
        columns = [(field.name, _texts(field, values.get(field.field_id), first)) for field in spec.fields]
        rows = [[(name, texts[row]) for name, texts in columns] for row in range(len(first))]
        return Texts(pa.array(rows, TEXTS), encoded.indices)

    def admitted(self, partition_filter: PartitionFilter) -> pa.BooleanArray:
        """Which files a filter keeps."""
        return partition_filter.evaluate(self.distinct).take(self.places)

    def to_json(self) -> pa.StringArray:
        return map_to_json(self.distinct).take(self.places)


def _first_places(codes: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    places = np.zeros(count, np.int64)
    places[codes[::-1]] = np.arange(len(codes))[::-1]
    return places


def _texts(field: PartitionField, values: pa.Array | None, rows: np.ndarray[Any, Any]) -> list[str | None]:
    if values is None:
        return [None] * len(rows)
    own = values.take(pa.array(rows))
    if field.transform.kind == "day":
        own = own.view(types.DATE)
    if _is_written_by_arrow(own.type) and field.transform.kind not in ("year", "month", "hour"):
        # Also of times that Python's calendar does not have.
        texts: list[str | None] = own.cast(types.STRING).to_pylist()
        if pa.types.is_timestamp(own.type):
            return [None if each is None else each.replace(" ", "T").replace("Z", "+00:00") for each in texts]
        return texts
    show = _shower(field)
    return [None if each is None else show(each) for each in own.to_pylist()]


def _is_written_by_arrow(data_type: pa.DataType) -> bool:
    is_plain = pa.types.is_integer(data_type) or pa.types.is_boolean(data_type) or pa.types.is_decimal(data_type)
    return bool(is_plain or pa.types.is_temporal(data_type) or is_text(data_type))


def _shower(field: PartitionField) -> Callable[[Any], str]:
    if field.transform.kind in TIMES:
        return lambda value: period_text(field.transform.kind, value)
    return _plain_text


def _plain_text(value: Any) -> str:
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)


def period_text(kind: str, value: int) -> str:
    """A period as Iceberg writes it.

    >>> period_text("day", 19783), period_text("month", -1), period_text("hour", 25), period_text("year", 54)
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
