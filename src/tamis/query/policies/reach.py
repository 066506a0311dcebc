"""What a query may name in a session with policies: tables of the session, and functions of their arguments alone.

Engines have functions that bypass the session: Spark's `IDENTIFIER('parquet.`path`')` reads the files of a table
without its policy, `reflect` calls any code, DuckDB's `enable_logging` shows the queries of others. Table functions are
therefore allowed by a list, so a function that an engine adds later is denied. Scalar functions see only their
arguments, and the few exceptions are denied by a list.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from sqlglot import TokenType, exp

from tamis.errors import AccessDenied, ParseError
from tamis.expr.functions.aggregates import Kind, is_of_kind
from tamis.expr.sql.dialect import SparkCalls
from tamis.expr.sql.syntax import parse_statement, to_sql_text

_ALLOWED_DUCKDB_FUNCTIONS = frozenset(("json_each", "json_tree"))
"""Table functions of DuckDB whose rows come from their arguments alone."""

DENIED_FUNCTIONS = frozenset((
    "identifier", "table", "stream", "reflect", "try_reflect", "java_method", "getenv", "getvariable",
    "current_setting", "write_log", "query", "query_table", "current_query", "stats", "txid_current", "vector_type",
))  # fmt: skip
"""Functions that read or change something besides their arguments."""


def refuse_outside_access(text: str, tree: exp.Expr) -> None:
    """Raise AccessDenied if a query names something that policies do not cover. It is checked as text and as a tree."""
    _refuse_unquoted_names(text)
    for node in tree.find_all(exp.Table, exp.Lateral, exp.Anonymous):
        match node:
            case exp.Anonymous():
                if node.name.casefold() in DENIED_FUNCTIONS:
                    raise _make_denied_error(node.name)
            case exp.Table():
                if not all(isinstance(part, exp.Identifier) for part in node.parts):
                    _check_table_function(node.this)
            case _ if not isinstance(node.this, exp.Subquery | exp.Unnest):
                _check_table_function(node.this)


def _refuse_unquoted_names(text: str) -> None:
    """Raise AccessDenied for a query in which a name between back-ticks would be printed without them.

    The names of types and units are printed so, and such a name could contain a whole query. So every quoted name is
    replaced by one that needs back-ticks, and must still have them when the query is printed.
    """
    tokens = [token for token in SparkCalls().tokenize(text) if token.token_type == TokenType.IDENTIFIER]
    if not tokens:
        return
    mark = "a name"
    while mark in text.casefold():
        mark += "_"
    given = {name: f"{mark} {number:06}" for number, name in enumerate(dict.fromkeys(token.text for token in tokens))}
    parts, start = [], 0
    for token in tokens:
        parts += [text[start : token.start], f"`{given[token.text]}`"]
        start = token.end + 1
    printed = to_sql_text(_read("".join([*parts, text[start:]])))
    quoted = sum(
        token.token_type == TokenType.IDENTIFIER and token.text.startswith(mark)
        for token in SparkCalls().tokenize(printed)
    )
    if quoted != printed.casefold().count(mark):
        raise AccessDenied(
            "a name between back-ticks cannot be checked against the policies of the session: use back-ticks only for "
            "columns and tables"
        )


def _read(text: str) -> exp.Expr:
    try:
        return parse_statement(text, lambda tree: tree)
    except ParseError:
        raise AccessDenied("the query cannot be checked against the policies of the session") from None


def refuse_other_tables(read: Iterable[str], given: Collection[str]) -> None:
    """Raise AccessDenied where a text for an engine reads from anything but its inputs."""
    others = sorted(set(read) - set(given))
    if others:
        raise _make_denied_error(others[0])


_SYSTEM_SCHEMAS = re.compile(r"pg_catalog|information_schema|pg_toast(_temp_\d+)?|pg_temp_\d+", re.IGNORECASE)


def refuse_system_tables(database: str, names: Sequence[str], prefix: str | None) -> None:
    """Raise AccessDenied for a system table: the histograms in it have raw values.

    `names` are the table's names in the database, and `prefix` is that of system tables outside of system schemas.
    """
    schemas = (name.rpartition(".")[0] for name in names)
    has_prefix = prefix is not None and any(name.casefold().startswith(prefix) for name in names)
    if has_prefix or any(map(_SYSTEM_SCHEMAS.fullmatch, schemas)):
        raise AccessDenied(
            f"{database}.{names[0]} is a system table, which describes all rows: a session with policies does not read "
            "it"
        )


def _check_table_function(tree: exp.Expr) -> None:
    name = tree.name if isinstance(tree, exp.Anonymous) else tree.sql("spark")
    if not is_of_kind(name, Kind.GENERATOR, Kind.TABLE) and name.casefold() not in _ALLOWED_DUCKDB_FUNCTIONS:
        raise _make_denied_error(name)


def _make_denied_error(name: str) -> AccessDenied:
    return AccessDenied(
        f"{name} may look at more than the tables of the session, which has policies: read from tables by their names"
    )
