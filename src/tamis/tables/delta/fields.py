"""A field of a Delta table's schema: its Arrow type, its logical and physical name, and its metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from tamis import types

VARIANT = pa.struct([("metadata", types.BINARY), ("value", types.BINARY)])

Kind = Literal["value", "struct", "list", "map", "variant"]


@dataclass(frozen=True, slots=True)
class TypeChange:
    """A type change of a field (type widening), in the log's type names."""

    from_type: str
    to_type: str


@dataclass(frozen=True, slots=True)
class DeltaField:
    """A field at any level: a column, a field of a struct, the `element` of a list, the `key` or `value` of a map."""

    name: str
    physical_name: str
    data_type: pa.DataType
    kind: Kind = "value"
    nullable: bool = True
    """A constraint on writers only: readers find NULL in files that are older than the column."""
    field_id: int | None = None
    """The field id in data files, where the table uses column mapping."""
    children: tuple[DeltaField, ...] = ()
    declared: str = ""
    """The log's name of the type, which distinguishes `varchar(10)` from `string`."""
    collation: str | None = None
    """The collation of a string that is not compared byte by byte."""
    type_changes: tuple[TypeChange, ...] = ()
    generation_expression: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def get_child(self, name: str) -> DeltaField | None:
        return next((each for each in self.children if each.name == name), None)

    @property
    def former_types(self) -> frozenset[str]:
        return frozenset(change.from_type for change in self.type_changes)
