"""By what files know the fields of a table: ids, or names where a mapping is given; and what fields are that they lack.

Field ids never change, whatever becomes of names. Files that were not written for Iceberg have none: for those a table
may have a mapping from names to ids, of several names for a field if it was renamed. Since version 3 of the format a
field may say what it is in files that are older than it.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from tamis.parquet.field_names import ELEMENT, KEY, VALUE, FieldName, FieldNames
from tamis.tables.iceberg.arrow_schema import Json, arrow_type
from tamis.tables.iceberg.default_values import default_value

NAME_MAPPING = "schema.name-mapping.default"


def field_names_of(schema: Json, name_mapping: str | None = None) -> FieldNames:
    """The names of the fields of a schema, which is JSON of the metadata.

    `name_mapping` is the text of the table's property `schema.name-mapping.default`. The same object comes back for
    the same schema, so that what is worked out of files with it is found again.
    """
    return _field_names(json.dumps(schema, sort_keys=True), name_mapping)


@lru_cache(maxsize=64)
def _field_names(schema_text: str, name_mapping: str | None) -> FieldNames:
    fields = json.loads(schema_text)["fields"]
    by_id = {each["id"]: FieldName(each["name"], _inner(each["type"]), _default(each)) for each in fields}
    if name_mapping is None:
        return FieldNames(by_id, by_id=True, has_one_calendar=True)
    try:
        mapping = json.loads(name_mapping)
        by_name = _by_names(mapping, by_id)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        # Only files without ids need it, and a table may have none.
        wrong = f"the table's property {NAME_MAPPING} is not a name mapping ({error}): write it anew"
        return FieldNames(by_id, by_id=True, wrong_mapping=wrong, has_one_calendar=True)
    return FieldNames(by_id, by_id=True, without_ids=FieldNames(by_name, by_id=False), has_one_calendar=True)


def _inner(kind: Any) -> dict[Hashable, FieldName]:
    if isinstance(kind, str):
        return {}
    match kind["type"]:
        case "struct":
            return {
                each["id"]: FieldName(each["name"], _inner(each["type"]), _default(each)) for each in kind["fields"]
            }
        case "list":
            return {ELEMENT: FieldName("", _inner(kind["element"]))}
        case _:
            return {KEY: FieldName("", _inner(kind["key"])), VALUE: FieldName("", _inner(kind["value"]))}


def _default(given: Json) -> Any:
    value = given.get("initial-default")
    return None if value is None else default_value(value, given["type"], arrow_type(given["type"]), given["name"])


def _by_names(mapping: Sequence[Json], known: Mapping[Hashable, FieldName]) -> dict[Hashable, FieldName]:
    """What files without ids call fields. What has no id in the mapping, or one that is no longer, is nobody's."""
    found: dict[Hashable, FieldName] = {}
    for each in mapping:
        field = known.get(each.get("field-id"))
        if field is None:
            continue
        inner = _parts_by_names(each.get("fields") or (), field)
        for name in _names_in(each):
            if name in found and found[name].name != field.name:
                raise ValueError(f"the name {name!r} stands for two fields")
            found[name] = FieldName(field.name, inner)
    return found


def _names_in(mapped: Json) -> list[str]:
    names = mapped["names"]
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise ValueError(f"names is a list of texts, not {str(names)[:80]!r}")
    return names


def _parts_by_names(mapping: Sequence[Json], field: FieldName) -> dict[Hashable, FieldName]:
    if not any(part in field.inner for part in (ELEMENT, KEY, VALUE)):
        return _by_names(mapping, field.inner)
    # The parts of lists and maps are mapped by what they are.
    found: dict[Hashable, FieldName] = {}
    for part, own in field.inner.items():
        inner = next((each.get("fields") or () for each in mapping if part in _names_in(each)), ())
        found[part] = FieldName("", _parts_by_names(inner, own))
    return found
