"""Access to the fields of manifests and manifest lists by field id, because writers use different names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tamis.errors import CorruptFile
from tamis.tables.arrays import to_single_array
from tamis.tables.iceberg.avro_schema import unwrap_nullable


@dataclass(frozen=True)
class Fields:
    """The fields of a record, as columns."""

    columns: Mapping[int, pa.Array]
    """The columns by field id."""
    schemas: Mapping[int, Any]
    rows: int
    location: str

    @staticmethod
    def of_table(table: pa.Table, schema: Any, location: str, names: Mapping[str, int]) -> Fields:
        columns = [to_single_array(each) for each in table.columns]
        return _collect_fields(columns, schema, table.num_rows, location, names)

    def get_struct(self, field_id: int, names: Mapping[str, int]) -> Fields:
        """Return the fields of a struct that is never null."""
        column, schema = self.columns.get(field_id), self.schemas.get(field_id)
        if column is None or not pa.types.is_struct(column.type) or column.null_count:
            raise CorruptFile(
                f"'{self.location}' is not a manifest or manifest list: it has no record with the field id {field_id}"
            )
        return _collect_fields(column.flatten(), unwrap_nullable(schema)[0], self.rows, self.location, names)

    def get_required(self, field_id: int, data_type: pa.DataType) -> pa.Array:
        """Return a column without nulls."""
        found = self.get_optional(field_id, data_type)
        if found.null_count:
            raise CorruptFile(f"'{self.location}' lacks a required value of the field {field_id}")
        return found

    def get_optional(self, field_id: int, data_type: pa.DataType, default: object = None) -> pa.Array:
        """Return a column that may be absent; its missing values are the default."""
        found = self.columns.get(field_id)
        if found is None:
            return pa.repeat(pa.scalar(default, data_type), self.rows)
        try:
            found = found.cast(data_type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise CorruptFile(
                f"'{self.location}' has the type {found.type} for the field {field_id}, expected {data_type}"
            ) from error
        return found if default is None or not found.null_count else found.fill_null(default)

    def get_map(self, field_id: int) -> pa.Array | None:
        """Return a column of maps, stored as lists of `key` and `value`; None if it is absent."""
        found = self.columns.get(field_id)
        if found is None:
            return None
        inner = found.type.value_type if pa.types.is_large_list(found.type) or pa.types.is_list(found.type) else None
        names = [each.name for each in inner] if inner is not None and pa.types.is_struct(inner) else []
        if names != ["key", "value"]:
            raise CorruptFile(f"'{self.location}' has the type {found.type} for the field {field_id}, expected a map")
        return found


def _collect_fields(columns: list[pa.Array], schema: Any, rows: int, location: str, names: Mapping[str, int]) -> Fields:
    found: dict[int, pa.Array] = {}
    schemas: dict[int, Any] = {}
    for column, field in zip(columns, schema["fields"], strict=True):
        field_id = field.get("field-id", names.get(field["name"]))
        if isinstance(field_id, int):
            found[field_id] = column
            schemas[field_id] = field["type"]
    return Fields(found, schemas, rows, location)


def find_map_values(maps: pa.Array | None, key: int, rows: int) -> pa.Array | None:
    """Return each map's value for a key, null if it has none. Maps are lists of `key` and `value`."""
    if maps is None:
        return None
    entries = maps.values
    keys, values = entries.field("key"), entries.field("value")
    hits = np.flatnonzero(keys.to_numpy(zero_copy_only=False) == key)
    offsets = maps.offsets.to_numpy()
    # Entries of null lists, and of lists before a slice, have no owner.
    owners = np.searchsorted(offsets, hits, side="right") - 1
    is_owned = (owners >= 0) & (owners < rows)
    hits, owners = hits[is_owned], owners[is_owned]
    positions = np.full(rows, -1, np.int64)
    positions[owners] = hits
    if maps.null_count:
        positions[np.asarray(maps.is_null())] = -1
    return values.take(pa.array(positions, mask=positions < 0))
