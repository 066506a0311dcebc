"""Query parameters: `:name`, or `?` in order.

Their values are inserted into the syntax tree as literals, so they prune as literals do and are never parsed as SQL. A
`PartitionFilter` is inserted as a condition.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from tamis.errors import InvalidArgument, MissingValue, ParseError, TamisError, add_article
from tamis.expr.literals import literal
from tamis.expr.sql.dialect import SparkCalls
from tamis.expr.sql.printer import to_sql
from tamis.expr.wire.partition_filter import PartitionFilter

Arguments = Mapping[str, Any] | Sequence[Any]

_MARKS = (TokenType.PLACEHOLDER, TokenType.QDCOLON)
"""`?`, and `?::` before a type."""

_NUMBERED = "_{}"
"""The name of a positional parameter."""


def number_parameters(text: str) -> str:
    """Replace question marks by numbered parameters.

    >>> number_parameters("SELECT '?' FROM t WHERE a = ? AND b < ?")
    "SELECT '?' FROM t WHERE a = :_1 AND b < :_2"
    """
    if "?" not in text:
        return text
    try:
        tokens = SparkCalls().tokenize(text)
    except SqlglotError:
        # The parser reports this error, with a position.
        return text
    marks = [token for token in tokens if token.token_type in _MARKS]
    parts, position = [], 0
    for number, mark in enumerate(marks, 1):
        parts += [text[position : mark.start], ":", _NUMBERED.format(number), " " * (mark.text != "?")]
        position = mark.start + 1
    return "".join([*parts, text[position:]])


def fill_parameters(tree: exp.Expr, arguments: Arguments | None) -> None:
    """Replace all parameters by their values; raise if a parameter has no value, or a value has no parameter."""
    values = index_by_name(arguments)
    used: set[str] = set()
    for each in list(tree.find_all(exp.Placeholder, exp.Parameter)):
        _refuse_as_table(each)
        name = each.name
        if name not in values:
            raise MissingValue(_explain_missing_value(name, values))
        used.add(name)
        _replace_parameter(each, values[name])
    unused = [name for name in values if name not in used]
    if unused:
        raise InvalidArgument(
            f"args= has a value for {_format_parameter(unused[0])}, but the query has no such parameter"
        )


def _refuse_as_table(parameter: exp.Expr) -> None:
    """Raise if a parameter is used as a table, or is Delta's syntax for a table version: `orders@v1`."""
    match parameter.parent:
        case exp.TableAlias(parent=exp.Table() as table):
            # Delta has `@v1` for a version, and `@20240301120000000` for a timestamp.
            version = parameter.name.removeprefix("v")
            is_version = version.isdecimal() and (version != parameter.name or len(version) < 14)
            state = f"VERSION AS OF {version}" if is_version else "TIMESTAMP AS OF '2024-03-01 12:00:00'"
            raise ParseError(
                f"'{table.name}@{parameter.name}' is not a valid table name",
                hint=f"Write the version of a table as in {table.name} {state}",
            )
        case exp.Table():
            raise ParseError(
                f"expected a table name, found the parameter {_format_parameter(parameter.name)}",
                hint="A parameter can only be a value: write the table name into the query",
            )


def index_by_name(arguments: Arguments | None) -> dict[str, Any]:
    """Return the values of parameters by their names, which are numbers for question marks."""
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
        f"args= must be a mapping for :name, or a list for ?, found {add_article(type(arguments).__name__)}"
    )


def _explain_missing_value(name: str, values: Mapping[str, Any]) -> str:
    known = f" (args= has {', '.join(map(_format_parameter, values))})" if values else ""
    example = "c.sql(query, args=[value, …])" if name.startswith("_") else f"c.sql(query, args={{{name!r}: value}})"
    return f"the parameter {_format_parameter(name)} of the query has no value{known}: pass it as in {example}"


def _format_parameter(name: str) -> str:
    number = name.removeprefix("_")
    return f"? number {number}" if name.startswith("_") and number.isdecimal() else f":{name}"


def _replace_parameter(parameter: exp.Expr, value: Any) -> None:
    if hasattr(value, "to_pylist"):
        value = value.to_pylist()
    elif getattr(value, "ndim", 0):
        # NumPy scalars keep their types, while tolist() turns timestamps into integers of nanoseconds.
        value = list(value)
    if isinstance(value, list | tuple | set | frozenset | range):
        around = parameter.parent
        if not isinstance(around, exp.In):
            raise InvalidArgument(
                f"the parameter {_format_parameter(parameter.name)} is a list, which only IN (…) accepts"
            )
        if not value and len(around.expressions) == 1:
            # No value is in an empty list, for which engines have no syntax.
            around.replace(exp.false())
            return
        items = [_parse_value(parameter.name, each) for each in value]
        kept = (each if each is not parameter else None for each in around.expressions)
        around.set("expressions", [each for old in kept for each in (items if old is None else [old])])
        return
    parameter.replace(_parse_value(parameter.name, value))


def _parse_value(name: str, value: Any) -> exp.Expr:
    try:
        text = to_sql(value.to_expr() if isinstance(value, PartitionFilter) else literal(value))
    except TamisError as error:
        raise InvalidArgument(
            f"the value of the parameter {_format_parameter(name)} has no SQL literal: {error}"
        ) from error
    found: exp.Expr = sqlglot.parse_one(text, read=SparkCalls)
    for node in found.walk():
        # Their positions are not in the text of the query.
        node.meta.clear()
    if isinstance(found, exp.Literal) and "${" in found.this:
        # Spark would substitute a configuration value.
        parts = [exp.Literal.string(part) for part in re.split(r"(?<=\$)(?=\{)", found.this)]
        return exp.Anonymous(this="concat", expressions=parts)
    # An operator may have a lower precedence than the one around it.
    return exp.Paren(this=found) if isinstance(found, exp.Unary | exp.Binary) else found
