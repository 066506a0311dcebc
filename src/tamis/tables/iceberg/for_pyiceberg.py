"""Simplifying the JSON of table metadata for pyiceberg, which rejects a table for a single unsupported element.

Tamis reads schemas from the file itself, so pyiceberg needs only their ids. An unsupported transform cannot prune
anyway, and sort orders and statistics files are not used.
"""

from __future__ import annotations

from typing import Any

from tamis.tables.iceberg.transforms import UNKNOWN, Transform

_UNUSED = ("statistics", "partition-statistics", "metadata-log")


def simplify(given: dict[str, Any]) -> None:
    """Replace in place what pyiceberg may not support."""
    for name in _UNUSED:
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
    pending = [given]
    while pending:
        each = pending.pop()
        if isinstance(each, list):
            pending += each
        elif isinstance(each, dict) and "fields" in each:
            pending.append(each["fields"])
        elif isinstance(each, dict):
            _simplify_field(each)


def _simplify_field(field: dict[str, Any]) -> None:
    transform, sources = field.get("transform"), field.get("source-ids")
    has_many_sources = False
    if isinstance(sources, list) and len(sources) > 1:
        has_many_sources = True
        field.setdefault("source-id", sources[0])
    if has_many_sources or (isinstance(transform, str) and Transform.parse(transform).kind == UNKNOWN):
        field["transform"] = UNKNOWN
