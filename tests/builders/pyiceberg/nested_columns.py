"""Columns of lists, maps and structs in tables that pyiceberg writes, whose inner fields change.

Values are kept by field id. So old rows can be returned with the current names and order of fields, without dropped
fields, and with NULL for fields that were added later.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from builders.iceberg.values import field, list_of, map_of, parse_primitive_type, to_arrow_type
from builders.values.choices import Choices

Path = tuple[str, ...]

WIDER = {"int": "long", "float": "double", "decimal(5, 2)": "decimal(19, 2)"}

_PAIR = [field(901, "x", "int"), field(902, "y", "string")]
_SHAPES: tuple[Any, ...] = (
    list_of(900, field(0, "", _PAIR)["type"]),
    map_of(900, 910, "string", field(0, "", [field(901, "x", "float"), field(902, "y", "date")])["type"]),
    list_of(900, "int"),
    field(0, "", [field(901, "a", "int"), field(910, "l", list_of(911, field(0, "", _PAIR[:1])["type"]))])["type"],
    list_of(900, list_of(910, field(0, "", [*_PAIR, field(903, "z", "decimal(5, 2)")])["type"])),
    map_of(900, 910, "int", list_of(911, "float")),
)
_VALUES: dict[str, tuple[Any, ...]] = {
    "int": (1, -7, 2**31 - 1), "long": (1, -(2**40)), "float": (0.5, -0.0), "double": (0.5, 1e300),
    "string": ("a", "é", "", "a longer text than bounds have"), "date": (datetime.date(1969, 12, 31),),
    "decimal(5, 2)": (Decimal("1.50"), Decimal("-999.99")), "decimal(19, 2)": (Decimal("1.50"),), "boolean": (True,),
}  # fmt: skip
_KINDS = tuple(_VALUES)


class NestedColumns:
    """The nested columns of one table, and the values that each of its rows was written with."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self.kinds = {f"deep{index}": choices.one_of(_SHAPES) for index in range(choices.number(0, 2))}
        self._written: dict[int, dict[str, Any]] = {}
        self._made = 0

    def fields(self, first: int) -> list[NestedField]:
        """Return the fields for a new table, which assigns its own ids."""
        found = [field(first + index, name, kind) for index, (name, kind) in enumerate(self.kinds.items())]
        return list(Schema.model_validate({"type": "struct", "fields": _number_fields(found, first)}).fields)

    def draw_columns(self, table: Table, rows: list[int]) -> dict[str, pa.Array]:
        """Return random values of further rows, by the current schema."""
        for row in rows:
            self._written[row] = {name: self._draw_value(_get_type(table, name)) for name in self.kinds}
        return self.read_columns(table, rows)

    def read_columns(self, table: Table, rows: list[int]) -> dict[str, pa.Array]:
        """Return the columns of rows under the current schema."""
        found = {}
        for name in self.kinds:
            kind = _get_type(table, name)
            values = [_read_value(self._written[row][name], kind) for row in rows]
            found[name] = pa.array(
                values, to_arrow_type(json.loads(NestedField(1, name, kind).model_dump_json())["type"])
            )
        return found

    def _draw_value(self, kind: IcebergType) -> Any:
        choices = self._choices
        # Pyiceberg writes a NULL map, or a NULL list of nested values, as an empty one.
        can_be_null = not isinstance(kind, MapType) and getattr(kind, "element_type", kind).is_primitive
        if choices.flag(6) and (can_be_null or isinstance(kind, StructType)):
            return None
        match kind:
            case StructType():
                return {each.field_id: self._draw_value(each.field_type) for each in kind.fields}
            case ListType():
                return [self._draw_value(kind.element_type) for _ in range(choices.number(0, 3))]
            case MapType():
                keys = list(_VALUES[str(kind.key_type)])[: choices.number(0, 3)]
                return [(key, self._draw_value(kind.value_type)) for key in keys]
        return choices.one_of(_VALUES[str(kind)])

    # --- Changes -----------------------------------------------------------------------------------------------------

    def change(self, table: Table) -> str:
        """Change a nested field, and return what was done."""
        structs = [
            found_struct for name in self.kinds for found_struct in _find_structs(_get_type(table, name), (name,))
        ]
        if not structs:
            return self._widen_element(table)
        path, kind = self._choices.one_of(structs)
        one = self._choices.one_of(kind.fields)
        at = (*path, one.name)
        self._made += 1
        plain = str(one.field_type)
        with table.update_schema() as update:
            match self._choices.number(0, 5):
                case 0:
                    update.add_column((*path, f"n{self._made}"), parse_primitive_type(self._choices.one_of(_KINDS)))
                    return f"add {path} n{self._made}"
                case 1:
                    update.rename_column(at, f"r{self._made}")
                    return f"rename {at} r{self._made}"
                case 2 if len(kind.fields) > 1:
                    update.delete_column(at)
                    return f"drop {at}"
                case 3 if plain in WIDER:
                    update.update_column(at, parse_primitive_type(WIDER[plain]))
                    return f"widen {at}"
                case 4 if one.field_type.is_primitive:
                    update.rename_column(at, f"r{self._made}")
                case _:
                    update.move_first(at)
                    return f"first {at}"
        with table.update_schema() as update:
            update.add_column(at, parse_primitive_type(self._choices.one_of(_KINDS)))
        return f"rename {at}, another of that name"

    def _widen_element(self, table: Table) -> str:
        for name in self.kinds:
            kind = _get_type(table, name)
            if isinstance(kind, ListType) and str(kind.element_type) in WIDER:
                with table.update_schema() as update:
                    update.update_column((name, "element"), parse_primitive_type(WIDER[str(kind.element_type)]))
                return f"widen elements of {name}"
        return "nothing to widen"


def _get_type(table: Table, name: str) -> IcebergType:
    return table.schema().find_field(name).field_type


def _find_structs(kind: IcebergType, path: Path) -> Iterator[tuple[Path, StructType]]:
    """Yield all structs, also those in lists and map values, with the path to their fields."""
    match kind:
        case StructType():
            yield path, kind
            for each in kind.fields:
                yield from _find_structs(each.field_type, (*path, each.name))
        case ListType():
            yield from _find_structs(kind.element_type, (*path, "element"))
        case MapType():
            yield from _find_structs(kind.value_type, (*path, "value"))


def _read_value(value: Any, kind: IcebergType) -> Any:
    if value is None:
        return None
    match kind:
        case StructType():
            return {each.name: _read_value(value.get(each.field_id), each.field_type) for each in kind.fields}
        case ListType():
            return [_read_value(each, kind.element_type) for each in value]
        case MapType():
            return [(key, _read_value(each, kind.value_type)) for key, each in value]
    return value


def _number_fields(fields: list[dict[str, Any]], first: int) -> list[dict[str, Any]]:
    """Return fields with unique ids, those of nested fields last."""
    numbers = iter(range(first + len(fields), 10_000))

    def inner(kind: Any) -> Any:
        match kind:
            case {"type": "struct", "fields": children}:
                return {
                    **kind,
                    "fields": [{**each, "id": next(numbers), "type": inner(each["type"])} for each in children],
                }
            case {"type": "list", "element": element}:
                return {**kind, "element-id": next(numbers), "element": inner(element)}
            case {"type": "map", "key": key, "value": value}:
                return {**kind, "key-id": next(numbers), "key": key, "value-id": next(numbers), "value": inner(value)}
        return kind

    return [{**each, "type": inner(each["type"])} for each in fields]
