"""Databases by their URIs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tamis.errors import InvalidArgument, TableNotFound, with_article
from tamis.tables.database.connection import Database

_POSTGRESQL = ("postgresql://", "postgres://")
_SUFFIXES = {".sqlite": "sqlite", ".sqlite3": "sqlite", ".db": "sqlite", ".duckdb": "duckdb", ".ddb": "duckdb"}


def open_database(place: str | os.PathLike[str] | Any) -> Database:
    """A database: `postgresql://…`, `sqlite:///path`, `duckdb:///path`, a path, or a DuckDB connection."""
    if type(place).__name__ == "DuckDBPyConnection":
        return _duckdb(place)
    if not isinstance(place, str | os.PathLike):
        kind = with_article(type(place).__name__)
        raise InvalidArgument(f"a database is opened by its URI, its path or a DuckDB connection, not by {kind}")
    text = os.fspath(place)
    if text.startswith(_POSTGRESQL):
        from tamis.tables.database.postgresql import PostgreSQLDatabase

        return PostgreSQLDatabase(text)
    scheme, sign, rest = text.partition("://")
    known = scheme if sign else _SUFFIXES.get(Path(text).suffix.lower())
    if known not in ("sqlite", "duckdb"):
        raise InvalidArgument(
            f"no database at {_shown(text)!r}: give postgresql://user@host/name, sqlite:///path or duckdb:///path"
        )
    file = _file(unquote(rest)) if sign else Path(text).expanduser()
    if not file.is_file():
        raise TableNotFound(f"there is no database file '{file}'")
    return _duckdb(str(file)) if known == "duckdb" else _sqlite(str(file))


def _file(path: str) -> Path:
    """The file of `sqlite:///a.db`, which is relative, or of `sqlite:////srv/a.db`, which is not.

    People leave the fourth slash out: a file that is there is meant.
    """
    if path.startswith("//"):
        return Path(path[1:])
    return Path(path[1:]) if path.startswith("/") and not Path(path).is_file() else Path(path)


def _shown(text: str) -> str:
    """A URI without what may be a password."""
    scheme, sign, rest = text.partition("://")
    return f"{scheme}{sign}{rest.rpartition('@')[2]}" if sign else text


def _sqlite(path: str) -> Database:
    from tamis.tables.database.sqlite import SQLiteDatabase

    return SQLiteDatabase(path)


def _duckdb(given: Any) -> Database:
    from tamis.tables.database.duckdb_file import DuckDBDatabase

    return DuckDBDatabase(given)
