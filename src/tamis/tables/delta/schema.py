"""The metadata of a Delta table: its Arrow schema, its partition columns, and its column mapping.

A column has two names: the logical one, which users see, and the physical one, which data files, statistics and
partition values use. They differ where the table uses column mapping, and then at every level of nesting. All fields
are nullable in Arrow, whatever the table requires of its writers: a file that is older than a column does not have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from tamis.errors import CorruptFile, UnsupportedFeature
from tamis.tables.delta.fields import DeltaField
from tamis.tables.delta.schema_json import parse_fields

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
    """The table, for messages."""
    description: str | None = None
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

    def get_field_id(self, path: Sequence[str]) -> int | None:
        """Return the field id of a path, where the table uses column mapping."""
        found = self.find_field(path)
        return None if found is None else found.field_id

    @cached_property
    def fields_by_name(self) -> dict[str, DeltaField]:
        return {each.name: each for each in self.fields}

    def _find_fields(self, path: Sequence[str]) -> list[DeltaField] | None:
        """Return the fields along a logical path, outermost first."""
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
        raise CorruptFile(f"the format of the Delta table {location} is not an object: {str(data_format)[:80]!r}")
    provider = data_format.get("provider", "parquet")
    if provider != "parquet":
        raise UnsupportedFeature(f"the Delta table {location} has {provider!r} data files; Tamis supports parquet")
    mode = configuration.get("delta.columnMapping.mode", "none").lower() if has_column_mapping else "none"
    if mode not in ("none", "id", "name"):
        raise UnsupportedFeature(
            f"the Delta table {location} has the column mapping mode {mode!r}; Tamis supports none, id and name"
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
        description=action.get("description"),
        created_time=action.get("createdTime"),
        schema_text=text or "",
    )


def parse_configuration(given: Any, location: str) -> dict[str, str]:
    # A checkpoint has a map, which Arrow converts to pairs.
    pairs = given.items() if isinstance(given, Mapping) else given or ()
    try:
        return {str(key): str(value) for key, value in pairs if value is not None}
    except (TypeError, ValueError) as error:
        raise CorruptFile(
            f"the configuration of the Delta table {location} is not a map of strings: {given!r}"
        ) from error


def _parse_partition_columns(
    given: Any, fields: tuple[DeltaField, ...], location: str, *, is_mapped: bool
) -> tuple[str, ...]:
    if not isinstance(given, list | None):
        raise CorruptFile(f"the partitionColumns of the Delta table {location} are not a list: {str(given)[:80]!r}")
    found = []
    for name in given or ():
        match = next((each for each in fields if each.name == name), None)
        match = match or next((each for each in fields if each.name.lower() == str(name).lower()), None)
        if match is None:
            raise CorruptFile(f"the Delta table {location} is partitioned by {name!r}, which is not in its schema")
        if match.name != name and not is_mapped:
            # The log has the values under one of the two spellings; under the other one all of them would be NULL.
            raise CorruptFile(
                f"the Delta table {location} is partitioned by {name!r}, and its schema spells that column "
                f"{match.name!r}: write its metadata again with one spelling"
            )
        if match.kind != "value":
            raise CorruptFile(f"the Delta table {location} is partitioned by {name!r}, which is a {match.kind}")
        found.append(match.name)
    return tuple(found)
