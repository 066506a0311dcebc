"""The schema of a Delta table, from its JSON text to fields in Arrow's types.

| in the log                                 | in Arrow                          |
|--------------------------------------------|-----------------------------------|
| `byte`, `short`, `integer`, `long`         | `int8` to `int64`                 |
| `float`, `double`, `decimal(p,s)`          | the same                          |
| `string`, `char(n)`, `varchar(n)`          | `string`                          |
| `boolean`, `binary`, `date`                | the same                          |
| `timestamp`, `timestamp_ntz`               | microseconds, in UTC and unzoned  |
| `struct`, `array`, `map`                   | `struct`, `list`, `map`           |
| `variant`                                  | a struct of `metadata` and `value`|
| `void`                                     | left out, as Delta on Spark does  |
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from tamis import types
from tamis.errors import CorruptFile, UnsupportedFeature
from tamis.tables.delta.fields import VARIANT, DeltaField, Kind, TypeChange

Value = TypeVar("Value")

_ELEMENT, _KEY, _VALUE = "element", "key", "value"
_DEEPEST = 200
"""Levels of nesting: more than any table has, and few enough to walk."""

_PRIMITIVES: dict[str, pa.DataType] = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "int": pa.int32(),
    "long": types.LONG,
    "float": pa.float32(),
    "double": types.DOUBLE,
    "string": types.STRING,
    "boolean": types.BOOLEAN,
    "binary": types.BINARY,
    "date": types.DATE,
    "timestamp": types.TIMESTAMP,
    "timestamp_ntz": types.TIMESTAMP_NTZ,
    "variant": VARIANT,
    "void": types.NULL,
    "null": types.NULL,
    "decimal": pa.decimal128(10, 0),
}
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(-?\d{1,2})\s*\)")
_BOUNDED_TEXT = re.compile(r"(?:var)?char\(\s*\d+\s*\)")
_COLLATED_TEXT = re.compile(r"string collate (\S+)", re.IGNORECASE)
_BINARY_COLLATIONS = frozenset({"utf8_binary", "spark.utf8_binary"})

_ID = "delta.columnMapping.id"
_PHYSICAL_NAME = "delta.columnMapping.physicalName"
_NESTED_IDS = "delta.columnMapping.nested.ids"
_COLLATIONS = "__COLLATIONS"
_CHAR_TYPE = "__CHAR_VARCHAR_TYPE_STRING"


def read_fields(text: Any, place: str, *, is_mapped: bool, by_id: bool = False) -> tuple[DeltaField, ...]:
    """The columns that a schema in JSON declares; `is_mapped` where the table maps columns, `by_id` where files are
    read by their ids."""
    return _Reader(place, is_mapped, by_id).columns(text)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the schema of one table; places name the field that is wrong."""

    place: str
    is_mapped: bool
    by_id: bool

    def columns(self, text: Any) -> tuple[DeltaField, ...]:
        if text is None:
            # Delta on Spark writes none for a table that has no columns yet.
            return ()
        if not isinstance(text, str):
            raise CorruptFile(f"the schemaString of the Delta table {self.place} is no text: {str(text)[:80]}")
        try:
            root = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise CorruptFile(f"the schema of the Delta table {self.place} is no JSON: {error}") from error
        if not (isinstance(root, dict) and root.get("type") == "struct"):
            raise CorruptFile(f"the schema of the Delta table {self.place} is no struct")
        return self._fields(root, ())

    def _fields(self, struct: Mapping[str, Any], path: tuple[str, ...]) -> tuple[DeltaField, ...]:
        listed = struct.get("fields")
        if not isinstance(listed, list):
            raise self._corrupt("has no list of fields", path)
        found = [self._field(each, path) for each in listed]
        # Delta on Spark leaves out columns of no type when it reads.
        kept = tuple(each for each in found if not pa.types.is_null(each.data_type))
        for names in ([each.name for each in kept], [each.physical_name for each in kept]):
            if twice := _twice(names):
                raise self._corrupt(f"has two fields named {twice[0]!r}", path)
        if self.by_id and (same := _twice([each.field_id for each in kept])):
            raise self._corrupt(f"has two fields with the id {same[0]}, and the table maps columns by id", path)
        return kept

    def _field(self, given: Any, path: tuple[str, ...]) -> DeltaField:
        if not isinstance(given, dict) or not isinstance(given.get("name"), str):
            raise self._corrupt(f"has a field without a name: {str(given)[:80]}", path)
        name, metadata = self._unicode(given["name"], path), given.get("metadata") or {}
        path = (*path, name)
        if not isinstance(metadata, dict):
            raise self._corrupt("has metadata that is no object", path)
        physical_name, field_id = self._mapping(metadata, name, path)
        nested_ids = metadata.get(_NESTED_IDS) if self.is_mapped else None
        return self._typed(
            given.get("type"),
            path,
            _Around(
                name,
                physical_name,
                bool(given.get("nullable", True)),
                field_id,
                metadata,
                physical_name,
                nested_ids if isinstance(nested_ids, dict) else {},
            ),
        )

    def _mapping(self, metadata: Mapping[str, Any], name: str, path: tuple[str, ...]) -> tuple[str, int | None]:
        if not self.is_mapped:
            return name, None
        physical_name, field_id = metadata.get(_PHYSICAL_NAME), metadata.get(_ID)
        if not isinstance(physical_name, str) or not isinstance(field_id, int):
            raise self._corrupt(f"lacks {_PHYSICAL_NAME} or {_ID}, and the table maps columns", path)
        return self._unicode(physical_name, path), field_id

    def _unicode(self, name: str, path: tuple[str, ...]) -> str:
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise self._corrupt(f"has the name {name!r}, with half of a surrogate pair in it", path) from error
        return name

    def _typed(self, given: Any, path: tuple[str, ...], around: _Around) -> DeltaField:
        if len(path) > _DEEPEST:
            raise UnsupportedFeature(
                f"the schema of the Delta table {self.place} is nested more than {_DEEPEST} levels deep at "
                f"{'.'.join(path[:4])}…"
            )
        if isinstance(given, dict) and given.get("type") == "variant":
            given = "variant"
        if isinstance(given, str):
            data_type, collation = self._primitive(given, path)
            kind: Kind = "variant" if data_type == VARIANT else "value"
            return around.field(data_type, kind, (), given, collation)
        match given:
            case {"type": "struct"}:
                children = self._fields(given, path)
                return around.field(pa.struct([_arrow_field(each) for each in children]), "struct", children, "struct")
            case {"type": "array", "elementType": element}:
                item = self._part(_ELEMENT, element, path, around, given.get("containsNull", True))
                return around.field(pa.list_(_arrow_field(item)), "list", (item,), "array")
            case {"type": "map", "keyType": key, "valueType": value}:
                keys = self._part(_KEY, key, path, around, False)
                values = self._part(_VALUE, value, path, around, given.get("valueContainsNull", True))
                return around.field(pa.map_(keys.data_type, _arrow_field(values)), "map", (keys, values), "map")
            case _:
                raise self._corrupt(f"has no type that can be read: {str(given)[:80]}", path)

    def _part(self, name: str, given: Any, path: tuple[str, ...], around: _Around, nullable: Any) -> DeltaField:
        found = self._typed(given, (*path, name), around.part(name, bool(nullable)))
        if pa.types.is_null(found.data_type):
            raise UnsupportedFeature(
                f"column {'.'.join(path)} of the Delta table {self.place} is a list or a map of nothing (void), which "
                "no engine reads; drop the column"
            )
        return found

    def _primitive(self, name: str, path: tuple[str, ...]) -> tuple[pa.DataType, str | None]:
        known = _PRIMITIVES.get(name)
        if known is not None:
            return known, None
        if match := _DECIMAL.fullmatch(name):
            precision, scale = int(match[1]), int(match[2])
            if 1 <= precision <= 38 and 0 <= scale <= precision:
                return pa.decimal128(precision, scale), None
            raise self._corrupt(f"is {name}, and a decimal has 1 to 38 digits and no larger scale", path)
        if _BOUNDED_TEXT.fullmatch(name):
            return types.STRING, None
        if match := _COLLATED_TEXT.fullmatch(name):
            return types.STRING, match[1]
        raise UnsupportedFeature(
            f"column {'.'.join(path)} of the Delta table {self.place} has the type {name!r}, which Tamis cannot read. "
            "Look for a newer Tamis"
        )

    def _corrupt(self, what: str, path: tuple[str, ...]) -> CorruptFile:
        where = f"column {'.'.join(path)}" if path else "the schema"
        return CorruptFile(f"{where} of the Delta table {self.place} {what}")


def _twice(values: Sequence[Value]) -> list[Value]:
    """The values that occur more than once."""
    return [value for value, count in Counter(values).items() if count > 1]


def _arrow_field(found: DeltaField) -> pa.Field:
    return pa.field(found.name, found.data_type)


@dataclass(frozen=True, slots=True)
class _Around:
    """What is known of a field apart from its type. Parts of lists and maps have theirs from the field they are in."""

    name: str
    physical_name: str
    nullable: bool
    field_id: int | None
    metadata: Mapping[str, Any]
    key: str
    """The path of physical names from the nearest field of a struct, by which that one lists the ids of its parts."""
    nested_ids: Mapping[str, Any]
    part_of_field: str = ""

    def part(self, name: str, nullable: bool) -> _Around:
        key = f"{self.key}.{name}"
        listed = self.nested_ids.get(key)
        part = f"{self.part_of_field}.{name}" if self.part_of_field else name
        field_id = listed if isinstance(listed, int) else None
        return _Around(name, name, nullable, field_id, self.metadata, key, self.nested_ids, part)

    def field(
        self,
        data_type: pa.DataType,
        kind: Kind,
        children: tuple[DeltaField, ...],
        declared: str,
        collation: str | None = None,
    ) -> DeltaField:
        is_whole = not self.part_of_field
        expression = self.metadata.get("delta.generationExpression") if is_whole else None
        spark_type = self.metadata.get(_CHAR_TYPE) if is_whole else None
        return DeltaField(
            self.name,
            self.physical_name,
            data_type,
            kind,
            self.nullable,
            self.field_id,
            children,
            spark_type if isinstance(spark_type, str) else declared,
            self._collation(collation) if types.is_text(data_type) else None,
            self._type_changes(),
            expression if isinstance(expression, str) else None,
            self.metadata if is_whole else {},
        )

    def _collation(self, of_type: str | None) -> str | None:
        listed = self.metadata.get(_COLLATIONS)
        if of_type is None and isinstance(listed, dict):
            # Keys are the field's name, followed by the part of it that is meant.
            names = [str(name) for key, name in listed.items() if key.endswith(self.part_of_field)]
            of_type = names[0] if names else None
        return None if of_type is None or of_type.lower() in _BINARY_COLLATIONS else of_type

    def _type_changes(self) -> tuple[TypeChange, ...]:
        listed = self.metadata.get("delta.typeChanges")
        if not isinstance(listed, list):
            return ()
        return tuple(
            TypeChange(str(each.get("fromType")), str(each.get("toType")))
            for each in listed
            if isinstance(each, dict) and (each.get("fieldPath") or "") == self.part_of_field
        )
