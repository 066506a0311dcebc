"""Values for the parameters of a query: `:name`, or `?` one after the other.

They are put into the tree of the query as literals, so that they prune as those do, and are never read as SQL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from tamis.errors import InvalidArgument, MissingValue, ParseError, TamisError, with_article
from tamis.expr.literals import literal
from tamis.expr.printer import to_sql
from tamis.expr.sql_dialect import SparkCalls

Arguments = Mapping[str, Any] | Sequence[Any]

_MARKS = (TokenType.PLACEHOLDER, TokenType.QDCOLON)
"""`?`, and `?::` before a type."""

_NUMBERED = "_{}"
"""The name of a parameter that has none."""


def number_parameters(text: str) -> str:
    """The text with names in the place of question marks.

    >>> number_parameters("SELECT '?' FROM t WHERE a = ? AND b < ?")
    "SELECT '?' FROM t WHERE a = :_1 AND b < :_2"
    """
    if "?" not in text:
        return text
    try:
        tokens = SparkCalls().tokenize(text)
    except SqlglotError:
        # Whoever reads it says what is wrong.
        return text
    marks = [token for token in tokens if token.token_type in _MARKS]
    pieces, place = [], 0
    for number, mark in enumerate(marks, 1):
        pieces += [text[place : mark.start], ":", _NUMBERED.format(number), " " * (mark.text != "?")]
        place = mark.start + 1
    return "".join([*pieces, text[place:]])


def fill_parameters(tree: exp.Expr, arguments: Arguments | None) -> None:
    """Put values in the place of all parameters; InvalidArgument where one has none, or a value has no parameter."""
    values = _by_name(arguments)
    used: set[str] = set()
    for each in list(tree.find_all(exp.Placeholder, exp.Parameter)):
        _refuse_as_table(each)
        name = each.name
        if name not in values:
            raise MissingValue(_no_value(name, values))
        used.add(name)
        _replace(each, values[name])
    unused = [name for name in values if name not in used]
    if unused:
        raise InvalidArgument(f"the query has no parameter {_spoken(unused[0])}, for which args= has a value")


def _refuse_as_table(parameter: exp.Expr) -> None:
    """Raise where a parameter stands for a table, or is how Delta writes the version of one: `orders@v1`."""
    match parameter.parent:
        case exp.TableAlias(parent=exp.Table() as table):
            # Delta has `@v1` for a version, and `@20240301120000000` for a timestamp.
            version = parameter.name.removeprefix("v")
            is_version = version.isdecimal() and (version != parameter.name or len(version) < 14)
            state = f"VERSION AS OF {version}" if is_version else "TIMESTAMP AS OF '2024-03-01 12:00:00'"
            raise ParseError(
                f"'{table.name}@{parameter.name}' names no table",
                hint=f"The version of a table is written as in {table.name} {state}",
            )
        case exp.Table():
            raise ParseError(
                f"the parameter {_spoken(parameter.name)} stands where the query names a table",
                hint="A parameter is a value, and cannot name one: write the name into the query",
            )


def _by_name(arguments: Arguments | None) -> dict[str, Any]:
    match arguments:
        case None:
            return {}
        case Mapping():
            return {str(name): value for name, value in arguments.items()}
        case str() | bytes():
            pass
        case Sequence():
            return {_NUMBERED.format(number): value for number, value in enumerate(arguments, 1)}
    raise InvalidArgument(
        f"args= is a mapping for :name, or a list for ?, not {with_article(type(arguments).__name__)}"
    )


def _no_value(name: str, values: Mapping[str, Any]) -> str:
    known = f" (args= has {', '.join(map(_spoken, values))})" if values else ""
    way = "c.sql(query, args=[value, …])" if name.startswith("_") else f"c.sql(query, args={{{name!r}: value}})"
    return f"the parameter {_spoken(name)} of the query has no value{known}: give it as in {way}"


def _spoken(name: str) -> str:
    number = name.removeprefix("_")
    return f"? number {number}" if name.startswith("_") and number.isdecimal() else f":{name}"


def _replace(parameter: exp.Expr, value: Any) -> None:
    if hasattr(value, "to_pylist"):
        value = value.to_pylist()
    elif getattr(value, "ndim", 0):
        # Its scalars know their types, where Python's would be numbers of nanoseconds.
        value = list(value)
    if isinstance(value, list | tuple | set | frozenset | range):
        around = parameter.parent
        if not isinstance(around, exp.In):
            raise InvalidArgument(f"the parameter {_spoken(parameter.name)} is a list, which only stands in IN (…)")
        if not value and len(around.expressions) == 1:
            # Nothing is in an empty list, which no engine can write.
            around.replace(exp.false())
            return
        items = [_tree_of(parameter.name, each) for each in value]
        kept = (each if each is not parameter else None for each in around.expressions)
        around.set("expressions", [each for old in kept for each in (items if old is None else [old])])
        return
    parameter.replace(_tree_of(parameter.name, value))


def _tree_of(name: str, value: Any) -> exp.Expr:
    try:
        text = to_sql(literal(value))
    except TamisError as error:
        raise InvalidArgument(f"the parameter {_spoken(name)} has a value that SQL has not: {error}") from error
    found: exp.Expr = sqlglot.parse_one(text, read=SparkCalls)
    if isinstance(found, exp.Literal) and "${" in found.this:
        # Spark would put a setting of its process there.
        parts = [exp.Literal.string(part) for part in re.split(r"(?<=\$)(?=\{)", found.this)]
        return exp.Anonymous(this="concat", expressions=parts)
    # What would bind less than what is around it.
    return exp.Paren(this=found) if isinstance(found, exp.Unary | exp.Binary) else found
