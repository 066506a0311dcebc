"""Avro records whose nested records are flattened, which does not change their bytes.

polars can skip columns, but not fields of a column. So the fields of a nested record become columns, the wanted columns
are read, and the nested records are rebuilt from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tamis.tables.arrays import to_single_array


@dataclass(frozen=True)
class _Field:
    """A field of a record: a column, or a nested record with its wanted fields."""

    schema: Mapping[str, Any]
    column: str | None
    nested: Sequence[_Field] = ()

    @property
    def wanted_schema(self) -> Mapping[str, Any]:
        if self.column is not None:
            return self.schema
        return {**self.schema, "type": {**self.schema["type"], "fields": [each.schema for each in self.nested]}}


@dataclass(frozen=True)
class FlattenedRecord:
    """A flattened record, and how to rebuild the original."""

    schema: Any
    """The schema of the same bytes, as a record of columns."""
    _fields: Sequence[_Field]
    """The wanted fields."""

    @staticmethod
    def of(schema: Any, is_wanted: Callable[[Mapping[str, Any]], bool]) -> FlattenedRecord:
        columns: list[dict[str, Any]] = []

        def add_column(field: Mapping[str, Any]) -> _Field:
            name = f"c{len(columns)}"
            columns.append({"name": name, "type": field["type"]})
            return _Field(field, name)

        fields = []
        for field in schema["fields"]:
            kind = field["type"]
            if isinstance(kind, Mapping) and kind["type"] == "record":
                nested = [(each, add_column(each)) for each in kind["fields"] if not _is_empty(each["type"])]
                empty = [(each, _Field(each, None)) for each in kind["fields"] if _is_empty(each["type"])]
                wanted = [flattened for each, flattened in (*nested, *empty) if is_wanted(each)]
                flattened = _Field(field, None, wanted)
            else:
                flattened = add_column(field)
            if is_wanted(field):
                fields.append(flattened)
        return FlattenedRecord({"type": "record", "name": "flattened", "fields": columns}, fields)

    @property
    def names(self) -> list[str]:
        """The names of the wanted columns."""
        each = (inner for field in self._fields for inner in (field, *field.nested))
        return [field.column for field in each if field.column is not None]

    @property
    def wanted_schema(self) -> Any:
        return {"type": "record", "name": "wanted", "fields": [field.wanted_schema for field in self._fields]}

    def rebuild(self, columns: pa.Table) -> pa.Table:
        """Rebuild the records from the wanted columns."""
        arrays = [_rebuild_array(field, columns) for field in self._fields]
        return pa.table(arrays, [field.schema["name"] for field in self._fields])


def _is_empty(schema: Any) -> bool:
    """Return whether a type is a record without fields. It takes no bytes, so polars can ignore it."""
    return isinstance(schema, Mapping) and schema["type"] == "record" and not schema["fields"]


def _rebuild_array(field: _Field, columns: pa.Table) -> pa.Array:
    if field.column is not None:
        return to_single_array(columns[field.column])
    if not field.nested:
        return pa.Array.from_buffers(pa.struct([]), columns.num_rows, [None])
    arrays = [_rebuild_array(each, columns) for each in field.nested]
    return pa.StructArray.from_arrays(arrays, [each.schema["name"] for each in field.nested])
