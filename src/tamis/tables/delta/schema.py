"""The metadata of a Delta table: its schema in Arrow, its partition columns, and how its columns are mapped.

A column has two names: the logical one, which people use, and the physical one, which data files, statistics and
partition values use. They differ where the table maps columns, and then at every level of nesting.
All fields may be NULL in Arrow, whatever the table demands of its writers: a file that was written before a column was
added has none of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from tamis.errors import CorruptFile, UnsupportedFeature
from tamis.tables.delta.fields import DeltaField
from tamis.tables.delta.schema_json import read_fields

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
    place: str
    """The table, for messages."""
    description: str | None = None
    created_time: int | None = None
    schema_text: str = field(default="", repr=False)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns by their logical names, in the types of Spark."""
        return pa.schema([pa.field(each.name, each.data_type) for each in self.fields])

    @cached_property
    def generated(self) -> Mapping[str, str]:
        """The SQL expressions of generated columns."""
        return {each.name: each.generation_expression for each in self.fields if each.generation_expression is not None}

    @cached_property
    def collations(self) -> Mapping[tuple[str, ...], str]:
        """The paths of texts that are not compared byte by byte, and by which collation they are."""
        found: dict[tuple[str, ...], str] = {}
        waiting: list[tuple[tuple[str, ...], DeltaField]] = [((each.name,), each) for each in self.fields]
        while waiting:
            path, each = waiting.pop()
            if each.collation is not None:
                found[path] = each.collation
            waiting += [((*path, child.name), child) for child in each.children]
        return found

    def field(self, path: Sequence[str]) -> DeltaField | None:
        """The field at a logical path; parts of lists and maps are called `element`, `key` and `value`."""
        line = self._line(path)
        return line[-1] if line else None

    def physical(self, path: Sequence[str]) -> tuple[str, ...]:
        """The path of physical names at which data files and statistics have a field of the table."""
        line = self._line(path)
        if line is None:
            raise KeyError(".".join(path))
        return tuple(each.physical_name for each in line)

    def field_id(self, path: Sequence[str]) -> int | None:
        """The id of a field, where the table maps columns."""
        found = self.field(path)
        return None if found is None else found.field_id

    @cached_property
    def fields_by_name(self) -> dict[str, DeltaField]:
        return {each.name: each for each in self.fields}

    def _line(self, path: Sequence[str]) -> list[DeltaField] | None:
        """The field and those around it, outermost first."""
        line: list[DeltaField] = []
        for part in path:
            found = line[-1].child(part) if line else self.fields_by_name.get(part)
            if found is None:
                return None
            line.append(found)
        return line


def parse_metadata(action: Mapping[str, Any], place: str, *, has_column_mapping: bool = True) -> TableMetadata:
    """The metadata that a `metaData` action declares, from JSON or from a checkpoint's row.

    `has_column_mapping` is the protocol's: where it does not have the feature, the property that turns it on is idle.
    """
    configuration = table_configuration(action.get("configuration"), place)
    data_format = action.get("format") or {}
    if not isinstance(data_format, Mapping):
        raise CorruptFile(f"the format of the Delta table {place} is no object: {str(data_format)[:80]!r}")
    provider = data_format.get("provider", "parquet")
    if provider != "parquet":
        raise UnsupportedFeature(f"the data files of the Delta table {place} are {provider!r}; Tamis reads parquet")
    mode = configuration.get("delta.columnMapping.mode", "none").lower() if has_column_mapping else "none"
    if mode not in ("none", "id", "name"):
        raise UnsupportedFeature(f"the Delta table {place} maps columns by {mode!r}; Tamis knows none, id and name")
    text = action.get("schemaString")
    fields = read_fields(text, place, is_mapped=mode != "none", by_id=mode == "id")
    return TableMetadata(
        id=action.get("id"),
        name=action.get("name"),
        fields=fields,
        partition_columns=_partition_columns(action.get("partitionColumns"), fields, place, is_mapped=mode != "none"),
        mapping_mode=mode,  # type: ignore[arg-type]  # one of the three, which mypy does not see
        configuration=configuration,
        place=place,
        description=action.get("description"),
        created_time=action.get("createdTime"),
        schema_text=text or "",
    )


def table_configuration(given: Any, place: str) -> dict[str, str]:
    # A checkpoint has a map, which Arrow gives as pairs.
    pairs = given.items() if isinstance(given, Mapping) else given or ()
    try:
        return {str(key): str(value) for key, value in pairs if value is not None}
    except (TypeError, ValueError) as error:
        raise CorruptFile(f"the configuration of the Delta table {place} is no map of texts: {given!r}") from error


def _partition_columns(given: Any, fields: tuple[DeltaField, ...], place: str, *, is_mapped: bool) -> tuple[str, ...]:
    if not isinstance(given, list | None):
        raise CorruptFile(f"the partitionColumns of the Delta table {place} are no list: {str(given)[:80]!r}")
    found = []
    for name in given or ():
        match = next((each for each in fields if each.name == name), None)
        match = match or next((each for each in fields if each.name.lower() == str(name).lower()), None)
        if match is None:
            raise CorruptFile(f"the Delta table {place} is partitioned by {name!r}, which is no column of its schema")
        if match.name != name and not is_mapped:
            # The log keeps values under one of the two spellings, and under the other one all of them would be NULL.
            raise CorruptFile(
                f"the Delta table {place} is partitioned by {name!r}, and its schema spells that column "
                f"{match.name!r}: write its metadata again with one spelling"
            )
        if match.kind != "value":
            raise CorruptFile(f"the Delta table {place} is partitioned by {name!r}, which is a {match.kind}")
        found.append(match.name)
    return tuple(found)
