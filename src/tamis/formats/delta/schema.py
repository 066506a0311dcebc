"""The metadata of a Delta table: its Arrow schema, its partition columns, and its column mapping.

A column has two names: the logical one, which users see, and the physical one, which data files, statistics and
partition values use. They differ if the table uses column mapping, at every level of nesting. All fields are nullable
in Arrow, even if the table requires a value: a file that is older than a column does not have it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar

import pyarrow as pa

from tamis import types
from tamis.errors import CorruptFile, UnsupportedFeature
from tamis.expr.bind import format_expression_position
from tamis.expr.functions.table import find_function, type_of
from tamis.expr.nodes import Call, Column, Expr, get_operands, walk
from tamis.expr.sql.printer import to_display_sql
from tamis.formats.errors import make_corrupt_log_error
from tamis.types import is_text

MappingMode = Literal["none", "id", "name"]


@dataclass(frozen=True)
class TableMetadata:
    """The `metaData` action of a table."""

    id: str | None
    name: str | None
    fields: tuple[DeltaField, ...]
    partition_columns: tuple[str, ...]
    """Logical names, spelled as in the schema."""
    mapping_mode: MappingMode
    configuration: Mapping[str, str]
    location: str
    created_time: int | None = None
    schema_text: str = field(default="", repr=False)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns by logical name, in the Arrow equivalents of Spark's types."""
        return pa.schema([pa.field(each.name, each.data_type) for each in self.fields])

    @cached_property
    def generated(self) -> Mapping[str, str]:
        """The SQL expressions of generated columns."""
        return {each.name: each.generation_expression for each in self.fields if each.generation_expression is not None}

    @cached_property
    def collations(self) -> Mapping[tuple[str, ...], str]:
        """The collations of strings that are not compared byte by byte, by path."""
        found: dict[tuple[str, ...], str] = {}
        waiting: list[tuple[tuple[str, ...], DeltaField]] = [((each.name,), each) for each in self.fields]
        while waiting:
            path, each = waiting.pop()
            if each.collation is not None:
                found[path] = each.collation
            waiting += [((*path, child.name), child) for child in each.children]
        return found

    def find_field(self, path: Sequence[str]) -> DeltaField | None:
        """Return the field at a logical path; the parts of lists and maps are `element`, `key` and `value`."""
        fields = self._find_fields(path)
        return fields[-1] if fields else None

    def to_physical_path(self, path: Sequence[str]) -> tuple[str, ...]:
        """Return the physical path of a logical path, as in data files and statistics."""
        fields = self._find_fields(path)
        if fields is None:
            raise KeyError(".".join(path))
        return tuple(each.physical_name for each in fields)

    def to_logical_path(self, path: Sequence[str]) -> tuple[str, ...] | None:
        """Return the logical path of a physical path; None if there is no such column."""
        names: list[str] = []
        fields: Sequence[DeltaField] = self.fields
        for part in path:
            found = next((each for each in fields if each.physical_name == part), None)
            if found is None:
                return None
            names.append(found.name)
            fields = found.children
        return tuple(names) or None

    @cached_property
    def fields_by_name(self) -> dict[str, DeltaField]:
        return {each.name: each for each in self.fields}

    def _find_fields(self, path: Sequence[str]) -> list[DeltaField] | None:
        fields: list[DeltaField] = []
        for part in path:
            found = fields[-1].get_child(part) if fields else self.fields_by_name.get(part)
            if found is None:
                return None
            fields.append(found)
        return fields


def parse_metadata(action: Mapping[str, Any], location: str, *, has_column_mapping: bool = True) -> TableMetadata:
    """Parse a `metaData` action, from JSON or from a checkpoint's row.

    `has_column_mapping` is the protocol's: without the feature, the table property that enables it has no effect.
    """
    configuration = parse_configuration(action.get("configuration"), location)
    data_format = action.get("format") or {}
    if not isinstance(data_format, Mapping):
        raise make_corrupt_log_error(
            f"the format of the Delta table {location} is not an object: {str(data_format)[:80]!r}"
        )
    provider = data_format.get("provider", "parquet")
    if provider != "parquet":
        raise UnsupportedFeature(
            f"the Delta table {location} has {provider!r} data files; Tamis supports parquet. "
            "Convert the table to parquet"
        )
    mode = configuration.get("delta.columnMapping.mode", "none").lower() if has_column_mapping else "none"
    if mode not in ("none", "id", "name"):
        raise UnsupportedFeature(
            f"the Delta table {location} has the column mapping mode {mode!r}; Tamis supports none, id and name. "
            "Look for a newer Tamis"
        )
    text = action.get("schemaString")
    fields = parse_fields(text, location, is_mapped=mode != "none", by_id=mode == "id")
    return TableMetadata(
        id=action.get("id"),
        name=action.get("name"),
        fields=fields,
        partition_columns=_parse_partition_columns(
            action.get("partitionColumns"), fields, location, is_mapped=mode != "none"
        ),
        mapping_mode=mode,  # type: ignore[arg-type]  # mypy does not narrow it to one of the three
        configuration=configuration,
        location=location,
        created_time=action.get("createdTime"),
        schema_text=text or "",
    )


def parse_configuration(given: Any, location: str) -> dict[str, str]:
    # A checkpoint has a map, which Arrow converts to pairs.
    pairs = given.items() if isinstance(given, Mapping) else given or ()
    try:
        return {str(key): str(value) for key, value in pairs if value is not None}
    except (TypeError, ValueError) as error:
        raise make_corrupt_log_error(
            f"the configuration of the Delta table {location} is not a map of strings: {given!r}"
        ) from error


def _parse_partition_columns(
    given: Any, fields: tuple[DeltaField, ...], location: str, *, is_mapped: bool
) -> tuple[str, ...]:
    if not isinstance(given, list | None):
        raise make_corrupt_log_error(
            f"the partitionColumns of the Delta table {location} are not a list: {str(given)[:80]!r}"
        )
    found = []
    for name in given or ():
        match = next((each for each in fields if each.name == name), None)
        match = match or next((each for each in fields if each.name.lower() == str(name).lower()), None)
        if match is None:
            raise make_corrupt_log_error(
                f"the Delta table {location} is partitioned by {name!r}, which is not in its schema"
            )
        if match.name != name and not is_mapped:
            # The log has the values under one of the two spellings; under the other one all of them would be NULL.
            raise CorruptFile(
                f"the Delta table {location} is partitioned by {name!r}, and its schema spells that column "
                f"{match.name!r}: write its metadata again with one spelling"
            )
        if match.kind != "value":
            raise make_corrupt_log_error(
                f"the Delta table {location} is partitioned by {name!r}, which is a {match.kind}"
            )
        found.append(match.name)
    return tuple(found)


# --- A field of a Delta table's schema: its Arrow type, its logical and physical name, and its metadata ---------------

VARIANT = pa.struct([("metadata", types.BINARY), ("value", types.BINARY)])

Kind = Literal["value", "struct", "list", "map", "variant"]


@dataclass(frozen=True, slots=True)
class DeltaField:
    """A field at any level: a column, a field of a struct, the `element` of a list, the `key` or `value` of a map."""

    name: str
    physical_name: str
    data_type: pa.DataType
    kind: Kind = "value"
    field_id: int | None = None
    """The field id in data files, where the table uses column mapping."""
    children: tuple[DeltaField, ...] = ()
    collation: str | None = None
    """The collation of a string that is not compared byte by byte."""
    former_types: frozenset[str] = frozenset()
    """The types before type widening, in the log's names."""
    generation_expression: str | None = None

    def get_child(self, name: str) -> DeltaField | None:
        return next((each for each in self.children if each.name == name), None)


# --- The schema of a Delta table: its JSON parsed to fields with Arrow types ------------------------------------------
#
# | in the log                                 | in Arrow                          |
# |--------------------------------------------|-----------------------------------|
# | `byte`, `short`, `integer`, `long`         | `int8` to `int64`                 |
# | `float`, `double`, `decimal(p,s)`          | the same                          |
# | `string`, `char(n)`, `varchar(n)`          | `string`                          |
# | `boolean`, `binary`, `date`                | the same                          |
# | `timestamp`, `timestamp_ntz`               | microseconds, UTC and zoneless    |
# | `struct`, `array`, `map`                   | `struct`, `list`, `map`           |
# | `variant`                                  | a struct of `metadata` and `value`|
# | `void`                                     | left out, as in Delta on Spark    |

Value = TypeVar("Value")

_ELEMENT, _KEY, _VALUE = "element", "key", "value"
_DEEPEST = 200
"""The most levels of nesting: more than any table has, and few enough for recursion."""

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


def parse_fields(text: Any, location: str, *, is_mapped: bool, by_id: bool = False) -> tuple[DeltaField, ...]:
    """Parse the columns of a schema in JSON; `is_mapped` if the table uses column mapping, `by_id` if by field id."""
    return _SchemaParser(location, is_mapped, by_id).parse(text)


@dataclass(frozen=True, slots=True)
class _SchemaParser:
    location: str
    is_mapped: bool
    by_id: bool

    def parse(self, text: Any) -> tuple[DeltaField, ...]:
        if text is None:
            # Delta on Spark writes no schema for a table without columns.
            return ()
        if not isinstance(text, str):
            raise make_corrupt_log_error(
                f"the schemaString of the Delta table {self.location} is not a string: {str(text)[:80]}"
            )
        try:
            root = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise make_corrupt_log_error(
                f"the schema of the Delta table {self.location} is not valid JSON: {error}"
            ) from error
        if not (isinstance(root, dict) and root.get("type") == "struct"):
            raise make_corrupt_log_error(f"the schema of the Delta table {self.location} is not a struct")
        return self._parse_fields(root, ())

    def _parse_fields(self, struct: Mapping[str, Any], path: tuple[str, ...]) -> tuple[DeltaField, ...]:
        listed = struct.get("fields")
        if not isinstance(listed, list):
            raise self._make_corrupt_error("has no list of fields", path)
        found = [self._parse_field(each, path) for each in listed]
        # Delta on Spark leaves out void columns when it reads.
        kept = tuple(each for each in found if not pa.types.is_null(each.data_type))
        for names in ([each.name for each in kept], [each.physical_name for each in kept]):
            if twice := _find_duplicates(names):
                raise self._make_corrupt_error(f"has two fields named {twice[0]!r}", path)
        if self.by_id and (same := _find_duplicates([each.field_id for each in kept])):
            raise self._make_corrupt_error(
                f"has two fields with the id {same[0]}, and the table maps columns by id", path
            )
        return kept

    def _parse_field(self, given: Any, path: tuple[str, ...]) -> DeltaField:
        if not isinstance(given, dict) or not isinstance(given.get("name"), str):
            raise self._make_corrupt_error(f"has a field without a name: {str(given)[:80]}", path)
        name, metadata = self._check_unicode(given["name"], path), given.get("metadata") or {}
        path = (*path, name)
        if not isinstance(metadata, dict):
            raise self._make_corrupt_error("has metadata that is not an object", path)
        physical_name, field_id = self._parse_mapping(metadata, name, path)
        nested_ids = metadata.get(_NESTED_IDS) if self.is_mapped else None
        nested_ids = nested_ids if isinstance(nested_ids, dict) else {}
        context = _FieldContext(name, physical_name, field_id, metadata, physical_name, nested_ids)
        return self._parse_type(given.get("type"), path, context)

    def _parse_mapping(self, metadata: Mapping[str, Any], name: str, path: tuple[str, ...]) -> tuple[str, int | None]:
        if not self.is_mapped:
            return name, None
        physical_name, field_id = metadata.get(_PHYSICAL_NAME), metadata.get(_ID)
        if not isinstance(physical_name, str) or not isinstance(field_id, int):
            raise self._make_corrupt_error(f"lacks {_PHYSICAL_NAME} or {_ID}, and the table maps columns", path)
        return self._check_unicode(physical_name, path), field_id

    def _check_unicode(self, name: str, path: tuple[str, ...]) -> str:
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise self._make_corrupt_error(
                f"has the name {name!r}, which contains half of a surrogate pair", path
            ) from error
        return name

    def _parse_type(self, given: Any, path: tuple[str, ...], context: _FieldContext) -> DeltaField:
        if len(path) > _DEEPEST:
            raise UnsupportedFeature(
                f"the schema of the Delta table {self.location} is nested more than {_DEEPEST} levels deep at "
                f"{'.'.join(path[:4])}…. Store the column as JSON text, or split it into several columns"
            )
        if isinstance(given, dict) and given.get("type") == "variant":
            given = "variant"
        if isinstance(given, str):
            data_type, collation = self._parse_primitive(given, path)
            kind: Kind = "variant" if data_type == VARIANT else "value"
            return context.make_field(data_type, kind, (), collation)
        match given:
            case {"type": "struct"}:
                children = self._parse_fields(given, path)
                struct = pa.struct([_to_arrow_field(each) for each in children])
                return context.make_field(struct, "struct", children)
            case {"type": "array", "elementType": element}:
                item = self._parse_part(_ELEMENT, element, path, context)
                return context.make_field(pa.list_(_to_arrow_field(item)), "list", (item,))
            case {"type": "map", "keyType": key, "valueType": value}:
                keys, values = (self._parse_part(*part, path, context) for part in ((_KEY, key), (_VALUE, value)))
                return context.make_field(pa.map_(keys.data_type, _to_arrow_field(values)), "map", (keys, values))
            case _:
                raise self._make_corrupt_error(f"has an invalid type: {str(given)[:80]}", path)

    def _parse_part(self, name: str, given: Any, path: tuple[str, ...], context: _FieldContext) -> DeltaField:
        found = self._parse_type(given, (*path, name), context.make_part(name))
        if pa.types.is_null(found.data_type):
            raise UnsupportedFeature(
                f"column {'.'.join(path)} of the Delta table {self.location} is a list or a map of void, which no "
                "engine reads; drop the column"
            )
        return found

    def _parse_primitive(self, name: str, path: tuple[str, ...]) -> tuple[pa.DataType, str | None]:
        known = _PRIMITIVES.get(name)
        if known is not None:
            return known, None
        if match := _DECIMAL.fullmatch(name):
            precision, scale = int(match[1]), int(match[2])
            if 1 <= precision <= 38 and 0 <= scale <= precision:
                return pa.decimal128(precision, scale), None
            raise self._make_corrupt_error(f"is {name}, expected 1 to 38 digits and a scale of at most as many", path)
        if _BOUNDED_TEXT.fullmatch(name):
            return types.STRING, None
        if match := _COLLATED_TEXT.fullmatch(name):
            return types.STRING, match[1]
        raise UnsupportedFeature(
            f"column {'.'.join(path)} of the Delta table {self.location} has the type {name!r}, which Tamis does not "
            "support. Look for a newer Tamis"
        )

    def _make_corrupt_error(self, what: str, path: tuple[str, ...]) -> CorruptFile:
        where = f"column {'.'.join(path)}" if path else "the schema"
        return make_corrupt_log_error(f"{where} of the Delta table {self.location} {what}")


def _find_duplicates(values: Sequence[Value]) -> list[Value]:
    return [value for value, count in Counter(values).items() if count > 1]


def _to_arrow_field(found: DeltaField) -> pa.Field:
    return pa.field(found.name, found.data_type)


@dataclass(frozen=True, slots=True)
class _FieldContext:
    """The properties of a field apart from its type. Parts of lists and maps derive theirs from the enclosing field."""

    name: str
    physical_name: str
    field_id: int | None
    metadata: Mapping[str, Any]
    key: str
    """The physical path from the nearest struct field, which is the key of a part in that field's nested ids."""
    nested_ids: Mapping[str, Any]
    part_of_field: str = ""

    def make_part(self, name: str) -> _FieldContext:
        key = f"{self.key}.{name}"
        listed = self.nested_ids.get(key)
        part = f"{self.part_of_field}.{name}" if self.part_of_field else name
        field_id = listed if isinstance(listed, int) else None
        return _FieldContext(name, name, field_id, self.metadata, key, self.nested_ids, part)

    def make_field(
        self, data_type: pa.DataType, kind: Kind, children: tuple[DeltaField, ...], collation: str | None = None
    ) -> DeltaField:
        expression = None if self.part_of_field else self.metadata.get("delta.generationExpression")
        return DeltaField(
            self.name,
            self.physical_name,
            data_type,
            kind,
            self.field_id,
            children,
            self._find_collation(collation) if types.is_text(data_type) else None,
            self._parse_former_types(),
            expression if isinstance(expression, str) else None,
        )

    def _find_collation(self, declared: str | None) -> str | None:
        listed = self.metadata.get(_COLLATIONS)
        if declared is None and isinstance(listed, dict):
            # A key is the field's name, followed by the path of the nested part.
            names = [str(name) for key, name in listed.items() if key.endswith(self.part_of_field)]
            declared = names[0] if names else None
        return None if declared is None or declared.lower() in _BINARY_COLLATIONS else declared

    def _parse_former_types(self) -> frozenset[str]:
        listed = self.metadata.get("delta.typeChanges")
        return frozenset(
            str(each.get("fromType"))
            for each in (listed if isinstance(listed, list) else ())
            if isinstance(each, dict) and (each.get("fieldPath") or "") == self.part_of_field
        )


# --- Strings with a collation: which filters on them are supported ----------------------------------------------------
#
# Under `UTF8_LCASE` the strings `A` and `a` are equal. Tamis compares strings byte by byte, so such a comparison
# would lose rows, whether in bounds, in partition values or in the residual filter. Predicates that do not compare
# the strings are supported: tests for NULL, the length, and casts to another type.


def check_collations(filter: Expr, metadata: TableMetadata) -> None:
    """Raise UnsupportedFeature if a filter compares strings with a collation, or derives other strings from them.

    The filter is bound and not yet simplified.
    """
    if not metadata.collations:
        return
    for node in walk(filter):
        if _is_non_comparing(node):
            continue
        for operand in get_operands(node):
            collation = _find_collation(operand, metadata) if isinstance(operand, Column) else None
            if collation is not None:
                raise UnsupportedFeature(
                    f"the column {to_display_sql(operand)} of the Delta table {metadata.location} has the collation "
                    f"{collation}, which Tamis does not support in filters{format_expression_position(operand)}. "
                    f"Compare bytes, as in CAST({to_display_sql(operand)} AS BINARY) = CAST('…' AS BINARY), or filter "
                    "the rows that a scan returns"
                )


def _is_non_comparing(node: Expr) -> bool:
    if not isinstance(node, Call):
        return False
    if node.function in ("cast", "try_cast"):
        target = type_of(node)
        return target is not None and not is_text(target)
    row = find_function(node.function)
    return row is not None and not row.compares_texts


def _find_collation(column: Column, metadata: TableMetadata) -> str | None:
    """Return the collation of a column, or of a string nested in it; None if there is none."""
    inside = (name for path, name in metadata.collations.items() if path[: len(column.path)] == column.path)
    return next(inside, None)
