"""Column mapping of data files: by field id, or by a name mapping; with the initial-default of fields that files lack.

A field id never changes, whereas names may. Files that were not written for Iceberg have no field ids: for those a
table may have a name mapping from names to ids, with several names for a field that was renamed. Since format version 3
a field may have an `initial-default`, its value in files that are older than the field.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from tamis.parquet.field_names import ELEMENT, KEY, VALUE, ColumnMapping, MappedField
from tamis.tables.iceberg.arrow_schema import Json, arrow_type
from tamis.tables.iceberg.default_values import parse_default

NAME_MAPPING = "schema.name-mapping.default"


def make_field_names(schema: Json, name_mapping: str | None = None) -> ColumnMapping:
    """Return the field names of a schema, given as JSON of the metadata.

    `name_mapping` is the text of the table property `schema.name-mapping.default`. The same schema returns the same
    object, so that caches keyed by it are hit.
    """
    return _make_field_names(json.dumps(schema, sort_keys=True), name_mapping)


@lru_cache(maxsize=64)
def _make_field_names(schema_text: str, name_mapping: str | None) -> ColumnMapping:
    fields = json.loads(schema_text)["fields"]
    by_id = {
        each["id"]: MappedField(each["name"], _make_inner_names(each["type"]), _parse_field_default(each))
        for each in fields
    }
    if name_mapping is None:
        return ColumnMapping(by_id, by_id=True, is_always_gregorian=True)
    try:
        mapping = json.loads(name_mapping)
        by_name = _map_names(mapping, by_id)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        # Only files without field ids need the name mapping, and a table may have none.
        wrong = f"the table property {NAME_MAPPING} is not a valid name mapping ({error}): rewrite it"
        return ColumnMapping(by_id, by_id=True, mapping_error=wrong, is_always_gregorian=True)
    return ColumnMapping(by_id, by_id=True, without_ids=ColumnMapping(by_name, by_id=False), is_always_gregorian=True)


def _make_inner_names(kind: Any) -> dict[Hashable, MappedField]:
    if isinstance(kind, str):
        return {}
    match kind["type"]:
        case "struct":
            return {
                each["id"]: MappedField(each["name"], _make_inner_names(each["type"]), _parse_field_default(each))
                for each in kind["fields"]
            }
        case "list":
            return {ELEMENT: MappedField("", _make_inner_names(kind["element"]))}
        case _:
            return {
                KEY: MappedField("", _make_inner_names(kind["key"])),
                VALUE: MappedField("", _make_inner_names(kind["value"])),
            }


def _parse_field_default(given: Json) -> Any:
    value = given.get("initial-default")
    return None if value is None else parse_default(value, given["type"], arrow_type(given["type"]), given["name"])


def _map_names(mapping: Sequence[Json], known: Mapping[Hashable, MappedField]) -> dict[Hashable, MappedField]:
    """Map the names in files without field ids to fields. Names without an id, or with an unknown id, are ignored."""
    found: dict[Hashable, MappedField] = {}
    for each in mapping:
        field = known.get(each.get("field-id"))
        if field is None:
            continue
        inner = _map_nested_names(each.get("fields") or (), field)
        for name in _read_names(each):
            if name in found and found[name].name != field.name:
                raise ValueError(f"the name {name!r} maps to two fields")
            found[name] = MappedField(field.name, inner)
    return found


def _read_names(mapped: Json) -> list[str]:
    names = mapped["names"]
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise ValueError(f"names must be a list of strings, found {str(names)[:80]!r}")
    return names


def _map_nested_names(mapping: Sequence[Json], field: MappedField) -> dict[Hashable, MappedField]:
    if not any(part in field.inner for part in (ELEMENT, KEY, VALUE)):
        return _map_names(mapping, field.inner)
    # The parts of lists and maps are mapped by their roles.
    found: dict[Hashable, MappedField] = {}
    for part, own in field.inner.items():
        inner = next((each.get("fields") or () for each in mapping if part in _read_names(each)), ())
        found[part] = MappedField("", _map_nested_names(inner, own))
    return found
