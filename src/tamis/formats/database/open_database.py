"""Opening a database by URI, path or connection."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tamis.errors import InvalidArgument, TableNotFound, add_article
from tamis.formats.database.connection import Database, redact_password

_POSTGRESQL = ("postgresql://", "postgres://")
_SUFFIXES = {".sqlite": "sqlite", ".sqlite3": "sqlite", ".db": "sqlite", ".duckdb": "duckdb", ".ddb": "duckdb"}


def open_database(target: str | os.PathLike[str] | Any) -> Database:
    """Open a database: `postgresql://…`, `sqlite:///path`, `duckdb:///path`, a path, or a DuckDB connection."""
    if type(target).__name__ == "DuckDBPyConnection":
        return _open_duckdb(target)
    if not isinstance(target, str | os.PathLike):
        kind = add_article(type(target).__name__)
        raise InvalidArgument(f"expected a database URI, a path or a DuckDB connection, found {kind}")
    text = os.fspath(target)
    if text.startswith(_POSTGRESQL):
        from tamis.formats.database.postgresql import PostgreSQLDatabase

        return PostgreSQLDatabase(text)
    known, file = _find_database_file(text)
    if file is None:
        raise InvalidArgument(
            f"unsupported database {redact_password(text)!r}: "
            "expected postgresql://user@host/name, sqlite:///path or duckdb:///path"
        )
    if not file.is_file():
        hint = (
            ". An absolute path has four slashes, as in sqlite:////data/shop.db"
            if "://" in text
            else ". Check the path"
        )
        raise TableNotFound(f"database file not found: '{file}'{hint}")
    if known == "duckdb":
        return _open_duckdb(str(file))
    from tamis.formats.database.sqlite import SQLiteDatabase

    return SQLiteDatabase(str(file))


def find_database_file(target: str) -> Path | None:
    """Return the file of a database by its URI or path; None if it is on a server."""
    return _find_database_file(target)[1]


def _find_database_file(text: str) -> tuple[str | None, Path | None]:
    scheme, sign, rest = text.partition("://")
    known = scheme if sign else _SUFFIXES.get(Path(text).suffix.lower())
    if known not in ("sqlite", "duckdb"):
        return None, None
    return known, _find_file(unquote(rest)) if sign else Path(text).expanduser()


def _find_file(path: str) -> Path:
    """Return the file of `sqlite:///a.db`, which is relative, or of `sqlite:////srv/a.db`, which is absolute.

    Users often omit the fourth slash: an existing absolute path takes precedence.
    """
    if path.startswith("//"):
        return Path(path[1:])
    return Path(path[1:]) if path.startswith("/") and not Path(path).is_file() else Path(path)


def _open_duckdb(given: Any) -> Database:
    from tamis.formats.database.duckdb_file import DuckDBDatabase

    return DuckDBDatabase(given)
