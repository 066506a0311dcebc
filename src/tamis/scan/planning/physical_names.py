"""Physical fields: under which names and types a file has the columns of a scan, by its footer, for native scans."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from tamis import types
from tamis.expr.wire.expression_json import schema_from_text, schema_to_text
from tamis.formats.constants import list_absent
from tamis.io.storage import Storage
from tamis.parquet.footer.field_names import ColumnMapping
from tamis.parquet.footer.footer import load_footer
from tamis.parquet.footer.leaves import FileSchema
from tamis.parquet.footer.statistics import has_short_chunks
from tamis.scan.planning.projection import Path

FieldsInFile = Mapping[str, pa.Field]
"""The fields of one file by columns of the table, with the names and types to read. Columns that it lacks are NULL."""


@dataclass(frozen=True)
class NativeScanColumns:
    """The columns that a native scan reads: the fields of a table at some paths."""

    schema: pa.Schema
    paths: Sequence[Path]
    names: ColumnMapping | None
    columns_with_values: Collection[str]
    """Columns that have a known value in some file that may lack them."""

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": schema_to_text(self.schema),
            "paths": [list(path) for path in self.paths],
            "names": None if self.names is None else self.names.to_json(),
            "columns_with_values": sorted(self.columns_with_values),
        }

    @staticmethod
    def from_json(given: Mapping[str, Any]) -> NativeScanColumns:
        return NativeScanColumns(
            schema_from_text(given["schema"]),
            [tuple(path) for path in given["paths"]],
            None if given["names"] is None else ColumnMapping.from_json(given["names"]),
            given["columns_with_values"],
        )

    def read_fields(self, storage: Storage, path: str, size: int, modified_ns: int | None) -> FieldsInFile | None:
        """Return the fields of a file that the columns are read from, by its footer; None as for `find_fields`."""
        footer = load_footer(storage, path, size, modified_ns)[0]
        # Not all readers support column chunks that are longer than the footer records.
        return None if has_short_chunks(footer.metadata) else self.find_fields(footer.schema, storage.format_path(path))

    def find_fields(self, own: FileSchema, location: str) -> FieldsInFile | None:
        """Return the fields of a file that the columns are read from; None if a cast of them gives other values.

        A field has its name in the file, and so have the fields inside it; it has the type of the column, or a
        narrower one that the file stores. What it lacks inside of structs has a name that the file does not have.
        """
        renamed = own
        if self.names is not None:
            self.names.check(own, location)
            renamed = self.names.with_logical_names(own)
        if self._has_timestamps_to_rebase(own, renamed):
            return None
        found: dict[str, pa.Field] = {}
        for field in self.schema:
            position = _find_field(own.arrow, renamed.arrow, field.name, ignores_case=self.names is None)
            if position is None and not self._has_value_if_absent(field.name):
                continue
            if position is None or position == AMBIGUOUS:
                return None
            chosen = _choose_type(
                own.arrow.field(position).type,
                renamed.arrow.field(position).type,
                field.type,
                ignores_case=self.names is None,
                may_lack=not self._has_defaults_inside(field.name),
            )
            if chosen is None:
                return None
            found[field.name] = pa.field(own.arrow.field(position).name, chosen)
        return found

    def _has_value_if_absent(self, column: str) -> bool:
        defaults = () if self.names is None else self.names.defaults
        return column in self.columns_with_values or any(path[0] == column for path in defaults)

    def _has_defaults_inside(self, column: str) -> bool:
        defaults = () if self.names is None else self.names.defaults
        return any(path[0] == column and len(path) > 1 for path in defaults)

    def _has_timestamps_to_rebase(self, own: FileSchema, renamed: FileSchema) -> bool:
        """Return whether Spark would rebase old timestamps differently: see `tamis.parquet.footer.datetime_rebase`.

        Rebased days are the same in every reader, except for tables that are always Gregorian. Rebased timestamps
        depend on Spark's time zone.
        """
        leaves = {leaf for path in self.paths for leaf in renamed.find_leaves_to_read(path)}
        days = () if self.names is not None and self.names.is_always_gregorian else ("INT32",)
        return any(leaf in own.leaves_to_rebase and own.types[leaf].physical not in days for leaf in leaves)


def find_columns_with_values(files: pa.Table) -> frozenset[str]:
    """Return the columns that have a known value in some file that may lack them."""
    return frozenset(path[0] for path in list_absent(files))


AMBIGUOUS = -1
"""Several fields of a file may be meant: their names differ only by case."""


def _find_field(
    stored: pa.Schema | pa.StructType, renamed: pa.Schema | pa.StructType, name: str, *, ignores_case: bool
) -> int | None:
    """Return the position of a field by its logical name; None if the file lacks it."""
    if ignores_case:
        found = [position for position, each in enumerate(renamed) if each.name.casefold() == name.casefold()]
    else:
        found = [position for position, each in enumerate(renamed) if each.name == name]
    if not found:
        return None
    physical = stored.field(found[0]).name.casefold()
    is_clear = len(found) == 1 and sum(each.name.casefold() == physical for each in stored) == 1
    return found[0] if is_clear else AMBIGUOUS


def _choose_type(
    stored: pa.DataType, renamed: pa.DataType, wanted: pa.DataType, *, ignores_case: bool, may_lack: bool
) -> pa.DataType | None:
    """Return the type to read: fields inside have the names of the file. None if a cast would give other values."""
    choose = partial(_choose_type, ignores_case=ignores_case, may_lack=may_lack)
    if pa.types.is_struct(stored) and pa.types.is_struct(wanted):
        fields: list[pa.Field] = []
        has_some = False
        for each in wanted:
            position = _find_field(stored, renamed, each.name, ignores_case=ignores_case)
            if position is None and may_lack:
                fields.append(each.with_name(_find_free_name(each.name, stored)).with_nullable(True))
                continue
            if position is None or position == AMBIGUOUS:
                return None
            inner = choose(stored.field(position).type, renamed.field(position).type, each.type)
            if inner is None:
                return None
            has_some = True
            fields.append(pa.field(stored.field(position).name, inner, each.nullable))
        if not has_some:
            # Without any field of it, a reader cannot tell where the struct is NULL.
            return None
        return wanted if fields == list(wanted) else pa.struct(fields)
    if pa.types.is_map(stored) and pa.types.is_map(wanted):
        key = choose(stored.key_type, renamed.key_type, wanted.key_type)
        item = choose(stored.item_type, renamed.item_type, wanted.item_type)
        if key is None or item is None:
            return None
        is_same = key == wanted.key_type and item == wanted.item_type
        return wanted if is_same else pa.map_(key, wanted.item_field.with_type(item))
    if types.is_list(stored) and types.is_list(wanted):
        element = choose(stored.value_type, renamed.value_type, wanted.value_type)
        if element is None:
            return None
        return wanted if element == wanted.value_type else pa.list_(wanted.value_field.with_type(element))
    return _choose_leaf_type(stored, wanted)


def _find_free_name(name: str, stored: pa.StructType) -> str:
    taken = {each.name.casefold() for each in stored}
    while name.casefold() in taken:
        name += "_"
    return name


def _choose_leaf_type(stored: pa.DataType, wanted: pa.DataType) -> pa.DataType | None:
    plain, target = (each.value_type if pa.types.is_dictionary(each) else each for each in (stored, wanted))
    if plain == target or _are_same_timestamps(plain, target):
        return wanted
    return plain if _can_widen(plain, target) else None


def _are_same_timestamps(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a file only has another unit that its readers convert."""
    if not (pa.types.is_timestamp(stored) and pa.types.is_timestamp(wanted)):
        return False
    return {stored.unit, wanted.unit} <= {"ms", "us"} and (stored.tz is None) == (wanted.tz is None)


def _can_widen(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a cast keeps every value: the changes of types that table formats allow."""
    if pa.types.is_signed_integer(stored):
        if pa.types.is_decimal(wanted):
            return bool(wanted.precision - wanted.scale >= _INTEGER_DIGITS[stored.bit_width])
        is_exact_double = wanted == pa.float64() and stored.bit_width <= 32
        is_wider = pa.types.is_signed_integer(wanted) and stored.bit_width < wanted.bit_width
        return bool(is_exact_double or is_wider)
    if pa.types.is_decimal(stored) and pa.types.is_decimal(wanted):
        grows = wanted.precision - wanted.scale >= stored.precision - stored.scale
        return bool(grows and wanted.scale >= stored.scale)
    return (stored, wanted) in ((pa.float32(), pa.float64()), (pa.date32(), types.TIMESTAMP_NTZ))


_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
"""The decimal digits of integers by their bits."""


# --- As bytes, to send them from executors and to compare files by them -----------------------------------------------


def fields_to_bytes(fields: FieldsInFile) -> bytes:
    """Return the fields of a file as bytes, which are the same for files with the same fields."""
    columns = [field.with_metadata({_COLUMN: name}) for name, field in fields.items()]
    return bytes(pa.schema(columns).serialize())


def fields_from_bytes(given: bytes) -> FieldsInFile:
    schema = pa.ipc.read_schema(pa.BufferReader(given))
    return {field.metadata[_COLUMN].decode(): field.remove_metadata() for field in schema}


_COLUMN = b"column"
