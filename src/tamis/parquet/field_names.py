"""Files that call the columns of a table by other names, or know them by ids: their schemas in the table's words.

Tables that rename columns without rewriting files keep, for each field, what files call it: a name that never changes,
or a number. Such a file is read as if it had been written with the names of today. What the table does not have, a
column that was dropped say, gets a name that no column has. What the file does not have is NULL, or the value that the
table notes for files older than the field.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from tamis.errors import CorruptFile
from tamis.parquet.leaves import FieldPath, FileSchema, with_arrow_schema

FIELD_ID = b"PARQUET:field_id"
"""Where pyarrow keeps the id that a file gives to a field."""

ORC_FIELD_ID = b"iceberg.id"
"""The same for ORC files of Iceberg tables."""

ELEMENT, KEY, VALUE = "element", "key", "value"
"""In place of a name: the elements of a list, the keys and the values of a map."""

_NOBODYS = "\0"


@dataclass(frozen=True, slots=True)
class FieldName:
    """The name that a table has for a field, and those for the fields inside it, by what files call them."""

    name: str
    inner: Mapping[Hashable, FieldName] = field(default_factory=dict)
    default: pa.Scalar | None = None
    """What the field is in files that do not have it; None: NULL. A struct's own says no more than that it is there."""
    called: str | None = None
    """The name that it has in files beside its id. A column with that name alone was meant, and would not be found."""


@dataclass(frozen=True, eq=False)
class FieldNames:
    """The names of a table's fields, by what files call them: by ids, or else by names."""

    fields: Mapping[Hashable, FieldName]
    by_id: bool
    without_ids: FieldNames | None = None
    """For files that give no id to any field, where the table knows their names."""
    wrong_mapping: str | None = None
    """Why the names that the table has for such files cannot be used. Files with ids do not need them."""
    has_one_calendar: bool = False
    """Whether days are those of today's calendar, whatever Spark noted in a file: so they are to Iceberg."""
    _known: dict[FileSchema, FileSchema] = field(default_factory=dict, repr=False)

    def to_json(self) -> dict[str, Any]:
        """The names as values that `json` takes."""
        without_ids = None if self.without_ids is None else self.without_ids.to_json()
        return {
            "by_id": self.by_id,
            "fields": _fields_to_json(self.fields),
            "without_ids": without_ids,
            "wrong_mapping": self.wrong_mapping,
            "has_one_calendar": self.has_one_calendar,
        }

    @staticmethod
    def from_json(given: Mapping[str, Any]) -> FieldNames:
        """The names that `to_json` described."""
        without_ids = None if given["without_ids"] is None else FieldNames.from_json(given["without_ids"])
        return FieldNames(
            _fields_from_json(given["fields"]),
            given["by_id"],
            without_ids,
            given["wrong_mapping"],
            given["has_one_calendar"],
        )

    @cached_property
    def defaults(self) -> Mapping[FieldPath, pa.Scalar]:
        """What fields are in files that do not have them, by their paths in the table; where nothing is said, NULL."""
        return dict(_defaults((), self.fields))

    def check(self, schema: FileSchema, place: str) -> None:
        """An error for a file that lacks what its columns, or one of them, would be known by: they would be NULL."""
        if schema in self._known:
            return
        lacking = self.for_file(schema.own_arrow, place)._without_its_id(schema.own_arrow)
        if lacking is not None:
            raise CorruptFile(
                f"'{place}' gives no field id to its column {lacking!r}, and its table knows columns by ids: write it "
                "again with ids, or map the table's columns by name"
            )

    def _without_its_id(self, own: pa.Schema) -> str | None:
        """A field that has the name of one of the table, and not the id by which it would be found."""
        if not self.by_id:
            return None
        waiting: list[tuple[pa.DataType, Mapping[Hashable, FieldName]]] = [(pa.struct(list(own)), self.fields)]
        while waiting:
            data_type, names = waiting.pop()
            if pa.types.is_struct(data_type):
                found = {self._key(each): each for each in data_type}
                absent = {each.called for key, each in names.items() if key not in found}
                for each in data_type:
                    if self._key(each) is None and each.name in absent:
                        return str(each.name)
                waiting += [(each.type, names[key].inner) for key, each in found.items() if key in names]
            else:
                waiting += [(each, names[part].inner) for part, each in _parts_of(data_type) if part in names]
        return None

    def for_file(self, own: pa.Schema, place: str) -> FieldNames:
        """The names that are good for a file with this schema, which is its own."""
        if not self.by_id or not len(own) or any(map(_field_id, own)):
            return self
        if self.wrong_mapping is not None and not _has_ids(own):
            raise CorruptFile(f"'{place}' gives no field ids to its columns, and {self.wrong_mapping}")
        if self.without_ids is None:
            raise CorruptFile(
                f"'{place}' gives no field ids to its columns, and its table knows them by ids: write it again with "
                "ids, or map the table's columns by name"
            )
        return self if _has_ids(own) else self.without_ids

    def renamed(self, schema: FileSchema) -> FileSchema:
        """The schema of a file in the table's words, the same object for the same schema."""
        found = self._known.get(schema)
        if found is None:
            # Two threads may both make one, of which one is kept.
            arrow = self.for_file(schema.own_arrow, "a file").rename_schema(schema.arrow)
            made = with_arrow_schema(schema, arrow, self.defaults, has_one_calendar=self.has_one_calendar)
            found = self._known.setdefault(schema, made)
        return found

    def rename_schema(self, schema: pa.Schema) -> pa.Schema:
        """The schema of a file for which these names are good, in the table's words."""
        return pa.schema([self._rename(each, self.fields) for each in schema])

    def rename_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch as a file has it, or some of its fields, in the table's words. Nothing is copied."""
        fields = list(self.rename_schema(batch.schema))
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


def _parts_of(data_type: pa.DataType) -> list[tuple[str, pa.DataType]]:
    """What a list or a map is made of."""
    if pa.types.is_map(data_type):
        return [(KEY, data_type.key_type), (VALUE, data_type.item_type)]
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return [(ELEMENT, data_type.value_type)]
    return []


def _field_id(given: pa.Field) -> bytes | None:
    metadata = given.metadata or {}
    return metadata.get(FIELD_ID) or metadata.get(ORC_FIELD_ID)


def _has_ids(schema: pa.Schema) -> bool:
    """Whether some field has an id, at any depth."""
    waiting = list(schema)
    while waiting:
        each = waiting.pop()
        if _field_id(each) is not None:
            return True
        waiting += [each.type.field(index) for index in range(each.type.num_fields)]
    return False


def _defaults(path: FieldPath, fields: Mapping[Hashable, FieldName]) -> Iterator[tuple[FieldPath, pa.Scalar]]:
    for key, each in fields.items():
        # The parts of lists and maps may have no name besides what they are.
        own = (*path, each.name or str(key))
        if each.default is not None:
            yield own, each.default
        yield from _defaults(own, each.inner)


def _fields_to_json(fields: Mapping[Hashable, FieldName]) -> list[list[Any]]:
    return [
        [
            key,
            each.name,
            _fields_to_json(each.inner),
            None if each.default is None else _scalar_to_text(each.default),
            each.called,
        ]
        for key, each in fields.items()
    ]


def _fields_from_json(given: Sequence[Sequence[Any]]) -> dict[Hashable, FieldName]:
    return {
        key: FieldName(name, _fields_from_json(inner), None if default is None else _scalar_from_text(default), called)
        for key, name, inner, default, called in given
    }


def _scalar_to_text(value: pa.Scalar) -> str:
    batch = pa.record_batch({"value": pa.array([value], value.type)})
    return b64encode(batch.schema.serialize().to_pybytes()).decode() + "," + b64encode(batch.serialize()).decode()


def _scalar_from_text(text: str) -> pa.Scalar:
    schema, batch = (pa.py_buffer(b64decode(part)) for part in text.split(","))
    return pa.ipc.read_record_batch(batch, pa.ipc.read_schema(schema)).column(0)[0]
