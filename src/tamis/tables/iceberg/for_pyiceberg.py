"""The JSON of a metadata file without what pyiceberg may refuse, for a single word of which it refuses the whole table.

Schemas are read of the file itself, so that pyiceberg need not know more of them than their ids. A transform that
nobody knows says nothing anyway, and how a table is sorted, or what was counted of it, is of no use here.
"""

from __future__ import annotations

from typing import Any

from tamis.tables.iceberg.transforms import UNKNOWN, Transform

_OF_NO_USE = ("statistics", "partition-statistics", "metadata-log")


def simplify(given: dict[str, Any]) -> None:
    """Replace, in place, what pyiceberg may not know."""
    for name in _OF_NO_USE:
        given.pop(name, None)
    for schemas in (given.get("schemas"), [given.get("schema")]):
        for schema in schemas if isinstance(schemas, list) else ():
            if isinstance(schema, dict):
                schema["fields"] = []
                schema.pop("identifier-field-ids", None)
    _simplify_specs([given.get("partition-specs"), given.get("partition-spec")])
    given["sort-orders"] = [{"order-id": 0, "fields": []}]
    given["default-sort-order-id"] = 0


def _simplify_specs(given: Any) -> None:
    waiting = [given]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting += each
        elif isinstance(each, dict) and "fields" in each:
            waiting.append(each["fields"])
        elif isinstance(each, dict):
            _simplify_field(each)


def _simplify_field(field: dict[str, Any]) -> None:
    transform, sources = field.get("transform"), field.get("source-ids")
    is_of_many = False
    if isinstance(sources, list) and len(sources) > 1:
        is_of_many = True
        field.setdefault("source-id", sources[0])
    if is_of_many or (isinstance(transform, str) and Transform.parse(transform).kind == UNKNOWN):
        field["transform"] = UNKNOWN
