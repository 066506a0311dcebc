"""Where a file has the columns of a table, and whether its types fit into theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from tamis.errors import CorruptFile
from tamis.expr.nodes import Column
from tamis.types import (
    STRING,
    UNITS_PER_SECOND,
    a_type,
    holds_number,
    is_bytes,
    is_number,
    is_ordered,
    is_text,
    type_name,
)


def find_name(names: list[str], wanted: str, *, exact: bool = False) -> int | None:
    """Where a file spells a column of the table: exactly, or with other case where that is the only one.

    `exact` is for names that are the table's own, of which one in other case is another column.
    """
    if wanted in names:
        return names.index(wanted)
    if exact:
        return None
    folded = wanted.casefold()
    matches = [index for index, name in enumerate(names) if name.casefold() == folded]
    if len(matches) > 1:
        spelled = ", ".join(repr(names[index]) for index in matches)
        raise CorruptFile(f"a file has {spelled} where the table has {wanted!r}: nobody can say which one is meant")
    return matches[0] if matches else None


def find_path(schema: pa.Schema, path: tuple[str, ...], *, exact: bool = False) -> tuple[str, ...] | None:
    """The path of a file's schema that a path of the table means, or None where the file does not have it."""
    fields = list(schema)
    found: list[str] = []
    for part in path:
        index = find_name([field.name for field in fields], part, exact=exact)
        if index is None:
            return None
        found.append(fields[index].name)
        inner = fields[index].type
        fields = list(inner) if pa.types.is_struct(inner) else []
    return tuple(found)


def check_fits(schema: pa.Schema, columns: Iterable[Column], place: str, *, exact: bool = False) -> None:
    """An error where a file may hold values that the table's type does not have.

    A filter was made for the table's type: `x > 3000000000` is never TRUE of an int, `x = 5.5` neither. Were such a
    file skipped by it, rows would be lost without a word.
    """
    for column in columns:
        found = find_path(schema, column.path, exact=exact)
        if found is None or column.type is None:
            continue
        field = schema.field(found[0])
        for part in found[1:]:
            field = field.type.field(part)
        if not holds(column.type, field.type):
            raise CorruptFile(misfit(column.name, f"'{place}'", column.type, field.type, exact=exact))


def misfit(name: str, place: str, table_type: pa.DataType, file_type: pa.DataType, *, exact: bool = False) -> str:
    """That a file has a column in a type that does not fit into the table's, and what to do about it.

    A table whose names are `exact` has a schema of its own, which files do not change.
    """
    wanted = type_name(table_type)
    wider = None if exact else _wider(table_type, file_type)
    merging = f"open the table with merge_schema=True (--merge-schema), which makes it {wider}, or " if wider else ""
    return (
        f"column {name!r} of {place} is {a_type(file_type)}, which does not fit into the {wanted} of the table: "
        f"{merging}write the file again with {name!r} as {wanted}"
    )


def _wider(table_type: pa.DataType, file_type: pa.DataType) -> str | None:
    """The type that holds both, where merging the schemas of files finds one and the table does not have it."""
    schemas = [pa.schema([("", each)]) for each in (table_type, file_type)]
    try:
        merged = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return None
    return None if merged == table_type else type_name(merged)


def can_convert(table_type: pa.DataType, file_type: pa.DataType) -> bool:
    """Whether values of a file's type may be read as the table's: all fit, or both types are counts, and each value is
    looked at. A text is never read as a number, nor a number as a date.
    """
    pairs = [(table_type, file_type)]
    while pairs:
        wanted, found = pairs.pop()
        if pa.types.is_nested(wanted) and pa.types.is_nested(found) and wanted.num_fields == found.num_fields:
            pairs += [(wanted.field(index).type, found.field(index).type) for index in range(wanted.num_fields)]
        elif not (holds(wanted, found) or any(is_kind(wanted) and is_kind(found) for is_kind in _COUNTS)):
            return False
    return True


_COUNTS: tuple[Callable[[pa.DataType], bool], ...] = (
    is_number,
    pa.types.is_timestamp,
    pa.types.is_time,
    pa.types.is_duration,
)


def holds(table_type: pa.DataType, file_type: pa.DataType) -> bool:
    """Whether every value of a file's type is a value of the table's type too, or the two have no order at all.

    >>> holds(pa.int64(), pa.int32()), holds(pa.int32(), pa.int64()), holds(pa.float64(), pa.int64())
    (True, False, False)
    """
    table_type, file_type = _plain(table_type), _plain(file_type)
    if table_type == file_type or pa.types.is_null(file_type):
        return True
    if not (is_ordered(table_type) and is_ordered(file_type)):
        return True
    if is_number(table_type) and is_number(file_type):
        return holds_number(table_type, file_type)
    if is_bytes(table_type):
        return is_text(file_type) or is_bytes(file_type)
    if pa.types.is_timestamp(table_type):
        if pa.types.is_date(file_type):
            return True
        finer = UNITS_PER_SECOND[table_type.unit]
        return bool(pa.types.is_timestamp(file_type)) and UNITS_PER_SECOND[file_type.unit] <= finer
    return bool(pa.types.is_date(table_type) and pa.types.is_date(file_type))


def _plain(data_type: pa.DataType) -> pa.DataType:
    """The type without what is only a way to store it."""
    if pa.types.is_dictionary(data_type):
        return _plain(data_type.value_type)
    return STRING if is_text(data_type) else data_type


def path_to_read(schema: pa.Schema, path: tuple[str, ...], *, exact: bool = False) -> tuple[str, ...] | None:
    """What to read of a file for a path of the table: the path itself, or some leaf of the innermost struct that the
    file has on the way, which tells where that struct is NULL; None where there is nothing."""
    for depth in range(len(path), 0, -1):
        found = find_path(schema, path[:depth], exact=exact)
        if found is None:
            continue
        if depth == len(path):
            return found
        field = schema.field(found[0])
        for part in found[1:]:
            field = field.type.field(part)
        while pa.types.is_struct(field.type) and field.type.num_fields:
            field = field.type.field(0)
            found = (*found, field.name)
        return found
    return None
