"""Column ids, the unique names of columns in a plan: their allocation, and substitution in expressions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp

from tamis.expr.functions.table import NOT_DETERMINISTIC, type_of
from tamis.expr.nodes import Call, Column, Expr, Literal, fold, get_operands, replace_args, walk
from tamis.expr.sql.parse import read_opaque, to_opaque_call
from tamis.expr.sql.to_tree import to_tree
from tamis.query.plan.paths import is_sql_text


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
    return not any(_is_random(node) for node in walk(expr))


def _is_random(node: Expr) -> bool:
    match node:
        case Call("sql", (Literal(str() as text), *_)):
            # SQL text that is not parsed: a match may also be a part of another name, which is safe.
            return any(f"{name}(" in text.lower() for name in NOT_DETERMINISTIC)
        case Call(function):
            return function in NOT_DETERMINISTIC
        case _:
            return False


def substitute(expr: Expr, replacements: Mapping[str, Expr]) -> Expr:
    """Replace columns in an expression by other expressions, also inside of SQL text that is not parsed.

    >>> from tamis.expr.sql.parse import parse_sql
    >>> substitute(parse_sql("a.x + b[0] > 5"), {"a": Column(("t",)), "b": Column(("u v",))})
    Call<t.x + (`u v`[0]) > 5>
    """

    def combine(node: Expr, args: tuple[Expr, ...]) -> Expr:
        match node:
            case Column(path):
                found = replacements.get(path[0])
                return node if found is None else get_field(found, path[1:], node)
            case Call("sql", (Literal(str() as text), *columns)):
                is_meant = any(isinstance(each, Column) and each.path[0] in replacements for each in columns)
                return _substitute_text(text, replacements) if is_meant else node
            case _:
                return replace_args(node, args)

    return fold(expr, combine, lambda node: () if is_sql_text(node) else get_operands(node))


def get_field(value: Expr, fields: tuple[str, ...], column: Column | None = None) -> Expr:
    """Return a field inside of a value; `column` is the column that the value replaces; both have the same type."""
    if not fields:
        return value
    if isinstance(value, Column):
        data_type = column.type if column is not None else None
        return Column((*value.path, *fields), value.position, data_type, value.exact)
    tree: exp.Expr = exp.Paren(this=to_tree(value))
    for name in fields:
        tree = exp.Dot(this=tree, expression=exp.to_identifier(name, quoted=True))
    return to_opaque_call(tree)


def _substitute_text(text: str, replacements: Mapping[str, Expr]) -> Expr:
    root = exp.Paren(this=read_opaque(text))
    types = {column.path: type_of(column) for value in replacements.values() for column in _find_columns(value)}
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
    found_call = to_opaque_call(root.this)
    assert isinstance(found_call, Call)
    typed = [_add_type(each, types) if isinstance(each, Column) else each for each in found_call.args]
    return Call("sql", tuple(typed))


def _add_type(column: Column, types: Mapping[tuple[str, ...], object]) -> Column:
    data_type = types.get(column.path)
    return column if data_type is None else Column(column.path, column.position, data_type, column.exact)


def _find_columns(expr: Expr) -> list[Column]:
    return [node for node in walk(expr) if isinstance(node, Column)]
