"""Files that call the columns of a table by other names, or know them by ids: their schemas in the table's words.

Tables that rename columns without rewriting files keep, for each field, what files call it: a name that never changes,
or a number. Such a file is read as if it had been written with the names of today. What the table does not have, a
column that was dropped say, gets a name that no column has.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tamis.errors import CorruptFile
from tamis.parquet.leaves import FileSchema, with_arrow_schema

FIELD_ID = b"PARQUET:field_id"
"""Where pyarrow keeps the id that a file gives to a field."""

ELEMENT, KEY, VALUE = "element", "key", "value"
"""In place of a name: the elements of a list, the keys and the values of a map."""

_NOBODYS = "\0"


@dataclass(frozen=True, slots=True)
class FieldName:
    """The name that a table has for a field, and those for the fields inside it, by what files call them."""

    name: str
    inner: Mapping[Hashable, FieldName] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class FieldNames:
    """The names of a table's fields, by what files call them: by ids, or else by names."""

    fields: Mapping[Hashable, FieldName]
    by_id: bool
    _known: dict[FileSchema, FileSchema] = field(default_factory=dict, repr=False)

    def to_json(self) -> dict[str, Any]:
        """The names as values that `json` takes."""
        return {"by_id": self.by_id, "fields": _fields_to_json(self.fields)}

    @staticmethod
    def from_json(given: Mapping[str, Any]) -> FieldNames:
        """The names that `to_json` described."""
        return FieldNames(_fields_from_json(given["fields"]), given["by_id"])

    def check(self, schema: FileSchema, place: str) -> None:
        """An error for a file that does not have what its columns would be known by: all of them would be NULL."""
        if self.by_id and schema not in self._known and len(schema.arrow) and not any(map(_field_id, schema.arrow)):
            raise CorruptFile(
                f"'{place}' gives no field ids to its columns, and its table knows them by ids: write it again with "
                "ids, or map the table's columns by name"
            )

    def renamed(self, schema: FileSchema) -> FileSchema:
        """The schema of a file in the table's words, the same object for the same schema."""
        found = self._known.get(schema)
        if found is None:
            # Two threads may both make one, of which one is kept.
            made = with_arrow_schema(schema, pa.schema([self._rename(each, self.fields) for each in schema.arrow]))
            found = self._known.setdefault(schema, made)
        return found

    def rename_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch as a file has it, or some of its fields, in the table's words. Nothing is copied."""
        fields = [self._rename(each, self.fields) for each in batch.schema]
        arrays = [
            array if array.type == each.type else array.view(each.type)
            for array, each in zip(batch.columns, fields, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _rename(self, given: pa.Field, names: Mapping[Hashable, FieldName]) -> pa.Field:
        known = names.get(self._key(given))
        if known is None:
            return given.with_name(f"{_NOBODYS}{given.name}")
        return given.with_name(known.name).with_type(self._rename_inside(given.type, known.inner))

    def _key(self, given: pa.Field) -> Hashable:
        if not self.by_id:
            return str(given.name)
        found = _field_id(given)
        return None if found is None else int(found)

    def _rename_inside(self, data_type: pa.DataType, names: Mapping[Hashable, FieldName]) -> pa.DataType:
        if pa.types.is_struct(data_type):
            return pa.struct([self._rename(each, names) for each in data_type])
        if pa.types.is_map(data_type):
            key, value = data_type.key_field, data_type.item_field
            return pa.map_(
                key.with_type(self._rename_part(key.type, names, KEY)),
                value.with_type(self._rename_part(value.type, names, VALUE)),
                keys_sorted=data_type.keys_sorted,
            )
        if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
            element = data_type.value_field
            make = pa.list_ if pa.types.is_list(data_type) else pa.large_list
            return make(element.with_type(self._rename_part(element.type, names, ELEMENT)))
        return data_type

    def _rename_part(self, data_type: pa.DataType, names: Mapping[Hashable, FieldName], part: str) -> pa.DataType:
        known = names.get(part)
        return data_type if known is None else self._rename_inside(data_type, known.inner)


def _field_id(given: pa.Field) -> bytes | None:
    return (given.metadata or {}).get(FIELD_ID)


def _fields_to_json(fields: Mapping[Hashable, FieldName]) -> list[list[Any]]:
    return [[key, each.name, _fields_to_json(each.inner)] for key, each in fields.items()]


def _fields_from_json(given: Sequence[Sequence[Any]]) -> dict[Hashable, FieldName]:
    return {key: FieldName(name, _fields_from_json(inner)) for key, name, inner in given}
