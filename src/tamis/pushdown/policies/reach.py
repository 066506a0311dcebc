"""What a query may name in a session with policies: tables of the session, and functions that look at nothing else.

An engine has functions of its own that go past the session: Spark's `IDENTIFIER('parquet.`path`')` reads the files of a
table without its policy and `reflect` calls any code, DuckDB's `enable_logging` shows what others ask. Functions that
return rows are therefore those of a list, whatever an engine adds later; of those that return values, which see nothing
but their arguments, the few are left out that do see more.
"""

from __future__ import annotations

from sqlglot import exp

from tamis.errors import AccessDenied

ROWS_OF_ARGUMENTS = frozenset((
    "range", "generate_series", "explode", "explode_outer", "posexplode", "posexplode_outer", "inline",
    "inline_outer", "stack", "json_tuple", "unnest", "variant_explode", "variant_explode_outer", "json_each",
    "json_tree",
))  # fmt: skip
"""Functions that make rows of their arguments alone."""

SEES_MORE = frozenset((
    "identifier", "table", "stream", "reflect", "try_reflect", "java_method", "getenv", "getvariable",
    "current_setting", "write_log", "query", "query_table", "current_query", "stats", "txid_current", "vector_type",
))  # fmt: skip
"""Functions, wherever they stand, that look at something else than their arguments, or change it."""


def refuse_to_reach_out(tree: exp.Expr) -> None:
    """Raise AccessDenied where a query names something that no policy is asked about."""
    for node in tree.find_all(exp.Table, exp.Lateral, exp.Anonymous):
        match node:
            case exp.Anonymous():
                if node.name.casefold() in SEES_MORE:
                    raise _denied(node.name)
            case exp.Table():
                parts = [node.args.get(key) for key in ("catalog", "db", "this")]
                if not all(part is None or isinstance(part, exp.Identifier) for part in parts):
                    _check_rows(node.this)
            case _ if not isinstance(node.this, exp.Subquery | exp.Unnest):
                _check_rows(node.this)


def _check_rows(tree: exp.Expr) -> None:
    name = tree.name if isinstance(tree, exp.Anonymous) else tree.sql("spark")
    if name.casefold() not in ROWS_OF_ARGUMENTS:
        raise _denied(name)


def _denied(name: str) -> AccessDenied:
    return AccessDenied(
        f"{name} may look at more than the tables of the session, which has policies: read from tables by their names"
    )
