"""Column ids, the unique names of columns in a plan: their allocation, and substitution in expressions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa
from sqlglot import exp

from tamis.expr.functions.table import find_nondeterministic_function
from tamis.expr.nodes import (
    AnyExpr,
    Call,
    Column,
    Expr,
    L,
    Literal,
    Name,
    Tree,
    find_columns,
    fold,
    get_operands,
    replace_args,
    replace_columns,
    walk,
)
from tamis.expr.sql.parse import read_opaque, to_opaque_call
from tamis.expr.sql.to_tree import to_tree
from tamis.types import find_field_type

# --- Paths ----------------------------------------------------------------------------------------------------------
#
# Column paths: the columns of a plan, and the fields inside of them, that expressions read.


Path: TypeAlias = tuple[str, ...]
"""A column id, then field names."""


def collect_paths(exprs: Iterable[Expr]) -> list[Path]:
    """Return the paths that expressions read, each once and none nested in another."""
    found: dict[Path, None] = {}
    for expr in exprs:
        for node in walk(expr, _get_parsed_operands):
            if isinstance(node, Column):
                found[node.path] = None
            elif is_sql_text(node) and isinstance(node, Call):
                # SQL text that is not parsed: it may use any field of a column.
                found |= dict.fromkeys((each.path[0],) for each in node.args if isinstance(each, Column))
    return drop_nested_paths(found)


def drop_nested_paths(paths: Iterable[Path]) -> list[Path]:
    """Return each path once, without those nested in others.

    >>> drop_nested_paths([("a", "x"), ("b",), ("a",), ("b",)])
    [('b',), ('a',)]
    """
    wanted = dict.fromkeys(paths)
    return [path for path in wanted if not any(path[:length] in wanted for length in range(1, len(path)))]


def collect_column_ids(expr: Expr) -> frozenset[str]:
    return frozenset(node.path[0] for node in walk(expr) if isinstance(node, Column))


def replace_paths(expr: Expr, replacements: Mapping[Path, Column]) -> Expr:
    """Return the expression with paths, and the paths nested in them, replaced by columns.

    SQL text that is not parsed reads whole columns only, and those keep their names: see `collect_paths`.
    """

    def combine(node: Expr, args: tuple[Expr, ...]) -> Expr:
        if not isinstance(node, Column):
            return node if is_sql_text(node) else replace_args(node, args)
        for length in range(len(node.path), 0, -1):
            found = replacements.get(node.path[:length])
            if found is not None:
                return Column((*found.path, *node.path[length:]), node.type, node.position, found.exact)
        return node

    return fold(expr, combine, _get_parsed_operands)


def is_sql_text(node: AnyExpr) -> bool:
    """Return whether an expression is SQL that only an engine parses."""
    return isinstance(node, Call) and node.function == "sql"


def _get_parsed_operands(node: Expr) -> tuple[Expr, ...]:
    return () if is_sql_text(node) else get_operands(node)


class ColumnIds:
    """Allocates column ids that are unique in a plan, without regard to case, as engines compare names."""

    def __init__(self, used: Iterable[str] = ()) -> None:
        self._used = {name.casefold() for name in used}

    def allocate(self, wanted: str) -> str:
        """Return the name, with a number if it is in use.

        >>> ids = ColumnIds()
        >>> ids.allocate("total"), ids.allocate("Total"), ids.allocate("total")
        ('total', 'Total_2', 'total_3')
        """
        name, number = wanted, 1
        while name.casefold() in self._used:
            number += 1
            name = f"{wanted}_{number}"
        self._used.add(name.casefold())
        return name

    def allocate_scan(self, table: str, columns: Iterable[str]) -> list[str]:
        """Return column ids for one more scan of a table: `orders.id`, then `orders_2.id`."""
        columns = list(columns)
        prefix, number = table, 1
        while any(f"{prefix}.{column}".casefold() in self._used for column in columns):
            number += 1
            prefix = f"{table}_{number}"
        # Columns of one table may differ only by case.
        return [self.allocate(f"{prefix}.{column}") for column in columns]


def is_deterministic(expr: Expr) -> bool:
    """Return whether an expression always has the same value for the same row."""
    return find_nondeterministic_function(expr) is None


def substitute(expr: Tree[L], replacements: Mapping[str, Tree[L]]) -> Tree[L]:
    """Replace columns in an expression by other expressions, also inside of SQL text that is not parsed.

    >>> from tamis.expr.sql.parse import parse_sql
    >>> substitute(parse_sql("a.x + b[0] > 5"), {"a": Name(("t",)), "b": Name(("u v",))})
    Call<t.x + (`u v`[0]) > 5>
    """

    def combine(node: Tree[L], args: tuple[Tree[L], ...]) -> Tree[L]:
        match node:
            case Call("sql", (Literal(str() as text), *_)):
                own = find_columns(node)
                is_meant = any(each.path[0] in replacements for each in own)
                return _substitute_text(text, own, replacements) if is_meant else node
            case Literal() | Call():
                return replace_args(node, args)
            case _:
                found = replacements.get(node.path[0])
                return node if found is None else _get_field(found, node)

    return fold(expr, combine, lambda node: () if is_sql_text(node) else get_operands(node))


def _get_field(value: Tree[L], column: L) -> Tree[L]:
    """Return what a column names if a value replaces its first part: the value, or a field inside of it."""
    if len(column.path) == 1:
        return value
    if not isinstance(value, Literal | Call):
        return _extend(value, column.path[1:], column.type if isinstance(column, Column) else None)
    tree: exp.Expr = exp.Paren(this=to_tree(value))
    for name in column.path[1:]:
        tree = exp.Dot(this=tree, expression=exp.to_identifier(name, quoted=True))
    return _bind_text(tree, find_columns(value))


def _substitute_text(text: str, own: Iterable[L], replacements: Mapping[str, Tree[L]]) -> Tree[L]:
    root = exp.Paren(this=read_opaque(text))
    for column in list(root.find_all(exp.Column)):
        keys = [key for key in ("catalog", "db", "table", "this") if column.args.get(key) is not None]
        found = replacements.get(column.args[keys[0]].name)
        if found is None:
            continue
        # The parts after the first are fields.
        value = exp.Paren(this=to_tree(found)) if isinstance(found, Call) else to_tree(found)
        for key in keys[1:]:
            value = exp.Dot(this=value, expression=column.args[key].copy())
        column.replace(value)
    return _bind_text(root.this, [*own, *(each for value in replacements.values() for each in find_columns(value))])


def _bind_text(tree: exp.Expr, known: Iterable[L]) -> Tree[L]:
    """Return a call of unsupported syntax over known columns."""
    by_path = {column.path: column for column in known}

    def find(name: Name) -> L:
        lengths = range(len(name.path), 0, -1)
        length = next(length for length in lengths if name.path[:length] in by_path)
        return _extend(by_path[name.path[:length]], name.path[length:])

    return replace_columns(to_opaque_call(tree), find)


def _extend(column: L, fields: Path, data_type: pa.DataType | None = None) -> L:
    """Return the field inside of a column, of a given type if that of the column is unknown."""
    if not fields:
        return column
    inside = replace(column, path=(*column.path, *fields))
    if not isinstance(inside, Column):
        return inside
    return replace(inside, type=find_field_type(inside.type, fields) or data_type)
