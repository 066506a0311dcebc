"""Records inside of records as if their fields were the outer one's, which are the same bytes.

polars can pass over columns without building them, but not over fields of one. So the fields of a record inside of a
record become columns, those that are wanted are read, and then they are put together again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tamis.tables.arrays import one_array


@dataclass(frozen=True)
class _Field:
    """A field of a record: a column of its own, or a record of the wanted ones of its fields."""

    schema: Mapping[str, Any]
    column: str | None
    inside: Sequence[_Field] = ()

    @property
    def wanted_schema(self) -> Mapping[str, Any]:
        if self.column is not None:
            return self.schema
        return {**self.schema, "type": {**self.schema["type"], "fields": [each.schema for each in self.inside]}}


@dataclass(frozen=True)
class Inlined:
    """A record without records directly inside of it, and how to get back."""

    schema: Any
    """The same bytes, as a record of columns."""
    _fields: Sequence[_Field]
    """The wanted ones."""

    @staticmethod
    def of(schema: Any, is_wanted: Callable[[Mapping[str, Any]], bool]) -> Inlined:
        columns: list[dict[str, Any]] = []

        def column(field: Mapping[str, Any]) -> _Field:
            name = f"c{len(columns)}"
            columns.append({"name": name, "type": field["type"]})
            return _Field(field, name)

        fields = []
        for field in schema["fields"]:
            kind = field["type"]
            if isinstance(kind, Mapping) and kind["type"] == "record":
                inside = [(each, column(each)) for each in kind["fields"] if not _is_empty(each["type"])]
                empty = [(each, _Field(each, None)) for each in kind["fields"] if _is_empty(each["type"])]
                chosen = [made for each, made in (*inside, *empty) if is_wanted(each)]
                made = _Field(field, None, chosen)
            else:
                made = column(field)
            if is_wanted(field):
                fields.append(made)
        return Inlined({"type": "record", "name": "inlined", "fields": columns}, fields)

    @property
    def names(self) -> list[str]:
        """Of the columns that are wanted."""
        each = (inner for field in self._fields for inner in (field, *field.inside))
        return [field.column for field in each if field.column is not None]

    @property
    def wanted_schema(self) -> Any:
        return {"type": "record", "name": "wanted", "fields": [field.wanted_schema for field in self._fields]}

    def table(self, columns: pa.Table) -> pa.Table:
        """The records, from the columns that are wanted."""
        arrays = [_array(field, columns) for field in self._fields]
        return pa.table(arrays, [field.schema["name"] for field in self._fields])


def _is_empty(schema: Any) -> bool:
    """A record without fields takes no bytes, and polars need not know of it."""
    return isinstance(schema, Mapping) and schema["type"] == "record" and not schema["fields"]


def _array(field: _Field, columns: pa.Table) -> pa.Array:
    if field.column is not None:
        return one_array(columns[field.column])
    if not field.inside:
        return pa.Array.from_buffers(pa.struct([]), columns.num_rows, [None])
    arrays = [_array(each, columns) for each in field.inside]
    return pa.StructArray.from_arrays(arrays, [each.schema["name"] for each in field.inside])
