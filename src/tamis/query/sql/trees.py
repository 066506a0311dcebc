"""Helpers for the syntax tree of a query: its tables, subqueries and conditions."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sqlglot import exp

from tamis.errors import ParseError
from tamis.expr.functions.aggregates import Kind, is_of_kind
from tamis.expr.sql.refusals import find_position
from tamis.expr.sql.syntax import to_sql_text
from tamis.query.sql.scopes import find_references


def refuse_engine_syntax(tree: exp.Expr) -> None:
    """Raise ParseError for a window function without OVER, and for what the embedded engine would understand otherwise.

    DuckDB rounds a fractional LIMIT, and its COLUMNS would expand to the columns that the pruned scan returns.
    """
    for call in tree.find_all(exp.Anonymous, exp.Columns):
        if isinstance(call, exp.Columns) or call.name.casefold() == "columns":
            hint = "Name the columns, or write *"
            raise ParseError("unknown function COLUMNS", position=find_position(call), hint=hint)
    for call in tree.find_all(exp.Anonymous):
        above = call.parent
        while isinstance(above, exp.IgnoreNulls | exp.RespectNulls | exp.Filter):
            above = above.parent
        if is_of_kind(call.name, Kind.WINDOW) and not isinstance(above, exp.Window):
            raise ParseError(
                f"the window function {call.name}() requires an OVER clause", position=find_position(call),
                hint=f"Write {to_sql_text(call)} OVER (ORDER BY …)",
            )  # fmt: skip
    for node in tree.find_all(exp.Limit, exp.Offset):
        given = node.expression
        is_number = isinstance(given, exp.Literal) and given.name.isdecimal() and int(given.name) < 2**63
        if isinstance(given, exp.Literal | exp.Neg) and (given.is_string or not is_number):
            raise ParseError(
                f"{node.key.upper()} must be a whole number of rows, found {to_sql_text(given)}",
                position=find_position(given),
            )


def split_block(tree: exp.Expr) -> tuple[list[exp.Table], list[exp.Expr]]:
    """Return the tables of a query outside of its subqueries, and the subqueries."""
    tables: list[exp.Table] = []
    nested: list[exp.Expr] = []
    stack = list(_iter_children(tree))
    while stack:
        node = stack.pop()
        if isinstance(node, exp.Subquery) and not isinstance(node.this, exp.Query):
            stack += _iter_children(node)
        elif isinstance(node, exp.Subquery) and node.args.get("with_") is None:
            nested.append(node.this)
            stack += [child for child in _iter_children(node) if child is not node.this]
        elif isinstance(node, exp.Query):
            nested.append(node)
        else:
            if isinstance(node, exp.Table):
                tables.append(node)
            stack += _iter_children(node)
    return tables[::-1], nested[::-1]


def _iter_children(tree: exp.Expr) -> Iterator[exp.Expr]:
    return (child for child in tree.iter_expressions() if not isinstance(child, exp.With))


def find_filterable_tables(tree: exp.Select) -> list[exp.Table]:
    """Return the tables of a FROM that are not null-extended by an outer join, sampled, pivoted or renamed."""
    sources: list[exp.Expr] = [tree.args["from_"].this]
    for join in tree.args.get("joins") or ():
        side, kind = join.args.get("side"), join.args.get("kind")
        if side in ("RIGHT", "FULL"):
            sources = []
        if side not in ("LEFT", "FULL") and kind not in ("SEMI", "ANTI"):
            sources.append(join.this)
    changed = ("pivots", "sample", "joins", "laterals", "version", "when")
    return [each for each in sources
            if isinstance(each, exp.Table) and not any(each.args.get(key) for key in changed)
            and not (each.args.get("alias") is not None and each.args["alias"].columns)]  # fmt: skip


def split_conjuncts(tree: exp.Expr) -> list[exp.Expr]:
    found: list[exp.Expr] = []
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, exp.Paren):
            stack.append(node.this)
        elif isinstance(node, exp.And):
            stack += [node.expression, node.this]
        else:
            found.append(node)
    return found


def shorten_names(tree: exp.Expr, name: tuple[str, ...]) -> None:
    """Qualify columns by the last part of their table's name alone, which is the alias of the input."""
    folded = tuple(part.casefold() for part in name)
    for top, parts in list(find_references(tree)):
        if len(parts) <= len(name) or tuple(part.casefold() for part in parts[: len(name)]) != folded:
            continue
        table, column, *inner = parts[len(name) - 1 :]
        short: exp.Expr = exp.column(exp.to_identifier(column, quoted=True), exp.to_identifier(table, quoted=True))
        for each in inner:
            short = exp.Dot(this=short, expression=exp.to_identifier(each, quoted=True))
        top.replace(short)


def has_free_star(tree: exp.Expr) -> bool:
    """Return whether a tree has a star that expands to columns, unlike that of `count(*)`."""
    return any(star.parent is None or not is_count(star.parent) for star in tree.find_all(exp.Star))


def is_count(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Anonymous) and tree.name.lower() == "count"


def may_have_several_columns(tree: exp.Expr) -> bool:
    """Return whether a tree is a generator without an alias, which may return several columns, as `posexplode` does."""
    return isinstance(tree, exp.Anonymous) and tree.name.lower() in (
        "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple", "explode", "explode_outer",
        "unnest",
    )  # fmt: skip


def find_inner_commons(tree: exp.Expr) -> set[str]:
    return {each.alias.casefold() for each in tree.find_all(exp.CTE)}


PRINCIPAL_FUNCTIONS = frozenset(("current_user", "session_user", "user"))
"""Functions without arguments that return the user."""


def replace_current_user(tree: exp.Query, principal: str | None) -> exp.Query:
    """Replace `current_user()` in a query by the principal. An engine would return the user that runs the process."""
    for call in list(tree.find_all(exp.Anonymous, exp.CurrentUser)):
        if isinstance(call, exp.Anonymous) and (call.expressions or call.name.lower() not in PRINCIPAL_FUNCTIONS):
            continue
        value: exp.Expr = exp.cast(exp.Null(), "string") if principal is None else exp.Literal.string(principal)
        if isinstance(call.parent, exp.Select) and call.arg_key == "expressions":
            value = exp.alias_(value, to_sql_text(call), quoted=True)
        call.replace(value)
    return tree


def mark_maps(tree: exp.Expr, maps: Collection[str]) -> bool:
    """Mark the map columns, given by name, among the arguments of generators; return whether there are any.

    A generator returns two columns for a map, and one for a list. The mark is `map_concat`, which returns the same map.
    """
    is_changed = False
    for call in list(tree.find_all(exp.Anonymous)):
        if call.name.lower() not in ("explode", "explode_outer", "posexplode", "posexplode_outer"):
            continue
        for value in call.expressions:
            if isinstance(value, exp.Column) and value.name.casefold() in maps:
                value.replace(exp.Anonymous(this="map_concat", expressions=[value.copy()]))
                is_changed = True
    return is_changed
