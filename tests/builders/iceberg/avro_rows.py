"""Rows as Avro files of Iceberg tables hold them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from builders.iceberg.manifests import to_avro_name, to_partition_type
from builders.iceberg.values import Field, encode_unscaled, to_iceberg_type
from tamis.expr.evaluate import to_physical_value


def make_avro_schema(schema: pa.Schema, fields: list[Field] | None) -> dict[str, Any]:
    """Return the Avro schema of a file, with the field ids of `fields` if given."""
    return _make_record("table", list(schema), fields)


def _make_record(name: str, columns: list[pa.Field], fields: list[Field] | None) -> dict[str, Any]:
    known = {each["name"]: each for each in fields or []}
    made = []
    for each in columns:
        own = known.get(each.name)
        inner = own["type"]["fields"] if own and isinstance(own["type"], dict) else None
        kind: Any = (
            _make_record(f"{name}_{to_avro_name(each.name)}", list(each.type), inner)
            if pa.types.is_struct(each.type)
            else to_partition_type(
                own["type"] if own else to_iceberg_type(each.type), f"{name}_{to_avro_name(each.name)}"
            )
        )
        number = {"field-id": own["id"]} if own else {}
        made.append({"name": to_avro_name(each.name), "type": ["null", kind], "default": None, **number})
    return {"type": "record", "name": name, "fields": made}


def make_avro_rows(rows: pa.Table) -> Iterator[dict[str, Any]]:
    for index in range(rows.num_rows):
        yield {to_avro_name(name): _to_avro_value(rows[name][index]) for name in rows.column_names}


def _to_avro_value(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    if pa.types.is_struct(value.type):
        return {to_avro_name(name): _to_avro_value(each) for name, each in value.items()}
    if pa.types.is_decimal(value.type):
        return encode_unscaled(value.as_py(), to_partition_type(to_iceberg_type(value.type), "")["size"])
    return to_physical_value(value)
