"""What a query may name in a session with policies: tables of the session, and functions that look at nothing else.

An engine has functions of its own that go past the session: Spark's `IDENTIFIER('parquet.`path`')` reads the files of a
table without its policy and `reflect` calls any code, DuckDB's `enable_logging` shows what others ask. Functions that
return rows are therefore those of a list, whatever an engine adds later; of those that return values, which see nothing
but their arguments, the few are left out that do see more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tamis.errors import AccessDenied
from tamis.expr.sql_syntax import SparkCalls
from tamis.pushdown.sql_trees import text_of

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
    _check_names(tree)
    _check_names(_as_engines_read_it(tree))


def _check_names(tree: exp.Expr) -> None:
    for node in tree.find_all(exp.Table, exp.Lateral, exp.Anonymous):
        match node:
            case exp.Anonymous():
                if node.name.casefold() in SEES_MORE:
                    raise _denied(node.name)
            case exp.Table():
                if not all(isinstance(part, exp.Identifier) for part in node.parts):
                    _check_rows(node.this)
            case _ if not isinstance(node.this, exp.Subquery | exp.Unnest):
                _check_rows(node.this)


def _as_engines_read_it(tree: exp.Expr) -> exp.Expr:
    """A query as its text is read, in which nothing else may be read from.

    Some names are printed without their quotes, among them those of lateral views and of types: between back-ticks
    there could be a whole query.
    """
    try:
        again = sqlglot.parse(text_of(tree), read=SparkCalls)
    except SqlglotError:
        again = []
    if len(again) != 1 or again[0] is None or _sources(again[0]) != _sources(tree):
        raise AccessDenied(
            "the query cannot be checked against the policies of the session: leave away names between back-ticks that "
            "are no names of columns or tables"
        )
    return again[0]


def _sources(tree: exp.Expr) -> Counter[tuple[str, ...]]:
    found = tree.find_all(exp.Table, exp.Lateral)
    return Counter((each.key, *(part.name.casefold() for part in getattr(each, "parts", ()))) for each in found)


def refuse_other_tables(read: Iterable[str], given: Collection[str]) -> None:
    """Raise AccessDenied where a text for an engine reads from something else than its inputs."""
    others = sorted(set(read) - set(given))
    if others:
        raise _denied(others[0])


_SCHEMAS_OF_THE_SYSTEM = re.compile(r"pg_catalog|information_schema|pg_toast(_temp_\d+)?|pg_temp_\d+", re.IGNORECASE)


def refuse_system_tables(database: str, names: Sequence[str], dialect: str) -> None:
    """Raise AccessDenied for a table in which a database notes what its tables hold: histograms have raw values.

    `names` are those that the table has in the database.
    """
    schemas = (name.rpartition(".")[0] for name in names)
    is_of_sqlite = dialect == "sqlite" and any(name.casefold().startswith("sqlite_") for name in names)
    if is_of_sqlite or any(map(_SCHEMAS_OF_THE_SYSTEM.fullmatch, schemas)):
        raise AccessDenied(
            f"{database}.{names[0]} is a table of the database's own, which tells of all rows: a session with policies "
            "does not read it"
        )


def _check_rows(tree: exp.Expr) -> None:
    name = tree.name if isinstance(tree, exp.Anonymous) else tree.sql("spark")
    if name.casefold() not in ROWS_OF_ARGUMENTS:
        raise _denied(name)


def _denied(name: str) -> AccessDenied:
    return AccessDenied(
        f"{name} may look at more than the tables of the session, which has policies: read from tables by their names"
    )
