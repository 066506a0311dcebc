"""Checks of common table expressions: unique names, and self-references only where Spark allows them."""

from __future__ import annotations

from sqlglot import exp

from tamis.expr.sql.refusals import make_unsupported_syntax_error
from tamis.query.sql.grouping import has_aggregate


def check_commons(clause: exp.With) -> None:
    names: set[str] = set()
    for each in clause.expressions:
        name = each.alias.casefold()
        if name in names:
            raise make_unsupported_syntax_error(
                each, f"WITH has two common table expressions called {each.alias}", "Give one another name"
            )
        names.add(name)
        if clause.recursive and find_references_to(each.this, name):
            _check_recursive(each, name)


def find_references_to(tree: exp.Expr, name: str) -> list[exp.Table]:
    """Return the references to a common table expression in a query."""
    return [
        table for table in tree.find_all(exp.Table)
        if table.name.casefold() == name and table.args.get("db") is None and isinstance(table.this, exp.Identifier)
    ]  # fmt: skip


def split_recursive_query(common: exp.CTE) -> tuple[exp.Expr, exp.Expr]:
    """Return the anchor part of a recursive query, and the recursive part, which refers to it."""
    body = common.this
    while isinstance(body, exp.Subquery) and not body.alias:
        body = body.this
    if not isinstance(body, exp.Union) or any(body.args.get(key) for key in ("order", "limit", "offset")):
        raise make_unsupported_syntax_error(
            common, f"the recursive query {common.alias} must be a query, UNION ALL, and a query that refers to it"
        )
    return body.this, body.expression


def _check_recursive(common: exp.CTE, name: str) -> None:
    first, rest = split_recursive_query(common)
    if common.this.unnest().args.get("distinct"):
        raise make_unsupported_syntax_error(
            common, f"the recursive query {common.alias} has UNION DISTINCT, which is not supported", "Write UNION ALL"
        )
    if find_references_to(first, name):
        raise make_unsupported_syntax_error(
            common, f"the first part of the recursive query {common.alias} must not refer to it"
        )
    for table in find_references_to(rest, name):
        if reason := _find_wrong_reference(table, rest):
            raise make_unsupported_syntax_error(
                table, f"{common.alias} refers to itself {reason}", "Refer to it in FROM or in an inner join"
            )


def _find_wrong_reference(table: exp.Table, whole: exp.Expr) -> str | None:
    """Return where a recursive query refers to itself although it must not; None if the reference is valid."""
    node: exp.Expr = table
    while node is not whole:
        parent = node.parent
        assert parent is not None
        match parent:
            case exp.Join() if node.arg_key == "this":
                if parent.side in ("LEFT", "FULL") or parent.kind in ("SEMI", "ANTI"):
                    return f"on the right side of a {parent.side} {parent.kind} join".replace("  ", " ")
            case exp.From():
                joins = parent.parent.args.get("joins") or () if parent.parent is not None else ()
                if any(join.side in ("RIGHT", "FULL") for join in joins):
                    return "on the left side of a right or full join"
            case exp.Select() if node.arg_key not in ("from_", "joins", "laterals"):
                return "in a subquery of an expression"
            case exp.Select():
                if reason := _find_wrong_clause(parent):
                    return reason
            case exp.SetOperation() if not isinstance(parent, exp.Union) or parent.args.get("distinct"):
                return f"in {parent.key.upper()}"
            case exp.Union() | exp.Subquery() | exp.Table() | exp.Lateral():
                pass
            case _:
                return "in a subquery of an expression"
        node = parent
    return _find_wrong_clause(whole.unnest())


def _find_wrong_clause(select: exp.Expr) -> str | None:
    if not isinstance(select, exp.Select):
        return None
    if select.args.get("group") or select.args.get("having") or any(map(has_aggregate, select.expressions)):
        return "under an aggregate function"
    for key in ("order", "limit", "offset", "sort"):
        if select.args.get(key):
            return f"in a query with {key.upper()}"
    return None
