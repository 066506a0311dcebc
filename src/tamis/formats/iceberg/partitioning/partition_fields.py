"""Partition values of Iceberg tables as people see them: a column for each partition field, in its type.

| transform              | name                        | type                                  |
|------------------------|-----------------------------|---------------------------------------|
| identity               | the column, as it is called | that of the column                    |
| bucket                 | the partition field         | int                                   |
| truncate               | the partition field         | that of the column                    |
| day                    | the partition field         | date                                  |
| year                   | the partition field         | int, as 2024                          |
| month, hour, unknown   | the partition field         | string, as 2024-03 and 2024-03-01-05  |

A table may have had several partition specs. A file of another spec has NULL in the fields of this one.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tamis import types
from tamis.formats.iceberg.partitioning.specs import PartitionField, Spec
from tamis.formats.source import IDENTITY_VALUES, format_absent_column
from tamis.types import is_bytes, is_text


def partition_field_names(spec: Spec) -> tuple[str, ...]:
    """Return the names of a spec's fields: those of columns for identity partitions. Void fields have none."""
    return tuple(_name(field) for field in spec.fields if field.transform.kind != "void")


def read_partition_fields(files: pa.Table, specs: Iterable[Spec]) -> pa.Table:
    """Return the typed partition values of listed files, those of the first spec first."""
    fields: dict[str, list[PartitionField]] = {}
    for spec in specs:
        for field in spec.fields:
            if field.transform.kind != "void":
                fields.setdefault(_name(field), []).append(field)
    texts = _Texts.of(files)
    columns = {name: _read(files, own, texts) for name, own in fields.items()}
    return pa.table(columns) if columns else files.select([])


def _name(field: PartitionField) -> str:
    is_identity = field.transform.kind == "identity" and field.source is not None
    return field.source.name if is_identity and field.source is not None else field.name


def _read(files: pa.Table, fields: list[PartitionField], texts: _Texts) -> pa.Array:
    """Return the values of fields that have one name in several specs."""
    first = fields[0]
    if all(field.transform.kind == "identity" and field.source is not None for field in fields):
        found = _read_identity(files, first)
        if found is not None:
            return found
    kinds = {_type(field) for field in fields}
    data_type = kinds.pop() if len(kinds) == 1 else types.STRING
    return texts.read(dict.fromkeys(field.name for field in fields), data_type)


def _read_identity(files: pa.Table, field: PartitionField) -> pa.Array | None:
    """Return the values that files have in common in a column."""
    if IDENTITY_VALUES not in files.column_names or field.source is None:
        return None
    given = files[IDENTITY_VALUES].combine_chunks()
    index = given.type.get_field_index(format_absent_column(field.source.path))
    return None if index < 0 else given.flatten()[index].flatten()[0]


def _type(field: PartitionField) -> pa.DataType:
    match field.transform.kind:
        case "bucket" | "year":
            return pa.int32()
        case "day":
            return types.DATE
        case "identity" | "truncate" if field.result_type is not None:
            return field.result_type
        case _:
            return types.STRING


@dataclass(frozen=True)
class _Texts:
    """The partition tuples of files as JSON: many files share one."""

    distinct: list[Mapping[str, str | None]]
    indices: pa.Array

    @staticmethod
    def of(files: pa.Table) -> _Texts:
        encoded = files["partition_values"].combine_chunks().dictionary_encode()
        return _Texts([json.loads(text or "{}") for text in encoded.dictionary.to_pylist()], encoded.indices)

    def read(self, names: Iterable[str], data_type: pa.DataType) -> pa.Array:
        """Return the first value that a tuple has for one of the names, in a type; NULL where it does not fit."""
        texts = [next((own[name] for name in names if own.get(name) is not None), None) for own in self.distinct]
        values = [None if text is None else _parse(text, data_type) for text in texts]
        return pa.array(values, data_type).take(self.indices)


def _parse(text: str, data_type: pa.DataType) -> Any:
    try:
        if is_text(data_type):
            return text
        if is_bytes(data_type):
            return b64decode(text)
        if pa.types.is_integer(data_type):
            return int(text)
        if pa.types.is_decimal(data_type):
            return Decimal(text)
        if pa.types.is_date(data_type):
            return date.fromisoformat(text)
        return pa.scalar(text).cast(data_type).as_py()
    except (ValueError, ArithmeticError, pa.ArrowException):
        return None
