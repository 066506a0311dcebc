"""Fields of manifests and manifest lists, found by their ids: writers do not agree on all of their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tamis.errors import CorruptFile
from tamis.tables.arrays import one_array
from tamis.tables.iceberg.avro_schema import nullable


@dataclass(frozen=True)
class Fields:
    """The fields of a record, as columns."""

    columns: Mapping[int, pa.Array]
    """By their ids."""
    schemas: Mapping[int, Any]
    rows: int
    place: str

    @staticmethod
    def of_table(table: pa.Table, schema: Any, place: str, names: Mapping[str, int]) -> Fields:
        columns = [one_array(each) for each in table.columns]
        return _fields(columns, schema, table.num_rows, place, names)

    def inside(self, field_id: int, names: Mapping[str, int]) -> Fields:
        """The fields of a struct, which no row lacks."""
        column, schema = self.columns.get(field_id), self.schemas.get(field_id)
        if column is None or not pa.types.is_struct(column.type) or column.null_count:
            raise CorruptFile(f"'{self.place}' is no file of an Iceberg table: it has no record with the id {field_id}")
        return _fields(column.flatten(), nullable(schema)[0], self.rows, self.place, names)

    def required(self, field_id: int, data_type: pa.DataType) -> pa.Array:
        """A column of which every row has a value."""
        found = self.optional(field_id, data_type)
        if found.null_count:
            raise CorruptFile(f"'{self.place}' leaves out a value that it must have, that of the field {field_id}")
        return found

    def optional(self, field_id: int, data_type: pa.DataType, default: object = None) -> pa.Array:
        """A column that may be absent, and is then its default everywhere."""
        found = self.columns.get(field_id)
        if found is None:
            return pa.repeat(pa.scalar(default, data_type), self.rows)
        try:
            found = found.cast(data_type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise CorruptFile(f"'{self.place}' has {found.type} for the field {field_id}, not {data_type}") from error
        return found if default is None or not found.null_count else found.fill_null(default)

    def map(self, field_id: int) -> pa.Array | None:
        """A column of maps, kept as lists of `key` and `value`; None where it is absent."""
        found = self.columns.get(field_id)
        if found is None:
            return None
        inner = found.type.value_type if pa.types.is_large_list(found.type) or pa.types.is_list(found.type) else None
        names = [each.name for each in inner] if inner is not None and pa.types.is_struct(inner) else []
        if names != ["key", "value"]:
            raise CorruptFile(f"'{self.place}' has {found.type} for the field {field_id}, which is no map")
        return found


def _fields(columns: list[pa.Array], schema: Any, rows: int, place: str, names: Mapping[str, int]) -> Fields:
    found: dict[int, pa.Array] = {}
    schemas: dict[int, Any] = {}
    for column, field in zip(columns, schema["fields"], strict=True):
        field_id = field.get("field-id", names.get(field["name"]))
        if isinstance(field_id, int):
            found[field_id] = column
            schemas[field_id] = field["type"]
    return Fields(found, schemas, rows, place)


def values_of(maps: pa.Array | None, key: int, rows: int) -> pa.Array | None:
    """What each of many maps, kept as lists of `key` and `value`, has for a key: null for none."""
    if maps is None:
        return None
    entries = maps.values
    keys, values = entries.field("key"), entries.field("value")
    hits = np.flatnonzero(keys.to_numpy(zero_copy_only=False) == key)
    offsets = maps.offsets.to_numpy()
    # Lists that are null, or lie before a slice, own no entries.
    owners = np.searchsorted(offsets, hits, side="right") - 1
    is_owned = (owners >= 0) & (owners < rows)
    hits, owners = hits[is_owned], owners[is_owned]
    places = np.full(rows, -1, np.int64)
    places[owners] = hits
    if maps.null_count:
        places[np.asarray(maps.is_null())] = -1
    return values.take(pa.array(places, mask=places < 0))
