"""Matching of a file's columns to those of the table, by name and by compatible type."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from tamis.errors import CorruptFile
from tamis.expr.nodes import Column
from tamis.types import (
    STRING,
    UNITS_PER_SECOND,
    can_hold_numbers,
    is_bytes,
    is_number,
    is_ordered,
    is_text,
    type_name,
    type_name_with_article,
)


def find_name(names: list[str], wanted: str, *, exact: bool = False) -> int | None:
    """Return the index of a table's column among a file's names: an exact match, else a unique match ignoring case.

    With `exact`, names that differ in case are different columns.
    """
    if wanted in names:
        return names.index(wanted)
    if exact:
        return None
    folded = wanted.casefold()
    matches = [index for index, name in enumerate(names) if name.casefold() == folded]
    if len(matches) > 1:
        spelled = ", ".join(repr(names[index]) for index in matches)
        raise CorruptFile(
            f"a file has the columns {spelled} where the table has {wanted!r}: the name is ambiguous. "
            "Rename one of them in the file"
        )
    return matches[0] if matches else None


def find_path(schema: pa.Schema, path: tuple[str, ...], *, exact: bool = False) -> tuple[str, ...] | None:
    """Return the path in a file's schema for a path of the table; None if the file lacks it."""
    fields: pa.Schema | pa.StructType | None = schema
    found: list[str] = []
    for part in path:
        if fields is None:
            return None
        # Arrow finds an exact name by its hash. Listing the names of a wide file for each of its columns takes minutes.
        if fields.get_all_field_indices(part):
            found.append(part)
        else:
            names = [field.name for field in fields]
            index = find_name(names, part, exact=exact)
            if index is None:
                return None
            found.append(names[index])
        inner = fields.field(fields.get_all_field_indices(found[-1])[0]).type
        fields = inner if pa.types.is_struct(inner) else None
    return tuple(found)


def _get_field(schema: pa.Schema, path: tuple[str, ...]) -> pa.Field:
    field = schema.field(path[0])
    for part in path[1:]:
        field = field.type.field(part)
    return field


def check_compatible_types(schema: pa.Schema, columns: Iterable[Column], location: str, *, exact: bool = False) -> None:
    """Raise if a file may hold values that the table's type cannot represent.

    A filter is bound to the table's type: `x > 3000000000` is never TRUE for an int, nor is `x = 5.5`. If such a filter
    skipped the file, rows would be lost silently.
    """
    for column in columns:
        found = find_path(schema, column.path, exact=exact)
        if found is None or column.type is None:
            continue
        field = _get_field(schema, found)
        if not can_hold(column.type, field.type):
            raise CorruptFile(
                describe_type_mismatch(column.name, f"'{location}'", column.type, field.type, exact=exact)
            )


def describe_type_mismatch(
    name: str, location: str, table_type: pa.DataType, file_type: pa.DataType, *, exact: bool = False
) -> str:
    """Return the error message for a file's column whose type is incompatible with the table's, with a remedy.

    A table with `exact` names has a schema that files do not change.
    """
    wanted = type_name(table_type)
    wider = None if exact else _find_wider_type(table_type, file_type)
    merging = f"open the table with merge_schema=True (--merge-schema), which makes it {wider}, or " if wider else ""
    return (
        f"column {name!r} of {location} is {type_name_with_article(file_type)}, which is incompatible with the table's "
        f"type {wanted}: {merging}write the file again with {name!r} as {wanted}"
    )


def _find_wider_type(table_type: pa.DataType, file_type: pa.DataType) -> str | None:
    """Return the type that merging the schemas would give; None if no such type exists, or the table already has it."""
    schemas = [pa.schema([("", each)]) for each in (table_type, file_type)]
    try:
        merged = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return None
    return None if merged == table_type else type_name(merged)


def can_convert(table_type: pa.DataType, file_type: pa.DataType) -> bool:
    """Return whether values of a file's type may be converted to the table's type.

    Either all values fit, or both types are of one numeric kind and each value is checked. A string is never converted
    to a number, nor a number to a date.
    """
    pairs = [(table_type, file_type)]
    while pairs:
        wanted, found = pairs.pop()
        if pa.types.is_nested(wanted) and pa.types.is_nested(found) and wanted.num_fields == found.num_fields:
            pairs += [(wanted.field(index).type, found.field(index).type) for index in range(wanted.num_fields)]
        elif not (can_hold(wanted, found) or any(is_kind(wanted) and is_kind(found) for is_kind in _NUMERIC_KINDS)):
            return False
    return True


_NUMERIC_KINDS: tuple[Callable[[pa.DataType], bool], ...] = (
    is_number,
    pa.types.is_timestamp,
    pa.types.is_time,
    pa.types.is_duration,
)


def can_hold(table_type: pa.DataType, file_type: pa.DataType) -> bool:
    """Return whether every value of a file's type is also a value of the table's type, or the types are unordered.

    >>> can_hold(pa.int64(), pa.int32()), can_hold(pa.int32(), pa.int64()), can_hold(pa.float64(), pa.int64())
    (True, False, False)
    """
    table_type, file_type = _strip_encoding(table_type), _strip_encoding(file_type)
    if table_type == file_type or pa.types.is_null(file_type):
        return True
    if not (is_ordered(table_type) and is_ordered(file_type)):
        return True
    if is_number(table_type) and is_number(file_type):
        return can_hold_numbers(table_type, file_type)
    if is_bytes(table_type):
        return is_text(file_type) or is_bytes(file_type)
    if pa.types.is_timestamp(table_type):
        if pa.types.is_date(file_type):
            return True
        finer = UNITS_PER_SECOND[table_type.unit]
        return bool(pa.types.is_timestamp(file_type)) and UNITS_PER_SECOND[file_type.unit] <= finer
    return bool(pa.types.is_date(table_type) and pa.types.is_date(file_type))


def _strip_encoding(data_type: pa.DataType) -> pa.DataType:
    """Return the logical type, without dictionary encoding and string variants."""
    if pa.types.is_dictionary(data_type):
        return _strip_encoding(data_type.value_type)
    return STRING if is_text(data_type) else data_type


def find_path_to_read(schema: pa.Schema, path: tuple[str, ...], *, exact: bool = False) -> tuple[str, ...] | None:
    """Return the path to read from a file for a path of the table; None if the file has nothing there.

    This is the path itself, or a leaf of the innermost enclosing struct that the file has: its definition levels show
    where the struct is NULL.
    """
    for depth in range(len(path), 0, -1):
        found = find_path(schema, path[:depth], exact=exact)
        if found is None:
            continue
        if depth == len(path):
            return found
        field = _get_field(schema, found)
        while pa.types.is_struct(field.type) and field.type.num_fields:
            field = field.type.field(0)
            found = (*found, field.name)
        return found
    return None
