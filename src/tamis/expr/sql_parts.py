"""Building blocks for converting SQL: nodes that wait for their arguments, columns, and unsupported syntax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import errors as sqlglot_errors
from sqlglot import exp

from tamis import types
from tamis.errors import ParseError
from tamis.expr.nodes import Call, Column, Expr, Literal
from tamis.expr.sql_dialect import SparkText
from tamis.expr.sql_refusals import find_position, refuse
from tamis.expr.temporal import format_timestamp, parse_timestamp


@dataclass(frozen=True, slots=True)
class Pending:
    """A node whose parts must be converted before it is built."""

    parts: Sequence[exp.Expr]
    build: Callable[[tuple[Expr, ...]], Expr]


Conversion = Expr | Pending
"""The result of converting one node of sqlglot's tree."""


def pending_call(function: str, *parts: exp.Expr) -> Pending:
    return Pending(parts, lambda args: Call(function, args))


def to_opaque_call(node: exp.Expr) -> Expr:
    """Convert unsupported syntax to a call that holds its text and its columns."""
    columns: dict[Column, None] = {}
    for inner in node.dfs():
        refuse(inner)
        if isinstance(inner, exp.Column):
            while isinstance(inner.parent, exp.Dot) and isinstance(inner.parent.expression, exp.Identifier):
                inner = inner.parent
            columns[to_column(inner)] = None
        elif isinstance(inner, exp.Cast):
            _pin_to_utc(inner)
    try:
        text = node.sql(
            SparkText,
            comments=False,
            normalize_functions=False,
            unsupported_level=sqlglot_errors.ErrorLevel.RAISE,
        )
    except sqlglot_errors.UnsupportedError as error:
        raise ParseError(f"Spark's SQL has no such syntax: {error}", position=find_position(node)) from error
    return Call("sql", (Literal(text, types.STRING), *sorted(columns, key=lambda column: column.position or 0)))


def _pin_to_utc(node: exp.Cast) -> None:
    """Add the time zone to a timestamp text: here it is UTC, but the engine that runs the text may use another."""
    text = node.this
    is_instant = getattr(node.to.this, "name", None) in ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ")
    parsed = parse_timestamp(text.this) if is_instant and isinstance(text, exp.Literal) and text.is_string else None
    if parsed is not None and not parsed[1]:
        text.set("this", format_timestamp(parsed[0], "ns") + "Z")


def to_column_or_opaque(node: exp.Expr) -> Expr:
    inner = node
    while isinstance(inner, exp.Dot) and isinstance(inner.expression, exp.Identifier):
        inner = inner.this
    is_plain = isinstance(inner, exp.Column) and isinstance(inner.this, exp.Identifier)
    return to_column(node) if is_plain else to_opaque_call(node)


def to_column(node: exp.Expr) -> Column:
    """Convert `a.b.c` to a column: sqlglot parses the first parts as catalog, database and table, and others as Dot."""
    fields: list[exp.Expr] = []
    while isinstance(node, exp.Dot):
        fields.append(node.expression)
        node = node.this
    refuse(node.this)
    parts = [node.args[key] for key in ("catalog", "db", "table", "this") if node.args.get(key)]
    parts += reversed(fields)
    is_exact = any(part.args.get("quoted") for part in parts)
    return Column(tuple(part.name for part in parts), position=find_position(parts[0]), exact=is_exact)
