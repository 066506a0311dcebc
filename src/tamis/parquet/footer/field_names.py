"""Column mapping: the schemas of files with physical column names or field ids, in the table's logical names.

Tables that rename columns without rewriting files record for each field its physical identity: a name that never
changes, or a field id. Such a file is read as if it had been written with the current names. A field that the table
does not have, such as a dropped column, gets a name that no column has. A field that the file does not have is NULL, or
the default that the table defines for files older than the field.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from tamis.errors import CorruptFile
from tamis.parquet.footer.leaves import FieldPath, FileSchema, rename_file_schema

FIELD_ID = b"PARQUET:field_id"
"""The key of the field metadata in which pyarrow stores the field id of a file."""

ORC_FIELD_ID = b"iceberg.id"
"""The same key for ORC files of Iceberg tables."""

ELEMENT, KEY, VALUE = "element", "key", "value"
"""Path parts for the elements of a list, and the keys and the values of a map."""

_UNMAPPED_PREFIX = "\0"


@dataclass(frozen=True, slots=True)
class MappedField:
    """The logical name of a field, and of the fields inside it by their physical names or ids."""

    name: str
    inner: Mapping[Hashable, MappedField] = field(default_factory=dict)
    default: pa.Scalar | None = None
    """The value in files that lack the field; None means NULL. For a struct, any value means that it is not NULL."""
    physical_name: str | None = None
    """The physical name beside the field id. A column with only that name is meant but would not be found."""


@dataclass(frozen=True, eq=False)
class ColumnMapping:
    """The logical names of a table's fields, by field ids or by physical names."""

    fields: Mapping[Hashable, MappedField]
    by_id: bool
    without_ids: ColumnMapping | None = None
    """The mapping by name for files without field ids, if the table has one."""
    mapping_error: str | None = None
    """The reason why the mapping by name cannot be used. Files with field ids do not need it."""
    is_always_gregorian: bool = False
    """Whether dates are always Gregorian, whatever Spark recorded in a file. This holds for Iceberg."""
    _schema_cache: dict[FileSchema, FileSchema] = field(default_factory=dict, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return the mapping as JSON-compatible values."""
        without_ids = None if self.without_ids is None else self.without_ids.to_json()
        return {
            "by_id": self.by_id,
            "fields": _fields_to_json(self.fields),
            "without_ids": without_ids,
            "wrong_mapping": self.mapping_error,
            "has_one_calendar": self.is_always_gregorian,
        }

    @staticmethod
    def from_json(given: Mapping[str, Any]) -> ColumnMapping:
        """Build the mapping from the result of `to_json`."""
        without_ids = None if given["without_ids"] is None else ColumnMapping.from_json(given["without_ids"])
        return ColumnMapping(
            _fields_from_json(given["fields"]),
            given["by_id"],
            without_ids,
            given["wrong_mapping"],
            given["has_one_calendar"],
        )

    @cached_property
    def defaults(self) -> Mapping[FieldPath, pa.Scalar]:
        """The values of fields in files that lack them, by path in the table; NULL for fields without an entry."""
        return dict(_walk_defaults((), self.fields))

    def check(self, schema: FileSchema, location: str) -> None:
        """Raise if a column of the file lacks the field id that identifies it, since it would be read as NULL."""
        if schema in self._schema_cache:
            return
        lacking = self.for_file(schema.physical_arrow, location)._find_field_without_id(schema.physical_arrow)
        if lacking is not None:
            raise CorruptFile(
                f"'{location}' has no field id for its column {lacking!r}, and its table maps columns by id: write it "
                "again with ids, or map the table's columns by name"
            )

    def _find_field_without_id(self, own: pa.Schema) -> str | None:
        """Return a field that has the name of one of the table's fields, but not its id."""
        if not self.by_id:
            return None
        pending: list[tuple[pa.DataType, Mapping[Hashable, MappedField]]] = [(pa.struct(list(own)), self.fields)]
        while pending:
            data_type, names = pending.pop()
            if pa.types.is_struct(data_type):
                found = {self._key(each): each for each in data_type}
                absent = {each.physical_name for key, each in names.items() if key not in found}
                for each in data_type:
                    if self._key(each) is None and each.name in absent:
                        return str(each.name)
                pending += [(each.type, names[key].inner) for key, each in found.items() if key in names]
            else:
                pending += [(each, names[part].inner) for part, each in _list_parts(data_type) if part in names]
        return None

    def for_file(self, own: pa.Schema, location: str) -> ColumnMapping:
        """Return the mapping that applies to a file with this physical schema."""
        if not self.by_id or not len(own) or any(map(_get_field_id, own)):
            return self
        if self.mapping_error is not None and not _has_ids(own):
            raise CorruptFile(f"'{location}' has no field ids, and {self.mapping_error}")
        if self.without_ids is None:
            raise CorruptFile(
                f"'{location}' has no field ids, and its table maps columns by id: write it again with ids, or map the "
                "table's columns by name"
            )
        return self if _has_ids(own) else self.without_ids

    def with_logical_names(self, schema: FileSchema) -> FileSchema:
        """Return a file's schema in logical names: the same object for the same schema."""
        found = self._schema_cache.get(schema)
        if found is None:
            # Two threads may both compute it; one result is kept.
            arrow = self.for_file(schema.physical_arrow, "a file").rename_schema(schema.arrow)
            made = rename_file_schema(schema, arrow, self.defaults, has_one_calendar=self.is_always_gregorian)
            found = self._schema_cache.setdefault(schema, made)
        return found

    def rename_schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of a file, to which this mapping applies, in logical names."""
        return pa.schema([self._rename(each, self.fields) for each in schema])

    def rename_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of a file, or of some of its fields, in logical names, without copying."""
        fields = list(self.rename_schema(batch.schema))
        arrays = [
            array if array.type == each.type else array.view(each.type)
            for array, each in zip(batch.columns, fields, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _rename(self, given: pa.Field, names: Mapping[Hashable, MappedField]) -> pa.Field:
        known = names.get(self._key(given))
        if known is None:
            return given.with_name(f"{_UNMAPPED_PREFIX}{given.name}")
        return given.with_name(known.name).with_type(self._rename_inside(given.type, known.inner))

    def _key(self, given: pa.Field) -> Hashable:
        if not self.by_id:
            return str(given.name)
        found = _get_field_id(given)
        return None if found is None else int(found)

    def _rename_inside(self, data_type: pa.DataType, names: Mapping[Hashable, MappedField]) -> pa.DataType:
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

    def _rename_part(self, data_type: pa.DataType, names: Mapping[Hashable, MappedField], part: str) -> pa.DataType:
        known = names.get(part)
        return data_type if known is None else self._rename_inside(data_type, known.inner)


def _list_parts(data_type: pa.DataType) -> list[tuple[str, pa.DataType]]:
    """Return the element, key and value types of a list or a map."""
    if pa.types.is_map(data_type):
        return [(KEY, data_type.key_type), (VALUE, data_type.item_type)]
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return [(ELEMENT, data_type.value_type)]
    return []


def _get_field_id(given: pa.Field) -> bytes | None:
    metadata = given.metadata or {}
    return metadata.get(FIELD_ID) or metadata.get(ORC_FIELD_ID)


def _has_ids(schema: pa.Schema) -> bool:
    """Return whether some field has an id, at any depth."""
    pending = list(schema)
    while pending:
        each = pending.pop()
        if _get_field_id(each) is not None:
            return True
        pending += [each.type.field(index) for index in range(each.type.num_fields)]
    return False


def _walk_defaults(path: FieldPath, fields: Mapping[Hashable, MappedField]) -> Iterator[tuple[FieldPath, pa.Scalar]]:
    for key, each in fields.items():
        # The elements of lists and maps may have no name but their key.
        own = (*path, each.name or str(key))
        if each.default is not None:
            yield own, each.default
        yield from _walk_defaults(own, each.inner)


def _fields_to_json(fields: Mapping[Hashable, MappedField]) -> list[list[Any]]:
    return [
        [
            key,
            each.name,
            _fields_to_json(each.inner),
            None if each.default is None else _scalar_to_text(each.default),
            each.physical_name,
        ]
        for key, each in fields.items()
    ]


def _fields_from_json(given: Sequence[Sequence[Any]]) -> dict[Hashable, MappedField]:
    return {
        key: MappedField(name, _fields_from_json(inner), default and _scalar_from_text(default), called)
        for key, name, inner, default, called in given
    }


def _scalar_to_text(value: pa.Scalar) -> str:
    batch = pa.record_batch({"value": pa.array([value], value.type)})
    return b64encode(batch.schema.serialize().to_pybytes()).decode() + "," + b64encode(batch.serialize()).decode()


def _scalar_from_text(text: str) -> pa.Scalar:
    schema, batch = (pa.py_buffer(b64decode(part)) for part in text.split(","))
    return pa.ipc.read_record_batch(batch, pa.ipc.read_schema(schema)).column(0)[0]
