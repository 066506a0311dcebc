"""Loading pyiceberg catalogs read-only.

By default pyiceberg creates the missing database of an SQL catalog, and the tables in it, so that a mistyped location
would become an empty catalog.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyiceberg import exceptions as pyiceberg_exceptions
from pyiceberg.catalog import Catalog, CatalogType, load_catalog
from pyiceberg.utils.config import Config

from tamis.errors import InvalidArgument, MissingDependency, StorageError, add_article, to_one_line

PARSE_ERRORS = (ValueError, TypeError, KeyError, AttributeError, pyiceberg_exceptions.ValidationError)
"""The errors that pyiceberg raises for metadata and properties that it does not support."""

ACCESS_ERRORS = (
    pyiceberg_exceptions.UnauthorizedError,
    pyiceberg_exceptions.ForbiddenError,
    pyiceberg_exceptions.AuthorizationExpiredError,
    pyiceberg_exceptions.OAuthError,
)
"""The errors that pyiceberg raises when a catalog denies access."""

AUTHORIZATION_HINT = "Set 'token' or 'credential' in its properties, or correct them"
"""The advice for a catalog that denies access."""

_PYICEBERG_ERRORS = tuple(
    each for each in vars(pyiceberg_exceptions).values() if isinstance(each, type) and issubclass(each, Exception)
)

_LIBRARY_ERRORS = (
    ("sqlalchemy.exc", "SQLAlchemyError"),
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("thrift.Thrift", "TException"),
    ("google.api_core.exceptions", "GoogleAPIError"),
    ("google.auth.exceptions", "GoogleAuthError"),
)
"""The base classes of the errors that the libraries behind catalogs raise."""

_DEFAULT_NAME = "tamis"
"""The name of a catalog whose properties state none."""

_WITH_URI = frozenset({"rest", "hive", "sql"})

_READ_ONLY_PROPERTIES = {"init_catalog_tables": "false", "schema_version": "v0"}
"""Properties that prevent pyiceberg from writing to the database of an SQL catalog."""

_MAX_MESSAGE_LENGTH = 400
"""The longest quoted message of another library: some repeat the whole response of a server."""


def open_catalog(given: object) -> Catalog:
    """Open a pyiceberg catalog: itself, or by its properties or its name."""
    if isinstance(given, Catalog):
        return given
    properties: dict[str, Any] = {}
    if isinstance(given, str):
        name = given
    elif isinstance(given, Mapping):
        properties = {str(key): value for key, value in given.items()}
        name = str(properties.pop("name", _DEFAULT_NAME))
    else:
        raise InvalidArgument(
            "catalog= must be a pyiceberg catalog, its properties as in {'type': 'sql', 'uri': 'sqlite:///…'}, or the "
            f"name of a configured catalog, found {add_article(type(given).__name__)}"
        )
    what = f"the catalog '{name}'" if isinstance(given, str) or "name" in given else "the catalog"
    try:
        known = {**(Config().get_catalog_config(name) or {}), **properties}
        _reject_incomplete(what, known)
        if not _is_sql_catalog(known):
            return load_catalog(name, **known)
        _reject_missing_file(what, str(known["uri"]))
        found = load_catalog(name, **{**known, **_READ_ONLY_PROPERTIES})
        _reject_empty_database(what, found)
    except pyiceberg_exceptions.NotInstalledError as error:
        raise MissingDependency(f"{what} cannot be opened: {format_error(error)}") from error
    except ACCESS_ERRORS as error:
        raise StorageError(f"{what} denies access: {format_error(error)}. {AUTHORIZATION_HINT}") from error
    except (*PARSE_ERRORS, pyiceberg_exceptions.NoSuchPropertyException, ImportError) as error:
        raise InvalidArgument(f"{what} cannot be opened: {format_error(error)}") from error
    except list_catalog_errors() as error:
        raise StorageError(f"{what} cannot be opened: {format_error(error)}") from error
    return found


def format_error(error: BaseException) -> str:
    """Return the message of a catalog library's error, unwrapped and shortened."""
    inner = getattr(error, "orig", None) or getattr(error.args[0] if error.args else None, "reason", None)
    text = to_one_line(inner if isinstance(inner, BaseException) else error)
    return text if len(text) <= _MAX_MESSAGE_LENGTH else f"{text[:_MAX_MESSAGE_LENGTH]}…"


def list_catalog_errors() -> tuple[type[Exception], ...]:
    """Return the errors that a failing catalog may raise: pyiceberg's errors, and the errors of the libraries that are
    loaded."""
    loaded = [getattr(sys.modules[module], name, None) for module, name in _LIBRARY_ERRORS if module in sys.modules]
    known = [each for each in loaded if isinstance(each, type) and issubclass(each, Exception)]
    # pyiceberg raises NotImplementedError for an operation that a REST catalog does not offer.
    return (OSError, NotImplementedError, *_PYICEBERG_ERRORS, *known)


def _reject_incomplete(what: str, properties: Mapping[str, Any]) -> None:
    """Raise a clear error if a property is missing that nearly all catalogs need."""
    needs_uri = "py-catalog-impl" not in properties and str(properties.get("type") or "rest").lower() in _WITH_URI
    if not properties:
        raise InvalidArgument(
            f"pyiceberg is not configured for {what}: add it to .pyiceberg.yaml, or pass its properties (name, type, "
            "uri, …) instead"
        )
    kind = properties.get("type")
    known = sorted(each.value for each in CatalogType)
    if kind and "py-catalog-impl" not in properties and str(kind).lower() not in known:
        raise InvalidArgument(f"{what} cannot be opened: unknown type {kind!r}. Types: {', '.join(known)}")
    if needs_uri and not properties.get("uri"):
        raise InvalidArgument(
            f"{what} cannot be opened: the property 'uri' is missing. Add it to the catalog's properties"
        )


# --- Catalogs that are databases -------------------------------------------------------------------------------------


def _is_sql_catalog(properties: Mapping[str, Any]) -> bool:
    """Return whether pyiceberg treats the properties as those of an SQL catalog."""
    if "py-catalog-impl" in properties:
        return False
    if properties.get("type"):
        return str(properties["type"]).lower() == "sql"
    return str(properties.get("uri")).startswith(("sqlite", "postgresql"))


def _reject_missing_file(what: str, uri: str) -> None:
    """Raise if the database is a missing file: SQLite would create it."""
    try:
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError
    except ImportError as error:
        raise pyiceberg_exceptions.NotInstalledError(
            "pip install 'pyiceberg[sql-sqlite]' or 'pyiceberg[sql-postgres]'"
        ) from error
    try:
        url = make_url(uri)
        url.get_dialect()
    except ArgumentError as error:
        raise ValueError(to_one_line(error)) from error
    database = url.database or ":memory:"
    if url.get_backend_name() != "sqlite" or ":memory:" in database or url.query.get("mode") == "memory":
        return
    path = urlsplit(database).path if database.startswith("file:") else database
    if not Path(path).is_file():
        raise InvalidArgument(
            f"{what} cannot be opened: database file not found: '{path}'. An absolute path has four slashes, as in "
            "sqlite:////data/catalog.db"
        )


def _reject_empty_database(what: str, catalog: Catalog) -> None:
    from pyiceberg.catalog.sql import IcebergTables
    from sqlalchemy import inspect

    if not inspect(catalog.engine).has_table(IcebergTables.__tablename__):
        raise InvalidArgument(
            f"{what} cannot be opened: its database has no table '{IcebergTables.__tablename__}', so it is not a "
            "catalog"
        )
