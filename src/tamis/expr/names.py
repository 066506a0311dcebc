"""Names: which column of a schema a name means, and what to say where it means none.

Names are resolved without regard to case. Where two columns differ only by case, a name that is spelled exactly like
one of them means that one, if it comes from Python (`col("a")`, `columns=["a"]`) or stands between back-ticks. In SQL
text without back-ticks case says nothing, as in Spark, so that such a name is an error which lists both. A name without
a match is an error with the nearest names.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import PurePath

import pyarrow as pa

from tamis.errors import AmbiguousColumn, UnknownColumn, place_in_text
from tamis.expr.functions import COMPARISONS
from tamis.expr.nodes import Call, Column, Expr, walk
from tamis.types import a_type, is_text

_SHOWN_COLUMNS = 12
_NUMBER_WITH_UNDERSCORES = re.compile(r"[0-9][0-9_]*[0-9]")


def resolve(
    column: Column,
    schema: pa.Schema,
    table: str = "the table",
    where: str = "where",
    *,
    context: Expr | None = None,
) -> Column:
    """The column of a schema that a path means, with its exact spelling and type.

    `context` is the expression in which it stands, which may tell what an unknown name was meant to be.
    """
    place = "" if column.position is None else f" (at: {where}, {place_in_text(column.position)})"
    # Only SQL text has positions.
    is_exact = column.exact or column.position is None
    fields: Iterable[pa.Field] = schema
    found: list[pa.Field] = []
    is_spelled_exactly = False
    for depth, part in enumerate(column.path):
        field, is_one_of_several = _field(fields, part, place, is_exact=is_exact)
        is_spelled_exactly |= is_one_of_several
        if field is None:
            # `a.b` may also be the whole name of a column.
            whole = _field(schema, column.name, place, is_exact=is_exact)[0] if len(column.path) > 1 else None
            if whole is not None:
                return Column((whole.name,), column.position, _decoded(whole.type))
            raise _unknown(column, depth, list(fields), found, table, place, _meant(column, schema, table, context))
        found.append(field)
        fields = field.type if pa.types.is_struct(field.type) else ()
    names = tuple(field.name for field in found)
    return Column(names, column.position, _decoded(found[-1].type), exact=is_spelled_exactly)


def _field(fields: Iterable[pa.Field], name: str, place: str, *, is_exact: bool) -> tuple[pa.Field | None, bool]:
    """The field of a name, and whether it is one of several that differ only by case."""
    folded = name.casefold()
    matches = [field for field in fields if field.name.casefold() == folded]
    if len(matches) <= 1:
        return (matches[0] if matches else None), False
    exact = [field for field in matches if field.name == name]
    if is_exact and len(exact) == 1:
        return exact[0], True
    names = ", ".join(repr(field.name) for field in matches)
    raise AmbiguousColumn(
        f"the name {name!r} fits several columns{place}: {names}. "
        f"Between back-ticks a name is taken exactly: write `{matches[0].name}`"
    )


def _decoded(data_type: pa.DataType) -> pa.DataType:
    """A dictionary is a way to store values, and a predicate is about the values."""
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type


# --- Names without a column ------------------------------------------------------------------------------------------


def _unknown(
    column: Column, depth: int, fields: list[pa.Field], found: list[pa.Field], table: str, place: str, meant: str
) -> UnknownColumn:
    name = column.path[depth]
    if found and not fields:
        inside = ".".join(field.name for field in found)
        return UnknownColumn(
            f"no field {name!r} in column {inside!r} of {table}{place}: "
            f"it is {a_type(found[-1].type)}, not a struct{_way_into(found[-1].type, inside, name)}"
        )
    owner = f"struct {'.'.join(field.name for field in found)!r} of {table}" if found else table
    names = [field.name for field in fields]
    near = difflib.get_close_matches(name.casefold(), [each.casefold() for each in names], n=3, cutoff=0.6)
    hint = ""
    if near:
        spelled = [each for each in names if each.casefold() in near]
        hint = f" Did you mean {' or '.join(repr(each) for each in spelled)}?"
    shown = ", ".join(names[:_SHOWN_COLUMNS]) + (f", … {len(names) - _SHOWN_COLUMNS} more" if len(names) > 12 else "")
    kind = "field" if found else "column"
    return UnknownColumn(f"no {kind} {name!r} in {owner}{place}.{hint}{meant} {kind.capitalize()}s: {shown or 'none'}.")


def _way_into(data_type: pa.DataType, inside: str, name: str) -> str:
    """How to ask for what is inside of a list or a map."""
    if pa.types.is_map(data_type):
        return f". Ask for a key, as in element_at({inside}, {name!r})"
    if not (pa.types.is_list(data_type) or pa.types.is_large_list(data_type)):
        return ""
    if pa.types.is_struct(data_type.value_type):
        return f". Ask for its elements, as in array_contains(transform({inside}, x -> x.{name}), 5)"
    return f". Ask for its elements, as in array_contains({inside}, 'x')"


def _meant(column: Column, schema: pa.Schema, table: str, context: Expr | None) -> str:
    """What an unknown name was meant to be, where that can be guessed: a number, a text, or a name after a table's."""
    first, *others = column.path
    if others:
        is_table = first.casefold() in (table.casefold(), PurePath(table).stem.casefold())
        is_column = any(field.name.casefold() == others[0].casefold() for field in schema)
        return f" Leave the name of the table out: {'.'.join(others)}." if is_table and is_column else ""
    if _NUMBER_WITH_UNDERSCORES.fullmatch(first):
        return f" A number has no underscores: write {first.replace('_', '')}."
    if context is not None and _stands_for_text(column, schema, context):
        return f" A text goes between single quotes: '{first}'."
    return ""


def _stands_for_text(column: Column, schema: pa.Schema, context: Expr) -> bool:
    """Whether a name stands alone on one side of a comparison, and a text column on the other."""
    texts = {field.name.casefold() for field in schema if is_text(_decoded(field.type))}
    return any(
        isinstance(node, Call)
        and (node.function in COMPARISONS or node.function in ("in", "like"))
        and column in node.args
        and any(isinstance(arg, Column) and arg.name.casefold() in texts for arg in node.args)
        for node in walk(context)
    )
