"""Catalogs of pyiceberg by their properties, loaded so that nothing is made: Tamis reads.

pyiceberg creates the database of an SQL catalog that is not there, and the tables in it, so that a mistyped place would
become an empty catalog.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyiceberg import exceptions as theirs
from pyiceberg.catalog import Catalog, CatalogType, load_catalog
from pyiceberg.utils.config import Config

from tamis.errors import InvalidArgument, MissingDependency, StorageError, one_line, with_article

PARSING = (ValueError, TypeError, KeyError, AttributeError, theirs.ValidationError)
"""What pyiceberg raises for metadata, and for properties, that it does not know."""

REFUSED = (
    theirs.UnauthorizedError,
    theirs.ForbiddenError,
    theirs.AuthorizationExpiredError,
    theirs.OAuthError,
)
"""What pyiceberg raises where a catalog does not let somebody in."""

WAY_IN = "Give 'token' or 'credential' among its properties, or others"
"""What helps where a catalog refuses."""

_OF_PYICEBERG = tuple(each for each in vars(theirs).values() if isinstance(each, type) and issubclass(each, Exception))

_OF_OTHERS = (
    ("sqlalchemy.exc", "SQLAlchemyError"),
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("thrift.Thrift", "TException"),
    ("google.api_core.exceptions", "GoogleAPIError"),
    ("google.auth.exceptions", "GoogleAuthError"),
)
"""The roots of what the libraries behind catalogs raise."""

_NAME = "tamis"
"""Of a catalog whose properties have none."""

_WITH_URI = frozenset({"rest", "hive", "sql"})

_CREATES_NOTHING = {"init_catalog_tables": "false", "schema_version": "v0"}
"""The properties of SQL catalogs that keep pyiceberg from writing to their databases."""

_MOST_CHARACTERS = 400
"""Of what another library says: some repeat all that a server answered."""


def load(given: object) -> Catalog:
    """A catalog of pyiceberg: itself, or by its properties or its name."""
    if isinstance(given, Catalog):
        return given
    properties: dict[str, Any] = {}
    if isinstance(given, str):
        name = given
    elif isinstance(given, Mapping):
        properties = {str(key): value for key, value in given.items()}
        name = str(properties.pop("name", _NAME))
    else:
        raise InvalidArgument(
            "catalog= is a catalog of pyiceberg, its properties as in {'type': 'sql', 'uri': 'sqlite:///…'}, or the "
            f"name of a configured one, not {with_article(type(given).__name__)}"
        )
    what = f"the catalog '{name}'" if isinstance(given, str) or "name" in given else "the catalog"
    try:
        known = {**(Config().get_catalog_config(name) or {}), **properties}
        _refuse_incomplete(what, known)
        if not _is_database(known):
            return load_catalog(name, **known)
        _refuse_missing_file(what, str(known["uri"]))
        found = load_catalog(name, **{**known, **_CREATES_NOTHING})
        _refuse_empty_database(what, found)
    except theirs.NotInstalledError as error:
        raise MissingDependency(f"{what} cannot be opened: {said(error)}") from error
    except REFUSED as error:
        raise StorageError(f"{what} does not let you in: {said(error)}. {WAY_IN}") from error
    except (*PARSING, theirs.NoSuchPropertyException, ImportError) as error:
        raise InvalidArgument(f"{what} cannot be opened: {said(error)}") from error
    except raised_by_catalogs() as error:
        raise StorageError(f"{what} cannot be opened: {said(error)}") from error
    return found


def said(error: BaseException) -> str:
    """What an error of a library behind a catalog says, without what it is wrapped in, and not at any length."""
    inner = getattr(error, "orig", None) or getattr(error.args[0] if error.args else None, "reason", None)
    text = one_line(inner if isinstance(inner, BaseException) else error)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def raised_by_catalogs() -> tuple[type[Exception], ...]:
    """What catalogs raise that cannot do what they should: their own errors, and those of libraries that are loaded."""
    loaded = [getattr(sys.modules[module], name, None) for module, name in _OF_OTHERS if module in sys.modules]
    known = [each for each in loaded if isinstance(each, type) and issubclass(each, Exception)]
    # What a REST catalog does not offer, it is said to have not implemented.
    return (OSError, NotImplementedError, *_OF_PYICEBERG, *known)


def _refuse_incomplete(what: str, properties: Mapping[str, Any]) -> None:
    """An error in words of ours where the least is missing that nearly all catalogs need."""
    needs_uri = "py-catalog-impl" not in properties and str(properties.get("type") or "rest").lower() in _WITH_URI
    if not properties:
        raise InvalidArgument(
            f"pyiceberg is not configured for {what}: put it into .pyiceberg.yaml, or give its properties (name, type, "
            "uri, …) instead"
        )
    kind = properties.get("type")
    known = sorted(each.value for each in CatalogType)
    if kind and "py-catalog-impl" not in properties and str(kind).lower() not in known:
        raise InvalidArgument(f"{what} cannot be opened: no type {kind!r}. Types: {', '.join(known)}")
    if needs_uri and not properties.get("uri"):
        raise InvalidArgument(f"{what} cannot be opened: 'uri' is missing among its properties")


# --- Catalogs that are databases -------------------------------------------------------------------------------------


def _is_database(properties: Mapping[str, Any]) -> bool:
    """Whether pyiceberg takes the properties for those of an SQL catalog."""
    if "py-catalog-impl" in properties:
        return False
    if properties.get("type"):
        return str(properties["type"]).lower() == "sql"
    return str(properties.get("uri")).startswith(("sqlite", "postgresql"))


def _refuse_missing_file(what: str, uri: str) -> None:
    """An error where the database is a file that is not there: SQLite would make it."""
    try:
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError
    except ImportError as error:
        raise theirs.NotInstalledError("pip install 'pyiceberg[sql-sqlite]' or 'pyiceberg[sql-postgres]'") from error
    try:
        url = make_url(uri)
        url.get_dialect()
    except ArgumentError as error:
        raise ValueError(one_line(error)) from error
    database = url.database or ":memory:"
    if url.get_backend_name() != "sqlite" or ":memory:" in database or url.query.get("mode") == "memory":
        return
    path = urlsplit(database).path if database.startswith("file:") else database
    if not Path(path).is_file():
        raise InvalidArgument(
            f"{what} cannot be opened: there is no database file '{path}'. A path from the root has four slashes, as "
            "in sqlite:////data/catalog.db"
        )


def _refuse_empty_database(what: str, catalog: Catalog) -> None:
    from pyiceberg.catalog.sql import IcebergTables
    from sqlalchemy import inspect

    if not inspect(catalog.engine).has_table(IcebergTables.__tablename__):
        raise InvalidArgument(
            f"{what} cannot be opened: its database has no table '{IcebergTables.__tablename__}', so that it is not "
            "that of a catalog"
        )
