"""Column paths: the columns of a plan, and the fields inside of them, that expressions read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import pyarrow as pa

from tamis.expr.nodes import Call, Column, Expr, fold, get_operands, replace_args, walk
from tamis.query.plan.nodes import Output

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
    """Return the column ids that an expression reads."""
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
                return Column((*found.path, *node.path[length:]), node.position, node.type, found.exact)
        return node

    return fold(expr, combine, _get_parsed_operands)


def find_field_type(outputs: Mapping[str, Output], path: Path) -> pa.DataType | None:
    """Return the type of a field inside of an output; None if the type is unknown or the field is missing."""
    output = outputs.get(path[0])
    data_type = None if output is None else output.type
    for name in path[1:]:
        if data_type is None or not pa.types.is_struct(data_type):
            return None
        index = data_type.get_field_index(name)
        data_type = data_type.field(index).type if index >= 0 else None
    return data_type


def is_sql_text(node: Expr) -> bool:
    """Whether an expression is SQL that only an engine parses."""
    return isinstance(node, Call) and node.function == "sql"


def _get_parsed_operands(node: Expr) -> tuple[Expr, ...]:
    return () if is_sql_text(node) else get_operands(node)
