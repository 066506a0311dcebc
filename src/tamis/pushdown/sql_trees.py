"""Looking at the tree of a query that stays text: its tables, its subqueries, its conditions."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from tamis.errors import ParseError
from tamis.expr.sql_dialect import SparkText
from tamis.expr.sql_refusals import position_of
from tamis.expr.sql_syntax import DEEPEST, with_large_stack
from tamis.pushdown.scopes import chains


def text_of(tree: exp.Expr) -> str:
    """A tree as text in Spark's dialect."""

    def work() -> str:
        return str(tree.sql(SparkText, comments=False, normalize_functions=False))

    try:
        return work()
    except RecursionError:
        return with_large_stack(work, DEEPEST)


def refuse_what_engines_guess(tree: exp.Expr) -> None:
    """A ParseError for what the embedded engine would take, and mean something of its own by.

    It rounds a LIMIT that counts no rows; and its COLUMNS stands for the columns of what it reads, which are those
    that a query mentions.
    """
    for call in tree.find_all(exp.Anonymous, exp.Columns):
        if isinstance(call, exp.Columns) or call.name.casefold() == "columns":
            way_out = "Name the columns, or write *"
            raise ParseError("there is no function COLUMNS", position=position_of(call), hint=way_out)
    for node in tree.find_all(exp.Limit, exp.Offset):
        given = node.expression
        is_number = isinstance(given, exp.Literal) and given.name.isdecimal() and int(given.name) < 2**63
        if isinstance(given, exp.Literal | exp.Neg) and (given.is_string or not is_number):
            raise ParseError(
                f"{node.key.upper()} is a whole number of rows, not {text_of(given)}", position=position_of(given)
            )


def parts_of_block(tree: exp.Expr) -> tuple[list[exp.Table], list[exp.Expr]]:
    """The tables of a query outside of its subqueries, and the subqueries."""
    tables: list[exp.Table] = []
    nested: list[exp.Expr] = []
    stack = list(_children(tree))
    while stack:
        node = stack.pop()
        if isinstance(node, exp.Subquery) and not isinstance(node.this, exp.Query):
            stack += _children(node)
        elif isinstance(node, exp.Subquery) and node.args.get("with_") is None:
            nested.append(node.this)
            stack += [child for child in _children(node) if child is not node.this]
        elif isinstance(node, exp.Query):
            nested.append(node)
        else:
            if isinstance(node, exp.Table):
                tables.append(node)
            stack += _children(node)
    return tables[::-1], nested[::-1]


def _children(tree: exp.Expr) -> Iterator[exp.Expr]:
    return (child for child in tree.iter_expressions() if not isinstance(child, exp.With))


def preserved(tree: exp.Select) -> list[exp.Table]:
    """The tables of a FROM of which no outer join makes rows of NULL, and that are read as they are."""
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


def conjuncts(tree: exp.Expr) -> list[exp.Expr]:
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
    """Let columns be called by the last part of the name of their table alone, which is that of the input."""
    folded = tuple(part.casefold() for part in name)
    for top, parts in list(chains(tree)):
        if len(parts) <= len(name) or tuple(part.casefold() for part in parts[: len(name)]) != folded:
            continue
        table, column, *inner = parts[len(name) - 1 :]
        short: exp.Expr = exp.column(exp.to_identifier(column, quoted=True), exp.to_identifier(table, quoted=True))
        for each in inner:
            short = exp.Dot(this=short, expression=exp.to_identifier(each, quoted=True))
        top.replace(short)


def has_free_star(tree: exp.Expr) -> bool:
    """Whether a star stands for columns: not in `count(*)`."""
    return any(star.parent is None or not is_count(star.parent) for star in tree.find_all(exp.Star))


def is_count(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Anonymous) and tree.name.lower() == "count"


def may_be_several(tree: exp.Expr) -> bool:
    """Whether a function without an alias may return several columns, as `posexplode` does."""
    return isinstance(tree, exp.Anonymous) and tree.name.lower() in (
        "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple", "explode", "explode_outer",
        "unnest",
    )  # fmt: skip


def inner_commons(tree: exp.Expr) -> set[str]:
    """The names of all common table expressions inside of a query."""
    return {each.alias.casefold() for each in tree.find_all(exp.CTE)}


ABOUT_THE_PRINCIPAL = frozenset(("current_user", "session_user", "user"))
"""Functions of no arguments that tell who asks."""


def with_principal(tree: exp.Query, principal: str | None) -> exp.Query:
    """A query in which whoever asks stands in the place of `current_user()`; engines would tell who runs them."""
    for call in list(tree.find_all(exp.Anonymous, exp.CurrentUser)):
        if isinstance(call, exp.Anonymous) and (call.expressions or call.name.lower() not in ABOUT_THE_PRINCIPAL):
            continue
        value: exp.Expr = exp.cast(exp.Null(), "string") if principal is None else exp.Literal.string(principal)
        if isinstance(call.parent, exp.Select) and call.arg_key == "expressions":
            value = exp.alias_(value, text_of(call), quoted=True)
        call.replace(value)
    return tree
