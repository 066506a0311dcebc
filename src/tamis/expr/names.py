"""Name resolution: the column of a schema that a name refers to, and the error if there is none.

Names are resolved without regard to case. If two columns differ only by case, a name that is spelled exactly like one
of them selects that one, if it comes from Python (`col("a")`, `columns=["a"]`) or is quoted with back-ticks. SQL names
without back-ticks ignore case, as in Spark, so such a name is an error that lists both columns. A name without a match
is an error with the nearest names.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import PurePath

import pyarrow as pa

from tamis.errors import AmbiguousColumn, ExpressionError, UnknownColumn, format_position
from tamis.expr.functions.table import tests_value
from tamis.expr.nodes import AnyExpr, Call, Column, Leaf, Literal, Name, walk
from tamis.types import is_text, type_name_with_article

_MAX_COLUMNS = 12
CURLY_QUOTES = ("‘", "’", "“", "”")
_NUMBER_WITH_UNDERSCORES = re.compile(r"[0-9][0-9_]*[0-9]")


def resolve(
    column: Leaf, schema: pa.Schema, table: str = "the table", where: str = "where", *, context: AnyExpr | None = None
) -> Column:
    """Return the column of a schema that a path refers to, with its exact spelling and type.

    `context` is the expression around it, from which the error for an unknown name guesses the intention.
    """
    location = "" if column.position is None else f" (at: {where}, {format_position(column.position)})"
    # Only SQL text has positions.
    is_exact = column.exact or column.position is None
    fields: Iterable[pa.Field] = schema
    found: list[pa.Field] = []
    is_spelled_exactly = False
    for depth, part in enumerate(column.path):
        field, is_one_of_several = _find_field(fields, part, location, is_exact=is_exact)
        is_spelled_exactly |= is_one_of_several
        if field is None:
            # `a.b` may also be the whole name of a column.
            whole = _find_field(schema, column.name, location, is_exact=is_exact)[0] if len(column.path) > 1 else None
            if whole is not None:
                return Column((whole.name,), decode_type(whole.type), column.position)
            guess = _guess_meaning(column, schema, table, context)
            raise _make_unknown_column_error(column, depth, list(fields), found, table, location, guess)
        found.append(field)
        fields = field.type if pa.types.is_struct(field.type) else ()
    names = tuple(field.name for field in found)
    return Column(names, decode_type(found[-1].type), column.position, exact=is_spelled_exactly)


def refuse_quoted_names(quoted: Iterable[Name], names: Iterable[str], where: str = "where") -> None:
    """Raise for a text in double quotes that is the name of a column: it is surely meant as the column."""
    for text in quoted:
        name = next((each for each in names if each.casefold() == text.name.casefold()), None)
        if name is not None:
            location = "" if text.position is None else f" (at: {where}, {format_position(text.position)})"
            raise ExpressionError(
                f'"{text.name}" is a text, not the column of that name{location}: in Spark\'s SQL double quotes '
                f"delimit a text. Write `{name}` for the column, or '{text.name}' for the text"
            )


def _find_field(
    fields: Iterable[pa.Field], name: str, location: str, *, is_exact: bool
) -> tuple[pa.Field | None, bool]:
    """Return the field with a name, and whether it is one of several that differ only by case."""
    folded = name.casefold()
    matches = [field for field in fields if field.name.casefold() == folded]
    if len(matches) <= 1:
        return (matches[0] if matches else None), False
    exact = [field for field in matches if field.name == name]
    if is_exact and len(exact) == 1:
        return exact[0], True
    names = ", ".join(repr(field.name) for field in matches)
    raise AmbiguousColumn(
        f"the name {name!r} matches several columns{location}: {names}. "
        f"Quote the exact name with back-ticks: write `{matches[0].name}`"
    )


def decode_type(data_type: pa.DataType) -> pa.DataType:
    """Return the value type of a dictionary-encoded type: the encoding does not matter to a predicate."""
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type


# --- Names without a column ------------------------------------------------------------------------------------------


def _make_unknown_column_error(
    column: Leaf, depth: int, fields: list[pa.Field], found: list[pa.Field], table: str, location: str, guess: str
) -> UnknownColumn:
    name = column.path[depth]
    if found and not fields:
        inside = ".".join(field.name for field in found)
        return UnknownColumn(
            f"no field {name!r} in column {inside!r} of {table}{location}: "
            f"it is {type_name_with_article(found[-1].type)}, not a "
            f"struct{_suggest_access(found[-1].type, inside, name)}"
        )
    owner = f"struct {'.'.join(field.name for field in found)!r} of {table}" if found else table
    names = [field.name for field in fields]
    near = difflib.get_close_matches(name.casefold(), [each.casefold() for each in names], n=3, cutoff=0.6)
    hint = ""
    if near:
        spelled = [each for each in names if each.casefold() in near]
        hint = f" Did you mean {' or '.join(repr(each) for each in spelled)}?"
    more = len(names) - _MAX_COLUMNS
    listed = ", ".join(names[:_MAX_COLUMNS]) + (f", … {more} more" if more > 0 else "")
    kind = "field" if found else "column"
    columns = f"{kind.capitalize()}s: {listed or 'none'}."
    return UnknownColumn(f"no {kind} {name!r} in {owner}{location}.{hint}{guess} {columns}")


def _suggest_access(data_type: pa.DataType, inside: str, name: str) -> str:
    """Return advice on how to access the elements of a list or a map."""
    if pa.types.is_map(data_type):
        return f". Look up a key, as in element_at({inside}, {name!r})"
    if not (pa.types.is_list(data_type) or pa.types.is_large_list(data_type)):
        return ""
    if pa.types.is_struct(data_type.value_type):
        return f". Test its elements, as in array_contains(transform({inside}, x -> x.{name}), 5)"
    return f". Test its elements, as in array_contains({inside}, 'x')"


def _guess_meaning(column: Leaf, schema: pa.Schema, table: str, context: AnyExpr | None) -> str:
    """Return advice if an unknown name seems to be a number, a text, or a column qualified with the table's name."""
    first, *others = column.path
    if others:
        is_table = first.casefold() in (table.casefold(), PurePath(table).stem.casefold())
        is_column = any(field.name.casefold() == others[0].casefold() for field in schema)
        return f" Leave the name of the table out: {'.'.join(others)}." if is_table and is_column else ""
    if first.startswith(CURLY_QUOTES):
        return f" Use straight quotes for a text: '{first.strip(''.join(CURLY_QUOTES))}'."
    if _NUMBER_WITH_UNDERSCORES.fullmatch(first):
        return f" A number has no underscores: write {first.replace('_', '')}."
    if context is not None and _is_unquoted_text(column, schema, context):
        return f" Quote a text with single quotes: '{first}'."
    return ""


def _is_unquoted_text(column: Leaf, schema: pa.Schema, context: AnyExpr) -> bool:
    """Return whether a name is one side of a comparison whose other side is a text column."""
    texts = {field.name.casefold() for field in schema if is_text(decode_type(field.type))}
    return any(
        isinstance(node, Call)
        and tests_value(node)
        and column in node.args
        and any(not isinstance(arg, Literal | Call) and arg.name.casefold() in texts for arg in node.args)
        for node in walk(context)
    )
